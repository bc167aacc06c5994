"""Changes that `compile` makes to a graph: constants instead of inputs, frozen parameters, inferred shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.backends.jax.custom import inferring_for
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.records import BOUNDARY, Edge, Endpoint, LogicalGraph, Node, free_name
from mithril_nb.graph.spec import LEADING, TensorSpec
from mithril_nb.models.fields import plain
from mithril_nb.models.library.operations.generators import Constant
from mithril_nb.models.model import Model
from mithril_nb.models.naming import by_port, input_names
from mithril_nb.models.shape_inference.infer import Inference, infer


def infer_for(backend: JaxBackend, graph: LogicalGraph, inputs: Mapping[str, TensorSpec]) -> Inference:
    """Infer the specs of all values in a graph. Custom ops that are registered on the backend are supported."""
    with inferring_for(backend):
        return infer(graph, inputs, backend.default_dtype)


def declared_sizes(graph: LogicalGraph, inputs: Mapping[str, TensorSpec]) -> frozenset[str]:
    """Return the dim names that the user declared, in `shapes` or on the model's connections."""
    shapes = [spec.shape for spec in inputs.values()] + [note.shape for _, note in graph.notes if note.shape]
    # Only these must be equal in all inputs. Names that inference generates may be of different sizes.
    return frozenset(dim for shape in shapes for dim in shape if isinstance(dim, str) and dim != LEADING)


def with_constants(graph: LogicalGraph, constants: Mapping[str, Any]) -> LogicalGraph:
    """Return the graph with a constant block instead of each input in `constants`.

    Examples:
        >>> from mithril_nb.models import Add
        >>> bound = with_constants(Add().graph, {"right": 2.0})
        >>> [port.name for port in bound.inputs], [node.name for node in bound.nodes]
        (['left'], ['add', 'constant_0'])
    """
    for port, name in by_port(constants, input_names(graph), "input", argument="constants").items():
        # Without `infer_boundary`, which would rename the other inputs: "input" belongs to the first open one.
        node = Node(free_name(graph, "Constant"), Constant(_value(port, constants[name])).block)
        old, new = Endpoint(BOUNDARY, port), Endpoint(node.name, "output")
        graph = replace(
            graph,
            nodes=(*graph.nodes, node),
            edges=tuple(Edge(new, edge.target) if edge.source == old else edge for edge in graph.edges),
            inputs=tuple(graph_input for graph_input in graph.inputs if graph_input.name != port),
            notes=tuple((new if end == old else end, note) for end, note in graph.notes),
        )
    return graph


def _value(port: str, value: Any) -> Any:
    try:
        constant = plain(value)
    except TypeError:
        constant = None
    if constant is None or isinstance(constant, str):
        raise UnknownOptionError(
            f"the constant for input {port!r} is not an array of numbers.",
            (("given", short_repr(value)),),
            f"constants={{{port!r}: 2.0}}",
            port=port,
        )
    return constant


def with_training(
    graph: LogicalGraph,
    frozen: Iterable[str],
    trainable: Iterable[str],
    specs: Mapping[str, TensorSpec] | None = None,
) -> LogicalGraph:
    """Return the graph with some parameters or blocks marked as frozen or trainable."""
    lists = {}
    for option, names in (("frozen", frozen), ("trainable", trainable)):
        # frozen="linear_0" would be read as eight names of one letter.
        if isinstance(names, str) or not isinstance(names, Iterable) or not all(isinstance(n, str) for n in names):
            raise UnknownOptionError(
                f"{option}={names!r} is not a list of names.",
                advice=f'ml.compile(model, backend, {option}=["linear_0"])',
            )
        lists[option] = list(names)
    if both := [name for name in lists["frozen"] if name in lists["trainable"]]:
        raise UnknownOptionError(
            f"{both[0]!r} is in both frozen and trainable.", advice=f"ml.compile(model, backend, frozen=[{both[0]!r}])"
        )
    model = Model.of(graph)
    # A trainable input becomes a parameter, whose shape must be known before the first call.
    model.set_shapes({name: spec.shape for name, spec in (specs or {}).items() if name in lists["trainable"]})
    model.set_differentiability(dict.fromkeys(lists["frozen"], False) | dict.fromkeys(lists["trainable"], True))
    return model.graph
