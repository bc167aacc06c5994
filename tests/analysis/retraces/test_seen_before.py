"""Functions that were traced, compiled or called before they were watched."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from analysis.retraces.reasons import reasons

import mithril_nb as ml

X = jnp.ones((32, 10))


def jitted(**options):
    return jax.jit(lambda x: x * 2, **options)


def test_traced_before_it_was_watched():
    double = jitted()
    double(X)
    seen = ml.watch(double)
    seen(X[0])
    assert reasons(seen) == ["the earlier calls were not watched, so there is nothing to compare with"]


@pytest.mark.parametrize("donate", [(), (0,)])
def test_retraces_are_compared_with_cache_hits(donate):
    double = jitted(donate_argnums=donate)
    double(X + 0)
    seen = ml.watch(double)
    seen(X + 0)
    seen(X[0])
    assert [(retrace.call, retrace.reason) for retrace in seen.retraces] == [
        (2, "argument 1 `x` changed from f32[32,10] to f32[10]")
    ]


def test_a_trace_after_a_call_that_was_only_compiled():
    double = jitted()
    double.trace(X)
    seen = ml.watch(double)
    seen(X)
    seen(X[0])
    assert (seen.report().traces, seen.report().lowerings) == (1, 2)
    assert reasons(seen) == ["argument 1 `x` changed from f32[32,10] to f32[10]"]


@pytest.mark.parametrize("see", [lambda f: f.lower(X).compile(), lambda f: ml.inspect(f, X).cost("compiled")])
def test_a_function_that_was_compiled_ahead(see):
    double = jitted()
    see(double)
    seen = ml.watch(double)
    for x in (X, X, X[0]):
        seen(x)
    assert [(retrace.call, retrace.reason) for retrace in seen.retraces] == [
        (3, "argument 1 `x` changed from f32[32,10] to f32[10]")
    ]
