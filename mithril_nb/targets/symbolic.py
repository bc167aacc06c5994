"""Models and blocks whose sizes have names. JAX traces them with symbolic dimensions, so that costs are formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.backends.jax.watch import around_blocks
from mithril_nb.compilation import PhysicalModel
from mithril_nb.compilation.binding import infer_for
from mithril_nb.cost.formulas.parsing import parse
from mithril_nb.cost.formulas.symbols import UndecidedError
from mithril_nb.errors import MithrilError, ShapeError, StageUnavailableError
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect as inspect_function
from mithril_nb.models.naming import input_specs
from mithril_nb.models.saving.formats import source_lines
from mithril_nb.models.shape_inference.infer import Inference, Parameter
from mithril_nb.program import Arrays, draws_random_numbers, run_with_state
from mithril_nb.stages.trace.provenance.frames import calling_line
from mithril_nb.targets.mithril_models import graph_in
from mithril_nb.train.step import programs_of


def has_names(shapes: Iterable[Sequence[Dim]]) -> bool:
    """Return whether a size is a name instead of a number, and no shape has an unknown rank (`"..."`).

    Examples:
        >>> has_names([["batch", 784]]), has_names([[32, 784]]), has_names([["...", 784]])
        (True, False, False)
    """
    names = {dim for shape in shapes for dim in shape if isinstance(dim, str)}
    return bool(names) and LEADING not in names


def scope_of(arrays: Iterable[Any]) -> Any:
    """Return the scope of the symbolic dimensions of arrays; `None` if there are none."""
    dims = (dim for array in arrays for dim in getattr(array, "shape", ()))
    return next((dim.scope for dim in dims if jax.export.is_symbolic_dim(dim)), None)


def inspect_with_names(
    target: Any,
    shapes: Mapping[str, Sequence[Dim]],
    dtypes: Mapping[str, str] | None = None,
    scope: Any = None,
    program: str = "forward",
    loss: Any = "cross_entropy",
    optimizer: Any = "adam",
    options: Mapping[str, Any] | None = None,
) -> Inspection:
    """Inspect a program of a model whose sizes may be names.

    Args:
        target: A model, compiled or not, or a block.
        shapes: The shape of each input, with numbers and names: `{"input": ["batch", 784]}`.
        dtypes: The dtype of each input; default: the dtype that its block declares.
        scope: JAX's `SymbolicScope` for the names, which may have constraints on them; default: a new scope.
        program: `"forward"`, `"forward+backward"` or `"train step"`.
        loss: The loss, as in `fit`.
        optimizer: The optimizer, as in `fit`.
        options: Further options of `mithril_nb.inspection.inspect`; those that are `None` are ignored.

    Returns:
        An inspection whose costs are formulas. Its stages end with StableHLO, because XLA needs numbers.

    Raises:
        ShapeError: Shapes do not fit, or do not determine the shape of a parameter.
        UnexpectedInputError: `shapes` contains a name that is not an input.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> cost = inspect_with_names(Linear(10), {"input": ["batch", 784]}).cost()
        >>> cost.formula(), cost.at(batch=32).total.flops
        ('15690·batch', 502080)
    """
    backend = target.backend if isinstance(target, PhysicalModel) else JaxBackend()
    model = _Named(graph_in(target), backend, shapes, dtypes or {}, scope)
    given: dict[str, Any] = {"name": program, "source": source_lines(model.graph), "kinds": _kinds(model.graph)}
    given |= {"check_sizes": model.check_sizes, "requested_at": calling_line()}
    given |= {key: value for key, value in (options or {}).items() if value is not None}
    if program == "forward":
        keys = [_key()] if draws_random_numbers(model.graph, backend.toolkit, False) else []
        return inspect_function(model.run, model.params, model.input_specs, model.state, *keys, **given)
    chosen = programs_of(
        model.run_with_state,
        model.params,
        model.input_specs,
        model.state,
        loss=loss,
        optimizer=optimizer,
        frozen=model.frozen,
        needs_key=draws_random_numbers(model.graph, backend.toolkit, True),
    )[program]
    return inspect_function(chosen.function, *chosen.specs, **given)


def block_formula(target: Any, shapes: Mapping[str, Sequence[Dim]], field: str = "flops", path: str = "") -> str:
    """Return the cost of the forward pass of a block, as a formula in the names of sizes.

    Args:
        target: A block, or a model.
        shapes: The shape of each input, with numbers and names.
        field: `"flops"`, `"transcendentals"`, `"bytes_accessed"` or `"params"`.
        path: Path of a block inside the target; default: the whole target.

    Raises:
        ShapeError: Shapes do not fit, or do not determine the shape of a parameter.
        StageUnavailableError: A block needs a number instead of a name.

    Examples:
        >>> from mithril_nb.models import Linear, Relu
        >>> block_formula(Linear(), {"input": ["B", "I"], "weight": ["I", "O"], "bias": ["O"]})
        '2·B·I·O + B·O'
        >>> block_formula(Relu(), {"input": ["B", "I"]}, "bytes_accessed")
        '8·B·I + 4'
    """
    return inspect_with_names(target, shapes).cost().formula(path, field)


class _Named:
    """A model whose sizes may be names, with the specs of its inputs, parameters and state."""

    def __init__(
        self,
        graph: LogicalGraph,
        backend: JaxBackend,
        shapes: Mapping[str, Sequence[Dim]],
        dtypes: Mapping[str, str],
        scope: Any,
    ):
        specs = input_specs(graph, shapes, backend.default_dtype)
        specs |= {name: TensorSpec(specs[name].shape, dtype) for name, dtype in dtypes.items()}
        found = infer_for(backend, graph, specs)
        found.raise_problems()
        names = {dim for shape in shapes.values() for dim in shape if isinstance(dim, str)}
        dims = _Dims({name for dim in names for name in parse(dim).names}, list(_bounds(graph, found)), scope)
        self.graph, self._backend, self._inferred = graph, backend, found.inputs
        self.frozen = frozenset(one.name for one in found.parameters if not one.is_trainable)
        self.input_specs: Mapping[str, Any] = {name: dims.struct(name, spec) for name, spec in found.inputs.items()}
        self.params, self.state = _structs(dims, found.parameters), _structs(dims, found.states)
        self._toolkit = around_blocks(backend.toolkit, _explaining_failure)

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise the error of `ml.compile` if the model does not accept these numbers for the names of sizes."""
        specs = {
            name: TensorSpec(tuple(parse(dim).evaluate(**sizes) for dim in map(str, spec.shape)), spec.dtype)
            for name, spec in self._inferred.items()
        }
        infer_for(self._backend, self.graph, specs).raise_problems()

    def run(self, params: Any, inputs: Any, state: Any, key: Any = None) -> Any:
        return self.run_with_state(params, inputs, state, key=key)[0]

    def run_with_state(
        self, params: Any, inputs: Any, state: Any, *, key: Any = None, training: bool = False
    ) -> tuple[Any, Any]:
        params = {name: jax.lax.stop_gradient(p) if name in self.frozen else p for name, p in params.items()}
        return run_with_state(self.graph, self._toolkit, params, inputs, state=state, key=key, training=training)


def _explaining_failure(path: str, arrays: Arrays, run: Callable[[Arrays], Arrays]) -> Arrays:
    """Run a block. If it fails and has symbolic sizes, raise an error that names the block and the input."""
    try:
        return run(arrays)
    except MithrilError:
        raise
    except Exception as error:
        shapes = {port: [str(dim) for dim in jnp.shape(array)] for port, array in arrays.items()}
        ports = [port for port, shape in shapes.items() if not all(dim.isdecimal() for dim in shape)]
        if not ports:
            raise
        names = sorted({name for port in ports for dim in shapes[port] for name in parse(dim).names})
        raise StageUnavailableError(
            f"block {path!r} needs a number for a size of its input {ports[0]!r}.",
            (
                *((port, f"({', '.join(shapes[port])})") for port in ports),
                ("because", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"),
            ),
            f"shapes={{...}}  # with a number instead of {' or '.join(names)}",
            block=path,
            port=ports[0],
        ) from error


@cache
def _key() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0))


def _kinds(graph: LogicalGraph) -> dict[str, str]:
    return {path: node.block.kind for path, node in graph.walk()}


def _bounds(graph: LogicalGraph, found: Inference) -> Iterator[str]:
    """Yield constraints on symbolic sizes: a sequence must not be longer than the number of learned positions."""
    for path, node in graph.walk():
        spec = found.blocks[path].inputs.get("input") if node.block.op == "learned_positions" else None
        if isinstance(spec, TensorSpec) and isinstance(spec.shape[-2], str):
            yield f"{spec.shape[-2]} <= {node.block.options['context']}"


def _structs(dims: _Dims, arrays: Iterable[Parameter]) -> dict[str, jax.ShapeDtypeStruct]:
    return {one.name: dims.struct(one.name, one.spec) for one in arrays}


class _Dims:
    """JAX's symbolic dimensions for names of sizes, all in one scope."""

    def __init__(self, names: Iterable[str], constraints: Sequence[str], scope: Any):
        ordered = sorted(names)
        known: dict[str, Any] = {"constraints": constraints} if scope is None else {"scope": scope}
        made = jax.export.symbolic_shape(", ".join(ordered), **known) if ordered else ()
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
                f"the shape of {name!r} does not follow from the shapes of the inputs.",
                (("so far", str(spec)), ("sizes", ", ".join(self.made) or "none")),
                "shapes={...}  # with a name or a number for each size of every input",
                port=name,
            ) from None
        found: Any = polynomial.at(self.made)
        return found
