"""The transforms that `step_through` has names for. Each is a subclass of `Transform`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.stages.transforms.transform import (
    Args,
    Compared,
    Counts,
    Examples,
    Function,
    Shapes,
    Transform,
    all_equations,
    axes_of,
    count_equations,
    floats,
    forward_and_backward,
    is_inexact,
    other_equations,
    paired,
    slope_along,
    tangents_of,
    with_zeros,
)

BATCH, TIMES = 8, 5


class _Vmap(Transform):
    def wrap(self, fn: Function, count: int) -> Function:
        return jax.vmap(fn, **self.option)

    def args(self, args: Args, out: Any, make: Shapes) -> Args:
        leaves, structure = jax.tree.flatten(args)
        batched = []
        for leaf, axis in zip(leaves, self._axes(args), strict=True):
            rank = np.ndim(leaf) if not hasattr(leaf, "shape") else len(leaf.shape)
            # An invalid axis is clipped here, so that JAX reports it when it traces.
            position = 0 if axis is None else min(axis, rank) if axis >= 0 else max(axis + rank + 1, 0)
            batched.append(leaf if axis is None else make.batched(leaf, position, self.amount))
        return jax.tree.unflatten(structure, batched)

    def compare(self, before: Function, before_args: Args, after: Function, args: Args) -> Compared:
        leaves, structure = jax.tree.flatten(args)
        axes = self._axes(args)
        run = jax.jit(before)
        rows = []
        for at in range(self.amount):
            row = [
                leaf if axis is None else jnp.take(leaf, at, axis=axis) for leaf, axis in zip(leaves, axes, strict=True)
            ]
            rows.append(run(*jax.tree.unflatten(structure, row)))
        out_axes = axes_of(self.option.get("out_axes", 0), rows[0])
        columns = zip(*map(jax.tree.leaves, rows), strict=True)
        stacked = [
            column[0] if axis is None else jnp.stack(column, axis)
            for column, axis in zip(columns, out_axes, strict=True)
        ]
        expected = jax.tree.unflatten(jax.tree.structure(rows[0]), stacked)
        return Compared(f"a Python loop of {self.amount} runs", jax.jit(after)(*args), expected)

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

    def alternatives(self, args: Args, out: Any) -> tuple[str, ...]:
        return ('"vmap"',) if self.options else ()

    def _axes(self, args: Args) -> list[int | None]:
        axes = self.option.get("in_axes", 0)
        return axes_of(tuple(axes) if isinstance(axes, list) else axes, args)


@dataclass(frozen=True)
class _Grad(Transform):
    with_value: bool = False

    def wrap(self, fn: Function, count: int) -> Function:
        return (jax.value_and_grad if self.with_value else jax.grad)(fn, **self.option)

    def compare(self, before: Function, before_args: Args, after: Function, args: Args) -> Compared:
        got, has_aux = jax.jit(after)(*args), bool(self.option.get("has_aux"))
        grads = got[1] if self.with_value else got[0] if has_aux else got
        argnums = self.option.get("argnums", 0)
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
        if self.with_value:
            along, expected = (got[0], along), (jax.jit(before)(*args), slope)
        return Compared(f"{how} along a random direction", along, expected, scale, is_rough)

    def explain(self, counts: Counts) -> str:
        return forward_and_backward(counts)

    def alternatives(self, args: Args, out: Any) -> tuple[str, ...]:
        leaves = jax.tree.leaves(out)
        if isinstance(out, tuple) and len(out) == 2 and getattr(out[0], "shape", None) == ():
            return (f"functools.partial(jax.{self.name}, has_aux=True)",)
        if len(leaves) == 1 and leaves[0].shape != ():
            # `jax.grad` needs a scalar result.
            return '"mean"', entry_of(self)
        if not all(map(is_inexact, jax.tree.leaves(args[:1]))):
            for at, arg in enumerate(args):
                if jax.tree.leaves(arg) and all(map(is_inexact, jax.tree.leaves(arg))):
                    return (f"functools.partial(jax.{self.name}, argnums={at})",)
        return ()


def _weighted(fn: Function, weights: Any) -> Function:
    return lambda *args: paired(floats(jax.jit(fn)(*args)), weights)[0]


class _Jvp(Transform):
    """`jax.jvp`."""

    def wrap(self, fn: Function, count: int) -> Function:
        def with_tangent(*args: Any) -> Any:
            primals = args[:count]
            return jax.jvp(fn, primals, with_zeros(primals, args[count]), **self.option)

        return with_tangent

    def args(self, args: Args, out: Any, make: Shapes) -> Args:
        return (*args, [make.like(leaf) for leaf in jax.tree.leaves(args) if is_inexact(leaf)])

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        return (*names, "tangent")

    def compare(self, before: Function, before_args: Args, after: Function, args: Args) -> Compared:
        primals, tangents = args[:-1], with_zeros(args[:-1], args[-1])
        value, slope = jax.jit(after)(*args)[:2]
        weights = [Examples().like(leaf) for leaf in floats(value)]
        along, scale = paired(floats(slope), weights)
        expected, how, is_rough = slope_along(_weighted(before, weights), primals, tangents, backwards=True)
        return Compared(
            f"the function, and {how}", (value, along), (jax.jit(before)(*primals), expected), scale, is_rough
        )

    def explain(self, counts: Counts) -> str:
        return (
            f"keeps {counts.unchanged} of {count_equations(counts.before)} and adds {counts.new} "
            f"that compute the tangent{other_equations(counts)}."
        )


class _Linearize(_Jvp):
    """`jax.linearize`."""

    def wrap(self, fn: Function, count: int) -> Function:
        def with_tangent(*args: Any) -> Any:
            primals = args[:count]
            value, linear = jax.linearize(fn, *primals, **self.option)
            return value, linear(*with_zeros(primals, args[count]))

        return with_tangent


class _Vjp(Transform):
    """`jax.vjp`."""

    def wrap(self, fn: Function, count: int) -> Function:
        def with_cotangent(*args: Any) -> Any:
            value, pull = jax.vjp(fn, *args[:count], **self.option)
            # For integers, JAX returns zeros that are not arrays. They are left out.
            return value, floats(pull(with_zeros(value, args[count])))

        return with_cotangent

    def args(self, args: Args, out: Any, make: Shapes) -> Args:
        return (*args, [make.like(leaf) for leaf in jax.tree.leaves(out) if is_inexact(leaf)])

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        return (*names, "cotangent")

    def compare(self, before: Function, before_args: Args, after: Function, args: Args) -> Compared:
        primals, weights = args[:-1], args[-1]
        value, pulled = jax.jit(after)(*args)
        direction = tangents_of(primals, Examples())
        along, scale = paired(pulled, floats(direction))
        expected, how, is_rough = slope_along(_weighted(before, weights), primals, direction)
        how = f"the function, and {how} along a random direction"
        return Compared(how, (value, along), (jax.jit(before)(*primals), expected), scale, is_rough)

    def explain(self, counts: Counts) -> str:
        return forward_and_backward(counts)


class _Remat(Transform):
    def compare(self, before: Function, before_args: Args, after: Function, args: Args) -> Compared:
        return Compared("the function itself", jax.jit(after)(*args), jax.jit(before)(*args))

    def explain(self, counts: Counts) -> str:
        return (
            f"wraps {all_equations(counts)} in a checkpoint{other_equations(counts)}: "
            "a later grad recomputes them instead of storing their results."
        )


class _Jit(Transform):
    def compare(self, before: Function, before_args: Args, after: Function, args: Args) -> Compared:
        # `before` runs without `jax.jit`, because this step adds the `jax.jit`.
        return Compared("the function itself, run operation by operation", jax.jit(after)(*args), before(*args))

    def explain(self, counts: Counts) -> str:
        wrapped = f"{all_equations(counts)} in a jit{other_equations(counts)}"
        return f"wraps {wrapped}: the compiler receives them as one program."


class _Scan(Transform):
    def wrap(self, fn: Function, count: int) -> Function:
        def loop(first: Any, *rest: Any) -> Any:
            def once(carry: Any, _: None) -> tuple[Any, None]:
                return fn(carry, *rest), None

            return jax.lax.scan(once, first, None, length=self.amount, **self.option)[0]

        return loop

    def compare(self, before: Function, before_args: Args, after: Function, args: Args) -> Compared:
        carry, *rest = args
        run = jax.jit(before)
        for _ in range(self.amount):
            carry = run(carry, *rest)
        return Compared(f"a Python loop of {self.amount} iterations", jax.jit(after)(*args), carry)

    def explain(self, counts: Counts) -> str:
        return (
            f"puts {all_equations(counts)} into a loop of {self.amount} iterations{other_equations(counts)}: "
            "the result of each iteration is the first argument of the next."
        )


class _Reduced(Transform):
    def wrap(self, fn: Function, count: int) -> Function:
        reduce = {"mean": jnp.mean, "sum": jnp.sum}[self.name]
        return lambda *args: reduce(fn(*args))

    def compare(self, before: Function, before_args: Args, after: Function, args: Args) -> Compared:
        result, reduced = np.asarray(jax.jit(before)(*args)), jax.jit(after)(*args)
        exact = np.complex128 if np.iscomplexobj(result) else np.float64
        scale = float(np.sum(np.abs(result.astype(exact)))) if result.size else 0.0
        # A sum of integers overflows in the dtype of JAX's result. Other results are computed in double precision.
        wraps = self.name == "sum" and np.issubdtype(result.dtype, np.integer)
        expected = getattr(np, self.name)(result, dtype=np.asarray(reduced).dtype if wraps else exact)
        return Compared(f"NumPy's {self.name}", reduced, np.asarray(expected), scale)

    def explain(self, counts: Counts) -> str:
        unchanged = f"{counts.unchanged} of {count_equations(counts.before)}"
        return f"keeps {unchanged} and adds {counts.new} for the {self.name} of the result."


class _Unknown(Transform):
    keeps_inputs = False


NAMED: dict[str, Callable[[str, tuple[tuple[str, Any], ...], int], Transform]] = {
    "vmap": lambda name, options, amount: _Vmap(name, None, options, amount or dict(options).get("axis_size") or BATCH),
    "grad": lambda name, options, amount: _Grad(name, None, options),
    "value_and_grad": lambda name, options, amount: _Grad(name, None, options, with_value=True),
    "jvp": lambda name, options, amount: _Jvp(name, None, options),
    "vjp": lambda name, options, amount: _Vjp(name, None, options),
    "linearize": lambda name, options, amount: _Linearize(name, None, options),
    "remat": lambda name, options, amount: _Remat(name, jax.checkpoint, options),
    "checkpoint": lambda name, options, amount: _Remat(name, jax.checkpoint, options),
    "jit": lambda name, options, amount: _Jit(name, jax.jit, options),
    "scan": lambda name, options, amount: _Scan(name, None, options, amount or TIMES),
    "mean": lambda name, options, amount: _Reduced(name),
    "sum": lambda name, options, amount: _Reduced(name),
}
"""Functions that create a transform from its name, its keyword arguments and its amount (0 for the default)."""

COUNTED = ("vmap", "scan")
"""Transforms that can be given as `(name, amount)`."""
_FUNCTIONS: tuple[tuple[Any, str], ...] = (
    (jax.vmap, "vmap"), (jax.grad, "grad"), (jax.value_and_grad, "value_and_grad"), (jax.jvp, "jvp"),
    (jax.vjp, "vjp"), (jax.linearize, "linearize"), (jax.checkpoint, "remat"), (jax.jit, "jit"),
)  # fmt: skip


def entry_of(transform: Transform) -> str:
    """Return the Python source of a transform as an entry of `through=`."""
    name, amount = transform.name, transform.amount
    if transform.options:
        options = ", ".join(f"{key}={value!r}" for key, value in transform.options)
        return f"functools.partial(jax.{name}, {options})"
    if amount and amount != NAMED[name](name, (), 0).amount:
        return f'("{name}", {amount})'
    return f'"{name}"' if name in NAMED else name


def transform_of(entry: Any) -> Transform | None:
    """Return the transform for an entry of `through=`; `None` if the entry is invalid."""
    if isinstance(entry, str):
        return NAMED[entry](entry, (), 0) if entry in NAMED else None
    if isinstance(entry, tuple):
        counts = len(entry) == 2 and entry[0] in COUNTED and type(entry[1]) is int and entry[1] > 0
        return NAMED[entry[0]](entry[0], (), entry[1]) if counts else None
    if not callable(entry):
        return None
    inner, options = entry, {}
    while isinstance(inner, functools.partial) and not inner.args:
        inner, options = inner.func, {**inner.keywords, **options}
    # Compared by identity, because a function that wraps `jax.grad` may do more.
    for function, name in _FUNCTIONS:
        if inner is function:
            return NAMED[name](name, tuple(options.items()), 0)
    return _Unknown(getattr(inner, "__name__", type(inner).__name__), entry)
