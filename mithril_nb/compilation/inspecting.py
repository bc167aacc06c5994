"""The specs, stages and costs of a compiled model, with the model's Python source and block kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax

from mithril_nb import cost, stages
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.compilation.calls import Calls
from mithril_nb.compilation.evaluating import EvaluatesAll
from mithril_nb.compilation.options import Options
from mithril_nb.display import Shown
from mithril_nb.errors import ShapeError, UnknownOptionError
from mithril_nb.graph.ports import Ports
from mithril_nb.graph.query import Found
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import Spec, TensorSpec
from mithril_nb.inspection import Inspection
from mithril_nb.models.rules import OPS
from mithril_nb.models.saving.formats import source_lines
from mithril_nb.models.shape_inference.flat import flat
from mithril_nb.models.shape_inference.infer import Inference, Parameter
from mithril_nb.stages.inspect_options import InspectOptions
from mithril_nb.stages.param_names import DEFAULT
from mithril_nb.stages.trace.provenance.frames import calling_line
from mithril_nb.stages.trace.tracing import checked_params

PROGRAMS = ("forward", "forward+backward")
"""Programs of a physical model. A train step is not among them, because it needs a loss and an optimizer."""


def inspect_program(
    graph: LogicalGraph, name: str, fn: Callable[..., Any], specs: tuple[Any, ...], options: Mapping[str, Any]
) -> Inspection:
    """Return the stages of a program of a model, linked to the Python that builds the model."""
    defaults: dict[str, Any] = {
        "name": name,
        "source": source_lines(graph),
        "requested_at": calling_line(),
        "kinds": {path: node.block.kind for path, node in graph.walk()},
        "params": DEFAULT,
    }
    fields = {**defaults, **options}
    fields["params"] = checked_params(fn, specs, fields["params"], fields["name"])
    return Inspection(fn, specs, InspectOptions(**fields, ports=ports_of(graph)))


def ports_of(graph: LogicalGraph) -> Ports:
    """Return how the blocks of a graph are connected."""
    flat_graph = flat(graph)
    sources = {path: ends for path, (ends, _) in flat_graph.groups.items()} | {
        op.path: op.sources for op in flat_graph.ops
    }
    in_order = {name for name, rule in OPS.items() if rule.computes_in_order}
    return Ports(
        {path: {port: (end.node, end.port) for port, end in ends.items()} for path, ends in sources.items()},
        {op.path: tuple(op.outputs) for op in flat_graph.ops if len(op.outputs) == 1 or op.block.op in in_order},
    )


class InspectedModel(EvaluatesAll, Shown):
    """The part of a `PhysicalModel` that runs nothing: its specs, and the stages and costs of its programs."""

    graph: LogicalGraph
    backend: JaxBackend
    inference: Inference
    options: Options
    _calls: Calls
    _draws: bool
    _evaluate: Callable[..., Any]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the model, frozen ones included."""
        return self.inference.parameters

    @property
    def states(self) -> tuple[Parameter, ...]:
        """Arrays that a step passes to the next, such as running statistics."""
        return self.inference.states

    @property
    def input_specs(self) -> Mapping[str, TensorSpec]:
        """Spec of each input."""
        return self.inference.inputs

    @property
    def output_specs(self) -> Mapping[str, Spec | None]:
        """Spec of each output."""
        return self.inference.outputs

    def inspect(self, program: str = "forward") -> Inspection:
        """Return the stages of a program, from Python to machine code, with their provenance. Does not run it.

        Args:
            program: `"forward"`, or `"forward+backward"`, which also computes the gradients of the parameters.

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
            key = (jax.eval_shape(lambda: jax.random.key(0)) if self._draws else None,)
            key = (*key, _structs({state.name: state.spec for state in self.states})) if self.states else key
            key = key if key != (None,) else ()
            specs = (params, inputs, None if program == "forward" else outputs, *key)
            options = {"device": self.backend.device, "compiler_options": self.options.compiler_options}
            self._inspections[program] = inspect_program(self.graph, program, self._evaluate, specs, options)
        return self._inspections[program]

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

    @cached_property
    def _inspections(self) -> dict[str, Inspection]:
        return {}

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
        return _structs({parameter.name: parameter.spec for parameter in self.parameters})

    def example_specs(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return three dicts from name to `jax.ShapeDtypeStruct`: params, inputs, and the outputs that are arrays.

        Raises:
            ShapeError: The shape of an input is not concrete.
        """
        self._calls.check_concrete_inputs()
        outputs = {name: spec for name, spec in self.output_specs.items() if isinstance(spec, TensorSpec)}
        params = {parameter.name: parameter.spec for parameter in self.parameters}
        return _structs(params), _structs(self.input_specs), _structs(outputs)

    def _check_concrete(self, arrays: Sequence[Parameter]) -> None:
        open_ones = [array for array in arrays if not array.spec.is_concrete]
        if open_ones:
            name = next(iter(self.input_specs), "input")
            noun = "state" if open_ones[0] in self.states else "parameter"
            raise ShapeError(
                f"the shape of {noun} {open_ones[0].name!r} is unknown.",
                (("so far", str(open_ones[0].spec)), ("input", f"{name!r} {self.input_specs.get(name)}")),
                self._calls.with_shapes(),
                block=open_ones[0].path,
                port=open_ones[0].port,
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
        _ = inspection.optimized
        return cost.xla_memory(lambda: inspection.analysis("memory"))


def _structs(specs: Mapping[str, TensorSpec]) -> dict[str, jax.ShapeDtypeStruct]:
    return {name: jax.ShapeDtypeStruct(spec.shape, spec.dtype) for name, spec in specs.items()}
