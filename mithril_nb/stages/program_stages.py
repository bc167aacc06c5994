"""All stages of one program and the links between them, each made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar

import jax

from mithril_nb.display import Shown
from mithril_nb.stages.failure import made, none_named, not_compiled, not_traced
from mithril_nb.stages.graph.stage_graph import StageGraph
from mithril_nb.stages.graph.tree import stage_graph
from mithril_nb.stages.instruction_history import find_instruction, history_of, read_outcomes
from mithril_nb.stages.links import linked
from mithril_nb.stages.machine.kernels import Kernel
from mithril_nb.stages.once import Once
from mithril_nb.stages.pipeline import STAGES, InspectOptions, Pipeline
from mithril_nb.stages.records import Equation, Input, Stage
from mithril_nb.stages.trace.dataflow import Value as ArrayValue
from mithril_nb.stages.trace.traced import Program
from mithril_nb.stages.trace.tracing import Leaf, shape_of
from mithril_nb.stages.xla.buffers import Buffer
from mithril_nb.stages.xla.live_ranges import LiveRanges
from mithril_nb.stages.xla.passes import InstructionHistory, Pass

Value = TypeVar("Value")


class ProgramStages(Shown):
    """A program at every stage between Python and the machine. Nothing of it is executed.

    Stages are made when they are asked for, kept, and may be asked for from several threads.

    Attributes:
        name: Name of the program.
        stages: Names of its stages, in order.
        arguments: What it is traced with: arrays by their shapes.
        device: The `jax.Device` that it is for; `None` for JAX's own default.
        check_sizes: Raises for numbers that its sizes with names cannot have; `None` if nobody knows of any.
        given: What it was given as, if it begins at a later stage than Python; else `None`.
    """

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], options: InspectOptions):
        self.name, self.stages = options.name or getattr(fn, "__name__", type(fn).__name__), STAGES
        self.arguments: tuple[Any, ...] = jax.tree.map(shape_of, args)
        self._fn, self._options, self.device = fn, options, options.device
        self.check_sizes, self.given = options.check_sizes, options.given
        self._pipeline = pipeline = Pipeline(fn, self.arguments, options)
        self._outcomes = Once(lambda: read_outcomes(pipeline))
        self._figures = {
            "lowered": Once(lambda: pipeline.lowered.get().cost_analysis()),
            "compiled": Once(lambda: pipeline.optimized.get().cost_analysis()),
            "memory": Once(lambda: pipeline.optimized.get().memory_analysis()),
        }
        self._graphs = {name: Once(partial(self._graph_of, name)) for name in self.stages}

    def __repr__(self) -> str:
        made = [name for name in self.stages if self._pipeline.stages[name].is_made]
        return f"{type(self).__name__}({self.name!r}, made: {', '.join(made) or 'nothing yet'})"

    def altered(self, arguments: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Self:
        """Return the same program for other arguments, in the context of this moment; nothing of it is made.

        Args:
            arguments: Gives other arguments for those of this one.

        Raises:
            StageUnavailableError: It was not given as a function.

        Examples:
            >>> import jax.numpy as jnp
            >>> double = inspect(lambda x: x + x, jax.ShapeDtypeStruct((3,), jnp.float32))
            >>> double.altered(lambda args: (jax.ShapeDtypeStruct((5,), jnp.float32),)).cost().total.flops
            5
        """
        if self.given is not None:
            raise self.given.error()
        return type(self)(self._fn, arguments(self.arguments), replace(self._options, check_sizes=None))

    @property
    def equations(self) -> tuple[Equation, ...]:
        """Every equation of the jaxpr, those of nested jaxprs after the one that holds them.

        Raises:
            StageUnavailableError: The function cannot be traced.
        """
        return self._traced().equations

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Every array that the program takes, in the order of the jaxpr's inputs.

        Raises:
            StageUnavailableError: The function cannot be traced.
        """
        return self._traced().inputs if self.given is None else self._pipeline.names.get().inputs

    @property
    def is_divided(self) -> bool:
        """Whether the program divides arrays among devices: arguments, results, or what equations take and return."""
        return self._traced().is_divided

    @property
    def outputs(self) -> tuple[Leaf, ...]:
        """Every array that the program gives.

        Raises:
            StageUnavailableError: The function cannot be traced.
        """
        return self._traced().trace.outputs if self.given is None else self.given.outputs

    @property
    def values(self) -> tuple[ArrayValue, ...]:
        """Every array of the jaxpr: which equation makes it, and which ones take it, through calls and loops.

        Raises:
            StageUnavailableError: The function cannot be traced.
        """
        self._traced()
        return self._pipeline.values.get()

    @property
    def elapsed(self) -> Mapping[str, float]:
        """Seconds that JAX took for what is made so far: `trace`, `lower`, `compile`; without its code, `optimize`."""
        return self._pipeline.elapsed

    def stage(self, name: str) -> Stage:
        """Return a stage, made now if it was not before.

        Args:
            name: One of `stages`.

        Returns:
            The stage; if this program or platform does not give it, its `unavailable` says why.

        Raises:
            StageUnavailableError: There is no stage of this name.
        """
        if name not in self._pipeline.stages:
            raise none_named(self.name, "stage", name, self.stages if self.given is None else self.given.stages)
        return self._pipeline.stages[name].get()

    def has_stage(self, name: str) -> bool:
        """Whether a stage is there already, so that `stage` returns at once."""
        return name in self._pipeline.stages and self._pipeline.stages[name].is_made

    def graph(self, stage: str | None = None) -> StageGraph:
        """Return a stage as a graph in levels: its blocks, loops and branches, equal ones folded; none if unavailable.

        Args:
            stage: One of `stages`; by default the first with equations. Later ones keep its order, folds and names.

        Raises:
            StageUnavailableError: There is no stage of this name.

        Examples:
            >>> import jax.numpy as jnp
            >>> [node.name for node in inspect(jnp.sin, jnp.zeros(3)).graph().level()]
            ['x', 'sin']
        """
        stage = stage or first_stage(self)
        self.stage(stage)
        return self._graphs[stage].get()

    def _graph_of(self, stage: str) -> StageGraph:
        first = first_stage(self)
        return stage_graph(self.stage(stage), None if stage == first else self._graphs[first].get())

    def links(self, source: str, target: str) -> dict[str, frozenset[str]]:
        """Return which instructions of `target` share an equation with each instruction of `source`.

        Args:
            source: Name of a stage.
            target: Name of a stage; both must be available for there to be links.

        Returns:
            Ids in `target` by id in `source`. Instructions without a link have the empty set.
            `b in links(x, y)[a]` if and only if `a in links(y, x)[b]`.
        """
        return linked(self.stage(source), self.stage(target))

    @property
    def lowered(self) -> jax.stages.Lowered:
        """The program as JAX lowered it, tags included.

        Raises:
            Exception: What JAX said when it could not be traced or lowered.
        """
        return self._pipeline.lowered.get()

    @property
    def compiled(self) -> jax.stages.Compiled:
        """The program as XLA compiled it; may be called with arguments like those it was inspected with.

        Raises:
            Exception: What JAX or XLA said when it could not be traced, lowered or compiled.
        """
        return self._pipeline.compiled.get()

    def analysis(self, of: str) -> Any:
        """Return XLA's own figures, as it gives them; they are asked for once.

        Args:
            of: `"lowered"` or `"compiled"` for the costs of either, `"memory"` for what the compiled program needs.

        Raises:
            UnknownOptionError: There are no figures of this name.
            Exception: What JAX or XLA said when it could not be lowered or compiled, or does not give figures.
        """
        if of not in self._figures:
            raise none_named(self.name, "figures", of, self._figures)
        return self._figures[of].get()

    def want(self, *, machine_code: bool = True, passes: bool = False) -> None:
        """Request files that XLA writes, so that a program not compiled yet compiles once, not twice.

        Args:
            machine_code: Also request the kernels, not only the memory.
            passes: Also request the passes.
        """
        self._pipeline.compilation.want(machine_code=machine_code, passes=passes)

    def begin_compiling(self) -> None:
        """Start compiling `optimized` in a thread. Errors are raised when it is read."""
        self._pipeline.begin_compiling()

    def hlo_ahead(self) -> Stage | None:
        """Return `"hlo"` as soon as XLA's passes are done; `None` if it is not available before the end."""
        return self._pipeline.hlo_ahead()

    @property
    def is_compiled(self) -> bool:
        """Whether `compiled` returns at once."""
        return self._pipeline.compiled.is_ready

    @property
    def optimized(self) -> jax.stages.Compiled:
        """The module and plan of memory of `compiled`, to be looked at, not to be run.

        On a CPU XLA makes machine code for it with the least effort, if nobody wants that: in three fifths of the time.

        Raises:
            Exception: What JAX or XLA said when it could not be traced, lowered or compiled.
        """
        return self._pipeline.optimized.get()

    @property
    def is_optimized(self) -> bool:
        """Whether `optimized` returns at once."""
        return self._pipeline.optimized.is_ready or self.is_compiled

    @property
    def is_lowered(self) -> bool:
        """Whether `lowered` returns at once."""
        return self._pipeline.lowered.is_ready

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes of XLA that changed something, in the order of time; compiles the program.

        Raises:
            StageUnavailableError: The platform, or the program, gives none.
        """
        return self._compiled_part("passes", self._pipeline.compilation.passes)

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        """The kernels by name: LLVM IR before and after its optimizer, and machine code; compiles the program.

        Raises:
            StageUnavailableError: The platform, or the program, gives none.
        """
        return {kernel.name: kernel for kernel in self._compiled_part("kernels", self._pipeline.kernels)}

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The pieces of memory of the compiled program, the largest first, and which values share them.

        This is XLA's buffer assignment; values are named after the instructions of `"hlo"` that make them. Compiles it.

        Raises:
            StageUnavailableError: The platform tells of none, or the program does not compile.

        Examples:
            >>> import jax
            >>> import jax.numpy as jnp
            >>> found = inspect(jax.nn.relu, jnp.zeros(3)).buffers
            >>> [(buffer.kind, buffer.size_bytes) for buffer in found if buffer.kind == "parameter"]
            [('parameter', 12)]
        """
        return self._compiled_part("buffers", self._pipeline.buffers)

    @property
    def live_ranges(self) -> LiveRanges:
        """The order in which the compiled program runs, and when it needs each of its values; compiles it.

        Raises:
            StageUnavailableError: The platform does not tell of them, or the program does not compile.
        """
        return self._compiled_part("live ranges", self._pipeline.live_ranges)

    def who_changed(self, stage: str, id: str) -> InstructionHistory:
        """Return what became of an equation, an op or an instruction: kept, fused, merged or simplified, by which pass.

        Args:
            stage: `"jaxpr"`, `"stablehlo"`, `"hlo_before"`, or `"hlo"`, which tells where an instruction came from.
            id: Id of the instruction.

        Raises:
            StageUnavailableError: There is no such instruction, or the platform does not tell of its passes.

        Examples:
            >>> import jax.numpy as jnp
            >>> program = inspect(lambda x: jnp.tanh(x) @ jnp.tanh(x), jnp.ones((4, 4)))
            >>> print(program.who_changed("jaxpr", "1"))
            tanh.3: merged with tanh.2 by pass 0 cse (equation 0)
        """
        found = find_instruction(self.name, self.given, self.stage, stage, id)
        return history_of(self._pipeline, self._compiled_part("passes", self._outcomes), stage, found)

    @property
    def source_files(self) -> tuple[Mapping[str, str], str]:
        """Path of each of the user's files that equations come from, by label; and the Python that builds the model."""
        if self.given is not None:
            return self.given.lines.files, ""
        return {label: path for path, label in self._traced().labels.items()}, self._traced().model

    def _compiled_part(self, what: str, part: Once[Value]) -> Value:
        return made(part, partial(not_compiled, self.name, what))

    def _traced(self) -> Program:
        return made(self._pipeline.program, partial(not_traced, self.name))


def first_stage(program: ProgramStages) -> str:
    """Return the stage that others are compared with: `"jaxpr"`, or the stage at which the program begins."""
    return "jaxpr" if program.given is None else program.given.stages[0]


def first_source(program: ProgramStages) -> str:
    """Return the most detailed source of costs: `"analytic"`, or that of the stage at which the program begins."""
    return "analytic" if program.given is None else program.given.sources[0]


def known_equations(program: ProgramStages) -> tuple[Equation, ...]:
    """Return the equations of a program; none if it begins at a later stage.

    Raises:
        StageUnavailableError: The function cannot be traced.
    """
    return program.equations if program.given is None else ()
