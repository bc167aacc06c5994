"""Puzzles: what solves them, and what does not."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax_programs import spec

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError


def chain(a, b, x):
    """Compute A B x."""
    return (a @ b) @ x


CHAIN = (spec(16, 16), spec(16, 16), spec(16))


@pytest.fixture
def puzzle():
    return ml.teach.puzzle(chain, *CHAIN, flops=1_100, traces=1, equations=4)


def test_a_solution_is_right_with_its_figures(puzzle):
    result = puzzle.check(jax.jit(lambda a, b, x: a @ (b @ x)))
    assert (result.right, result.reason) == (True, "")
    assert dict(result.figures)["flops"] == 2 * 2 * 16 * 16
    assert puzzle.check(lambda a, b, x: jnp.einsum("ij,jk,k->i", a, b, x, optimize="optimal")).right
    assert puzzle.check(lambda a, b, x: jax.lax.dot(a, jax.lax.dot(b, x))).right


def test_the_decorator_prints_the_result_and_keeps_the_function(puzzle, capsys):
    @puzzle
    def solved(a, b, x):
        return a @ (b @ x)

    assert capsys.readouterr().out.startswith("right: 1,024 FLOPs")
    assert solved(np.eye(2), np.eye(2), np.ones(2)).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda a, b, x: (a @ b) @ x, "it has 8,704 FLOPs, and at most 1,100 are allowed. Most are in equation 0"),
        (lambda a, b, x: jnp.ones(16), "with random input 1, element (0,) of the result is 1, and should be"),
        (lambda a, b, x: b @ (a @ x), "element (0,) of the result is"),
        (lambda a, b, x: a.T @ (b @ x), "element (0,) of the result is"),
        (lambda a, b, x: (a @ (b @ x)).astype("float16"), "the result is float16[16], and should be float32[16]"),
        (lambda a, b, x: (a @ (b @ x))[:, None], "the result is float32[16, 1], and should be float32[16]"),
        (lambda a, b, x: (a @ (b @ x))[:-1], "the result is float32[15], and should be float32[16]"),
        (lambda a, b, x: {"out": a @ (b @ x)}, "has the structure"),
        (lambda a, b, x: [a @ (b @ x)], "has the structure"),
        (lambda a, b, x: a @ (b @ x) + 1e-2, "element (0,) of the result is"),
        (lambda a, b, x: (a @ (b @ x)).at[-1].set(0), "element (15,) of the result is 0, and should be"),
        (lambda a, b: a, "it raises TypeError"),
        (lambda a, b, x: None, "it returns nothing yet"),
        (lambda a, b, x: ..., "it returns nothing yet"),
        (lambda a, b, x: np.asarray(a) @ (np.asarray(b) @ np.asarray(x)), "its cost is unknown: .*cannot be traced|x^"),
        (lambda a, b, x: 0 * x + (a * 1 * 1 * 1) @ (b @ x), "it has .* FLOPs|equations"),
    ],
)
def test_what_is_wrong_is_named(puzzle, wrong, reason):
    result = puzzle.check(wrong)
    assert not result.right
    parts = reason.split("|") if "|" in reason else [re.escape(reason)]
    assert any(re.search(part, result.reason) for part in parts), result.reason


def test_a_function_that_traces_again_is_found():
    @jax.jit
    def scaled(x, factor):
        return x * factor

    changing = jax.jit(lambda x, factor, n: x * factor + 0 * n, static_argnums=2)
    counter = iter(range(100))
    task = ml.teach.puzzle(lambda x, factor: x * factor, spec(8), spec(), traces=1)
    assert task.check(scaled).right
    assert task.check(lambda x, factor: x * factor).right
    fresh = task.check(lambda x, factor: jax.jit(lambda x: x * factor)(x))
    assert not fresh.right
    assert "a new function object" in fresh.reason
    static = task.check(lambda x, factor: changing(x, factor, next(counter)))
    assert not static.right
    assert "3 times, and 1 is allowed" in static.reason


def test_amounts_of_one_are_singular():
    sine = ml.teach.puzzle(jnp.sin, jnp.ones(3), equations=1, traces=1)
    assert "at most 1 equation\n  at most 1 trace in three calls" in str(sine)
    assert str(sine.check(jnp.sin)) == "right: 1 equation"
    longer = ml.teach.puzzle(jnp.sin, jnp.ones(3), equations=2)
    assert "at most 2 equations" in str(longer)


def test_memory_is_bounded():
    def mean(x):
        """Mean of squares."""
        return (x**2).mean()

    task = ml.teach.puzzle(mean, spec(512, 512), peak_bytes=512 * 512 * 4 + 10_000)
    assert task.check(jax.jit(mean)).right
    result = task.check(lambda x: (jnp.sort(x**2, axis=0)).mean())
    assert not result.right
    assert "bytes at its peak" in result.reason


@settings(max_examples=5)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 1_000))
def test_a_reference_solves_its_own_puzzle(rows, columns, offset):
    def reference(x, y):
        return {"sum": x.sum(0) + offset, "order": jnp.argsort(y), "both": (x > 0, y * 2)}

    task = ml.teach.puzzle(reference, spec(rows, columns), spec(columns, dtype="int32"))
    assert task.check(reference).right
    assert not task.check(lambda x, y: {**reference(x, y), "sum": x.sum(0) + offset + 1}).right
    assert not task.check(lambda x, y: {**reference(x, y), "both": (x >= 100, y * 2)}).right


def test_bounds_and_references_are_checked():
    with pytest.raises(UnknownOptionError, match="flops=1_000"):
        ml.teach.puzzle(chain, *CHAIN, flops="20k")  # pyright: ignore
    with pytest.raises(UnknownOptionError, match="does not run with the example"):
        ml.teach.puzzle(chain, spec(3))


def test_a_bound_of_unknown_cost_cannot_be_checked():
    def reference(x):
        return x + 1

    task = ml.teach.puzzle(reference, spec(3), flops=10)
    result = task.check(lambda x: jax.pure_callback(lambda x: np.asarray(x) + 1, spec(3), x))
    assert not result.right
    assert "unknown" in result.reason


@pytest.mark.filterwarnings("error")
def test_one_infinite_or_unknown_element_hides_no_other():
    split = ml.teach.puzzle(lambda x: jnp.where(x > 0, x, -jnp.inf), spec(64))
    assert split.check(lambda x: jnp.where(x > 0, x, -jnp.inf)).right
    assert "element" in split.check(lambda x: jnp.where(x > 0, 7 * x + 3, -jnp.inf)).reason
    root = ml.teach.puzzle(lambda x: jnp.sqrt(x), spec(64))
    assert root.check(lambda x: jnp.exp(jnp.log(x) / 2)).reason == ""
    assert not root.check(lambda x: jnp.sqrt(abs(x))).right


@pytest.mark.parametrize("untraceable", [
    lambda x, n: x[: int(n)].sum(), lambda x, n: x.sum() if n > 2 else x[0], lambda x, n: jnp.float32(sum(x[:n])),
])  # fmt: skip
def test_code_that_cannot_be_traced_keeps_no_bound_on_traces(untraceable):
    task = ml.teach.puzzle(
        lambda x, n: jnp.where(jnp.arange(8) < n, x, 0).sum(), spec(8), spec(dtype="int32"), traces=1
    )
    assert not task.check(untraceable).right


def test_each_check_draws_other_values():
    static = jax.jit(lambda x, rate: x * rate, static_argnums=1)
    task = ml.teach.puzzle(lambda x, rate: x * rate, spec(8), spec(), traces=1)
    for _ in range(3):
        assert not task.check(lambda x, rate: static(x, float(rate))).right
    draws = []
    keep = ml.teach.puzzle(lambda n: n, spec(dtype="int32"))
    for _ in range(4):
        keep.check(lambda n: draws.append(int(n)) or n if not isinstance(n, jax.core.Tracer) else n)
    assert len(set(draws)) > 3
    assert all(first != second for first, second in zip(draws[::3], draws[1::3], strict=True))


def test_a_function_that_changes_or_donates_its_arguments():
    task = ml.teach.puzzle(lambda p: p, {"a": spec(4)})

    def changed(p):
        p["a"] = p["a"] + 1
        return p

    assert not task.check(changed).right
    donated = ml.teach.puzzle(lambda x: x, spec(8))
    assert donated.check(jax.jit(lambda x: x, donate_argnums=0)).right
    add = ml.teach.puzzle(lambda x: x + 1, spec(8))
    donates = jax.jit(lambda x: x + 1, donate_argnums=0)
    assert "deleted" in add.check(lambda x: donates(x) + x).reason


def test_integers_are_drawn_from_their_range():
    def absolute(n):
        return abs(n)

    task = ml.teach.puzzle(absolute, spec(32, dtype="int32"), ranges={"n": (-5, 5)})
    assert task.check(lambda n: jnp.where(n < 0, -n, n)).right
    assert not task.check(lambda n: n).right
    for ranges in ({"m": (0, 1)}, {"n": (1, 0)}, {"n": 3}, {"n": (0.5, 1)}):
        with pytest.raises(UnknownOptionError, match=r'ranges=\{"n": '):
            ml.teach.puzzle(absolute, spec(3, dtype="int32"), ranges=ranges)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_differ_and_keep_their_implementation(impl):
    keys = jax.random.split(jax.random.key(0, impl=impl), 4)
    task = ml.teach.puzzle(lambda keys: jax.vmap(jax.random.normal)(keys), keys)
    assert task.check(lambda keys: jax.vmap(jax.random.normal)(keys)).right
    assert not task.check(lambda keys: jnp.full(4, jax.random.normal(keys[0]))).right
    same = ml.teach.puzzle(lambda keys: keys, jax.ShapeDtypeStruct((), keys.dtype))
    assert same.check(lambda key: key).right
    assert not same.check(lambda key: jax.random.fold_in(key, 1)).right


def test_the_tolerance_is_that_of_the_dtype_and_the_element():
    short = ml.teach.puzzle(lambda x: x + 1, spec(64, dtype="bfloat16"))
    assert short.check(lambda x: (x.astype("float32") + 1).astype("bfloat16")).right
    assert not short.check(lambda x: x + jnp.bfloat16(1.08)).right
    uneven = ml.teach.puzzle(lambda x: jnp.stack([x.sum() * 1e8, x[0]]), spec(64))
    assert uneven.check(lambda x: jnp.stack([x[::-1].sum() * 1e8, x[0]])).right
    assert not uneven.check(lambda x: jnp.stack([x.sum() * 1e8, x[1]])).right


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_other_orders_of_sums_are_right(dtype):
    sums = ml.teach.puzzle(lambda x, y: x @ y, spec(32, 64, dtype=dtype), spec(64, 32, dtype=dtype))
    for _ in range(5):
        assert sums.check(lambda x, y: (x[:, ::-1].astype("float32") @ y[::-1].astype("float32")).astype(dtype)).right
        assert sums.check(lambda x, y: (y.T @ x.T).T).right


def broken():
    raise SystemExit("leaving")


@pytest.mark.parametrize(("result", "reason"), [
    (lambda: "text", "of type str"), (object, "of type object"), (lambda: len, "of type builtin_function"),
    (lambda: iter([1]), "list_iterator"), (lambda: 10**400, "of type int"), (broken, "SystemExit: leaving"),
    (lambda: jax.ShapeDtypeStruct((3,), "float32"), "should be"), (lambda: [1, "a"], "structure"),
])  # fmt: skip
def test_every_result_has_a_reason(result, reason):
    task = ml.teach.puzzle(lambda x: x, spec(3))
    tried = task.check(lambda x: result())
    assert not tried.right
    assert reason in tried.reason
