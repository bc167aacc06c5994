"""Reasons for compilations under transformations: their kinds, sizes and axes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from analysis.retraces.reasons import reasons

import mithril_nb as ml

X = jnp.ones((32, 10))


def watched_product():
    return ml.watch(jax.jit(lambda x, n=2: x * n))


def test_transformation_compiles_again_without_a_trace():
    seen = ml.watch(jax.jit(lambda x: (x * x).sum()))
    seen(X)
    jax.grad(seen)(X)
    assert [(retrace.reason, retrace.is_traced) for retrace in seen.retraces] == [
        ("the call is differentiated in reverse mode (grad, vjp), the earlier call was not transformed", False)
    ]


def test_size_of_vmap():
    seen = watched_product()
    for size in (2, 4):
        jax.vmap(seen)(jnp.ones((size, 3)))
    assert reasons(seen) == ["the call is mapped (vmap) over 4 instead of 2"]
    jax.vmap(jax.vmap(seen))(jnp.ones((5, 4, 3)))
    jax.vmap(jax.vmap(seen))(jnp.ones((6, 4, 3)))
    assert [retrace.reason for retrace in seen.retraces[1:]] == [
        "the call is mapped (vmap) over 5, then mapped (vmap) over 4, the earlier call was mapped (vmap) over 4",
        "the call is mapped (vmap) over 6 instead of 5",
    ]


def test_kinds_of_transformations():
    seen = ml.watch(jax.jit(lambda x: (x * x).sum()))
    x = jnp.ones(3)
    jax.grad(seen)(x)
    jax.vmap(seen)(jnp.ones((2, 3)))
    jax.jvp(seen, (x,), (x,))
    jax.vmap(jax.grad(seen))(jnp.ones((2, 3)))
    jax.jit(lambda x: jax.vmap(seen)(x))(jnp.ones((8, 3)))
    grad = "differentiated in reverse mode (grad, vjp)"
    assert reasons(seen) == [
        f"the call is mapped (vmap) over 2, the earlier call was {grad}",
        "the call is differentiated in forward mode (jvp), the earlier call was mapped (vmap) over 2",
        "the call is mapped (vmap) over 2, then differentiated in reverse mode (grad, vjp), the earlier call was "
        "differentiated in forward mode (jvp)",
    ]


def test_mapped_axes():
    seen = watched_product()
    for axes in ((0, 0), (0, 1), (0, None)):
        jax.vmap(seen, in_axes=axes)(jnp.ones((3, 3)), jnp.ones(3) if axes[1] is None else jnp.ones((3, 3)))
    assert reasons(seen) == [
        "argument 2 `n` is mapped (vmap) over its axis 1, in the earlier call it was mapped (vmap) over its axis 0",
        "argument 2 `n` is not transformed, in the earlier call it was mapped (vmap) over its axis 1",
    ]


def test_axis_names_of_the_context():
    seen = watched_product()
    for axis in ("i", "j"):
        jax.vmap(seen, axis_name=axis)(X)
    assert reasons(seen) == ["the named axes of the context changed from (i: 32) to (j: 32)"]
