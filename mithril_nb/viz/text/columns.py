"""The first lines of a long text."""

from __future__ import annotations


def cut_text(text: str, most_lines: int | None) -> str:
    """Return the first lines of a text, and the number of lines left out."""
    lines = text.rstrip("\n").split("\n")
    if most_lines is None or len(lines) <= most_lines:
        return "\n".join(lines)
    return "\n".join([*lines[:most_lines], f"... {count_more(len(lines) - most_lines)}"])


def count_more(count: int) -> str:
    """Return the number of lines left out, as text."""
    return f"{count:,} more line{'' if count == 1 else 's'}"
