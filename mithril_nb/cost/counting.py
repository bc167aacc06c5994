"""Costs of an inspected program, counted at each stage. Each is computed once and cached."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import jax

from mithril_nb.cost.costs import Cost, SourceLines, of_equations, once_of
from mithril_nb.cost.equations import SymbolicProgram, devices_by_map, devices_of
from mithril_nb.cost.hlo.instruction_costs import NAMING, hlo_costs
from mithril_nb.cost.hlo.xla import Memory, xla_memory, xla_totals
from mithril_nb.cost.notes import (
    NOT_RUN,
    ON_EACH_DEVICE,
    ONE_OF,
    notes_of,
    notes_of_branches,
    notes_of_communication,
    notes_of_params,
)
from mithril_nb.cost.predicted import peaks_of_equations, peaks_of_instructions, predicted, with_peaks
from mithril_nb.cost.records import CostRow, Fusion
from mithril_nb.display import Shown, draw, finite, for_stdout
from mithril_nb.errors import StageUnavailableError, UnknownOptionError, nearest, short_repr
from mithril_nb.hardware import Device, RemoteExecutable, calibrated
from mithril_nb.stages.given import jax_modules
from mithril_nb.stages.hlo.module import trip_counts
from mithril_nb.stages.inspect_options import with_numbers
from mithril_nb.stages.once import paused_collector
from mithril_nb.stages.program_stages import first_source, known_equations
from mithril_nb.stages.records import Equation, Instruction, Stage
from mithril_nb.stages.trace.loops import with_trips
from mithril_nb.stages.trace.partitioned import ids_on_sharded

if TYPE_CHECKING:
    from mithril_nb.stages.program_stages import ProgramStages

SOURCES = ("analytic", "lowered", "compiled")
"""Sources of costs.

- `"analytic"`: the equations of the jaxpr, by our rules.
- `"lowered"`: the HLO instructions before XLA's passes, by XLA's rules.
- `"compiled"`: the HLO instructions after XLA's passes, by XLA's rules.
"""
PREDICTED = "predicted"
"""The source of compiled costs with the predicted time on the device of the program."""
_STAGES = {"lowered": "hlo_before", "compiled": "hlo"}

# Weak: costs are released with the inspection that they belong to.
_KNOWN: WeakKeyDictionary[ProgramStages, dict[str, Cost]] = WeakKeyDictionary()
# Held to add programs to `_KNOWN` or to list it, because a dict must not change size while it is listed.
_LOCK = Lock()


@dataclass(frozen=True)
class Costs(Shown, Mapping[str, Cost]):
    """Costs of a program from several sources: a mapping from a source, such as `"analytic"`, to a `Cost`.

    Attributes:
        program: Name of the program.
        by_source: A dict from each source to its costs.
        memory: The memory of the compiled program; `None` if it is not compiled, or XLA does not report it.
        unavailable: A dict from each requested source without costs to the reason.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect_function as inspect
        >>> costs = inspect(jnp.tanh, jnp.zeros(8)).costs("analytic", "lowered")
        >>> {source: cost.total.transcendentals for source, cost in costs.items()}
        {'analytic': 8, 'lowered': 8}
    """

    program: str
    by_source: Mapping[str, Cost]
    memory: Memory | None = None
    unavailable: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, source: str) -> Cost:
        """Return the costs of one source."""
        if source in self.by_source:
            return self.by_source[source]
        if source in self.unavailable:
            reason = self.unavailable[source]
            raise StageUnavailableError(f"program {self.program!r} has no {source} costs.", (("reason", reason),))
        raise UnknownOptionError(
            f"these costs of {self.program!r} have no source {source!r}.", (("sources", ", ".join(self) or "none"),)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_source)

    def __len__(self) -> int:
        return len(self.by_source)

    def __contains__(self, source: object) -> bool:
        return source in self.by_source

    def get(self, source: str, default: Any = None, /) -> Any:
        """Return the costs of one source; `default` if this mapping does not contain it."""
        return self.by_source.get(source, default)

    def to_dict(self, *, rows: bool = True) -> dict[str, Any]:
        """Return the costs as plain data: `program`, `sources` (`Cost.to_dict()` of each), `memory`, `unavailable`."""
        return {
            "program": self.program,
            "sources": {name: cost.to_dict(rows=rows) for name, cost in self.by_source.items()},
            "memory": None if self.memory is None else asdict(self.memory),
            "unavailable": dict(self.unavailable),
        }

    def to_json(self, *, rows: bool = True) -> str:
        """Return the costs as JSON."""
        return json.dumps(finite(self.to_dict(rows=rows)), allow_nan=False)

    def __repr__(self) -> str:
        return f"Costs({self.program!r}: {', '.join(self.by_source)})"

    def __str__(self) -> str:
        return for_stdout(f"{self.program}: {', '.join(self)}\n{draw(self, 'exact text')}")


def cost_of(inspection: ProgramStages, source: str | None = None, trips: Mapping[str, int] | None = None) -> Cost:
    """Return the costs of a program from one source; without `trips`, the result is cached.

    Args:
        inspection: The program.
        source: `"analytic"` only traces the program, `"lowered"` lowers it, `"compiled"` compiles it. By default
            `"analytic"`, or for a program without a jaxpr the first of the others that it has.
        trips: Numbers of iterations of loops, as in `with_trips`.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect_function as inspect
        >>> square = jax.ShapeDtypeStruct((128, 128), jnp.float32)
        >>> def ten(x, w):
        ...     return jax.lax.scan(lambda c, _: (c @ w, None), x, None, length=10)[0]
        >>> cost_of(inspect(ten, square, square)).total.flops
        41943040
    """
    if source is None:
        source = first_source(inspection)
    if source == PREDICTED:
        return _predicted(inspection, trips)
    _check_source(inspection, source, 'inspection.cost(source="{}")')
    if trips:
        equations = with_trips(known_equations(inspection), trips, "inspection.cost(trips={})")
        if source == "analytic":
            return _analytic(inspection, equations)
        return _counted(inspection, source, equations=equations)
    # Not locked while counting: two threads may count the same program, but they store equal costs.
    cached = _known(inspection)
    if source not in cached:
        cached[source] = _analytic(inspection) if source == "analytic" else _counted(inspection, source)
    return cached[source]


def _predicted(inspection: ProgramStages, trips: Mapping[str, int] | None) -> Cost:
    device = inspection.device
    counted = cost_of(inspection, "compiled", trips)
    if not isinstance(device, Device):
        device = jax.devices()[0] if device is None else device
        if device.platform != "cpu":
            raise StageUnavailableError(
                f"no time of {inspection.name!r} is predicted: the figures of its device are unknown.",
                (("device", str(device)),),
                'inspection.on("h100").cost("predicted")  # or ml.profile(inspection), which measures here',
            )
        products = [each for each in inspection.stage("hlo").instructions if each.opcode in ("dot", "convolution")]
        device = calibrated(device, sorted({each.shapes[0].dtype for each in products}))
    rows, notes = predicted(counted.rows, inspection.stage("hlo"), device)
    return replace(counted, source=PREDICTED, rows=rows, notes=(*counted.notes, *notes))


def _with_peaks(device: Any, products: Stage | Iterable[Equation]) -> Any:
    # A roofline would compare products in float32 with the peak of bfloat16.
    if not isinstance(device, Device):
        return device
    if isinstance(products, Stage):
        return with_peaks(device, peaks_of_instructions(products, device))
    return with_peaks(device, peaks_of_equations(products, device))


def forget_analytic() -> None:
    """Clear the cached `"analytic"` costs, after a rule has changed."""
    with _LOCK:
        cached = list(_KNOWN.values())
    for costs in cached:
        costs.pop("analytic", None)


def _known(inspection: ProgramStages) -> dict[str, Cost]:
    with _LOCK:
        return _KNOWN.setdefault(inspection, {})


def costs_of(inspection: ProgramStages, sources: Sequence[str] = SOURCES) -> Costs:
    """Return the costs of a program from several sources. `Costs.unavailable` has the reasons for missing ones.

    Args:
        inspection: The program.
        sources: Some of `SOURCES`. With `"compiled"`, the result also has the memory of the compiled program.
    """
    for source in sources:
        _check_source(inspection, source, 'inspection.costs("{}")')
    costs: dict[str, Cost] = {}
    unavailable: dict[str, str] = {}
    if "compiled" in sources and not inspection.is_optimized:
        # XLA compiles in another thread and releases the GIL, so this thread counts the other sources meanwhile.
        inspection.begin_compiling()
    for source in sources:
        try:
            costs[source] = _cost_ahead(inspection) if source == "compiled" else cost_of(inspection, source)
        except StageUnavailableError as error:
            problem = error.diagnostics[0]
            is_reason = bool(problem.facts) and problem.facts[0][0] != "given"
            # Only the first line: messages of XLA may have dozens of lines.
            unavailable[source] = problem.facts[0][1].partition("\n")[0] if is_reason else problem.summary
    memory = xla_memory(lambda: inspection.analysis("memory")) if "compiled" in costs else None
    return Costs(inspection.name, costs, memory, unavailable)


def _check_source(inspection: ProgramStages, source: object, call: str) -> None:
    if isinstance(source, str) and source in SOURCES:
        return
    raise UnknownOptionError(
        f"cannot count the costs of {inspection.name!r} from source {short_repr(source)}.",
        (("sources", ", ".join(SOURCES)),),
        "ml.profile(inspection)" if source == "measured" else call.format(nearest(source, SOURCES) or "analytic"),
    )


def costs_so_far(inspection: ProgramStages, stages: Collection[str] = ()) -> Costs:
    """Return the `"analytic"` costs, and the costs of HLO stages that exist already.

    Args:
        inspection: The program.
        stages: HLO stages to create if they do not exist: `"hlo_before"` lowers the program, `"hlo"` compiles it.
    """
    if inspection.given is None:
        cost_of(inspection)
    available = [source for source, stage in _STAGES.items() if stage in stages or inspection.has_stage(stage)]
    return costs_of(inspection, ("analytic", *available))


def _analytic(inspection: ProgramStages, equations: tuple[Equation, ...] | None = None) -> Cost:
    check = inspection.check_sizes
    if inspection.given is not None:
        raise inspection.given.error(is_of_costs=True)
    equations = equations or inspection.equations
    program = SymbolicProgram(inspection.name, equations, inspection.inputs, check=check)
    device = _with_peaks(inspection.device, equations)
    return of_equations(program.costs(), program, device, _files(inspection))


# The instructions of an HLO stage, and the result of `hlo_costs`. It needs only the text, not the compiled program.
_Count = tuple[tuple[Instruction, ...], tuple[CostRow, ...], tuple[Fusion, ...]]


def _counted(
    inspection: ProgramStages, source: str, ahead: _Count | None = None, equations: Sequence[Equation] | None = None
) -> Cost:
    stage = inspection.stage(_STAGES[source])
    if stage.unavailable is not None:
        file = inspection.given
        if file is not None and source not in file.sources:
            raise file.error(_STAGES[source], is_of_costs=True)
        sizes = cost_of(inspection).symbols if file is None else ()  # raises if it cannot be traced
        otherwise = 'inspection.cost(source="analytic")' if file is None else file.advice_to_compile
        raise StageUnavailableError(
            f"program {inspection.name!r} has no {source} costs.",
            (("reason", stage.unavailable),),
            with_numbers(sizes, inspection.check_sizes) if sizes else otherwise,
        )
    # The early count is valid only if XLA has not changed the instructions since.
    if ahead is None or ahead[0] is not stage.instructions:
        ahead = _count(inspection, source, stage, equations)
    _, rows, fusions = ahead
    notes = [*notes_of(rows), *notes_of_communication(rows)]
    notes += notes_of_branches(row.opcode for row in rows if row.repeats != 0)
    return Cost(
        inspection.name,
        source,
        rows,
        SymbolicProgram(inspection.name, (), inspection.inputs).params,
        (*notes, *notes_of_params(inspection.inputs), *_notes_of_devices(inspection, source), NOT_RUN),
        xla_totals(lambda: inspection.analysis(source)),
        once_of(rows),
        fusions,
        order=tuple(dict.fromkeys(equation.block for equation in known_equations(inspection))),
        device=_with_peaks(inspection.device, stage),
        lines=_files(inspection).of_instructions(stage.instructions, known_equations(inspection)),
    )


def _files(inspection: ProgramStages) -> SourceLines:
    files, model = inspection.source_files
    return SourceLines(files=files, model=model)


def _cost_ahead(inspection: ProgramStages) -> Cost:
    # The optimized HLO is counted while XLA generates machine code.
    cached = _known(inspection)
    if "compiled" not in cached:
        stage = None if inspection.has_stage("hlo") else inspection.hlo_ahead()
        ahead = None if stage is None else _count(inspection, "compiled", stage)
        cached["compiled"] = _counted(inspection, "compiled", ahead)
    return cached["compiled"]


def _count(inspection: ProgramStages, source: str, stage: Stage, equations: Sequence[Equation] | None = None) -> _Count:
    equations = equations or tuple(known_equations(inspection))
    with paused_collector():
        is_divided = _before_partitioning(inspection) if source == "lowered" else None
        # The compiled program is that of one device; before, arrays have their whole size except in a `shard_map`.
        by_map = devices_by_map(equations) if source == "lowered" else {}

        def devices(instruction: Instruction) -> int:
            return devices_of((instruction.equations or ("",))[0], by_map)

        return stage.instructions, *hlo_costs(stage, trip_counts(equations), is_divided, devices)


def _before_partitioning(inspection: ProgramStages) -> Callable[[Instruction, int | None], bool] | None:
    # Without a jaxpr, any array of a program on several devices may be sharded.
    open_ids = ids_on_sharded(known_equations(inspection), inspection.inputs)
    moved = {id for id in open_ids if id.startswith("arg")}
    is_open = inspection.given is not None and jax_modules.partitions_of(inspection.lowered) > 1
    if not open_ids and not is_open:
        return None

    def is_divided(instruction: Instruction, payload: int | None) -> bool:
        # A collective on an array that XLA has not partitioned yet sends an unknown amount too.
        if instruction.opcode in NAMING:
            return instruction.opcode == "parameter" and bool(moved & {*instruction.equations})
        return bool(open_ids & {*instruction.equations}) or (is_open and payload == 0)

    return is_divided


def _notes_of_devices(inspection: ProgramStages, source: str) -> tuple[str, ...]:
    if source != "compiled":
        is_mapped = any("shard_map" in equation.transforms for equation in known_equations(inspection))
        return (ON_EACH_DEVICE,) if is_mapped else ()
    program = inspection.optimized
    count = jax_modules.devices_of(program)
    notes = (f"{ONE_OF}{count} devices, which all have the same costs",) if count > 1 else ()
    return (*notes, *(program.notes if isinstance(program, RemoteExecutable) else ()))
