"""ONNX graphs compute what JAX computes: every block, and operators with unusual options."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.emission.onnx.emit import emit_onnx
from mithril_nb.errors import UnsupportedPrimitiveError
from tests.blocks import test_cases
from tests.blocks.case import examples
from tests.emission.libraries import differences
from tests.emission.test_blocks import CASES

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

REFUSED = {
    "cholesky": ("Cholesky", "GaussProcessRegressionCore"),
    "eigh": ("Eigvalsh",),
    "lt_to": ("AUC", "AUCCore"),
    "lu": ("GPRAlpha", "GPRVOuter"),
    "random_seed": ("PrimitiveRandInt", "PrimitiveRandn", "RandInt", "Randn"),
    "shift_left": ("ShiftLeft",),
    "shift_right_arithmetic": ("ShiftRight",),
    "shift_right_logical": ("Power",),
}
"""Blocks that are refused, by the primitive that ONNX has no operator for."""
GROUPS = 4
ROWS = np.array([[0, 2], [5, -1]], "int32")


def run_onnx(function: Callable[..., Any], *arguments: Any) -> list[np.ndarray]:
    """Return the results of a function as an ONNX model, flat."""
    program = ml.inspect(function, *arguments).traced_program
    names = [f"in_{place}" for place in range(len(program.inputs))]
    outputs = [f"out_{place}" for place in range(len(program.trace.outputs))]
    session = onnxruntime.InferenceSession(emit_onnx(program, {}, names, outputs))
    return session.run(outputs, dict(zip(names, map(np.asarray, jax.tree.leaves(arguments)), strict=True)))


def forward_of(names: Collection[str]) -> tuple[Callable[[Any], Any], Any]:
    """Return a function to the results of many blocks, and its argument."""
    graphs: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for name in names:
        model, inputs = examples(CASES[name])[-1]
        params, state = test_cases._arrays(test_cases._inferred(model.graph, inputs))
        graphs[name] = model.graph
        arrays[name] = [test_cases._as(one, "float32") for one in (params, state, inputs)]
    return lambda given: {name: test_cases._run(graphs[name], *three) for name, three in given.items()}, arrays


@pytest.mark.parametrize("group", range(GROUPS))
def test_blocks_agree_with_jax(group: int) -> None:
    refused = {name for names in REFUSED.values() for name in names}
    step, given = forward_of([name for name in CASES if name not in refused][group::GROUPS])
    expected = jax.jit(step).lower(given).compile(compiler_options={"xla_backend_optimization_level": 0})(given)
    assert differences(run_onnx(step, given), expected, "float32") == []


def test_refused_blocks_name_the_primitive() -> None:
    for primitive, names in REFUSED.items():
        for name in names:
            step, given = forward_of([name])
            with pytest.raises(
                UnsupportedPrimitiveError, match=f"backend 'onnx' has no source for primitive '{primitive}'"
            ):
                run_onnx(step, given)


def conv(x: Any, w: Any, layout: str = "NCHW", **options: Any) -> Any:
    numbers = (layout, "OIHW" if layout == "NCHW" else "HWIO", layout)
    options = {"window_strides": (1, 1), "padding": "SAME", **options}
    return jax.lax.conv_general_dilated(x, w, dimension_numbers=numbers, **options)


def convolutions(x: Any, w: Any) -> Any:
    return {
        "strided": conv(x, w, window_strides=(2, 1), padding=((1, 0), (0, 2))),
        "dilated": conv(x, w, rhs_dilation=(2, 1), lhs_dilation=(1, 3), padding=((1, -1), (0, 2))),
        "grouped": conv(x, w[:, :2], feature_group_count=2),
        "last": conv(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), "NHWC"),
    }


def windows(x: Any) -> Any:
    pads = ((0, 0), (0, 0), (2, 1), (0, 3))
    found = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 3), (1, 1, 2, 1), pads)
    total = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 1, 2), (1, 2, 1, 1), "VALID")
    least = jax.lax.reduce_window(x, jnp.inf, jax.lax.min, (2, 2), (1, 1), "SAME") if x.ndim == 2 else x.min(1)
    return found, total, least, jax.lax.pad(x, 0.5, ((0, 0, 0), (1, -1, 2), (0, 0, 1), (-2, 0, 0)))


def indexing(x: Any, rows: Any) -> Any:
    table = x[0, 0]
    return {
        "rows": table[rows],
        "filled": table.at[rows].get(mode="fill"),
        "along": jnp.take_along_axis(x[0], jnp.argsort(x[0], axis=1), axis=1),
        "axis": jnp.take(x, rows, axis=2, mode="clip"),
        "picked": x[jnp.arange(2), rows[0]],
        "added": jnp.zeros((5, 3)).at[rows].add(x[:, :2, 0, :3]),
        "sliced": jax.lax.dynamic_slice(table, (rows[1, 0], 3), (4, 2)),
        "reversed": x[:, ::-1, 1::2],
        "ordered": (jnp.sort(table, axis=0), *jax.lax.top_k(table, 3), jnp.argmax(table, 1), jnp.cumsum(table, 0)),
    }


def arithmetic(x: Any, rows: Any) -> Any:
    odd, flag = jnp.array([-jnp.inf, jnp.inf, jnp.nan, 0.0, 1e-9, -1e-9, 88.0]), rows > 1
    return {
        "rounding": [f(odd) for f in (jnp.sign, jnp.floor, jnp.round, jnp.isfinite, jnp.log1p, jnp.expm1, jnp.tanh)],
        "clipped": [jnp.clip(x, -0.5, 0.5), jnp.where(x > 0, x, 2.0), jnp.maximum(odd, 0.0), jax.nn.relu(odd)],
        "integers": [rows // 2, rows % 3, rows**2, jax.lax.div(rows, -2), -rows, rows.astype("uint8") + 250],
        "bools": [flag & ~flag, flag | (rows == 2), flag ^ flag, flag.all(), flag.any(1), flag.sum(0), flag.max(1)],
        "sums": [
            x.sum((0, 2)),
            x.prod(3),
            rows.sum(),
            rows.max(0),
            x.mean(1, keepdims=True),
            (x.astype("float16") * 2).astype("float32"),
        ],
        "products": [jnp.einsum("abcd,abed->abce", x, x), x[0, 0] @ x[0, 0].T, x[0, 0, 0] @ x[0, 1, 0], rows @ rows],
        "empty": [x[:0].sum(), x[:, :0].max(0), jnp.concatenate([x[:0], x])],
    }


def control(x: Any, rows: Any) -> Any:
    last, stacked = jax.lax.scan(lambda c, a: (c * 0.5 + a, {"c": c.sum()}), x[0, 0], x[0], reverse=True)
    chosen = [jax.lax.switch(index, [lambda: x[0], lambda: x[1], lambda: -x[1]]) for index in rows.ravel()]
    _, long = jax.lax.scan(lambda c, _: (c + x[0, 0, 0], (c[0], c)), x[1, 1, 1], None, length=5000, reverse=True)
    return last, stacked, chosen, long, jax.lax.cond(rows[0, 0] > 0, lambda: x * 2, lambda: x)


def loops(x: Any, rows: Any) -> Any:
    def inner(c: Any) -> Any:
        return jax.lax.while_loop(lambda s: s.max() < 8, lambda s: s * 1.5 + jnp.abs(x[0, 0]), c)

    total = jax.lax.while_loop(lambda s: s[0] < rows[1, 0], lambda s: (s[0] + 2, s[1] + inner(s[1])), (0, x[0, 0]))
    never = jax.lax.while_loop(lambda s: s[0, 0] > 100, lambda s: s + 1, rows)
    endless = jax.lax.cond(rows[0, 0] > 0, lambda: jax.lax.while_loop(lambda s: s < 9, lambda s: s - 1, 0), lambda: 7)
    each = jax.vmap(inner)(jnp.stack([x[1, 1], x[0, 2] * 9]))
    return total, never, endless, each, jax.lax.fori_loop(0, rows[0, 1], lambda i, c: c + x[i], x[0])


def pooling_gradients(x: Any) -> Any:
    def pooled(x: Any, combine: Any, start: float, *window: Any) -> Any:
        found = jax.lax.reduce_window(x, start, combine, *window)
        return jnp.sum(found * jnp.arange(1.0, found.size + 1).reshape(found.shape))

    x = jnp.where(jnp.arange(7)[:, None] < 4, -jnp.inf, jnp.round(x))  # ties
    pads = ((0, 0), (0, 0), (1, 1), (0, 2))
    return (
        jax.grad(pooled)(x, jax.lax.max, -jnp.inf, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
        jax.grad(pooled)(x, jax.lax.max, -jnp.inf, (1, 1, 3, 3), (1, 1, 2, 1), pads),
        jax.grad(pooled)(-x, jax.lax.min, jnp.inf, (1, 2, 2, 1), (1, 1, 1, 1), "SAME"),
        jax.grad(pooled)(x, jax.lax.max, -jnp.inf, (1, 1, 9, 1), (1, 1, 1, 1), "VALID"),
    )


def dtypes(x: Any, rows: Any) -> Any:
    odd = x[0, 0].at[0].set(jnp.array([jnp.nan, jnp.inf, -jnp.inf, 300.0, -1.5, 1e20]))
    small = jnp.array([[100, -128], [-1, 0]], "int8")
    narrow, signs = [small.astype(f"{kind}{bits}") for bits in (8, 16, 32) for kind in ("int", "uint")], ROWS.ravel()
    image, kernel = jnp.full((1, 2, 5, 5), 100, "int8"), jnp.full((2, 1, 2, 3), 2, "int8")
    half = jnp.full((1, 2, 5, 5), 300, "float16")
    pools = [(jax.lax.max, -jnp.inf), (jax.lax.min, jnp.inf)]
    windows = ((2, 2), (2, 1), "SAME")

    def convolved(left: Any, right: Any, dtype: str) -> Any:
        return jax.lax.conv_general_dilated(
            left, right, (1, 2), "SAME", feature_group_count=2, preferred_element_type=dtype
        )

    return {
        "products": [jax.lax.dot(small, small, preferred_element_type="int32"), jax.lax.dot(narrow[1], narrow[1])],
        "convolutions": [convolved(image, kernel, "int32"), convolved(half, kernel.astype("float16"), "float32")],
        "nan": [f(odd, axis) for f in (jnp.argmax, jnp.argmin, jnp.max, jnp.min, jnp.argsort) for axis in (0, 1)],
        "pools": [jax.lax.reduce_window(odd, start, combine, *windows) for combine, start in pools],
        "infinite": jax.lax.reduce_window(jnp.full_like(odd, -jnp.inf), -jnp.inf, jax.lax.max, *windows),
        "integers": [odd.astype(kind) for kind in ("uint8", "int8", "uint16", "int32", "uint32")],
        "divided": [f(one, one.T) for one in narrow for f in (jax.lax.div, jax.lax.rem)],
        "moved": [(jnp.where(one > 1, one, one.T), one.cumsum(0, one.dtype), jnp.sort(one), one % 3) for one in narrow],
        "sums": [jnp.array([2**31 - 1, 2**31 - 1, 5], "int32").sum(), jnp.array([2**24 + 1, 0], "int32").sum()],
        "set": [
            odd.at[signs[:3]].set(1.0),
            odd.at[:, 1].set(2.0),
            odd.at[1:3, ::2].set(3.0),
            odd.at[rows[0], 1].add(1),
        ],
        "updated": [jax.lax.dynamic_update_slice(odd, x[1, 0, :2, :2], (rows[1, 0], 3)), odd.at[1, 1].set(5)],
        "slices": jax.vmap(lambda start: jax.lax.dynamic_slice(odd, (start, start), (2, 2)))(signs),
        "causal": jax.nn.dot_product_attention(*[x.transpose(0, 2, 1, 3)] * 3, is_causal=True),
        "flags": jnp.where(odd[0] > 1, odd[1] > 1, odd[2] < 1),
    }


def test_gradients_of_windows_along_four_axes_are_refused() -> None:
    def pooled(x: Any) -> Any:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2,) * 4, (2,) * 4, "VALID").sum()

    x = np.arange(16, dtype="float32").reshape((2, 2, 2, 2))
    assert run_onnx(pooled, x) == [15]
    with pytest.raises(UnsupportedPrimitiveError, match="windows along more than 3 axes"):
        run_onnx(jax.grad(pooled), x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "complex64"])
def test_other_dtypes_are_refused_by_name(dtype: str) -> None:
    for function, given in ((lambda x: x, dtype), (lambda x: jnp.real(x.astype(dtype)).astype("float32"), "float32")):
        with pytest.raises(UnsupportedPrimitiveError, match=f"dtype {dtype}"):
            run_onnx(function, jnp.ones(3, given))


def test_random_numbers_are_refused_with_advice_in_code() -> None:
    with pytest.raises(UnsupportedPrimitiveError, match=r"Try: noise = jax\.random\."):
        run_onnx(lambda x: x + jax.random.uniform(jax.random.key(0), (3,)), np.ones(3, "float32"))


PROGRAMS = (convolutions, windows, indexing, arithmetic, control, loops, pooling_gradients, dtypes)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_operators_agree_with_jax(program: Callable[..., Any]) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 4, 7, 6)).astype("float32")
    other = random.normal(size=(4, 4, 3, 2)).astype("float32") if program is convolutions else ROWS
    arguments = (x,) if program in (windows, pooling_gradients) else (x, other)
    assert differences(run_onnx(program, *arguments), program(*map(jnp.asarray, arguments)), "float32") == []


def test_names_of_nodes_are_paths_of_blocks() -> None:
    import onnx

    model = ml.Model() + ml.models.Linear(3, name="head") + ml.models.Relu()
    program = ml.compile(model, shapes={"input": [2, 4]}).inspect().traced_program
    weights = {0: np.zeros(3, "float32"), 1: np.ones((4, 3), "float32")}
    graph = onnx.load_from_string(emit_onnx(program, weights, ["head.bias", "head.weight", "input"], ["output"])).graph
    assert [node.name for node in graph.node] == ["head/MatMul", "head/Add", "relu_0/Max", "Identity"]
    assert [one.name for one in graph.input] == ["input"]
    assert {one.name for one in graph.initializer} >= {"head.bias", "head.weight"}
