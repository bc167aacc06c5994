"""Inspections of the programs of a model, linked to the Python that builds the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mithril_nb.graph.ports import Ports
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.inspection import Inspection
from mithril_nb.models.rules import OPS
from mithril_nb.models.saving.formats import source_lines
from mithril_nb.models.shape_inference.flat import flat
from mithril_nb.stages.inspect_options import InspectOptions
from mithril_nb.stages.param_names import DEFAULT
from mithril_nb.stages.trace.provenance.frames import calling_line
from mithril_nb.stages.trace.tracing import checked_params

PROGRAMS = ("forward", "forward+backward")
"""Programs of a physical model. A train step is not among them, because it needs a loss and an optimizer."""


def inspect_program(
    graph: LogicalGraph, name: str, fn: Callable[..., Any], specs: tuple[Any, ...], options: Mapping[str, Any]
) -> Inspection:
    """Return the stages of a program of a model, linked to the Python that builds the model."""
    defaults: dict[str, Any] = {
        "name": name,
        "source": source_lines(graph),
        "requested_at": calling_line(),
        "kinds": {path: node.block.kind for path, node in graph.walk()},
        "params": DEFAULT,
    }
    fields = {**defaults, **options}
    fields["params"] = checked_params(fn, specs, fields["params"], fields["name"])
    return Inspection(fn, specs, InspectOptions(**fields, ports=ports_of(graph)))


def ports_of(graph: LogicalGraph) -> Ports:
    """Return how the blocks of a graph are connected."""
    flat_graph = flat(graph)
    sources = {path: ends for path, (ends, _) in flat_graph.groups.items()} | {
        op.path: op.sources for op in flat_graph.ops
    }
    # Of several outputs, the order in a program is that of computation, which only these blocks fix.
    in_order = {name for name, rule in OPS.items() if rule.computes_in_order}
    return Ports(
        {path: {port: (end.node, end.port) for port, end in ends.items()} for path, ends in sources.items()},
        {op.path: tuple(op.outputs) for op in flat_graph.ops if len(op.outputs) == 1 or op.block.op in in_order},
    )
