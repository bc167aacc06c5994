"""XLA's own totals for the cost and memory of a program. XLA counts each loop as one iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mithril_nb.cost.records import Source

if TYPE_CHECKING:
    from mithril_nb.stages.program_stages import ProgramStages


@dataclass(frozen=True)
class Memory:
    """Memory of a compiled program by XLA's `memory_analysis()`.

    Attributes:
        argument: Bytes of the arguments.
        output: Bytes of the results.
        temp: Bytes of temporary buffers during the run.
        alias: Bytes of results in the memory of arguments; `argument` and `output` both contain them.
        code: Bytes of the generated code.
    """

    argument: int
    output: int
    temp: int
    alias: int
    code: int


def source_of(name: str, figures: Callable[[], Any]) -> Source:
    """Return XLA's own costs, which the function `figures` reports; a cost is `None` if XLA does not report it."""
    report = _figures(figures)
    # The structure is not documented and differs between versions of JAX: it may be a list of dicts.
    if isinstance(report, (list, tuple)):
        report = report[0] if report else None
    if not isinstance(report, Mapping):
        return Source(name)
    # XLA reports -1 if it cannot count an instruction of the module, and leaves out costs of 0.
    totals = {key: report.get(key, 0) for key in ("flops", "transcendentals", "bytes accessed")}
    return Source(name, *(round(value) if value >= 0 else None for value in totals.values()))


def xla_figures(inspection: ProgramStages, *, lower: bool = False, compile: bool = False) -> tuple[Source, ...]:
    """Return XLA's own costs of the program: `"XLA lowered"` if it is lowered, `"XLA compiled"` if it is compiled.

    Args:
        inspection: The program.
        lower: True to lower the program first.
        compile: True to compile the program first, which may take long.

    Raises:
        Exception: An error of JAX or XLA while lowering or compiling.
    """
    totals: list[Source] = []
    if lower or compile or inspection.is_lowered:
        _ = inspection.lowered
        totals.append(source_of("XLA lowered", lambda: inspection.analysis("lowered")))
    if compile or inspection.is_optimized:
        _ = inspection.optimized
        totals.append(source_of("XLA compiled", lambda: inspection.analysis("compiled")))
    return tuple(totals)


def xla_memory(figures: Callable[[], Any]) -> Memory | None:
    """Return the memory of a compiled program; `None` if it is not available on this platform.

    Args:
        figures: A function that returns the result of XLA's memory analysis.
    """
    report = _figures(figures)
    if report is None:
        return None
    names = ("argument", "output", "temp", "alias", "generated_code")
    return Memory(*(int(getattr(report, f"{name}_size_in_bytes")) for name in names))


def _figures(figures: Callable[[], Any]) -> Any:
    try:
        return figures()
    except (NotImplementedError, RuntimeError):  # jax.stages raises on platforms without a cost analysis
        return None
