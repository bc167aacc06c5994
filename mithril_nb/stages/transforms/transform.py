"""A transform of functions: the arguments it adds, its effect on the jaxpr, and its result on numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.stages.failure import first_lines


class Shapes:
    """Factory for the leaves of arguments that a transform adds, as shapes."""

    def batched(self, leaf: Any, axis: int, size: int) -> Any:
        """Return a leaf with one more axis."""
        return jax.ShapeDtypeStruct((*leaf.shape[:axis], size, *leaf.shape[axis:]), leaf.dtype)

    def like(self, leaf: Any) -> Any:
        """Return another leaf of the same shape and dtype, such as a tangent."""
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


class Examples(Shapes):
    """Factory for the same leaves as arrays of random numbers from a fixed seed."""

    def __init__(self):
        self._random = np.random.default_rng(0)

    def batched(self, leaf: Any, axis: int, size: int) -> Any:
        """Return a leaf with one more axis."""
        leaf = jnp.asarray(leaf)
        if not is_inexact(leaf):
            return jnp.stack([leaf] * size, axis)
        # Close to the original, so that it stays in the function's domain.
        return jnp.stack([leaf * np.asarray(self._random.uniform(0.8, 1.2), leaf.dtype) for _ in range(size)], axis)

    def like(self, leaf: Any) -> Any:
        """Return another leaf of the same shape and dtype."""
        dtype, shape = leaf.dtype, leaf.shape
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            keys = (jax.random.key(0, impl=name) for name in ("threefry2x32", "rbg", "unsafe_rbg"))
            return jnp.broadcast_to(next(key for key in keys if key.dtype == dtype), shape)
        if jnp.issubdtype(dtype, jnp.complexfloating):
            made = self._random.normal(size=shape) + 1j * self._random.normal(size=shape)
            return jnp.asarray(made / 2, dtype)
        if jnp.issubdtype(dtype, jnp.inexact):
            return jnp.asarray(self._random.normal(size=shape) / 2, dtype)
        return jnp.asarray(self._random.integers(0, 2, size=shape), dtype)


def is_inexact(leaf: Any) -> bool:
    """Return whether a leaf has derivatives, as real and complex floats have."""
    return jnp.issubdtype(jax.dtypes.result_type(leaf), jnp.inexact)


def axes_of(axes: Any, full: Any) -> list[int | None]:
    """Return the axis of each leaf of the tree `full`.

    Args:
        axes: One axis for all leaves, or a tree prefix of axes, as in `jax.vmap`. `None` is an axis too.
        full: The tree.
    """
    none = object()  # JAX does not count `None` as a leaf, but it is an axis here
    marked = jax.tree.map(lambda axis: none if axis is None else axis, axes, is_leaf=lambda axis: axis is None)
    spread = jax.tree.leaves(jax.tree.broadcast(marked, full))
    return [None if axis is none else axis for axis in spread]


def floats(tree: Any) -> list[Any]:
    """Return the leaves that have derivatives."""
    return [leaf for leaf in jax.tree.leaves(tree) if is_inexact(leaf)]


def with_zeros(tree: Any, given: Sequence[Any]) -> Any:
    """Return tangents for a whole tree: the items of `given` for its floats, and JAX's own zeros for other leaves."""
    queue = iter(given)
    return jax.tree.map(
        lambda leaf: next(queue) if is_inexact(leaf) else np.zeros(np.shape(leaf), jax.dtypes.float0), tree
    )


def tangents_of(tree: Any, make: Shapes) -> Any:
    """Return a random direction for the floats of a tree."""
    return with_zeros(tree, [make.like(jnp.asarray(leaf)) for leaf in floats(tree)])


def paired(left: Any, right: Any) -> tuple[Any, Any]:
    """Return the inner product of two lists of leaves, and the sum of the magnitudes of its terms."""
    products = [one * other for one, other in zip(floats(left), floats(right), strict=True)]
    total = sum((jnp.sum(jnp.real(one)) for one in products), jnp.zeros(()))
    return total, sum((jnp.sum(jnp.abs(one)) for one in products), jnp.zeros(()))


def slope_along(
    fn: Callable[..., Any], args: tuple[Any, ...], direction: Any, backwards: bool = False
) -> tuple[Any, str, bool]:
    """Return the slope of a scalar function along a direction, the name of the method, and whether it is approximate.

    The method is `jax.jvp`, or `jax.vjp` if `backwards` is true. If JAX does not support that mode for the function,
    the method is finite differences.
    """
    try:
        if backwards:
            value, pull = jax.vjp(fn, *args)
            return paired(pull(jnp.ones_like(value)), floats(direction))[0], "jax.vjp", False
        return jnp.real(jax.jvp(fn, args, direction)[1]), "jax.jvp", False
    except (TypeError, ValueError):  # A custom_vjp has no forward mode, a while loop no reverse mode.
        # The cube root of the precision: there, truncation and rounding errors are about equal.
        size = 1e-2 if jnp.finfo(jnp.result_type(*floats(args))).bits <= 32 else 1e-5
        ahead, behind = (
            fn(
                *jax.tree.map(
                    lambda leaf, d, s=step: leaf + s * d if is_inexact(leaf) else leaf, args, tuple(direction)
                )
            )
            for step in (size, -size)
        )
        return jnp.real(ahead - behind) / (2 * size), "finite differences", True


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
    """A transform from a function to a function. By default, the arguments of both are the same.

    Attributes:
        name: Name for display.
        entry: The function that applies the transform, if `wrap` is not overridden.
        options: Keyword arguments of the transform, as pairs.
        amount: Size of the batch of `"vmap"`, or number of iterations of `"scan"`; else 0.
    """

    name: str
    entry: Function | None = None
    options: tuple[tuple[str, Any], ...] = ()
    amount: int = 0

    keeps_inputs = True
    """True if the arguments of the transformed function start with those of the original function."""

    @property
    def option(self) -> Mapping[str, Any]:
        """The options as a mapping."""
        return dict(self.options)

    def wrap(self, fn: Function, count: int) -> Function:
        """Return the transformed function.

        Args:
            fn: The original function.
            count: Number of its arguments.
        """
        assert self.entry is not None
        return self.entry(fn, **self.option)

    def args(self, args: Args, out: Any, make: Shapes) -> Args:
        """Return arguments for the transformed function.

        Args:
            args: The arguments of the original function.
            out: The result of the original function, as specs.
            make: Creates leaves, as shapes or as arrays.
        """
        return args

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the arguments of the transformed function, from those of the original function."""
        return tuple(names)

    def compare(self, before: Function, given: Args, after: Function, args: Args) -> Compared | None:
        """Run both sides; return `None` if the transform has no reference result.

        Args:
            before: The original function.
            given: Arguments of the original function.
            after: The transformed function.
            args: Arguments of the transformed function.
        """
        return None

    def explain(self, counts: Counts) -> str:
        """Return one sentence that explains how the transform changed the equations."""
        return _kept_and_added(counts)

    def alternatives(self, args: Args, out: Any) -> tuple[str, ...]:
        """Return entries of `through` that JAX accepts instead of this one, such as `"mean", "grad"`; `()` if unknown.

        Args:
            args: The arguments of the function that the transform is applied to.
            out: The result of this function, as specs.
        """
        return ()


def count_equations(count: int) -> str:
    """Return a number of equations as text."""
    return f"{count} equation{'' if count == 1 else 's'}"


def all_equations(counts: Counts) -> str:
    """Return the number of equations before a transform as text, such as `"all 3 equations"` if all were kept."""
    if counts.kept == counts.before:
        return "the only equation" if counts.before == 1 else f"all {count_equations(counts.before)}"
    return count_equations(counts.before)


def other_equations(counts: Counts) -> str:
    """Return the counts of changed and removed equations as the end of a sentence; `""` if there are none."""
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


# Relative tolerances. Derivatives lose digits, and sums are reordered by the compiler.
_ROUGH = 1e-2
_DIGITS = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 2e-2}
_FEW_DIGITS = 1e-1


@dataclass(frozen=True)
class StepCheck:
    """Two sides of a step, as numbers.

    Attributes:
        step: Name of the step.
        how: Description of the reference. If nothing was compared, the reason; if a side failed, the exception.
        largest: The largest difference. `None` if nothing was compared; infinite if a side failed, or if the shapes
            differ.
        tolerance: The largest difference that rounding explains.
        nans: Number of values that are NaN on both sides; they count as equal.
        is_failed: True if one side raised an exception.
    """

    step: str
    how: str
    largest: float | None = None
    tolerance: float = 0.0
    nans: int = 0
    is_failed: bool = False

    @property
    def agrees(self) -> bool | None:
        """True if both sides are equal within the tolerance; `None` if nothing was compared."""
        return None if self.largest is None else self.largest <= self.tolerance

    def __str__(self) -> str:
        if self.largest is None:
            return f"{self.step}: not compared: {self.how}"
        if self.is_failed:
            return f"{self.step}: FAILS at run time: {self.how}"
        nans = f", {self.nans} NaN on both sides" if self.nans else ""
        verdict = "agrees with" if self.agrees else "DIFFERS from"
        return f"{self.step}: {verdict} {self.how}: off by {self.largest:.2g}, tolerance {self.tolerance:.2g}{nans}"


def comparison(step: str, compare: Callable[[], Compared | None]) -> StepCheck:
    """Run the comparison of a step. An exception in it becomes part of the result."""
    try:
        compared = compare()
    except Exception as error:  # a function with side effects may trace and still fail when it runs
        return StepCheck(step, f"{type(error).__name__}: {first_lines(error, 1)}", math.inf, is_failed=True)
    if compared is None:
        return StepCheck(step, "its expected result is unknown")
    got, expected = jax.tree.leaves(compared.got), jax.tree.leaves(compared.expected)
    if [np.shape(one) for one in got] != [np.shape(one) for one in expected]:
        return StepCheck(step, f"{compared.how}, which returns different shapes", math.inf)
    largest, scale, rate, nans = 0.0, max(1.0, float(compared.scale)), 0.0, 0
    for one, other in zip(got, expected, strict=True):
        dtype = jax.dtypes.result_type(one)
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        wide = np.complex128 if jnp.issubdtype(dtype, np.complexfloating) else np.float64
        left, right = np.asarray(one).astype(wide), np.asarray(other).astype(wide)
        both = np.isnan(left) & np.isnan(right)
        nans += int(both.sum())
        same = both | (left == right)  # infinities too, whose difference is NaN
        apart = np.abs(np.subtract(left, right, where=~same, out=np.zeros_like(left)))
        largest = max(largest, float(np.max(np.where(np.isnan(apart), np.inf, apart), initial=0.0)))
        scale = max(scale, float(np.max(np.abs(right), where=np.isfinite(right), initial=0.0)))
        if jnp.issubdtype(dtype, np.inexact):
            rate = max(rate, _DIGITS.get(np.dtype(dtype).name, _FEW_DIGITS))
    return StepCheck(step, compared.how, largest, scale * (max(rate, _ROUGH) if compared.is_rough else rate), nans)
