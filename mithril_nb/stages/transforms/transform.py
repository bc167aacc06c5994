"""A transform of functions: how it wraps a function, and what it changes in the jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mithril_nb.stages.transforms.numbers import (
    Maker,
)

Function = Callable[..., Any]
Args = tuple[Any, ...]


@dataclass(frozen=True)
class Compared:
    """Two sides of one transform, evaluated.

    Attributes:
        how: Description of the reference.
        got: Result of the transformed function.
        expected: Reference result.
        scale: Sum of the magnitudes of the terms that were added up, or 0; rounding errors grow with it.
        is_rough: True if one side comes from finite differences.
    """

    how: str
    got: Any
    expected: Any
    scale: float = 0.0
    is_rough: bool = False


@dataclass(frozen=True)
class Counts:
    """Numbers of equations with each mark in a step, for its explanation.

    Attributes:
        before: Equations before.
        kept: Unchanged equations.
        batched: Equations with an added batch axis.
        changed: Equations with another change.
        new: Added equations.
        gone: Removed equations.
        recomputed: Added equations that a checkpoint recomputes.
        transposed: Other added equations that reverse mode created.
    """

    before: int
    kept: int
    batched: int
    changed: int
    new: int
    gone: int
    recomputed: int
    transposed: int


@dataclass(frozen=True)
class Transform:
    """An unknown transform: it takes a function and returns one with the same arguments.

    Attributes:
        name: Name for display.
        entry: The transform itself.
        options: Its keyword arguments.
        amount: Size of the batch, or number of iterations.
    """

    name: str
    entry: Function | None = None
    options: tuple[tuple[str, Any], ...] = ()
    amount: int = 0

    keeps_inputs = False
    """True if the arguments after start with the arguments before."""

    @property
    def option(self) -> Mapping[str, Any]:
        """The options as a mapping."""
        return dict(self.options)

    def wrap(self, fn: Function, count: int) -> Function:
        """Return the transformed function, given the number of arguments of the function."""
        assert self.entry is not None
        return self.entry(fn, **self.option)

    def args(self, args: Args, out: Any, make: Maker) -> Args:
        """Return the arguments after, from those before and the result before."""
        return args

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the arguments after."""
        return tuple(names)

    def compare(self, before: Function, given: Args, after: Function, args: Args) -> Compared | None:
        """Evaluate both sides; return `None` if the transform has no reference result."""
        return None

    def explain(self, counts: Counts) -> str:
        """Return one sentence that explains how the transform changed the equations."""
        return _kept_and_added(counts)

    def alternatives(self, args: Args, out: Any) -> tuple[str, ...]:
        """Return the entries of a chain to replace it with if JAX rejects it; `()` if unknown."""
        return ()


def count_equations(count: int) -> str:
    """Return a number of equations as text."""
    return f"{count} equation{'' if count == 1 else 's'}"


def all_equations(counts: Counts) -> str:
    """Return as text how many of the equations were kept."""
    if counts.kept == counts.before:
        return "the only equation" if counts.before == 1 else f"all {count_equations(counts.before)}"
    return count_equations(counts.before)


def other_equations(counts: Counts) -> str:
    """Return the counts of changed and removed equations, for the end of a sentence."""
    parts = []
    if changed := counts.changed + counts.batched:
        parts.append(f"{changed} {'is' if changed == 1 else 'are'} changed")
    if counts.gone:
        parts.append(f"{counts.gone} {'is' if counts.gone == 1 else 'are'} removed")
    return f"; {', '.join(parts)}" if parts else ""


def _kept_and_added(counts: Counts) -> str:
    return f"keeps {counts.kept} of {count_equations(counts.before)} and adds {counts.new}{other_equations(counts)}."


def forward_and_backward(counts: Counts) -> str:
    """Return as text how many equations each pass has."""
    recomputed = f"{counts.recomputed} recomputed by a checkpoint, " if counts.recomputed else ""
    return (
        f"keeps {counts.kept} of {count_equations(counts.before)} as the forward pass and adds {counts.new}: "
        f"{counts.new - counts.recomputed - counts.transposed} for local derivatives, {recomputed}"
        f"{counts.transposed} for the backward pass{other_equations(counts)}."
    )
