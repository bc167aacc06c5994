"""Random compositions of transforms, as NumPy: the same results as JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import mithril_nb as ml
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.python_text import load
from mithril_nb.errors import UnsupportedPrimitiveError
from tests.emission.libraries import differences, each_library, run_emitted

Function = Callable[[Any], Any]
UNARY: tuple[Function, ...] = (
    jnp.tanh,
    jax.nn.softmax,
    jax.nn.relu,
    lambda x: jnp.maximum(x, 0.25),
    lambda x: x - x.mean(-1, keepdims=True),
    lambda x: jnp.cumsum(x, -1),
    lambda x: jnp.sort(x, 0),
    lambda x: x[::-1] * jnp.where(x > 0, x, 0.5),
    lambda x: jnp.linalg.norm(x, axis=-1, keepdims=True) + x,
    lambda x: x.at[1].set(x[0]).at[:, 0].add(1.0),
    lambda x: x[jnp.array([2, 0, 1])],
    lambda x: jnp.concatenate([x[:1], x[1:] ** 3]),
    lambda x: x @ x.T @ x,
    lambda x: jax.lax.dynamic_update_slice(x, x[:2, :2], (1, 1)),
)
WRAPPERS: tuple[Callable[[Function], Function], ...] = (
    lambda fn: fn,
    jax.jit,
    jax.checkpoint,
    lambda fn: lambda x: jax.vmap(fn)(jnp.stack([x, 2 * x]))[1],
    lambda fn: lambda x: jax.grad(lambda y: jnp.sum(jnp.sin(fn(y))))(x),
    lambda fn: lambda x: jax.jvp(fn, (x,), (jnp.ones_like(x),))[1],
    lambda fn: lambda x: jax.lax.scan(lambda c, i: (fn(c) * 0.5, c.sum() * i), x, jnp.arange(3.0))[0],
    lambda fn: lambda x: jax.lax.cond(x.sum() > 0.1, fn, jnp.cos, x),
    lambda fn: lambda x: jax.lax.fori_loop(0, 2, lambda i, c: fn(c) * 0.5, x),
)
SHIFTS = (lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic)
layers = st.lists(st.tuples(st.sampled_from(UNARY), st.sampled_from(WRAPPERS)), min_size=1, max_size=3)


def composed(parts: list[tuple[Function, Callable[[Function], Function]]]) -> Function:
    def program(x: Any) -> Any:
        for function, wrap in parts:
            x = wrap(function)(x)
        return x

    return program


@given(layers)
@settings(max_examples=10)
def test_random_programs_agree_with_jax(parts: list[Any]) -> None:
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)))
        program = composed(parts)
        found = run_emitted(ml.inspect(program, x), "numpy", {"x": x})
        assert differences(found, jax.jit(program)(x), "float64") == []


def draws(key: jax.Array) -> Any:
    first, second = jax.random.split(key)
    folded = jax.random.fold_in(first, 3)
    uniform = jax.random.uniform(folded, (4, 5))
    return jax.random.bits(second, (7,)), uniform, jax.random.bernoulli(first, 0.3, (3, 3)), jax.random.key_data(folded)


@each_library
def test_random_numbers_are_those_of_jax(library: str) -> None:
    """Masks of dropout are equal bit by bit."""
    key = jax.random.key(42)
    found = run_emitted(ml.inspect(draws, key), library, {"key": key})
    for one, other in zip(found, draws(key), strict=True):
        np.testing.assert_array_equal(one, np.asarray(other))


@each_library
def test_dropout_masks_are_those_of_jax(library: str) -> None:
    model = ml.models.Dropout(p=0.4)
    pm = ml.compile(model, shapes={"input": [8, 6]})
    key, x = jax.random.key(1), jnp.ones((8, 6))

    def program(x: Any, key: Any) -> Any:
        return pm.forward({}, {"input": x}, key=key, training=True)["output"]

    found = run_emitted(ml.inspect(program, x, key), library, {"x": x, "key": key})
    np.testing.assert_array_equal(found[0], np.asarray(program(x, key)))


@each_library
@pytest.mark.parametrize(  # no denormal numbers: XLA rounds them to zero, and the libraries do not
    "values",
    [[0.0, 0.0, -0.0], [np.inf, -np.inf, 1.0], [1e38, -1e38, 1e-30], [np.nan, 1.0, 2.0]],
    ids=["zeros", "infinite", "large and small", "nan"],
)
def test_special_values_give_the_results_of_jax(values: list[float], library: str) -> None:
    def program(x: Any) -> Any:
        masked = jnp.where(jnp.array([True, False, True]), x, -jnp.inf)
        return jnp.maximum(x, 0), jax.nn.relu(x), x.max(), jnp.exp(masked - 1), jnp.sign(x), jnp.abs(x), x > 0, x == x

    x = jnp.asarray(values, "float32")
    found = run_emitted(ml.inspect(program, x), library, {"x": x})
    for place, (one, other) in enumerate(zip(found, program(x), strict=True)):
        if library == "mlx" and np.isnan(values).any() and place in (0, 2):
            continue  # MLX returns the number of a pair with NaN
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-6)


@each_library
def test_empty_and_scalar_arrays(library: str) -> None:
    def program(x: Any, n: Any) -> Any:
        return x.sum(0), x.T, n + 1, jnp.stack([n, n]), jnp.concatenate([x, x]), x.reshape(2, 0) * 3

    x, n = jnp.zeros((0, 2)), jnp.asarray(2.5)
    found = run_emitted(ml.inspect(program, x, n), library, {"x": x, "n": n})
    for one, other in zip(found, program(x, n), strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_equal(one, np.asarray(other))


@each_library
def test_the_remainder_of_a_number(library: str) -> None:
    x = jnp.array([2.0, -3.0, 4.5])
    (found,) = run_emitted(ml.inspect(lambda x: lax.rem(7.0, x), x), library, {"x": x})
    np.testing.assert_allclose(found, [1, 1, 2.5])


def test_max_pooling_in_pytorch_has_the_gradient_of_jax_at_ties() -> None:
    torch = pytest.importorskip("torch")

    def pooled(x: Any, *window: Any, **options: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, *window, **options)

    def program(x: Any) -> Any:
        first = pooled(x, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return first.sum() + pooled(x, (1, 1, 3, 3), (1, 1, 2, 1), ((0, 0), (0, 0), (1, 1), (1, 1))).sum()

    def others(x: Any) -> Any:
        uneven = pooled(x, (1, 1, 2, 3), (1, 1, 1, 1), ((0, 0), (0, 0), (1, 0), (1, 1)))
        return uneven, pooled(x, (1, 1, 2, 2), (1, 1, 1, 1), "VALID", window_dilation=(1, 1, 2, 3))

    x = np.random.default_rng(0).integers(0, 3, (2, 3, 6, 7)).astype("float32")
    source = emit_arrays(ml.inspect(program, x).traced_program, "torch")
    assert source.text.count("torch.nn.functional.max_pool2d") == 2
    given = torch.tensor(x, requires_grad=True)
    (found,) = torch.autograd.grad(load(source)(x=given), given)
    np.testing.assert_array_equal(found, jax.grad(program)(x))
    assert differences(run_emitted(ml.inspect(others, x), "torch", {"x": x}), others(x), "float32") == []


@each_library
def test_a_number_and_an_array_of_bools(library: str) -> None:
    def program(x: Any) -> Any:
        return lax.bitwise_and(True, x > 0), lax.bitwise_or(x > 0, False), lax.bitwise_xor(True, x > 1)

    x = jnp.array([-1.0, 1.0, 2.0])
    found = run_emitted(ml.inspect(program, x), library, {"x": x})
    np.testing.assert_array_equal(found, [[False, True, True], [False, True, True], [True, True, False]])


@each_library
def test_halves_are_rounded_away_from_zero_and_no_other_number(library: str) -> None:
    x = jnp.array([0.49999997, 8388609.0, 2.5, -2.5, -0.3, np.inf, -np.inf, np.nan], "float32")
    (found,) = run_emitted(ml.inspect(lambda x: lax.round(x), x), library, {"x": x})
    np.testing.assert_array_equal(found, np.asarray(lax.round(x)))


@each_library
def test_a_cholesky_factor_is_nan_only_where_there_is_none(library: str) -> None:
    def program(x: Any) -> Any:
        return lax.linalg.cholesky(x, symmetrize_input=False)

    x = jnp.array([[[4.0, 1.0], [1.0, 3.0]], [[-1.0, 0.0], [0.0, 1.0]]])
    (found,) = run_emitted(ml.inspect(program, x), library, {"x": x})
    np.testing.assert_allclose(found, np.asarray(program(x)), rtol=1e-6)


@each_library
@pytest.mark.parametrize("dtype", ["uint8", "uint32", "int8", "int32", "int64"])
def test_shifts_of_any_number_by_any_count(dtype: str, library: str) -> None:
    limits = np.iinfo(dtype)
    numbers = [0, 1, 77, limits.min, limits.min + 5, limits.max // 2 + 1, limits.max - 5, limits.max]
    counts = [0, 1, 4, 6, limits.bits - 1, limits.bits, limits.bits + 8, 64, *([-1] if limits.min else [])]

    def program(x: Any, n: Any) -> Any:
        return [shift(x, by) for shift in SHIFTS for by in (n, *(np.asarray(count, dtype) for count in counts))]

    with jax.enable_x64(True):
        x, n = np.repeat(np.array(numbers, dtype), len(counts)), np.tile(np.array(counts, dtype), len(numbers))
        found = run_emitted(ml.inspect(program, x, n), library, {"x": x, "n": n})
        for one, other in zip(found, program(x, n), strict=True):
            np.testing.assert_array_equal(one, np.asarray(other))


@each_library
def test_a_bitwise_reduction_of_integers_is_refused(library: str) -> None:
    x = jnp.array([6, 3])
    with pytest.raises(UnsupportedPrimitiveError, match="unsupported  integers"):
        run_emitted(ml.inspect(lambda x: lax.reduce_and(x, (0,)), x), library, {"x": x})
