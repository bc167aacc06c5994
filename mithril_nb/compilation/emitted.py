"""`EmittedModel`: a model that runs as source of NumPy, PyTorch, MLX or C; JAX only traces it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import numpy as np

from mithril_nb.backends.backend import convert_params
from mithril_nb.backends.emitted import EmittedBackend
from mithril_nb.compilation.inspecting import inspect_program
from mithril_nb.compilation.model import PhysicalModel
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.c import compiling
from mithril_nb.emission.c.emit import CFile, emit
from mithril_nb.emission.python_text import load
from mithril_nb.errors import StageUnavailableError
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import Spec, TensorSpec
from mithril_nb.inspection import Inspection
from mithril_nb.models.shape_inference.infer import Parameter

Arrays = Mapping[str, Any]
_ARGUMENTS = ("params", "inputs", "output_gradients", "key", "state")


class EmittedModel:
    """A model bound to a backend that runs emitted source.

    The source is written and loaded for each new set of shapes, and cached.

    Attributes:
        graph: Its logical graph.
        backend: The backend that it runs on.
        params: The parameters that calls `pm(x)` use; the first call initializes them.
    """

    is_immutable = True

    def __init__(self, traced: PhysicalModel, backend: EmittedBackend):
        self._traced, self.backend = traced, backend
        self._functions: dict[Hashable, Callable[..., Any]] = {}
        self.params: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"EmittedModel({', '.join(node.name for node in self.graph.nodes)}; backend={self.backend!r})"

    @property
    def graph(self) -> LogicalGraph:
        """Its logical graph."""
        return self._traced.graph

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its trainable arrays."""
        return self._traced.parameters

    @property
    def input_specs(self) -> Mapping[str, TensorSpec]:
        """Spec of each input."""
        return self._traced.input_specs

    @property
    def output_specs(self) -> Mapping[str, Spec | None]:
        """Spec of each output; `None` if unknown."""
        return self._traced.output_specs

    def summary(self, *, depth: int | None = None) -> str:
        """Return a table of the blocks, like `Model.summary`, with the compiled shapes."""
        return self._traced.summary(depth=depth)

    def inspect(self, program: str = "forward") -> Inspection:
        """Return the stages of a program; `pm.inspect().stage("numpy")` is the source with its links.

        Args:
            program: `"forward"` or `"forward+backward"`.
        """
        with self._precision():
            return self._traced.inspect(program)

    def source(self, program: str = "forward") -> str:
        """Return the source that runs, for the shapes that the model was compiled with.

        Args:
            program: `"forward"` or `"forward+backward"`.

        Raises:
            ShapeError: The shape of an input is not concrete.
            UnsupportedPrimitiveError: The library cannot express a block.
        """
        with self._precision():
            traced = self.inspect(program).traced_program
            return (emit(traced).source if self._library == "c" else emit_arrays(traced, self._library)).text

    @property
    def _library(self) -> Any:
        return self.backend.name

    def _precision(self) -> Any:
        return jax.enable_x64(self.backend.default_dtype == "float64")

    # Parameters

    def randomize_params(self, seed: int | None = None) -> dict[str, Any]:
        """Return initial values for all parameters: for a seed, the same on every backend.

        Args:
            seed: The same seed gives the same values. Default: the next number of the backend's random stream.

        Raises:
            ShapeError: The shape of a parameter is still unknown.
            UnknownOptionError: The seed is not an integer.
        """
        seed = self.backend.next_seed() if seed is None else seed
        with self._precision():
            values = self._traced.randomize_params(seed)
            return {name: self.backend.from_numpy(np.asarray(value)) for name, value in values.items()}

    def initial_state(self) -> dict[str, Any]:
        """Return the state before the first step; empty if the model has none."""
        with self._precision():
            values = self._traced.initial_state()
            return {name: self.backend.from_numpy(np.asarray(value)) for name, value in values.items()}

    def convert_params(self, params: Arrays, other: Any) -> dict[str, Any]:
        """Return parameters as arrays of another backend.

        Args:
            params: The parameters by name.
            other: A backend, or a model that is compiled for one.

        Examples:
            >>> import mithril_nb as ml
            >>> pm = ml.compile(ml.models.Linear(3), ml.NumpyBackend(), shapes={"input": [2, 4]})
            >>> pm.convert_params(pm.randomize_params(seed=0), ml.JaxBackend())["weight"].shape
            (4, 3)
        """
        return convert_params(params, self.backend, other)

    # Running

    def evaluate(
        self,
        params: Arrays,
        inputs: Arrays,
        output_gradients: Arrays | None = None,
        *,
        state: Arrays | None = None,
    ) -> Any:
        """Return the outputs, and the gradients of the parameters if output gradients are passed.

        Args:
            params: Parameters by name, arrays of the backend's library.
            inputs: Arrays by input name.
            output_gradients: d(loss)/d(output) by output name. Missing outputs count as zero.
            state: State after training, for a model with a state. It does not change.

        Returns:
            A dict of outputs. With `output_gradients`, a pair of outputs and gradients by parameter name.

        Raises:
            MissingInputError, UnexpectedInputError, MissingParameterError: Names are missing or unknown.
            ShapeError: Shapes do not match.
            UnsupportedPrimitiveError: The library cannot express a block.
        """
        given: dict[str, Any] = {
            "params": self._arrays(params),
            "inputs": self._arrays(inputs),
            "output_gradients": None if output_gradients is None else self._arrays(output_gradients),
        }
        if self._traced._draws:
            given["key"] = self.backend.from_numpy(np.array([0, self.backend.next_seed()], np.uint32))
        if state is not None:
            given["state"] = self._arrays(state)
        function = self._loaded(given)
        with self.backend.on_device():
            return function(**{name: value for name, value in given.items() if jax.tree.leaves(value)})

    def __call__(self, given: Any = None, /, **named: Any) -> Any:
        """Return the outputs for parameters that the first call initializes randomly."""
        by_name = dict(given) if isinstance(given, Mapping) else {} if given is None else {"input": given}
        inputs = {**by_name, **named}
        if not self.params:
            self.params = self._first_params(inputs)
        outputs = self.evaluate(self.params, inputs)
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def _first_params(self, inputs: Arrays) -> dict[str, Any]:
        """Return initial parameters, whose shapes may depend on the first inputs."""
        calls, backend = self._traced._calls, self.backend
        with self._precision():
            arrays = calls.inputs({name: backend.to_numpy(one) for name, one in self._arrays(inputs).items()})
            found = calls.inferred(arrays)
            found.raise_problems()
            values = self._traced.backend.initial_params(found.parameters, backend.next_seed())
            return {name: backend.from_numpy(np.asarray(value)) for name, value in values.items()}

    def _arrays(self, arrays: Arrays) -> dict[str, Any]:
        """Return arrays of the library by name. Other arrays and nested dicts of parameters are converted."""
        found: dict[str, Any] = {}
        for name, value in arrays.items():
            if isinstance(value, Mapping):
                found |= {f"{name}.{inner}": one for inner, one in self._arrays(value).items()}
            elif value is not None:
                found[name] = value if self._is_own(value) else self.backend.tensor(value)
        return found

    def _is_own(self, value: Any) -> bool:
        return type(value).__module__.partition(".")[0] == self.backend.module_name.partition(".")[0]

    def _loaded(self, given: Mapping[str, Any]) -> Callable[..., Any]:
        key = tuple([(name, _signature(value)) for name, value in given.items()])
        if key not in self._functions:
            self._functions[key] = self._load({name: jax.tree.map(self._spec, value) for name, value in given.items()})
        return self._functions[key]

    def _load(self, specs: Mapping[str, Any]) -> Callable[..., Any]:
        program = "forward" if specs["output_gradients"] is None else "forward+backward"
        arguments = [specs.get(name) for name in _ARGUMENTS]
        while arguments[-1] is None and len(arguments) > 2:
            arguments.pop()
        with self._precision(), self.backend.on_device():
            if "key" in specs:
                arguments[3] = jax.eval_shape(lambda: jax.random.key(0))
            evaluate = self._traced._evaluate
            inspection = inspect_program(self.graph, program, evaluate, tuple(arguments), {})
            try:
                traced = inspection.traced_program
            except StageUnavailableError:
                jax.eval_shape(evaluate, *arguments)  # raises the error of the model itself
                raise
            if self._library == "c":
                return _c_function(emit(traced), jax.tree.structure(jax.eval_shape(evaluate, *arguments)))
            return load(emit_arrays(traced, self._library))

    def _spec(self, array: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.backend.shape(array), self.backend.dtype(array).removesuffix("_"))


def _signature(value: Any) -> Hashable:
    """Return what the source of a program depends on: shapes and dtypes, read without a conversion at each call."""
    if isinstance(value, Mapping):
        return tuple([(name, _signature(one)) for name, one in value.items()])
    return value if value is None else (tuple(value.shape), value.dtype)


def _c_function(file: CFile, results: Any) -> Callable[..., Any]:
    """Compile a file; return a function of the arguments by name that returns a tree of results."""
    run = compiling.Routine(compiling.load({"model": file.source.text}), file)

    def function(**given: Any) -> Any:
        return jax.tree.unflatten(results, run(*jax.tree.leaves([given.get(name) for name in _ARGUMENTS])))

    return function
