"""Costs from one or several sources as a table: HTML and plain text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from textwrap import wrap
from typing import Any

from mithril_nb.display import AT_LEAST, UNATTRIBUTED_LABEL, columns
from mithril_nb.figures import COUNTED, FIGURES, MAIN, MEASURED, OF_XLA, SENT
from mithril_nb.viz.costs.fields import FIELDS, at_least, is_bound
from mithril_nb.viz.costs.tables.rows import (
    TableRow,
    flat_rows,
    folded_rows,
    share_of,
    short_formula,
    sum_figures,
    value_of,
)
from mithril_nb.viz.html_parts import Markup, cell, html_table, output_html, paragraphs
from mithril_nb.viz.palette import HUES, hue_of, hues_of_blocks
from mithril_nb.viz.text import block_key, escaped, one_line
from mithril_nb.viz.units import UNKNOWN, exact, nbytes, percent, si

# Costs as data: `Cost.to_dict()` for one source, `Costs.to_dict()` for several.
Cost = Mapping[str, Any]
# Parts of the memory of a compiled program.
MEMORY = ("argument", "output", "temp", "alias", "code")
_OUTSIDE = ("(loss)", "(optimizer)")  # names from `stages` for costs outside the model's blocks
_ROLES = ("forward", "backward", "update")
_MOST_FORMULAS = 40
# A saved page without JavaScript shows at most this many rows.
MOST_PLAIN_ROWS = 100
# Largest indentation in levels. Deeper rows have the same indentation, so that their names stay visible.
_DEEPEST = 8
# If a table of several sources has longer lines, in characters, it is divided into several tables.
_WIDEST = 100


def _has_time(figures: Mapping[str, Any], key: str) -> bool:
    return figures.get(key) is not None or bool(FIGURES[key].unknown_in(figures))


@dataclass(frozen=True)
class Column:
    """A column of costs."""

    title: str
    key: str
    format: Callable[[float | None], str]
    source: str = ""

    def text(self, figures: Mapping[str, Any] | None) -> str:
        """Format the cost of a row: a number, a lower bound, a formula, or `"unknown"`.

        The text is `""` if the source has no cost for the row, or if a time is not measured.
        """
        if figures is None or (self.key in MEASURED and not _has_time(figures, self.key)):
            return ""
        value = value_of(figures, self.key)
        if isinstance(value, str):
            return short_formula(value)
        return at_least(self.format(value), is_bound(figures, self.key))


# All columns of costs except the parameters.
QUANTITIES = tuple(Column(FIGURES[key].column, key, FIELDS[key].short) for key in (*COUNTED, *MEASURED))
_OF_XLA = tuple(column for column in QUANTITIES if column.key in OF_XLA)
_TOTALS = ("source", *(column.title for column in _OF_XLA))
# The last column. Only the first source has it, because the parameters are the same for all sources.
_PARAMS = Column("params", "params", si)


class CostTable:
    """A table of costs from one or several sources. The first source has the parameters, and its shares are shown."""

    def __init__(self, data: Cost, is_exact: bool = False):
        self.data, self.is_exact = data, is_exact
        self.sources: Mapping[str, Cost] = data["sources"] if "sources" in data else {str(data["source"]): data}
        self.name, self.main = next(iter(self.sources.items()), ("", {}))
        total = self.main.get("total", {})
        self.blocks = list(dict.fromkeys(path for cost in self.sources.values() for path in cost["by_block"]))
        counted = [name for name in self.sources if name != "measured"] or list(self.sources)
        with_time = {
            key: [name for name, cost in self.sources.items() if _has_time(cost["total"], key)] for key in MEASURED
        }
        groups = defaultdict[str, list[Column]](list)
        for column in (*QUANTITIES, *([_PARAMS] if value_of(total, "params") is not None else [])):
            if column.key in SENT and not any(map(_communicates, self.sources.values())):
                continue
            form = exact if is_exact and column.key not in MEASURED else column.format
            for name in {**with_time, "params": [self.name]}.get(column.key, counted):
                groups[column.title].append(replace(column, source=name, format=form))
        self.groups = list(groups.items())
        self.columns = [column for group in groups.values() for column in group]
        # The head has two rows: titles, and below them the names of sources.
        self.is_deep = any(len(group) > 1 or "time" in title for title, group in self.groups)
        # Shares are shares of the time, or else of the FLOPs. If these are a formula or 0, there are none.
        self.time = next((key for key in MEASURED if FIGURES[key].source == self.main.get("source")), "")
        self.has_numbers = not isinstance(value_of(total, "flops"), str)
        self.has_shares = self.has_numbers and (
            bool(self.time) or total.get("flops") != 0 or bool(total.get("unknown"))
        )

    @cached_property
    def folded(self) -> list[TableRow]:
        """The rows of the table, in which equal and small blocks share a row."""
        return folded_rows([cost["by_block"] for cost in self.sources.values()], self.time or "flops")

    def figures(self, source: str, row: TableRow) -> Mapping[str, Any] | None:
        """Return the cost of a row from a source; `None` if the source contains none of the blocks of the row."""
        cost = self.sources[source]
        parts = [cost["by_block"][path] for path in row.paths if path in cost["by_block"]]
        return sum_figures(parts, cost["total"]) if parts else None

    def share(self, figures: Mapping[str, Any] | None, row: TableRow | None = None) -> tuple[float | None, str]:
        """Return the share of a row and its bound, as `share_of` does. Without `row`: of the unattributed cost."""
        if figures is None:
            return 0.0, ""
        if self.time:
            total, part = self.main["total"].get(self.time), figures.get(self.time)
            return (part or 0.0) / total if total else None, ""
        if row is None or "share" in figures:
            return figures.get("share"), figures.get("share_bound", "")
        inside = set(row.paths)
        others = (other for path, other in self.main["by_block"].items() if path not in inside)
        return share_of(figures, chain(others, [self.main["unattributed"]]), self.main["total"])

    def shares(self, rows: Sequence[TableRow]) -> list[tuple[float | None, str]]:
        """Return the share of each row and its bound as in `share_of`."""
        return [self.share(self.figures(self.name, row), row) for row in rows]

    def totals(self) -> Iterator[tuple[str, list[str], list[float | str | None]]]:
        """Yield totals of the program: a name; the figures that XLA reports, as texts; and the same as values.

        Each source has one total. Some have further ones: the total with loops counted once, and the total of XLA.
        """
        columns = [replace(column, format=exact) if self.is_exact else column for column in _OF_XLA]
        for name, cost in self.sources.items():
            if name == "measured" and len(self.sources) > 1:
                continue  # a profile has the counts of the compiled program
            extras = map(cost.get, ("once", "xla"))
            once, xla = (extra and {**extra, "bytes_accessed": extra.get("bytes")} for extra in extras)
            first = [value_of(cost["total"], column.key) for column in columns]
            # In a program without loops, the total with loops counted once is the same.
            if once and (not self.has_numbers or first == [value_of(once, column.key) for column in columns]):
                once = None
            for figures in filter(None, ({**cost["total"], "name": name}, once, xla)):
                values = [value_of(figures, column.key) for column in columns]
                yield str(figures["name"]), [column.text(figures) for column in columns], values

    def unknowns(self) -> Iterator[tuple[str, str, str]]:
        """Yield a note for each primitive or opcode without a known cost. The texts: reason, name, number."""
        reasons: dict[tuple[str, str, str, str, str], dict[str, str]] = {}
        for name, cost in self.sources.items():
            noun = "equation" if name == "analytic" else "instruction"
            for entry in cost.get("unknown", ()):
                if entry.get("reason") == "size unknown" and cost["total"].get("formulas"):
                    continue  # counted in the formulas
                count, share = entry.get("count"), entry.get("share")
                uncounted = "not counted" if count is None else f"{count} {noun}{'' if count == 1 else 's'} not counted"
                reason, _, because = str(entry.get("reason", "no rule")).partition(": ")
                why = "no FLOP rule for" if reason == "no rule" else f"{one_line(reason)} of"
                key = why, str(entry["opcode"]), uncounted, f" ({one_line(because)})" if because else "", f"{noun}s"
                reasons.setdefault(key, {})[name] = "" if share is None else percent(share)
        for (why, opcode, uncounted, because, noun), shares in reasons.items():
            of = " and ".join(dict.fromkeys(filter(None, shares.values())))
            uncounted += f", {of} of the program's {noun}" if of else ""
            yield f"{self._prefix(shares)}{why}", opcode, uncounted + because

    def notes(self) -> Iterator[str]:
        """Yield the notes of the costs. Notes on unknown FLOPs are left out, because `unknowns` yields them."""
        sources_of = defaultdict[str, list[str]](list)
        for name, cost in self.sources.items():
            left_out = ("flops",) if name == "measured" else ("flops", "time_s")
            left_out += () if value_of(cost.get("total", {}), "params") is not None else ("params: ",)
            for note in cost.get("notes", ()):
                if not note.startswith(left_out):
                    sources_of[note].append(name)
        for note, names in sources_of.items():
            yield one_line(f"{self._prefix(dict.fromkeys(names))}{note}")
        for name, why in self.data.get("unavailable", {}).items():
            yield one_line(f"no {name} costs: {why}")

    def communication(self) -> Iterator[str]:
        """Yield a line for each source in which the program sends data to other devices.

        A line contains the total, and the numbers for each role of the operations, such as `"backward"`. Payload bytes
        are the sizes of the buffers that a device passes to collectives; wire bytes are what the device then sends.
        """

        def sent(figures: Mapping[str, Any]) -> list[str]:
            cells: list[str] = []
            for value in (value_of(figures, key) for key in SENT):
                if isinstance(value, str):
                    cells.append(f"{short_formula(value)} B")
                else:
                    text = f"{exact(value)} B" if self.is_exact and value is not None else nbytes(value)
                    cells.append(at_least(text, bool(value and figures.get("unknown_communication"))))
            return cells

        for name, cost in self.sources.items():
            if _communicates(cost):
                payload, wire = sent(cost["total"])
                line = f"communication of one device: payload {payload}, wire {wire}"
                by_role = cost.get("by_role", {}).items()
                roles = [(role, of) for role, of in by_role if role and value_of(of, "wire_bytes")]
                parts = [f"{role} {', '.join(sent(of))}" for role, of in roles if len(roles) > 1]
                yield "; ".join([f"{one_line(name)}: {line}" if len(self.sources) > 1 else line, *parts])

    def _prefix(self, names: Mapping[str, Any]) -> str:
        return "" if len(names) == len(self.sources) else f"{', '.join(names)}: "


# An unknown amount counts as data.
def _communicates(cost: Cost) -> bool:
    return any(value_of(cost.get("total", {}), key) != 0 for key in SENT)


def _share_text(share: float | None, bound: str) -> str:
    return f"{bound} {percent(share)}" if bound else percent(share)


def cost_html(cost: Cost) -> str:
    """Return the cost of a program as one self-contained HTML fragment."""
    table = CostTable(cost)
    hues = hues_of_blocks(path for path in table.blocks if path not in _OUTSIDE)
    return output_html(_tables(table, table.folded, hues), "cost")


def cost_tables(cost: Cost, hues: Mapping[str, int]) -> str:
    """Return tables with one row for each block, for a page that links rows. They have no style sheet."""
    table = CostTable(cost)
    return _tables(table, flat_rows(table.blocks), hues)


def page_tables(cost: Cost, hues: Mapping[str, int]) -> tuple[str, list[str]]:
    """Return the tables for a page that must be readable without JavaScript."""
    table = CostTable(cost)
    rows = flat_rows(table.blocks)
    if len(rows) <= MOST_PLAIN_ROWS:
        return _tables(table, rows, hues), []
    note = (
        f'<p class="plain">{len(rows):,} blocks. Equal blocks and small blocks share a row. '
        "With JavaScript, each block has a row.</p>"
    )
    return note + _tables(table, table.folded, hues), _rows(table, rows, hues)


def _tables(table: CostTable, rows: Sequence[TableRow], hues: Mapping[str, int]) -> str:
    totals = ((one_line(name), *map(_value_cell, texts, values)) for name, texts, values in table.totals())
    below = html_table(_TOTALS, totals, caption="whole program, by source")
    if memory := table.data.get("memory"):
        sizes = ((name, _value_cell(nbytes(memory.get(name)), memory.get(name))) for name in MEMORY)
        below += html_table((), sizes, caption="memory of the compiled program")
    below = f'<div class="costs">{below}</div>'
    return "".join((_blocks(table, rows, hues), *_unknown(table), below, *_formulas(table)))


# The table of blocks


def _blocks(table: CostTable, rows: Sequence[TableRow], hues: Mapping[str, int]) -> str:
    by_block, lost = table.main.get("by_block", {}), table.main.get("unattributed")
    caption = "cost by block"
    if not table.time and any(_role(figures, role) for figures in by_block.values() for role in _ROLES[1:]):
        legend = (
            f'<span><span class="bar"><i class="{role[0]}" style="width:100%"></i></span>{role}</span>'
            for role in _ROLES
        )
        caption += f'<span class="legend">{"".join(legend)}</span>'
    body = map(Markup, _rows(table, rows, hues))
    largest = _largest(table, table.shares(rows))
    unattributed, total = (
        "".join(_cell(column, table.sources[column.source][key]) for column in table.columns)
        for key in ("unattributed", "total")
    )
    foot = (
        f'<tr><th scope="row"><span class="dot"></span>{UNATTRIBUTED_LABEL}</th>{unattributed}'
        f"{_share(table, lost, table.share(lost), largest)}</tr>"
        f'<tr class="total"><th scope="row">total</th>{total}{"<td></td>" if table.has_shares else ""}</tr>'
    )
    return html_table(Markup("".join(_heads(table))), body, caption=Markup(caption), foot=foot)


def _rows(table: CostTable, rows: Sequence[TableRow], hues: Mapping[str, int]) -> list[str]:
    shares = table.shares(rows)
    largest = _largest(table, shares)
    lines = []
    for row, share in zip(rows, shares, strict=True):
        figures = {source: table.figures(source, row) for source in table.sources}
        cells = "".join(_cell(column, figures[column.source]) for column in table.columns)
        lines.append(f"{row_head(row, hues)}{cells}{_share(table, figures.get(table.name), share, largest)}</tr>")
    return lines


def _largest(table: CostTable, shares: Sequence[tuple[float | None, str]]) -> float:
    return max((share or 0.0 for share, _ in (*shares, table.share(table.main.get("unattributed")))), default=0.0)


def row_head(row: TableRow, hues: Mapping[str, int]) -> str:
    """Return the start of a row as HTML: a dot in the colour of the block, and the indented name."""
    hue = None if row.path is None else hue_of(row.path, hues)
    dot = f'<span class="dot{" none" if row.path is None else "" if hue is None else f" h{int(hue) % HUES}"}"></span>'
    link = "" if row.path is None else f' data-block="{escaped(block_key(row.path))}" tabindex="0"'
    deep = f' style="padding-left:{10 + 16 * min(row.depth, _DEEPEST)}px"' if row.depth else ""
    more = f' <span class="quiet">{row.closed} inside</span>' if row.closed else ""
    label = escaped(row.label) if row.path is not None else f'<span class="quiet">{escaped(row.label)}</span>'
    return f'<tr{link}><th scope="row"{deep} title="{escaped(one_line(row.about))}">{dot}{label}{more}</th>'


def _heads(table: CostTable) -> Iterator[str]:
    last = "share of time" if table.time else "share of FLOPs"
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


def _cell(column: Column, figures: Mapping[str, Any] | None) -> Markup:
    return _value_cell(column.text(figures), value_of(figures or {}, column.key))


# The tooltip shows all digits or the whole formula, which screen readers read, too.
def _value_cell(text: str, value: float | str | None) -> Markup:
    if value is None or not text:
        return cell(text, "unknown" if text else "")
    if isinstance(value, str):
        spoken = f' aria-label="{escaped(value)}"' if text != value else ""
        return Markup(f'<td title="{escaped(value)}"{spoken}>{escaped(text)}</td>')
    bound = "at least " if text.startswith(AT_LEAST) else ""
    return Markup(f'<td title="{bound}{exact(value)}">{escaped(text)}</td>')


def _share(table: CostTable, figures: Mapping[str, Any] | None, of: tuple[float | None, str], largest: float) -> str:
    share, bound = of
    if not table.has_shares:
        return ""
    if share is None:
        return f'<td><span class="unknown">{UNKNOWN}</span></td>'
    roles = {} if figures is None or table.time else {role: _role(figures, role) for role in _ROLES}
    roles = {role: value for role, value in roles.items() if value}
    total = sum(roles.values())
    # Relative to the largest row: shares of a deep model are all small.
    length = 100 * min(1.0, max(0.0, share / largest)) if largest > 0 else 0.0
    if len(roles) < 2:
        bars, title = f'<i class="{next(iter(roles), "f")[0]}" style="width:{length:.1f}%"></i>', ""
    else:
        parts = [(role, value / total, f"{length * value / total:.2f}") for role, value in roles.items()]
        bars = "".join(f'<i class="{role[0]}" style="width:{width}%"></i>' for role, _, width in parts)
        title = f' title="{", ".join(f"{role} {percent(part)}" for role, part, _ in parts)}"'
    return f'<td>{_share_text(share, bound)}<span class="bar"{title}>{bars}</span></td>'


def _role(figures: Mapping[str, Any], role: str) -> int:
    return figures.get("roles", {}).get(role, {}).get("flops") or 0


# The parts below the table of blocks


def _unknown(table: CostTable) -> Iterator[str]:
    for why, opcode, rest in table.unknowns():
        yield f"<p>{why[0].upper()}{why[1:]} <code>{escaped(opcode)}</code>: {rest}.</p>"
    yield paragraphs((*table.communication(), *table.notes()))


def _formulas(table: CostTable) -> Iterator[str]:
    for name, cost in table.sources.items():
        groups = defaultdict[tuple[str, str], list[Mapping[str, Any]]](list)
        for row in cost.get("rows", ()):
            groups[str(row["opcode"]), str(row["formula"])].append(row)
        ordered = sorted(groups.items(), key=lambda group: -sum(row.get("flops") or 0 for row in group[1]))
        if not ordered:
            continue
        yield f'<details class="formulas"><summary>how it is counted: {escaped(one_line(name))}</summary>'
        figures = [column for column in QUANTITIES if column.key in MAIN and table.has_numbers]
        heads = ("opcode", "FLOPs of one run", "rows", *(column.title for column in figures))
        lines: list[tuple[str, ...]] = []
        for (opcode, formula), rows in ordered[:_MOST_FORMULAS]:
            cells = []
            for column in figures:
                value = FIGURES[column.key].add(row.get(column.key) for row in rows)
                cells.append(_value_cell(column.format(value), value))
            lines.append((one_line(opcode), cell(one_line(formula), "words"), f"{len(rows):,}", *cells))
        yield html_table(heads, lines, words=1)
        if len(ordered) > _MOST_FORMULAS:
            yield f"<p>and {len(ordered) - _MOST_FORMULAS} more</p>"
        yield paragraphs(cost.get("notes", ()))
        yield "</details>"


# Plain text


def cost_text(cost: Cost, *, is_exact: bool = False) -> str:
    """Return a table of costs as plain text. With `is_exact`, numbers have all digits."""
    table = CostTable(cost, is_exact)
    text = ["\n\n".join(_block_tables(table))]
    below = [*(f"{why} {one_line(opcode)}: {rest}" for why, opcode, rest in table.unknowns()), *table.notes()]
    is_narrow = len(table.sources) > 1
    text += [line for note in below for line in (wrap(note, _WIDEST, subsequent_indent="  ") if is_narrow else [note])]
    sources = [_TOTALS, *((one_line(name), *cells) for name, cells, _ in table.totals())]
    text.append("\n" + columns(sources, right=range(1, len(_TOTALS))))
    text += ["", *sent] if (sent := [*table.communication()]) else []
    if memory := cost.get("memory"):
        text.append(f"\nmemory: {', '.join(f'{name} {nbytes(memory.get(name))}' for name in MEMORY)}")
    return "\n".join(text)


# One table, or several if one would be too wide.
def _block_tables(table: CostTable) -> list[str]:
    groups = [group for _, group in table.groups]
    texts: list[str] = []
    while groups or not texts:
        for count in range(len(groups), 0, -1) or (0,):
            text = _block_table(table, groups[:count], has_share=table.has_shares and not texts)
            if count == 1 or len(table.sources) < 2 or max(map(len, text.splitlines())) <= _WIDEST:
                break
        texts.append(text)
        groups = groups[count:]
    return texts


def _block_table(table: CostTable, groups: Sequence[Sequence[Column]], *, has_share: bool) -> str:
    drawn = [column for group in groups for column in group]
    titles = [column.title if not index else "" for group in groups for index, column in enumerate(group)]
    last = ("share",) if has_share else ()
    rows: list[tuple[str, ...]] = [("block", *titles, *last)]
    if table.is_deep:
        of = "of time" if table.time else "of FLOPs"
        sources = ("" if column.title == "params" else one_line(column.source) for column in drawn)
        rows.append(("", *sources, *(of for _ in last)))
    for row, share in zip(table.folded, table.shares(table.folded), strict=True):
        cells = [column.text(table.figures(column.source, row)) for column in drawn]
        rows.append(("  " * row.depth + row.title, *cells, *(_share_text(*share) for _ in last)))
    for name, key in ((UNATTRIBUTED_LABEL, "unattributed"), ("total", "total")):
        cells = [column.text(table.sources[column.source][key]) for column in drawn]
        share = "100 %" if key == "total" else _share_text(*table.share(table.main.get(key)))
        rows.append((name, *cells, *(share for _ in last)))
    return columns(rows, right=range(1, len(rows[0])))
