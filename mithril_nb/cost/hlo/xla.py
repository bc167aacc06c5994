"""XLA's own totals for the cost and memory of a program. XLA counts each loop as one iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mithril_nb.cost.records import Figures, only
from mithril_nb.figures import FIGURES, OF_XLA


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


def xla_totals(analysis: Callable[[], Any]) -> Figures:
    """Return XLA's own costs of a program from its cost analysis; a cost is `None` if XLA does not report it."""
    report = _reported(analysis)
    # The structure is not documented and differs between versions of JAX: it may be a list of dicts.
    if isinstance(report, (list, tuple)):
        report = report[0] if report else None
    if not isinstance(report, Mapping):
        return only()
    # XLA reports -1 if it cannot count an instruction of the module, and leaves out costs of 0.
    values = {key: report.get(FIGURES[key].in_xla, 0) for key in OF_XLA}
    return only(**{key: round(value) if value >= 0 else None for key, value in values.items()})


def xla_memory(analysis: Callable[[], Any]) -> Memory | None:
    """Return the memory of a compiled program; `None` if it is not available on this platform.

    Args:
        analysis: A function that returns the result of XLA's memory analysis.
    """
    report = _reported(analysis)
    if report is None:
        return None
    names = ("argument", "output", "temp", "alias", "generated_code")
    return Memory(*(int(getattr(report, f"{name}_size_in_bytes")) for name in names))


def _reported(analysis: Callable[[], Any]) -> Any:
    try:
        return analysis()
    except (NotImplementedError, RuntimeError):  # jax.stages raises on platforms without a cost analysis
        return None
