"""Random calls: the number of traces equals the function's own count, and each retrace has a correct reason."""

from __future__ import annotations

import contextlib
import random

import jax
import jax.numpy as jnp
import numpy as np

import mithril_nb as ml

ARRAYS = [
    lambda: jnp.ones(2),
    lambda: jnp.ones((2, 2)),
    lambda: jnp.ones(2, jnp.int32),
    lambda: np.ones(2, np.float32),
    lambda: np.float32(1),
    lambda: 1.0,
    lambda: 1,
    lambda: True,
    lambda: 1 + 2j,
    lambda: None,
    lambda: {"a": jnp.ones(2)},
    lambda: {"a": 1.0, "b": (jnp.ones(2), None)},
    lambda: [jnp.ones(2), 2],
    lambda: jax.device_put(jnp.ones(2), jax.devices()[0]),
    lambda: jax.random.key(0),
]
STATIC = [1, 1.0, True, "one", (1, 2), None, jnp.float32, max]
CONTEXTS = [
    contextlib.nullcontext,
    contextlib.nullcontext,
    lambda: jax.enable_x64(True),
    lambda: jax.default_matmul_precision("highest"),
    lambda: jax.numpy_rank_promotion("warn"),
]


def random_call(rng, arrays, static):
    """Return arguments of a random call of `f(x, y, n)`, some by name, some left out."""
    x, y, n = rng.choice(arrays)(), rng.choice(arrays)(), rng.choice(static)
    args, kwargs = [x], {}
    if rng.random() < 0.2:
        args, kwargs = [], {"x": x}
    if rng.random() < 0.6:
        if args and rng.random() < 0.5:
            args.append(y)
        else:
            kwargs["y"] = y
    if rng.random() < 0.6:
        if len(args) == 2 and rng.random() < 0.5:
            args.append(n)
        else:
            kwargs["n"] = n
    return args, kwargs


def run(seed, calls):
    """Call a new function at random; return its report, the report of a block, and the number of traces per call."""
    rng, traced, counted = random.Random(seed), [], []

    def f(x, y=0.0, n=0):
        traced.append(n)
        return jax.tree.leaves((x, y))

    step = ml.watch(jax.jit(f, static_argnames="n"))
    arrays, static, contexts = rng.sample(ARRAYS, 2), rng.sample(STATIC, 2), rng.sample(CONTEXTS, 2)
    with ml.watch() as seen:
        for _ in range(calls):
            args, kwargs = random_call(rng, arrays, static)
            before = len(traced)
            with rng.choice(contexts)():
                step(*args, **kwargs)
            counted.append(len(traced) - before)
    (own,) = [one for one in seen.report().functions if one.library is None]
    return step.report(), own, counted


def test_counts_and_reasons_of_random_calls(stress):
    size, calls = stress.size(short=3, long=40), 60
    retraces = compiled_again = hits = 0
    for seed in range(size):
        found, own, counted = run(seed, calls)
        assert found.traces == sum(counted)
        assert found.calls == calls
        assert found.left_out == 0
        again_traced = {retrace.call for retrace in found.retraces if retrace.is_traced}
        assert {number for number, count in enumerate(counted, 1) if count} == again_traced | {1}
        missed = {retrace.call for retrace in found.retraces} | {1}
        assert found.hits == calls - len(missed), "each call that is no cache hit is the first, or has a reason"
        assert [retrace.reason for retrace in found.retraces if "an equal call" in retrace.reason] == []
        assert (own.traces, own.lowerings, own.compilations) == (found.traces, found.lowerings, found.compilations)
        assert [retrace.reason for retrace in own.retraces] == [retrace.reason for retrace in found.retraces]
        retraces, hits = retraces + found.traces - 1, hits + found.hits
        compiled_again += sum(not retrace.is_traced for retrace in found.retraces)
    assert min(retraces, hits) > 5 * size
    stress.report(calls=size * calls, hits=hits, retraces=retraces, compiled_again=compiled_again)
