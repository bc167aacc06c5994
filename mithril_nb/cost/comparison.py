"""Costs before and after a change, side by side: by block, in total, and the bytes that each fusion saves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mithril_nb.cost.by_name import ByBlock
from mithril_nb.cost.notes import ONE_OF
from mithril_nb.cost.records import Figures, Fusion, format_change, format_sum
from mithril_nb.cost.totals import CostTotals
from mithril_nb.display import UNATTRIBUTED_LABEL, Shown, columns, draw

_COMPARED = ("flops", "transcendentals", "bytes_accessed", "params", "time_s")
_SENT = ("payload_bytes", "wire_bytes")
_MOST_FUSIONS = 10
_UNFUSED = ("analytic", "lowered")


@dataclass(frozen=True)
class Change:
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

        def of(field: str, unknown: int) -> Any:
            before, after = getattr(self.before, field), getattr(self.after, field)
            return None if unknown or before is None or after is None else after - before

        unknown = self.before.unknown + self.after.unknown
        uncalled = self.before.unknown_transcendentals + self.after.unknown_transcendentals
        unknown_bytes = self.before.unknown_bytes + self.after.unknown_bytes
        unknown_communication = self.before.unknown_communication + self.after.unknown_communication
        return Figures(
            of("flops", unknown),
            of("transcendentals", uncalled),
            of("bytes_accessed", unknown_bytes),
            of("params", 0),
            of("time_s", 0),
            payload_bytes=of("payload_bytes", unknown_communication),
            wire_bytes=of("wire_bytes", unknown_communication),
        )

    @property
    def communicates(self) -> bool:
        """True if data is sent to other devices before or after the change, or if this is unknown."""
        return self.before.communicates or self.after.communicates

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain data."""
        delta = self.delta
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "delta": {field: getattr(delta, field) for field in (*_COMPARED, *(_SENT if self.communicates else ()))},
        }


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
    total: Change
    by_block: dict[str, Change]
    unattributed: Change
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

        Raises:
            UnknownOptionError: Unknown field, or the width is not valid.
        """
        if field is None:
            field = "bytes_accessed" if self.total.delta.time_s is None else "time_s"
        return draw(self, "beside", field=field, width=width)

    @property
    def tables(self) -> dict[str, list[tuple[str, ...]]]:
        """A dict from the title of each table to its rows; the first row has the titles of the columns."""
        head = ("block", "FLOPs before", "after", "change", "bytes before", "after", "change")
        rows = [*self.by_block.items(), (UNATTRIBUTED_LABEL, self.unattributed), ("total", self.total)]
        table = [head, *((path, *change_cells(change)) for path, change in rows)]
        if self.total.communicates:
            sent = [("wire bytes before", "after", "change"), *(_sent(change) for _, change in rows)]
            table = [(*row, *more) for row, more in zip(table, sent, strict=True)]
        if self._is_timed:
            times = [("µs before", "after", "change"), *(_times(change) for _, change in rows)]
            table = [(row[0], *more, *row[1:]) for row, more in zip(table, times, strict=True)]
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
        same = ("nothing changes: every number here is the same before and after",) if self._is_same else ()
        return *((f"and {more} more fusions",) if more > 0 else ()), *same, *self._note_of_fusion, *self.devices

    @property
    def _is_timed(self) -> bool:
        return self.total.before.time_s is not None or self.total.after.time_s is not None

    @property
    def _is_same(self) -> bool:
        """True if all costs are known, and the same before and after."""
        changes = (self.total, self.unattributed, *self.by_block.values())
        total = self.total.before
        unknown = total.unknown or total.unknown_bytes or total.unknown_communication
        return all(change.before == change.after for change in changes) and not unknown

    @property
    def _note_of_fusion(self) -> tuple[str, ...]:
        """A note if fusion does not save the same number of bytes as all passes of XLA together."""
        saved, delta = self.saved_by_fusion, self.total.delta.bytes_accessed
        (program, _, source), (other, _, _) = self.before.rpartition(": "), self.after.rpartition(": ")
        if program != other or source not in _UNFUSED or not saved or delta is None or saved == -delta:
            return ()
        fusion, others, together = (
            f"{'save' if change < 0 else 'add'}{ending} {abs(change):,} bytes"
            for change, ending in ((-saved, "s"), (saved + delta, ""), (delta, "s"))
        )
        return (
            f"Fusion {fusion} compared with running the compiled instructions one by one. Other changes by the "
            f"compiler {others}. Together, compilation {together}.",
        )

    def __repr__(self) -> str:
        return f"CostComparison({self.before!r} -> {self.after!r})"

    def __str__(self) -> str:
        texts = (f"{title}\n{columns(rows, range(1, len(rows[0])))}" for title, rows in self.tables.items())
        return "\n".join(["\n\n".join(texts), *self.notes])


def compared(before: CostTotals, after: CostTotals, paths: Mapping[str, str] | None = None) -> CostComparison:
    """Compare the costs before and after a change.

    Args:
        before: The cost before the change.
        after: The cost after the change.
        paths: A dict from the old path of each block to its new path; by default all blocks keep their paths.
            The comparison lists blocks by their new path. A block that is not in the dict was removed or is new.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect
        >>> program = inspect(lambda x: jnp.tanh(x + 1) * 2, jnp.zeros(1000))
        >>> found = compared(program.cost("lowered"), program.cost("compiled"))
        >>> found.total.delta.flops, found.total.delta.bytes_accessed < 0
        (0, True)
    """
    return CostComparison(
        f"{before.program}: {before.source}",
        f"{after.program}: {after.source}",
        Change(before.total, after.total),
        ByBlock(
            {
                name: Change(before.by_block.get(path, before.nothing), after.by_block.get(other, after.nothing))
                for name, path, other in _named(before.by_block, after.by_block, paths)
            },
            f"costs of {before.program!r} and {after.program!r}",
            "comparison.by_block",
        ),
        Change(before.unattributed, after.unattributed),
        tuple(sorted(after.fusions, key=lambda fusion: -(fusion.saved or 0))),
        one_sided(("before", before), ("after", after)),
    )


def _named(
    before: Mapping[str, Any], after: Mapping[str, Any], paths: Mapping[str, str] | None
) -> Iterator[tuple[str, str, str]]:
    """Yield (name of the row, old path, new path) of each block; a path is `""` if the block was removed or is new."""
    partners = {path: path for path in before} if paths is None else paths
    sources = {to: path for path, to in partners.items()}
    for path in before:
        to = partners.get(path, "")
        # A new block may have the path of a removed one. No path contains " (", so the suffix makes the name unique.
        yield to or (f"{path} (removed)" if path in after else path), path, to
    for path in after:
        if sources.get(path) not in before:
            yield path, sources.get(path, ""), path


def one_sided(*sides: tuple[str, CostTotals]) -> tuple[str, ...]:
    """Return a note if one of two named costs is for one device, and the other for all devices together."""
    return tuple(
        f"{name}: {note}; {other_name}: counted for all devices together"
        for (name, cost), (other_name, other) in (sides, sides[::-1])
        for note in cost.notes
        if note.startswith(ONE_OF) and not any(other_note.startswith(ONE_OF) for other_note in other.notes)
    )


def change_cells(change: Change) -> tuple[str, ...]:
    """Return six texts: the FLOPs before, the FLOPs after and their change, then the same for bytes."""
    before, after, delta = change.before, change.after, change.delta
    return (
        format_sum(before.flops, before.unknown),
        format_sum(after.flops, after.unknown),
        format_change(delta.flops),
        format_sum(before.bytes_accessed, before.unknown_bytes),
        format_sum(after.bytes_accessed, after.unknown_bytes),
        format_change(delta.bytes_accessed),
    )


def _sent(change: Change) -> tuple[str, ...]:
    before, after = change.before, change.after
    return (
        format_sum(before.wire_bytes, before.unknown_communication),
        format_sum(after.wire_bytes, after.unknown_communication),
        format_change(change.delta.wire_bytes),
    )


def _times(change: Change) -> tuple[str, ...]:
    before, after, delta = (figures.time_s for figures in (change.before, change.after, change.delta))
    return _microseconds(before), _microseconds(after), _microseconds(delta, "+")


def _microseconds(seconds: float | None, sign: str = "") -> str:
    return "unknown" if seconds is None else f"{1e6 * seconds:{sign},.1f}"
