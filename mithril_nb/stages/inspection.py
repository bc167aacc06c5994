"""All stages of one program and the links between them, each made when it is first asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax

from mithril_nb.display import Shown
from mithril_nb.errors import StageUnavailableError
from mithril_nb.stages.hlo import read_hlo
from mithril_nb.stages.jaxpr_text import print_jaxpr
from mithril_nb.stages.once import Once
from mithril_nb.stages.records import Equation, Stage
from mithril_nb.stages.stablehlo import read_stablehlo
from mithril_nb.stages.traced import Input, Program
from mithril_nb.stages.tracing import Leaf, trace

STAGES = ("jaxpr", "stablehlo", "hlo")
"""Names of the stages, from Python to the machine."""


class Inspection(Shown):
    """A program at every stage between Python and the machine. Nothing of it is executed.

    Stages are made when they are asked for, kept, and may be asked for from several threads.

    Attributes:
        name: Name of the program.
        stages: Names of its stages, in order.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        name: str | None,
        params: str,
        device: Any | None,
        compiler_options: Mapping[str, Any] | None = None,
    ):
        self.name = name or getattr(fn, "__name__", type(fn).__name__)
        self.stages = STAGES
        self._device = device
        self._compiler_options = dict(compiler_options or {}) or None
        self._args = jax.tree.map(_shape_of, args)
        self._trace = Once(lambda: trace(fn, self._args, name))
        self._program = Once(lambda: Program(self._trace.get(), params))
        self._lowered = Once(self._lower)
        self._compiled = Once(self._compile)
        self._figures = {
            "lowered": Once(lambda: self._lowered.get().cost_analysis()),
            "compiled": Once(lambda: self._compiled.get().cost_analysis()),
            "memory": Once(lambda: self._compiled.get().memory_analysis()),
        }
        makers = {
            "jaxpr": self._make_jaxpr,
            "stablehlo": self._make_stablehlo,
            "hlo": self._make_hlo,
        }
        self._stages = {stage: Once(partial(self._guard, stage, make)) for stage, make in makers.items()}

    def __repr__(self) -> str:
        made = [name for name in self.stages if self._stages[name].is_made]
        return f"Inspection({self.name!r}, made: {', '.join(made) or 'nothing yet'})"

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
        return self._traced().inputs

    @property
    def outputs(self) -> tuple[Leaf, ...]:
        """Every array that the program gives.

        Raises:
            StageUnavailableError: The function cannot be traced.
        """
        return self._traced().trace.outputs

    @property
    def elapsed(self) -> Mapping[str, float]:
        """Seconds that JAX took for what is made so far: `trace`, `lower`, `compile`."""
        timed = {
            "trace": self._trace,
            "lower": self._lowered,
            "compile": self._compiled,
        }
        return {name: once.elapsed_s for name, once in timed.items() if once.is_made}

    def stage(self, name: str) -> Stage:
        """Return a stage, made now if it was not before.

        Args:
            name: One of `stages`.

        Returns:
            The stage; if this program or platform does not give it, its `unavailable` says why.

        Raises:
            StageUnavailableError: There is no stage of this name.
        """
        if name not in self._stages:
            raise StageUnavailableError(
                f"program {self.name!r} has no stage {name!r}.",
                (("stages", ", ".join(self.stages)),),
                f'inspection.stage("{self.stages[-1]}")',
            )
        return self._stages[name].get()

    def has_stage(self, name: str) -> bool:
        """Whether a stage is there already, so that `stage` returns at once."""
        return name in self._stages and self._stages[name].is_made

    def links(self, source: str, target: str) -> dict[str, frozenset[str]]:
        """Return which instructions of `target` share an equation with each instruction of `source`.

        Args:
            source: Name of a stage.
            target: Name of a stage; both must be available for there to be links.

        Returns:
            Ids in `target` by id in `source`. Instructions without a link have the empty set.
            `b in links(x, y)[a]` if and only if `a in links(y, x)[b]`.
        """
        places: dict[str, list[str]] = {}
        for instruction in self.stage(target).instructions:
            for equation in instruction.equations:
                places.setdefault(equation, []).append(instruction.id)
        return {
            instruction.id: frozenset(id for equation in instruction.equations for id in places.get(equation, ()))
            for instruction in self.stage(source).instructions
        }

    @property
    def lowered(self) -> jax.stages.Lowered:
        """The program as JAX lowered it, tags included.

        Raises:
            Exception: What JAX said when it could not be traced or lowered.
        """
        return self._lowered.get()

    @property
    def compiled(self) -> jax.stages.Compiled:
        """The program as XLA compiled it; may be called with arguments like those it was inspected with.

        Raises:
            Exception: What JAX or XLA said when it could not be traced, lowered or compiled.
        """
        return self._compiled.get()

    def analysis(self, of: str) -> Any:
        """Return XLA's own figures, as it gives them; they are asked for once.

        Args:
            of: `"lowered"` or `"compiled"` for the costs of either, `"memory"` for what the compiled program needs.

        Raises:
            Exception: What JAX or XLA said when it could not be lowered or compiled, or does not give figures.
        """
        return self._figures[of].get()

    @property
    def is_compiled(self) -> bool:
        """Whether `compiled` returns at once."""
        return self._compiled.is_ready

    @property
    def is_lowered(self) -> bool:
        """Whether `lowered` returns at once."""
        return self._lowered.is_ready

    def _traced(self) -> Program:
        try:
            return self._program.get()
        except Exception as error:
            raise StageUnavailableError(
                f"program {self.name!r} cannot be traced.",
                ((type(error).__name__, _first_lines(error)),),
                "jax.make_jaxpr(fn)(*args)",
            ) from error

    def _lower(self) -> jax.stages.Lowered:
        program = self._program.get()
        tagged = program.trace.call(program.tags.tag(program.trace.closed))
        with jax.default_device(self._device) if self._device is not None else nullcontext():
            # Unused inputs are dropped as `jax.jit` does by default: else what only they feed would stay, too.
            return jax.jit(tagged, donate_argnums=program.trace.donated).lower(*self._args)

    def _compile(self) -> jax.stages.Compiled:
        return self._lowered.get().compile(compiler_options=self._compiler_options)

    def _guard(self, name: str, make: Callable[[], Stage]) -> Stage:
        """Make a stage; what goes wrong in JAX becomes its `unavailable`."""
        try:
            return make()
        except Exception as error:
            return Stage(name, "", unavailable=f"{type(error).__name__}: {_first_lines(error)}")

    def _make_jaxpr(self) -> Stage:
        program = self._program.get()
        start = time.perf_counter()
        text, found = print_jaxpr(
            program.trace,
            program.top,
            program.by_id,
            lambda index: program.inputs[index].block,
        )
        spent = self._program.elapsed_s + time.perf_counter() - start
        return Stage("jaxpr", text, found, spent)

    def _make_stablehlo(self) -> Stage:
        program = self._program.get()
        lowered = self._lowered.get()
        start = time.perf_counter()
        text, found = read_stablehlo(lowered.as_text(debug_info=True), program.tags, program.by_id)
        return Stage(
            "stablehlo",
            text,
            found,
            self._lowered.elapsed_s + time.perf_counter() - start,
        )

    def _make_hlo(self) -> Stage:
        program = self._program.get()
        text = self._compiled.get().as_text()
        if not text:
            return Stage("hlo", "", unavailable="this platform gives no text for its executables")
        start = time.perf_counter()
        names = {one.name: (index, one.block) for index, one in enumerate(program.inputs)}
        text, found = read_hlo(text, program.tags, program.by_id, names, program.contractions_behind)
        return Stage("hlo", text, found, self._compiled.elapsed_s + time.perf_counter() - start)


def inspect(
    fn: Callable[..., Any],
    *args: Any,
    name: str | None = None,
    params: str = "params",
    device: Any | None = None,
    compiler_options: Mapping[str, Any] | None = None,
) -> Inspection:
    """Look at a JAX program at every stage on its way to the machine, without running it.

    Args:
        fn: Any function that JAX can trace.
        *args: Its arguments, or their shapes: pytrees of arrays or `jax.ShapeDtypeStruct`s.
        name: What to call the program; by default the name of the function.
        params: Name of the argument that holds the parameters of the model.
        device: The `jax.Device` to lower and compile for; by default JAX's own default.
        compiler_options: What XLA is told besides, as `jax.jit` takes it.

    Returns:
        Its stages, made when they are first asked for.

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
    return Inspection(fn, args, name, params, device, compiler_options)


def _shape_of(leaf: Any) -> Any:
    """Return the shape of an array, so that no array is kept alive; other leaves as they are."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if isinstance(leaf, jax.Array) else leaf


def _first_lines(error: Exception, count: int = 8) -> str:
    return "\n".join(str(error).strip().splitlines()[:count]) or "no message"
