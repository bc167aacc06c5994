"""What XLA itself says a program costs. Whole modules only; loops counted once; `None` where it does not say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mithril_nb.cost.records import Source

if TYPE_CHECKING:
    from mithril_nb.stages.program_stages import ProgramStages


@dataclass(frozen=True)
class Memory:
    """What a compiled program needs, in bytes.

    Attributes:
        argument: Its arguments.
        output: Its results.
        temp: What it needs besides, while it runs.
        alias: Results that take the place of arguments.
        code: The code itself.
    """

    argument: int
    output: int
    temp: int
    alias: int
    code: int


def source_of(name: str, figures: Callable[[], Any]) -> Source:
    """Return XLA's own figures for a lowered or compiled program.

    Args:
        name: What to call the source.
        figures: Asks XLA for them.
    """
    found = _asked(figures)
    if isinstance(found, (list, tuple)):
        found = found[0] if found else None
    if not isinstance(found, Mapping):
        return Source(name)
    # A figure of -1 is how XLA says that it met something it cannot count; no figure is how it says 0.
    known = {key: found.get(key, 0) for key in ("flops", "transcendentals", "bytes accessed")}
    return Source(name, *(round(value) if value >= 0 else None for value in known.values()))


def xla_figures(inspection: ProgramStages, *, lower: bool = False, compile: bool = False) -> tuple[Source, ...]:
    """Return XLA's own figures for the stages that exist or are asked for; no text of a stage is read for it.

    Args:
        inspection: The program.
        lower: Whether to lower the program for it.
        compile: Whether to compile the program for it, which may take long.

    Raises:
        Exception: What JAX or XLA said when they could not lower or compile it.
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
    """Return what a compiled program needs, or `None` if this platform does not say.

    Args:
        figures: Asks XLA for it.
    """
    found = _asked(figures)
    if found is None:
        return None
    return Memory(
        int(found.argument_size_in_bytes),
        int(found.output_size_in_bytes),
        int(found.temp_size_in_bytes),
        int(found.alias_size_in_bytes),
        int(found.generated_code_size_in_bytes),
    )


def _asked(figures: Callable[[], Any]) -> Any:
    try:
        return figures()
    except (NotImplementedError, RuntimeError):  # Some platforms do not count; jax.stages says so by raising.
        return None
