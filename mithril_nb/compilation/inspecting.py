"""The stages of a model's program, with the model's Python source, block kinds and compiler options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mithril_nb.graph.records import LogicalGraph
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect as inspect_function
from mithril_nb.models.source import source_lines
from mithril_nb.stages.trace.user_lines import calling_line


def inspect_program(
    graph: LogicalGraph, name: str, fn: Callable[..., Any], specs: tuple[Any, ...], options: Mapping[str, Any]
) -> Inspection:
    """Return the stages of a program of a model, linked to the Python that builds the model.

    Args:
        graph: The logical graph of the model.
        name: Name of the program.
        fn: The program.
        specs: Specs of its arguments.
        options: Further options of `mithril_nb.inspection.inspect`, such as `device` and `compiler_options`.
    """
    defaults: dict[str, Any] = {
        "name": name,
        "source": source_lines(graph),
        "requested_at": calling_line(),
        "kinds": {path: node.block.kind for path, node in graph.walk()},
    }
    return inspect_function(fn, *specs, **{**defaults, **options})
