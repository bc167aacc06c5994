"""Random programs and special numbers in NumPy, PyTorch and MLX: the same results as JAX's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import mithril_nb as ml
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.python_text import load
from mithril_nb.errors import UnsupportedPrimitiveError
from tests.emission.c_running import run_c
from tests.emission.libraries import LACKING, LIBRARIES, differences, each_library, run_emitted

SHIFTS = (lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic)


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


@pytest.mark.parametrize("library", [*(name for name in LIBRARIES if name not in LACKING), "c"])
@pytest.mark.parametrize("dtype", ["uint8", "uint32", "int8", "int32", "int64"])
def test_shifts_of_any_number_by_any_count(dtype: str, library: str) -> None:
    limits = np.iinfo(dtype)
    numbers = [0, 1, 77, limits.min, limits.min + 5, limits.max // 2 + 1, limits.max - 5, limits.max]
    counts = [0, 1, 4, 6, limits.bits - 1, limits.bits, limits.bits + 8, 64, *([-1] if limits.min else [])]

    def program(x: Any, n: Any) -> Any:
        return [shift(x, by) for shift in SHIFTS for by in (n, *(np.asarray(count, dtype) for count in counts))]

    with jax.enable_x64(True):
        x, n = np.repeat(np.array(numbers, dtype), len(counts)), np.tile(np.array(counts, dtype), len(numbers))
        inspection = ml.inspect(program, x, n)
        found = run_c(inspection, x, n) if library == "c" else run_emitted(inspection, library, {"x": x, "n": n})
        for one, other in zip(found, program(x, n), strict=True):
            np.testing.assert_array_equal(one, np.asarray(other))


@each_library
def test_a_bitwise_reduction_of_integers_is_refused(library: str) -> None:
    x = jnp.array([6, 3])
    with pytest.raises(UnsupportedPrimitiveError, match="unsupported  integers"):
        run_emitted(ml.inspect(lambda x: lax.reduce_and(x, (0,)), x), library, {"x": x})
