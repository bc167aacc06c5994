"""Match the names in the user's dicts (shapes, inputs, params, output gradients) to ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mithril_nb.errors import UnexpectedInputError, UnknownOptionError, listed
from mithril_nb.graph.records import BOUNDARY, Block, Endpoint, LogicalGraph
from mithril_nb.graph.spec import Dim, TensorSpec, as_shape
from mithril_nb.models.rules import OPS, OpRules
from mithril_nb.models.shape_inference.dtypes import input_dtype
from mithril_nb.models.shape_inference.flat import flat


def input_specs(
    graph: LogicalGraph, shapes: Mapping[str, Sequence[Dim]], dtype: str = "float32"
) -> dict[str, TensorSpec]:
    """Return the specs of the inputs in `shapes`, by input.

    Args:
        graph: The graph.
        shapes: Shape by input, or by parameter that the model declares without a shape. `"input"` also refers to the
            only input, whatever its name.
        dtype: Dtype of inputs for which neither the user nor a block requires another.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> input_specs(Linear(10).graph, {"input": ["batch", 784]})
        {'input': ('batch', 784) float32}
    """
    ports = input_names(graph)
    # Anything else is reported by `by_port` below, with the names of the inputs.
    if isinstance(shapes, Mapping):  # a parameter of the model, declared without a shape
        ports += tuple(port.name for port in graph.inputs if port.role == "param" and port.name in shapes)
    values = shapes.values() if isinstance(shapes, Mapping) else [shapes]
    example = next(filter(None, map(written_shape, values)), "[32, 784]")
    names = by_port(shapes, ports, "input", argument="shapes", example=example)
    return {
        port: TensorSpec(as_shape(name, shapes[name]), input_dtype(graph, port, dtype)) for port, name in names.items()
    }


def input_range(graph: LogicalGraph, port: str) -> tuple[int, int] | None:
    """Return the minimum and maximum integer that all readers of a graph input accept; `None` without such bounds.

    Examples:
        >>> from mithril_nb.models import Embedding
        >>> input_range(Embedding(1000, 64).graph, "input")
        (0, 999)
    """
    ranges = [rule.input_ranges(block.options).get(name) for block, rule, name in _readers(graph, port)]
    intervals = [interval for interval in ranges if interval is not None]
    # All readers must accept the number, so the ranges intersect.
    return (max(least for least, _ in intervals), min(most for _, most in intervals)) if intervals else None


def takes_any_dtype(graph: LogicalGraph, port: str) -> bool:
    """Return whether a graph input accepts every dtype: the user declares none, and all blocks that read it accept any.

    Examples:
        >>> from mithril_nb.models import Cast, Linear
        >>> takes_any_dtype(Cast("int32").graph, "input"), takes_any_dtype(Linear(10).graph, "input")
        (True, False)
    """
    note = graph.note_at.get(Endpoint(BOUNDARY, port))
    if note and note.dtype:
        return False
    dtypes = {
        # An empty dtype of the model: only a requirement of the block itself remains.
        rule.required_dtype(name, "")
        for block, rule, name in _readers(graph, port)
        if name in input_names(block)
    }
    return dtypes == {"any"}


def _readers(graph: LogicalGraph, port: str) -> Iterator[tuple[Block, type[OpRules], str]]:
    end = Endpoint(BOUNDARY, port)
    for op in flat(graph).ops:
        for name, source in op.sources.items():
            if source == end and op.block.op in OPS:
                yield op.block, OPS[op.block.op], name


def input_names(of: LogicalGraph | Block) -> tuple[str, ...]:
    """Return the names of the data inputs of a graph or a block."""
    return tuple(port.name for port in of.inputs if port.role == "data")


def written_shape(shape: Any) -> str:
    """Return a shape as source code; `""` if the shape is invalid.

    Examples:
        >>> written_shape((4, "time")), written_shape([4.5])
        ("[4, 'time']", '')
    """
    try:
        return repr(list(as_shape("input", shape)))
    except UnknownOptionError:
        return ""


def by_port(
    entries: Mapping[str, Any],
    ports: tuple[str, ...],
    side: str,
    *,
    argument: str,
    example: str = "...",
) -> dict[str, str]:
    """Return a dict from ports to the keys by which the user's dict refers to them.

    Args:
        entries: The user's dict.
        ports: Names of all ports.
        side: `"input"` or `"output"`. If there is only one port, this key refers to it, whatever its name.
        argument: Name of the user's dict, for messages.
        example: An example value of the dict, as source code for messages.

    Examples:
        >>> by_port({"input": 1}, ("image",), "input", argument="inputs")
        {'image': 'input'}
    """
    expected = f"{argument} = {{{', '.join(f'{port!r}: {example}' for port in ports)}}}"
    if not isinstance(entries, Mapping):
        raise UnknownOptionError(
            f"{argument} must be given by name, in a dict.",
            (("given", _kind(entries)), (f"{side}s", _listed(ports))),
            expected,
        )
    names: dict[str, str] = {}
    for name in entries:
        # Most models have one input, whose name a user should not need to look up.
        port = ports[0] if name == side and len(ports) == 1 else name
        if port not in ports:
            raise UnexpectedInputError(
                f"the model has no {side} {name!r}.", ((f"{side}s", _listed(ports)),), expected, port=str(name)
            )
        if port in names:
            raise UnexpectedInputError(
                f"the {side} {port!r} is given twice: {names[port]!r} and {name!r} are names of the same {side}.",
                advice=expected,
                port=port,
            )
        names[port] = name
    return names


def flat_params(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return parameters in one dict with dotted names, from a dict with dotted names or nested dicts.

    Args:
        params: The parameters.
        prefix: Text to add before every name, such as `"encoder."`.

    Examples:
        >>> flat_params({"linear_0": {"weight": 1}, "linear_1.weight": 2})
        {'linear_0.weight': 1, 'linear_1.weight': 2}
    """
    if not isinstance(params, Mapping):
        raise UnknownOptionError(
            "params must be given by name, in a dict.", (("given", _kind(params)),), "params = pm.randomize_params()"
        )
    flat: dict[str, Any] = {}
    for key, value in params.items():
        name = f"{prefix}{key}"
        leaves = flat_params(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
        for twice in flat.keys() & leaves.keys():
            raise UnexpectedInputError(
                f"the parameter {twice!r} is given twice, once nested and once with dots.",
                advice=f"params = {{{twice!r}: ...}}",
            )
        flat.update(leaves)
    return flat


def _kind(value: object) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"an array of shape {tuple(shape)}"


def _listed(names: tuple[str, ...]) -> str:
    return listed(map(repr, names))
