"""The result of a search as a table, in plain text and in HTML."""

from __future__ import annotations

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.graph.query import Found, Match
from mithril_nb.stages.records import format_source
from mithril_nb.viz.html_parts import cell, html_table, output_html
from mithril_nb.viz.text import escaped, one_line
from mithril_nb.viz.units import flops, nbytes

MOST_MATCHES = 200
"""Largest number of rows in the table. `Found` contains all matches."""
_HEADS = ("block", "kind", "id", "role", "dtype", "FLOPs", "bytes", "memory", "Python line")
_NUMBERS = ("FLOPs", "bytes", "memory", "own FLOPs", "own bytes")


def found_text(found: Found, most: int | None = MOST_MATCHES) -> str:
    """Return the matches as plain text.

    Args:
        found: The result of a search.
        most: Largest number of matches to list; `None` lists all.
    """
    table = _table(found, most)
    text = columns(table, right=[at for at, head in enumerate(table[0]) if head in _NUMBERS]) if len(table) > 1 else ""
    return "\n".join(filter(None, [one_line(_caption(found)), text, _rest(found, most)]))


def found_html(found: Found) -> str:
    """Return the matches as one self-contained HTML fragment with at most `MOST_MATCHES` rows."""
    heads, *rows = _table(found, MOST_MATCHES)
    caption, rest = one_line(_caption(found)), _rest(found, MOST_MATCHES)
    if not rows:
        return output_html(f"<p>{escaped(caption)}</p>", "cost")
    looks = ["" if head in _NUMBERS else "words" for head in heads]
    cells = ((row[0], *map(cell, row[1:], looks[1:])) for row in rows)
    table = html_table(heads, cells, caption=caption)
    return output_html(table + (f"<p>{escaped(rest)}</p>" if rest else ""), "cost")


def _table(found: Found, most: int | None) -> list[tuple[str, ...]]:
    """Return the titles of the columns, and then the rows. Columns that are empty in all rows are left out."""
    rows = [tuple(map(one_line, _row(one, found))) for one in found.matches[:most]]
    used = [at for at in range(len(_HEADS)) if at == 0 or any(row[at] for row in rows)]
    # Fusions, loops and calls of HLO have separate rows for the instructions inside.
    heads = [f"own {head}" if found.stage == "hlo" and head in _NUMBERS[:2] else head for head in _HEADS]
    return [tuple(row[at] for at in used) for row in (heads, *rows)]


def _caption(found: Found) -> str:
    what = f"{'instruction' if found.stage else 'block'}{'' if found.searched == 1 else 's'}"
    what = f"{what} of {found.stage}" if found.stage else what
    match = "matches" if len(found) == 1 else "match"
    query = f": {found.query}" if found.query.terms else ""
    return f"{len(found):,} of {found.searched:,} {what} {match}{query}"


def _rest(found: Found, most: int | None) -> str:
    more = 0 if most is None else len(found) - most
    return f"... {more:,} more. To get all matches, iterate over the result." if more > 0 else ""


def _row(one: Match, found: Found) -> tuple[str, ...]:
    if not found.stage:
        return (one.id, one.kind, *("",) * 7)
    lines = ", ".join(map(format_source, one.line[:3])) + (", …" if len(one.line) > 3 else "")
    blocks = ", ".join(one.block[:3]) + (", …" if len(one.block) > 3 else "")
    kind = f"{one.kind}: {', '.join(one.contains)}" if one.contains else one.kind
    return (
        blocks or UNATTRIBUTED_LABEL, kind, one.id, one.role or "", ", ".join(one.dtype),
        "" if one.flops is None else flops(one.flops), "" if one.bytes is None else nbytes(one.bytes),
        "" if one.memory is None else nbytes(one.memory), lines,
    )  # fmt: skip
