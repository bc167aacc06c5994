"""The transforms that `step_through` has names for. Each is a subclass of `StepTransform`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.stages.failure import first_lines


class Shapes:
    """Creates the arrays that a transform adds to the arguments, as `jax.ShapeDtypeStruct`s."""

    def batched(self, leaf: Any, axis: int, size: int) -> Any:
        """Return `leaf` with an additional axis of `size` at position `axis`."""
        return jax.ShapeDtypeStruct((*leaf.shape[:axis], size, *leaf.shape[axis:]), leaf.dtype)

    def like(self, leaf: Any) -> Any:
        """Return an array of the same shape and dtype, such as a tangent."""
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


class Examples(Shapes):
    """Creates the same arrays as `Shapes`, with random numbers from a fixed seed."""

    def __init__(self):
        self._random = np.random.default_rng(0)

    def batched(self, leaf: Any, axis: int, size: int) -> Any:
        """Return `leaf` with an additional axis of `size` at position `axis`."""
        leaf = jnp.asarray(leaf)
        if not is_inexact(leaf):
            return jnp.stack([leaf] * size, axis)
        # Values close to the original are likely in the domain of the function, such as positive for a logarithm.
        return jnp.stack([leaf * np.asarray(self._random.uniform(0.8, 1.2), leaf.dtype) for _ in range(size)], axis)

    def like(self, leaf: Any) -> Any:
        """Return an array of the same shape and dtype."""
        dtype, shape = leaf.dtype, leaf.shape
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            keys = (jax.random.key(0, impl=name) for name in ("threefry2x32", "rbg", "unsafe_rbg"))
            return jnp.broadcast_to(next(key for key in keys if key.dtype == dtype), shape)
        if jnp.issubdtype(dtype, jnp.complexfloating):
            complex_values = self._random.normal(size=shape) + 1j * self._random.normal(size=shape)
            return jnp.asarray(complex_values / 2, dtype)
        if jnp.issubdtype(dtype, jnp.inexact):
            return jnp.asarray(self._random.normal(size=shape) / 2, dtype)
        return jnp.asarray(self._random.integers(0, 2, size=shape), dtype)


def is_inexact(leaf: Any) -> bool:
    """Return whether a leaf is a real or complex float, and so has derivatives."""
    return jnp.issubdtype(jax.dtypes.result_type(leaf), jnp.inexact)


def axes_of(axes: Any, full: Any) -> list[int | None]:
    """Return the axis of each leaf of the tree `full`, from `in_axes` or `out_axes` of `jax.vmap`."""
    none = object()  # JAX does not count `None` as a leaf, but it is an axis here
    marked = jax.tree.map(lambda axis: none if axis is None else axis, axes, is_leaf=lambda axis: axis is None)
    spread = jax.tree.leaves(jax.tree.broadcast(marked, full))
    return [None if axis is none else axis for axis in spread]


def floats(tree: Any) -> list[Any]:
    """Return the leaves that are floats."""
    return [leaf for leaf in jax.tree.leaves(tree) if is_inexact(leaf)]


def with_zeros(tree: Any, tangents: Sequence[Any]) -> Any:
    """Return a tree of tangents: the items of `tangents` for floats, and zeros of dtype `float0` for other leaves."""
    queue = iter(tangents)
    return jax.tree.map(
        lambda leaf: next(queue) if is_inexact(leaf) else np.zeros(np.shape(leaf), jax.dtypes.float0), tree
    )


def tangents_of(tree: Any, make: Shapes) -> Any:
    """Return a tree of tangents for which `make` creates the arrays."""
    return with_zeros(tree, [make.like(jnp.asarray(leaf)) for leaf in floats(tree)])


def paired(left: Any, right: Any) -> tuple[Any, Any]:
    """Return the inner product of the floats of two trees, and the sum of the absolute values of its terms."""
    products = [value * other for value, other in zip(floats(left), floats(right), strict=True)]
    total = sum((jnp.sum(jnp.real(product)) for product in products), jnp.zeros(()))
    return total, sum((jnp.sum(jnp.abs(product)) for product in products), jnp.zeros(()))


def slope_along(
    fn: Callable[..., Any], args: tuple[Any, ...], direction: Any, backwards: bool = False
) -> tuple[Any, str, bool]:
    """Return the derivative of a scalar function along a direction, the method used, and whether it is approximate."""
    # The method is `"jax.jvp"`, or `"jax.vjp"` if `backwards` is true. If JAX cannot differentiate the function in
    # this mode, it is `"finite differences"`, which is approximate. The direction has the structure of `args`.
    try:
        if backwards:
            value, pull = jax.vjp(fn, *args)
            return paired(pull(jnp.ones_like(value)), floats(direction))[0], "jax.vjp", False
        return jnp.real(jax.jvp(fn, args, direction)[1]), "jax.jvp", False
    except (TypeError, ValueError):  # a custom_vjp has no forward mode, a while loop no reverse mode
        # With the cube root of the precision as step size, truncation error and rounding error are about equal.
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
    """The result of a transformed function and its reference.

    Attributes:
        how: How the reference was computed, such as `"a Python loop of 4 runs"`.
        got: The result of the transformed function.
        expected: The reference.
        scale: If `got` is a sum: the sum of the absolute values of its terms, to which rounding errors are
            proportional; else 0.
        is_rough: True if the reference comes from finite differences.
    """

    how: str
    got: Any
    expected: Any
    scale: float = 0.0
    is_rough: bool = False


@dataclass(frozen=True)
class Counts:
    """Numbers of equations that a transform keeps, changes, adds and removes.

    Attributes:
        before: All equations before the transform.
        unchanged: Equations that did not change.
        batched: Equations to which only a batch axis was added.
        changed: Equations that changed in another way.
        new: All equations that were added.
        gone: Equations that were removed.
        recomputed: Added equations that a checkpoint recomputes.
        transposed: Added equations of the backward pass, without the recomputed ones.
    """

    before: int
    unchanged: int
    batched: int
    changed: int
    new: int
    gone: int
    recomputed: int
    transposed: int

    @property
    def kept_of_all(self) -> str:
        """Text such as `"3 of 5 equations"`: those that did not change."""
        return f"{self.unchanged} of {count_equations(self.before)}"

    @property
    def all(self) -> str:
        """The number of equations before the transform as text: `"all 3 equations"` if all are unchanged."""
        if self.unchanged == self.before:
            return "the only equation" if self.before == 1 else f"all {count_equations(self.before)}"
        return count_equations(self.before)

    @property
    def others(self) -> str:
        """`"; 1 is changed, 2 are removed"` for the end of an explanation; `""` if there are none."""
        counts = {"changed": self.changed + self.batched, "removed": self.gone}
        parts = [f"{count} {'is' if count == 1 else 'are'} {verb}" for verb, count in counts.items() if count]
        return f"; {', '.join(parts)}" if parts else ""


@dataclass(frozen=True)
class StepTransform:
    """A transform of a function, such as `jax.vmap`.

    By default, the transformed function has the same arguments as the original function.

    Attributes:
        name: Name for display.
        entry: The function that applies the transform; `None` if a subclass overrides `wrap`.
        options: Keyword arguments of the transform by name.
        amount: Size of the batch of `"vmap"`, or number of iterations of `"scan"`; else 0.
    """

    name: str
    entry: Function | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    amount: int = 0

    keeps_inputs = True
    """True if the first arguments of the transformed function are those of the original function."""

    def wrap(self, fn: Function, count: int) -> Function:
        """Return the transformed function."""
        assert self.entry is not None
        return self.entry(fn, **self.options)

    def args(self, args: Args, out: Any, make: Shapes) -> Args:
        """Return arguments for the transformed function."""
        return args

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the argument names of the transformed function, from those of the original function."""
        return tuple(names)

    def compare(self, before: Function, got: Any, args: Args) -> Compared:
        """Compute the reference of the result `got` of the transformed function."""
        raise NotImplementedError

    def explain(self, counts: Counts) -> str:
        """Return one sentence that explains how the transform changed the equations."""
        return f"keeps {counts.kept_of_all} and adds {counts.new}{counts.others}."


def count_equations(count: int) -> str:
    """Return `"1 equation"`, `"2 equations"`, ..."""
    return f"{count} equation{'' if count == 1 else 's'}"


def forward_and_backward(self: StepTransform, counts: Counts) -> str:
    """Return an explanation with the numbers of equations in the forward and the backward pass."""
    recomputed = f"{counts.recomputed} recomputed by a checkpoint, " if counts.recomputed else ""
    return (
        f"keeps {counts.kept_of_all} as the forward pass and adds {counts.new}: "
        f"{counts.new - counts.recomputed - counts.transposed} for local derivatives, {recomputed}"
        f"{counts.transposed} for the backward pass{counts.others}."
    )


# Relative tolerances. They exceed the precision, because the compiler reorders sums.
_ROUGH = 1e-2
_DIGITS = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 2e-2}
_FEW_DIGITS = 1e-1


@dataclass(frozen=True)
class StepCheck:
    """Comparison of the result of one step with its reference.

    Attributes:
        step: Name of the step.
        how: How the reference was computed, such as `"a Python loop of 4 runs"`. If nothing was compared, the reason.
            If a function raised an exception, this exception.
        largest: The largest difference between result and reference. `None` if nothing was compared; infinite if the
            shapes differ or a function raised an exception.
        tolerance: The largest difference that rounding errors explain.
        nans: Number of elements that are NaN in both; they count as equal.
        is_failed: True if a function raised an exception.
    """

    step: str
    how: str
    largest: float | None = None
    tolerance: float = 0.0
    nans: int = 0
    is_failed: bool = False

    @property
    def agrees(self) -> bool | None:
        """True if the largest difference is within the tolerance; `None` if nothing was compared."""
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
    """Run `compare` and return its result as a `StepCheck`; also if it raises an exception."""
    try:
        compared = compare()
    except Exception as error:  # a function with side effects may trace and still fail when it runs
        return StepCheck(step, f"{type(error).__name__}: {first_lines(error, 1)}", math.inf, is_failed=True)
    if compared is None:
        return StepCheck(step, "its expected result is unknown")
    got, expected = jax.tree.leaves(compared.got), jax.tree.leaves(compared.expected)
    if [np.shape(leaf) for leaf in got] != [np.shape(leaf) for leaf in expected]:
        return StepCheck(step, f"{compared.how}, which returns different shapes", math.inf)
    largest, scale, rate, nans = 0.0, max(1.0, float(compared.scale)), 0.0, 0
    for result, other in zip(got, expected, strict=True):
        dtype = jax.dtypes.result_type(result)
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            result, other = jax.random.key_data(result), jax.random.key_data(other)
        wide = np.complex128 if jnp.issubdtype(dtype, np.complexfloating) else np.float64
        left, right = np.asarray(result).astype(wide), np.asarray(other).astype(wide)
        both = np.isnan(left) & np.isnan(right)
        nans += int(both.sum())
        same = both | (left == right)  # infinities too, whose difference is NaN
        apart = np.abs(np.subtract(left, right, where=~same, out=np.zeros_like(left)))
        largest = max(largest, float(np.max(np.where(np.isnan(apart), np.inf, apart), initial=0.0)))
        scale = max(scale, float(np.max(np.abs(right), where=np.isfinite(right), initial=0.0)))
        if jnp.issubdtype(dtype, np.inexact):
            rate = max(rate, _DIGITS.get(np.dtype(dtype).name, _FEW_DIGITS))
    return StepCheck(step, compared.how, largest, scale * (max(rate, _ROUGH) if compared.is_rough else rate), nans)


class _Vmap(StepTransform):
    def args(self, args: Args, out: Any, make: Shapes) -> Args:
        leaves, structure = jax.tree.flatten(args)
        batched = []
        for leaf, axis in zip(leaves, self._axes(args), strict=True):
            rank = np.ndim(leaf)
            # An invalid axis is clipped here, so that JAX reports it when it traces.
            position = 0 if axis is None else min(axis, rank) if axis >= 0 else max(axis + rank + 1, 0)
            batched.append(leaf if axis is None else make.batched(leaf, position, self.amount))
        return jax.tree.unflatten(structure, batched)

    def compare(self, before: Function, got: Any, args: Args) -> Compared:
        leaves, structure = jax.tree.flatten(args)
        axes = self._axes(args)
        run = jax.jit(before)
        rows = []
        for at in range(self.amount):
            row = [
                leaf if axis is None else jnp.take(leaf, at, axis=axis) for leaf, axis in zip(leaves, axes, strict=True)
            ]
            rows.append(run(*jax.tree.unflatten(structure, row)))
        out_axes = axes_of(self.options.get("out_axes", 0), rows[0])
        columns = zip(*map(jax.tree.leaves, rows), strict=True)
        stacked = [
            column[0] if axis is None else jnp.stack(column, axis)
            for column, axis in zip(columns, out_axes, strict=True)
        ]
        expected = jax.tree.unflatten(jax.tree.structure(rows[0]), stacked)
        return Compared(f"a Python loop of {self.amount} runs", got, expected)

    def explain(self, counts: Counts) -> str:
        explanation = f"adds a batch axis of {self.amount} to {counts.batched} of {count_equations(counts.before)}"
        more = []
        if counts.unchanged:
            depend = "is unchanged, as it does" if counts.unchanged == 1 else "are unchanged, as they do"
            more.append(f"{counts.unchanged} {depend} not depend on the batch")
        if counts.changed + counts.gone:
            more.append(
                f"{counts.changed + counts.gone} {'is' if counts.changed + counts.gone == 1 else 'are'} rewritten"
            )
        if counts.new:
            more.append(f"{counts.new} {'is' if counts.new == 1 else 'are'} added to align the axes")
        return "; ".join([explanation, *more]) + "."

    def _axes(self, args: Args) -> list[int | None]:
        axes = self.options.get("in_axes", 0)
        return axes_of(tuple(axes) if isinstance(axes, list) else axes, args)


class _Grad(StepTransform):
    def compare(self, before: Function, got: Any, args: Args) -> Compared:
        has_aux, with_value = bool(self.options.get("has_aux")), self.name == "value_and_grad"
        grads = got[1] if with_value else got[0] if has_aux else got
        argnums = self.options.get("argnums", 0)
        chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        moved = tuple(args[at] for at in chosen)

        def value(*moved: Any) -> Any:
            full = list(args)
            for at, leaf in zip(chosen, moved, strict=True):
                full[at] = leaf
            result = jax.jit(before)(*full)
            return result[0] if has_aux else result

        # The slope along one random direction depends on all components of the gradient.
        direction = tangents_of(moved, Examples())
        slope, how, is_rough = slope_along(value, moved, direction)
        along, scale = paired(grads, floats(direction))
        expected: Any = slope
        if with_value:
            along, expected = (got[0], along), (jax.jit(before)(*args), slope)
        return Compared(f"{how} along a random direction", along, expected, scale, is_rough)

    explain = forward_and_backward


def _weighted(fn: Function, weights: Any) -> Function:
    return lambda *args: paired(floats(jax.jit(fn)(*args)), weights)[0]


class _WithArgument(StepTransform):
    """A transform that adds an argument: tangents for `jax.jvp` and `jax.linearize`, cotangents for `jax.vjp`."""

    argument = "tangent"

    def apply(self, fn: Function, primals: Args, extra: Any) -> Any:
        raise NotImplementedError

    def wrap(self, fn: Function, count: int) -> Function:
        return lambda *args: self.apply(fn, args[:count], args[count])

    def args(self, args: Args, out: Any, make: Shapes) -> Args:
        return (*args, [make.like(leaf) for leaf in floats(args if self.argument == "tangent" else out)])

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        return (*names, self.argument)


class _Jvp(_WithArgument):
    def apply(self, fn: Function, primals: Args, extra: Any) -> Any:
        return jax.jvp(fn, primals, with_zeros(primals, extra), **self.options)

    def compare(self, before: Function, got: Any, args: Args) -> Compared:
        primals, tangents = args[:-1], with_zeros(args[:-1], args[-1])
        value, slope = got[:2]
        weights = [Examples().like(leaf) for leaf in floats(value)]
        along, scale = paired(floats(slope), weights)
        expected, how, is_rough = slope_along(_weighted(before, weights), primals, tangents, backwards=True)
        return Compared(
            f"the function, and {how}", (value, along), (jax.jit(before)(*primals), expected), scale, is_rough
        )

    def explain(self, counts: Counts) -> str:
        return f"keeps {counts.kept_of_all} and adds {counts.new} that compute the tangent{counts.others}."


class _Linearize(_Jvp):
    def apply(self, fn: Function, primals: Args, extra: Any) -> Any:
        value, linear = jax.linearize(fn, *primals, **self.options)
        return value, linear(*with_zeros(primals, extra))


class _Vjp(_WithArgument):
    argument = "cotangent"

    def apply(self, fn: Function, primals: Args, extra: Any) -> Any:
        value, pull = jax.vjp(fn, *primals, **self.options)
        # For integers, JAX returns zeros of dtype `float0`, which are no derivatives.
        return value, floats(pull(with_zeros(value, extra)))

    def compare(self, before: Function, got: Any, args: Args) -> Compared:
        primals, weights = args[:-1], args[-1]
        value, pulled = got
        direction = tangents_of(primals, Examples())
        along, scale = paired(pulled, floats(direction))
        expected, how, is_rough = slope_along(_weighted(before, weights), primals, direction)
        how = f"the function, and {how} along a random direction"
        return Compared(how, (value, along), (jax.jit(before)(*primals), expected), scale, is_rough)

    explain = forward_and_backward


class _Remat(StepTransform):
    def compare(self, before: Function, got: Any, args: Args) -> Compared:
        return Compared("the function itself", got, jax.jit(before)(*args))

    def explain(self, counts: Counts) -> str:
        return (
            f"wraps {counts.all} in a checkpoint{counts.others}: "
            "a later grad recomputes them instead of storing their results."
        )


class _Jit(StepTransform):
    def compare(self, before: Function, got: Any, args: Args) -> Compared:
        # `before` runs without `jax.jit`, because this step adds the `jax.jit`.
        return Compared("the function itself, run operation by operation", got, before(*args))

    def explain(self, counts: Counts) -> str:
        return f"wraps {counts.all} in a jit{counts.others}: the compiler receives them as one program."


class _Scan(StepTransform):
    def wrap(self, fn: Function, count: int) -> Function:
        def loop(first: Any, *rest: Any) -> Any:
            def once(carry: Any, _: None) -> tuple[Any, None]:
                return fn(carry, *rest), None

            return jax.lax.scan(once, first, None, length=self.amount, **self.options)[0]

        return loop

    def compare(self, before: Function, got: Any, args: Args) -> Compared:
        carry, *rest = args
        run = jax.jit(before)
        for _ in range(self.amount):
            carry = run(carry, *rest)
        return Compared(f"a Python loop of {self.amount} iterations", got, carry)

    def explain(self, counts: Counts) -> str:
        return (
            f"puts {counts.all} into a loop of {self.amount} iterations{counts.others}: "
            "the result of each iteration is the first argument of the next."
        )


class _Reduced(StepTransform):
    def wrap(self, fn: Function, count: int) -> Function:
        reduce = {"mean": jnp.mean, "sum": jnp.sum}[self.name]
        return lambda *args: reduce(fn(*args))

    def compare(self, before: Function, got: Any, args: Args) -> Compared:
        result = np.asarray(jax.jit(before)(*args))
        exact = np.complex128 if np.iscomplexobj(result) else np.float64
        scale = float(np.sum(np.abs(result.astype(exact)))) if result.size else 0.0
        # A sum of integers overflows in the dtype of JAX's result. Other results are computed in double precision.
        wraps = self.name == "sum" and np.issubdtype(result.dtype, np.integer)
        expected = getattr(np, self.name)(result, dtype=np.asarray(got).dtype if wraps else exact)
        return Compared(f"NumPy's {self.name}", got, np.asarray(expected), scale)

    def explain(self, counts: Counts) -> str:
        return f"keeps {counts.kept_of_all} and adds {counts.new} for the {self.name} of the result."


class _Unknown(StepTransform):
    keeps_inputs = False


NAMED: dict[str, tuple[type[StepTransform], Function | None]] = {
    "vmap": (_Vmap, jax.vmap),
    "grad": (_Grad, jax.grad),
    "value_and_grad": (_Grad, jax.value_and_grad),
    "jvp": (_Jvp, jax.jvp),
    "vjp": (_Vjp, jax.vjp),
    "linearize": (_Linearize, jax.linearize),
    "remat": (_Remat, jax.checkpoint),
    "checkpoint": (_Remat, jax.checkpoint),
    "jit": (_Jit, jax.jit),
    "scan": (_Scan, None),
    "mean": (_Reduced, None),
    "sum": (_Reduced, None),
}
"""For each name of a transform: its class, and the function of JAX that `functools.partial` may bind instead."""

COUNTED = {"vmap": 8, "scan": 5}
"""Transforms that can be given as `(name, amount)`, each with its default amount."""


def _named(name: str, amount: int = 0, options: Mapping[str, Any] = MappingProxyType({})) -> StepTransform:
    kind, function = NAMED[name]
    return kind(name, function, options, amount or options.get("axis_size") or COUNTED.get(name, 0))


def transform_of(entry: Any) -> StepTransform | None:
    """Return the transform for an entry of `through=`; `None` if the entry is invalid."""
    if isinstance(entry, str):
        return _named(entry) if entry in NAMED else None
    if isinstance(entry, tuple):
        counts = len(entry) == 2 and entry[0] in COUNTED and type(entry[1]) is int and entry[1] > 0
        return _named(*entry) if counts else None
    if not callable(entry):
        return None
    inner, options = entry, {}
    while isinstance(inner, functools.partial) and not inner.args:
        inner, options = inner.func, {**inner.keywords, **options}
    # Compared by identity, because a function that wraps `jax.grad` may do more.
    for name, (_, function) in NAMED.items():
        if inner is function:
            return _named(name, options=options)
    return _Unknown(getattr(inner, "__name__", type(inner).__name__), entry)
