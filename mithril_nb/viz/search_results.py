"""The result of a search as a table, in plain text and in HTML."""

from __future__ import annotations

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.graph.query import Found, Match
from mithril_nb.stages.records import format_source
from mithril_nb.viz.html_parts import cell, html_table, output_html
from mithril_nb.viz.text import escaped, one_line
from mithril_nb.viz.units import flops, nbytes

# Largest number of rows in the table. `Found` contains all matches.
MOST_MATCHES = 200
_HEADS = ("block", "kind", "id", "role", "dtype", "FLOPs", "bytes", "memory", "Python line")
_NUMBERS = ("FLOPs", "bytes", "memory", "own FLOPs", "own bytes")


def result_text(result: Found, most: int | None = MOST_MATCHES) -> str:
    """Return the matches as plain text: at most `most`, or all for `None`."""
    table = _table(result, most)
    text = columns(table, right=[at for at, head in enumerate(table[0]) if head in _NUMBERS]) if len(table) > 1 else ""
    return "\n".join(filter(None, [_caption(result), text, _rest(result, most)]))


def result_html(result: Found) -> str:
    """Return the matches as one self-contained HTML fragment with at most `MOST_MATCHES` rows."""
    heads, *rows = _table(result, MOST_MATCHES)
    caption, rest = _caption(result), _rest(result, MOST_MATCHES)
    if not rows:
        return output_html(f"<p>{escaped(caption)}</p>", "cost")
    styles = ["" if head in _NUMBERS else "words" for head in heads]
    cells = ((row[0], *map(cell, row[1:], styles[1:])) for row in rows)
    table = html_table(heads, cells, caption=caption)
    return output_html(table + (f"<p>{escaped(rest)}</p>" if rest else ""), "cost")


def _table(result: Found, most: int | None) -> list[tuple[str, ...]]:
    rows = [tuple(map(one_line, _row(match, result))) for match in result.matches[:most]]
    used = [at for at in range(len(_HEADS)) if at == 0 or any(row[at] for row in rows)]
    # Fusions, loops and calls of HLO have separate rows for the instructions inside.
    heads = [f"own {head}" if result.stage == "hlo" and head in _NUMBERS[:2] else head for head in _HEADS]
    return [tuple(row[at] for at in used) for row in (heads, *rows)]


def _caption(result: Found) -> str:
    plural = "" if result.searched == 1 else "s"
    noun = f"instruction{plural} of {result.stage}" if result.stage else f"block{plural}"
    match = "matches" if len(result) == 1 else "match"
    query = f": {result.query}" if result.query.terms else ""
    return one_line(f"{len(result):,} of {result.searched:,} {noun} {match}{query}")


def _rest(result: Found, most: int | None) -> str:
    more = 0 if most is None else len(result) - most
    return f"... {more:,} more. To get all matches, iterate over the result." if more > 0 else ""


def _row(match: Match, result: Found) -> tuple[str, ...]:
    if not result.stage:
        return (match.id, match.kind, *("",) * 7)
    blocks, lines = (
        ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        for names in (match.block, [*map(format_source, match.line)])
    )
    kind = f"{match.kind}: {', '.join(match.contains)}" if match.contains else match.kind
    numbers = ((flops, match.flops), (nbytes, match.bytes), (nbytes, match.memory))
    return (
        blocks or UNATTRIBUTED_LABEL, kind, match.id, match.role or "", ", ".join(match.dtype),
        *("" if value is None else form(value) for form, value in numbers), lines,
    )  # fmt: skip
