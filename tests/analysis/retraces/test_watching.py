"""Exact counts of watched functions and blocks, on all threads, without changes to the behaviour."""

from __future__ import annotations

import copy
import functools
import gc
import json
import subprocess
import sys
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis.retraces.reasons import reasons
from jax._src import monitoring, util
from jax_programs import spec
from raised import message_of

import mithril_nb as ml
from mithril_nb.analysis.retraces import Watched
from mithril_nb.analysis.retraces.recorder import MOST_RETRACES
from mithril_nb.errors import UnknownOptionError
from mithril_nb.stages import jit_events

X = jnp.arange(6.0).reshape(3, 2)


def counts(report):
    return report.calls, report.hits, report.traces, report.lowerings, report.compilations


def own(seen):
    return [one for one in seen.report().functions if one.library is None]


def test_counts_and_times():
    step = ml.watch(jax.jit(lambda x: jnp.where(x > 0, x, 0) @ x.T))
    for x in (X, X, X[:2], X, X[:2]):
        step(x)
    found = step.report()
    assert counts(found) == (5, 3, 2, 2, 2)
    assert found.disk_hits == found.untimed_traces == found.left_out == 0
    assert min(found.trace_s, found.lower_s, found.compile_s) > 0
    (retrace,) = found.retraces
    assert retrace.call == 3
    assert retrace.time_s == retrace.trace_s + retrace.lower_s + retrace.compile_s
    assert retrace.time_s < found.time_s
    assert step.calls == 5
    assert step.retraces == found.retraces


def test_reset_clears_counts_and_keeps_signatures():
    step = ml.watch(jax.jit(lambda x: x - 2))
    step(X)
    step.reset()
    assert counts(step.report()) == (0, 0, 0, 0, 0)
    step(X[0])
    assert reasons(step) == ["argument 1 `x` changed from f32[3,2] to f32[2]"]


def test_plain_function_is_jitted():
    def double(x):
        """Return twice x."""
        return 2 * x

    step = ml.watch(double)
    np.testing.assert_array_equal(step(X), 2 * X)
    assert (step.__name__, step.__doc__) == ("double", "Return twice x.")
    assert counts(step.report()) == (1, 0, 1, 1, 1)


def test_behaves_like_the_jitted_function():
    def f(x, n, *, scale=1.0):
        return {"y": x * n * scale}

    jitted = jax.jit(f, static_argnums=1)
    step = ml.watch(jitted)
    np.testing.assert_array_equal(step(X, 3, scale=2.0)["y"], jitted(X, 3, scale=2.0)["y"])
    assert step.lower(X, 3).compile()(X)["y"].shape == (3, 2)
    assert str(step.trace(X, 3).jaxpr) == str(jitted.trace(X, 3).jaxpr)
    assert step.eval_shape(X, 3)["y"].shape == (3, 2)
    assert step._cache_size() == jitted._cache_size()
    assert jax.make_jaxpr(step, static_argnums=1)(X, 3).jaxpr.eqns[0].primitive.name in ("pjit", "jit")
    np.testing.assert_array_equal(jax.grad(lambda x: step(x, 3)["y"].sum())(X), np.full((3, 2), 3))
    np.testing.assert_array_equal(jax.vmap(lambda x: step(x, 3)["y"])(X), 3 * X)
    np.testing.assert_array_equal(jax.jit(lambda x: step(x, 3)["y"])(X), 3 * X)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = step.colour
    copied = copy.deepcopy(step)
    np.testing.assert_array_equal(copied(X, 3)["y"], 3 * X)
    assert copied.calls == 1


def test_ahead_of_time_lowering_is_not_a_call():
    step = ml.watch(jax.jit(lambda x: x * 5))
    step.lower(X).compile()
    assert counts(step.report()) == (0, 0, 1, 1, 0), "the compilation is a method of what lower returned"
    step(X)
    assert step.report().calls == 1


def test_method_decorator():
    class Layer:
        @ml.watch
        @functools.partial(jax.jit, static_argnums=0)
        def forward(self, x):
            return x * 2

    first, second = Layer(), Layer()
    for layer in (first, first, second):
        np.testing.assert_array_equal(layer.forward(X), 2 * X)
    assert isinstance(Layer.forward, Watched)
    assert counts(Layer.forward.report()) == (3, 1, 2, 2, 2)
    assert reasons(Layer.forward) == [
        "static argument `self` is a new object, not equal to the earlier one, although both print the same: "
        f"<{Layer.__module__}.test_method_decorator.<locals>.Layer object>"
    ]


def test_donated_arrays():
    step = ml.watch(jax.jit(lambda x, y: x + y, donate_argnums=0))
    for size in (4, 5):
        x, y = jnp.ones(size), jnp.ones(size)
        np.testing.assert_array_equal(step(x, y), np.full(size, 2))
        assert x.is_deleted()
        assert not y.is_deleted()
    assert reasons(step) == [
        "argument 1 `x` changed from f32[4] to f32[5]; argument 2 `y` changed from f32[4] to f32[5]"
    ]


def test_errors_pass_through_and_are_counted():
    def fails(x):
        if x.shape == (2,):
            raise RuntimeError("two")
        return x

    step = ml.watch(jax.jit(fails))
    step(X)
    with pytest.raises(RuntimeError, match="two"):
        step(X[0])
    with pytest.raises(TypeError):
        step("text")
    assert jit_events.thread.scopes == []
    assert jit_events.thread.open == []
    assert counts(step.report()) == (3, 0, 2, 1, 1), "JAX refused the text before it traced: no cache hit"
    assert step.retraces[0].lower_s is None
    step(X[:1])
    assert step.retraces[-1].reason == "argument 1 `x` changed from f32[3,2] to f32[1,2]"


def test_other_functions_are_not_counted():
    other = jax.jit(lambda x: x + 11)
    step = ml.watch(jax.jit(lambda x: other(x) * jnp.sum(jnp.where(x > 1, x, 0))))
    other(X)
    step(X)
    step(jnp.concatenate([X, X]))
    assert counts(step.report()) == (2, 0, 2, 2, 2)


def test_nested_watched_functions():
    inner = ml.watch(jax.jit(lambda x: x * 3))
    outer = ml.watch(jax.jit(lambda x: inner(x) + inner(x)))
    outer(X)
    outer(X)
    assert counts(outer.report()) == (2, 1, 1, 1, 1)
    assert counts(inner.report()) == (2, 1, 1, 0, 0)
    assert inner.report().untimed_traces == 1


def test_recursion():
    def countdown(x, n):
        return x if n == 0 else step(x + 1, n - 1)

    step = ml.watch(jax.jit(countdown, static_argnums=1))
    np.testing.assert_array_equal(step(X, 3), X + 3)
    assert counts(step.report()) == (4, 0, 4, 1, 1)


def test_equinox_and_flax():
    eqx, nnx = pytest.importorskip("equinox"), pytest.importorskip("flax.nnx")
    linear = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    for step in (ml.watch(eqx.filter_jit(lambda x: x * 2)), ml.watch(nnx.jit(lambda x: linear(x)))):
        for x in (X, X, X[:2]):
            step(x)
        assert counts(step.report()) == (3, 1, 2, 2, 2)
        assert len(step.retraces) == 1


def test_a_library_function_jitted_by_the_user():
    with ml.watch() as seen:
        jnp.arctanh(jnp.ones(7))
        for size in (3, 4):
            jax.jit(jnp.arctanh)(jnp.ones(size))
        for low in (1.0, 2.0):
            jax.jit(functools.partial(jnp.clip, min=low))(X)
    named = {one.name: one for one in own(seen)}
    assert {name: [retrace.reason.partition(" at ")[0] for retrace in one.retraces] for name, one in named.items()} == {
        "arctanh in jit": ["argument 1 `x` changed from f32[3] to f32[4]"],
        "clip": ["a new function object: functools.partial of `clip`"],
    }
    assert {retrace.place.partition(":")[0] for retrace in seen.retraces} == {"test_watching.py"}
    assert "argument 1 `x` changed from f32[3] to f32[4]" in str(seen.report())


def test_callback_that_calls_a_watched_function_of_the_same_name():
    inner = ml.watch(jax.jit(lambda x: x * 2))

    def callback(x):
        return np.asarray(inner(np.ones(7, np.float32)))[:3]

    outer = ml.watch(jax.jit(lambda x: jax.pure_callback(callback, spec(3), x)))
    np.testing.assert_array_equal(outer(jnp.ones(3)), np.full(3, 2))
    assert counts(inner.report()) == counts(outer.report()) == (1, 0, 1, 1, 1)


def test_threads():
    sizes = [*range(1, 9)] * 25
    step = ml.watch(jax.jit(lambda x: x * 2))
    with ml.watch() as seen, ThreadPoolExecutor(8) as pool:
        for size, found in zip(sizes, pool.map(lambda size: step(np.ones(size)), sizes), strict=True):
            assert found.shape == (size,)
    found = step.report()
    assert found.calls == 200
    # JAX, too, may trace for the same shape on two threads at once.
    assert 8 <= found.traces <= 64
    assert found.hits == found.calls - len({retrace.call for retrace in found.retraces}) - 1
    assert len(found.retraces) == found.traces - 1 + sum(not retrace.is_traced for retrace in found.retraces)
    assert seen.report()[step.__name__].traces == found.traces


def test_no_array_is_kept():
    step = ml.watch(jax.jit(lambda x, n: x, static_argnums=1))
    arrays = [jnp.ones(size) for size in (2, 3)]
    alive = [weakref.ref(array) for array in arrays]
    with ml.watch() as seen:
        for array in arrays:
            step(array, 1)
    del array, arrays
    gc.collect()
    assert [one() for one in alive] == [None, None]
    assert len(seen.retraces) == 1


def test_memory_is_bounded_over_many_retraces():
    step = ml.watch(jax.jit(lambda x, n: x, static_argnums=1))
    for n in range(MOST_RETRACES + 31):
        step.trace(X, n)
    found = step.report()
    assert (len(found.retraces), found.left_out, found.traces) == (MOST_RETRACES, 30, MOST_RETRACES + 31)


def test_many_calls(stress):
    calls = stress.size(short=5_000, long=100_000)
    step = ml.watch(jax.jit(lambda x: x + 1))
    step(X)
    step(X[0])
    tracemalloc.start()
    step(X)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(calls):
        step(X)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 10_000
    assert counts(step.report()) == (calls + 3, calls + 1, 2, 2, 2)
    stress.report(calls=calls, bytes_more=grown)


def test_block_counts_functions_inside_it():
    first, second = jax.jit(lambda x: x + 21), jax.jit(lambda x: x + 22)
    first(X)
    with ml.watch() as seen:
        first(X)
        second(X)
        second(X)
        second(X[0])
    second(X[:1])
    found = own(seen)
    assert [counts(one) for one in found] == [(None, None, 2, 2, 2)]
    assert reasons(seen) == ["argument 1 `x` changed from f32[3,2] to f32[2]"]
    assert seen.report().traces == sum(one.traces for one in seen.report().functions)


def test_unknown_name_in_a_report():
    def step(x):
        return x + 71

    with ml.watch() as seen:
        jax.jit(step)(X)
    report = seen.report()
    assert report["step"].traces == 1
    assert message_of(lambda: report["stpe"]) == (
        "UnknownOptionError: the report has no function 'stpe'.\n    functions  step\n    Try: report['step']"
    )
    with pytest.raises(UnknownOptionError, match=r"Try: report\.functions"):
        report["zzz"]


def test_library_functions_are_reported_separately():
    with ml.watch() as seen:
        for size in (71, 72):
            jnp.cumsum(jnp.ones(size))
    found = seen.report()
    assert {one.library for one in found.functions} == {"jax"}
    assert found["cumsum"].traces == 2
    assert seen.retraces == ()


def test_backward_pass_is_counted_by_a_block():
    step = jax.jit(lambda x: jnp.sum(x * x * x))
    with ml.watch() as seen:
        jax.grad(step)(X)
    (found,) = own(seen)
    assert counts(found) == (None, None, 1, 2, 2)
    assert found.untimed_traces == 1
    assert found.retraces == ()


def test_block_separates_a_function_from_its_gradient():
    def loss(x):
        return (x * x).sum()

    with ml.watch() as seen:
        jax.jit(loss)(X)
        jax.jit(jax.grad(loss))(X)
        jax.jit(jax.value_and_grad(loss))(X)
    found = own(seen)
    assert sorted(one.name for one in found) == ["loss", "loss in grad_f", "loss in value_and_grad_f"]
    assert [counts(one) for one in found] == [(None, None, 1, 1, 1)] * 3
    assert seen.retraces == ()


def test_block_ends_with_an_error():
    seen = ml.watch()

    def fail():
        with seen:
            jax.jit(lambda x: x + 31)(X)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    jax.jit(lambda x: x + 32)(X)
    assert sum(one.library is None for one in seen.report().functions) == 1


def test_blocks_nest():
    with ml.watch() as outer:
        with ml.watch() as inner:
            jax.jit(lambda x: x + 41)(X)
        jax.jit(lambda x: x + 42)(X)
    assert [len(own(seen)) for seen in (outer, inner)] == [2, 1]


def test_one_watch_in_several_blocks():
    seen = ml.watch()
    for size in (2, 3):
        with seen, seen:
            jax.jit(lambda x: x + 43)(jnp.ones(size))
        jax.jit(lambda x: x + 44)(jnp.ones(size))
    found = own(seen)
    assert [counts(one) for one in found] == [(None, None, 2, 2, 2)]


def test_listeners_are_registered_once():
    for _ in range(3):
        ml.watch(jax.jit(lambda x: x))
        with ml.watch():
            pass
    assert monitoring.get_event_duration_listeners().count(jit_events._on_duration) == 1
    assert util.test_event_listener is jit_events._on_event


def test_cleared_listeners_are_registered_again():
    jax.monitoring.clear_event_listeners()
    step = ml.watch(jax.jit(lambda x: x + 52))
    step(X)
    assert step.report().compile_s > 0
    assert monitoring.get_scalar_listeners().count(jit_events._on_start) == 1
    assert jit_events.thread.open == []


def test_another_trace_listener_is_still_called(monkeypatch):
    heard = []
    monkeypatch.setattr(util, "test_event_listener", lambda name, *args: heard.append(name))
    with ml.watch() as seen:
        jax.jit(lambda x: x + 51)(X)
    assert "trace_to_jaxpr" in heard
    assert seen.report().traces >= 1
    monkeypatch.undo()
    jit_events.listen()


def test_read_from_disk(tmp_path):
    code = f"""
import json, jax, jax.numpy as jnp, mithril_nb as ml
jax.config.update("jax_compilation_cache_dir", {str(tmp_path)!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
step = ml.watch(jax.jit(lambda x: jnp.sin(x) @ x.T))
step(jnp.ones((3, 3)))
print(json.dumps([step.report().compilations, step.report().disk_hits]))
"""
    found = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
        found.append(json.loads(done.stdout))
    assert found == [[1, 0], [1, 1]]


def test_disabled_jit():
    step = ml.watch(jax.jit(lambda x: x + 61))
    with jax.disable_jit():
        np.testing.assert_array_equal(step(X), X + 61)
    assert counts(step.report()) == (1, 0, 0, 0, 0)
    assert step.report().unjitted == 1
    assert str(step).endswith("calls under jax.disable_jit(), not counted as cache hits: 1")
    step(X)
    step(X)
    assert counts(step.report()) == (3, 1, 1, 1, 1)
    step.reset()
    assert step.report().unjitted == 0


def test_inspect_accepts_a_watched_function():
    step = ml.watch(jax.jit(lambda x, n: x * n, static_argnums=1))
    assert "mul" in ml.inspect(step, X, 3).stage("jaxpr").text
    assert step.calls == 0


def test_target_that_cannot_be_watched():
    assert message_of(lambda: ml.watch(3)) == (
        "UnknownOptionError: "
        "cannot watch 3.\n    needs  a run, a function, or nothing in a with statement\n    Try: ml.watch(jax.jit(fn))"
    )
