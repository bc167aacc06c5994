"""`step_through`: apply transforms one at a time, compare the jaxpr before and after each, and check the numbers."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax

from mithril_nb.display import Shown
from mithril_nb.errors import Diagnostic, StageUnavailableError, UnknownOptionError, short_repr
from mithril_nb.stages.failure import first_lines
from mithril_nb.stages.records import Stage
from mithril_nb.stages.trace.equations import sites_of
from mithril_nb.stages.trace.jaxpr_text import print_jaxpr
from mithril_nb.stages.trace.provenance.scopes import Tags
from mithril_nb.stages.trace.traced import record_of
from mithril_nb.stages.trace.tracing import Trace, caller, leaves_of, shape_of_aval, trace
from mithril_nb.stages.transforms.kinds import (
    COUNTED,
    NAMED,
    Compared,
    Counts,
    Examples,
    Shapes,
    StepCheck,
    StepTransform,
    comparison,
    transform_of,
)
from mithril_nb.stages.transforms.marks import MarkedEquation, Matching, Side

_TRACE = "trace"


@dataclass(frozen=True)
class TransformStep(Shown):
    """One step of `step_through`: a transform, and its effect on each equation.

    Attributes:
        name: Name of the transform. The first step is `"trace"`.
        before: The jaxpr before the transform; `None` in the first step.
        after: The jaxpr after the transform; `None` if the transform failed.
        equations: The effect on each equation of `after`, in the order of the equations.
        equations_before: The effect on each equation of `before`, in the order of the equations.
        explanation: One sentence about the effect of the transform; `""` if the transform failed.
        problem: The error, if the transform failed; else `None`.
    """

    name: str
    before: Stage | None
    after: Stage | None
    equations: tuple[MarkedEquation, ...] = field(default=(), repr=False)
    equations_before: tuple[MarkedEquation, ...] = field(default=(), repr=False)
    explanation: str = ""
    problem: Diagnostic | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the step as data that `json.dumps` accepts."""
        return {
            "name": self.name,
            "before": None if self.before is None else self.before.text,
            "after": None if self.after is None else self.after.text,
            "equations": [_row(equation) for equation in self.equations],
            "equations_before": [_row(equation) for equation in self.equations_before],
            "explanation": self.explanation,
            "problem": None if self.problem is None else self.problem.to_dict(),
        }


class TransformSteps(Shown, Sequence[TransformStep]):
    """The steps of `step_through`, as a sequence. The function only runs when `check` is called.

    Attributes:
        name: Name of the function.
        through: Names of the requested transforms, in order.
    """

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], chain: Sequence[StepTransform]):
        self.name = getattr(fn, "__name__", type(fn).__name__)
        self.through = tuple(transform.name for transform in chain)
        self._fn, self._args = fn, args
        self._links: list[tuple[StepTransform, _Point, _Point]] = []
        self._steps: list[TransformStep] = []
        self._point = self._start()
        if self._point is not None:
            for number, transform in enumerate(chain, 1):
                if not self._take_step(self._point, transform, number):
                    break

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index: Any) -> Any:
        return self._steps[index]

    def __repr__(self) -> str:
        done = ", ".join(step.name + (" (problem)" if step.problem else "") for step in self._steps)
        return f"TransformSteps({self.name!r}: {done})"

    @property
    def problem(self) -> Diagnostic | None:
        """The error of the last step if it failed; `None` if all transforms were applied."""
        return self._steps[-1].problem

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of the transforms that were not tried because an earlier step failed."""
        return self.through[len(self._steps) - 1 :]

    def to_dict(self) -> dict[str, Any]:
        """Return the steps as data that `json.dumps` accepts."""
        return {"name": self.name, "through": list(self.through), "steps": [step.to_dict() for step in self._steps]}

    def check(self) -> tuple[StepCheck, ...]:
        """Run the function after each transform, and compare the result with a reference.

        The reference is computed without the transform; see the attribute `how` of `StepCheck`. Arguments that are
        arrays are used unchanged. An argument given as a shape gets random numbers from a fixed seed.

        Returns:
            A comparison for each step that did not fail. Differences are reported in it, and raise no error.

        Examples:
            >>> import jax.numpy as jnp
            >>> for one in step_through(lambda x: jnp.sum(x**3), jnp.arange(3.0), through=("grad", "jit")).check():
            ...     print(one.step, one.agrees, one.how)
            trace True the Python function
            grad True jax.jvp along a random direction
            jit True the function itself, run operation by operation
        """
        point = self._point
        if point is None:
            return ()
        make = Examples()
        first = self._links[0][1] if self._links else point
        args: tuple[Any, ...] = jax.tree.map(
            lambda leaf: make.like(leaf) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf, self._args
        )
        traced = first.function
        checks = [comparison(_TRACE, lambda: Compared("the Python function", jax.jit(traced)(*args), self._fn(*args)))]
        for transform, before, after in self._links:
            args = transform.args(args, before.out, make)
            checks.append(comparison(transform.name, partial(_compared, transform, before, after, args)))
        return tuple(checks)

    def _start(self) -> _Point | None:
        try:
            traced = trace(self._fn, self._args)
            out = jax.eval_shape(traced.call(traced.closed), *self._args)
        except Exception as error:
            problem = Diagnostic(
                f"{self.name!r} cannot be traced.",
                ((type(error).__name__, first_lines(error)),),
                code=StageUnavailableError.__name__,
            )
            self._steps.append(TransformStep(_TRACE, None, None, problem=problem))
            return None
        structure = jax.tree.structure(self._args)
        args = jax.tree.unflatten(structure, [shape_of_aval(var.aval) for var in traced.closed.jaxpr.invars])
        # An argument without arrays, such as `None`, has no leaf. Then all arguments get new names.
        names = tuple(dict.fromkeys(leaf.argument for leaf in traced.inputs))
        point = _Point(
            traced, args, out, names if len(names) == len(args) else tuple(f"arg{i}" for i in range(len(args)))
        )
        count = len(point.side.sites)
        self._steps.append(
            TransformStep(
                _TRACE,
                None,
                point.stage,
                tuple(MarkedEquation(site.id, "new") for site in point.side.sites),
                (),
                f"traces {self.name!r} once with shapes and records {count} equation{'' if count == 1 else 's'}.",
            )
        )
        return point

    def _take_step(self, point: _Point, transform: StepTransform, number: int) -> bool:
        tags = Tags({name for site in point.side.sites for name, _ in site.stack})
        marked = point.trace.call(tags.tag(point.trace.closed, is_whole=True))
        try:
            wrapped = transform.wrap(marked, len(point.args))
            args = transform.args(point.args, point.out, Shapes())
            closed, out = jax.make_jaxpr(wrapped, return_shape=True)(*args)
        except Exception as error:
            problem = Diagnostic(
                f"step {number} of {self.name!r}, {transform.name!r}, cannot be applied.",
                (
                    (type(error).__name__, first_lines(error)),
                    *[
                        (verb, ", ".join(f"{leaf.name} {leaf.spec}" for leaf in leaves) or "nothing")
                        for verb, leaves in (("takes", point.trace.inputs), ("returns", point.trace.outputs))
                    ],
                ),
                code=StageUnavailableError.__name__,
            )
            self._steps.append(TransformStep(transform.name, point.stage, None, problem=problem))
            return False
        names = transform.names(point.names)
        inputs, outputs = leaves_of(args, list(names), closed.jaxpr, out)
        none = (False,) * len(inputs)  # donation does not matter for the equations
        call = caller(out, point.trace.name)
        trace = replace(point.trace, closed=closed, inputs=inputs, outputs=outputs, donated_leaves=none, call=call)
        reached = _Point(trace, args, out, names)
        shared = len(point.trace.closed.jaxpr.invars) if transform.keeps_inputs else 0
        matching = Matching(point.side, reached.side, tags, shared)
        new = [equation for equation in matching.after if equation.mark == "new"]
        old = Counter((equation.mark, equation.is_batched) for equation in matching.before)
        counts = Counts(
            before=old.total(),
            unchanged=old["kept", False] + old["kept", True],
            batched=old["changed", True],
            changed=old["changed", False],
            new=len(new),
            gone=old["gone", False],
            recomputed=sum("remat" in equation.via for equation in new),
            transposed=sum("transpose" in equation.via and "remat" not in equation.via for equation in new),
        )
        self._steps.append(
            TransformStep(
                transform.name, point.stage, reached.stage, matching.after, matching.before, transform.explain(counts)
            )
        )
        self._links.append((transform, point, reached))
        self._point = reached
        return True


def step_through(
    fn: Callable[..., Any], *args: Any, through: Sequence[Any] = ("vmap", "grad", "remat", "jit")
) -> TransformSteps:
    """Apply transforms to a function one at a time, and show the effect of each on the equations.

    The function is traced, but does not run.

    Args:
        fn: Any function that JAX can trace.
        *args: Arguments of the function: pytrees of arrays or `jax.ShapeDtypeStruct`s.
        through: The transforms, the innermost first. An entry is one of these:

            - a name: `"vmap"`, `"grad"`, `"value_and_grad"`, `"jvp"`, `"vjp"`, `"linearize"`, `"remat"`,
              `"checkpoint"` (the same as `"remat"`), `"jit"`, `"scan"`, `"mean"` or `"sum"`;
            - a pair: `("vmap", 4)` for a batch of 4, or `("scan", 5)` for five iterations;
            - a function that takes and returns a function, such as `functools.partial(jax.vmap, in_axes=(None, 0))`.

            `"mean"` and `"sum"` reduce the result to a scalar, which `"grad"` needs. `"jvp"` and `"linearize"` add an
            argument for tangents, `"vjp"` adds one for cotangents.

    Returns:
        The steps. The first is the trace. If JAX rejects a transform, its step is the last and has a `problem`.

    Examples:
        >>> import jax.numpy as jnp
        >>> steps = step_through(lambda x: jnp.sum(jnp.sin(x)), jnp.ones(3), through=("grad", ("vmap", 4)))
        >>> for part in steps[2].explanation.split("; "):
        ...     print(part)
        adds a batch axis of 4 to 4 of 5 equations
        1 is unchanged, as it does not depend on the batch
        1 is added to align the axes.
        >>> [(one.id, one.mark, one.source, one.via) for one in steps[1].equations if one.mark == "new"]
        [('1', 'new', '0', ('jvp',)), ('3', 'new', '1', ('transpose', 'jvp')), ('4', 'new', '0', ('transpose', 'jvp'))]
    """
    is_several = isinstance(through, list | tuple)
    entries = tuple(through) if is_several else (through,)
    chain = []
    for entry in entries:
        transform = transform_of(entry)
        if transform is None:
            name = str(entry[0] if isinstance(entry, tuple) and entry else entry)
            near = next(iter(difflib.get_close_matches(name, NAMED, 1)), "grad")
            raise UnknownOptionError(
                f"step_through has no transform {short_repr(entry)}.",
                (
                    ("names", ", ".join(NAMED)),
                    ("pairs", ", ".join(f'("{name}", {count})' for name, count in COUNTED.items())),
                    ("or", "a function that takes and returns a function"),
                ),
                f'through=("{near}",)',
            )
        chain.append(transform)
    return TransformSteps(fn, args, chain)


class _Point:
    """The program after some of the transforms, with its arguments, their names, and its result as shapes."""

    def __init__(self, trace: Trace, args: tuple[Any, ...], out: Any, names: tuple[str, ...]):
        self.trace, self.args, self.out, self.names = trace, args, out, names
        jaxpr = trace.closed.jaxpr
        self.side = Side(jaxpr, *sites_of(jaxpr))
        records = {site.id: record_of(site) for site in self.side.sites}
        text, instructions = print_jaxpr(trace, self.side.top, records, lambda _: "")
        self.stage = Stage("jaxpr", text, instructions)
        self.function = trace.call(trace.closed)


def _compared(transform: StepTransform, before: _Point, after: _Point, args: tuple[Any, ...]) -> Compared | None:
    if not transform.keeps_inputs:  # an unknown transform has no reference
        return None
    return transform.compare(before.function, jax.jit(after.function)(*args), args)


def _row(equation: MarkedEquation) -> dict[str, Any]:
    row = {**vars(equation), "via": list(equation.via)}
    del row["is_batched"]
    return row
