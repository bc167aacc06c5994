"""The stages of a program of a model, with what is known of the model besides the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mithril_nb import stages
from mithril_nb.models.source import source_lines
from mithril_nb.stages.trace.user_lines import calling_line

if TYPE_CHECKING:
    from mithril_nb.physical.model import PhysicalModel


def inspect_program(
    model: PhysicalModel, name: str, fn: Callable[..., Any], specs: tuple[Any, ...], told: Mapping[str, Any]
) -> stages.Inspection:
    """Return the stages of a program: as it is compiled for the model, with the Python that builds the model.

    Args:
        model: The model.
        name: What to call the program.
        fn: The program.
        specs: What it is called with.
        told: What `stages.inspect` is told otherwise, such as another `device`.
    """
    known: dict[str, Any] = {
        "name": name,
        "device": model.backend.device,
        "compiler_options": model.options.compiler_options,
        "source": source_lines(model.graph),
        "requested_at": calling_line(),
        "kinds": {path: node.block.kind for path, node in model.graph.walk()},
    }
    return stages.inspect(fn, *specs, **{**known, **told})
