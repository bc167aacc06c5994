"""`find_nan`: replay a step on its arguments, and find the equation or the argument that brings in the first NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from mithril_nb import targets
from mithril_nb.analysis.replay import Step, replayed, without_nan
from mithril_nb.compilation.values import Statistics
from mithril_nb.errors import Diagnostic, UnexpectedInputError
from mithril_nb.inspection import Inspection
from mithril_nb.stages import jax_versions
from mithril_nb.stages.records import Equation, format_source
from mithril_nb.stages.trace.equations import Site, Sites, wirings
from mithril_nb.targets.inspection import function_arguments
from mithril_nb.train import Run
from mithril_nb.train.store.stored import StoredRun
from mithril_nb.train.store.tracking import TrackedRun

_MOST_ROWS = 10


@dataclass(frozen=True)
class FirstNan:
    """Where the first NaN of a program comes from, or its first infinity if it has no NaN.

    Attributes:
        kind: `"NaN"` or `"inf"`.
        argument: Name of the argument that has it already; `""` if an equation makes it.
        rows: The first rows of the argument that have it.
        equation: The equation that makes it, with block, role and line; `None` for an argument. An infinite constant of
            the program is no cause.
        iterations: For each loop around the equation, the outermost first: its id, and the iteration from 0. The
            condition of a `while` is checked before the iteration.
        inputs: Statistics of the operands of the equation, or of the argument.
        outputs: Statistics of the results of the equation.
        overflow: The equation that made an infinity among the operands; `None` if there is none.
        overflow_argument: Name of the argument that has the infinity instead.
        direction: `"forward"`, `"backward"` or `"optimizer"` for an equation, if it is known. `"data"` for an argument,
            if it is of the batch of a run.
        step: Number of the step in its run; `None` for a step with arguments.
    """

    kind: str
    argument: str = ""
    rows: tuple[int, ...] = ()
    equation: Equation | None = None
    iterations: tuple[tuple[str, int], ...] = ()
    inputs: tuple[Statistics, ...] = ()
    outputs: tuple[Statistics, ...] = ()
    overflow: Equation | None = None
    overflow_argument: str = ""
    direction: str = ""
    step: int | None = None

    @property
    def diagnostic(self) -> Diagnostic:
        """The finding as a message."""
        facts = [("loop", f"iteration {at} of equation {id}, from 0") for id, at in self.iterations]
        facts += [("input", _text(statistics)) for statistics in self.inputs]
        facts += [("output", _text(statistics)) for statistics in self.outputs]
        equation = self.equation
        if self.step is not None:
            facts = [("step", str(self.step)), *facts]
        if equation is None:
            facts = [("rows", ", ".join(map(str, self.rows))), *facts] if self.rows else facts
            return Diagnostic(f"argument {self.argument!r} has {self.kind}.", tuple(facts), code="FloatingPointError")
        facts = [("role", equation.role or "unknown"), ("line", format_source(equation.source) or "unknown"), *facts]
        if self.overflow is not None:
            where = (self.overflow.primitive, self.overflow.block, format_source(self.overflow.source))
            facts.append(("inf comes from", ", ".join(filter(None, where))))
        if self.overflow_argument:
            facts.append(("inf comes from", f"argument {self.overflow_argument!r}"))
        block = f" in block {equation.block!r}" if equation.block else ""
        summary = f"{equation.primitive}{block} makes the first {self.kind}: equation {equation.id}."
        return Diagnostic(summary, tuple(facts), block=equation.block, code="FloatingPointError")

    def __str__(self) -> str:
        return str(self.diagnostic)


def find_nan(target: Any, *args: Any, **options: Any) -> FirstNan | None:
    """Replay a step on its arguments, and return what brings in the first NaN of its results.

    It is the first equation, in program order, that makes a NaN from operands without one, and whose NaN reaches a
    result; or the argument that has a NaN already. Infinities, such as those of masks, are reported only if no result
    has a NaN. Equations in jitted functions, branches and loops are named too; a `shard_map` or a kernel is reported
    as a whole. The step is run twice for each level of nesting, with its callbacks; donated arguments stay valid.

    Of a run whose loss became NaN, the steps are replayed from its latest state without NaN, to the first step whose
    loss or state is not finite. Their losses must be those of the run, bit for bit. It need not be the step whose loss
    was NaN: a gradient may break the params one step earlier. If the loss was finite again and then NaN, it is the last
    time that counts. A run without such a loss is refused. If `ml.fit` continues a stored run and has not trained yet,
    the steps up to the last stored one, and the next, are replayed.

    Args:
        target: A function, such as a train step: pure, of nnx modules or of Equinox modules, jitted or not. Or its
            `Inspection`. Or a run of `ml.fit`; or a run of `ml.track`, stored or not, with the inspection of its step
            as `graph=`: the step takes and returns the logged state, in this order, and takes the batch and knobs.
        *args: The arguments with which the step makes NaN, such as the state before it and the batch. For the run of a
            loop without `graph=`, or of another process: the inspection of its step, and the batches.
        **options: Keyword arguments of the step, and options of `ml.inspect`.

    Returns:
        The cause; `None` if all results are finite, or if only constants of the program are infinite.

    Raises:
        UnexpectedInputError: The inspection takes other arguments.
        UnknownOptionError: The run cannot be replayed; the message names what is missing.
        StageUnavailableError: The target is no function, or it cannot be traced.

    Examples:
        >>> import jax.numpy as jnp
        >>> def loss(w, x):
        ...     return jnp.sum(jnp.log(x @ w))
        >>> first = find_nan(loss, jnp.array([1.0, -1.0]), jnp.array([[2.0, 1.0], [1.0, 3.0]]))
        >>> first.equation.primitive, first.equation.role, first.inputs[0].min
        ('log', 'forward', -2.0)
    """
    if isinstance(target, Run | StoredRun | TrackedRun):
        return _of_run(target, args)
    if isinstance(target, Inspection):
        inspection, leaves = target, jax.tree.leaves(args)
    else:
        leaves = function_arguments(target, args, options)
        inspection = targets.inspect(target, *args, **options)
    program = inspection.traced_program
    inputs = program.trace.inputs
    shapes = [np.shape(leaf) for leaf in leaves]
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves) or shapes != [leaf.spec.shape for leaf in inputs]:
        raise UnexpectedInputError(
            f"program {inspection.name!r} does not take these arguments.",
            (
                ("takes", ", ".join(f"{leaf.name} {leaf.spec}" for leaf in inputs) or "nothing"),
                ("given", ", ".join(map(str, shapes)) or "nothing"),
            ),
        )
    closed = program.trace.closed
    for kind, is_bad in (("NaN", jnp.isnan), ("inf", jnp.isinf)):
        level = _Level(closed.jaxpr, closed.consts, leaves, program.top)
        cause = _cause(level, is_bad, ())
        if cause is None:
            continue
        if isinstance(cause, int):
            array = np.asarray(leaves[cause])
            bad = np.asarray(is_bad(leaves[cause]))
            rows = np.flatnonzero(bad.reshape(len(bad), -1).any(1)) if bad.ndim else ()
            first_rows = tuple(int(row) for row in rows[:_MOST_ROWS])
            return FirstNan(kind, inputs[cause].name, first_rows, inputs=(Statistics.of(array),))
        level, site, iterations = cause
        operands, results = level.values(site.equation.invars), level.values(site.equation.outvars)
        overflow, argument = None, ""
        if kind == "NaN" and any(map(_has(jnp.isinf), operands)):
            source = _first(level, jnp.isinf, site.equation.invars)
            overflow = program.by_id[source.id] if isinstance(source, Site) else None
            argument = _argument(level, source, leaves, inputs) if isinstance(source, int) else ""
        before, after = (
            tuple(Statistics.of(value) for value in values if _is_number(value)) for values in (operands, results)
        )
        equation = program.by_id[site.id]
        direction = {"update": "optimizer", None: ""}.get(equation.role, equation.role or "")
        return FirstNan(kind, "", (), equation, iterations, before, after, overflow, argument, direction)
    return None


def _argument(level: _Level, index: int, leaves: Sequence[Any], inputs: Sequence[Any]) -> str:
    """Return the name of the argument of the program that an infinite input of a level is; `""` if it is none."""
    value = np.asarray(level.arguments[index])
    pairs = zip(inputs, leaves, strict=True)
    # By value, because a jitted function inside has arrays of its own.
    equal = (leaf.name for leaf, array in pairs if _has(jnp.isinf)(array) and np.array_equal(array, value))
    return next(equal, "")


def _of_run(run: Run | StoredRun | TrackedRun, args: Sequence[Any]) -> FirstNan | None:
    with closing(replayed(run, args)) as steps:
        for step in steps:
            if math.isfinite(step.loss) and not any(map(_has(jnp.isnan), step.after)):
                continue
            first = _in_step(step)
            # The params were infinite before this step: an earlier update is the cause.
            argument = "" if first is None else first.overflow_argument or first.argument
            if argument in step.state:
                at = step.state.index(argument)
                with closing(replayed(run, args)) as again:
                    early = next((earlier for earlier in again if _has(jnp.isinf)(earlier.after[at])), step)
                return _in_step(early)
            return first
    raise without_nan(run)


def _in_step(step: Step) -> FirstNan | None:
    first = find_nan(step.target, *step.arguments)
    if first is None:
        return None
    return replace(first, step=step.number, direction="data" if first.argument in step.data else first.direction)


class _Level:
    """One jaxpr with the values of its inputs. Other values are computed on request, because all would take memory."""

    def __init__(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any], sites: Sites):
        self.jaxpr, self.consts, self.arguments, self.sites = jaxpr, consts, arguments, sites

    def _run(self, variables: Sequence[Any], of: Callable[[Any], Any]) -> list[Any]:
        effects, info = self.jaxpr.effects, self.jaxpr.debug_info._replace(result_paths=None)
        changed = self.jaxpr.replace(outvars=list(variables), effects=effects, debug_info=info)
        run = jax_versions.jaxpr_as_fun(ClosedJaxpr(changed, self.consts))
        return list(jax.jit(lambda *arguments: [of(value) for value in run(*arguments)])(*self.arguments))

    def values(self, atoms: Sequence[Any]) -> list[Any]:
        """Return the values of operands, or of results that are not dropped."""
        return self._run([atom for atom in atoms if not jax_versions.is_dropped(atom)], lambda value: value)

    def bad(self, is_bad: Callable[[Any], Any]) -> dict[Any, bool]:
        """Return for each variable of floating point whether it has such an element."""
        results = [var for equation in self.jaxpr.eqns for var in equation.outvars if not jax_versions.is_dropped(var)]
        variables = [var for var in (*self.jaxpr.constvars, *self.jaxpr.invars, *results) if _is_float(var.aval)]
        flags = self._run(variables, lambda value: is_bad(value).any())
        return {var: bool(flag) for var, flag in zip(variables, jax.device_get(flags), strict=True)}


def _is_float(aval: Any) -> bool:
    return hasattr(aval, "dtype") and jnp.issubdtype(aval.dtype, jnp.inexact)


def _is_number(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.number) or value.dtype == bool


def _has(is_bad: Callable[[Any], Any]) -> Callable[[Any], bool]:
    return lambda value: _is_float(value) and bool(is_bad(value).any())


def _first(level: _Level, is_bad: Callable[[Any], Any], atoms: Sequence[Any]) -> Site | int | None:
    """Return the first equation of a jaxpr that makes such elements of `atoms`, or the index of the first input."""
    flags = level.bad(is_bad)
    reached = {atom for atom in atoms if not jax_versions.is_literal(atom) and flags.get(atom)}
    makers: list[Site] = []
    for site in reversed(level.sites):
        if reached.isdisjoint(site.equation.outvars):
            continue
        operands = [var for var in jax_versions.variables(site.equation.invars) if flags.get(var)]
        literals = [atom.val for atom in site.equation.invars if jax_versions.is_literal(atom)]
        if not operands and not any(_has(is_bad)(jnp.asarray(value)) for value in literals):
            makers.append(site)
        reached.update(operands)
    inputs = [index for index, var in enumerate(level.jaxpr.invars) if var in reached]
    return inputs[0] if inputs else makers[-1] if makers else None


_Cause = tuple[_Level, Site, tuple[tuple[str, int], ...]]


def _cause(level: _Level, is_bad: Callable[[Any], Any], iterations: tuple[tuple[str, int], ...]) -> _Cause | int | None:
    site = _first(level, is_bad, level.jaxpr.outvars)
    if not isinstance(site, Site):
        return site
    inner = _inner(level, site, is_bad, iterations)
    # A kernel, or a body whose equations are written in another way than XLA runs them.
    return inner if isinstance(inner, tuple) else (level, site, iterations)


def _inner(
    level: _Level, site: Site, is_bad: Callable[[Any], Any], iterations: tuple[tuple[str, int], ...]
) -> _Cause | int | None:
    """Return the cause inside the equation of a call, branch or loop."""
    equation, name = site.equation, site.primitive
    is_loop = name in ("scan", "while")
    if not site.bodies or not (is_loop or name == "cond" or name in jax_versions.CALL_NAMES):
        return None
    operands = level.values(equation.invars)
    consts = {
        id(jax_versions.open_jaxpr(body)): getattr(body, "consts", ()) for _, body in jax_versions.bodies(equation)
    }
    wiring, *conditions = wirings(site)
    if name == "cond":
        branches = wirings(site)
        wiring = branches[min(max(int(operands[0]), 0), len(branches) - 1)]
    if wiring.operands is None:
        return None
    arguments = [operands[index] for index in wiring.operands]
    inside = partial(_Level, wiring.jaxpr, consts[id(wiring.jaxpr)], sites=wiring.sites)
    if not is_loop:
        return _cause(inside(arguments=arguments), is_bad, iterations)
    run = jax.jit(jax_versions.jaxpr_as_fun(ClosedJaxpr(wiring.jaxpr, consts[id(wiring.jaxpr)])))
    state_at = [at for at, _ in wiring.carried]
    sliced = range(max(state_at, default=wiring.constants - 1) + 1, len(arguments)) if name == "scan" else ()
    count = int(equation.params["length"]) if name == "scan" else None
    iteration = 0
    while count is None or iteration < count:
        at = count - 1 - iteration if count is not None and equation.params["reverse"] else iteration
        now = [value[at] if index in sliced else value for index, value in enumerate(arguments)]
        if conditions:
            (check,) = conditions
            constants = [operands[index] for index in (check.operands or ())[: check.constants]]
            test = jax_versions.jaxpr_as_fun(ClosedJaxpr(check.jaxpr, consts[id(check.jaxpr)]))
            if not bool(test(*constants, *(arguments[index] for index in state_at))[0]):
                return None
        results = run(*now)
        if any(map(_has(is_bad), results)):
            return _cause(inside(arguments=now), is_bad, (*iterations, (site.id, at)))
        for index, result in wiring.carried:
            arguments[index] = results[result]
        iteration += 1
    return None


def _text(statistics: Statistics) -> str:
    share = (statistics.nan + statistics.inf) / max(1, int(np.prod(statistics.shape)))
    numbers = (
        "no finite element"
        if statistics.mean is None
        else f"from {statistics.min:.4g} to {statistics.max:.4g}, mean {statistics.mean:.4g}"
    )
    return f"{statistics.dtype} {statistics.shape}, {numbers}, {share:.2%} not finite"
