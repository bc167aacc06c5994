"""All stages of one program and the links between them, each computed on first use."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax

from mithril_nb.display import Shown
from mithril_nb.stages.as_data import inspection_data
from mithril_nb.stages.failure import get_or_raise, not_compiled, not_traced, unknown_name
from mithril_nb.stages.given import first_stage
from mithril_nb.stages.graph.stage_graph import StageGraph
from mithril_nb.stages.graph.tree import stage_graph
from mithril_nb.stages.instruction_history import find_instruction, history_of, read_outcomes
from mithril_nb.stages.links import link_instructions
from mithril_nb.stages.machine.kernels import Kernel
from mithril_nb.stages.once import Once
from mithril_nb.stages.param_names import DEFAULT
from mithril_nb.stages.pipeline import STAGES, InspectOptions, Pipeline
from mithril_nb.stages.records import Equation, Stage
from mithril_nb.stages.trace.dataflow import Value as ArrayValue
from mithril_nb.stages.trace.traced import Input, Program
from mithril_nb.stages.trace.tracing import Leaf, checked_params, shape_of
from mithril_nb.stages.trace.user_lines import Span
from mithril_nb.stages.xla.buffers import Buffer
from mithril_nb.stages.xla.live_ranges import LiveRanges
from mithril_nb.stages.xla.passes import InstructionHistory, Pass

Value = TypeVar("Value")


class Inspection(Shown):
    """A program at every stage between Python and machine code. It is never executed.

    Stages are computed on first use and cached. Several threads may request them.

    Attributes:
        name: Name of the program.
        stages: Names of its stages, in order.
        arguments: The arguments it is traced with; arrays are replaced by their shapes.
        device: The `jax.Device` to compile for; `None` for JAX's default.
        check_sizes: Raises if the named sizes cannot have the given values; `None` if every value is valid.
        given: The artifact the program was read from, if it starts at a later stage than Python; else `None`.
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
        return f"Inspection({self.name!r}, made: {', '.join(made) or 'nothing yet'})"

    def altered(self, arguments: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Inspection:
        """Return the same program with other arguments, in the current JAX context; nothing is computed yet.

        Args:
            arguments: Returns the new arguments, given the current ones.

        Raises:
            StageUnavailableError: The program was not given as a function.

        Examples:
            >>> import jax.numpy as jnp
            >>> double = inspect(lambda x: x + x, jax.ShapeDtypeStruct((3,), jnp.float32))
            >>> double.altered(lambda args: (jax.ShapeDtypeStruct((5,), jnp.float32),)).cost().total.flops
            5
        """
        if self.given is not None:
            raise self.given.error()
        return Inspection(self._fn, arguments(self.arguments), replace(self._options, check_sizes=None))

    @property
    def equations(self) -> tuple[Equation, ...]:
        """Every equation of the jaxpr; equations of a nested jaxpr follow the equation that contains it.

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
        """Return whether any array is sharded: arguments, results, or operands and results of equations."""
        return self._traced().is_divided

    @property
    def outputs(self) -> tuple[Leaf, ...]:
        """Every array that the program returns.

        Raises:
            StageUnavailableError: The function cannot be traced.
        """
        return self._traced().trace.outputs if self.given is None else self.given.outputs

    @property
    def values(self) -> tuple[ArrayValue, ...]:
        """Every array of the jaxpr with the equations that produce and use it, through calls and loops.

        Raises:
            StageUnavailableError: The function cannot be traced.
        """
        self._traced()
        return self._pipeline.values.get()

    @property
    def elapsed(self) -> Mapping[str, float]:
        """Seconds JAX took so far: `trace`, `lower`, `compile`; `optimize` for a compile without code generation."""
        return self._pipeline.elapsed

    def stage(self, name: str) -> Stage:
        """Return a stage; it is computed on first use.

        Args:
            name: One of `stages`.

        Returns:
            The stage; if this program or platform does not have it, its `unavailable` states the reason.

        Raises:
            StageUnavailableError: No stage has this name.
        """
        if name not in self._pipeline.stages:
            raise unknown_name(self.name, "stage", name, self.stages if self.given is None else self.given.stages)
        return self._pipeline.stages[name].get()

    def has_stage(self, name: str) -> bool:
        """Return whether a stage is computed already, so that `stage` returns at once."""
        return name in self._pipeline.stages and self._pipeline.stages[name].is_made

    def graph(self, stage: str | None = None) -> StageGraph:
        """Return a stage as a graph in levels: blocks, loops and branches, equal ones folded; empty if unavailable.

        Args:
            stage: One of `stages`; by default the first with equations. Later ones keep its order, folds and names.

        Raises:
            StageUnavailableError: No stage has this name.

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
        """Return the instructions of `target` that share an equation with each instruction of `source`.

        Args:
            source: Name of a stage.
            target: Name of a stage. Both stages must be available to have links.

        Returns:
            Ids in `target` by id in `source`. Instructions without a link have the empty set.
            `b in links(x, y)[a]` if and only if `a in links(y, x)[b]`.
        """
        return link_instructions(self.stage(source), self.stage(target))

    @property
    def lowered(self) -> jax.stages.Lowered:
        """The program as JAX lowered it, tags included.

        Raises:
            Exception: The error of JAX, if the program cannot be traced or lowered.
        """
        return self._pipeline.lowered.get()

    @property
    def compiled(self) -> jax.stages.Compiled:
        """The program as XLA compiled it; call it with arguments like those it was inspected with.

        Raises:
            Exception: The error of JAX or XLA, if the program cannot be traced, lowered or compiled.
        """
        return self._pipeline.compiled.get()

    def analysis(self, of: str) -> Any:
        """Return XLA's own cost or memory figures, unchanged; they are requested once.

        Args:
            of: `"lowered"` or `"compiled"` for the costs of either, `"memory"` for what the compiled program needs.

        Raises:
            UnknownOptionError: No figures have this name.
            Exception: The error of JAX or XLA, if it cannot lower or compile the program, or gives no figures.
        """
        if of not in self._figures:
            raise unknown_name(self.name, "figures", of, self._figures)
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
        """Return `"hlo"` as soon as XLA's passes have finished; `None` if it is only available after compilation."""
        return self._pipeline.hlo_ahead()

    @property
    def is_compiled(self) -> bool:
        """Return whether `compiled` returns at once."""
        return self._pipeline.compiled.is_ready

    @property
    def optimized(self) -> jax.stages.Compiled:
        """The module and memory plan of `compiled`, to inspect but not to run.

        On a CPU this skips most code generation unless machine code was requested: 60 % of the compile time.

        Raises:
            Exception: The error of JAX or XLA, if the program cannot be traced, lowered or compiled.
        """
        return self._pipeline.optimized.get()

    @property
    def is_optimized(self) -> bool:
        """Return whether `optimized` returns at once."""
        return self._pipeline.optimized.is_ready or self.is_compiled

    @property
    def is_lowered(self) -> bool:
        """Return whether `lowered` returns at once."""
        return self._pipeline.lowered.is_ready

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes of XLA that changed something, in the order they ran; compiles the program.

        Raises:
            StageUnavailableError: The platform or the program has no passes.
        """
        return self._compiled_part("passes", self._pipeline.compilation.passes)

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        """The kernels by name: LLVM IR before and after its optimizer, and machine code; compiles the program.

        Raises:
            StageUnavailableError: The platform or the program has no kernels.
        """
        return {kernel.name: kernel for kernel in self._compiled_part("kernels", self._pipeline.kernels)}

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers of the compiled program, the largest first, and the values that share each; compiles the program.

        This is XLA's buffer assignment; values are named after the instructions of `"hlo"` that produce them.

        Raises:
            StageUnavailableError: The platform reports no buffers, or the program does not compile.

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
        """The schedule of the compiled program, and the live range of each value; compiles the program.

        Raises:
            StageUnavailableError: The platform reports no live ranges, or the program does not compile.
        """
        return self._compiled_part("live ranges", self._pipeline.live_ranges)

    @property
    def memory(self) -> Any:
        """The memory one run of the program needs, step by step, and the block that holds it; compiles the program.

        A `mithril_nb.cost.MemoryUse`. If the program does not compile, this is an estimate from the jaxpr, as its
        `notes` state. `mithril_nb.cost.memory_of(inspection, "analytic")` estimates any program without compiling.

        Raises:
            StageUnavailableError: The program cannot be traced.

        Examples:
            >>> import jax.numpy as jnp
            >>> memory = inspect(jnp.dot, jnp.zeros((8, 16)), jnp.zeros((16, 32))).memory
            >>> memory.peak_bytes, sum(memory.at_peak.values())
            (3584, 3584)
        """
        return importlib.import_module("mithril_nb.cost.memory.use").best_memory_of(self)

    def cost(self, source: str | None = None) -> Any:
        """Return the cost of one run of the program, by block, by role, and for each equation or instruction.

        Args:
            source: `"analytic"` counts equations by our rules, multiplies loops by their trip counts, and needs no
                compiler. `"lowered"` and `"compiled"` count instructions as XLA does, before and after its passes, and
                show XLA's own figure beside their sum. Default: `"analytic"`; for a program without a jaxpr, such as
                a StableHLO or HLO file, `"lowered"` or else `"compiled"`.

        Returns:
            The costs, a `mithril_nb.cost.Cost`; its `notes` list what is unknown.

        Raises:
            UnknownOptionError: No source has this name.
            StageUnavailableError: The program cannot be traced, lowered or compiled.

        Examples:
            >>> import jax.numpy as jnp
            >>> inspect(jnp.matmul, jnp.zeros((2, 3)), jnp.zeros((3, 4))).cost().total.flops
            48
        """
        return importlib.import_module("mithril_nb.cost").cost_of(self, source)

    def costs(self, *sources: str) -> Any:
        """Return the cost of one run of the program, counted in several ways, side by side.

        Args:
            *sources: Sources of `cost`; by default all of them, which compiles the program.

        Returns:
            The costs, a `mithril_nb.cost.Costs`; it states the reason for each missing one.

        Raises:
            UnknownOptionError: No source has this name.

        Examples:
            >>> import jax.numpy as jnp
            >>> found = inspect(jnp.matmul, jnp.zeros((2, 3)), jnp.zeros((3, 4))).costs("analytic", "lowered")
            >>> {name: cost.total.flops for name, cost in found.by_source.items()}
            {'analytic': 48, 'lowered': 48}
        """
        counting = importlib.import_module("mithril_nb.cost")
        return counting.costs_of(self, sources or counting.SOURCES)

    def who_changed(self, stage: str, id: str) -> InstructionHistory:
        """Return how XLA changed an equation, op or instruction: kept, fused, merged or simplified it, in which pass.

        Args:
            stage: `"jaxpr"`, `"stablehlo"`, `"hlo_before"`, or `"hlo"`, which shows the origin of an instruction.
            id: Id of the instruction.

        Raises:
            StageUnavailableError: No such instruction exists, or the platform does not report its passes.

        Examples:
            >>> import jax.numpy as jnp
            >>> program = inspect(lambda x: jnp.tanh(x) @ jnp.tanh(x), jnp.ones((4, 4)))
            >>> print(program.who_changed("jaxpr", "1"))
            tanh.3: merged with tanh.2 by pass 0 cse (equation 0)
        """
        found = find_instruction(self, stage, id)
        return history_of(self._pipeline, self._compiled_part("passes", self._outcomes), stage, found)

    def to_dict(self, *stages: str, passes: bool = True) -> dict[str, Any]:
        """Return all stages as plain data; see `to_json`."""
        return inspection_data(self, stages or self.stages, passes)

    def to_json(self, *stages: str, passes: bool = True) -> str:
        """Return all stages as JSON; computes the missing stages.

        The schema is `stages/schema.json` in this package: `stages` with texts and instructions, `equations`,
        `inputs`, `outputs`, `passes` with their input and output, `buffers` if `"hlo"` is among the stages,
        `elapsed`. Instructions of two stages are linked if they have an equation in common.

        Args:
            *stages: Names of the stages; by default all.
            passes: Whether to add the passes of XLA, which may be large.

        Examples:
            >>> import json
            >>> import jax.numpy as jnp
            >>> data = json.loads(inspect(jnp.sin, jnp.zeros(3)).to_json("jaxpr", passes=False))
            >>> data["stages"][0]["instructions"][1]["opcode"]
            'sin'
        """
        return json.dumps(self.to_dict(*stages, passes=passes), allow_nan=False)

    def to_html(self, path: str | Path | None = None, stages: Sequence[str] | None = None) -> str:
        """Return the program at every stage as one HTML file with working links; computes the stages that are missing.

        The file needs no kernel and no network. It contains the graph, all lines of all stages, passes and costs.

        Args:
            path: File to write; by default none is written.
            stages: Names of the stages to include; by default all. `["jaxpr", "stablehlo"]` needs no compiler.

        Raises:
            StageUnavailableError: No stage has such a name.
            ModelFileError: The file cannot be written.

        Examples:
            >>> import jax.numpy as jnp
            >>> inspect(jnp.sin, jnp.zeros(3)).to_html(stages=["jaxpr"])[:15]
            '<!DOCTYPE html>'
        """
        return importlib.import_module("mithril_nb.viz.inspection_page").inspection_page(self, path, stages)

    @property
    def source_files(self) -> tuple[Mapping[str, str], str]:
        """Path by label of each user file that equations come from; and the Python code that builds the model."""
        if self.given is not None:
            return self.given.lines.files, ""
        return {label: path for path, label in self._traced().labels.items()}, self._traced().model

    def _compiled_part(self, what: str, part: Once[Value]) -> Value:
        return get_or_raise(part, partial(not_compiled, self.name, what))

    def _traced(self) -> Program:
        return get_or_raise(self._pipeline.program, partial(not_traced, self.name))


def inspect(
    fn: Callable[..., Any],
    *args: Any,
    name: str | None = None,
    params: str | Sequence[str] = DEFAULT,
    device: Any | None = None,
    compiler_options: Mapping[str, Any] | None = None,
    source: tuple[str, Mapping[int, str]] | None = None,
    kinds: Mapping[str, str] | None = None,
    check_sizes: Callable[[Mapping[str, int]], None] | None = None,
    requested_at: Span | None = None,
) -> Inspection:
    """Look at a JAX program at every stage from Python to machine code, without running it.

    Args:
        fn: Any function that JAX can trace.
        *args: Its arguments, or their shapes: pytrees of arrays or `jax.ShapeDtypeStruct`s.
        name: Name of the program; by default the name of the function.
        params: Name of the argument that holds the parameters, or of a part of one (`"state.params"`), or several;
            `()` if there are none. If no argument has this name, the number of parameters is unknown.
        device: The `jax.Device` to lower and compile for; by default JAX's own default.
        compiler_options: Further XLA options, as `jax.jit` takes them.
        source: Python code that builds the model, and the block of each line; by default the traced functions.
        kinds: Kind of each block, by path: `{"linear_0": "Linear"}`.
        check_sizes: Raises if the named sizes cannot have the given values, passed as a dict by name.
        requested_at: The user's call that requested the program; a loss or optimizer called by us gets its line.

    Returns:
        The stages, each computed on first use.

    Raises:
        UnknownOptionError: `params` names an argument that does not exist.

    Examples:
        >>> import jax.numpy as jnp
        >>> def double(x):
        ...     return x + x
        >>> print(inspect(double, jax.ShapeDtypeStruct((3,), jnp.float32)).stage("jaxpr"))
        { lambda
            a:f32[3]  # x
          let
            b:f32[3] = add a a
          in (b) }
        <BLANKLINE>
    """
    holders = checked_params(fn, args, params, name)
    options = InspectOptions(name, holders, device, compiler_options, source, kinds, check_sizes, requested_at)
    return Inspection(fn, args, options)
