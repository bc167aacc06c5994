"""Random programs with sizes that have names: at each number of the names, the results of JAX, or refused by name."""

from __future__ import annotations

import collections
import importlib.util
import random
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import mithril_nb as ml
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.onnx.emit import emit_onnx
from mithril_nb.emission.python_text import load
from mithril_nb.errors import StageUnavailableError, UnsupportedPrimitiveError
from mithril_nb.interop.exporting.stored import exported
from tests.emission.libraries import LACKING, LIBRARIES, to_library
from tests.stress import Stress

WIDTH = 4
SIZES = ((1, 1), (3, 2), (6, 5))
"""Numbers of `batch` and `time`."""
Step = Callable[[Any, Any, Any, Any], Any]
"""From `x` of shape (batch, 4), `z` of shape (batch, time, 4), `w` of shape (4, 4) and the integers `k` of shape
(batch,) to an array of shape (batch, 4)."""


def conv(z: Any, w: Any, **options: Any) -> Any:
    kernel = jnp.stack([w, w[::-1], w * w], -1)
    return lax.conv_general_dilated(z.swapaxes(1, 2), kernel, (1,), [(1, 1)], **options).sum(2)


def pooled(z: Any, combine: Any, start: float, stride: int) -> Any:
    return lax.reduce_window(z, start, combine, (1, 2, 1), (1, stride, 1), "SAME").mean(1)


STEPS: list[Step] = [
    lambda x, z, w, k: jax.nn.gelu(x @ w),
    lambda x, z, w, k: x - x.mean(),
    lambda x, z, w, k: (x - x.mean(0)) / jnp.sqrt(x.var(0) + 0.1),
    lambda x, z, w, k: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 0.1),
    lambda x, z, w, k: jax.nn.softmax(x, 0) * x.shape[0],
    lambda x, z, w, k: x + jnp.arange(x.shape[0], dtype=x.dtype)[:, None] / x.shape[0],
    lambda x, z, w, k: jnp.concatenate([x, -x])[x.shape[0] :],
    lambda x, z, w, k: jnp.concatenate([x[1:], x[:1]]),
    lambda x, z, w, k: jnp.roll(x, 1, 0),
    lambda x, z, w, k: jnp.pad(x, ((1, x.shape[0]), (0, 0)))[: x.shape[0]],
    lambda x, z, w, k: jnp.pad(x, ((0, 0), (1, 0)), constant_values=0.5)[:, :-1],
    lambda x, z, w, k: lax.pad(x, 0.5, ((1, 0, 0), (0, 0, 1)))[: x.shape[0], ::2],
    lambda x, z, w, k: x.reshape(-1, 2).cumsum(0).reshape(x.shape) / x.size,
    lambda x, z, w, k: x.ravel()[::-1].reshape(WIDTH, -1).T,
    lambda x, z, w, k: jnp.sort(x, 0)[::-1],
    lambda x, z, w, k: x[jnp.argsort(x[:, 0])],
    lambda x, z, w, k: jnp.tril(x @ x.T) @ x / x.shape[0],
    lambda x, z, w, k: x @ (x.T @ x) / x.shape[0],
    lambda x, z, w, k: jnp.einsum("bi,bj->ji", x, x)[0] - x,
    lambda x, z, w, k: x + jnp.einsum("bti,bsi,btj->bj", z, z, z) / z.shape[1] ** 2,
    lambda x, z, w, k: jax.nn.softmax(jnp.einsum("bti,bi->bt", z, x))[..., None].swapaxes(1, 2) @ z @ w + x[:, None],
    lambda x, z, w, k: lax.scan(lambda c, row: (c + row @ w / 4, c), jnp.zeros(WIDTH), x)[1] / x.shape[0],
    lambda x, z, w, k: lax.scan(lambda c, step: (jnp.sin(c + step), None), x, z.swapaxes(0, 1), reverse=True)[0],
    lambda x, z, w, k: lax.fori_loop(0, x.shape[0], lambda i, c: jnp.sin(c + i), x),
    lambda x, z, w, k: lax.cond(x.sum() > 0, lambda: x[::-1], lambda: jnp.zeros_like(x) + x.mean(0)),
    lambda x, z, w, k: lax.cond(jnp.asarray(x.shape[0]) > k[0], lambda: x * 2, lambda: x),
    lambda x, z, w, k: x[k % x.shape[0]],
    lambda x, z, w, k: x.at[k % x.shape[0]].add(x[::-1]),
    lambda x, z, w, k: x.at[0].set(1.0).at[-1].multiply(2.0),
    lambda x, z, w, k: jax.nn.one_hot(k % x.shape[0], x.shape[0]) @ x,
    lambda x, z, w, k: jax.ops.segment_sum(x, k % 2, num_segments=x.shape[0]),
    lambda x, z, w, k: x + jnp.cumsum(k)[:, None] % 7 + k.sum() + k.max(),
    lambda x, z, w, k: x * (jnp.argmax(x, 0) % 3) + jnp.argmin(x, 1)[:, None],
    lambda x, z, w, k: jnp.where((x > 0).any(0), x, (x < 1).all(1, keepdims=True)),
    lambda x, z, w, k: jnp.tile(x, (2, 1))[x.shape[0] :] + jnp.repeat(x, 2, 0)[::2],
    lambda x, z, w, k: jnp.stack([x, x + 1]).transpose(1, 0, 2).reshape(x.shape[0], -1)[:, ::2],
    lambda x, z, w, k: sum(jnp.split(jnp.concatenate([x, x * x]), 2)),
    lambda x, z, w, k: jnp.broadcast_to(x.max(0), x.shape) - jnp.full(x.shape, x.shape[0], x.dtype),
    lambda x, z, w, k: lax.dynamic_slice(jnp.concatenate([x, x]), (k[0], 0), x.shape),
    lambda x, z, w, k: lax.dynamic_update_slice(x, x[:1] * 2, (k[0], 0)),
    lambda x, z, w, k: lax.dynamic_update_slice(jnp.concatenate([x, x]), x, (k[0], 0))[: x.shape[0]],
    lambda x, z, w, k: lax.top_k(x, 2)[0].sum(1, keepdims=True) + x,
    lambda x, z, w, k: x + z.reshape(-1, WIDTH).mean(0) + z[:, -1],
    lambda x, z, w, k: x + jnp.linalg.norm(z, axis=(1, 2))[:, None] + z[:, ::2].sum(1) + z[:, :1, :].squeeze(1),
    lambda x, z, w, k: x + conv(z, w),
    lambda x, z, w, k: x + conv(z, w[:, :1], feature_group_count=WIDTH),
    lambda x, z, w, k: x + conv(z, w, lhs_dilation=(2,)),
    lambda x, z, w, k: x + pooled(z, lax.max, -jnp.inf, 1),
    lambda x, z, w, k: x - pooled(z, lax.add, 0.0, 2),
    lambda x, z, w, k: x + jax.vmap(lambda row, rows: rows @ row)(x, z).mean(1, keepdims=True),
    lambda x, z, w, k: x + (jnp.arange(z.shape[1]) < k[:, None]).sum(1, keepdims=True),
    lambda x, z, w, k: x + jnp.prod(jnp.full((x.shape[0], 2), 3), 1)[:, None] % 5 + jnp.triu(x, 1),
    lambda x, z, w, k: jnp.moveaxis(jnp.flip(z, 1), 1, 0)[0] + jnp.diff(z, axis=1).sum(1) + jnp.outer(k, k)[0, 0],
    lambda x, z, w, k: lax.while_loop(lambda c: c[0] < x.shape[0], lambda c: (c[0] + 1, jnp.cos(c[1])), (0, x))[1],
    lambda x, z, w, k: x + jnp.asarray(x.shape[0] * z.shape[1] + (x.shape[0] + 3) // 2 - x.shape[0] % 3, x.dtype) / 9,
]
WRAPS: list[Callable[[Step], Step]] = [
    *[lambda step: step] * 4,
    lambda step: jax.checkpoint(step),
    lambda step: lambda x, z, w, k: jax.grad(lambda x: jnp.mean(jnp.tanh(step(x, z, w, k))))(x) * x.shape[0],
    lambda step: lambda x, z, w, k: x + jax.grad(lambda w: jnp.mean(jnp.tanh(step(x, z, w, k))))(w)[0],
    lambda step: lambda x, z, w, k: lax.scan(lambda c, s: (jnp.sin(step(c, z * s, w, k)), None), x, jnp.arange(2.0))[0],
    lambda step: lambda x, z, w, k: jax.vmap(lambda s: step(x * s, z, w, k))(jnp.arange(1.0, 3.0)).mean(0),
]


def program_of(seed: int) -> Callable[..., Any]:
    draw = random.Random(seed)
    chosen = [draw.choice(WRAPS)(draw.choice(STEPS)) for _ in range(draw.randint(1, 3))]

    def program(x: Any, z: Any, w: Any, k: Any) -> Any:
        for step in chosen:
            x = jnp.sin(step(x, z, w, k))
            x = x[..., 0, :] if x.ndim > 2 else x
        return x, x.mean()

    return program


def runner(inspection: Any, to: str) -> Callable[..., list[np.ndarray]]:
    """Return the program, written in a format, as a function of NumPy arrays."""
    traced = inspection.traced_program
    if to == "onnx":
        onnxruntime = pytest.importorskip("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        model = emit_onnx(traced, {}, list("xzwk"), ["rows", "mean"])
        session = onnxruntime.InferenceSession(model, options)
        taken = {one.name for one in session.get_inputs()}
        return lambda *arrays: session.run(
            None, {name: array for name, array in zip("xzwk", arrays, strict=True) if name in taken}
        )
    if to == "stablehlo":
        return exported(traced).call
    function = load(emit_arrays(traced, to))  # pyright: ignore[reportArgumentType]
    library = "numpy" if to == "jax" else to
    return lambda *arrays: [np.asarray(one) for one in function(*(to_library(library, array) for array in arrays))]


FORMATS = [*(name for name in LIBRARIES if name not in LACKING), "jax", "stablehlo"]
FORMATS += ["onnx"] if importlib.util.find_spec("onnxruntime") else []


@pytest.mark.parametrize("to", FORMATS)
def test_random_programs_equal_jax_at_each_size(to: str, stress: Stress) -> None:
    count, outcomes, wrong = stress.size(short=10, long=150), collections.Counter[str](), list[str]()
    batch, time = jax.export.symbolic_shape("batch, time")
    for seed in range(count):
        program = program_of(seed)
        specs = [
            jax.ShapeDtypeStruct(shape, dtype)
            for shape, dtype in zip(
                [(batch, WIDTH), (batch, time, WIDTH), (WIDTH, WIDTH), (batch,)],
                ["float32"] * 3 + ["int32"],
                strict=True,
            )
        ]
        try:
            inspection = ml.inspect(program, *specs)
            assert inspection.traced_program
        except Exception:  # JAX does not trace the program with names
            outcomes["not traced"] += 1
            continue
        try:
            run = runner(inspection, to)
        except (UnsupportedPrimitiveError, StageUnavailableError):
            outcomes["refused"] += 1
            continue
        is_equal = True
        for rows, steps in SIZES:
            draw = np.random.default_rng(seed)
            arrays = [draw.normal(size=shape).astype("float32") for shape in ((rows, WIDTH), (rows, steps, WIDTH))]
            arrays += [draw.normal(size=(WIDTH, WIDTH)).astype("float32"), draw.integers(0, 5, rows).astype("int32")]
            with warnings.catch_warnings(action="ignore"):
                expected = jax.jit(program)(*arrays)
                try:
                    found = run(*arrays)
                    for one, other in zip(found, expected, strict=True):
                        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)
                except Exception as error:
                    is_equal = False
                    wrong.append(f"seed {seed} at {rows}, {steps}: {type(error).__name__} {error}")
        outcomes["equal" if is_equal else "wrong"] += 1
    stress.report(**{name.replace(" ", "_"): number for name, number in outcomes.items()})
    assert not wrong, "\n".join(wrong[:5])
    assert outcomes["equal"] > count / 2
