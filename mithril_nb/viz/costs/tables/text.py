"""A table of costs as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.viz.costs.tables.columns import MEMORY, Column, Cost, CostTable, share_text, totals_by_source
from mithril_nb.viz.costs.tables.table_notes import communication, notes, unknowns
from mithril_nb.viz.text.escape import one_line
from mithril_nb.viz.text.units import nbytes

_WIDEST = 100
"""Most characters per line of a table with several sources, unless names are too long."""


def cost_text(cost: Cost, *, is_exact: bool = False) -> str:
    """Return the cost of a program as plain text; rows inside a row are indented.

    Args:
        cost: The costs as data, as for `cost_html`.
        is_exact: Whether numbers have all digits instead of three.

    Examples:
        >>> block = {"flops": 750, "transcendentals": 0, "bytes_accessed": 64, "params": 8, "share": 0.75}
        >>> rest = {"flops": 250, "transcendentals": 0, "bytes_accessed": 0, "params": 0, "share": 0.25}
        >>> total = {"flops": 1000, "transcendentals": 0, "bytes_accessed": 64, "params": 8}
        >>> found = {"source": "analytic", "by_block": {"a": block}, "unattributed": rest, "total": total}
        >>> print(cost_text(found).partition(chr(10) * 2)[0])
        block                FLOPs  transcendentals  bytes  params   share
        a                 750 FLOP                0   64 B       8  75.0 %
        (unattributed)    250 FLOP                0    0 B       0  25.0 %
        total           1.00 kFLOP                0   64 B       8   100 %
    """
    table = CostTable(cost, is_exact)
    text = ["\n\n".join(_block_tables(table))]
    below = [f"{why} {one_line(opcode)}: {rest}" for why, opcode, rest in unknowns(table.sources)]
    below += [one_line(note) for note in notes(table.sources, cost.get("unavailable", {}))]
    is_narrow = len(table.sources) > 1
    text += [line for note in below for line in (wrap(note, _WIDEST, subsequent_indent="  ") if is_narrow else [note])]
    sources: list[tuple[str, ...]] = [("source", "FLOPs", "transcendentals", "bytes")]
    sources += [(one_line(name), *cells) for name, cells, _ in totals_by_source(table)]
    text.append("\n" + columns(sources, right={1, 2, 3}))
    text += ["", *sent] if (sent := [*communication(table.sources, is_exact=is_exact)]) else []
    if cost.get("memory"):
        parts = ", ".join(f"{name} {nbytes(cost['memory'].get(name))}" for name in MEMORY)
        text.append(f"\nmemory: {parts}")
    return "\n".join(text)


def _block_tables(table: CostTable) -> list[str]:
    """Return the costs by block as text: one table, or several if the columns of all sources are too wide."""
    groups = [group for _, group in table.groups]
    whole = _block_table(table, groups, has_share=table.has_shares)
    if len(table.sources) < 2 or _width(whole) <= _WIDEST:
        return [whole]
    found: list[str] = []
    while groups:
        for count in range(len(groups), 0, -1):
            text = _block_table(table, groups[:count], has_share=table.has_shares and not found)
            if count == 1 or _width(text) <= _WIDEST:
                break
        found.append(text)
        groups = groups[count:]
    return found


def _block_table(table: CostTable, groups: Sequence[Sequence[Column]], *, has_share: bool) -> str:
    shown = [column for group in groups for column in group]
    titles = [column.title if not place else "" for group in groups for place, column in enumerate(group)]
    last = ("share",) if has_share else ()
    rows: list[tuple[str, ...]] = [("block", *titles, *last)]
    if table.is_deep:
        of = "of time" if table.is_timed else "of FLOPs"
        sources = ("" if column.title == "params" else one_line(column.source) for column in shown)
        rows.append(("", *sources, *(of for _ in last)))
    for row, share in zip(table.folded, table.shares(table.folded), strict=True):
        cells = [_cell_text(column, table.figures(column.source, row)) for column in shown]
        rows.append(("  " * row.depth + row.title, *cells, *(share_text(*share) for _ in last)))
    for name, key in ((UNATTRIBUTED_LABEL, "unattributed"), ("total", "total")):
        cells = [_cell_text(column, table.sources[column.source][key]) for column in shown]
        share = "100 %" if key == "total" else share_text(*table.share(table.main.get(key)))
        rows.append((name, *cells, *(share for _ in last)))
    return columns(rows, right=range(1, len(rows[0])))


def _width(text: str) -> int:
    return max(map(len, text.splitlines()))


def _cell_text(column: Column, figures: Mapping[str, Any] | None) -> str:
    if figures is None or (column.key == "time_s" and figures.get("time_s") is None):
        return ""
    return column.text(figures)
