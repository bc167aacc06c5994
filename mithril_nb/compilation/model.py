"""`PhysicalModel`: a model bound to a backend, which runs and shows its stages and costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import jax

from mithril_nb import cost, stages
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.backends.jax.devices import device_name, put
from mithril_nb.backends.jax.watch import (
    Around,
    NotANumberError,
    around_blocks,
    checking_shapes,
    device_of,
    looking_for_nan,
    on_devices,
)
from mithril_nb.compilation.calls import Calls, as_array
from mithril_nb.compilation.compiled_model import Arrays, CompiledModel
from mithril_nb.compilation.inspecting import PROGRAMS, inspect_program
from mithril_nb.compilation.options import Options
from mithril_nb.compilation.spreading import ModelSharding
from mithril_nb.compilation.values import (
    BadValues,
    ByPort,
    Taps,
    TracedValues,
    by_block,
    with_static,
    without_static,
    zero_probes,
)
from mithril_nb.display import Shown
from mithril_nb.errors import MissingInputError, ShapeError, UnknownOptionError
from mithril_nb.graph.query import Found
from mithril_nb.graph.records import BOUNDARY, LogicalGraph
from mithril_nb.graph.spec import ITEM_BYTES, StaticSpec, TensorSpec
from mithril_nb.inspection import Inspection
from mithril_nb.models.naming import by_port, flat_params, input_range
from mithril_nb.models.shape_inference.flat import flat
from mithril_nb.models.shape_inference.infer import Inference, Parameter
from mithril_nb.program import check_kernels, draws_random_numbers, run_with_state


class PhysicalModel(CompiledModel, Shown):
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

    backend: JaxBackend

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
        self._inspections: dict[str, Inspection] = {}
        self._draws = draws_random_numbers(graph, backend.toolkit, False)
        self._run = self._jitted() if jit else self._evaluate
        self._donating = self._jitted(options.donated) if options.donated else None
        self._calls = Calls(graph, inference, backend, options.static_shapes, sizes)
        self._spread = None
        if backend.mesh is not None:
            self._spread = ModelSharding(backend.mesh, options.parallelism, options.replicates_inputs)
            self._spread.check(inference.inputs, inference.parameters)
        # Outputs that are names of dtypes, which a jitted program cannot return. Names of dims are no such text.
        statics = {name: spec.value for name, spec in inference.outputs.items() if isinstance(spec, StaticSpec)}
        self._texts = [name for name, value in statics.items() if isinstance(value, str) and value in ITEM_BYTES]
        # `stop_gradient` gives these parameters a zero gradient, and lets XLA drop their backward pass.
        self._frozen = frozenset(parameter.name for parameter in inference.parameters if not parameter.is_trainable)
        if not (self._draws or inference.states or options.donated or backend.debug or self._texts):
            # A call of a small model takes about 10 us, so avoid a Python frame between the caller and XLA.
            self.__dict__["evaluate"] = self._run

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
    def needs_key(self) -> bool:
        """True if the model draws random numbers in training."""
        return draws_random_numbers(self.graph, self.backend.toolkit, True)

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

    def initial_state(self) -> dict[str, jax.Array]:
        """Return the state before the first step, such as running statistics: arrays by name.

        The dict is empty if the model has no state.

        Raises:
            ShapeError: The shape of a state is still unknown.
        """
        self._check_concrete(self.states)
        return self._laid(self.states, self.backend.initial_params(self.states, 0)) if self.states else {}

    def _laid(self, arrays: Sequence[Parameter], values: dict[str, jax.Array]) -> dict[str, jax.Array]:
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
        return self._run_blocks(params, inputs, state, key, training)

    def forward_with_values(
        self,
        params: Arrays,
        inputs: Arrays,
        state: Arrays | None = None,
        *,
        key: jax.Array | None = None,
        training: bool = False,
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array], ByPort]:
        """Return the results of `forward_with_state`, and the outputs of each block that is not composite, by path.

        Arguments and errors are those of `forward`.
        """
        taps = Taps()
        outputs, after = self._run_blocks(params, inputs, state, key, training, taps)
        return outputs, after, taps.values

    def _run_blocks(
        self,
        params: Arrays,
        inputs: Arrays,
        state: Arrays | None,
        key: jax.Array | None,
        training: bool,
        taps: Taps | None = None,
        around: Around | None = None,
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        params, inputs, state = self._calls.checked(params, inputs, state)
        # A default key would give the same "random" numbers in each step.
        if key is None and draws_random_numbers(self.graph, self.backend.toolkit, training):
            draws = self.backend.toolkit.draws
            blocks = [op.path for op in flat(self.graph).ops if draws(op.block.op, op.block.options, training)]
            raise MissingInputError(
                "this model draws random numbers but receives no key.",
                (("blocks", ", ".join(blocks)),),
                "pm.forward(params, inputs, key=backend.get_random_key(), training=True)",
            )
        if self._frozen:
            params = {name: jax.lax.stop_gradient(p) if name in self._frozen else p for name, p in params.items()}
        if self._spread is not None:
            inputs = self._spread.inputs(inputs)
            params = self._spread.params(self.parameters, params)
        toolkit = self.backend.toolkit
        if self._placement:
            toolkit = on_devices(toolkit, self._placement)
        if self.backend.debug:
            toolkit = checking_shapes(toolkit, self._calls.inferred(inputs).blocks)
        if taps is not None:
            inputs, around = taps.record(BOUNDARY, inputs), taps.around
        if around is not None:
            toolkit = around_blocks(toolkit, around)
        with jax.default_matmul_precision(self.backend.precision) if self.backend.precision else nullcontext():
            return run_with_state(self.graph, toolkit, params, inputs, state=state, key=key, training=training)

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
            # JAX's error does not name the block. Running op by op raises at the block that returns the first NaN.
            toolkit = looking_for_nan(self.backend.toolkit)
            with jax.debug_nans(False):
                params, inputs, state = self._calls.checked(params, inputs, state)
                run_with_state(self.graph, toolkit, params, inputs, state=state, key=key, training=False)
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

    def _first_params(self, inputs: Arrays) -> dict[str, jax.Array]:
        inference = self._calls.inferred(self._calls.inputs(inputs))
        inference.raise_problems()
        self._check_concrete(inference.parameters)
        return self._laid(inference.parameters, self.backend.initial_params(inference.parameters))

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
        return outputs, pull_back(self._cotangents(outputs, output_gradients))[0]

    def _cotangents(self, outputs: Arrays, output_gradients: Arrays) -> dict[str, jax.Array]:
        names = by_port(output_gradients, self.output_names, "output", argument="output_gradients")
        gradients = {
            port: as_array(f"the gradient of output {port!r}", output_gradients[name], port)
            for port, name in names.items()
            if output_gradients[name] is not None
        }
        cotangents = {}
        for name, array in outputs.items():
            gradient = gradients.get(name)
            # The error of `jax.vjp` would not name the output.
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
        return cotangents

    def trace_values(
        self,
        inputs: Arrays,
        params: Arrays | None = None,
        gradients: bool | Arrays = False,
        *,
        state: Arrays | None = None,
        key: jax.Array | None = None,
        training: bool = False,
    ) -> TracedValues:
        """Return the output of each block for some inputs, and find the first NaN or infinity.

        All outputs are computed by one jitted function. It is compiled once for each set of shapes and dtypes, and
        keeps all outputs in memory.

        Args:
            inputs: Arrays by input name.
            params: Parameters by name; by default those in `pm.params`.
            gradients: True to add the gradient of the loss with respect to each output. The model must then return one
                scalar; for another model, pass d(loss)/d(output) by output name instead, as in `evaluate`.
            state: State after training, for a model with a state; by default `initial_state()`.
            key: Random key, required if a block draws random numbers.
            training: True if blocks such as Dropout behave as in training.

        Raises:
            MissingInputError: `gradients` is True, and the model does not return one scalar.
            UnexpectedInputError, MissingParameterError, UnknownOptionError, ShapeError: As in `forward`.

        Examples:
            >>> import numpy as np
            >>> import mithril_nb as ml
            >>> model = ml.models.Model() + ml.models.Linear(2) + ml.models.Log() + ml.models.Sum()
            >>> pm = ml.compile(model, shapes={"input": [1, 3]})
            >>> params = {"linear_0.weight": np.ones((3, 2)), "linear_0.bias": np.zeros(2)}
            >>> trace = pm.trace_values({"input": np.zeros((1, 3))}, params)
            >>> trace.values["log_0"].tolist(), trace.statistics["log_0"].inf
            ([[-inf, -inf]], 2)
            >>> print(trace.first_bad)
            'log_0.output' has inf, and the inputs of the block have none.
                equation  log of (1, 2) from 0 to 0
                block     model += Log()
                Try: robust=True
        """
        params = self.params if params is None else params
        state = self.initial_state() if state is None else state
        output_gradients = None
        if gradients is True:
            output_gradients = self._gradient_of_loss("trace_values", "gradients", "inputs, gradients=")
        elif isinstance(gradients, Mapping):
            output_gradients = dict(gradients)
        tapped, outputs, by_probe, by_param = self._tapping(params, inputs, state, key, output_gradients, training)
        values = without_static(tapped)

        def replay(around: Around) -> object:
            return self._run_blocks(params, inputs, state, key, training, around=around)

        bad = BadValues(self.graph, values, replay, flat_params({**params, **state}))
        return TracedValues(
            by_block(self.graph, values),
            by_block(self.graph, by_probe),
            without_static(outputs),
            bad.first(),
            bad.first_gradient(by_probe, by_param) if output_gradients is not None else None,
        )

    def trace_attention(
        self, inputs: Arrays, params: Arrays | None = None, *, state: Arrays | None = None
    ) -> dict[str, jax.Array]:
        """Return the attention weights of each `ScaledDotProduct` by its path, without dropout.

        An array has the axes `(..., heads, query time, key time)`. The weights of a query are 0 for masked keys; their
        sum is 1, or 0 if the query sees no key. Blocks inside a block that runs others, such as `Repeat`, have none.

        Args:
            inputs: Arrays by input name.
            params: Parameters by name; by default those in `pm.params`.
            state: State after training, for a model with a state; by default `initial_state()`.

        Raises:
            UnexpectedInputError, MissingParameterError, UnknownOptionError, ShapeError: As in `forward`.

        Examples:
            >>> import numpy as np
            >>> import mithril_nb as ml
            >>> pm = ml.compile(ml.models.MultiHeadAttention(8, 2, is_causal=True), shapes={"input": [1, 3, 8]})
            >>> weights = pm.trace_attention({"input": np.ones((1, 3, 8))}, pm.randomize_params(0))
            >>> {path: array.shape for path, array in weights.items()}
            {'attention': (1, 2, 3, 3)}
        """
        params = self.params if params is None else params
        return self._attending(params, inputs, self.initial_state() if state is None else state)

    @cached_property
    def _attending(self) -> Any:
        blocks = {op.path for op in flat(self.graph).ops if op.block.op == "scaled_dot_product"}

        def run_blocks(params: Arrays, inputs: Arrays, state: Arrays) -> Any:
            weights: dict[str, Any] = {}

            def around(path: str, arrays: Arrays, run: Callable[[Arrays], Arrays]) -> Arrays:
                if path in blocks:  # the mean of one-hot values, by the weights, is the weights
                    *lead, size, _ = arrays["value"].shape
                    one_hot = jax.numpy.broadcast_to(
                        jax.numpy.eye(size, dtype=arrays["value"].dtype), (*lead, size, size)
                    )
                    weights[path] = run({**arrays, "value": one_hot})["output"]
                return run(arrays)

            self._run_blocks(params, inputs, state, None, False, around=around)
            return weights

        return jax.jit(run_blocks) if self.jit else run_blocks

    @cached_property
    def _tapping(self) -> Any:
        options = dict(self.options.compiler_options) or None
        return jax.jit(self._tapped, static_argnums=5, compiler_options=options) if self.jit else self._tapped

    def _tapped(
        self,
        params: Arrays,
        inputs: Arrays,
        state: Arrays,
        key: jax.Array | None,
        output_gradients: Arrays | None,
        training: bool,
    ) -> tuple[Any, Any, dict[str, dict[str, Any]], dict[str, Any]]:

        def run(params: Arrays, probes: ByPort) -> Any:
            taps = Taps(probes)
            outputs, _ = self._run_blocks(params, inputs, state, key, training, taps)
            arrays = {name: value for name, value in outputs.items() if name not in self._texts}
            return arrays, (with_static(taps.values), with_static(outputs))

        if output_gradients is None:
            return (*run(params, {})[1], {}, {})
        probes = zero_probes(jax.eval_shape(lambda: run(params, {})[1][0]))
        arrays, pull_back, results = jax.vjp(run, params, probes, has_aux=True)
        by_param, by_probe = pull_back(self._cotangents(arrays, output_gradients))
        return (*results, by_probe, flat_params(by_param))

    # Stages and costs

    def inspect(self, program: str = "forward", device: Any = None) -> Inspection:
        """Return the stages of a program, from Python to machine code, with their provenance. Does not run it.

        Args:
            program: `"forward"`, or `"forward+backward"`, which also computes the gradients of the parameters.
            device: A device that this machine need not have, as in `ml.inspect`; by default that of the backend.

        Raises:
            ShapeError: The shape of an input is not concrete.
            UnknownOptionError: The program does not exist.
        """
        if program not in PROGRAMS:
            raise UnknownOptionError(
                f"unknown program {program!r}.", (("known", ", ".join(PROGRAMS)),), 'pm.inspect("forward")'
            )
        if program not in self._inspections:
            params, inputs, outputs = self.example_specs()
            specs = (params, inputs, None if program == "forward" else outputs)
            if self._draws or self.states:
                specs = (*specs, jax.eval_shape(lambda: jax.random.key(0)) if self._draws else None)
            if self.states:
                specs = (*specs, structs({state.name: state.spec for state in self.states}))
            # The stages must show the program that runs, so they are compiled with the same options.
            options = {"device": self.backend.device, "compiler_options": self.options.compiler_options}
            self._inspections[program] = inspect_program(self.graph, program, self._evaluate, specs, options)
        inspection = self._inspections[program]
        return inspection if device is None else inspection.on(device)

    def find(self, query: str, program: str = "forward") -> Found:
        """Return the equations of a program that match a query, such as `"kind:dot flops>1e6"`.

        Args:
            query: The query; `Inspection.find` describes its language.
            program: The program, as in `inspect`.

        Raises:
            UnknownOptionError: The query is invalid, or the program does not exist.

        Examples:
            >>> from mithril_nb.compilation import compile
            >>> from mithril_nb.models import Linear, Model, Relu
            >>> pm = compile(Model() + Linear(8) + Relu(), shapes={"input": (4, 3)})
            >>> [match.kind for match in pm.find("block:linear_0 flops>1")]
            ['dot_general', 'add']
        """
        return self.inspect(program).find(query)

    @property
    def param_specs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shape and dtype of each parameter, as `randomize_params` returns it. Nothing is drawn or allocated.

        Raises:
            ShapeError: The shape of a parameter is still unknown.
            UnknownOptionError: A parameter has 64 bits, and JAX's x64 mode is off.
        """
        self._check_concrete(self.parameters)
        for dtype in {parameter.spec.dtype for parameter in self.parameters}:
            self.backend.zeros(0, dtype=dtype)  # raises as `randomize_params` would
        return structs({parameter.name: parameter.spec for parameter in self.parameters})

    def example_specs(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return three dicts from name to `jax.ShapeDtypeStruct`: params, inputs, and the outputs that are arrays.

        Raises:
            ShapeError: The shape of an input is not concrete.
        """
        for name, spec in self.input_specs.items():
            if not spec.is_concrete:
                raise ShapeError(
                    f"the shape of input {name!r} is not concrete.",
                    (("so far", str(spec)),),
                    self._calls.with_shapes(),
                    port=name,
                )
        outputs = {name: spec for name, spec in self.output_specs.items() if isinstance(spec, TensorSpec)}
        params = {parameter.name: parameter.spec for parameter in self.parameters}
        return structs(params), structs(self.input_specs), structs(outputs)

    def _check_concrete(self, arrays: Sequence[Parameter]) -> None:
        for array in arrays:
            if not array.spec.is_concrete:
                name = next(iter(self.input_specs), "input")
                raise ShapeError(
                    f"the shape of {array.name!r} is unknown.",
                    (("so far", str(array.spec)), ("input", f"{name!r} {self.input_specs.get(name)}")),
                    self._calls.with_shapes(),
                    block=array.path,
                    port=array.port,
                )

    @property
    def jaxpr(self) -> stages.Stage:
        """The jaxpr of the forward program."""
        return self.inspect().stage("jaxpr")

    @property
    def stablehlo(self) -> stages.Stage:
        """The StableHLO of the forward program."""
        return self.inspect().stage("stablehlo")

    @property
    def hlo(self) -> stages.Stage:
        """The optimized HLO of the forward program. Compiles the program on first use."""
        return self.inspect().stage("hlo")

    @property
    def xla_computation(self) -> str | None:
        """StableHLO of the forward program; `None` unless compiled with `jit_options={"xla_computation": True}`."""
        return self.inspect().lowered.as_text() if self.options.keeps_xla else None

    @property
    def cost(self) -> cost.Cost:
        """The cost of each block of the forward program, from the jaxpr. `inspect().costs()` adds XLA's view."""
        return cost.cost_of(self.inspect())

    @property
    def memory(self) -> cost.Memory | None:
        """Bytes that the compiled forward program needs; `None` if unknown. Compiles the program on first use."""
        inspection = self.inspect()
        # Compiled before the analysis, so that an error of the compiler is raised and not read as unknown memory.
        _ = inspection.optimized
        return cost.xla_memory(lambda: inspection.analysis("memory"))


def structs(specs: Mapping[str, TensorSpec]) -> dict[str, jax.ShapeDtypeStruct]:
    """Return specs as the shapes and dtypes of JAX."""
    return {name: jax.ShapeDtypeStruct(spec.shape, spec.dtype) for name, spec in specs.items()}


# `evaluate` of an instance may be the jitted `_evaluate`, so `help` on it needs the same docstring.
PhysicalModel._evaluate.__doc__ = PhysicalModel.evaluate.__doc__
