"""XLA's own cost figures of a program: for whole modules, loops counted once; `None` if not available."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mithril_nb.cost.records import Source

if TYPE_CHECKING:
    from mithril_nb.stages.program_stages import ProgramStages


@dataclass(frozen=True)
class Memory:
    """Memory of a compiled program, in bytes.

    Attributes:
        argument: Arguments.
        output: Results.
        temp: Temporary buffers during the run.
        alias: Results that reuse the memory of arguments.
        code: Generated code.
    """

    argument: int
    output: int
    temp: int
    alias: int
    code: int


def source_of(name: str, figures: Callable[[], Any]) -> Source:
    """Return XLA's own figures for a lowered or compiled program."""
    found = _figures(figures)
    # JAX promises no structure, nor the same one in each version: it may be a list of dicts.
    if isinstance(found, (list, tuple)):
        found = found[0] if found else None
    if not isinstance(found, Mapping):
        return Source(name)
    # XLA returns -1 if the module contains an instruction it cannot count, and leaves out figures that are 0.
    known = {key: found.get(key, 0) for key in ("flops", "transcendentals", "bytes accessed")}
    return Source(name, *(round(value) if value >= 0 else None for value in known.values()))


def xla_figures(inspection: ProgramStages, *, lower: bool = False, compile: bool = False) -> tuple[Source, ...]:
    """Return XLA's own figures for the stages that exist or are requested, without reading their text.

    Args:
        inspection: The program.
        lower: True to lower the program.
        compile: True to compile the program, which may take long.

    Raises:
        Exception: JAX or XLA cannot lower or compile the program.
    """
    found: list[Source] = []
    if lower or compile or inspection.is_lowered:
        _ = inspection.lowered
        found.append(source_of("XLA lowered", lambda: inspection.analysis("lowered")))
    if compile or inspection.is_optimized:
        _ = inspection.optimized
        found.append(source_of("XLA compiled", lambda: inspection.analysis("compiled")))
    return tuple(found)


def xla_memory(figures: Callable[[], Any]) -> Memory | None:
    """Return the memory of a compiled program, or `None` if it is not available on this platform.

    Args:
        figures: Returns XLA's memory analysis.
    """
    found = _figures(figures)
    if found is None:
        return None
    names = ("argument", "output", "temp", "alias", "generated_code")
    return Memory(*(int(getattr(found, f"{name}_size_in_bytes")) for name in names))


def _figures(figures: Callable[[], Any]) -> Any:
    try:
        return figures()
    except (NotImplementedError, RuntimeError):  # jax.stages raises on platforms without a cost analysis
        return None
