"""How much memory a program needs at each place of its schedule, and which block holds it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import jax

from mithril_nb.cost.hlo.xla import Memory, xla_memory
from mithril_nb.cost.memory.compiled_liveness import compiled_lives, set_aside
from mithril_nb.cost.memory.jaxpr_liveness import jaxpr_lives
from mithril_nb.cost.memory.liveness import (
    ARGUMENTS,
    CONSTANTS,
    KINDS,
    OUTPUTS,
    TEMPORARIES,
    UNFILLED,
    LiveRange,
    held,
    set_aside_for,
)
from mithril_nb.cost.memory.producers import Makers
from mithril_nb.cost.symbolic_costs import SymbolicProgram
from mithril_nb.display import Shown
from mithril_nb.errors import StageUnavailableError, UnknownOptionError
from mithril_nb.graph.paths import is_within
from mithril_nb.stages.collector import paused_collector
from mithril_nb.stages.frozen import quick_to_make
from mithril_nb.stages.program_stages import known_equations
from mithril_nb.stages.records import UNATTRIBUTED
from mithril_nb.stages.xla.buffers import Buffer

if TYPE_CHECKING:
    from mithril_nb.stages.program_stages import ProgramStages

SOURCES = ("analytic", "compiled")
"""Ways to know: from the jaxpr without a compiler, or from XLA's buffer assignment."""


@quick_to_make
@dataclass(frozen=True)
class Moment:
    """How much memory is held while one instruction, or one equation, runs.

    Attributes:
        id: Its id in its stage, `"hlo"` or `"jaxpr"`.
        bytes: Bytes that are held.
    """

    id: str
    bytes: int


@dataclass(frozen=True)
class MemoryUse(Shown):
    """How much memory one run of a program needs on one device, from place to place, and who holds it.

    `lives` add up to `timeline` at every place, and to `at_peak` and `kinds` at the place `peak_at`, exactly.

    The peak of a compiled program is what XLA sets aside for it: arguments, outputs and temporaries, those counted once
    that take the place of arguments (`memory_analysis()`: argument + output + temp - alias), and the constants, which
    `memory_analysis()` leaves out. What of this no value fills at the fullest moment is held throughout by nobody, as
    kind `"unfilled"`: gaps between values, their alignment, and outputs that wait for their value.

    Attributes:
        program: Name of the program.
        source: `"compiled"`, or `"analytic"` for an estimate from the equations of the jaxpr: a compiler may keep more
            or less than it.
        peak_bytes: The most bytes that are held at any place; `None` if nobody knows.
        peak_at: The first place in `timeline` at which so much is held; `None` if nobody knows.
        filled_bytes: The most bytes that values fill at any place; `None` if nobody knows.
        timeline: Each place of the schedule in the order of time. Bodies of loops and branches stand in it once.
        at_peak: Bytes held at the peak by block path; `""` is what no block holds, or nobody knows.
        kinds: The same by kind: `"arguments"`, `"outputs"`, `"temporaries"`, `"constants"`, `"unfilled"`. As in
            `memory_analysis()`, a value on the way that lies where an output will lie is one of the outputs.
        lives: What holds memory, from when to when; what begins first comes first.
        blocks: Paths of the blocks of the program, in its order, those that hold nothing included.
        xla: What `memory_analysis()` says; `None` if the program is not compiled, or the platform does not say.
        notes: What is not known, and why.
    """

    program: str
    source: str
    peak_bytes: int | None
    peak_at: int | None
    filled_bytes: int | None
    timeline: tuple[Moment, ...]
    at_peak: Mapping[str, int]
    kinds: Mapping[str, int]
    lives: tuple[LiveRange, ...]
    blocks: tuple[str, ...]
    xla: Memory | None
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"MemoryUse({self.program!r}, {self.source}, peak_bytes={self.peak_bytes})"

    def subtree(self, path: str) -> int:
        """Return the bytes that a block holds at the peak with all blocks inside it; `""` gives the whole program."""
        return sum(size for block, size in self.at_peak.items() if is_within(block, path))

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain data."""
        return {
            "program": self.program,
            "source": self.source,
            "peak_bytes": self.peak_bytes,
            "peak_at": self.peak_at,
            "filled_bytes": self.filled_bytes,
            "timeline": [{"id": one.id, "bytes": one.bytes} for one in self.timeline],
            "at_peak": dict(self.at_peak),
            "kinds": dict(self.kinds),
            "lives": [dict(vars(life)) for life in self.lives],
            "blocks": list(self.blocks),
            "xla": None if self.xla is None else asdict(self.xla),
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Return the same as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)


_KNOWN: WeakKeyDictionary[ProgramStages, dict[str, MemoryUse]] = WeakKeyDictionary()


def memory_of(inspection: ProgramStages, source: str = "compiled") -> MemoryUse:
    """Return how much memory a program needs, and which block holds it; found once for each source.

    Args:
        inspection: The program.
        source: `"compiled"` compiles it and reads XLA's buffer assignment. `"analytic"` only traces it, and estimates.

    Raises:
        UnknownOptionError: There is no such source.
        StageUnavailableError: The program cannot be traced, or compiled.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect
        >>> found = memory_of(inspect(jnp.dot, jnp.zeros((8, 16)), jnp.zeros((16, 32))))
        >>> found.peak_bytes, found.kinds["arguments"], found.kinds["outputs"]
        (3584, 2560, 1024)
    """
    if source not in SOURCES:
        raise UnknownOptionError(
            f"memory of {inspection.name!r} cannot be known by {source!r}.",
            (("sources", ", ".join(SOURCES)),),
            'memory_of(inspection, "compiled")',
        )
    known = _KNOWN.setdefault(inspection, {})
    if source not in known:
        with paused_collector():  # a record for each value, and a traced program in memory
            known[source] = _compiled(inspection) if source == "compiled" else _analytic(inspection)
    return known[source]


def best_memory_of(inspection: ProgramStages) -> MemoryUse:
    """Return how much memory a compiled program needs; if it does not compile, the estimate, whose notes say so.

    Args:
        inspection: The program.

    Raises:
        StageUnavailableError: The program cannot be traced.
    """
    try:
        return memory_of(inspection)
    except StageUnavailableError as error:
        if inspection.given is not None:
            raise inspection.given.error("hlo") if inspection.given.reason("hlo") else error from None
        found = memory_of(inspection, "analytic")
        if found.peak_bytes is None:
            return found
        return replace(found, notes=(*found.notes, f"an estimate, for it does not compile: {_reason(error)}"))


def _analytic(inspection: ProgramStages) -> MemoryUse:
    equations = inspection.equations
    if names := _sizes_without_numbers(inspection):
        why = f"nobody knows without a number for {', '.join(names)}: inspect it with numbers"
        return _in_sum(inspection, "analytic", {}, None, why)
    device = inspection.device or jax.devices()[0]
    lives, unknown = jaxpr_lives(inspection.values, equations, device.platform == "cpu")
    lives = _with_state(lives, _state(inspection))
    notes = [f"{unknown} arrays: their size is not known"] if unknown else []
    if inspection.is_divided:
        notes.append("arrays that are spread over devices are counted whole, not by device")
    # What a program without equations is given, it gives back at one go.
    sequence = [equation.id for equation in equations] or [""]
    return _use(inspection, "analytic", lives, sequence, set_aside_for(lives, len(sequence)), None, notes)


def _state(inspection: ProgramStages) -> dict[str, str]:
    """Return by name of each argument the one block whose update alone takes it: what the optimizer keeps for it."""
    if inspection.given is not None:
        return {}
    equations = inspection.equations
    found: dict[str, str] = {}
    for value in inspection.values:
        if value.is_argument:
            users = [equations[use] for use in value.uses if not equations[use].is_call]
            blocks = {one.block for one in users}
            is_kept = len(blocks) == 1 and all(one.role == "update" for one in users)
            found[value.id] = blocks.pop() if is_kept else UNATTRIBUTED
    return found


def _with_state(lives: Sequence[LiveRange], blocks: Mapping[str, str]) -> list[LiveRange]:
    """Give arguments that belong to no block the one of their ids."""
    return [
        replace(life, block=blocks.get(life.id, UNATTRIBUTED)) if life.kind == ARGUMENTS and not life.block else life
        for life in lives
    ]


def _compiled(inspection: ProgramStages) -> MemoryUse:
    inspection.want(machine_code=False)
    stage = inspection.stage("hlo")
    xla = xla_memory(lambda: inspection.analysis("memory")) if inspection.is_optimized else None
    if stage.unavailable is not None and not inspection.is_optimized:
        names = ", ".join(_sizes_without_numbers(inspection))
        given = inspection.given
        otherwise = "inspection.memory  # an estimate, from the equations" if given is None else given.first_shown
        raise StageUnavailableError(
            f"memory of {inspection.name!r} is not known: it does not compile.",
            (("reason", stage.unavailable),),
            otherwise if inspection.given is not None or not names else f"inspect it with numbers for {names}.",
        )
    try:
        buffers = inspection.buffers
    except StageUnavailableError as error:
        return _in_sum(inspection, "compiled", {} if xla is None else _sizes_told(xla), xla, _reason(error))
    makers = Makers(stage)
    try:
        ranges = inspection.live_ranges
    except StageUnavailableError as error:
        return _in_sum(inspection, "compiled", _sizes(buffers, makers), xla, _reason(error))
    lives, unknown = compiled_lives(buffers, ranges, makers)
    arguments = {one.id: one.equations[0] for one in stage.instructions if one.opcode == "parameter" and one.equations}
    state = {f"arg{place}": block for place, block in enumerate(_state(inspection).values())}
    lives = _with_state(lives, {id: state[argument] for id, argument in arguments.items() if argument in state})
    notes = (f"{unknown} values: XLA does not say when they are needed",) if unknown else ()
    return _use(inspection, "compiled", lives, ranges.sequence, set_aside(buffers), xla, notes)


def _sizes_without_numbers(inspection: ProgramStages) -> tuple[str, ...]:
    given = inspection.given
    return SymbolicProgram(inspection.name, (), inspection.inputs).symbols if given is None else tuple(given.sizes)


def _use(
    inspection: ProgramStages,
    source: str,
    lives: Sequence[LiveRange],
    sequence: Sequence[str],
    aside: int,
    xla: Memory | None,
    notes: Iterable[str],
) -> MemoryUse:
    """Add up lives; what is set aside beyond them is held by nobody."""
    filled = held(lives, len(sequence))
    most = max(filled, default=0)
    if aside > most:
        lives = [*lives, LiveRange("", UNFILLED, UNATTRIBUTED, aside - most, 0, len(sequence) - 1)]
    peak_at = filled.index(most) if filled else None
    above = max(aside - most, 0)
    at_peak: dict[str, int] = {}
    kinds = dict.fromkeys(KINDS, 0)
    for life in lives:
        if peak_at is not None and life.first <= peak_at <= life.last:
            at_peak[life.block] = at_peak.get(life.block, 0) + life.size_bytes
            kinds[life.kind] += life.size_bytes
    timeline = tuple([Moment(id, size + above) for id, size in zip(sequence, filled, strict=True)])
    return MemoryUse(
        inspection.name, source, most + above, peak_at, most, timeline, _largest_first(at_peak), kinds,
        tuple(sorted(lives, key=lambda life: life.first)), _blocks(inspection), xla, tuple(notes),
    )  # fmt: skip


def _in_sum(
    inspection: ProgramStages, source: str, sizes: Mapping[tuple[str, str], int], xla: Memory | None, why: str
) -> MemoryUse:
    """What is known where nobody says when values are needed: what is set aside, by kind and block."""
    at_peak: dict[str, int] = {}
    kinds = dict.fromkeys(KINDS, 0)
    for (kind, block), size in sizes.items():
        at_peak[block] = at_peak.get(block, 0) + size
        kinds[kind] += size
    peak = sum(sizes.values()) if sizes else None
    missing = "timeline" if sizes else "peak_bytes, timeline"
    return MemoryUse(
        inspection.name, source, peak, None, None, (), _largest_first(at_peak), kinds if sizes else {}, (),
        _blocks(inspection), xla, (f"{missing}: {why}",),
    )  # fmt: skip


def _largest_first(sizes: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(sizes.items(), key=lambda one: -one[1]))


def _blocks(inspection: ProgramStages) -> tuple[str, ...]:
    made = [equation.block for equation in known_equations(inspection)]
    return tuple(dict.fromkeys(block for block in (*made, *(one.block for one in inspection.inputs)) if block))


def _sizes(buffers: Iterable[Buffer], makers: Makers) -> dict[tuple[str, str], int]:
    kinds = {"parameter": ARGUMENTS, "result": OUTPUTS, "temporary": TEMPORARIES, "constant": CONSTANTS}
    sizes: dict[tuple[str, str], int] = {}
    for buffer in buffers:
        kind = kinds.get(buffer.kind)
        if kind is None:
            continue
        # Who holds a piece that values share changes from place to place.
        blocks = {makers.block_of(value.instruction, value.index) for value in buffer.values}
        block = blocks.pop() if len(blocks) == 1 else UNATTRIBUTED
        sizes[kind, block] = sizes.get((kind, block), 0) + buffer.size_bytes
    return sizes


def _sizes_told(xla: Memory) -> dict[tuple[str, str], int]:
    known = {ARGUMENTS: xla.argument, OUTPUTS: xla.output - xla.alias, TEMPORARIES: xla.temp}
    return {(kind, UNATTRIBUTED): size for kind, size in known.items()}


def _reason(error: StageUnavailableError) -> str:
    return "; ".join(text for _, text in error.diagnostics[0].shown().facts)
