"""`compile()`: a logical model and a backend become a physical model, that runs and shows what it is made of.

It stands above `stages` and `cost`, so that a physical model can answer with them, and below `train`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax

from mithril_nb import cost, stages
from mithril_nb.backends.backend import check_switch
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.display import Shown
from mithril_nb.errors import (
    MissingInputError,
    ShapeError,
    UnknownOptionError,
    refuse_unknown,
)
from mithril_nb.graph.check import check
from mithril_nb.graph.edit import alone
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.graph.spec import Dim, Spec, TensorSpec
from mithril_nb.models.flat import flat
from mithril_nb.models.infer import Inference, Parameter, infer
from mithril_nb.models.model import Model
from mithril_nb.models.naming import by_port, input_range, input_specs
from mithril_nb.physical.calls import Calls, as_array
from mithril_nb.program import check_kernels, draws_random_numbers, run_with_state

Arrays = Mapping[str, Any]
PROGRAMS = ("forward", "forward+backward")
"""Programs that a physical model has by itself; a train step needs a loss and an optimizer, see `ml.fit`."""


def compile(
    model: Model | LogicalGraph | Block,
    backend: JaxBackend | None = None,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    jit: bool | None = None,
    verbose: bool = False,
    **unknown: Any,
) -> PhysicalModel:
    """Bind a logical model to a backend.

    Args:
        model: What to compile, as it is now: later changes of it leave the result as it is.
        backend: Where it shall run; by default `JaxBackend()`.
        shapes: Shape of each input; a dim may be a name (`["batch", 784]`). Whatever is left out is taken from the
            blocks where they say it, else from the first arrays.
        jit: Whether programs are jitted; by default as the backend says.
        verbose: Whether to print the shapes that were inferred.
        **unknown: Refused, with the names of those that there are.

    Returns:
        The physical model. XLA compiles when it is first run, or when a stage is asked for.

    Raises:
        ShapeError: Shapes that do not fit; all of them at once.
        UnexpectedInputError: `shapes` names an input that the model does not have.
        UnknownOptionError: An argument that does not exist, or a shape that is none.
        UnknownOpError: The backend cannot run a block.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> pm = compile(Linear(dimension=64), shapes={"input": [32, 128]})
        >>> pm.evaluate(pm.randomize_params(), {"input": pm.backend.randn(32, 128)})["output"].shape
        (32, 64)
    """
    refuse_unknown("compile", unknown, compile)
    check_switch("jit", jit, "ml.compile(model, backend, jit=False)")
    backend = JaxBackend() if backend is None else backend
    if not isinstance(backend, JaxBackend):
        raise UnknownOptionError(
            f"cannot compile for {backend!r}.", (("needs", "a backend that runs models"),), "ml.JaxBackend()"
        )
    graph = graph_of(model)
    inference = infer(graph, input_specs(graph, shapes or {}, backend.default_dtype), backend.default_dtype)
    inference.raise_problems()
    compiled = PhysicalModel(graph, backend, inference, backend.jit if jit is None else jit)
    if verbose:
        print(shape_log(inference))
    return compiled


def graph_of(model: Model | LogicalGraph | Block) -> LogicalGraph:
    """Return the logical graph of whatever can be compiled.

    Raises:
        UnknownOptionError: It is no model.
        ConnectionError, CycleError, NameTakenError, UnconnectedPortError: A graph that does not hold together.
    """
    if isinstance(model, LogicalGraph):
        check(model)
        return model
    block = model.block if isinstance(model, Model) else model
    if not isinstance(block, Block):
        raise UnknownOptionError(f"cannot compile {model!r}.", (("needs", "a model"),), "ml.compile(Linear(10), ...)")
    return alone(block)


def shape_log(inference: Inference) -> str:
    """Return the inferred shapes as text, a line for each input, block and parameter."""
    lines = [f"{name:<24} {spec}" for name, spec in inference.inputs.items()]
    lines += [f"{path:<24} {next(iter(specs.outputs.values()), '')}" for path, specs in inference.blocks.items()]
    lines += [f"{parameter.name:<24} {parameter.spec}" for parameter in inference.parameters]
    return "\n".join(lines)


class PhysicalModel(Shown):
    """A model bound to a backend: runs, and shows its stages and costs.

    Attributes:
        graph: The logical graph that it was made from.
        backend: The backend that it runs on.
        inference: Specs of everything in it.
        jit: Whether `evaluate` is jitted.

    Raises:
        UnknownOpError: The backend cannot run a block.
    """

    is_immutable = True
    """`fit` may keep what it compiled for it, and use it again in the next run."""

    def __init__(self, graph: LogicalGraph, backend: JaxBackend, inference: Inference, jit: bool):
        check_kernels(graph, backend.toolkit)
        self.graph, self.backend, self.inference, self.jit = graph, backend, inference, jit
        self._draws = draws_random_numbers(graph, backend.toolkit, False)
        self._run = jax.jit(self._evaluate) if jit else self._evaluate
        self._calls = Calls(graph, inference, backend.default_dtype)
        self._frozen = frozenset(parameter.name for parameter in inference.parameters if not parameter.is_trainable)
        if not self._draws and not inference.states:
            # A call of a small model takes some 10 us: no Python frame of ours stands between the caller and XLA.
            self.__dict__["evaluate"] = self._run

    def __repr__(self) -> str:
        return f"PhysicalModel({', '.join(node.name for node in self.graph.nodes)}; backend={self.backend!r})"

    # What it takes and gives

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its trainable arrays."""
        return self.inference.parameters

    @property
    def states(self) -> tuple[Parameter, ...]:
        """Its arrays that a step hands to the next, such as running statistics."""
        return self.inference.states

    @property
    def input_specs(self) -> Mapping[str, TensorSpec]:
        """Spec of each input."""
        return self.inference.inputs

    @cached_property
    def input_ranges(self) -> Mapping[str, tuple[int, int]]:
        """Least and largest whole number of each input that a block reads as such, as Embedding does."""
        found = {name: input_range(self.graph, name) for name in self.input_specs}
        return {name: bounds for name, bounds in found.items() if bounds}

    @property
    def output_specs(self) -> Mapping[str, Spec | None]:
        """Spec of each output."""
        return self.inference.outputs

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """Names of its inputs."""
        return tuple(self.inference.inputs)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """Names of its outputs."""
        return tuple(self.inference.outputs)

    @cached_property
    def needs_key(self) -> bool:
        """Whether it draws random numbers in training."""
        return draws_random_numbers(self.graph, self.backend.toolkit, True)

    def get_layer_names(self) -> tuple[str, ...]:
        """Return the paths of the blocks that have parameters, in order, with dots."""
        return tuple(dict.fromkeys(p.name.rpartition(".")[0] for p in self.parameters if "." in p.name))

    # Running

    def randomize_params(self, seed: int | None = None) -> dict[str, jax.Array]:
        """Return starting values for all parameters.

        Args:
            seed: The same seed gives the same values; by default the backend's stream of random numbers goes on.

        Raises:
            ShapeError: The shape of a parameter is not known yet.
            UnknownOptionError: The seed is no whole number.
        """
        self._check_concrete(self.parameters)
        return self.backend.initial_params(self.parameters, seed)

    def initial_state(self) -> dict[str, jax.Array]:
        """Return what the first step finds in the place of a state; empty for a model without.

        Raises:
            ShapeError: The shape of a state is not known yet.
        """
        self._check_concrete(self.states)
        return self.backend.initial_params(self.states, 0) if self.states else {}

    def _check_concrete(self, arrays: Sequence[Parameter]) -> None:
        open_ones = [array for array in arrays if not array.spec.is_concrete]
        if open_ones:
            name = next(iter(self.input_specs), "input")
            what = "state" if open_ones[0] in self.states else "parameter"
            raise ShapeError(
                f"the shape of {what} {open_ones[0].name!r} is not known.",
                (("so far", str(open_ones[0].spec)), ("input", f"{name!r} {self.input_specs.get(name)}")),
                self._calls.with_shapes(),
                block=open_ones[0].path,
                port=open_ones[0].port,
            )

    def forward(
        self,
        params: Arrays,
        inputs: Arrays,
        *,
        state: Arrays | None = None,
        key: jax.Array | None = None,
        training: bool = False,
    ) -> dict[str, jax.Array]:
        """Return the outputs: a pure function, to be traced, jitted, differentiated or mapped as you like.

        Args:
            params: Parameters by name; `{"linear_0.weight": w}` or `{"linear_0": {"weight": w}}`.
            inputs: Arrays by name of the input.
            state: What the step before left, for a model with a state.
            key: Random key; needed where a block draws.
            training: Whether blocks such as Dropout act as in training.

        Raises:
            MissingInputError, UnexpectedInputError, MissingParameterError: Names that do not fit.
            ShapeError: Shapes that do not fit.
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
        """Return the outputs as `forward` does, and the state for the step after: `{}` for a model without.

        Raises:
            MissingInputError, UnexpectedInputError, MissingParameterError: Names that do not fit.
            ShapeError: Shapes that do not fit.
        """
        params, inputs, state = self._calls.checked(params, inputs, state)
        if key is None and draws_random_numbers(self.graph, self.backend.toolkit, training):
            raise MissingInputError(
                "this model draws random numbers and got no key.",
                (("blocks", ", ".join(self._drawing(training))),),
                "pm.forward(params, inputs, key=backend.get_random_key(), training=True)",
            )
        if self._frozen:
            params = {name: jax.lax.stop_gradient(p) if name in self._frozen else p for name, p in params.items()}
        precision = self.backend.precision
        if precision is None:
            return run_with_state(
                self.graph, self.backend.toolkit, params, inputs, state=state, key=key, training=training
            )
        with jax.default_matmul_precision(precision):
            return run_with_state(
                self.graph, self.backend.toolkit, params, inputs, state=state, key=key, training=training
            )

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
        """Return the outputs, and the gradients of the parameters if output gradients are given.

        Args:
            params: Parameters by name.
            inputs: Arrays by name of the input.
            output_gradients: Gradient of some loss by each output; outputs that are left out count as zero.
            state: What training left, for a model with a state; it is read, and stays as it is.

        Returns:
            A dict of outputs; with `output_gradients` a pair of that and a dict of gradients by parameter name. The
            gradient of a parameter that is not trained is zero.

        Raises:
            MissingInputError, UnexpectedInputError, MissingParameterError: Names that do not fit.
            ShapeError: Shapes that do not fit.
        """
        # Nothing is checked here: a call of a new form is traced, and tracing checks; a known one is known good.
        key = self.backend.get_random_key() if self._draws else None
        return self._run(params, inputs, output_gradients, key, state)

    def _evaluate(
        self,
        params: Arrays,
        inputs: Arrays,
        output_gradients: Arrays | None = None,
        key: jax.Array | None = None,
        state: Arrays | None = None,
    ) -> Any:
        if output_gradients is None:
            return self.forward(params, inputs, state=state, key=key)
        return self._evaluate_backward(params, inputs, output_gradients, key, state)

    def _evaluate_backward(
        self,
        params: Arrays,
        inputs: Arrays,
        output_gradients: Arrays,
        key: jax.Array | None = None,
        state: Arrays | None = None,
    ):
        outputs, pull_back = jax.vjp(lambda params: self.forward(params, inputs, state=state, key=key), params)
        names = by_port(output_gradients, self.output_names, "output", what="output_gradients")
        given = {
            port: as_array(f"the gradient of output {port!r}", output_gradients[name], port)
            for port, name in names.items()
            if output_gradients[name] is not None
        }
        whole = {}
        for name, array in outputs.items():
            gradient = given.get(name)
            if gradient is not None and jax.numpy.shape(gradient) != array.shape:
                raise ShapeError(
                    f"the gradient of output {name!r} has another shape than the output.",
                    (("output", str(array.shape)), ("gradient", str(jax.numpy.shape(gradient)))),
                    f'backend.ones_like(outputs["{name}"])',
                    port=name,
                )
            whole[name] = (
                jax.numpy.zeros_like(array) if gradient is None else jax.numpy.asarray(gradient, dtype=array.dtype)
            )
        return outputs, pull_back(whole)[0]

    # What it is made of

    def inspect(self, program: str = "forward") -> stages.Inspection:
        """Return the stages of a program, from jaxpr to optimized HLO, with their provenance. Nothing is run.

        Args:
            program: `"forward"`, or `"forward+backward"`: outputs and gradients of the parameters for given output
                gradients.

        Raises:
            ShapeError: The shape of an input is not known in numbers.
            UnknownOptionError: No such program.
        """
        if program not in PROGRAMS:
            raise UnknownOptionError(
                f"unknown program {program!r}.", (("known", ", ".join(PROGRAMS)),), 'pm.inspect("forward")'
            )
        if program not in self._inspections:
            params, inputs, outputs = self.example_specs()
            key = (jax.eval_shape(lambda: jax.random.key(0)) if self._draws else None,)
            key = (*key, _structs({one.name: one.spec for one in self.states})) if self.states else key
            key = key if key != (None,) else ()
            device = self.backend.device
            if program == "forward":
                found = stages.inspect(self._evaluate, params, inputs, None, *key, name=program, device=device)
            else:
                found = stages.inspect(self._evaluate, params, inputs, outputs, *key, name=program, device=device)
            self._inspections[program] = found
        return self._inspections[program]

    @cached_property
    def _inspections(self) -> dict[str, stages.Inspection]:
        return {}

    def example_specs(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return params, inputs and outputs as `jax.ShapeDtypeStruct`s.

        Raises:
            ShapeError: The shape of an input is not known in numbers.
        """
        for name, spec in self.input_specs.items():
            if not spec.is_concrete:
                raise ShapeError(
                    f"the shape of input {name!r} is not known in numbers.",
                    (("so far", str(spec)),),
                    self._calls.with_shapes(),
                    port=name,
                )
        outputs = {name: spec for name, spec in self.output_specs.items() if isinstance(spec, TensorSpec)}
        params = {parameter.name: parameter.spec for parameter in self.parameters}
        return _structs(params), _structs(self.input_specs), _structs(outputs)

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
        """The optimized HLO of the forward program; compiles it."""
        return self.inspect().stage("hlo")

    @property
    def cost(self) -> cost.CostReport:
        """What each block of the forward program costs, beside what XLA says of the whole; compiles it."""
        return cost.with_xla(cost.report(self.inspect()), self.inspect(), compile=True)

    @property
    def memory(self) -> cost.Memory | None:
        """Bytes that the compiled forward program needs; compiles it."""
        return self.cost.memory


# `evaluate` of an instance is the jitted `_evaluate`: help on it shall say the same.
PhysicalModel._evaluate.__doc__ = PhysicalModel.evaluate.__doc__


def _structs(specs: Mapping[str, TensorSpec]) -> dict[str, jax.ShapeDtypeStruct]:
    return {name: jax.ShapeDtypeStruct(spec.shape, spec.dtype) for name, spec in specs.items()}
