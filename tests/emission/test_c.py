"""C source: equal to JAX for every kind of primitive, clean under every warning, and linked line by line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.emission.c.compiling import CompilerError, load
from mithril_nb.errors import UnavailableBackendError, UnsupportedPrimitiveError
from tests.emission.c_running import assert_close, emitted, run_c
from tests.emission.evaluating import random_arrays, traced_program
from tests.emission.test_program import PROGRAMS
from tests.references import run_quickly

X = np.random.default_rng(0).normal(size=(4, 4)).astype("float32")
WHOLE = np.random.default_rng(1).integers(-9, 9, (4, 4)).astype("int32")
IMAGES = np.random.default_rng(2).normal(size=(2, 4, 9, 8)).astype("float32")
KEY = random.key(3)


def elementwise(x: Any) -> Any:
    return (
        [
            jnp.floor(x),
            x**3,
            x**-2,
            jnp.log1p(x * 1e-6),
            jnp.expm1(x * 1e-6),
            jnp.sign(x),
            jnp.where(x > 0, x, -jnp.inf),
        ],
        [lax.clamp(-0.5, x, 0.5), jnp.minimum(x, x.T), jax.nn.sigmoid(x), jnp.exp2(x), jnp.sinh(x), jnp.cosh(x)],
        [lax.erf(x * 2), lax.erfc(x * 3), jax.nn.gelu(x), jnp.isnan(x / 0), jnp.isfinite(jnp.log(x)), x[0] - x[:, :1]],
        [jnp.abs(x) ** x, jnp.abs(x) ** 0.3, 2.0**x, 3 - x, 1 / x, x / 3, x * jnp.inf, (x * 9).astype(int), x > x.T],
        [jnp.float32(1e30) * 1e30 * x, jnp.where(x > 9, jnp.nan, x), jnp.maximum(x, 0), x == x, x != x.T, x >= 0.1],
    )


def integers(i: Any) -> Any:
    return (
        [i + 3, i * 2, -i, jnp.abs(i), i.sum(), i.max(0), i.astype(bool), jnp.clip(i, -2, 3), i > 0, i == i.T],
        [
            jnp.sort(i),
            (i > 0) & (i < 5),
            (i > 0) | (i < -5),
            ~(i > 0),
            (i > 0) ^ (i < 3),
            (i > 0).all(0),
            (i > 0).any(),
        ],
    )


def shapes(x: Any) -> Any:
    return (
        [x[::-1, 1:], x[1::2].T, x[:, ::3], jnp.pad(x, ((1, 2), (0, 1))), lax.pad(x, 7.0, ((-1, 1, 1), (2, -1, 0)))],
        [jnp.stack([x, x * 2], 1), jnp.tile(jnp.exp(x), (2, 3)), jnp.concatenate([x, x.T], 1), x.reshape(2, 8)],
        [jnp.transpose(x.reshape(2, 2, 4), (2, 0, 1)), jnp.transpose(x.reshape(2, 2, 2, 2), (3, 1, 0, 2)), jnp.eye(4)],
        [jnp.cumsum(x, 0), lax.cumsum(x, 1, reverse=True), jnp.argmax(x.round(), 1), jnp.argmin(x, 0), x.min()],
        [x.sum((0, 1)), x.reshape(2, 2, 4).sum(0), x.reshape(2, 2, 4).sum((0, 2)), x.max(0), x.mean(1, keepdims=True)],
        [x.reshape(2, 2, 1, 2, 2).sum((1, 3)), jnp.transpose(x.reshape(2, 2, 1, 2, 2), (1, 0, 2, 3, 4)).max(4)],
        [jnp.exp(x.reshape(2, 2, 1, 2, 2)) + x.reshape(2, 2, 1, 2, 2).sum((2, 3, 4), keepdims=True)],
        [jnp.max(jnp.where(x > 9, x, -jnp.inf), 1), jnp.split(x, 2, 1), x.reshape(2, 2, 4).max((0, 2)), 3.0],
    )


def products(x: Any) -> Any:
    y, z = x.reshape(2, 2, 4), jnp.cos(x.reshape(2, 4, 2))
    return (
        [x @ x, x.T @ x, x @ x.T, x[0] @ x, x @ x[0], x[0] @ x[0], y @ z, jnp.einsum("bij,bik->bjk", y, y)],
        [jnp.einsum("bij,ckj->bick", y, y), jnp.einsum("bij,bij->b", y, y), jnp.tensordot(y, z, ((0, 2), (0, 1)))],
        [jnp.einsum("abcd,abed->abce", *[x.reshape(2, 2, 2, 2)] * 2), jnp.outer(x[0], x[1]), jnp.einsum("ij->", x)],
    )


def indexing(x: Any) -> Any:
    few = jnp.array([[1], [0], [3], [2]])
    place = jnp.argmax(x[1])
    return (
        [x[jnp.array([0, 9, -1])], jnp.take(x, jnp.array([5, 1]), 0), jnp.take(x, jnp.array([5, 1]), 0, mode="clip")],
        [x.at[jnp.array([1, 9])].add(1.0), x.at[0].set(2.0), x.at[jnp.array([3, 1]), jnp.array([2, 2])].set(5.0)],
        [jnp.take_along_axis(x, few, 1), x[jnp.array([0, 1]), jnp.array([2, 3])], x.at[few[:, 0], 1].add(x[0])],
        [lax.dynamic_slice(x, (place, 9), (2, 2)), lax.dynamic_update_slice(x, x[:2, :2], (place, 1)), x[place]],
        jax.grad(lambda x: jnp.sum(jnp.sin(x[jnp.array([[0, 0, 2], [1, 0, 9]])])))(x),
    )


def control(x: Any) -> Any:
    return (
        lax.switch(jnp.argmax(x[0]), [lambda x: x, lambda x: x.T, lambda x: x * 2, jnp.exp], x),
        lax.cond(x[0, 0] > 0, lambda: (x, x[0]), lambda: (x.T, x[1] * 3)),
        jax.grad(lambda x: lax.scan(lambda c, r: (jnp.tanh(c * r), c.sum()), x[0], x)[1].sum())(x),
        lax.scan(lambda c, _: (c + 1, c), 0.0, None, length=3),
        lax.scan(lambda c, r: (c * r, c), x[0], x, reverse=True),
    )


def windows(x: Any) -> Any:
    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 2), (1, 1, 2, 2), "SAME")

    def averaged(x: Any) -> Any:
        return lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 1, 2), "VALID")

    def last(x: Any) -> Any:
        return lax.reduce_window(jnp.moveaxis(x, 1, 3), -jnp.inf, lax.max, (1, 2, 3, 1), (1, 2, 1, 1), "SAME")

    gradients = [jax.grad(lambda x, each=each: jnp.sum(jnp.sin(each(x))))(x) for each in (pooled, averaged, last)]
    ties = jax.grad(lambda x: pooled(jnp.round(x)).sum())(x)
    return pooled(x), averaged(x), last(x), gradients, ties


def more_elementwise(x: Any) -> Any:
    return (
        [jnp.round(x), x % 0.3, jnp.cbrt(x), jnp.arctan2(x, x.T), jnp.log1p(x), jnp.maximum(x, jnp.nan)],
        [jax.scipy.special.erfinv(jnp.tanh(x)), (x * 1e3).astype(int), (x * 1e20).astype("int32")],
        lax.bitcast_convert_type(x, "uint32"),
    )


def more_integers(i: Any) -> Any:
    zero = jnp.zeros_like(i)
    return (
        [i // 3, i % 4, i << 2, i >> 1, ~i, i ^ 3, i & 5, i | 1, i**2, i / 3, i.astype("int8") * 50, i @ i],
        [i.astype("uint8"), lax.population_count(i), lax.div(i, zero), lax.rem(i, zero), i * 2**30],
        [lax.shift_right_logical(i, 3), (i > 0).astype(int) + i],
    )


def more_indexing(x: Any) -> Any:
    return (
        [x.at[jnp.array([0, 2])].max(0.1), x.at[jnp.array([0, 0]), jnp.array([1, 1])].multiply(3.0)],
        [lax.dynamic_slice(x, (jnp.argmax(x[1]), 9), (2, 2)), lax.dynamic_update_slice(x, x[:2, :2], (3, 1))],
    )


def more_control(x: Any) -> Any:
    return (
        lax.fori_loop(0, 5, lambda i, c: (c[1], c[0] + c[1] * x[0, i % 4]), (x.sum(), x[0, 0])),
        lax.switch(jnp.argmax(x[0]), [lambda x: x, lambda x: x.T, lambda x: x * 2, jnp.sort], x),
        lax.while_loop(lambda c: c[0].sum() < 50, lambda c: (jnp.abs(c[0]) * 2 + c[1], c[1].T), (x, x)),
    )


def dilated_windows(x: Any) -> Any:
    def averaged(x: Any) -> Any:
        return lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 1, 2), "VALID", window_dilation=(1, 1, 2, 1))

    return averaged(x), jax.grad(lambda x: jnp.sum(jnp.sin(averaged(x))))(x)


def orders(x: Any) -> Any:
    return (
        [jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cummax(x, 0, reverse=True), lax.cummin(x, 1), lax.cumlogsumexp(x, 0)],
        [
            jnp.argmax(x, 1),
            jnp.argmin(x, 0),
            x.max(),
            x.min(0),
            x.prod(1),
            (x > 0).all(0),
            (x > 0).any(),
            jnp.median(x),
        ],
        [lax.top_k(x, 2), jnp.argsort(x, 0), jnp.sort(x, descending=True), jnp.lexsort((x[0].round(), x[1]))],
        [
            x.max(initial=-jnp.inf, where=x > 0),
            jnp.max(jnp.zeros((2, 0)), initial=1.0),
            lax.associative_scan(jnp.add, x),
        ],
    )


def linear_algebra(x: Any) -> Any:
    positive = x @ x.T + jnp.eye(4)
    return jnp.linalg.cholesky(positive), jnp.linalg.solve(positive, x), jnp.linalg.slogdet(x), jnp.linalg.inv(positive)


def randoms(key: Any) -> Any:
    """Bits, masks and keys: equal to the last bit."""
    keys = random.split(key, 3)
    return (
        [random.bits(key, (3, 5)), random.bits(key, (7,), "uint8"), random.bernoulli(key, 0.3, (4, 5)), keys],
        [random.fold_in(key, 7), random.permutation(key, 9), random.key(5), random.randint(key, (30,), 0, 17)],
        [jax.vmap(lambda one: random.bits(one, (3,)))(keys), lax.scan(lambda c, k: (c ^ random.bits(k), c), 0, keys)],
    )


def draws(key: Any) -> Any:
    return random.normal(key, (300,)), random.uniform(key, (50,)), random.truncated_normal(key, -2.0, 2.0, (40,))


CONVOLUTIONS = [
    # stride, padding, dilation of the input and of the kernel, groups
    (1, "SAME", 1, 1, 1), (2, "SAME", 1, 2, 2), (1, [(1, 2), (0, 3)], 2, 1, 1), (3, [(-1, 1), (2, -1)], 1, 1, 4),
]  # fmt: skip


def convolutions(x: Any) -> Any:
    found: list[Any] = []
    for stride, padding, of_input, of_kernel, groups in CONVOLUTIONS:
        kernel = jnp.cos(jnp.arange(8 * 4 // groups * 6, dtype="float32")).reshape(8, 4 // groups, 3, 2)

        def conv(x: Any, kernel: Any, now: Any = (stride, padding, of_input, of_kernel, groups)) -> Any:
            stride, padding, of_input, of_kernel, groups = now
            options = {"lhs_dilation": (of_input,) * 2, "rhs_dilation": (of_kernel,) * 2}
            return lax.conv_general_dilated(x, kernel, (stride,) * 2, padding, feature_group_count=groups, **options)

        found += [conv(x, kernel), jax.grad(lambda x, k, conv=conv: jnp.sum(conv(x, k) ** 2), (0, 1))(x, kernel)]
    first, second = jnp.transpose(x, (0, 2, 3, 1)), jnp.transpose(kernel, (2, 3, 1, 0))
    layout = ("NHWC", "HWIO", "NHWC")
    return found, lax.conv_general_dilated(
        first, second, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=4
    )


SHARED: dict[str, tuple[Callable[..., Any], Any]] = {
    "elementwise": (elementwise, X), "integers": (integers, WHOLE), "shapes": (shapes, X), "products": (products, X),
    "indexing": (indexing, X), "control": (control, X), "windows": (windows, IMAGES),
    "convolutions": (convolutions, IMAGES),
}  # fmt: skip
"""What C and GGML have."""
MORE = {
    "elementwise": more_elementwise, "integers": more_integers, "indexing": more_indexing, "control": more_control,
    "windows": dilated_windows,
}  # fmt: skip
PARTS: dict[str, tuple[Callable[..., Any], Any]] = {
    **{name: (lambda x, name=name: (SHARED[name][0](x), MORE[name](x) if name in MORE else ()), array)
       for name, (_, array) in SHARED.items()},
    "orders": (orders, X), "linear algebra": (linear_algebra, X), "randoms": (randoms, KEY), "draws": (draws, KEY),
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_primitives_agree_with_jax(part: str) -> None:
    function, array = PARTS[part]
    found = run_c(ml.inspect(function, array), array)
    assert_close(found, run_quickly(function, array), 1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree_with_jax(name: str) -> None:
    inspection = PROGRAMS[name]()
    arrays = random_arrays(inspection.arguments)
    trace = traced_program(inspection).trace
    assert_close(run_c(inspection, *arrays), run_quickly(trace.call(trace.closed), *arrays), 1e-5)


def test_memory_is_shared_by_arrays_that_are_not_alive_together() -> None:
    def chain(x: jax.Array) -> jax.Array:
        for _ in range(6):
            x = jnp.tanh(x @ x)
        return x

    # Two arrays of 64 x 64 float32 at a time, not twelve.
    assert emitted(ml.inspect(chain, jnp.ones((64, 64)))).arena <= 2 * 64 * 64 * 4


def test_names_are_those_of_the_model() -> None:
    text = emitted(ml.compile(models.MLP(4, [8], 3), shapes={"input": [5, 4]}).inspect()).source.text
    assert "static void linear_0(\n    const float input[5][4],\n    const float weight[4][8]," in text
    assert "output[i][j] = dot[i][j] + bias[j];" in text


def test_unsupported_primitives_are_refused_at_emission() -> None:
    with pytest.raises(UnsupportedPrimitiveError) as error:
        emitted(ml.inspect(jnp.linalg.eigvalsh, jnp.eye(3)))
    assert (error.value.primitive, error.value.backend) == ("eigh", "c")
    with pytest.raises(UnsupportedPrimitiveError, match="float16"):
        emitted(ml.inspect(jnp.sin, jnp.ones(3, "float16")))


def test_a_long_chain_of_elementwise_operations() -> None:
    def chain(x: Any) -> Any:
        for step in range(400):
            x = x[::-1] + 1 if step % 4 == 3 else jnp.sin(x) * 0.5 + x
        return x

    x = jnp.linspace(-1, 1, 6).reshape(2, 3)
    assert_close(run_c(ml.inspect(chain, x), x), [chain(x)], 1e-5)


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UnavailableBackendError) as error:
        load({"a": ""})
    assert str(error.value) == (
        "there is no C compiler on this machine.\n"
        "    looked for  cc\n"
        "    Try: apt-get install gcc  # macOS: xcode-select --install"
    )


def test_messages_of_the_compiler_are_shown() -> None:
    with pytest.raises(CompilerError, match=r"cannot compile wrong\.c") as error:
        load({"wrong": "int f(void) { return nothing; }"})
    assert "nothing" in str(error.value)
