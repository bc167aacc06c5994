"""A profile as a table: the measured time of each block, its spread over the runs, and its share of the roofline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.viz.costs.blocks import hues_of
from mithril_nb.viz.costs.fields import at_least
from mithril_nb.viz.costs.roofline import bounds_of, explain_above
from mithril_nb.viz.costs.tables.rows import TableRow, folded_rows, sum_figures
from mithril_nb.viz.costs.tables.table import cost_html, row_head
from mithril_nb.viz.html_parts import Markup, html_table, output_html, paragraphs
from mithril_nb.viz.text import escaped, one_line
from mithril_nb.viz.units import percent, seconds, si

_HEADS = ("block", "time", "share", "min to max", "FLOP/s", "bytes/s", "of the roofline")


@dataclass(frozen=True)
class _Line:
    row: TableRow | None
    name: str
    time_s: float | None
    spread: Any = None
    rate: Any = None
    unknown: frozenset[str] = frozenset()

    def cells(self, whole_s: float | None) -> tuple[str, ...]:
        """Return the cells of the row without the name. `whole_s` is the time that counts as 100 %."""
        share = "" if self.time_s is None or not whole_s else percent(self.time_s / whole_s)
        spread = "" if self.spread is None else f"{seconds(self.spread.least)} to {seconds(self.spread.most)}"
        rates = ("", "", "")
        if self.rate is not None:
            per_s = ((self.rate.flops_per_s, "FLOP/s", "flops"), (self.rate.bytes_per_s, "B/s", "bytes_accessed"))
            roofline = "" if self.rate.roofline is None else f"{percent(self.rate.roofline)} ({self.rate.limit})"
            rates = (
                *("" if value is None else at_least(si(value, unit), of in self.unknown) for value, unit, of in per_s),
                at_least(roofline, bool(roofline and self.unknown)),
            )
        return (seconds(self.time_s), share, spread, *rates)


def profile_text(profile: Any) -> str:
    """Return a profile as a table; blocks inside a block are indented."""
    table = [_HEADS, *((line.name, *line.cells(profile.total.time_s)) for line in _lines(profile))]
    return "\n".join((_title(profile), columns(table, right=range(1, len(_HEADS))), *_notes(profile)))


def profile_html(profile: Any) -> str:
    """Return a profile as one self-contained HTML fragment: a table of times, and a collapsed table of costs."""
    data = profile.to_dict()
    hues = hues_of(data)
    # The bar of the total would be the longest, and all others short.
    *parts, total = _lines(profile)
    longest = max((part.time_s or 0.0 for part in parts), default=0.0)
    rows = (_row_html(part, total, longest, hues) for part in parts)
    table = html_table(_HEADS, rows, caption=_title(profile), foot=_row_html(total, total, 0.0, hues))
    work = f"<summary>costs: FLOPs, bytes, parameters</summary>{cost_html(data)}"
    return output_html(f'{table}{paragraphs(_notes(profile))}<details class="formulas">{work}</details>', "cost")


def _row_html(line: _Line, total: _Line, longest: float, hues: Mapping[str, int]) -> Markup:
    kind = ' class="total"' if line is total else ""
    head = f'<tr{kind}><th scope="row"><span class="dot none"></span>{escaped(line.name)}</th>'
    time, share, *others = line.cells(total.time_s)
    length = 100 * (line.time_s or 0.0) / longest if longest else 0.0
    bar = f'<span class="bar"><i class="f" style="width:{length:.1f}%"></i></span>' if longest else ""
    exact = "" if line.time_s is None else f' title="{line.time_s:.9g} s"'
    cells = "".join(f"<td>{escaped(cell)}</td>" for cell in others)
    first = row_head(line.row, hues) if line.row is not None else head
    return Markup(f"{first}<td{exact}>{escaped(time)}</td><td>{escaped(share)}{bar}</td>{cells}</tr>")


def _lines(profile: Any) -> Iterator[_Line]:
    data = profile.to_dict(rows=False)
    blocks = data["by_block"]
    timed = {path: figures for path, figures in blocks.items() if figures["time_s"] is not None}
    for row in folded_rows([timed], "time_s"):
        time_s = sum(timed[path]["time_s"] for path in row.paths)
        spread, rate = profile.spread_of(row.paths), profile.rate_of(row.paths)
        # Rates are lower bounds if FLOPs or bytes of the block are, because the time is exact.
        unknown = bounds_of(sum_figures([blocks[path] for path in row.paths]))
        yield _Line(row, "  " * row.depth + row.title, time_s, spread, rate, unknown)
    unattributed = [
        row.time_s for row in profile.rows if row.time_s and not row.blocks and row.id not in profile.overhead
    ]
    if unattributed_s := sum(unattributed):
        rate = profile.rate_of([""])
        yield _Line(None, UNATTRIBUTED_LABEL, unattributed_s, None, rate, bounds_of(data["unattributed"]))
    for name, time_s in profile.overhead.items():
        yield _Line(None, name, time_s)
    yield _Line(None, "total", profile.total.time_s, profile.spread, profile.rate, bounds_of(data["total"]))


def _title(profile: Any) -> str:
    count, warm_up = profile.runs, profile.warm_up
    runs = f"{count} run{'' if count == 1 else 's'} after {warm_up} warm-up run{'' if warm_up == 1 else 's'}"
    return f"{one_line(profile.program)}: {seconds(profile.wall_s)} per run, measured in {runs}"


def _notes(profile: Any) -> Iterator[str]:
    roles = [
        f"{role or 'no role'} {seconds(figures.time_s)}"
        for role, figures in profile.by_role.items()
        if figures.time_s is not None
    ]
    if len(roles) > 1:
        yield f"by role: {', '.join(roles)}"
    # A counter inside the program shows the same numbers.
    runs = [f"{profile.warm_up} warm-up", f"{profile.runs} timed", f"{profile.runs} with the profiler"]
    others = profile.times_run - profile.warm_up - 2 * profile.runs
    runs += [f"{others} not timed (the first run of each round, with and without the profiler)"] if others > 0 else []
    yield f"the program ran {profile.times_run} times: {', '.join(runs)}"
    if profile.machine is not None:
        yield f"machine: {one_line(str(profile.machine))}"
    rates = (line.rate for line in _lines(profile) if line.rate is not None)
    yield from explain_above((rate.roofline, rate.limit) for rate in rates)
    yield from map(one_line, profile.notes)
