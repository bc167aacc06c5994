"""Texts of several lines: aligned columns, and the first lines of a long text."""

from __future__ import annotations


def columns(rows: list[tuple[str, ...]], right: frozenset[int] = frozenset({5})) -> str:
    """Return rows as aligned columns, without the empty ones.

    Examples:
        >>> print(columns([("a", "", "10"), ("bcd", "", "5")], right=frozenset({2})))
        a    10
        bcd   5
    """
    used = [at for at in range(len(rows[0])) if any(row[at] for row in rows)] if rows else []
    widths = {at: max(len(row[at]) for row in rows) for at in used}
    lines = (
        "  ".join(row[at].rjust(widths[at]) if at in right else row[at].ljust(widths[at]) for at in used)
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def cut_text(text: str, most_lines: int | None) -> str:
    """Return the first lines of a text, and the number of lines left out."""
    lines = text.rstrip("\n").split("\n")
    if most_lines is None or len(lines) <= most_lines:
        return "\n".join(lines)
    return "\n".join([*lines[:most_lines], f"... {count_more(len(lines) - most_lines)}"])


def count_more(count: int) -> str:
    """Return the number of lines left out, as text."""
    return f"{count:,} more line{'' if count == 1 else 's'}"
