"""Sixty programs of many families, to compile for devices that the machine does not have."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.corpus import Make, corpus
from benchmarks.corpus.program import Program, ints, spec

MESH = AbstractMesh((8,), ("data",), axis_types=(AxisType.Auto,))


def half(*shape: int, dtype: Any = "bfloat16") -> jax.ShapeDtypeStruct:
    """Return the spec of an array of a smaller dtype."""
    return spec(*shape, dtype=dtype)


def rows(*shape: int) -> jax.ShapeDtypeStruct:
    """Return the spec of an array whose rows are on eight devices."""
    return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(MESH, P("data")))


def by_device(body: Any, out: Any) -> Any:
    """Return a function that runs on each device with its part of the rows."""
    return jax.shard_map(body, mesh=MESH, in_specs=P("data"), out_specs=out)


def programs() -> dict[str, Make]:
    """Return the programs by name. Those whose names start with `8` need eight devices."""
    names = [name for name in corpus() if not name.startswith("sharded") and "hand-written" not in name]
    return {name: corpus()[name] for name in names} | dict(_products() | _algebra() | _flow() | _parallel())


def _products() -> dict[str, Make]:
    x, w = half(64, 128), half(128, 256)

    def convolve(dims: int, **options: Any) -> Any:
        labels = {1: ("NHC", "HIO", "NHC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}[dims]
        return partial(lax.conv_general_dilated, dimension_numbers=labels, padding="SAME", **options)

    def sums(function: Any) -> Any:
        return jax.grad(lambda *args: (function(*args).astype("float32") ** 2).sum(), (0, 1))

    image, kernel = spec(4, 16, 16, 8), spec(3, 3, 8, 16)
    ones = (1, 1)
    return {
        "bf16 product, gradient": lambda: (sums(jnp.matmul), (x, w)),
        "int8 product": lambda: (lambda x, w: lax.dot(x, w, preferred_element_type="int32"),
                                 (half(64, 128, dtype="int8"), half(128, 256, dtype="int8"))),
        "quantized weights": lambda: (lambda x, w, s: x @ (w.astype("bfloat16") * s),
                                      (x, half(128, 256, dtype="int8"), half(256))),
        "f8 product": lambda: (lambda x, w: lax.dot(x, w, preferred_element_type="float32"),
                               (half(64, 128, dtype="float8_e4m3fn"), half(128, 256, dtype="float8_e4m3fn"))),
        "ragged product": lambda: (lax.ragged_dot, (half(64, 128), half(4, 128, 256), ints(4))),
        "attention, gradient": lambda: (jax.grad(lambda q, k, v: jax.nn.dot_product_attention(q, k, v).astype(
            "float32").sum(), (0, 1, 2)), (half(2, 64, 4, 32),) * 3),
        "einsum of three": lambda: (partial(jnp.einsum, "ab,bc,cd->ad"), (spec(32, 64), spec(64, 16), spec(16, 128))),
        "matrix and vector": lambda: (jnp.matmul, (spec(256, 512), spec(512))),
        "complex product": lambda: (jnp.matmul, (half(32, 64, dtype="complex64"), half(64, 32, dtype="complex64"))),
        "convolution, gradient": lambda: (sums(convolve(2, window_strides=ones)), (image, kernel)),
        "strided convolution, gradient": lambda: (sums(convolve(2, window_strides=(2, 1))), (image, kernel)),
        "depthwise convolution": lambda: (convolve(2, window_strides=ones, feature_group_count=8),
                                          (image, spec(3, 3, 1, 16))),
        "dilated convolution": lambda: (convolve(2, window_strides=ones, rhs_dilation=(2, 2)), (image, kernel)),
        "transposed convolution": lambda: (partial(lax.conv_transpose, strides=(2, 2), padding="SAME"),
                                           (image, kernel)),
        "1D convolution": lambda: (convolve(1, window_strides=(1,)), (half(4, 64, 16), half(5, 16, 32))),
        "3D convolution": lambda: (convolve(3, window_strides=(1, 1, 1)), (spec(2, 8, 8, 8, 4), spec(3, 3, 3, 4, 8))),
        "Flax linen, gradient": linen,
    }  # fmt: skip


def linen() -> Program:
    """Return the gradient of a Flax linen module."""
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.Conv(8, (3, 3))(x)).reshape(x.shape[0], -1)
            return nn.Dense(10)(nn.LayerNorm()(x))

    x = spec(4, 8, 8, 3)
    params = jax.eval_shape(Net().init, jax.random.key(0), x)
    return jax.grad(lambda params, x: (Net().apply(params, x) ** 2).sum()), (params, x)


def _algebra() -> dict[str, Make]:
    square, wide = spec(32, 32), spec(16, 1024)
    return {
        "Cholesky": lambda: (lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(32)), (square,)),
        "QR": lambda: (jnp.linalg.qr, (square,)),
        "solve": lambda: (jnp.linalg.solve, (square, square)),
        "symmetric eigenvalues": lambda: (jnp.linalg.eigvalsh, (square,)),
        "FFT": lambda: (lambda x: jnp.abs(jnp.fft.rfft(x)), (wide,)),
        "sort and top k": lambda: (lambda x: (jnp.sort(x), lax.top_k(x, 5)), (wide,)),
        "sums along an axis": lambda: (lambda x: jnp.cumsum(x, 1) / jnp.cumsum(x**2, 1), (wide,)),
        "random numbers": lambda: (lambda key: jax.random.normal(key, (64, 64)) @ jnp.ones((64, 8)),
                                   (jax.eval_shape(lambda: jax.random.key(0)),)),
        "sums by segment": lambda: (lambda x, i: jax.ops.segment_sum(x, i, 10), (spec(256, 16), ints(256))),
    }  # fmt: skip


def _flow() -> dict[str, Make]:
    w, x = spec(64, 64), spec(8, 64)

    def twice(x: Any) -> Any:
        def kernel(x_ref: Any, y_ref: Any) -> None:
            y_ref[...] = 2 * x_ref[...]

        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x) @ x.T

    def nested(w: Any, x: Any) -> Any:
        def outer(x: Any, _: Any) -> Any:
            return lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ w), x), x.sum()

        return lax.scan(outer, x, None, length=4)

    saved = jax.checkpoint(lambda w, x: jnp.sin(jnp.tanh(x @ w) @ w),
                           policy=jax.checkpoint_policies.dots_saveable)  # fmt: skip
    return {
        "loop in a loop": lambda: (nested, (w, x)),
        "remat of all but products": lambda: (jax.grad(lambda w, x: saved(w, x).sum()), (w, x)),
        "associative scan": lambda: (partial(lax.associative_scan, jnp.matmul), (spec(16, 8, 8),)),
        "Pallas kernel": lambda: (twice, (spec(128, 128),)),
        "vmap of a condition": lambda: (jax.vmap(lambda x, y: lax.cond(x.sum() > 0, lambda: x @ y, lambda: x @ y.T)),
                                        (spec(4, 16, 16),) * 2),
    }  # fmt: skip


def _parallel() -> dict[str, Make]:
    w = jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(MESH, P(None, "data")))
    x = rows(64, 64)
    return {
        "8: sharded product, gradient": lambda: (jax.grad(lambda w, x: (jnp.tanh(x @ w) ** 2).sum()), (w, x)),
        "8: shard_map of a sum": lambda: (by_device(lambda x: lax.psum(x.T @ x, "data"), P()), (x,)),
        "8: shard_map of a ring": lambda: (
            by_device(lambda x: lax.ppermute(x, "data", [(i, (i + 1) % 8) for i in range(8)]) @ x.T, P("data")), (x,)),
        "8: shard_map of a gather": lambda: (
            by_device(lambda x: x @ lax.all_gather(x, "data", tiled=True), P("data")), (x,)),
    }  # fmt: skip
