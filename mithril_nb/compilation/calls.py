"""Checks of the arguments of a physical model. They run during tracing, once for each set of shapes and dtypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
from jax.core import Tracer

from mithril_nb.backends.backend import notice
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.backends.jax.arrays import check_width
from mithril_nb.compilation.binding import infer_for
from mithril_nb.errors import (
    Diagnostic,
    MissingInputError,
    MissingParameterError,
    ShapeError,
    UnexpectedInputError,
    UnknownOptionError,
    listed,
    short_repr,
)
from mithril_nb.graph.records import BOUNDARY, Endpoint, LogicalGraph
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec, as_dtype
from mithril_nb.models.naming import by_port, flat_params, takes_any_dtype
from mithril_nb.models.shape_inference.dims import agree
from mithril_nb.models.shape_inference.infer import Inference, Parameter

Arrays = Mapping[str, Any]
_FEW = 64
"""Longest list of numbers without a warning. XLA takes seconds to compile a program with thousands of arguments."""


class Calls:
    """Checks that the arguments of calls match the compiled model."""

    def __init__(
        self,
        graph: LogicalGraph,
        inference: Inference,
        backend: JaxBackend,
        is_static: bool = False,
        sizes: frozenset[str] = frozenset(),
    ):
        self.graph, self.inference, self.backend, self.is_static = graph, inference, backend, is_static
        self.sizes = sizes
        self.dtype = backend.default_dtype
        # The shapes to compare calls with. Under `static_shapes`, the first call fixes open ones.
        self._settled = {name: spec.shape for name, spec in inference.inputs.items()}
        self._has_warned = False
        self.names = tuple(inference.inputs)

    @cached_property
    def _any_dtype(self) -> frozenset[str]:
        return frozenset(name for name in self.names if takes_any_dtype(self.graph, name))

    def checked(
        self, params: Arrays, inputs: Arrays, state: Arrays | None
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return parameters, inputs and state by their names in the model, as arrays of the right shapes and dtypes."""
        by_name = flat_params(params)
        self._check_keys("parameter", self.inference.parameters, by_name, "params = pm.randomize_params()")
        arrays = self.inputs(inputs)
        by_name = {name: as_array(f"parameter {name!r}", array, name) for name, array in by_name.items()}
        for name, array in by_name.items():
            # `jax.grad` would raise for integers, without the name of the parameter.
            if not jax.numpy.issubdtype(array.dtype, jax.numpy.floating):
                raise UnknownOptionError(
                    f"parameter {name!r} cannot be trained: its dtype is not floating point.",
                    (("given", f"{array.shape} of {array.dtype}"), ("needs", self.dtype)),
                    f'params[{name!r}].astype("{self.dtype}")',
                    port=name,
                )
        held = flat_params(state or {})
        advice = "pm.evaluate(params, inputs, state=pm.initial_state())  # after training: state=run.model_state"
        self._check_keys("state", self.inference.states, held, advice)
        held = {name: as_array(f"state {name!r}", array, name) for name, array in held.items()}
        self._check_shapes({**by_name, **held}, arrays)
        return by_name, arrays, held

    def inputs(self, inputs: Arrays) -> dict[str, jax.Array]:
        """Return the inputs by their names in the model, as arrays of the right dtypes."""
        ports = by_port(inputs, self.names, "input", argument="inputs")
        missing = [name for name in self.names if name not in ports]
        if missing:
            raise MissingInputError(
                f"the model needs {_count(self.names, 'input')}, got {len(ports)}.",
                (
                    ("missing", ", ".join(f"{self._named(name)} {self.inference.inputs[name]}" for name in missing)),
                    ("given", listed(map(repr, inputs))),
                ),
                f"inputs = {{{', '.join(f'{name!r}: ...' for name in self.names)}}}",
                port=missing[0],
            )
        arrays = {port: self._cast(port, inputs[name]) for port, name in ports.items()}
        self._check_names(arrays)
        for name, array in arrays.items():
            if self.is_static and not agree(array.shape, self._settled[name]):
                raise ShapeError(
                    f"the shape of input {name!r} differs from the compiled shape.",
                    (("given", str(array.shape)), ("compiled for", str(self._settled[name]))),
                    "static_shapes=False  # compiles for each shape; or pad the batch",
                    port=name,
                )
        return arrays

    def _named(self, name: str) -> str:
        feeds = self.graph.targets_of.get(Endpoint(BOUNDARY, name), ())
        is_given = name in dict(self.graph.labels)
        # A generated name such as "linear_0_input" is hard to recognise, so the message adds the ports.
        is_plain = {end.port for end in feeds} == {name} and 1 in (len(self.names), len(self.graph.nodes))
        return repr(name) if is_given or is_plain else f"{name!r} ({', '.join(map(str, feeds))})"

    def _check_names(self, arrays: Arrays) -> None:
        first_sizes: dict[Dim, tuple[str, int]] = {}
        for port, array in arrays.items():
            shape = self.inference.inputs[port].shape
            # A wrong rank is reported by inference, with the block that needs another one.
            for dim, size in zip(shape, array.shape, strict=False) if len(shape) == array.ndim else ():
                first, expected = first_sizes.setdefault(dim, (port, size)) if dim in self.sizes else ("", size)
                if size != expected:
                    raise ShapeError(
                        f"the size {dim!r} is {expected} in input {first!r} and {size} in input {port!r}.",
                        ((first, str(arrays[first].shape)), (port, str(array.shape))),
                        "shapes={...}  # in ml.compile, with another name for one of the sizes",
                        port=port,
                    )

    def settle(self, inputs: Arrays) -> None:
        """Compare the shapes of the inputs of a run with the compiled shapes.

        By default, the first difference causes a warning about the recompilation. If `is_static` is true, the shapes of
        these inputs become the compiled shapes instead, so that dims that were unknown are fixed for later calls.
        """
        shapes = {
            port: jax.numpy.asarray(inputs[name]).shape
            for port, name in by_port(inputs, self.names, "input", argument="inputs").items()
        }
        if self.is_static:
            self._settled.update(shapes)
            return
        changed = [name for name, shape in shapes.items() if not agree(shape, self._settled[name])]
        if changed and not self._has_warned:
            self._has_warned = True
            name = changed[0]
            notice(
                f"input {name!r} of shape {shapes[name]} causes a recompilation: the model was compiled for "
                f"{self._settled[name]}. shapes={{{name!r}: {['batch', *shapes[name][1:]]}}} accepts any batch; "
                "static_shapes=True rejects other shapes."
            )

    def inferred(self, inputs: Arrays, params: Arrays | None = None) -> Inference:
        """Return the specs of all values for checked inputs. The values in `params` determine open shapes."""
        specs = {name: TensorSpec(array.shape, as_dtype(array.dtype)) for name, array in inputs.items()}
        opened = {
            name: TensorSpec(jax.numpy.shape(params[name]), spec.dtype)
            for name, spec in self._open_params.items()
            if params and name in params
        }
        # The usual case: no inference, which takes milliseconds for a deep model.
        if specs == self.inference.inputs and not opened:
            return self.inference
        return infer_for(self.backend, self.graph, {**specs, **opened})

    @property
    def _open_params(self) -> dict[str, TensorSpec]:
        # Only parameters that are inputs of the model can have open shapes: those of blocks follow from the data.
        names = {port.name for port in self.graph.inputs if port.role == "param"}
        return {
            array.name: array.spec
            for array in self.inference.parameters
            if array.name in names and not array.spec.is_concrete
        }

    def _check_keys(self, noun: str, arrays: Sequence[Parameter], by_name: Arrays, advice: str) -> None:
        names = [array.name for array in arrays]
        missing = [name for name in names if name not in by_name]
        if missing:
            raise (MissingParameterError if noun == "parameter" else MissingInputError)(
                f"the model needs {_count(names, noun)}, got {len(by_name)}.",
                (("missing", listed(map(repr, missing))), ("given", listed(map(repr, by_name)))),
                advice,
                block=missing[0].rpartition(".")[0].replace(".", "/"),
            )
        if unknown := [name for name in by_name if name not in names]:
            raise UnexpectedInputError(
                f"the model has no {noun} {unknown[0]!r}.",
                (("unknown", listed(map(repr, unknown))), (f"{noun}s", listed(map(repr, names)))),
                advice,
            )

    def _cast(self, name: str, array: Any) -> jax.Array:
        array = as_array(f"input {name!r}", array, name)
        dtype = self.inference.inputs[name].dtype
        # An integer for a block that computes with floats is cast, as in NumPy. Indices and booleans keep their dtype.
        keeps = name in self._any_dtype or "float" not in dtype
        # A cast would drop the imaginary part.
        keeps = keeps or jax.numpy.issubdtype(array.dtype, jax.numpy.complexfloating)
        return array if keeps or array.dtype == dtype else array.astype(dtype)

    def _check_shapes(self, params: Arrays, inputs: Arrays) -> None:
        inference = self.inferred(inputs, params)  # for the compiled shapes, this returns the stored inference
        inference.raise_problems()
        compiled = self.inference.inputs
        facts = [(f"input {name!r}", f"{array.shape}, compiled for {compiled[name]}") for name, array in inputs.items()]
        problems = [
            Diagnostic(
                f"the shape of parameter {parameter.name!r} does not match the model.",
                (("given", str(shape)), ("needed", str(parameter.spec.shape)), *facts),
                "params = pm.randomize_params()  # or inputs of the shape that these params were created for",
                parameter.path,
                parameter.port,
                code="ShapeError",
            )
            for parameter in (*inference.parameters, *inference.states)
            if (shape := tuple(jax.numpy.shape(params[parameter.name]))) != parameter.spec.shape
        ]
        if problems:
            raise ShapeError(problems[0], more=tuple(problems[1:]))

    def with_shapes(self) -> str:
        """Return example code of a `compile` call with a shape for each input."""
        specs = {name: TensorSpec(shape) for name, shape in self._settled.items()} | self._open_params
        shapes: dict[str, list[int]] = {}
        for name, spec in specs.items():
            sizes = [32 if isinstance(dim, str) else dim for dim in spec.shape if dim != LEADING]
            shapes[name] = [32, *(sizes or [784])] if LEADING in spec.shape else sizes
        return f"ml.compile(model, backend, shapes={shapes!r})"


def _count(names: Sequence[str], noun: str) -> str:
    return f"{len(names)} {noun}{'' if len(names) == 1 else 's'}"


def as_array(subject: str, value: Any, port: str) -> jax.Array:
    """Convert a value to a JAX array."""
    # JAX would silently convert 64-bit arrays to 32 bits unless x64 mode is on.
    check_width(value)
    try:
        # Each number of a list is a separate argument of the jitted program.
        leaves = jax.tree.leaves(value) if isinstance(value, list | tuple) else []
        if len(leaves) > _FEW and isinstance(leaves[0], Tracer):
            notice(
                f"{subject} is a {type(value).__name__} of {len(leaves)} numbers. Each number is a separate argument "
                "of the jitted program, which makes it slow. An array is one argument: np.asarray(values)."
            )
        return jax.numpy.asarray(value)
    except (TypeError, ValueError):
        raise UnknownOptionError(
            f"{subject} is not an array of numbers.",
            (("given", short_repr(value)),),
            'np.asarray(values, dtype="float32")  # with rows of one length',
            port=port,
        ) from None
