"""Find the layers whose output an activation reads, which affects the default initializer of their weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mithril_nb.graph.records import BOUNDARY, Endpoint
from mithril_nb.models.initializers import Initializer
from mithril_nb.models.rules import OPS
from mithril_nb.models.shape_inference.flat import Flat, FlatOp, flat


def without_activation(initializer: Initializer) -> Initializer:
    """Return the initializer of a parameter whose block is not followed by an activation.

    Examples:
        >>> without_activation(Initializer("he_normal")).name
        'lecun_normal'
    """
    return replace(initializer, name=initializer.name.replace("he_", "lecun_"))


def activated(model: Flat, outputs: Iterable[str] = ()) -> set[Endpoint]:
    """Return the endpoints that an activation reads, directly or through blocks that preserve the scale.

    Args:
        model: The model.
        outputs: Its outputs that an activation outside reads.

    Returns:
        Outputs of ops, and inputs of the model.

    Examples:
        >>> from mithril_nb.models import Dropout, Linear, Relu, Sequential
        >>> model = Sequential(Linear(8), Dropout(), Relu(), Linear(8))
        >>> sorted(end.node for end in activated(flat(model.graph)))
        ['dropout_0', 'linear_0']
    """
    found = {model.outputs[name] for name in outputs if name in model.outputs}
    for op in reversed(model.ops):
        rule = OPS.get(op.block.op)
        if rule is None:
            continue
        if rule.is_activation or (rule.keeps_scale and is_activated(op, found)):
            found.update(op.sources.values())
        elif op.block.graph is not None:
            inner = activated(flat(op.block.graph), activated_inside(op, found))
            inputs = {end.port for end in inner if end.node == BOUNDARY}
            for port, source in op.sources.items():
                if any(f"{part.name}_{port}" in inputs for part in op.block.graph.nodes):
                    found.add(source)
    return found


def is_activated(op: FlatOp, found: set[Endpoint]) -> bool:
    """Return whether an activation reads one of the outputs of an op."""
    return any(Endpoint(op.path, port.name) in found for port in op.block.outputs)


def activated_inside(op: FlatOp, found: set[Endpoint]) -> set[str]:
    """Return the outputs of the inner graph that an activation reads: outside the block, or in the next step.

    Args:
        op: A block that runs others.
        found: The endpoints that activations read outside the block.
    """
    rule, graph = OPS[op.block.op], op.block.graph
    assert graph is not None
    parts = [part.name for part in graph.nodes]
    wanted = {
        f"{part}_{port.name}" for part in parts for port in op.block.outputs if Endpoint(op.path, port.name) in found
    }
    while True:
        inner = activated(flat(graph), wanted)
        again = {
            f"{part}_{given}"
            for part in parts
            for given, taken in rule.fed_back(op.block).items()
            if Endpoint(BOUNDARY, f"{part}_{taken}") in inner
        }
        if again <= wanted:
            return wanted
        wanted |= again
