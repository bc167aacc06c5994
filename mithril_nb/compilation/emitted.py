"""`EmittedModel`: a model that runs as source of NumPy, PyTorch, MLX, C or GGML; JAX only traces it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from mithril_nb.backends.backend import convert_params
from mithril_nb.backends.emitted import EmittedBackend
from mithril_nb.compilation.emitted_function import EmittedFunction, precision, source_of
from mithril_nb.compilation.evaluating import EvaluatesAll
from mithril_nb.compilation.inspecting import PROGRAMS
from mithril_nb.compilation.model import PhysicalModel
from mithril_nb.compilation.torch_module import as_module
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import Spec, TensorSpec
from mithril_nb.inspection import Inspection
from mithril_nb.models.naming import by_port
from mithril_nb.models.shape_inference.infer import Parameter

Arrays = Mapping[str, Any]


class EmittedModel(EvaluatesAll):
    """A model bound to a backend that runs emitted source.

    The source is written and loaded once for each new set of shapes. `compile` writes the source of the forward
    program if all shapes are known, else the first evaluation does. The source of the gradients is written when they
    are first requested.

    Attributes:
        traced: The same model bound to JAX, which traces it.
        backend: The backend that the model runs on.
        params: The parameters that `pm(x)` uses; the first call initializes them.
    """

    is_immutable = True

    def __init__(self, traced: PhysicalModel, backend: EmittedBackend):
        self.traced, self.backend = traced, backend
        self._programs = {
            name: EmittedFunction(traced._evaluate, name, self.graph, backend, 3, self._arrays) for name in PROGRAMS
        }
        self.params: dict[str, Any] = {}

    def emit_forward(self) -> None:
        """Write the source of the forward program. If a size is unknown, do nothing: the first evaluation writes it.

        Raises:
            UnsupportedPrimitiveError: The library cannot express a block.
        """
        traced = self.traced
        arrays = [*traced.input_specs.values(), *(parameter.spec for parameter in (*traced.parameters, *traced.states))]
        if not all(spec.is_concrete for spec in arrays):
            return
        params, inputs, _ = traced.example_specs()
        key = jax.ShapeDtypeStruct((2,), "uint32") if traced._draws else None
        state = {
            parameter.name: jax.ShapeDtypeStruct(parameter.spec.shape, parameter.spec.dtype)
            for parameter in traced.states
        } or None
        self._programs["forward"].prepare(params, inputs, None, key, state)

    def emitted(self, function: Callable[..., Any], name: str, *, key_argument: int | None = None) -> EmittedFunction:
        """Return a function that runs `function` as emitted source. `EmittedFunction` documents the arguments."""
        return EmittedFunction(function, name, self.graph, self.backend, key_argument)

    def __repr__(self) -> str:
        return f"EmittedModel({', '.join(node.name for node in self.graph.nodes)}; backend={self.backend!r})"

    @property
    def graph(self) -> LogicalGraph:
        """The logical graph."""
        return self.traced.graph

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the model, frozen ones included."""
        return self.traced.parameters

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return self.traced.input_names

    def get_layer_names(self) -> tuple[str, ...]:
        """Return the paths of the blocks that have parameters, in order, such as `"encoder.linear_0"`."""
        return self.traced.get_layer_names()

    @property
    def input_specs(self) -> Mapping[str, TensorSpec]:
        """Spec of each input."""
        return self.traced.input_specs

    @property
    def output_specs(self) -> Mapping[str, Spec | None]:
        """Spec of each output; `None` if unknown."""
        return self.traced.output_specs

    def summary(self, *, depth: int | None = None) -> str:
        """Return a table of the blocks, like `Model.summary`, with the compiled shapes."""
        return self.traced.summary(depth=depth)

    def inspect(self, program: str = "forward") -> Inspection:
        """Return the stages of a program; `pm.inspect().stage("numpy")` is the source with links to the blocks.

        Args:
            program: `"forward"` or `"forward+backward"`.
        """
        with self._precision():
            return self.traced.inspect(program)

    def source(self, program: str = "forward") -> str:
        """Return the source that runs, for the shapes that the model was compiled with.

        Args:
            program: `"forward"` or `"forward+backward"`.

        Raises:
            ShapeError: The shape of an input is not concrete.
            UnsupportedPrimitiveError: The library cannot express a block.
        """
        with self._precision():
            return source_of(self.inspect(program).traced_program, self.backend).text

    def _precision(self) -> Any:
        return precision(self.backend)

    # Parameters

    def randomize_params(self, seed: int | None = None) -> dict[str, Any]:
        """Return initial values for all parameters.

        Args:
            seed: The same seed gives the same values, on every backend. Default: the next number of the backend's
                random stream.

        Raises:
            ShapeError: The shape of a parameter is still unknown.
            UnknownOptionError: The seed is not an integer.
        """
        seed = self.backend.next_seed() if seed is None else seed
        with self._precision():
            values = self.traced.randomize_params(seed)
            return {name: self.backend.from_numpy(np.asarray(value)) for name, value in values.items()}

    def initial_state(self) -> dict[str, Any]:
        """Return the state before the first step; empty if the model has none."""
        with self._precision():
            values = self.traced.initial_state()
            return {name: self.backend.from_numpy(np.asarray(value)) for name, value in values.items()}

    def convert_params(self, params: Arrays, other: Any) -> dict[str, Any]:
        """Return parameters as arrays of another backend.

        Args:
            params: The parameters by name.
            other: A backend, or a model that is compiled for one.

        Raises:
            UnknownOptionError: `other` is neither a backend nor a compiled model.

        Examples:
            >>> import mithril_nb as ml
            >>> pm = ml.compile(ml.models.Linear(3), ml.NumpyBackend(), shapes={"input": [2, 4]})
            >>> pm.convert_params(pm.randomize_params(seed=0), ml.JaxBackend())["weight"].shape
            (4, 3)
        """
        return convert_params(params, self.backend, other)

    def as_module(self, params: Arrays | None = None, state: Arrays | None = None) -> Any:
        """Return the model as a `torch.nn.Module` that runs the emitted source.

        The module works with `torch.compile`, `torch.autocast`, other devices and the optimizers of PyTorch. States,
        such as running statistics, become buffers. The methods `train` and `eval` of the module switch Dropout and the
        updates of states on and off.

        Args:
            params: Initial parameters by name; default: random values.
            state: Initial state by name; default: the state before training.

        Raises:
            UnknownOptionError: The model is compiled for another backend than PyTorch. The first run of the module
                raises this error if an op has a hand-written gradient, because `torch.autograd` would not use it.
        """
        params = self._arrays(self.randomize_params() if params is None else params)
        return as_module(self, params, self._arrays(self.initial_state() if state is None else state))

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
            output_gradients: d(loss)/d(output) by output name. An output that is left out has gradient 0.
            state: State after training, for a model with a state such as running statistics. It does not change.

        Returns:
            A dict of outputs by name. With `output_gradients`, a pair: this dict, and a dict of gradients by parameter
            name.

        Raises:
            MissingInputError, UnexpectedInputError, MissingParameterError: Names are missing or unknown.
            ShapeError: Shapes do not match.
            UnsupportedPrimitiveError: The library cannot express a block or its gradients. Nothing has run.
        """
        key = None
        if self.traced._draws:
            key = self.backend.from_numpy(np.array([0, self.backend.next_seed()], np.uint32))
        forward, both = self._programs["forward"], self._programs["forward+backward"]
        if output_gradients is None:
            return forward(params, inputs, None, key, state)
        if self.backend.grads == "jax" or self._has_custom_gradients(params, inputs, None, key, state):
            return both(params, inputs, output_gradients, key, state)
        cotangents, held = self._arrays(output_gradients), None if state is None else self._arrays(state)
        params, inputs = self._arrays(params), self._arrays(inputs)
        both.results(params, inputs, cotangents, key, held)  # checks the arguments
        names = by_port(cotangents, self.traced.output_names, "output", argument="output_gradients")
        weights = {port: cotangents[name] for port, name in names.items()}
        return self.backend.differentiate(lambda params: forward(params, inputs, None, key, held), params, weights)

    def _has_custom_gradients(self, *args: Any) -> bool:
        return self._programs["forward"].loaded(*args).has_custom_gradients

    def __call__(self, x: Any = None, /, **named: Any) -> Any:
        """Return the outputs for the parameters in `params`, which the first call initializes randomly.

        Arguments and result are those of `PhysicalModel.__call__`.
        """
        by_name = dict(x) if isinstance(x, Mapping) else {} if x is None else {"input": x}
        inputs = {**by_name, **named}
        if not self.params:
            self.params = self._first_params(inputs)
        outputs = self.evaluate(self.params, inputs)
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def _first_params(self, inputs: Arrays) -> dict[str, Any]:
        """Return initial parameters, whose shapes may depend on the first inputs."""
        calls, backend = self.traced._calls, self.backend
        with self._precision():
            arrays = calls.inputs({name: backend.to_numpy(array) for name, array in self._arrays(inputs).items()})
            inference = calls.inferred(arrays)
            inference.raise_problems()
            values = self.traced.backend.initial_params(inference.parameters, backend.next_seed())
            return {name: backend.from_numpy(np.asarray(value)) for name, value in values.items()}

    def _arrays(self, arrays: Arrays) -> dict[str, Any]:
        """Return arrays of the library by name. Other arrays and nested dicts of parameters are converted."""
        own: dict[str, Any] = {}
        for name, value in arrays.items():
            if isinstance(value, Mapping):
                own |= {f"{name}.{inner}": array for inner, array in self._arrays(value).items()}
            elif value is not None:
                own[name] = self.backend.as_argument(value)
        return own
