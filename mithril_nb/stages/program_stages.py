"""All stages of one program and the links between them, each computed on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from mithril_nb.display import Shown
from mithril_nb.errors import UnknownOptionError, listed, nearest
from mithril_nb.hardware import as_device
from mithril_nb.stages import jax_jit, jax_versions
from mithril_nb.stages.failure import get_or_raise, not_compiled, not_traced, unknown_name
from mithril_nb.stages.graph.stage_graph import StageGraph
from mithril_nb.stages.graph.tree import stage_graph
from mithril_nb.stages.hlo.mlir_flows import arguments_of
from mithril_nb.stages.inspect_options import InspectOptions
from mithril_nb.stages.instruction_history import find_instruction, history_of, read_outcomes
from mithril_nb.stages.once import Once
from mithril_nb.stages.pipeline import Pipeline
from mithril_nb.stages.records import Equation, Input, Stage, link_instructions
from mithril_nb.stages.stage_kinds import STAGE_KINDS, stages_on
from mithril_nb.stages.trace.dataflow import Value as ArrayValue
from mithril_nb.stages.trace.equations import each_equation
from mithril_nb.stages.trace.traced import Program
from mithril_nb.stages.trace.tracing import Leaf, shape_of, shape_of_aval
from mithril_nb.stages.xla.kernels import Kernel
from mithril_nb.stages.xla.memory import Buffer, LiveRanges
from mithril_nb.stages.xla.passes import InstructionHistory, Pass

Value = TypeVar("Value")


class ProgramStages(Shown):
    """A program at every stage between Python and machine code. It is never executed.

    Stages are computed on first use and cached. Several threads may request them.

    Attributes:
        name: Name of the program.
        arguments: The arguments it is traced with; arrays are replaced by their shapes.
        device: The `jax.Device` to compile for; `None` for JAX's default.
        check_sizes: A function that raises an error if symbolic sizes have invalid values, given as a dict by name.
            `None` if all values are valid.
        given: The program, if the user passed it in lowered or compiled form instead of as a function; else `None`.
        compiler_options: The user's options for XLA, by name.
    """

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], options: InspectOptions):
        self.name = options.name or getattr(fn, "__name__", type(fn).__name__)
        # An inspection must not keep the user's arrays alive.
        self.arguments: tuple[Any, ...] = jax.tree.map(shape_of, args)
        self.function, self._options, self.device = fn, options, options.device
        self.check_sizes, self.given = options.check_sizes, options.given
        self.compiler_options = options.compiler_options or {}
        self._pipeline = pipeline = Pipeline(fn, self.arguments, options)
        self._outcomes = Once(lambda: read_outcomes(pipeline))
        self._figures = {
            "lowered": Once(lambda: pipeline.lowered.get().cost_analysis()),
            "compiled": Once(lambda: pipeline.optimized.get().cost_analysis()),
            "memory": Once(lambda: pipeline.optimized.get().memory_analysis()),
        }
        self._graphs = {name: Once(partial(self._graph_of, name)) for name in pipeline.stages}

    def __repr__(self) -> str:
        computed = [name for name in self._pipeline.stages if self._pipeline.stages[name].is_made]
        return f"{type(self).__name__}({self.name!r}, computed: {', '.join(computed) or 'none yet'})"

    def altered(self, arguments: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Self:
        """Return the same program with other arguments and the current JAX settings; nothing is computed yet.

        Args:
            arguments: A function that returns the new arguments, given the current ones.

        Examples:
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect_function as inspect
            >>> double = inspect(lambda x: x + x, jax.ShapeDtypeStruct((3,), jnp.float32))
            >>> double.altered(lambda args: (jax.ShapeDtypeStruct((5,), jnp.float32),)).cost().total.flops
            5
        """
        if self.given is not None:
            raise self.given.error()
        # `check_sizes` is for the named sizes of the old arguments.
        return type(self)(self.function, arguments(self.arguments), replace(self._options, check_sizes=None))

    def on(self, device: Any) -> Self:
        """Return the same program on another device; the traced program is shared.

        Args:
            device: As in `ml.inspect`: a name such as `"h100"` or `"v5e:4x4"`, an `ml.Device`, or a `jax.Device`.
        """
        if self.given is not None:
            raise self.given.error()
        other = type(self)(self.function, self.arguments, replace(self._options, device=as_device(device)))
        other._pipeline.share_trace(self._pipeline)
        return other

    def with_shardings(self, shardings: Mapping[str, Any]) -> Self:
        """Return the same program with other shardings of some arguments; nothing is computed yet.

        Args:
            shardings: A dict from the name of an argument, such as `"params['w']"`, to a `jax.sharding.NamedSharding`,
                or to a `PartitionSpec` on the mesh of the arguments, or of the equations if no argument has a mesh.

        Raises:
            UnknownOptionError: There is no such argument, or a `PartitionSpec` does not fit the mesh, or the program
                has no mesh or several.

        Examples:
            >>> import jax, jax.numpy as jnp, mithril_nb as ml
            >>> from jax.sharding import NamedSharding, PartitionSpec as P
            >>> mesh = ml.device_mesh("v5e:2x2", data=2, model=2)
            >>> x = jax.ShapeDtypeStruct((8, 4), "float32", sharding=NamedSharding(mesh, P("data")))
            >>> p = ml.inspect(jnp.sin, x, device="v5e:2x2")
            >>> p.with_shardings({"x": P(None, "model")}).arguments[0].sharding.spec
            P(None, 'model')
        """
        leaves, tree = jax.tree.flatten(self.arguments)
        trace = self.traced_program.trace
        names = [leaf.name for leaf in trace.inputs]
        for name, sharding in shardings.items():
            if name not in names:
                raise UnknownOptionError(
                    f"program {self.name!r} has no argument {name!r}.",
                    (("arguments", listed(names)),),
                    f"{{{nearest(name, names)!r}: PartitionSpec(...)}}",
                )
            at = names.index(name)
            # A Python number among the arguments has no shape.
            leaf = shape_of_aval(trace.closed.in_avals[at])
            if isinstance(sharding, PartitionSpec):
                sharding = self._on_mesh(name, sharding)
            leaves[at] = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)
        return self.altered(lambda _: jax.tree.unflatten(tree, leaves))

    def _on_mesh(self, name: str, spec: PartitionSpec) -> NamedSharding:
        """Return a sharding on the mesh of the arguments, or else of the equations."""
        leaves = jax.tree.leaves(self.arguments)
        of_leaves = (getattr(getattr(leaf, "sharding", None), "mesh", None) for leaf in leaves)
        meshes = {mesh: mesh for mesh in of_leaves if mesh is not None}
        if not meshes:
            for mesh in jax_jit.meshes_of(each_equation(self.traced_program.trace.closed.jaxpr)):
                # Inside a `shard_map`, the same mesh has axes of another type.
                meshes.setdefault(mesh.shape_tuple, mesh)
        if len(meshes) != 1:
            has = "is on more than one mesh" if meshes else "has no mesh"
            raise UnknownOptionError(
                f"program {self.name!r} {has}, so that a PartitionSpec is no sharding of its argument {name!r}.",
                (("meshes", "; ".join(sorted(map(_axes_text, meshes.values())))),) if meshes else (),
                "jax.sharding.NamedSharding(mesh, spec)",
            )
        (mesh,) = meshes.values()
        try:
            return NamedSharding(mesh, spec)
        except ValueError as error:
            facts = (("reason", str(error)), ("mesh", _axes_text(mesh)))
            raise UnknownOptionError(
                f"argument {name!r} of program {self.name!r} cannot have the sharding {spec}.", facts
            ) from error

    @property
    def equations(self) -> tuple[Equation, ...]:
        """Every equation of the jaxpr; equations of a nested jaxpr follow the equation that contains it."""
        return self.traced_program.equations

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Every array that the program takes, in the order of the jaxpr's inputs."""
        return self.traced_program.inputs if self.given is None else self._pipeline.names.get().inputs

    @property
    def is_divided(self) -> bool:
        """Return whether any array is sharded: arguments, results, or operands and results of equations."""
        return self.traced_program.is_divided

    @property
    def outputs(self) -> tuple[Leaf, ...]:
        """Every array that the program returns."""
        return self.traced_program.trace.outputs if self.given is None else self.given.outputs

    @property
    def values(self) -> tuple[ArrayValue, ...]:
        """Every array of the jaxpr with the equations that produce and use it, through calls and loops."""
        _ = self.traced_program
        return self._pipeline.values.get()

    @property
    def block_kinds(self) -> Mapping[str, str]:
        """Kind of each block by path, if the program is that of a model; else empty."""
        return self._options.kinds or {}

    @property
    def elapsed(self) -> Mapping[str, float]:
        """A dict from `"trace"`, `"lower"`, `"compile"` and `"optimize"` to the seconds that JAX took for it.

        `"optimize"` is a compilation without machine code; see `optimized`. A phase that has not run is missing.
        """
        return self._pipeline.elapsed

    @property
    def every_stage(self) -> tuple[str, ...]:
        """Names of all its stages, in order, including those computed only on request, such as `"numpy"`."""
        return stages_on(self._pipeline.platform)

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of its stages, in order, except stages that are computed only on request."""
        return tuple(name for name in self.every_stage if not STAGE_KINDS[name].is_optional)

    def stage(self, name: str) -> Stage:
        """Return a stage; it is computed on first use.

        Args:
            name: One of `every_stage`.

        Returns:
            The stage; if this program or platform does not have it, its `unavailable` states the reason.
        """
        if name not in self._pipeline.stages:
            raise unknown_name(self.name, "stage", name, self.every_stage if self.given is None else self.given.stages)
        return self._pipeline.stages[name].get()

    def has_stage(self, name: str) -> bool:
        """Return whether a stage is computed already, so that `stage` returns at once."""
        return name in self._pipeline.stages and self._pipeline.stages[name].is_made

    def graph(self, stage: str | None = None) -> StageGraph:
        """Return a stage as a graph of nested nodes: blocks, loops and branches. Equal nodes are folded into one.

        If the stage is not available, the graph is empty, or ends with the equation that could not be traced.

        Args:
            stage: One of `every_stage`; by default `"jaxpr"`, or the stage at which the program begins. In the graphs
                of other stages, blocks have the same order, folds and names as in this graph.

        Examples:
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect_function as inspect
            >>> [node.name for node in inspect(jnp.sin, jnp.zeros(3)).graph().level()]
            ['x', 'sin']
        """
        stage = stage or first_stage(self)
        self.stage(stage)
        return self._graphs[stage].get()

    def _graph_of(self, stage: str) -> StageGraph:
        first, target = first_stage(self), self.stage(stage)
        if stage == "stablehlo" and target.unavailable is None:
            kept = jax_versions.kept_inputs(self._pipeline.lowered.get())
            inputs = [(index, array) for index, array in enumerate(self.inputs) if kept is None or index in kept]
            target = replace(target, instructions=(*arguments_of(target.text, inputs), *target.instructions))
        return stage_graph(target, None if stage == first else self._graphs[first].get())

    def links(self, source: str, target: str) -> dict[str, frozenset[str]]:
        """Link the instructions of two stages that share an equation.

        Args:
            source: Name of the stage to link from.
            target: Name of the stage to link to. If one of the stages is not available, there are no links.

        Returns:
            A dict from the id of each instruction of `source` to the set of ids of the linked instructions of `target`,
            which may be empty. `b in links(x, y)[a]` if and only if `a in links(y, x)[b]`.
        """
        return link_instructions(self.stage(source), self.stage(target))

    @property
    def lowered(self) -> jax.stages.Lowered:
        """The program as JAX lowered it, tags included."""
        return self._pipeline.lowered.get()

    @property
    def compiled(self) -> jax.stages.Compiled:
        """The program as XLA compiled it; call it with arguments of the same shapes and dtypes."""
        return self._pipeline.compiled.get()

    def executable_file(self) -> bytes:
        """Return the contents of a file with the executable, which JAX loads on a machine with the device."""
        return self._compiled_part("file of its executable", Once(self._pipeline.executable_file))

    def analysis(self, of: str) -> Any:
        """Return XLA's own cost or memory analysis, unchanged; XLA computes it on first use.

        Args:
            of: `"lowered"` or `"compiled"` for the costs of that program, `"memory"` for the buffers of the compiled
                program.
        """
        if of not in self._figures:
            raise unknown_name(self.name, "analysis", of, self._figures)
        return self._figures[of].get()

    def want(self, *, machine_code: bool = True, passes: bool = False) -> None:
        """Request files that XLA should write when it compiles the program, so that it need not compile twice.

        Args:
            machine_code: True to request the code of the kernels. The memory plan is requested in any case.
            passes: True to request the module before and after each pass of XLA.
        """
        self._pipeline.compilation.want(machine_code=machine_code, passes=passes)

    def begin_compiling(self) -> None:
        """Start compiling `optimized` in a thread. If this fails, reading `optimized` raises the error."""
        self._pipeline.begin_compiling()

    def hlo_ahead(self) -> Stage | None:
        """Wait for XLA's passes and return the stage `"hlo"`; `None` if it is only available after compilation."""
        return self._pipeline.hlo_ahead()

    @property
    def is_compiled(self) -> bool:
        """Return whether `compiled` returns at once."""
        return self._pipeline.compiled.is_ready

    @property
    def optimized(self) -> jax.stages.Compiled:
        """A program with the module and memory plan of `compiled`, to inspect but not to run.

        On a CPU, XLA skips most code generation unless machine code was requested, which saves about 40 % of the time.
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
        """The passes of XLA that changed something, in the order they ran; compiles the program."""
        return self._compiled_part("passes", self._pipeline.compilation.passes)

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        """The kernels by name: optimized LLVM IR and machine code; compiles the program."""
        return {kernel.name: kernel for kernel in self._compiled_part("kernels", self._pipeline.kernels)}

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers of the compiled program, the largest first, and the values that share each; compiles the program.

        This is XLA's buffer assignment; values are named after the instructions of `"hlo"` that produce them.

        Examples:
            >>> import jax
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect_function as inspect
            >>> found = inspect(jax.nn.relu, jnp.zeros(3)).buffers
            >>> [(buffer.kind, buffer.size_bytes) for buffer in found if buffer.kind == "parameter"]
            [('parameter', 12)]
        """
        return self._compiled_part("buffers", self._pipeline.buffers)

    @property
    def live_ranges(self) -> LiveRanges:
        """The schedule of the compiled program, and the live range of each value; compiles the program."""
        return self._compiled_part("live ranges", self._pipeline.live_ranges)

    def who_changed(self, stage: str, id: str) -> InstructionHistory:
        """Return how XLA changed an equation, op or instruction, such as fused or merged, and in which pass.

        Args:
            stage: Name of its stage: `"jaxpr"`, `"stablehlo"`, `"hlo_before"` or `"hlo"`. For `"hlo"`, the result is
                the origin of the instruction.
            id: Id of the equation, op or instruction.

        Examples:
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect_function as inspect
            >>> program = inspect(lambda x: jnp.tanh(x) @ jnp.tanh(x), jnp.ones((4, 4)))
            >>> print(program.who_changed("jaxpr", "1"))
            tanh.3: merged with tanh.2 by pass 0 cse (equation 0)
        """
        instruction = find_instruction(self.name, self.given, self.stage, stage, id)
        return history_of(self._pipeline, self._compiled_part("passes", self._outcomes), stage, instruction)

    @property
    def source_files(self) -> tuple[Mapping[str, str], str]:
        """A dict from the label of each file to its path, and the Python code that builds the model, or `""`."""
        if self.given is not None:
            return self.given.lines.files, ""
        return self.traced_program.files, self.traced_program.model

    def _compiled_part(self, part_name: str, part: Once[Value]) -> Value:
        return get_or_raise(part, partial(not_compiled, self.name, part_name))

    @property
    def traced_program(self) -> Program:
        """The jaxpr with the provenance of each equation."""
        return get_or_raise(self._pipeline.program, partial(not_traced, self.name))


def spec_along(axes: Iterable[tuple[str, ...]]) -> PartitionSpec:
    """Return the `PartitionSpec` that divides each dimension along some axes of a mesh.

    Examples:
        >>> spec_along([("data",), (), ("row", "column")])
        P('data', None, ('row', 'column'))
    """
    return PartitionSpec(*(names[0] if len(names) == 1 else names or None for names in axes))


def _axes_text(mesh: Mesh | AbstractMesh) -> str:
    return ", ".join(f"{name}={size}" for name, size in mesh.shape_tuple)


def first_stage(program: ProgramStages) -> str:
    """Return the name of the first stage with equations: `"jaxpr"`, or the stage at which the program begins."""
    return "jaxpr" if program.given is None else program.given.stages[0]


def first_source(program: ProgramStages) -> str:
    """Return the most detailed source of costs: `"analytic"`, or the source for the first stage of the program."""
    return "analytic" if program.given is None else program.given.sources[0]


def known_equations(program: ProgramStages) -> tuple[Equation, ...]:
    """Return the equations of a program; `()` if the user passed it in lowered or compiled form."""
    return program.equations if program.given is None else ()
