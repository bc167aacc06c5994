"""Mithril models as targets: inputs, programs, and example shapes for error messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import jax

from mithril_nb.compilation import PhysicalModel, compile, graph_of
from mithril_nb.compilation.inspecting import inspect_program
from mithril_nb.errors import ShapeError, UnexpectedInputError, UnknownOptionError, short_repr
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.graph.spec import Dim, TensorSpec
from mithril_nb.inspection import Inspection
from mithril_nb.models.model import Model
from mithril_nb.models.naming import input_names, input_specs, written_shape
from mithril_nb.targets.arrays import written_spec
from mithril_nb.targets.entry_point import OPTIONS, meant
from mithril_nb.train import programs
from mithril_nb.train.losses import resolve_loss


def is_mithril_model(target: Any) -> bool:
    """Return whether a target is a Mithril model or block, compiled or not."""
    return isinstance(target, Model | LogicalGraph | Block | PhysicalModel)


def compiled_for(target: Any, sizes: Mapping[str, Sequence[Dim]], dtypes: Mapping[str, str]) -> PhysicalModel:
    """Return a model compiled for inputs of these shapes and dtypes.

    Raises:
        ShapeError: The shapes do not fit, or the shape of an input is unknown.
    """
    graph = graph_in(target)
    if isinstance(target, PhysicalModel):
        if not sizes:
            return _concrete(target)
        return _concrete(compile(graph, target.backend, shapes=sizes, jit=target.jit))
    found = compile(graph, shapes=sizes)
    known = found.input_specs
    others = {name: dtype for name, dtype in dtypes.items() if name in known and known[name].dtype != dtype}
    return _concrete(compile(Model.of(graph).set_types(others), shapes=sizes) if others else found)


def graph_in(target: Any) -> LogicalGraph:
    """Return the graph of a model, compiled or not."""
    return target.graph if isinstance(target, PhysicalModel) else graph_of(target)


def given_specs(
    target: Any, args: Sequence[Any], named: Mapping[str, Any], shapes: Mapping[str, Sequence[Dim]] | None
) -> tuple[dict[str, Sequence[Dim]], dict[str, str]]:
    """Return the shapes of inputs from `shapes` and from arrays, and the dtypes of inputs from arrays, by name.

    An array in `named` whose name is not an input is included, because `compiled_for` reports it.

    Args:
        target: The model.
        args: Arrays, or specs of arrays, in the order of the model's inputs.
        named: Arrays, or specs of arrays, by input name.
        shapes: Shapes by input name.

    Raises:
        UnexpectedInputError: There are more `args` than inputs, `shapes` has an unknown name, or an input is in both
            `args` and `named`.
        UnknownOptionError: A value is not an array, or a shape is invalid. A misspelt option in `named` leads to this
            error too.
    """
    graph = graph_in(target)
    names = input_names(graph)
    input_specs(graph, {} if shapes is None else shapes)  # raises for invalid shapes and unknown inputs
    if len(args) > len(names):
        raise UnexpectedInputError(
            f"the model has {len(names)} input{'s' * (len(names) != 1)} but receives {len(args)}.",
            (("inputs", ", ".join(map(repr, names)) or "none"),),
            f"ml.inspect({', '.join(('model', *names))})",
        )
    given = dict(zip(names, args, strict=False))
    for name, value in named.items():
        if name in given:
            raise UnexpectedInputError(
                f"the input {name!r} is given twice.",
                port=name,
            )
        given[name] = value
    for name, value in given.items():
        if name not in (*names, "input") and not hasattr(value, "shape"):
            _refuse_name(name, value, names)
        if not hasattr(value, "shape") or not hasattr(value, "dtype"):
            written = written_shape(value) or "[32, 784]"
            array = written_spec(value)
            raise UnknownOptionError(
                f"input {name!r} must be an array, or a jax.ShapeDtypeStruct, not {short_repr(value)}.",
                (),
                f"{array}  # instead of the text" if array else f'ml.inspect(model, shapes={{"{name}": {written}}})',
            )
    sizes: dict[str, Sequence[Dim]] = {name: tuple(map(_dim, value.shape)) for name, value in given.items()}
    dtypes = {name: jax.dtypes.canonicalize_dtype(value.dtype).name for name, value in given.items()}
    return {**(shapes or {}), **sizes}, dtypes


def _refuse_name(name: str, value: Any, names: Sequence[str]) -> None:
    """Raise an error for a keyword argument that is neither an input, nor an option, nor an array."""
    option = meant(name)
    is_of_compile = name in signature(compile).parameters
    raise UnknownOptionError(
        f"ml.inspect takes no option {name!r}, and the model has no input of this name.",
        (("inputs", ", ".join(map(repr, names)) or "none"), ("options", ", ".join(OPTIONS))),
        f"{option}={short_repr(value, 40)}" if option else f"ml.compile(model, {name}=...)" if is_of_compile else "",
    )


def _dim(dim: Any) -> Dim:
    """Return a size of an array. A symbolic dimension becomes text."""
    return str(dim) if jax.export.is_symbolic_dim(dim) else dim


def inspect_model(
    model: PhysicalModel,
    program: str,
    loss: Any,
    optimizer: Any,
    options: Mapping[str, Any],
) -> Inspection:
    """Return the stages of a program of a compiled model.

    Raises:
        ShapeError: The loss takes one output, but the model has several.
    """
    if program != "forward" and resolve_loss(loss).needs_output(model.output_names):
        first = model.output_names[0]
        raise ShapeError(
            f"the loss {loss!r} takes one output, but the model has {len(model.output_names)}.",
            (("outputs", ", ".join(f"{name!r} {model.output_specs[name]}" for name in model.output_names)),),
            f'loss=lambda outputs, targets: ((outputs["{first}"] - targets["{first}"]) ** 2).mean()  # your loss',
        )
    chosen = programs(model, loss=loss, optimizer=optimizer)[program]
    given = {"device": model.backend.device, "compiler_options": model.options.compiler_options}
    given |= {key: value for key, value in options.items() if value is not None}
    return inspect_program(model.graph, program, chosen.function, chosen.specs, given)


def _concrete(model: PhysicalModel) -> PhysicalModel:
    """Return the model unchanged if the shapes of its inputs are known, except the first dimension.

    Raises:
        ShapeError: A shape is unknown.
    """
    for name in _unknown(model):
        raise ShapeError(
            f"the shape of input {name!r} is unknown.",
            (("so far", str(model.input_specs[name])),),
            f"shapes={_example_shapes(model)}  # add this to the call, with sizes that fit",
            port=name,
        )
    return model


def _unknown(model: PhysicalModel) -> list[str]:
    return [name for name, spec in model.input_specs.items() if not _is_known(spec)]


def _example_shapes(model: PhysicalModel) -> str:
    # Known sizes are kept, and names are replaced by 32.
    shapes = {
        name: [dim if isinstance(dim, int) else 32 for dim in spec.shape] if spec.shape[1:] else [32, 784]
        for name, spec in model.input_specs.items()
    }
    return "{" + ", ".join(f'"{name}": {shape}' for name, shape in shapes.items()) + "}"


def _is_known(spec: TensorSpec) -> bool:
    return spec.is_concrete or (
        bool(spec.shape) and spec.shape[0] != "..." and all(isinstance(dim, int) for dim in spec.shape[1:])
    )
