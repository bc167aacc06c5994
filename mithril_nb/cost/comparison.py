"""Costs before and after a change by block, and two counts of a program by primitive or opcode, side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from mithril_nb.cost.records import Figures, Fusion, format_change, format_sum
from mithril_nb.display import UNATTRIBUTED_LABEL, Shown, columns, draw
from mithril_nb.figures import FIGURES, MAIN, OF_BLOCKS, SENT

_MOST_FUSIONS = 10
_UNFUSED = ("analytic", "lowered")
# A relative difference up to this counts as rounding: XLA sums in float32.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class CostChange:
    """The costs of a block or program before and after a change.

    Attributes:
        before: Figures before the change.
        after: Figures after the change.
    """

    before: Figures
    after: Figures

    @property
    def delta(self) -> Figures:
        """The figures after minus the figures before; a figure is `None` if part of it is unknown before or after."""

        def of(key: str) -> Any:
            before, after = getattr(self.before, key), getattr(self.after, key)
            is_open = self.before.unknown_in(key) or self.after.unknown_in(key)
            return None if is_open or before is None or after is None else after - before

        return Figures(**{key: of(key) for key in OF_BLOCKS})

    @property
    def communicates(self) -> bool:
        """True if data is sent to other devices before or after the change, or if this is unknown."""
        return self.before.communicates or self.after.communicates

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain data."""
        left_out = () if self.communicates else SENT
        delta = {key: value for key, value in vars(self.delta).items() if key in OF_BLOCKS and key not in left_out}
        return {"before": self.before.to_dict(), "after": self.after.to_dict(), "delta": delta}

    def texts(self, key: str) -> tuple[str, str, str]:
        """Return a figure before and after the change, and the difference, as texts; a time in microseconds."""
        if FIGURES[key].is_measured:
            before, after, delta = (getattr(side, key) for side in (self.before, self.after, self.delta))
            return _microseconds(before), _microseconds(after), _microseconds(delta, "+")
        return self.before.text(key), self.after.text(key), format_change(getattr(self.delta, key))


@dataclass(frozen=True)
class CostComparison(Shown):
    """Costs before and after a change: of one program at two stages, or of two programs.

    Attributes:
        before: Title of the costs before: `"step: lowered"`.
        after: Title of the costs after: `"step: compiled"`.
        total: The cost of the whole program, before and after.
        by_block: A dict from the path of each block to its cost without the blocks inside it, before and after. Blocks
            that exist only after the change come last.
        unattributed: The cost not attributed to a block, before and after.
        fusions: The fusions of the program after the change. The fusion that saves the most bytes comes first.
        devices: A note if only one of the two costs is for all devices together, else `()`.
    """

    before: str
    after: str
    total: CostChange
    by_block: dict[str, CostChange]
    unattributed: CostChange
    fusions: tuple[Fusion, ...]
    devices: tuple[str, ...] = ()

    @cached_property
    def saved_by_fusion(self) -> int | None:
        """Bytes that the fusions after the change avoid reading and writing; `None` if unknown for one of them."""
        savings = [fusion.saved for fusion in self.fusions]
        return None if None in savings else sum(saved for saved in savings if saved is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        return {
            "before": self.before,
            "after": self.after,
            "total": self.total.to_dict(),
            "by_block": {path: change.to_dict() for path, change in self.by_block.items()},
            "unattributed": self.unattributed.to_dict(),
            "saved_by_fusion": self.saved_by_fusion,
            "fusions": [fusion.to_dict() for fusion in self.fusions],
        }

    def beside(self, field: str | None = None, width: int = 720) -> Any:
        """Return a chart of the costs before and after, block by block: a `mithril_nb.viz.costs.drawing.Drawing`.

        Args:
            field: `"flops"`, `"transcendentals"`, `"bytes_accessed"`, `"params"` or `"time_s"`. By default
                `"time_s"` if both costs were measured, else `"bytes_accessed"`.
            width: Width in px.
        """
        if field is None:
            field = "bytes_accessed" if self.total.delta.time_s is None else "time_s"
        return draw(self, "beside", field=field, width=width)

    @property
    def tables(self) -> dict[str, list[tuple[str, ...]]]:
        """A dict from the title of each table to its rows; the first row has the titles of the columns."""
        is_timed = self.total.before.time_s is not None or self.total.after.time_s is not None
        keys = ["time_s"] if is_timed else []
        keys += [*MAIN, *(["wire_bytes"] if self.total.communicates else [])]
        rows = [*self.by_block.items(), (UNATTRIBUTED_LABEL, self.unattributed), ("total", self.total)]
        table = [("block", *heads_of(keys)), *((path, *change_cells(change, keys)) for path, change in rows)]
        tables = {f"{self.before} -> {self.after}": table}
        if self.fusions:
            saved = format_sum(self.saved_by_fusion)
            tables[f"fusions: {len(self.fusions)}, bytes saved: {saved}"] = [
                ("fusion", "instructions", "bytes alone", "fused", "saved"),
                *(
                    (
                        fusion.id,
                        str(fusion.count),
                        *map(format_sum, (fusion.alone, fusion.bytes_accessed, fusion.saved)),
                    )
                    for fusion in self.fusions[:_MOST_FUSIONS]
                ),
            ]
        return tables

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes below the tables."""
        more = len(self.fusions) - _MOST_FUSIONS
        notes = [f"and {more} more fusions"] if more > 0 else []
        before, delta = self.total.before, self.total.delta.bytes_accessed
        changes = (self.total, self.unattributed, *self.by_block.values())
        # Unknown costs may have changed.
        if not any(before.unknown_in(key) for key in FIGURES) and all(each.before == each.after for each in changes):
            notes.append("nothing changes: every number here is the same before and after")
        saved = self.saved_by_fusion
        (program, _, source), (other, _, _) = self.before.rpartition(": "), self.after.rpartition(": ")
        if program == other and source in _UNFUSED and saved and delta is not None and saved != -delta:
            fusion, others, together = (
                f"{'save' if change < 0 else 'add'}{ending} {abs(change):,} bytes"
                for change, ending in ((-saved, "s"), (saved + delta, ""), (delta, "s"))
            )
            notes.append(
                f"Fusion {fusion} compared with running the compiled instructions one by one. Other changes by the "
                f"compiler {others}. Together, compilation {together}."
            )
        return (*notes, *self.devices)

    def __repr__(self) -> str:
        return f"CostComparison({self.before!r} -> {self.after!r})"

    def __str__(self) -> str:
        texts = (f"{title}\n{columns(rows, range(1, len(rows[0])))}" for title, rows in self.tables.items())
        return "\n".join(["\n\n".join(texts), *self.notes])


def heads_of(keys: Iterable[str] = MAIN) -> tuple[str, ...]:
    """Return the titles of the columns that `change_cells` fills."""
    heads = (("µs" if key == "time_s" else FIGURES[key].column) for key in keys)
    return tuple(chain(*((f"{head} before", "after", "change") for head in heads)))


def change_cells(change: CostChange, keys: Iterable[str] = MAIN) -> tuple[str, ...]:
    """Return three texts for each figure: its value before, its value after and the change."""
    return tuple(chain(*map(change.texts, keys)))


def _microseconds(seconds: float | None, sign: str = "") -> str:
    return "unknown" if seconds is None else f"{1e6 * seconds:{sign},.1f}"


@dataclass(frozen=True)
class DifferenceRow:
    """The two counts for all equations of one primitive, or for all instructions of one opcode.

    "Our" count is that of the `Cost` on which `difference` was called.

    Attributes:
        opcode: The primitive, if equations are compared with instructions. An instruction that comes from no equation
            then has its opcode in parentheses: `"(copy)"`. If instructions are compared with XLA's count, the opcode.
        count: Number of equations or instructions in our count; if there are none, in the other count.
        ours: Our count; `None` if entirely unknown.
        theirs: The other count; `None` if entirely unknown. XLA returns only a total, so its rows have `None`.
        reason: Why the two counts differ, or why our count is partly unknown; `""` if no reason is known.
    """

    opcode: str
    count: int
    ours: int | None
    theirs: int | None
    reason: str = ""


@dataclass(frozen=True)
class Difference(Shown):
    """The difference between two counts of a program. In both, each loop counts as one iteration.

    "Our" count is that of the `Cost` on which `difference` was called.

    Attributes:
        program: Name of the program.
        ours: Source of our count: `"analytic"`, `"lowered"` or `"compiled"`.
        theirs: Source of the other count: `"lowered"`, `"compiled"`, `"XLA lowered"` or `"XLA compiled"`.
        field: The kind of cost: `"flops"`, `"transcendentals"` or `"bytes_accessed"`.
        our_total: Our total; `None` if unknown.
        their_total: The other total; `None` if unknown.
        rows: The differences by primitive or opcode, in the order of the program.
        devices: A note if only one of the two counts is for all devices together, else `()`.
    """

    program: str
    ours: str
    theirs: str
    field: str
    our_total: int | None
    their_total: int | None
    rows: tuple[DifferenceRow, ...]
    devices: tuple[str, ...] = ()

    @property
    def total(self) -> int | None:
        """Our total minus the other total; `None` if one of them is unknown."""
        return None if self.our_total is None or self.their_total is None else self.our_total - self.their_total

    @property
    def relative(self) -> float | None:
        """`total / their_total`; 0 if both totals are 0. `None` if `total` is unknown, or `their_total` alone is 0."""
        if self.total is None:
            return None
        return self.total / self.their_total if self.their_total else 0.0 if not self.total else None

    @property
    def is_rounding(self) -> bool:
        """True if the difference is so small that it may come from XLA's float32 sums."""
        return self.relative is not None and abs(self.relative) <= _ROUNDING

    @property
    def _is_xla(self) -> bool:
        return self.theirs.startswith("XLA ")

    @property
    def differing(self) -> tuple[DifferenceRow, ...]:
        """The rows that have a reason, or whose two counts differ. A count may be unknown on one side."""
        return tuple(row for row in self.rows if row.reason or (not self._is_xla and row.ours != row.theirs))

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        own = {key: value for key, value in vars(self).items() if key != "rows"}
        return {**own, "total": self.total, "relative": self.relative, "rows": [dict(vars(row)) for row in self.rows]}

    def __str__(self) -> str:
        noun = FIGURES[self.field].column
        lines = [f"{self.program}: {noun}, {self.ours} against {self.theirs}; each loop counts as one iteration"]
        rows = [("total", "", format_sum(self.our_total), format_sum(self.their_total), format_change(self.total))]
        rows = [
            (row.opcode, str(row.count), format_sum(row.ours), "" if self._is_xla else format_sum(row.theirs),
             "" if row.theirs is None or row.ours is None else format_change(row.ours - row.theirs))
            for row in (self.rows if self._is_xla else self.differing)
        ] + rows  # fmt: skip
        lines.append(columns([("opcode", "count", "ours", "theirs", "difference"), *rows], range(1, 5)))
        if self.total and self.is_rounding:
            lines.append("the total difference is rounding: XLA sums in float32")
        return "\n".join([*lines, *(f"{row.opcode}: {row.reason}" for row in self.rows if row.reason), *self.devices])
