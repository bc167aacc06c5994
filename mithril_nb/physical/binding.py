"""What `compile` does to a graph: inputs get a value, params are not trained, shapes are inferred for a backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.backends.jax.custom import inferring_for
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.edit import free_name
from mithril_nb.graph.records import BOUNDARY, Edge, Endpoint, LogicalGraph, Node
from mithril_nb.graph.spec import LEADING, TensorSpec
from mithril_nb.models.constants import Constant
from mithril_nb.models.fields import plain
from mithril_nb.models.infer import Inference, infer
from mithril_nb.models.model import Model
from mithril_nb.models.naming import by_port, input_names


def infer_for(backend: JaxBackend, graph: LogicalGraph, inputs: Mapping[str, TensorSpec]) -> Inference:
    """Return the specs of everything in a graph, with the ops that somebody brought as this backend has them."""
    with inferring_for(backend):
        return infer(graph, inputs, backend.default_dtype)


def said_sizes(graph: LogicalGraph, inputs: Mapping[str, TensorSpec]) -> frozenset[str]:
    """Return the names that a person gave to sizes, in `shapes` or of the model's connections."""
    shapes = [spec.shape for spec in inputs.values()] + [note.shape for _, note in graph.notes if note.shape]
    return frozenset(dim for shape in shapes for dim in shape if isinstance(dim, str) and dim != LEADING)


def with_constants(graph: LogicalGraph, constants: Mapping[str, Any]) -> LogicalGraph:
    """Return the graph with a block in the place of some inputs, that always gives their value.

    Raises:
        UnexpectedInputError: A name that is no input.
        UnknownOptionError: A value that is no array of numbers.

    Examples:
        >>> from mithril_nb.models import Add
        >>> bound = with_constants(Add().graph, {"right": 2.0})
        >>> [port.name for port in bound.inputs], [node.name for node in bound.nodes]
        (['left'], ['add', 'constant_0'])
    """
    for port, name in by_port(constants, input_names(graph), "input", what="constants").items():
        node = Node(free_name(graph, "Constant"), Constant(_value(port, constants[name])).block)
        old, new = Endpoint(BOUNDARY, port), Endpoint(node.name, "output")
        graph = replace(
            graph,
            nodes=(*graph.nodes, node),
            edges=tuple(Edge(new, edge.target) if edge.source == old else edge for edge in graph.edges),
            inputs=tuple(one for one in graph.inputs if one.name != port),
            notes=tuple((new if end == old else end, note) for end, note in graph.notes),
        )
    return graph


def _value(port: str, value: Any) -> Any:
    try:
        found = plain(value)
    except TypeError:
        found = None
    if found is None or isinstance(found, str):
        raise UnknownOptionError(
            f"the constant for input {port!r} is no array of numbers.",
            (("given", short_repr(value)),),
            f"constants={{{port!r}: 2.0}}",
            port=port,
        )
    return found


def with_training(
    graph: LogicalGraph,
    frozen: Iterable[str],
    trainable: Iterable[str],
    specs: Mapping[str, TensorSpec] | None = None,
) -> LogicalGraph:
    """Return the graph with a note on some parameters, or blocks, whether training changes them.

    Args:
        graph: The graph.
        frozen: Names of parameters or blocks that training leaves.
        trainable: Names of those that it changes; an input becomes a parameter.
        specs: What is known of the inputs: a parameter that was one has that shape.

    Raises:
        ConnectionError: A name that stands for nothing.
        UnknownOptionError: A name that is in both, or texts that are not in a list.
    """
    lists = {}
    for option, names in (("frozen", frozen), ("trainable", trainable)):
        if isinstance(names, str) or not isinstance(names, Iterable) or not all(isinstance(n, str) for n in names):
            raise UnknownOptionError(
                f"{option}={names!r} is no list of names.", advice=f'ml.compile(model, backend, {option}=["linear_0"])'
            )
        lists[option] = list(names)
    if both := [name for name in lists["frozen"] if name in lists["trainable"]]:
        raise UnknownOptionError(f"{both[0]!r} stands in frozen and in trainable.", advice="name it in one of them.")
    model = Model.of(graph)
    model.set_shapes({name: spec.shape for name, spec in (specs or {}).items() if name in lists["trainable"]})
    model.set_differentiability(dict.fromkeys(lists["frozen"], False) | dict.fromkeys(lists["trainable"], True))
    return model.graph
