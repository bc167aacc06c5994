"""The columns, rows and notes of a table of costs, from one or several sources such as `"lowered"` and `"compiled"`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

from mithril_nb.figures import COUNTED, FIGURES, MEASURED, SENT
from mithril_nb.viz.costs.fields import FIELDS, at_least, is_bound
from mithril_nb.viz.costs.tables.rows import (
    Row,
    folded_rows,
    share_of,
    short_formula,
    sum_figures,
    value_of,
)
from mithril_nb.viz.text import one_line
from mithril_nb.viz.units import exact, nbytes, percent, si

Sources = Mapping[str, Mapping[str, Any]]
"""Costs as data, by name of the source."""

_NO_SIZE = "size unknown"


def unknowns(sources: Sources) -> Iterator[tuple[str, str, str]]:
    """Yield a note for each primitive or opcode without a known cost. A note is three texts: reason, name and number.

    `sources` contains costs as data, by name of the source such as `"lowered"`.

    Examples:
        >>> sort = {"opcode": "sort", "reason": "no rule", "count": 1, "share": 0.25}
        >>> data = {"total": {}, "unknown": [sort]}
        >>> [*unknowns({"analytic": data})]
        [('no FLOP rule for', 'sort', "1 equation not counted, 25.0 % of the program's equations")]

        If only some of the sources have a note, it starts with their names:

        >>> next(unknowns({"analytic": {"total": {}}, "lowered": data, "compiled": data}))[0]
        'lowered, compiled: no FLOP rule for'
    """
    found: dict[tuple[str, str, str, str, str], dict[str, str]] = {}
    for name, cost in sources.items():
        what = "equation" if name == "analytic" else "instruction"
        for item in cost.get("unknown", ()):
            if item.get("reason") == _NO_SIZE and cost["total"].get("formulas"):
                continue  # counted in the formulas
            count, share = item.get("count"), item.get("share")
            uncounted = "not counted" if count is None else f"{count} {what}{'' if count == 1 else 's'} not counted"
            reason, _, because = str(item.get("reason", "no rule")).partition(": ")
            why = "no FLOP rule for" if reason == "no rule" else f"{one_line(reason)} of"
            key = why, str(item["opcode"]), uncounted, f" ({one_line(because)})" if because else "", f"{what}s"
            found.setdefault(key, {})[name] = "" if share is None else percent(share)
    for (why, opcode, uncounted, because, what), shares in found.items():
        of = " and ".join(dict.fromkeys(share for share in shares.values() if share))
        uncounted += f", {of} of the program's {what}" if of else ""
        yield f"{_prefix(shares, sources)}{why}", opcode, uncounted + because


def notes(sources: Sources, unavailable: Mapping[str, str]) -> Iterator[str]:
    """Yield the notes of the costs. Notes on unknown FLOPs are left out, because `unknowns` yields them.

    Args:
        sources: Costs as data, by name of the source such as `"lowered"`.
        unavailable: The reason for each source without costs, by name of the source.

    Examples:
        >>> shared = "unattributed params: a"
        >>> lowered, compiled = {"notes": [shared], "total": {}}, {"notes": [shared, "1 × cond"], "total": {}}
        >>> [*notes({"lowered": lowered, "compiled": compiled}, {"measured": "it does not run"})]
        ['unattributed params: a', 'compiled: 1 × cond', 'no measured costs: it does not run']
    """
    found: dict[str, list[str]] = {}
    for name, cost in sources.items():
        left_out = ("flops",) if name == "measured" else ("flops", "time_s")
        left_out += () if has_params(cost) else ("params: ",)
        for note in cost.get("notes", ()):
            if not note.startswith(left_out):
                found.setdefault(note, []).append(name)
    for note, names in found.items():
        yield f"{_prefix(dict.fromkeys(names), sources)}{note}"
    for name, why in unavailable.items():
        yield f"no {name} costs: {why}"


def communicates(cost: Mapping[str, Any]) -> bool:
    """Return whether a program sends data to other devices. An unknown amount counts as data."""
    return any(value_of(cost.get("total", {}), key) != 0 for key in SENT)


def communication(sources: Sources, *, is_exact: bool = False) -> Iterator[str]:
    """Yield a line for each source in which the program sends data to other devices.

    A line contains the total, and the numbers for each role of the operations, such as `"backward"`. Payload bytes are
    the sizes of the buffers that a device passes to collectives; wire bytes are what the device then sends.

    Args:
        sources: Costs as data, by name of the source such as `"compiled"`.
        is_exact: If true, numbers have all digits, else three.

    Examples:
        >>> total, update = {"payload_bytes": 1464, "wire_bytes": 2562}, {"payload_bytes": 1460, "wire_bytes": 2555}
        >>> roles = {"forward": {"payload_bytes": 4, "wire_bytes": 7}, "backward": {}, "update": update}
        >>> print(*communication({"compiled": {"total": total, "by_role": roles}}, is_exact=True))
        communication of one device: payload 1,464 B, wire 2,562 B; forward 4 B, 7 B; update 1,460 B, 2,555 B
    """
    for name, cost in sources.items():
        if not communicates(cost):
            continue
        total = cost["total"]
        payload, wire = _formatted(total, is_exact)
        line = f"communication of one device: payload {payload}, wire {wire}"
        roles = [(role, of) for role, of in cost.get("by_role", {}).items() if role and value_of(of, "wire_bytes")]
        parts = [f"{role} {', '.join(_formatted(of, is_exact))}" for role, of in roles if len(roles) > 1]
        yield "; ".join([f"{one_line(name)}: {line}" if len(sources) > 1 else line, *parts])


def _formatted(figures: Mapping[str, Any], is_exact: bool) -> list[str]:
    """Format the payload bytes and the wire bytes: each is a number, a lower bound, a formula, or `"unknown"`."""
    cells: list[str] = []
    for value in (value_of(figures, key) for key in SENT):
        if isinstance(value, str):
            cells.append(f"{short_formula(value)} B")
        else:
            text = f"{exact(value)} B" if is_exact and value is not None else nbytes(value)
            cells.append(at_least(text, bool(value and figures.get("unknown_communication"))))
    return cells


def has_params(cost: Mapping[str, Any]) -> bool:
    """Return whether the number of parameters is known."""
    return value_of(cost.get("total", {}), "params") is not None


def _prefix(names: Mapping[str, Any], sources: Sources) -> str:
    """Return the names of the sources that have a note; `""` if all have it."""
    return "" if len(names) == len(sources) else f"{', '.join(names)}: "


Cost = Mapping[str, Any]
"""Costs as data: `Cost.to_dict()` for one source, `Costs.to_dict()` for several."""
MEMORY = ("argument", "output", "temp", "alias", "code")
"""Parts of the memory of a compiled program."""


@dataclass(frozen=True)
class Column:
    """A column of costs.

    Attributes:
        title: Title of the column.
        key: Key of the cost in the data, such as `"flops"`.
        format: A function that formats a number of the column.
        source: Name of the source of the costs, such as `"compiled"`.
    """

    title: str
    key: str
    format: Callable[[float | None], str]
    source: str = ""

    def text(self, figures: Mapping[str, Any]) -> str:
        """Format the cost of a row: a number, a lower bound, a formula, or `"unknown"`."""
        value = value_of(figures, self.key)
        if isinstance(value, str):
            return short_formula(value)
        return at_least(self.format(value), is_bound(figures, self.key))


QUANTITIES = tuple(Column(FIGURES[key].column, key, FIELDS[key].short) for key in (*COUNTED, *MEASURED))
"""All columns of costs except the parameters."""
_PARAMS = Column("params", "params", si)
"""The last column. Only the first source has it, because the parameters are the same for all sources."""


@dataclass(frozen=True)
class CostTable:
    """A table of costs from one or several sources.

    Attributes:
        data: The costs, as for `cost_html`.
        is_exact: If true, numbers have all digits, else three.
    """

    data: Cost
    is_exact: bool = False

    @cached_property
    def sources(self) -> Mapping[str, Cost]:
        """The costs by source."""
        return self.data["sources"] if "sources" in self.data else {str(self.data["source"]): self.data}

    @cached_property
    def main(self) -> Cost:
        """The costs from the first source. Its shares and parameters are shown."""
        return next(iter(self.sources.values()), {})

    @cached_property
    def blocks(self) -> list[str]:
        """The paths of all blocks."""
        return list(dict.fromkeys(path for cost in self.sources.values() for path in cost["by_block"]))

    @cached_property
    def columns(self) -> list[Column]:
        """The columns of costs. A title has a column for each source that contains such costs."""
        counted = [name for name in self.sources if name != "measured"] or list(self.sources)
        timed = [name for name, cost in self.sources.items() if cost["total"].get("time_s") is not None]
        return [
            self._of_source(one, name)
            for one in (*QUANTITIES, *([_PARAMS] if has_params(self.main) else []))
            if one.key not in SENT or any(map(communicates, self.sources.values()))
            for name in (timed if one.key == "time_s" else [*self.sources][:1] if one.key == "params" else counted)
        ]

    def _of_source(self, column: Column, source: str) -> Column:
        is_exact = self.is_exact and column.key != "time_s"
        return replace(column, source=source, format=exact if is_exact else column.format)

    @cached_property
    def groups(self) -> list[tuple[str, list[Column]]]:
        """The columns for each title."""
        found: dict[str, list[Column]] = {}
        for column in self.columns:
            found.setdefault(column.title, []).append(column)
        return list(found.items())

    @cached_property
    def is_deep(self) -> bool:
        """True if the head has two rows: titles, and below them the names of sources."""
        return any(len(group) > 1 or title == "time" for title, group in self.groups)

    @cached_property
    def is_timed(self) -> bool:
        """True if shares are shares of the measured time; else they are shares of the FLOPs."""
        return self.main.get("source") == "measured"

    @cached_property
    def has_numbers(self) -> bool:
        """True if the total FLOPs are not a formula."""
        return not isinstance(value_of(self.main.get("total", {}), "flops"), str)

    @cached_property
    def has_shares(self) -> bool:
        """False if the total is a formula or exactly 0: the table then has no column of shares."""
        total = self.main.get("total", {})
        return self.has_numbers and (self.is_timed or total.get("flops") != 0 or bool(total.get("unknown")))

    @cached_property
    def folded(self) -> list[Row]:
        """The rows of the table, in which equal and small blocks share a row."""
        return folded_rows([cost["by_block"] for cost in self.sources.values()], "time_s" if self.is_timed else "flops")

    def figures(self, source: str, row: Row) -> Mapping[str, Any] | None:
        """Return the cost of a row from a source; `None` if the source contains none of the blocks of the row."""
        cost = self.sources[source]
        parts = [cost["by_block"][path] for path in row.paths if path in cost["by_block"]]
        return sum_figures(parts, cost["total"]) if parts else None

    def share(self, figures: Mapping[str, Any] | None, row: Row | None = None) -> tuple[float | None, str]:
        """Return the share of a row and its bound, as `share_of` does. Without `row`: of the unattributed cost."""
        if figures is None:
            return 0.0, ""
        if self.is_timed:
            whole, part = self.main["total"].get("time_s"), figures.get("time_s")
            return (part or 0.0) / whole if whole else None, ""
        if row is None or "share" in figures:
            return figures.get("share"), figures.get("share_bound", "")
        inside = set(row.paths)
        others = (one for path, one in self.main["by_block"].items() if path not in inside)
        return share_of(figures, chain(others, [self.main["unattributed"]]), self.main["total"])

    def shares(self, rows: Sequence[Row]) -> list[tuple[float | None, str]]:
        """Return the share of each row and its bound as in `share_of`."""
        name = next(iter(self.sources), "")
        return [self.share(self.figures(name, row), row) for row in rows]


def column_text(column: Column, figures: Mapping[str, Any] | None) -> str:
    """Format a cost for plain text; `""` if the source has no cost for the row, or if a time is not measured."""
    if figures is None or (column.key == "time_s" and figures.get("time_s") is None):
        return ""
    return column.text(figures)


def share_text(share: float | None, bound: str) -> str:
    """Format a share. The sign of its bound comes first."""
    text = percent(share)
    return f"{bound} {text}" if bound else text


def totals_by_source(table: CostTable) -> Iterator[tuple[str, list[str], list[float | str | None]]]:
    """Yield totals of the program: a name; the FLOPs, transcendentals and bytes as texts; and the same as values.

    Each source has one total. Some have further ones: the total with loops counted once, and the total computed by XLA.
    """
    for name, cost in table.sources.items():
        if name == "measured" and len(table.sources) > 1:
            continue  # a profile has the counts of the compiled program
        columns = [replace(one, format=exact) if table.is_exact else one for one in QUANTITIES[:3]]
        rows = [(name, cost["total"])]
        for one in (cost.get("once"), cost.get("xla")):
            if one is not None:
                rows.append((str(one["name"]), {**one, "bytes_accessed": one.get("bytes")}))
        found = [(title, [value_of(figures, column.key) for column in columns]) for title, figures in rows]
        if len(rows) > 1 and cost.get("once") is not None and (found[1][1] == found[0][1] or not table.has_numbers):
            del rows[1], found[1]
        for (title, figures), (_, values) in zip(rows, found, strict=True):
            yield title, [column.text(figures) for column in columns], values
