"""Costs of equations and instructions, their sums, and how one is split between blocks. All sums are exact."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeVar

from mithril_nb.cost.formulas.rules import NO_RULE, NO_SIZE
from mithril_nb.figures import FIGURES, OF_BLOCKS, OF_XLA, SENT, UNKNOWN, with_fields
from mithril_nb.stages.records import Role, quick_replace, quick_to_make

Key = TypeVar("Key", bound=Hashable)
NO_TRIP_COUNT = "trip count unknown"
# Measured times are multiples of 1/TICKS_PER_S seconds, so that sums of times are exact floats, in any order.
TICKS_PER_S = 1 << 40
_UNSENT = {*SENT, *(FIGURES[key].unknown for key in SENT)}
_OF_ROWS = [figure for figure in FIGURES.values() if figure.per == "row"]
_OF_BLOCKS = [figure for figure in FIGURES.values() if figure.per != "program"]


@quick_to_make
@dataclass(frozen=True)
@with_fields({key: None if FIGURES[key].is_measured else 0 for key in OF_BLOCKS} | dict.fromkeys(UNKNOWN, 0))
class Figures:
    """The costs of a block, a role or a whole program, in one run of the program.

    A cost is `None` if it is entirely unknown, and a lower bound if it is partly unknown. Figures of
    `mithril_nb.figures` that are not declared here are attributes, too.

    Attributes:
        flops: Arithmetic operations.
        transcendentals: Calls of `exp`, `tanh`, `sqrt`, ...
        bytes_accessed: Bytes read and written.
        params: Number of parameters; `None` if it is unknown which inputs are parameters.
        time_s: Measured time in seconds; `None` if not measured.
        predicted_s: Predicted time in seconds on the device of the program; `None` if not predicted.
        unknown: Number of equations or instructions with unknown FLOPs or transcendentals.
        unknown_bytes: Number of equations or instructions with unknown bytes.
        shared: Of the equations or instructions in `unknown`, the number that also belong to another block. An example
            is a fusion of two blocks.
        payload_bytes: Bytes of the buffers that one device passes to collectives, such as an all-reduce. The module
            `mithril_nb.cost.formulas.communication` has a table.
        wire_bytes: Bytes that one device sends to other devices in these collectives, by ring algorithms.
        unknown_communication: Number of equations or instructions with unknown payload and wire bytes.
        unknown_transcendentals: Of the equations or instructions in `unknown`, the number with unknown transcendentals.
        unknown_predicted: If `predicted_s` is not `None`, the number of instructions whose time cannot be predicted.
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
    predicted_s: float | None = None
    unknown_predicted: int = 0

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
        if self.predicted_s is None and not self.unknown_predicted:
            del data["predicted_s"], data["unknown_predicted"]
        del data["shared"]  # internal; the data has the shares and bounds computed from it
        return _without_unsent(data)

    def unknown_in(self, key: str) -> int:
        """Return the number of equations or instructions in which a figure, such as `"flops"`, is unknown."""
        return getattr(self, FIGURES[key].unknown) if FIGURES[key].unknown else 0

    def text(self, key: str) -> str:
        """Return a figure as text. It begins with `≥` if the figure is not 0 and leaves out unknown parts."""
        return format_sum(getattr(self, key), self.unknown_in(key))


_NOTHING_KNOWN = quick_replace(Figures(), **dict.fromkeys(OF_BLOCKS))


def only(**figures: float | None) -> Figures:
    """Return figures that are unknown except for the given ones.

    Examples:
        >>> only(flops=6).text("flops"), only(flops=6).text("wire_bytes")
        ('6', 'unknown')
    """
    return quick_replace(_NOTHING_KNOWN, **figures)


NO_WORK = only(**dict.fromkeys(OF_XLA, 0))
"""`CostRow.once` of an equation or instruction that does not run."""


Piece = tuple[str, tuple[tuple[str, float], ...], Role | None, int]
"""A collective that XLA combined with others: its id, its blocks as in `CostRow`, its role, its payload in bytes."""


@quick_to_make
@dataclass(frozen=True)
@with_fields({figure.key: None for figure in _OF_ROWS})
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
        once: The cost with each loop counted as one iteration, as XLA counts; `None` if not computed. It has only the
            figures that XLA reports; the others are `None`.
        equations: Ids of the equations that an instruction comes from; for an equation its own id.
        letters: Pairs of a letter in the formula and its value: a number, or a text for a symbolic size.
        rounds: `repeats` as text if it depends on symbolic sizes, such as `"N"`; else `""`.
        payload_bytes: As in `Figures`; `None` if unknown.
        wire_bytes: As in `Figures`; `None` if unknown.
        pieces: The collectives that XLA combined into this instruction; empty for all other rows.
        macs: Multiply-adds, as in `Cost.macs`; `None` if unknown, and for instructions.
        predicted_s: Predicted time in seconds; `None` if unknown or not predicted. Inside a fusion, it is 0.
        limited_by: The largest part of `predicted_s`: `"FLOPs"`, `"bytes"`, `"launch"` (the start of a kernel) or
            `"links"` (between devices); `"cycles"` if the compiler estimates the whole; else `""`.
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
    predicted_s: float | None = None
    limited_by: str = ""

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
        internal = ["once", "equations", "pieces", "macs"]
        internal += ["predicted_s", "limited_by"] if self.predicted_s is None else []
        data = {key: value for key, value in self.__dict__.items() if key not in internal}
        return _without_unsent({**data, "blocks": dict(self.blocks), "letters": dict(self.letters)})


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


def _without_unsent(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in _UNSENT or value != 0}


def is_unknown(row: CostRow, count: str = "unknown") -> bool:
    """Return whether a row adds to a count of unknown rows; by default, to that of unknown FLOPs or transcendentals."""
    return any(getattr(row, key) is None for key in UNKNOWN[count])


def count_unknown(rows: Iterable[CostRow]) -> dict[str, int]:
    """Return all counts of unknown rows."""
    rows = tuple(rows)
    return {count: sum(is_unknown(row, count) for row in rows) for count in _counts_of(rows)}


def _counts_of(rows: Sequence[CostRow]) -> list[str]:
    # A time that no row has was not predicted, so it is not unknown either.
    return [
        count
        for count, keys in UNKNOWN.items()
        if not FIGURES[keys[0]].is_measured or any(getattr(row, keys[0]) is not None for row in rows)
    ]


def sum_of(parts: Iterable[Figures | CostRow], *, all_known: bool = False) -> Figures:
    """Return the sum of figures, or of rows."""
    parts = [*parts]
    if len(parts) == 1 and isinstance(parts[0], Figures):
        return parts[0]
    rows = [part for part in parts if isinstance(part, CostRow)]
    sums: dict[str, Any] = {}
    is_known = True
    for figure in _OF_ROWS if rows else _OF_BLOCKS:
        values = [getattr(part, figure.key) for part in parts]
        sums[figure.key] = figure.add(values, all_known=all_known)
        # A predicted time is missing in all rows if nothing was predicted, and a measured one in most.
        is_missing = figure.is_measured and (not figure.unknown or all(value is None for value in values))
        is_known = is_known and (is_missing or None not in values)
    if not rows:
        sums |= {count: sum([getattr(part, count) for part in parts]) for count in (*UNKNOWN, "shared")}
    elif not is_known:
        sums |= count_unknown(rows)
    return Figures(**sums)


def sums_by(
    rows: Iterable[CostRow], groups_of: Callable[[CostRow], Sequence[tuple[Key, float]]], *, all_known: bool = False
) -> dict[Key, Figures]:
    """Return the sum of the rows of each group. A row of several groups is split by their shares."""
    # A row of one group is not converted to `Figures`, which would take five times as long.
    rows = tuple(rows)
    known_counts = _counts_of(rows)
    own: dict[Key, list[CostRow]] = {}
    split: dict[Key, list[Figures]] = {}
    order: dict[Key, None] = {}
    for row in rows:
        for piece in _pieces_of(row) if row.pieces else (row,):
            groups = groups_of(piece)
            order |= dict.fromkeys(key for key, _ in groups)
            if len(groups) == 1:
                own.setdefault(groups[0][0], []).append(piece)
                continue
            counts = {count: int(is_unknown(piece, count)) for count in known_counts}
            for (key, _), part in zip(groups, _split(piece, [share for _, share in groups]), strict=True):
                split.setdefault(key, []).append(Figures(**part, **counts, shared=counts["unknown"]))
    return {
        key: sum_of(
            [*([sum_of(own[key], all_known=all_known)] if key in own else []), *split.get(key, ())], all_known=all_known
        )
        for key in order
    }


def group_by(rows: Iterable[CostRow], key_of: Callable[[CostRow], Key]) -> dict[Key, list[CostRow]]:
    """Return the rows of each group, in the order of the rows."""
    groups: dict[Key, list[CostRow]] = {}
    for row in rows:
        groups.setdefault(key_of(row), []).append(row)
    return groups


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


def _pieces_of(row: CostRow) -> list[CostRow]:
    parts = _split(row, [size for *_, size in row.pieces])
    return [
        replace(row, id=id, blocks=blocks, role=role, pieces=(), **part)
        for (id, blocks, role, _), part in zip(row.pieces, parts, strict=True)
    ]


def _split(row: CostRow, weights: Sequence[float]) -> list[dict[str, Any]]:
    # Fractions instead of floats, so the shares sum to exactly 1 and no count is lost to rounding.
    exact = [Fraction(weight) for weight in weights]
    total = sum(exact)
    shares = [weight / total for weight in exact]
    columns: dict[str, Sequence[float | None]] = {}
    for figure in _OF_ROWS:
        value = getattr(row, figure.key)
        if not figure.is_measured:
            columns[figure.key] = split_number(value, shares)
        else:
            ticks = split_number(None if value is None else round(value * TICKS_PER_S), shares)
            columns[figure.key] = [None if part is None else part / TICKS_PER_S for part in ticks]
    return [dict(zip(columns, parts, strict=True)) for parts in zip(*columns.values(), strict=True)]


def split_number(value: int | None, shares: Sequence[Fraction]) -> list[int | None]:
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
    for index in sorted(range(len(parts)), key=lambda index: parts[index] - exact[index])[: value - sum(parts)]:
        parts[index] += 1
    return [*parts]
