"""Memory of a program at each position of its schedule, by block."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import jax

from mithril_nb.cost.equations import SymbolicProgram
from mithril_nb.cost.hlo.xla import Memory, xla_memory
from mithril_nb.cost.memory.jaxpr_liveness import jaxpr_lives
from mithril_nb.cost.memory.liveness import (
    ARGUMENTS,
    CONSTANTS,
    KINDS,
    OUTPUTS,
    TEMPORARIES,
    UNFILLED,
    LiveRange,
    Producers,
    allocated,
    allocated_for,
    compiled_lives,
    held,
)
from mithril_nb.display import Shown
from mithril_nb.errors import StageUnavailableError, UnknownOptionError
from mithril_nb.graph.paths import is_within
from mithril_nb.hardware import Device
from mithril_nb.stages.once import paused_collector
from mithril_nb.stages.program_stages import known_equations
from mithril_nb.stages.records import UNATTRIBUTED, quick_to_make
from mithril_nb.stages.xla.memory import Buffer

if TYPE_CHECKING:
    from mithril_nb.stages.program_stages import ProgramStages

_EXHAUSTED = "RESOURCE_EXHAUSTED"
SOURCES = ("analytic", "compiled")
"""Sources of memory figures: an estimate from the jaxpr, or XLA's buffer assignment."""


@quick_to_make
@dataclass(frozen=True)
class Moment:
    """The memory in use while one instruction or equation runs.

    Attributes:
        id: Id of the instruction in stage `"hlo"`, or of the equation in stage `"jaxpr"`.
        bytes: Bytes in use.
    """

    id: str
    bytes: int


@dataclass(frozen=True)
class MemoryUse(Shown):
    """Memory of one run of a program on one device over time, and the blocks that hold it.

    The peak of a compiled program is the memory that XLA allocates for it: arguments, outputs, temporaries and
    constants. An output in the memory of an argument counts once. In the terms of `memory_analysis()`, the peak is
    argument + output + temp - alias, plus constants.

    At the peak, part of this memory may hold no value: gaps between values, alignment, and outputs that are not written
    yet. This part has kind `"unfilled"` and no block.

    Attributes:
        program: Name of the program.
        source: `"compiled"`, or `"analytic"` for an estimate from the equations of the jaxpr: the compiled program may
            need more or less.
        peak_bytes: Peak memory in bytes; `None` if unknown.
        peak_at: The first index in `timeline` that reaches the peak; `None` if unknown.
        filled_bytes: The peak without its unfilled part, in bytes; `None` if unknown.
        timeline: The memory in use at each instruction or equation, in the order in which they run. Bodies of loops
            and branches occur once. Empty if XLA reports no live ranges.
        at_peak: A dict from the path of a block to the bytes that it holds at the peak; `""` means not attributed.
        kinds: A dict from a kind to its bytes at the peak: `"arguments"`, `"outputs"`, `"temporaries"`,
            `"constants"`, `"unfilled"`. A temporary in the memory of a later output counts as an output, as in
            `memory_analysis()`.
        lives: The live ranges of all values, sorted by their beginning. They sum exactly to `timeline`.
        blocks: Paths of all blocks in the order of the program.
        xla: The result of `memory_analysis()`; `None` for an estimate, or if it is not available.
        notes: Notes, such as the reasons for unknown sizes.
        capacity_bytes: Memory of the device in bytes; `None` if it is unknown, as for a CPU.
        fits: Whether the program fits into the device; `None` if unknown.
        fits_reason: Why, or that it is an estimate; `""` if `fits` is `None`.
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
    capacity_bytes: int | None = None
    fits: bool | None = None
    fits_reason: str = ""

    def __repr__(self) -> str:
        return f"MemoryUse({self.program!r}, {self.source}, peak_bytes={self.peak_bytes})"

    def __call__(self, *arguments: object) -> None:
        """Raise: `memory` is a value, unlike `inspection.cost()`."""
        raise UnknownOptionError("memory is a value, not a method.", (), "p.memory")

    def subtree(self, path: str) -> int:
        """Return the bytes that a block and all blocks inside it hold at the peak; `""` gives the whole program."""
        return sum(size for block, size in self.at_peak.items() if is_within(block, path))

    def to_dict(self) -> dict[str, Any]:
        """Return the memory use as plain data."""
        return {
            "program": self.program,
            "source": self.source,
            "peak_bytes": self.peak_bytes,
            "peak_at": self.peak_at,
            "filled_bytes": self.filled_bytes,
            "timeline": [{"id": moment.id, "bytes": moment.bytes} for moment in self.timeline],
            "at_peak": dict(self.at_peak),
            "kinds": dict(self.kinds),
            "lives": [dict(vars(life)) for life in self.lives],
            "blocks": list(self.blocks),
            "xla": None if self.xla is None else asdict(self.xla),
            "notes": list(self.notes),
            # Only for devices whose memory is known, so that the data of all other programs stay as they are.
            **({name: getattr(self, name) for name in _FITTING} if self.capacity_bytes is not None else {}),
        }

    def to_json(self) -> str:
        """Return the memory use as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)


_FITTING = ("capacity_bytes", "fits", "fits_reason")


# Weak: the records are released with the inspection that they belong to.
_KNOWN: WeakKeyDictionary[ProgramStages, dict[str, MemoryUse]] = WeakKeyDictionary()


def memory_of(inspection: ProgramStages, source: str = "compiled") -> MemoryUse:
    """Return the memory use of a program by block; the result is cached.

    Args:
        inspection: The program.
        source: `"compiled"` compiles the program and reads XLA's buffer assignment. `"analytic"` only traces the
            program, and estimates its memory from the equations.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect_function as inspect
        >>> found = memory_of(inspect(jnp.dot, jnp.zeros((8, 16)), jnp.zeros((16, 32))))
        >>> found.peak_bytes, found.kinds["arguments"], found.kinds["outputs"]
        (3584, 2560, 1024)
    """
    if source not in SOURCES:
        raise UnknownOptionError(
            f"cannot compute the memory of {inspection.name!r} from source {source!r}.",
            (("sources", ", ".join(SOURCES)),),
            'memory_of(inspection, "compiled")',
        )
    cached = _KNOWN.setdefault(inspection, {})
    if source not in cached:
        with paused_collector():  # creates a record for each value, with a traced program in memory
            use = _compiled(inspection) if source == "compiled" else _analytic(inspection)
            cached[source] = _fitted(inspection, use)
    return cached[source]


def _fitted(inspection: ProgramStages, use: MemoryUse, error: str = "") -> MemoryUse:
    device = inspection.device
    if not isinstance(device, Device) or device.memory_bytes is None:
        return use
    fits, reason = None, ""
    if _EXHAUSTED in error:
        fits, reason = False, error
    elif use.source == "compiled" and device.platform == "tpu":
        fits, reason = True, "the compiler, which refuses programs that do not fit, has placed all buffers"
    elif use.source == "compiled" and use.peak_bytes is not None:
        fits = use.peak_bytes <= device.memory_bytes
        reason = "an estimate: the peak of the compiler's buffers against the memory of the device"
    return replace(use, capacity_bytes=device.memory_bytes, fits=fits, fits_reason=reason)


def best_memory_of(inspection: ProgramStages) -> MemoryUse:
    """Return the memory use of the compiled program; if it does not compile, an estimate with a note."""
    try:
        return memory_of(inspection)
    except StageUnavailableError as error:
        if inspection.given is not None:
            raise inspection.given.error("hlo") if inspection.given.reason("hlo") else error from None
        estimate = _fitted(inspection, memory_of(inspection, "analytic"), _reason(error))
        if estimate.peak_bytes is None:
            return estimate
        note = f"an estimate, because the program does not compile: {_reason(error)}"
        return replace(estimate, notes=(*estimate.notes, note))


def _analytic(inspection: ProgramStages) -> MemoryUse:
    equations = inspection.equations
    if names := _sizes_without_numbers(inspection):
        why = f"unknown without numbers for {', '.join(names)}"
        return _in_sum(inspection, "analytic", {}, None, why)
    device = inspection.device or jax.devices()[0]
    lives, unknown = jaxpr_lives(inspection.values, equations, device.platform == "cpu")
    lives = _with_state(lives, _state(inspection))
    notes = [f"{unknown} arrays have an unknown size and are not counted"] if unknown else []
    if inspection.is_divided:
        notes.append("arrays that are sharded over devices count with their full size")
    # A program without equations still has one position: it returns its inputs.
    sequence = [equation.id for equation in equations] or [""]
    return _use(inspection, "analytic", lives, sequence, allocated_for(lives, len(sequence)), None, notes)


def _state(inspection: ProgramStages) -> dict[str, str]:
    # An argument is the optimizer state of a block if only the update of this block uses it.
    if inspection.given is not None:
        return {}
    equations = inspection.equations
    blocks_of: dict[str, str] = {}
    for value in inspection.values:
        if value.is_argument:
            users = [equations[use] for use in value.uses if not equations[use].is_call]
            blocks = {equation.block for equation in users}
            is_kept = len(blocks) == 1 and all(equation.role == "update" for equation in users)
            blocks_of[value.id] = blocks.pop() if is_kept else UNATTRIBUTED
    return blocks_of


def _with_state(lives: Sequence[LiveRange], blocks: Mapping[str, str]) -> list[LiveRange]:
    return [
        replace(life, block=blocks.get(life.id, UNATTRIBUTED)) if life.kind == ARGUMENTS and not life.block else life
        for life in lives
    ]


def _compiled(inspection: ProgramStages) -> MemoryUse:
    inspection.want(machine_code=False)
    stage = inspection.stage("hlo")
    xla = xla_memory(lambda: inspection.analysis("memory")) if inspection.is_optimized else None
    if stage.unavailable is not None and not inspection.is_optimized:
        if inspection.given is not None:
            advice = inspection.given.advice_to_compile
        elif names := ", ".join(_sizes_without_numbers(inspection)):
            advice = f"ml.inspect(fn, *arrays)  # arrays with numbers for {names}"
        else:
            advice = "inspection.memory  # an estimate, from the equations"
        raise StageUnavailableError(
            f"memory of {inspection.name!r} is unknown: the program does not compile.",
            (("reason", stage.unavailable),),
            advice,
        )
    try:
        buffers = inspection.buffers
    except StageUnavailableError as error:
        sizes: dict[tuple[str, str], int] = {}
        if xla is not None:
            # An output that reuses the buffer of an argument is counted in `output` too, so `alias` is subtracted.
            totals = {ARGUMENTS: xla.argument, OUTPUTS: xla.output - xla.alias, TEMPORARIES: xla.temp}
            sizes = {(kind, UNATTRIBUTED): size for kind, size in totals.items()}
        return _in_sum(inspection, "compiled", sizes, xla, _reason(error))
    producers = Producers(stage)
    try:
        ranges = inspection.live_ranges
    except StageUnavailableError as error:
        return _in_sum(inspection, "compiled", _sizes(buffers, producers), xla, _reason(error))
    lives, unknown = compiled_lives(buffers, ranges, producers)
    arguments = {
        instruction.id: instruction.equations[0]
        for instruction in stage.instructions
        if instruction.opcode == "parameter" and instruction.equations
    }
    state = {f"arg{index}": block for index, block in enumerate(_state(inspection).values())}
    lives = _with_state(lives, {id: state[argument] for id, argument in arguments.items() if argument in state})
    notes = (f"{unknown} values are not counted, because XLA reports no live range for them",) if unknown else ()
    return _use(inspection, "compiled", lives, ranges.sequence, allocated(buffers), xla, notes)


def _sizes_without_numbers(inspection: ProgramStages) -> tuple[str, ...]:
    file = inspection.given
    return SymbolicProgram(inspection.name, (), inspection.inputs).symbols if file is None else tuple(file.sizes)


def _use(
    inspection: ProgramStages,
    source: str,
    lives: Sequence[LiveRange],
    sequence: Sequence[str],
    aside: int,
    xla: Memory | None,
    notes: Iterable[str],
) -> MemoryUse:
    # XLA allocates `aside` bytes before the program runs. If values never fill all of them, the rest is unfilled.
    filled = held(lives, len(sequence))
    most = max(filled, default=0)
    # XLA allocates before the program runs, so the gaps between values count at the peak too.
    if aside > most:
        lives = [*lives, LiveRange("", UNFILLED, UNATTRIBUTED, aside - most, 0, len(sequence) - 1)]
    peak_at = filled.index(most) if filled else None
    above = max(aside - most, 0)
    at_peak, kinds = _by_block_and_kind(
        (life.kind, life.block, life.size_bytes)
        for life in lives
        if peak_at is not None and life.first <= peak_at <= life.last
    )
    timeline = tuple([Moment(id, size + above) for id, size in zip(sequence, filled, strict=True)])
    return MemoryUse(
        inspection.name, source, most + above, peak_at, most, timeline, at_peak, kinds,
        tuple(sorted(lives, key=lambda life: life.first)), _blocks(inspection), xla, tuple(notes),
    )  # fmt: skip


def _in_sum(
    inspection: ProgramStages, source: str, sizes: Mapping[tuple[str, str], int], xla: Memory | None, why: str
) -> MemoryUse:
    at_peak, kinds = _by_block_and_kind((*key, size) for key, size in sizes.items())
    peak = sum(sizes.values()) if sizes else None
    missing = "timeline" if sizes else "peak_bytes, timeline"
    return MemoryUse(
        inspection.name, source, peak, None, None, (), at_peak, kinds if sizes else {}, (),
        _blocks(inspection), xla, (f"{missing}: {why}",),
    )  # fmt: skip


def _by_block_and_kind(parts: Iterable[tuple[str, str, int]]) -> tuple[dict[str, int], dict[str, int]]:
    blocks: dict[str, int] = {}
    kinds = dict.fromkeys(KINDS, 0)
    for kind, block, size in parts:
        blocks[block] = blocks.get(block, 0) + size
        kinds[kind] += size
    return dict(sorted(blocks.items(), key=lambda entry: -entry[1])), kinds


def _blocks(inspection: ProgramStages) -> tuple[str, ...]:
    blocks = [equation.block for equation in known_equations(inspection)]
    return tuple(
        dict.fromkeys(block for block in (*blocks, *(argument.block for argument in inspection.inputs)) if block)
    )


def _sizes(buffers: Iterable[Buffer], producers: Producers) -> dict[tuple[str, str], int]:
    kinds = {"parameter": ARGUMENTS, "result": OUTPUTS, "temporary": TEMPORARIES, "constant": CONSTANTS}
    sizes: dict[tuple[str, str], int] = {}
    for buffer in buffers:
        kind = kinds.get(buffer.kind)
        if kind is None:
            continue
        # If values of several blocks share a buffer, it belongs to none of them.
        blocks = {producers.block_of(value.instruction, value.index) for value in buffer.values}
        block = blocks.pop() if len(blocks) == 1 else UNATTRIBUTED
        sizes[kind, block] = sizes.get((kind, block), 0) + buffer.size_bytes
    return sizes


def _reason(error: StageUnavailableError) -> str:
    return "; ".join(text for _, text in error.diagnostics[0].shortened().facts)
