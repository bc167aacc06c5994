"""Models and blocks whose sizes have names: traced by JAX as they are, so that their costs are formulas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import jax

from mithril_nb import stages
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.cost.formulas.symbols import UndecidedError, parse
from mithril_nb.errors import ShapeError
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import Dim, TensorSpec, as_shape
from mithril_nb.models.infer import Parameter, infer
from mithril_nb.models.naming import input_dtype
from mithril_nb.models.source import source_lines
from mithril_nb.physical import graph_of
from mithril_nb.program import run_with_state


def inspect_with_names(
    target: Any,
    shapes: Mapping[str, Sequence[Dim]],
    dtypes: Mapping[str, str] | None = None,
    constraints: Sequence[str] = (),
) -> stages.Inspection:
    """Return the stages of the forward program of a model whose sizes may have names.

    Args:
        target: A model, or a block.
        shapes: The shape of each input, of numbers and names: `{"input": ["batch", 784]}`.
        dtypes: The dtype of each input; by default what its block asks for.
        constraints: What is known of the sizes, as `jax.export.symbolic_shape` takes it: `["time <= 1024"]`.

    Returns:
        The stages; those after the jaxpr need numbers. Their cost has formulas.

    Raises:
        ShapeError: Shapes that do not fit, or from which the shape of a parameter does not follow.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> cost = inspect_with_names(Linear(10), {"input": ["batch", 784]}).cost()
        >>> cost.formula(), cost.at(batch=32).total.flops
        ('15690·batch', 502080)
    """
    graph = graph_of(target)
    given = {name: as_shape(name, dims) for name, dims in shapes.items()}
    types = {name: (dtypes or {}).get(name) or input_dtype(graph, name, "float32") for name in given}
    found = infer(graph, {name: TensorSpec(shape, types[name]) for name, shape in given.items()})
    found.raise_problems()
    names = {dim for shape in given.values() for dim in shape if isinstance(dim, str)}
    dims = _Dims(names, constraints)
    inputs = {name: dims.struct(name, spec) for name, spec in found.inputs.items()}
    toolkit = JaxBackend().toolkit

    def forward(params: Any, inputs: Any, state: Any, key: Any) -> Any:
        return run_with_state(graph, toolkit, params, inputs, state=state, key=key, training=False)[0]

    return stages.inspect(
        forward,
        _structs(dims, found.parameters),
        inputs,
        _structs(dims, found.states),
        _key(),
        source=source_lines(graph),
        kinds=_kinds(graph),
    )


def block_formula(target: Any, shapes: Mapping[str, Sequence[Dim]], field: str = "flops", path: str = "") -> str:
    """Return what a block costs forward, in the names of its sizes.

    Args:
        target: A block, or a model.
        shapes: The shape of each input, of numbers and names.
        field: `"flops"`, `"transcendentals"`, `"bytes_accessed"` or `"params"`.
        path: A block inside of it; by default all of it.

    Raises:
        ShapeError: Shapes that do not fit, or from which the shape of a parameter does not follow.
        StageUnavailableError: JAX needs numbers to trace it.

    Examples:
        >>> from mithril_nb.models import Linear, Relu
        >>> block_formula(Linear(), {"input": ["B", "I"], "weight": ["I", "O"], "bias": ["O"]})
        '2·B·I·O + B·O'
        >>> block_formula(Relu(), {"input": ["B", "I"]}, "bytes_accessed")
        '8·B·I + 4'
    """
    return inspect_with_names(target, shapes).cost().formula(path, field)


@cache
def _key() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0))


def _kinds(graph: LogicalGraph) -> dict[str, str]:
    return {path: node.block.kind for path, node in graph.walk()}


def _structs(dims: _Dims, arrays: Iterable[Parameter]) -> dict[str, jax.ShapeDtypeStruct]:
    return {one.name: dims.struct(one.name, one.spec) for one in arrays}


class _Dims:
    """Dims of JAX for the names of sizes, all of one scope."""

    def __init__(self, names: Iterable[str], constraints: Sequence[str]):
        ordered = sorted(names)
        made = jax.export.symbolic_shape(", ".join(ordered), constraints=constraints) if ordered else ()
        self.made = dict(zip(ordered, made, strict=True))

    def struct(self, name: str, spec: TensorSpec) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(tuple(self.dim(name, spec, dim) for dim in spec.shape), spec.dtype)

    def dim(self, name: str, spec: TensorSpec, dim: Dim) -> Any:
        if isinstance(dim, int):
            return dim
        try:
            polynomial = parse(dim)
            if not polynomial.names <= self.made.keys():
                raise UndecidedError
        except UndecidedError:
            raise ShapeError(
                f"the shape of {name!r} does not follow from those of the inputs.",
                (("so far", str(spec)), ("sizes", ", ".join(self.made) or "none")),
                "a name, or a number, for each size of every input.",
                port=name,
            ) from None
        found: Any = polynomial.at(self.made)
        return found
