"""The stages of a model's program, with the model's Python source, block kinds and compiler options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mithril_nb import stages
from mithril_nb.models.source import source_lines
from mithril_nb.stages.trace.user_lines import calling_line

if TYPE_CHECKING:
    from mithril_nb.physical.model import PhysicalModel


def inspect_program(
    model: PhysicalModel, name: str, fn: Callable[..., Any], specs: tuple[Any, ...], options: Mapping[str, Any]
) -> stages.Inspection:
    """Return the stages of a program, compiled with the model's options and linked to the Python that builds the model.

    Args:
        model: The model.
        name: Name of the program.
        fn: The program.
        specs: Specs of its arguments.
        options: Options of `stages.inspect` that override the model's, such as another `device`.
    """
    defaults: dict[str, Any] = {
        "name": name,
        "device": model.backend.device,
        "compiler_options": model.options.compiler_options,
        "source": source_lines(model.graph),
        "requested_at": calling_line(),
        "kinds": {path: node.block.kind for path, node in model.graph.walk()},
    }
    return stages.inspect(fn, *specs, **{**defaults, **options})
