"""`PhysicalModel`: a model bound to a backend, which runs and shows its stages and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import jax

from mithril_nb.backends.backend import convert_params
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.backends.jax.devices import device_name, put
from mithril_nb.backends.jax.watch import NotANumberError, checking_shapes, device_of, looking_for_nan, on_devices
from mithril_nb.compilation.calls import Calls, as_array, is_text
from mithril_nb.compilation.inspecting import InspectedModel
from mithril_nb.compilation.options import Options
from mithril_nb.compilation.spreading import Spread
from mithril_nb.errors import MissingInputError, ShapeError
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.models.naming import by_port, input_range
from mithril_nb.models.shape_inference.flat import flat
from mithril_nb.models.shape_inference.infer import Inference, Parameter
from mithril_nb.models.summary import table
from mithril_nb.program import Toolkit, check_kernels, draws_random_numbers, run_with_state

Arrays = Mapping[str, Any]


class PhysicalModel(InspectedModel):
    """A model bound to a backend. It runs, and shows its stages and costs.

    Attributes:
        graph: The logical graph.
        backend: The backend that the model runs on.
        inference: The result of shape inference: the shapes and dtypes in the model.
        jit: True if `evaluate` is jitted.
        options: Further options of `compile`.

    Raises:
        UnknownOpError: The backend does not support a block.
        ShapeError: An array cannot be split evenly over the devices.
    """

    is_immutable = True
    """True: `fit` may reuse the programs of a run in a later run of the same model."""

    def __init__(
        self,
        graph: LogicalGraph,
        backend: JaxBackend,
        inference: Inference,
        jit: bool,
        options: Options | None = None,
        placement: Mapping[str, Any] | None = None,
        sizes: frozenset[str] = frozenset(),
    ):
        check_kernels(graph, backend.toolkit)
        self.graph, self.backend, self.inference, self.jit = graph, backend, inference, jit
        self.options = options = options or Options(compiler_options=backend.compiler_options)
        self._placement = dict(placement or {})
        self._draws = draws_random_numbers(graph, backend.toolkit, False)
        self._run = self._jitted() if jit else self._evaluate
        self._donating = self._jitted(options.donated) if options.donated else None
        self._calls = Calls(graph, inference, backend, options.static_shapes, sizes)
        self._spread = None
        if backend.mesh is not None:
            self._spread = Spread(backend.mesh, options.parallelism, options.replicates_inputs)
            self._spread.check(inference.inputs, inference.parameters)
        self._texts = [name for name, spec in inference.outputs.items() if is_text(spec)]
        self._params: dict[str, jax.Array] | None = None
        self._frozen = frozenset(parameter.name for parameter in inference.parameters if not parameter.is_trainable)
        if not (self._draws or inference.states or options.donated or backend.debug or self._texts):
            # A call of a small model takes about 10 us, so avoid a Python frame between the caller and XLA.
            self.__dict__["evaluate"] = self._run

    def __repr__(self) -> str:
        return f"PhysicalModel({', '.join(node.name for node in self.graph.nodes)}; backend={self.backend!r})"

    def _jitted(self, donated: tuple[int, ...] = ()) -> Any:
        return jax.jit(
            self._evaluate, donate_argnums=donated, compiler_options=dict(self.options.compiler_options) or None
        )

    # Inputs, outputs and parameters

    @property
    def placement(self) -> dict[str, str]:
        """A dict from the path of a block to the name of its device; empty without `backend.place_model`."""
        return {path: device_name(device) for path, device in self._placement.items()}

    @cached_property
    def input_ranges(self) -> Mapping[str, tuple[int, int]]:
        """Smallest and largest valid integer of each input that a block such as Embedding uses as an index."""
        ranges = {name: input_range(self.graph, name) for name in self.input_specs}
        return {name: bounds for name, bounds in ranges.items() if bounds}

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(self.inference.inputs)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(self.inference.outputs)

    @cached_property
    def needs_key(self) -> bool:
        """True if the model draws random numbers in training."""
        return draws_random_numbers(self.graph, self.backend.toolkit, True)

    def get_layer_names(self) -> tuple[str, ...]:
        """Return the paths of the blocks that have parameters, in order, such as `"encoder.linear_0"`."""
        return tuple(dict.fromkeys(p.name.rpartition(".")[0] for p in self.parameters if "." in p.name))

    def summary(self, *, depth: int | None = None) -> str:
        """Return a table of the blocks, like `Model.summary`, with the compiled shapes."""
        return table(self.graph, self.inference, depth, self.backend.default_dtype)

    # Running

    def randomize_params(self, seed: int | None = None) -> dict[str, jax.Array]:
        """Return initial values for all parameters.

        Args:
            seed: The same seed gives the same values. Default: the next numbers of the backend's random stream.

        Raises:
            ShapeError: The shape of a parameter is still unknown.
            UnknownOptionError: The seed is not an integer.
        """
        self._check_concrete(self.parameters)
        return self._laid(self.parameters, self.backend.initial_params(self.parameters, seed))

    def convert_params(self, params: Arrays, other: Any) -> dict[str, Any]:
        """Return parameters as arrays of another backend.

        Args:
            params: Parameters by name.
            other: The other backend, or a model compiled for it.

        Raises:
            UnknownOptionError: `other` is neither a backend nor a compiled model.
        """
        return convert_params(params, self.backend, other)

    def initial_state(self) -> dict[str, jax.Array]:
        """Return the state before the first step, such as running statistics: arrays by name.

        The dict is empty if the model has no state.

        Raises:
            ShapeError: The shape of a state is still unknown.
        """
        self._check_concrete(self.states)
        return self._laid(self.states, self.backend.initial_params(self.states, 0)) if self.states else {}

    def _laid(self, arrays: Sequence[Parameter], values: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Return the values sharded over the mesh, or on the devices of their blocks."""
        if self._spread is not None:
            return self._spread.params(arrays, values)
        if self._placement:
            return {
                parameter.name: put(values[parameter.name], device_of(parameter.path, self._placement))
                for parameter in arrays
            }
        return values

    def forward(
        self,
        params: Arrays,
        inputs: Arrays,
        *,
        state: Arrays | None = None,
        key: jax.Array | None = None,
        training: bool = False,
    ) -> dict[str, jax.Array]:
        """Return the outputs. This is a pure function, for use with `jax.jit`, `jax.grad`, `jax.vmap` and others.

        Args:
            params: Parameters by name: `{"linear_0.weight": w}` or `{"linear_0": {"weight": w}}`.
            inputs: Arrays by input name.
            state: Arrays by name, such as running statistics: `initial_state()`, or the state after the previous step.
                Required for a model with a state.
            key: Random key, required if a block draws random numbers.
            training: True if blocks such as Dropout behave as in training.

        Raises:
            MissingInputError, UnexpectedInputError, MissingParameterError: Names are missing or unknown.
            UnknownOptionError: A value is not an array of numbers, or a parameter is not floating point.
            ShapeError: Shapes do not match.
        """
        return self.forward_with_state(params, inputs, state, key=key, training=training)[0]

    def forward_with_state(
        self,
        params: Arrays,
        inputs: Arrays,
        state: Arrays | None = None,
        *,
        key: jax.Array | None = None,
        training: bool = False,
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """Return a pair: the outputs, and the state after this step, which is `{}` if the model has no state.

        Arguments and errors are those of `forward`.
        """
        params, inputs, state = self._calls.checked(params, inputs, state)
        if key is None and draws_random_numbers(self.graph, self.backend.toolkit, training):
            raise MissingInputError(
                "this model draws random numbers but receives no key.",
                (("blocks", ", ".join(self._drawing(training))),),
                "pm.forward(params, inputs, key=backend.get_random_key(), training=True)",
            )
        if self._frozen:
            params = {name: jax.lax.stop_gradient(p) if name in self._frozen else p for name, p in params.items()}
        if self._spread is not None:
            inputs = self._spread.inputs(inputs)
            params = self._spread.params(self.parameters, params)
        with jax.default_matmul_precision(self.backend.precision) if self.backend.precision else nullcontext():
            return run_with_state(
                self.graph, self._toolkit(inputs), params, inputs, state=state, key=key, training=training
            )

    def _toolkit(self, inputs: Arrays) -> Toolkit:
        """Return the toolkit that runs the blocks. In debug mode it also checks their outputs."""
        toolkit = self.backend.toolkit
        if self._placement:
            toolkit = on_devices(toolkit, self._placement)
        if self.backend.debug:
            toolkit = checking_shapes(toolkit, self._calls.inferred(inputs).blocks)
        return toolkit

    def _drawing(self, training: bool) -> list[str]:
        draws = self.backend.toolkit.draws
        return [op.path for op in flat(self.graph).ops if draws(op.block.op, op.block.options, training)]

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
            params: Parameters by name.
            inputs: Arrays by input name.
            output_gradients: d(loss)/d(output) by output name. An output that is left out has gradient 0.
            state: Arrays by name, such as running statistics: `initial_state()`, or the state after training. Required
                for a model with a state. `evaluate` does not change it.

        Returns:
            A dict of outputs by name. With `output_gradients`, a pair: this dict, and a dict of gradients by parameter
            name. The gradient of a frozen parameter is zero.

        Raises:
            MissingInputError, UnexpectedInputError, MissingParameterError: Names are missing or unknown.
            UnknownOptionError: A value is not an array of numbers, or a parameter is not floating point.
            ShapeError: Shapes do not match.
            NotANumberError: The backend is in debug mode, and an output or a gradient is NaN.
        """
        # Tracing checks the arguments, and each new set of shapes and dtypes is traced, so nothing is checked here.
        key = self.backend.get_random_key() if self._draws else None
        args = (params, inputs, output_gradients, key, state)
        # Donate only if gradients are computed: they reuse the memory of the params, which have the same shapes.
        run = self._run if self._donating is None or output_gradients is None else self._donating
        try:
            with jax.debug_nans(True) if self.backend.debug else nullcontext():
                result = run(*args)
        except FloatingPointError as error:
            self._find_nan(params, inputs, key, state)
            raise NotANumberError(
                "a gradient of this model is NaN, but its outputs are finite.",
                (("because", str(error)),),
                "Sqrt(robust=True, threshold=1e-6)  # instead of a square root of 0; avoid division by 0",
            ) from None
        if not self._texts:
            return result
        outputs, *gradients = result if output_gradients is not None else (result,)
        specs: Any = self._calls.inferred(self._calls.inputs(inputs)).outputs
        outputs = {name: specs[name].value if name in self._texts else outputs[name] for name in self.output_names}
        return (outputs, *gradients) if gradients else outputs

    def _find_nan(self, params: Arrays, inputs: Arrays, key: Any, state: Any) -> None:
        """Run block by block, and raise at the first block that outputs NaN."""
        with jax.debug_nans(False):
            params, inputs, state = self._calls.checked(params, inputs, state)
            run_with_state(
                self.graph, looking_for_nan(self.backend.toolkit), params, inputs, state=state, key=key, training=False
            )

    def __call__(self, x: Any = None, /, **named: Any) -> Any:
        """Return the outputs for the parameters in `params`, which the first call initializes randomly.

        Args:
            x: The input of a model with one input, or a dict of inputs by name.
            named: Inputs by name, instead of a dict.

        Returns:
            The output of a model with one output, else a dict of outputs by name.

        Raises:
            MissingInputError, UnexpectedInputError: Names are missing or unknown.
            ShapeError: Shapes do not match.

        Examples:
            >>> import mithril_nb as ml
            >>> pm = ml.compile(ml.models.Linear(3), ml.JaxBackend())
            >>> pm(pm.backend.ones(2, 4)).shape, pm.params["weight"].shape
            ((2, 3), (4, 3))
        """
        by_name = dict(x) if isinstance(x, Mapping) else {} if x is None else {"input": x}
        inputs = {**by_name, **named}
        if self._params is None:
            arrays = self._calls.inputs(inputs)
            inference = self._calls.inferred(arrays)
            inference.raise_problems()
            self._check_concrete(inference.parameters)
            # The model keeps the parameters after a call inside jit, so they must not be tracers.
            with jax.ensure_compile_time_eval():
                self._params = self._laid(inference.parameters, self.backend.initial_params(inference.parameters))
        outputs = self.evaluate(self._params, inputs)
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    @property
    def params(self) -> dict[str, jax.Array]:
        """The parameters that `pm(x)` uses. They are initialized randomly on first use. You can also set them."""
        if self._params is None:
            with jax.ensure_compile_time_eval():
                self._params = self.randomize_params()
        return self._params

    @params.setter
    def params(self, params: Arrays) -> None:
        self._params = dict(params)

    def _evaluate(
        self,
        params: Arrays,
        inputs: Arrays,
        output_gradients: Arrays | None = None,
        key: jax.Array | None = None,
        state: Arrays | None = None,
    ) -> Any:
        if output_gradients is None:
            result = self._arrays(params, inputs, state, key)
        else:
            result = self._evaluate_backward(params, inputs, output_gradients, key, state)
        # In a jitted program, this line runs only during tracing, so once for each set of shapes.
        self._calls.settle(inputs)
        return result

    def _arrays(self, params: Arrays, inputs: Arrays, state: Arrays | None, key: jax.Array | None) -> dict[str, Any]:
        """Return the outputs that are arrays. A jitted program cannot return text."""
        outputs = self.forward(params, inputs, state=state, key=key)
        return {name: value for name, value in outputs.items() if name not in self._texts} if self._texts else outputs

    def _evaluate_backward(
        self,
        params: Arrays,
        inputs: Arrays,
        output_gradients: Arrays,
        key: jax.Array | None = None,
        state: Arrays | None = None,
    ):
        outputs, pull_back = jax.vjp(lambda params: self._arrays(params, inputs, state, key), params)
        names = by_port(output_gradients, self.output_names, "output", argument="output_gradients")
        gradients = {
            port: as_array(f"the gradient of output {port!r}", output_gradients[name], port)
            for port, name in names.items()
            if output_gradients[name] is not None
        }
        cotangents = {}
        for name, array in outputs.items():
            gradient = gradients.get(name)
            if gradient is not None and jax.numpy.shape(gradient) != array.shape:
                raise ShapeError(
                    f"the gradient of output {name!r} does not have the shape of the output.",
                    (("output", str(array.shape)), ("gradient", str(jax.numpy.shape(gradient)))),
                    f'backend.ones_like(outputs["{name}"])',
                    port=name,
                )
            cotangents[name] = (
                jax.numpy.zeros_like(array) if gradient is None else jax.numpy.asarray(gradient, dtype=array.dtype)
            )
        return outputs, pull_back(cotangents)[0]


# `evaluate` of an instance may be the jitted `_evaluate`, so `help` on it needs the same docstring.
PhysicalModel._evaluate.__doc__ = PhysicalModel.evaluate.__doc__
