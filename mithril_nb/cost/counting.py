"""What an inspected program costs, by each way of counting; each is made once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from mithril_nb.cost.costs import Cost, of_equations
from mithril_nb.cost.formulas.rules import repeated, sum_of
from mithril_nb.cost.hlo.instruction_costs import InstructionCost, hlo_costs
from mithril_nb.cost.hlo.rules import NAMING
from mithril_nb.cost.hlo.xla import source_of, xla_memory
from mithril_nb.cost.lines import SourceLines
from mithril_nb.cost.multiply_adds import MultiplyAdds, all_counted
from mithril_nb.cost.notes import NOT_RUN, ON_EACH_DEVICE, ONE_OF, notes_of_communication
from mithril_nb.cost.records import (
    CostRow,
    Figures,
    Fusion,
    Source,
    notes_of,
    notes_of_branches,
    notes_of_params,
    once_of,
)
from mithril_nb.cost.side_by_side import Costs
from mithril_nb.cost.symbolic_costs import SymbolicProgram
from mithril_nb.errors import StageUnavailableError, UnknownOptionError, nearest, short_repr
from mithril_nb.stages import jax_modules
from mithril_nb.stages.collector import paused_collector
from mithril_nb.stages.pipeline import with_numbers
from mithril_nb.stages.program_stages import first_source, known_equations
from mithril_nb.stages.records import Equation, Instruction, Stage
from mithril_nb.stages.trace.collectives import ids_on_sharded

if TYPE_CHECKING:
    from mithril_nb.stages.program_stages import ProgramStages

SOURCES = ("analytic", "lowered", "compiled")
"""Ways of counting: equations by our rules, or instructions as XLA counts them, before or after its passes."""
_IN_BODY = re.compile(r"\.b\d+\.\d+$")
_STAGES = {"lowered": "hlo_before", "compiled": "hlo"}

_KNOWN: WeakKeyDictionary[ProgramStages, dict[str, Cost]] = WeakKeyDictionary()
_LOCK = Lock()
"""Held to add a program or to list them: a dictionary must not change size meanwhile."""


def cost_of(inspection: ProgramStages, source: str | None = None) -> Cost:
    """Return what a program costs, by one way of counting; made once for each.

    Args:
        inspection: The program.
        source: One of `SOURCES`. `"analytic"` only traces it, `"lowered"` lowers and `"compiled"` compiles it. By
            default the first of these that the program has: without a jaxpr, `"lowered"`, else `"compiled"`.

    Raises:
        UnknownOptionError: There is no such way of counting.
        StageUnavailableError: The program cannot be traced, lowered or compiled.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect
        >>> square = jax.ShapeDtypeStruct((128, 128), jnp.float32)
        >>> def ten(x, w):
        ...     return jax.lax.scan(lambda c, _: (c @ w, None), x, None, length=10)[0]
        >>> cost_of(inspect(ten, square, square)).total.flops
        41943040
    """
    if source is None:
        source = first_source(inspection)
    _check_source(inspection, source, 'inspection.cost(source="{}")')
    known = _known(inspection)
    if source not in known:
        known[source] = _analytic(inspection) if source == "analytic" else _counted(inspection, source)
    return known[source]


def forget_analytic() -> None:
    """Drop what equations were counted to cost: a rule has changed."""
    for _, known in _programs():
        known.pop("analytic", None)


def is_in_programs(primitive: str) -> bool:
    """Return whether a program whose costs were counted has equations of a primitive."""
    return any(one.primitive == primitive for inspection, _ in _programs() for one in known_equations(inspection))


def _known(inspection: ProgramStages) -> dict[str, Cost]:
    """Return the costs of a program that are counted so far."""
    with _LOCK:
        return _KNOWN.setdefault(inspection, {})


def _programs() -> list[tuple[ProgramStages, dict[str, Cost]]]:
    """Return the programs whose costs were counted, with these costs."""
    with _LOCK:
        return list(_KNOWN.items())


def costs_of(inspection: ProgramStages, sources: Sequence[str] = SOURCES) -> Costs:
    """Return what a program costs by several ways of counting, side by side; what cannot be counted says why.

    Args:
        inspection: The program.
        sources: Which of `SOURCES`; the memory of the compiled program is told if `"compiled"` is among them.

    Raises:
        UnknownOptionError: There is no such way of counting.
    """
    for source in sources:
        _check_source(inspection, source, 'inspection.costs("{}")')
    found: dict[str, Cost] = {}
    unavailable: dict[str, str] = {}
    if "compiled" in sources and not inspection.is_optimized:
        # XLA holds no lock of Python's: what need not be compiled is counted meanwhile, and once its passes are
        # written down, what they made, too.
        inspection.begin_compiling()
    for source in sources:
        try:
            found[source] = _cost_ahead(inspection) if source == "compiled" else cost_of(inspection, source)
        except StageUnavailableError as error:
            problem = error.diagnostics[0]
            is_reason = bool(problem.facts) and problem.facts[0][0] != "given"
            unavailable[source] = problem.facts[0][1].partition("\n")[0] if is_reason else problem.summary
    memory = xla_memory(lambda: inspection.analysis("memory")) if "compiled" in found else None
    return Costs(inspection.name, found, memory, unavailable)


def _check_source(inspection: ProgramStages, source: object, call: str) -> None:
    """Raise if nothing is counted by a source; `call` is what to write instead, with `{}` for one that there is."""
    if isinstance(source, str) and source in SOURCES:
        return
    raise UnknownOptionError(
        f"costs of {inspection.name!r} cannot be counted by {short_repr(source)}.",
        (("sources", ", ".join(SOURCES)),),
        "ml.profile(inspection)" if source == "measured" else call.format(nearest(source, SOURCES) or "analytic"),
    )


def multiply_adds(inspection: ProgramStages) -> tuple[MultiplyAdds, ...]:
    """Return the multiply-adds of each matrix product and convolution, as papers and torchvision count them.

    Places between the items of a dilated input are no padding: a transposed convolution has as many multiply-adds as
    the convolution that it transposes.

    Args:
        inspection: The program, which is only traced.

    Returns:
        One for each, in the order of the jaxpr.

    Raises:
        StageUnavailableError: The program cannot be traced.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect
        >>> image, kernel = jax.ShapeDtypeStruct((1, 3, 8, 8), "float32"), jax.ShapeDtypeStruct((4, 3, 3, 3), "float32")
        >>> found = inspect(lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME"), image, kernel)
        >>> [(one.count, one.padding) for one in multiply_adds(found)], found.cost().total.flops
        ([(6912, 1104)], 11616)
    """
    return all_counted(cost_of(inspection, "analytic").rows, inspection.equations)


def costs_so_far(inspection: ProgramStages) -> Costs:
    """Return what a program costs by its equations, and beside it by the stages of HLO that are made already.

    Args:
        inspection: The program.

    Raises:
        StageUnavailableError: It cannot be traced.
    """
    if inspection.given is None:
        cost_of(inspection)
    made = [source for source, stage in _STAGES.items() if inspection.has_stage(stage)]
    return costs_of(inspection, ("analytic", *made))


def _analytic(inspection: ProgramStages) -> Cost:
    check = inspection.check_sizes
    if inspection.given is not None:
        raise inspection.given.error(is_of_costs=True)
    program = SymbolicProgram(inspection.name, inspection.equations, inspection.inputs, check=check)
    return of_equations(program.costs(), program, inspection.device, _files(inspection))


def _counted(inspection: ProgramStages, source: str, ahead: _Counted | None = None) -> Cost:
    stage = inspection.stage(_STAGES[source])
    if stage.unavailable is not None:
        if inspection.given is not None and source not in inspection.given.sources:
            raise inspection.given.error(_STAGES[source], is_of_costs=True)
        sizes = cost_of(inspection).symbols if inspection.given is None else ()  # raises if it cannot be traced
        otherwise = 'inspection.cost(source="analytic")' if inspection.given is None else inspection.given.first_shown
        raise StageUnavailableError(
            f"program {inspection.name!r} has no {source} costs.",
            (("reason", stage.unavailable),),
            with_numbers(sizes, inspection.check_sizes) if sizes else otherwise,
        )
    # What was counted ahead is of the same instructions, or a pass came later.
    counted = ahead
    if counted is None or counted.instructions is not stage.instructions:
        counted = _count(inspection, source, stage)
    return Cost(
        inspection.name,
        source,
        counted.rows,
        SymbolicProgram(inspection.name, (), inspection.inputs).params,
        (
            *counted.notes,
            *notes_of_params(inspection.inputs),
            *_notes_of_devices(inspection, source),
            NOT_RUN,
        ),
        source_of(f"XLA {source}", lambda: inspection.analysis(source)),
        counted.once,
        counted.fusions,
        order=tuple(dict.fromkeys(one.block for one in known_equations(inspection))),
        device=inspection.device,
        lines=_files(inspection).behind_instructions(stage.instructions),
    )


def _files(inspection: ProgramStages) -> SourceLines:
    """Return the files that the lines of a program are in."""
    return SourceLines({}, *inspection.source_files)


@dataclass(frozen=True)
class _Counted:
    """What the instructions of a stage cost: all that can be told of them before the program is compiled."""

    instructions: tuple[Instruction, ...]
    rows: tuple[CostRow, ...]
    notes: tuple[str, ...]
    once: Source
    fusions: tuple[Fusion, ...]


def _cost_ahead(inspection: ProgramStages) -> Cost:
    """Return what the compiled program costs, as `cost_of`.

    What XLA's passes have made is counted while it still writes machine code for it, if that is known by then.
    """
    known = _known(inspection)
    if "compiled" not in known:
        stage = None if inspection.has_stage("hlo") else inspection.hlo_ahead()
        ahead = None if stage is None else _count(inspection, "compiled", stage)
        known["compiled"] = _counted(inspection, "compiled", ahead)
    return known["compiled"]


def _count(inspection: ProgramStages, source: str, stage: Stage) -> _Counted:
    with paused_collector():
        is_divided = _before_partitioning(inspection) if source == "lowered" else None
        costs = hlo_costs(stage, _trips(inspection), is_divided)
        rows = tuple(_row(one) for one in costs)
    branches = notes_of_branches(row.opcode for row in rows if row.repeats != 0)
    notes = *notes_of(rows), *notes_of_communication(rows), *branches
    return _Counted(stage.instructions, rows, notes, once_of(source, rows), _fusions(costs))


def _before_partitioning(inspection: ProgramStages) -> Callable[[Instruction, int | None], bool] | None:
    """Return whether XLA's partitioner decides what an instruction with some payload sends; `None` if it adds nothing.

    Without equations any array may be sharded, if there are several devices.
    """
    open_ids = ids_on_sharded(known_equations(inspection), inspection.inputs)
    moved = {id for id in open_ids if id.startswith("arg")}
    is_open = inspection.given is not None and jax_modules.partitions_of(inspection.lowered) > 1
    if not open_ids and not is_open:
        return None

    def is_divided(one: Instruction, payload: int | None) -> bool:
        # What a collective sends of an array that XLA has yet to divide is unknown too.
        if one.opcode in NAMING:
            return one.opcode == "parameter" and bool(moved & {*one.equations})
        return bool(open_ids & {*one.equations}) or (is_open and payload == 0)

    return is_divided


def _notes_of_devices(inspection: ProgramStages, source: str) -> tuple[str, ...]:
    """Return in words what is counted for one of several devices: all that XLA compiled, and bodies of shard_map."""
    if source != "compiled":
        is_mapped = any("shard_map" in one.transforms for one in known_equations(inspection))
        return (ON_EACH_DEVICE,) if is_mapped else ()
    count = jax_modules.devices_of(inspection.optimized)
    return (f"{ONE_OF}{count} devices: figures are what each of them computes",) if count > 1 else ()


def _row(one: InstructionCost) -> CostRow:
    instruction, repeats = one.instruction, one.repeats
    return CostRow(
        instruction.id, instruction.opcode, instruction.shares, instruction.role, repeated(one.flops, repeats),
        repeated(one.transcendentals, repeats), repeated(one.bytes, repeats), repeats, one.formula, None,
        Figures(repeated(one.flops, one.once), repeated(one.transcendentals, one.once), repeated(one.bytes, one.once)),
        instruction.equations, (), "", repeated(one.payload, one.sends), repeated(one.wire, one.sends), one.pieces,
    )  # fmt: skip


def _fusions(costs: Sequence[InstructionCost]) -> tuple[Fusion, ...]:
    held: dict[str, list[InstructionCost]] = {}
    for one in costs:
        if one.fusion and one.instruction.opcode != "fusion":
            held.setdefault(one.fusion, []).append(one)
    return tuple(
        Fusion(
            one.instruction.id, one.instruction.shares, one.instruction.role,
            sum(inner.instruction.opcode not in NAMING for inner in held[one.instruction.id]),
            repeated(sum_of(*(inner.alone for inner in held[one.instruction.id])), one.repeats),
            repeated(one.bytes, one.repeats),
        )
        for one in costs
        if one.instruction.id in held
    )  # fmt: skip


def _trips(inspection: ProgramStages) -> dict[str, int | None]:
    """Return how often the loops of the jaxpr go round, by the id of their equation; `None` if unknown."""
    equations = known_equations(inspection)
    trips = {one.id: _rounds(one) for one in equations if one.primitive in ("scan", "while")}
    runs = {one.id: one.repeats for one in equations if one.primitive == "while"}
    for one in equations if runs else ():
        loop = _IN_BODY.sub("", one.id)
        outer, told = runs.get(loop), trips.get(loop)
        if loop != one.id and outer and one.repeats is not None:
            # The condition is asked once more than the body runs.
            trips[loop] = one.repeats // outer if told is None else min(told, one.repeats // outer)
    return trips


def _rounds(loop: Equation) -> int | None:
    """How often the loop of a scan goes round: several of its steps may be written out in its body."""
    length, unroll = loop.param.get("length"), loop.param.get("unroll", 1)
    return length // max(unroll, 1) if isinstance(length, int) and isinstance(unroll, int) else None
