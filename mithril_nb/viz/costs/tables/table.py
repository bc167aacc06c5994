"""Tables of costs: as HTML with bars, and as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from mithril_nb.display import AT_LEAST, UNATTRIBUTED_LABEL, columns
from mithril_nb.viz.costs.tables.columns import (
    MEMORY,
    Column,
    Cost,
    CostTable,
    column_text,
    communication,
    notes,
    share_text,
    totals_by_source,
    unknowns,
)
from mithril_nb.viz.costs.tables.rows import Row, flat_rows, value_of
from mithril_nb.viz.html_parts import Markup, cell, html_table, output_html
from mithril_nb.viz.palette import HUES, hue_of, hues_of_blocks
from mithril_nb.viz.text import block_key, escaped, one_line
from mithril_nb.viz.units import UNKNOWN, exact, flops, nbytes, percent

_OWN = ("(loss)", "(optimizer)")  # names from `stages` for costs outside the model's blocks
_ROLES = ("forward", "backward", "update")
_MOST_FORMULAS = 40
MOST_PLAIN_ROWS = 100
"""A saved page without JavaScript shows at most this many rows."""
_DEEPEST = 8
"""Largest indentation in levels. Deeper rows have the same indentation, so that their names stay visible."""


def cost_html(cost: Cost) -> str:
    """Return the cost of a program as one self-contained HTML fragment.

    The rows are the tree of blocks, as in `folded_rows`: equal blocks of a stack share a row, and so do the smallest
    blocks if there are many. A row with rows inside shows their sum.

    Args:
        cost: The costs as data: `Cost.to_dict()` or `Costs.to_dict()`.
    """
    table = CostTable(cost)
    hues = hues_of_blocks(path for path in table.blocks if path not in _OWN)
    return output_html(_tables(table, table.folded, hues), "cost")


def cost_tables(cost: Cost, hues: Mapping[str, int]) -> str:
    """Return tables with one row for each block, for a page that links rows. They have no style sheet."""
    table = CostTable(cost)
    return _tables(table, flat_rows(table.blocks), hues)


def page_tables(cost: Cost, hues: Mapping[str, int]) -> tuple[str, list[str]]:
    """Return the tables for a page that must be readable without JavaScript.

    Args:
        cost: The costs as data, as for `cost_html`.
        hues: Index of the colour of each block, by path.

    Returns:
        The tables as HTML, and a list of rows. If there are more than `MOST_PLAIN_ROWS` blocks, blocks share rows in
        the tables, and the list contains the HTML of one row for each block, which a script shows instead. Otherwise
        the list is empty.
    """
    table = CostTable(cost)
    rows = flat_rows(table.blocks)
    if len(rows) <= MOST_PLAIN_ROWS:
        return _tables(table, rows, hues), []
    note = (
        f'<p class="plain">{len(rows):,} blocks. Equal blocks and small blocks share a row. '
        "With JavaScript, each block has a row.</p>"
    )
    return note + _tables(table, table.folded, hues), _rows(table, rows, hues)


def _tables(table: CostTable, rows: Sequence[Row], hues: Mapping[str, int]) -> str:
    whole = ('<div class="costs">', _sources(table), _memory(table), "</div>")
    return "".join((_blocks(table, rows, hues), *_unknown(table), *whole, *_formulas(table)))


# The table of blocks


def _blocks(table: CostTable, rows: Sequence[Row], hues: Mapping[str, int]) -> str:
    by_block, lost = table.main.get("by_block", {}), table.main.get("unattributed")
    caption = "cost by block"
    if not table.is_timed and any(_role(one, role) for one in by_block.values() for role in ("backward", "update")):
        legend = (
            f'<span><span class="bar"><i class="{role[0]}" style="width:100%"></i></span>{role}</span>'
            for role in _ROLES
        )
        caption += f'<span class="legend">{"".join(legend)}</span>'
    body = map(Markup, _rows(table, rows, hues))
    largest = _largest(table, table.shares(rows))
    unattributed = "".join(_cell(column, table.sources[column.source]["unattributed"]) for column in table.columns)
    total = "".join(_cell(column, table.sources[column.source]["total"]) for column in table.columns)
    foot = (
        f'<tr><th scope="row"><span class="dot"></span>{UNATTRIBUTED_LABEL}</th>{unattributed}'
        f"{_share(table, lost, table.share(lost), largest)}</tr>"
        f'<tr class="total"><th scope="row">total</th>{total}{"<td></td>" if table.has_shares else ""}</tr>'
    )
    return html_table(Markup("".join(_heads(table))), body, caption=Markup(caption), foot=foot)


def _rows(table: CostTable, rows: Sequence[Row], hues: Mapping[str, int]) -> list[str]:
    shares, name = table.shares(rows), next(iter(table.sources), "")
    largest = _largest(table, shares)
    found = []
    for row, share in zip(rows, shares, strict=True):
        figures = {source: table.figures(source, row) for source in table.sources}
        cells = "".join(_cell(column, figures[column.source]) for column in table.columns)
        found.append(f"{row_head(row, hues)}{cells}{_share(table, figures.get(name), share, largest)}</tr>")
    return found


def _largest(table: CostTable, shares: Sequence[tuple[float | None, str]]) -> float:
    """Return the largest share, unattributed cost included. The bars of all shares are relative to it."""
    return max((share or 0.0 for share, _ in (*shares, table.share(table.main.get("unattributed")))), default=0.0)


def row_head(row: Row, hues: Mapping[str, int]) -> str:
    """Return the start of a row as HTML: a dot in the colour of the block, and the indented name."""
    hue = None if row.path is None else hue_of(row.path, hues)
    dot = f'<span class="dot{" none" if row.path is None else "" if hue is None else f" h{int(hue) % HUES}"}"></span>'
    link = "" if row.path is None else f' data-block="{escaped(block_key(row.path))}" tabindex="0"'
    deep = f' style="padding-left:{10 + 16 * min(row.depth, _DEEPEST)}px"' if row.depth else ""
    more = f' <span class="quiet">{row.closed} inside</span>' if row.closed else ""
    label = escaped(row.label) if row.path is not None else f'<span class="quiet">{escaped(row.label)}</span>'
    return f'<tr{link}><th scope="row"{deep} title="{escaped(one_line(row.about))}">{dot}{label}{more}</th>'


def _heads(table: CostTable) -> Iterator[str]:
    last = "share of time" if table.is_timed else "share of FLOPs"
    deep = ' rowspan="2"' if table.is_deep else ""
    yield f'<tr><th scope="col"{deep}>block</th>'
    for title, group in table.groups:
        if not table.is_deep or title == "params":
            yield f'<th scope="col"{deep}>{title}</th>'
        else:
            yield f'<th scope="colgroup" colspan="{len(group)}">{title}</th>'
    yield f'<th scope="col"{deep}>{last}</th></tr>' if table.has_shares else "</tr>"
    if table.is_deep:
        heads = "".join(
            f'<th scope="col">{escaped(one_line(column.source))}</th>'
            for title, group in table.groups
            if title != "params"
            for column in group
        )
        yield f"<tr>{heads}</tr>"


def _cell(column: Column, figures: Mapping[str, Any] | None) -> str:
    if figures is None:
        return "<td></td>"
    return _value_cell(column.text(figures), value_of(figures, column.key), column.key == "time_s")


def _value_cell(text: str, value: float | str | None, is_blank: bool = False) -> Markup:
    """Return the cell of a cost. Its tooltip shows all digits or the whole formula, which screen readers read, too."""
    if value is None:
        return cell("") if is_blank else cell(UNKNOWN, "unknown")
    if isinstance(value, str):
        spoken = f' aria-label="{escaped(value)}"' if text != value else ""
        return Markup(f'<td title="{escaped(value)}"{spoken}>{escaped(text)}</td>')
    at_least = "at least " if text.startswith(AT_LEAST) else ""
    return Markup(f'<td title="{at_least}{exact(value)}">{escaped(text)}</td>')


def _share(table: CostTable, figures: Mapping[str, Any] | None, of: tuple[float | None, str], largest: float) -> str:
    """Return the cell of a share: a number, and a bar relative to `largest`; `""` if the table has no shares."""
    share, bound = of
    if not table.has_shares:
        return ""
    text = share_text(share, bound)
    if share is None:
        return f'<td><span class="unknown">{UNKNOWN}</span></td>'
    known = [] if figures is None or table.is_timed else [(role, _role(figures, role)) for role in _ROLES]
    known = [(role, value) for role, value in known if value]
    whole = sum(value for _, value in known)
    length = 100 * min(1.0, max(0.0, share / largest)) if largest > 0 else 0.0
    if len(known) < 2:
        look = known[0][0][0] if known else "f"
        return f'<td>{text}<span class="bar"><i class="{look}" style="width:{length:.1f}%"></i></span></td>'
    parts = ", ".join(f"{role} {percent(value / whole)}" for role, value in known)
    bars = "".join(f'<i class="{role[0]}" style="width:{length * value / whole:.2f}%"></i>' for role, value in known)
    return f'<td>{text}<span class="bar" title="{parts}">{bars}</span></td>'


def _role(figures: Mapping[str, Any], role: str) -> int:
    return figures.get("roles", {}).get(role, {}).get("flops") or 0


# The parts below the table of blocks


def _unknown(table: CostTable) -> Iterator[str]:
    for why, opcode, rest in unknowns(table.sources):
        yield f"<p>{why[0].upper()}{why[1:]} <code>{escaped(opcode)}</code>: {rest}.</p>"
    yield from (f"<p>{escaped(line)}</p>" for line in communication(table.sources))
    for note in notes(table.sources, table.data.get("unavailable", {})):
        yield f"<p>{escaped(one_line(note))}</p>"


def _sources(table: CostTable) -> str:
    rows = (
        (one_line(name), *(_value_cell(text, value) for text, value in zip(texts, values, strict=True)))
        for name, texts, values in totals_by_source(table)
    )
    return html_table(("source", "FLOPs", "transcendentals", "bytes"), rows, caption="whole program, by source")


def _memory(table: CostTable) -> str:
    memory = table.data.get("memory") or {}
    rows = ((name, _value_cell(nbytes(memory.get(name)), memory.get(name))) for name in MEMORY)
    return html_table((), rows, caption="memory of the compiled program") if memory else ""


def _formulas(table: CostTable) -> Iterator[str]:
    """Yield a table for each source: how often each formula is used to count FLOPs. The tables are collapsed."""
    for name, cost in table.sources.items():
        groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for row in cost.get("rows", ()):
            groups.setdefault((str(row["opcode"]), str(row["formula"])), []).append(row)
        found = sorted(groups.items(), key=lambda group: -_sum(group[1], "flops"))
        if not found:
            continue
        yield f'<details class="formulas"><summary>how it is counted: {escaped(one_line(name))}</summary>'
        heads = ("opcode", "FLOPs of one run", "rows", *(("FLOPs", "bytes") if table.has_numbers else ()))
        lines = (_formula_row(table, *group) for group in found[:_MOST_FORMULAS])
        yield html_table(heads, lines, words=1)
        if len(found) > _MOST_FORMULAS:
            yield f"<p>and {len(found) - _MOST_FORMULAS} more</p>"
        yield "".join(f"<p>{escaped(one_line(note))}</p>" for note in cost.get("notes", ()))
        yield "</details>"


def _formula_row(table: CostTable, group: tuple[str, str], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    opcode, formula = group
    yield one_line(opcode)
    yield cell(one_line(formula), "words")
    yield f"{len(rows):,}"
    for key, written in (("flops", flops), ("bytes_accessed", nbytes)) if table.has_numbers else ():
        value = None if all(row.get(key) is None for row in rows) else _sum(rows, key)
        yield _value_cell(written(value), value)


def _sum(rows: Sequence[Mapping[str, Any]], key: str) -> int:
    return sum(row.get(key) or 0 for row in rows)


_WIDEST = 100
"""If a table of several sources has longer lines, in characters, it is divided into several tables."""


def cost_text(cost: Cost, *, is_exact: bool = False) -> str:
    """Return the cost of a program as plain text.

    Args:
        cost: The costs as data, as for `cost_html`.
        is_exact: If true, numbers have all digits, else three.

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
    """Return the costs by block as text: one table, or several if one would be too wide."""
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
        cells = [column_text(column, table.figures(column.source, row)) for column in shown]
        rows.append(("  " * row.depth + row.title, *cells, *(share_text(*share) for _ in last)))
    for name, key in ((UNATTRIBUTED_LABEL, "unattributed"), ("total", "total")):
        cells = [column_text(column, table.sources[column.source][key]) for column in shown]
        share = "100 %" if key == "total" else share_text(*table.share(table.main.get(key)))
        rows.append((name, *cells, *(share for _ in last)))
    return columns(rows, right=range(1, len(rows[0])))


def _width(text: str) -> int:
    return max(map(len, text.splitlines()))
