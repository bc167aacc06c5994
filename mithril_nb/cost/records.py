"""Costs of equations and instructions, their sums, and how one is split between blocks. All sums are exact."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from mithril_nb.cost.formulas.rules import NO_RULE, NO_SIZE
from mithril_nb.stages.records import Role, quick_to_make

COUNTED = ("flops", "transcendentals", "bytes_accessed")
COMMUNICATION = ("payload_bytes", "wire_bytes", "unknown_communication")
"""Fields of `Figures` that `to_dict` leaves out if they are 0, because most programs send nothing."""
NO_TRIP_COUNT = "trip count unknown"
TICKS_PER_S = 1 << 40
"""Measured times are multiples of 1/TICKS_PER_S seconds. So sums of times are exact floats, in any order."""


@quick_to_make
@dataclass(frozen=True)
class Figures:
    """The costs of a block, a role or a whole program, in one run of the program.

    A cost is `None` if it is entirely unknown, and a lower bound if it is partly unknown.

    Attributes:
        flops: Arithmetic operations.
        transcendentals: Calls of `exp`, `tanh`, `sqrt`, ...
        bytes_accessed: Bytes read and written.
        params: Number of parameters; `None` if it is unknown which inputs are parameters.
        time_s: Measured time in seconds; `None` if not measured.
        unknown: Number of equations or instructions with unknown FLOPs or transcendentals.
        unknown_bytes: Number of equations or instructions with unknown bytes.
        shared: Of the equations or instructions in `unknown`, the number that also belong to another block. An example
            is a fusion of two blocks.
        payload_bytes: Bytes of the buffers that one device passes to collectives, such as an all-reduce. The module
            `mithril_nb.cost.formulas.communication` has a table.
        wire_bytes: Bytes that one device sends to other devices in these collectives, by ring algorithms.
        unknown_communication: Number of equations or instructions with unknown payload and wire bytes.
        unknown_transcendentals: Of the equations or instructions in `unknown`, the number with unknown transcendentals.
    """

    flops: int | None = 0
    transcendentals: int | None = 0
    bytes_accessed: int | None = 0
    params: int | None = 0
    time_s: float | None = None
    unknown: int = 0
    unknown_bytes: int = 0
    shared: int = field(default=0, compare=False, repr=False)
    payload_bytes: int | None = 0
    wire_bytes: int | None = 0
    unknown_communication: int = 0
    unknown_transcendentals: int = 0

    @property
    def communicates(self) -> bool:
        """True if data is sent to other devices, or if this is unknown."""
        return self.payload_bytes != 0 or self.wire_bytes != 0

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data.

        Some figures are left out: payload and wire bytes if they are 0, and `unknown_transcendentals` if it equals
        `unknown`.
        """
        data = dict(self.__dict__)
        if self.unknown_transcendentals == self.unknown:
            del data["unknown_transcendentals"]
        del data["shared"]  # internal; the data has the shares and bounds computed from it
        return _without_zeros(data)


Piece = tuple[str, tuple[tuple[str, float], ...], Role | None, int]
"""A collective that XLA combined with others: its id, its blocks as in `CostRow`, its role, its payload in bytes."""


@quick_to_make
@dataclass(frozen=True)
class CostRow:
    """The cost of one equation or instruction in one run of the program.

    An equation in a loop runs `repeats` times. All costs except `once` are those of all these runs together.

    Attributes:
        id: Id of the equation or instruction in its stage.
        opcode: The primitive of an equation, or the opcode of an instruction.
        blocks: Pairs of the path of a block and its share of the cost, from 0 to 1; empty if not attributed.
        role: The part of a training step: `"forward"`, `"backward"` or `"update"`; `None` if there is none.
        flops: FLOPs; `None` if unknown.
        transcendentals: Calls of transcendental functions; `None` if unknown.
        bytes_accessed: Bytes read and written; `None` if unknown.
        repeats: How often the equation or instruction runs; `None` if unknown.
        formula: The formula for the FLOPs of one run, or why they are unknown.
        time_s: Time in seconds; `None` if not measured.
        once: The cost with each loop counted as one iteration, as XLA counts; `None` if not computed.
        equations: Ids of the equations that an instruction comes from; for an equation its own id.
        letters: Pairs of a letter in the formula and its value: a number, or a text for a symbolic size.
        rounds: `repeats` as text if it depends on symbolic sizes, such as `"N"`; else `""`.
        payload_bytes: As in `Figures`; `None` if unknown.
        wire_bytes: As in `Figures`; `None` if unknown.
        pieces: The collectives that XLA combined into this instruction; empty for all other rows.
        macs: Multiply-adds, as in `Cost.macs`; `None` if unknown, and for instructions.
    """

    id: str
    opcode: str
    blocks: tuple[tuple[str, float], ...]
    role: Role | None
    flops: int | None
    transcendentals: int | None
    bytes_accessed: int | None
    repeats: int | None
    formula: str
    time_s: float | None = None
    once: Figures | None = None
    equations: tuple[str, ...] = ()
    letters: tuple[tuple[str, int | str], ...] = ()
    rounds: str = ""
    payload_bytes: int | None = 0
    wire_bytes: int | None = 0
    pieces: tuple[Piece, ...] = ()
    macs: int | None = None

    @property
    def explained(self) -> str:
        """The formula with the values of its letters: `"2·B·M·N·K with B=1, M=128, N=512, K=784"`."""
        values = ", ".join(f"{letter}={value}" for letter, value in self.letters)
        return f"{self.formula} with {values}" if values else self.formula

    @property
    def unknown(self) -> str:
        """The reason why the FLOPs are unknown; `""` if they are known."""
        if self.flops is not None:
            return ""
        is_ruled = self.once is not None and self.once.flops is not None
        if self.repeats is None and is_ruled and not self.rounds:
            return NO_TRIP_COUNT
        return self.formula if self.formula.startswith(NO_RULE) else NO_SIZE

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        data = {
            key: value for key, value in self.__dict__.items() if key not in ("once", "equations", "pieces", "macs")
        }
        return _without_zeros({**data, "blocks": dict(self.blocks), "letters": dict(self.letters)})


@dataclass(frozen=True)
class Fusion:
    """The bytes that one fusion saves, compared with running its instructions one by one.

    Attributes:
        id: Id of the fusion in its stage.
        blocks: Pairs of the path of a block and its share of the cost, from 0 to 1.
        role: The part of a training step: `"forward"`, `"backward"` or `"update"`; `None` if there is none.
        count: Number of fused instructions that compute something; parameters and tuples do not count.
        alone: Bytes that the instructions would read and write without fusion, in all runs; `None` if unknown.
        bytes_accessed: Bytes that the fusion reads and writes in all runs; `None` if unknown.
    """

    id: str
    blocks: tuple[tuple[str, float], ...]
    role: Role | None
    count: int
    alone: int | None
    bytes_accessed: int | None

    @property
    def saved(self) -> int | None:
        """Bytes that the fusion avoids reading and writing: `alone - bytes_accessed`; `None` if unknown."""
        return None if self.alone is None or self.bytes_accessed is None else self.alone - self.bytes_accessed

    def to_dict(self) -> dict[str, Any]:
        """Return the fusion as plain data."""
        return {**self.__dict__, "blocks": dict(self.blocks), "saved": self.saved}


@dataclass(frozen=True)
class Source:
    """Total costs of a program with each loop counted as one iteration, as XLA counts.

    Attributes:
        name: Name of the count: `"XLA lowered"` or `"XLA compiled"`; for our own count, the source with `"loops once"`,
            such as `"analytic, loops once"`.
        flops: Arithmetic operations; `None` if unknown.
        transcendentals: Calls of transcendental functions; `None` if unknown.
        bytes: Bytes read and written; `None` if unknown.
        unknown: Number of equations or instructions with unknown FLOPs or transcendentals. The totals leave them out.
        unknown_bytes: Number of equations or instructions with unknown bytes. `bytes` leaves them out.
    """

    name: str
    flops: int | None = None
    transcendentals: int | None = None
    bytes: int | None = None
    unknown: int = field(default=0, kw_only=True)
    unknown_bytes: int = field(default=0, kw_only=True)


def _without_zeros(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in COMMUNICATION or value != 0}


def share_of(figures: Figures, total: Figures) -> tuple[float | None, str]:
    """Return the FLOPs of a block as a share of the total, and `""`, `"≤"` or `"≥"`; see `Cost.share_of`."""
    if not total.unknown:
        return (figures.flops or 0) / total.flops if total.flops else 0.0, ""
    # This block and others have unknown costs, so the share may be larger or smaller.
    if figures.flops is None or not total.flops or figures.shared or 0 < figures.unknown < total.unknown:
        return None, ""
    share = figures.flops / total.flops
    is_exact = share == 1.0 if figures.unknown else share == 0.0
    return share, "" if is_exact else "≥" if figures.unknown else "≤"


def known_sum(values: Iterable[int | None]) -> int | None:
    """Return the sum of the known values; `None` if this is 0 and some values are unknown.

    Examples:
        >>> known_sum([1, 2]), known_sum([1, None]), known_sum([0, None]), known_sum([])
        (3, 1, None, 0)
    """
    numbers = tuple(values)
    total = sum([value for value in numbers if value])
    return None if not total and None in numbers else total


def is_unknown(row: CostRow) -> bool:
    """Return whether the FLOPs or transcendentals of a row are unknown."""
    return row.flops is None or row.transcendentals is None


def sum_of_figures(parts: Iterable[Figures], *, all_known: bool = False) -> Figures:
    """Return the sum of figures, field by field.

    Args:
        parts: The figures.
        all_known: True to sum a field to `None` if one of its values is unknown. By default, unknown values are left
            out of the sum.
    """
    every = tuple(parts)
    if len(every) == 1:
        return every[0]

    communicating = [
        figures for figures in every if figures.payload_bytes != 0 or figures.wire_bytes != 0
    ]  # nearly always empty

    def of(field: Callable[[Figures], int | None]) -> int | None:
        values = [field(figures) for figures in every]
        return None if all_known and None in values else known_sum(values)

    return Figures(
        of(lambda one: one.flops),
        of(lambda one: one.transcendentals),
        of(lambda one: one.bytes_accessed),
        of(lambda one: one.params),
        _seconds(every),
        sum([one.unknown for one in every]),
        sum([one.unknown_bytes for one in every]),
        sum([one.shared for one in every]),
        *((of(lambda one: one.payload_bytes), of(lambda one: one.wire_bytes)) if communicating else (0, 0)),
        sum([one.unknown_communication for one in communicating]),
        sum([one.unknown_transcendentals for one in every]),
    )


def sum_of_rows(rows: Iterable[CostRow], *, all_known: bool = False) -> Figures:
    """Return the sum of rows; `all_known` is as in `sum_of_figures`.

    This takes a fifth of the time of creating a `Figures` for each row and calling `sum_of_figures`.
    """
    all_rows = tuple(rows)
    flops, transcendentals = [row.flops for row in all_rows], [row.transcendentals for row in all_rows]
    moved = [row.bytes_accessed for row in all_rows]
    communicating = [row for row in all_rows if row.payload_bytes != 0 or row.wire_bytes != 0]
    payload, wire = [row.payload_bytes for row in communicating], [row.wire_bytes for row in communicating]

    def of(values: list[int | None]) -> int | None:
        return None if all_known and None in values else known_sum(values)

    unknown = sum(map(is_unknown, all_rows)) if None in flops or None in transcendentals else 0
    return Figures(
        of(flops),
        of(transcendentals),
        of(moved),
        0,
        _seconds(all_rows),
        unknown,
        moved.count(None),
        0,
        of(payload),
        of(wire),
        wire.count(None),
        transcendentals.count(None),
    )


def once_of(source: str, rows: Iterable[CostRow]) -> Source:
    """Return the sum of rows with each loop counted as one iteration, as XLA counts."""
    parts = [row.once or Figures(None, None, None) for row in rows]
    return Source(
        f"{source}, loops once",
        *(
            known_sum(getattr(figures, field) for figures in parts)
            for field in ("flops", "transcendentals", "bytes_accessed")
        ),
        unknown=sum(figures.flops is None or figures.transcendentals is None for figures in parts),
        unknown_bytes=sum(figures.bytes_accessed is None for figures in parts),
    )


def format_sum(value: int | None, unknown: int = 0) -> str:
    """Return a sum as text. The text begins with `≥` if the sum is not 0 and leaves out unknown parts.

    Examples:
        >>> format_sum(1024), format_sum(1024, 2), format_sum(0, 2), format_sum(None, 2)
        ('1,024', '≥ 1,024', '0', 'unknown')
    """
    if value is None:
        return "unknown"
    return f"≥ {value:,}" if unknown and value else f"{value:,}"


def format_change(value: int | None) -> str:
    """Return a difference as text, with its sign."""
    return "unknown" if value is None else f"{value:+,}" if value else "0"


def _seconds(parts: Iterable[Figures | CostRow]) -> float | None:
    """Return the sum of the measured times; `None` if nothing was measured.

    Rows without a time count 0, because an instruction without an event in the profile did not run on its own.
    """
    times = [part.time_s for part in parts if part.time_s is not None]
    # fsum is exact, so the total does not depend on the order of the rows.
    return math.fsum(times) if times else None


def pieces_of(row: CostRow) -> list[CostRow]:
    """Return a row for each collective that XLA combined into this row; for other rows, return the row.

    The cost is split in proportion to the payloads. The parts sum exactly to the row.
    """
    if not row.pieces:
        return [row]
    payload = sum(size for *_, size in row.pieces)
    parts = _split(row, [Fraction(size, payload) for *_, size in row.pieces])
    return [
        replace(row, id=id, blocks=blocks, role=role, pieces=(), **part)
        for (id, blocks, role, _), part in zip(row.pieces, parts, strict=True)
    ]


def parts_of(row: CostRow) -> list[tuple[str, Figures]]:
    """Split a row between its blocks: return pairs of path and cost, which sum exactly to the row.

    The path `""` means not attributed.
    """
    unknown = int(is_unknown(row))
    unknowns = int(row.wire_bytes is None), int(row.transcendentals is None)
    if len(row.blocks) < 2:
        figures = Figures(
            row.flops,
            row.transcendentals,
            row.bytes_accessed,
            0,
            row.time_s,
            unknown,
            int(row.bytes_accessed is None),
            0,
            row.payload_bytes,
            row.wire_bytes,
            *unknowns,
        )
        return [(row.blocks[0][0] if row.blocks else "", figures)]
    # Fractions instead of floats, so the shares sum to exactly 1 and no count is lost to rounding.
    weights = {path: Fraction(share) for path, share in row.blocks}
    total = sum(weights.values())
    parts = _split(row, [weight / total for weight in weights.values()])
    return [
        (
            path,
            Figures(
                unknown=unknown,
                unknown_bytes=int(row.bytes_accessed is None),
                shared=unknown,
                unknown_communication=unknowns[0],
                unknown_transcendentals=unknowns[1],
                **part,
            ),
        )
        for path, part in zip(weights, parts, strict=True)
    ]


def _split(row: CostRow, shares: list[Fraction]) -> list[dict[str, Any]]:
    """Split a row by shares. Return, for each share, a dict from a field of `Figures` to its value."""
    names = (*COUNTED, "payload_bytes", "wire_bytes")
    columns = [split_number(getattr(row, name), shares) for name in names]
    ticks = split_number(None if row.time_s is None else round(row.time_s * TICKS_PER_S), shares)
    times = [None if part is None else part / TICKS_PER_S for part in ticks]
    return [dict(zip((*names, "time_s"), part, strict=True)) for part in zip(*columns, times, strict=True)]


def split_number(value: int | None, shares: list[Fraction]) -> list[int | None]:
    """Split an integer by shares into integers with the same sum. Parts with the largest remainders are rounded up.

    Examples:
        >>> split_number(10, [Fraction(1, 3)] * 3)
        [4, 3, 3]
    """
    if not value:
        # Fast path: most values are 0 or `None`.
        return [value] * len(shares)
    exact = [value * share for share in shares]
    parts = [int(part) for part in exact]
    for place in sorted(range(len(parts)), key=lambda index: parts[index] - exact[index])[: value - sum(parts)]:
        parts[place] += 1
    return [*parts]


def rows_by_block(rows: Iterable[CostRow]) -> Mapping[str, Mapping[str, list[Figures]]]:
    """Return a dict from block to role to the costs of its rows; `""` means no block or no role."""
    by_block: dict[str, dict[str, list[Figures]]] = {}
    for row in rows:
        for piece in pieces_of(row) if row.pieces else (row,):
            for path, figures in parts_of(piece):
                by_block.setdefault(path, {}).setdefault(piece.role or "", []).append(figures)
    return by_block
