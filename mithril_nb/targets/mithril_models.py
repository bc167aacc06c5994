"""Mithril models as targets. JAX traces sizes with names as symbolic dimensions, so that costs are formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.backends.jax.watch import around_blocks
from mithril_nb.compilation import PhysicalModel, compile, graph_of
from mithril_nb.compilation.binding import infer_for
from mithril_nb.compilation.inspecting import inspect_program
from mithril_nb.cost.formulas.parsing import parse
from mithril_nb.cost.formulas.symbols import UndecidedError
from mithril_nb.errors import (
    MithrilError,
    ShapeError,
    StageUnavailableError,
    UnexpectedInputError,
    UnknownOptionError,
    alike,
    short_repr,
)
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.inspection import Inspection, inspect_function
from mithril_nb.models.model import Model
from mithril_nb.models.naming import input_names, input_specs, written_shape
from mithril_nb.models.saving.formats import source_lines
from mithril_nb.models.shape_inference.infer import Inference, Parameter
from mithril_nb.program import Arrays, draws_random_numbers, run_with_state
from mithril_nb.stages.trace.provenance.frames import calling_line
from mithril_nb.targets.options import OPTIONS
from mithril_nb.train import programs
from mithril_nb.train.losses import resolve_loss
from mithril_nb.train.step import key_spec, programs_of


def is_mithril_model(target: Any) -> bool:
    """Return whether a target is a Mithril model or block, compiled or not."""
    return isinstance(target, Model | LogicalGraph | Block | PhysicalModel)


def compiled_for(target: Any, sizes: Mapping[str, Sequence[Dim]], dtypes: Mapping[str, str]) -> PhysicalModel:
    """Return a model compiled for inputs of these shapes and dtypes."""
    graph = graph_in(target)
    if isinstance(target, PhysicalModel):
        if not sizes:
            return _concrete(target)
        return _concrete(compile(graph, target.backend, shapes=sizes, jit=target.jit))
    model = compile(graph, shapes=sizes)
    specs = model.input_specs
    # The first compilation infers which dtypes the blocks need, such as int32 for an Embedding.
    others = {name: dtype for name, dtype in dtypes.items() if name in specs and specs[name].dtype != dtype}
    return _concrete(compile(Model.of(graph).set_types(others), shapes=sizes) if others else model)


def graph_in(target: Any) -> LogicalGraph:
    """Return the graph of a model, compiled or not."""
    return target.graph if isinstance(target, PhysicalModel) else graph_of(target)


def given_specs(
    target: Any, args: Sequence[Any], named: Mapping[str, Any], shapes: Mapping[str, Sequence[Dim]] | None
) -> tuple[dict[str, Sequence[Dim]], dict[str, str]]:
    """Return the shapes of inputs from `shapes` and from arrays, and the dtypes of inputs from arrays, by name.

    An array in `named` whose name is not an input is included, because `compiled_for` reports it.
    """
    graph = graph_in(target)
    names = input_names(graph)
    input_specs(graph, {} if shapes is None else shapes)  # raises for invalid shapes and unknown inputs
    if len(args) > len(names):
        raise UnexpectedInputError(
            f"the model has {len(names)} input{'s' * (len(names) != 1)} but receives {len(args)}.",
            (("inputs", ", ".join(map(repr, names)) or "none"),),
        )
    arrays = dict(zip(names, args, strict=False))
    for name, value in named.items():
        if name in arrays:
            raise UnexpectedInputError(f"the input {name!r} is given twice.", port=name)
        arrays[name] = value
    for name, value in arrays.items():
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            continue
        if name not in (*names, "input"):
            raise UnknownOptionError(
                f"ml.inspect takes no option {name!r}, and the model has no input of this name.",
                (("inputs", ", ".join(map(repr, names)) or "none"), ("options", ", ".join(OPTIONS))),
                next((f"{option}={short_repr(value, 40)}" for option in alike(name, OPTIONS)), ""),
            )
        raise UnknownOptionError(
            f"input {name!r} must be an array, or a jax.ShapeDtypeStruct, not {short_repr(value)}.",
            (),
            f'ml.inspect(model, shapes={{"{name}": {written_shape(value) or "[32, 784]"}}})',
        )
    sizes: dict[str, Sequence[Dim]] = {name: tuple(map(_dim, value.shape)) for name, value in arrays.items()}
    # Canonical: without x64, JAX traces an array in float64 as float32.
    dtypes = {name: jax.dtypes.canonicalize_dtype(value.dtype).name for name, value in arrays.items()}
    return {**(shapes or {}), **sizes}, dtypes


def _dim(dim: Any) -> Dim:
    return str(dim) if jax.export.is_symbolic_dim(dim) else dim


def inspect_model(
    model: PhysicalModel,
    program: str,
    loss: Any,
    optimizer: Any,
    options: Mapping[str, Any],
) -> Inspection:
    """Return the stages of a program of a compiled model."""
    if program != "forward" and resolve_loss(loss).needs_output(model.output_names):
        first = model.output_names[0]
        raise ShapeError(
            f"the loss {loss!r} takes one output, but the model has {len(model.output_names)}.",
            (("outputs", ", ".join(f"{name!r} {model.output_specs[name]}" for name in model.output_names)),),
            f'loss=lambda outputs, targets: ((outputs["{first}"] - targets["{first}"]) ** 2).mean()  # your loss',
        )
    chosen = programs(model, loss=loss, optimizer=optimizer)[program]
    own = {"device": model.backend.device, "compiler_options": model.options.compiler_options}
    own |= {key: value for key, value in options.items() if value is not None}
    return inspect_program(model.graph, program, chosen.function, chosen.specs, own)


def _concrete(model: PhysicalModel) -> PhysicalModel:
    # All sizes must be known, except the first.
    for name, spec in model.input_specs.items():
        batch, *rest = spec.shape or (0,)
        if not spec.is_concrete and (batch == LEADING or not all(isinstance(dim, int) for dim in rest)):
            example = {name: [dim if isinstance(dim, int) else 32 for dim in spec.shape] if rest else [32, 784]}
            raise ShapeError(
                f"the shape of input {name!r} is unknown.",
                (("so far", str(spec)),),
                f"shapes={example}  # with sizes that fit",
                port=name,
            )
    return model


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

    Examples:
        >>> from mithril_nb.models import Linear
        >>> cost = inspect_with_names(Linear(10), {"input": ["batch", 784]}).cost()
        >>> cost.formula(), cost.at(batch=32).total.flops
        ('15690·batch', 502080)
    """
    backend = target.backend if isinstance(target, PhysicalModel) else JaxBackend()
    model = _Named(graph_in(target), backend, shapes, dtypes or {}, scope)
    own: dict[str, Any] = {"name": program, "source": source_lines(model.graph)}
    own |= {"kinds": {path: node.block.kind for path, node in model.graph.walk()}}
    own |= {"check_sizes": model.check_sizes, "requested_at": calling_line()}
    own |= {key: value for key, value in (options or {}).items() if value is not None}
    if program == "forward":
        keys = [key_spec()] if draws_random_numbers(model.graph, backend.toolkit, False) else []
        return inspect_function(model.run, model.params, model.input_specs, model.state, *keys, **own)
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
    return inspect_function(chosen.function, *chosen.specs, **own)


def block_formula(target: Any, shapes: Mapping[str, Sequence[Dim]], field: str = "flops", path: str = "") -> str:
    """Return the cost of the forward pass of a block, as a formula in the names of sizes.

    Examples:
        >>> from mithril_nb.models import Linear, Relu
        >>> block_formula(Linear(), {"input": ["B", "I"], "weight": ["I", "O"], "bias": ["O"]})
        '2·B·I·O + B·O'
        >>> block_formula(Relu(), {"input": ["B", "I"]}, "bytes_accessed")
        '8·B·I + 4'
    """
    return inspect_with_names(target, shapes).cost().formula(path, field)


class _Named:
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
        inference = infer_for(backend, graph, specs)
        inference.raise_problems()
        names = {dim for shape in shapes.values() for dim in shape if isinstance(dim, str)}
        dims = _Dims({name for dim in names for name in parse(dim).names}, list(_bounds(graph, inference)), scope)
        self.graph, self._backend, self._inferred = graph, backend, inference.inputs
        self.frozen = frozenset(param.name for param in inference.parameters if not param.is_trainable)
        self.input_specs: Mapping[str, Any] = {name: dims.struct(name, spec) for name, spec in inference.inputs.items()}
        self.params, self.state = _structs(dims, inference.parameters), _structs(dims, inference.states)
        # JAX's error for a symbolic size names neither the block nor the input.
        self._toolkit = around_blocks(backend.toolkit, _explaining_failure)

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        # Symbolic dimensions accept any number. Inference repeats the checks of ml.compile for these.
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
        # Here and not by a smaller `params`, so that the program has all parameters as inputs.
        params = {name: jax.lax.stop_gradient(p) if name in self.frozen else p for name, p in params.items()}
        return run_with_state(self.graph, self._toolkit, params, inputs, state=state, key=key, training=training)


def _explaining_failure(path: str, arrays: Arrays, run: Callable[[Arrays], Arrays]) -> Arrays:
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


# Without the constraint `T <= 64`, a slice `table[:T]` of 64 rows has min(64, T) rows, which JAX 0.10 cannot add to T
# rows.
def _bounds(graph: LogicalGraph, inference: Inference) -> Iterator[str]:
    for path, node in graph.walk():
        spec = inference.blocks[path].inputs.get("input") if node.block.op == "learned_positions" else None
        if isinstance(spec, TensorSpec) and isinstance(spec.shape[-2], str):
            yield f"{spec.shape[-2]} <= {node.block.options['context']}"


def _structs(dims: _Dims, arrays: Iterable[Parameter]) -> dict[str, jax.ShapeDtypeStruct]:
    return {array.name: dims.struct(array.name, array.spec) for array in arrays}


class _Dims:
    """JAX's symbolic dimensions for names of sizes, all in one scope."""

    def __init__(self, names: Iterable[str], constraints: Sequence[str], scope: Any):
        ordered = sorted(names)
        # JAX rejects dimensions of two scopes in one program, so those of the user's arrays give the scope.
        options: dict[str, Any] = {"constraints": constraints} if scope is None else {"scope": scope}
        dims = jax.export.symbolic_shape(", ".join(ordered), **options) if ordered else ()
        self.by_name = dict(zip(ordered, dims, strict=True))

    def struct(self, name: str, spec: TensorSpec) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(tuple(self.dim(name, spec, dim) for dim in spec.shape), spec.dtype)

    def dim(self, name: str, spec: TensorSpec, dim: Dim) -> Any:
        if isinstance(dim, int):
            return dim
        try:
            polynomial = parse(dim)
            if not polynomial.names <= self.by_name.keys():
                raise UndecidedError
        except UndecidedError:
            raise ShapeError(
                f"the shape of {name!r} does not follow from the shapes of the inputs.",
                (("so far", str(spec)), ("sizes", ", ".join(self.by_name) or "none")),
                "shapes={...}  # with a name or a number for each size of every input",
                port=name,
            ) from None
        size: Any = polynomial.at(self.by_name)
        return size
