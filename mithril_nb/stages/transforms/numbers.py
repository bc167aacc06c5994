"""Leaves of arguments and results: shapes, small example arrays, and derivatives to compare with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np


class Maker(Protocol):
    """Factory for the leaves of arguments that a transform adds."""

    def batched(self, leaf: Any, axis: int, size: int) -> Any:
        """Return a leaf with one more axis."""
        ...

    def like(self, leaf: Any) -> Any:
        """Return another leaf of the same shape and dtype, such as a tangent."""
        ...


class Shapes:
    """Factory for shapes."""

    def batched(self, leaf: Any, axis: int, size: int) -> Any:
        """Return a leaf with one more axis."""
        return jax.ShapeDtypeStruct((*leaf.shape[:axis], size, *leaf.shape[axis:]), leaf.dtype)

    def like(self, leaf: Any) -> Any:
        """Return another leaf of the same shape and dtype."""
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


class Examples:
    """Factory for small arrays, the same ones each time."""

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
    """Return the axis of each leaf, from axes that are a prefix of the tree."""
    none = object()  # JAX does not count `None` as a leaf, but it is an axis here
    marked = jax.tree.map(lambda axis: none if axis is None else axis, axes, is_leaf=lambda axis: axis is None)
    spread = jax.tree.leaves(jax.tree.broadcast(marked, full))
    return [None if axis is none else axis for axis in spread]


def floats(tree: Any) -> list[Any]:
    """Return the leaves that have derivatives."""
    return [leaf for leaf in jax.tree.leaves(tree) if is_inexact(leaf)]


def with_zeros(tree: Any, given: Sequence[Any]) -> Any:
    """Return tangents for a whole tree: those given for its floats, JAX's own zeros for others."""
    queue = iter(given)
    return jax.tree.map(
        lambda leaf: next(queue) if is_inexact(leaf) else np.zeros(np.shape(leaf), jax.dtypes.float0), tree
    )


def tangents_of(tree: Any, make: Maker) -> Any:
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
    """Return the derivative of a scalar along a direction, its method, and whether it is approximate.

    The method is a jvp, or a vjp if `backwards`; and finite differences if JAX does not support that mode.
    """
    try:
        if backwards:
            value, pull = jax.vjp(fn, *args)
            return paired(pull(jnp.ones_like(value)), floats(direction))[0], "a vjp", False
        return jnp.real(jax.jvp(fn, args, direction)[1]), "a jvp", False
    except (TypeError, ValueError):  # A custom_vjp has no forward mode, a while loop no reverse mode.
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
