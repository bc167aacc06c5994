"""Functions of PyTorch that compute several equations: which statements become one, and that the numbers stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.python_text import load
from mithril_nb.inspection import Inspection
from tests.emission.evaluating import traced_program
from tests.emission.libraries import differences, to_library
from tests.jax_programs import block
from tests.process import QUICK_CODE

torch = pytest.importorskip("torch", exc_type=ImportError)
Function = Callable[..., Any]
OPTIONS: dict[str, Any] = {**QUICK_CODE, "xla_backend_optimization_level": 0}
CUBE = (4, 4, 4)
HEADS = [(2, 3, 5, 4)] * 3


def normalized(x: Any, axis: int = -1, eps: float = 1e-5, mean: Function = jnp.mean) -> Any:
    centered = x - mean(x, axis, keepdims=True)
    return centered / jnp.sqrt((centered**2).mean(axis, keepdims=True) + eps)


def returning(x: Any) -> Any:
    total = (x * x).mean(-1, keepdims=True)
    return x / jnp.sqrt(total + 1e-5), total


def residual(x: Any, weight: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return x + weight * (centered * jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5))


def by_columns(x: Any) -> Any:
    exp = jnp.exp(x - x.max(0))
    return exp / exp.sum(0)


def attention(query: Any, key: Any, value: Any, scale: Any = 0.5, hidden: Any = None) -> Any:
    scores = query @ key.swapaxes(-1, -2) * scale
    scores = scores if hidden is None else jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, hidden)
    return jax.nn.softmax(scores) @ value


def causal(query: Any, key: Any, value: Any, hidden: Any = -jnp.inf, seen: Function = jnp.greater_equal) -> Any:
    scores = query @ key.swapaxes(-1, -2)
    rows, columns = (jax.lax.broadcasted_iota("int32", scores.shape[-2:], axis) for axis in (0, 1))
    return jax.nn.softmax(jnp.where(seen(rows, columns), scores / 3, hidden)) @ value


def one_axis(query: Any, key: Any, value: Any) -> Any:
    places = jax.lax.iota("int32", key.shape[-2])
    return jax.nn.softmax(jnp.where(places >= jax.lax.iota("int32", 5), query @ key.swapaxes(-1, -2), -jnp.inf)) @ value


FUSED: dict[str, tuple[Function, list[Any], str]] = {
    "flax norm": (
        lambda x, w, b: linen.LayerNorm().apply({"params": {"scale": w, "bias": b}}, x), [(2, 3, 4), 4, 4],
        "layer_norm(x, (4,), w, b, eps=1e-06)",
    ),
    "equinox norm": (
        lambda x, w: jax.vmap(eqx.tree_at(lambda one: one.weight, eqx.nn.LayerNorm(4), w))(x), [(3, 4), 4],
        "layer_norm(x, (4,), w, eps=1e-05)",
    ),
    "norm": (normalized, [(3, 4)], "layer_norm(x, (4,), eps=1e-05)"),
    "norm of two axes": (lambda x: normalized(x, (1, 2)), [(2, 3, 4)], "layer_norm(x, (3, 4), eps=1e-05)"),
    "norm of a row": (lambda x: normalized(x), [4], "layer_norm(x, (4,), eps=1e-05)"),
    "rms norm": (
        lambda x, w: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w, [(3, 4), 4],
        "rms_norm(x, (4,), w, eps=1e-05)",
    ),
    "residual": (residual, [(3, 4), 4], "layer_norm(x, (4,), weight, eps=1e-05)"),
    "gelu": (lambda x: jax.nn.gelu(x, approximate=False), [(3, 4)], "gelu(x)"),
    "gelu by erf": (lambda x: x * (0.5 * (1 + jax.lax.erf(x / 2**0.5))), [(3, 4)], "gelu(x)"),
    "gelu by tanh": (jax.nn.gelu, [(3, 4)], "gelu(x, approximate='tanh')"),
    "silu": (jax.nn.silu, [(3, 4)], "silu(x)"),
    "softmax": (jax.nn.softmax, [(3, 4)], "torch.softmax(x, dim=1)"),
    "softmax of columns": (by_columns, [(3, 4)], "torch.softmax(x, dim=0)"),
    "softmax of infinity": (
        lambda x: jax.nn.softmax(jnp.where(jnp.abs(x) > 0.5, -jnp.inf, x)), [(3, 9)], "torch.softmax(selected, dim=1)",
    ),
    "softmax of ties": (lambda x: jax.nn.softmax(jnp.round(x)), [(3, 9)], "torch.softmax(round_, dim=1)"),
    "log softmax": (lambda x: jax.nn.log_softmax(x, 0), [(3, 4)], "torch.log_softmax(x, dim=0)"),
    "linear": (lambda x, w, b: x @ w + b, [(2, 3, 4), (4, 5), 5], "linear(x, w.T, b)"),
    "linear of two axes": (lambda x, w, b: x @ w + b, [(3, 4), (4, 5), 5], "torch.addmm(b, x, w)"),
    "linear of a row": (lambda x, w, b: b + x @ w, [4, (4, 5), 5], "linear(x, w.T, b)"),
    "linear, transposed": (lambda x, w, b: x @ w.T + b, [(3, 4), (5, 4), 5], "linear(x, w, b)"),
    "attention": (attention, HEADS, "scaled_dot_product_attention(query, key, value)"),
    "attention of wide values": (
        lambda q, k, v: attention(q, k, v, 0.25), [(5, 4), (6, 4), (6, 7)],
        "scaled_dot_product_attention(q, k, v, scale=0.25)",
    ),
    "causal attention": (
        causal, HEADS, "scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.33333",
    ),
}  # fmt: skip
NOT_FUSED: dict[str, tuple[Function, list[Any]]] = {
    "norm of rows by columns": (lambda x: (x - x.mean(-1)) / jnp.sqrt(((x - x.mean(-1)) ** 2).mean(-1) + 1), [CUBE]),
    "norm of other axes": (lambda x: normalized(x, 0), [(3, 4)]),
    "norm that also returns its mean of squares": (returning, [(3, 4)]),
    "gelu of another constant": (lambda x: 0.5 * x * (1 + jax.lax.erf(x / 1.4)), [(3, 4)]),
    "gelu of two arrays": (lambda x, y: 0.5 * x * (1 + jax.lax.erf(y / 2**0.5)), [(3, 4)] * 2),
    "gelu of a square": (lambda x: x * 0.5 * (1 + jnp.tanh((2 / jnp.pi) ** 0.5 * (x + 0.044715 * x**2))), [(3, 4)]),
    "softmax that overflows": (lambda x: jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True), [(3, 4)]),
    "softmax of two axes": (lambda x: jax.nn.softmax(x, (0, 1)), [(3, 4)]),
    "softmax by columns": (lambda x: jnp.exp(x - x.max(0)) / jnp.exp(x - x.max(0)).sum(1), [(4, 4)]),
    "linear of a matrix": (lambda x, w, b: x @ w + b, [(3, 4), (4, 5), (3, 5)]),
    "linear of a larger bias": (lambda x, w, b: x @ w + b, [4, (4, 5), (1, 5)]),
}  # fmt: skip
PARTLY: dict[str, tuple[Function, list[Any], str]] = {
    "norm of another count": (
        lambda x: normalized(x, mean=lambda x, *_, **__: x.sum(-1, keepdims=True) / 3), [(3, 4)], "rms_norm(difference",
    ),
    "norm that detaches": (
        lambda x: normalized(x, mean=lambda *x, **_: jax.lax.stop_gradient(jnp.mean(*x, keepdims=True))), [(3, 4)],
        "rms_norm(difference",
    ),
    "norm with one weight per row": (residual, [(3, 4), (3, 1)], "layer_norm(x, (4,), eps="),
    "attention with a mask": (lambda *arrays: attention(*arrays, hidden=-jnp.inf), HEADS, "torch.softmax("),
    "attention of later keys": (lambda *arrays: causal(*arrays, seen=jnp.less_equal), HEADS, "torch.softmax("),
    "attention that hides little": (lambda *arrays: causal(*arrays, hidden=-9.0), HEADS, "torch.softmax("),
    "attention with a mask of one axis": (one_axis, HEADS, "torch.softmax("),
    "attention of a value with more axes": (
        lambda q, k, v: jnp.tensordot(jax.nn.softmax(q @ k.T), v, 1), [(5, 4), (6, 4), (6, 3, 7)], "torch.softmax(",
    ),
    "attention with a learned scale": (attention, [*HEADS, ()], "torch.softmax("),
}  # fmt: skip
CASES = FUSED | PARTLY | {name: (*case, "") for name, case in NOT_FUSED.items()}


def arrays_of(name: str, dtype: str) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.normal(size=shape).astype("float32").astype(dtype) for shape in CASES[name][1]]


def both(function: Function, arrays: list[Any]) -> Any:
    """Return the results and the gradients of their sum, weighted by 0.5, 1, 1.5, ..."""
    outputs, back = jax.vjp(function, *arrays)
    return outputs, back(
        jax.tree.map(lambda one: jnp.arange(1, one.size + 1).reshape(one.shape) * one.dtype.type(0.5), outputs)
    )


@pytest.fixture(scope="module")
def expected() -> Any:
    """Return the results and gradients of every case in float64, in one program of JAX."""
    with jax.enable_x64(True):
        arrays = {name: arrays_of(name, "float64") for name in CASES}
        step = jax.jit(lambda given: {name: both(CASES[name][0], given[name]) for name in given})
        return jax.tree.map(np.asarray, step.lower(arrays).compile(compiler_options=OPTIONS)(arrays))


def inspected(name: str, dtype: str = "float32") -> Inspection:
    with jax.enable_x64(dtype == "float64"):
        return ml.inspect(CASES[name][0], *arrays_of(name, dtype), name="program")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_agree_with_jax(name: str, dtype: str, expected: Any) -> None:
    program = traced_program(inspected(name, dtype))
    source = emit_arrays(program, "torch")
    arrays = [to_library("torch", array).requires_grad_() for array in arrays_of(name, dtype)]
    outputs = load(source)(**dict(zip(program.trace.arguments, arrays, strict=True)))
    leaves = jax.tree.leaves(outputs)
    loss = sum((torch.arange(1, one.numel() + 1).reshape(one.shape) * 0.5 * one).sum() for one in leaves)
    found = [*leaves, *torch.autograd.grad(loss, arrays)]
    assert differences([one.detach().numpy() for one in found], expected[name], dtype) == []


@pytest.mark.parametrize("name", [*FUSED, *PARTLY])
def test_statements_become_a_function_of_pytorch(name: str) -> None:
    program = traced_program(inspected(name))
    source, unfused = emit_arrays(program, "torch"), emit_arrays(program, "numpy")
    assert CASES[name][2] in source.text
    linked, expected = ({id for line in each.lines for id in line.equations} for each in (source, unfused))
    assert linked == expected


@pytest.mark.parametrize("name", NOT_FUSED)
def test_similar_statements_stay(name: str) -> None:
    text = emit_arrays(traced_program(inspected(name)), "torch").text
    assert not [word for word in ("functional", "torch.softmax", "addmm") if word in text]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_have_the_same_functions(dtype: str) -> None:
    model, results = models.TransformerBlock(width=8, heads=2, is_causal=True), []
    for each in ("float32", dtype):
        pm = ml.compile(model, ml.TorchBackend(dtype=each), shapes={"input": [2, 3, 8]})
        x = pm.backend.from_numpy(np.random.default_rng(0).normal(size=(2, 3, 8)))
        outputs, gradients = pm.evaluate(pm.randomize_params(seed=0), {"input": x}, {"output": x})
        results.append({name: pm.backend.to_numpy(one) for name, one in {**outputs, **gradients}.items()})
        assert all(
            f"functional.{name}(" in pm.source() for name in ("gelu", "layer_norm", "scaled_dot_product_attention")
        )
    for name, value in results[0].items():
        assert np.abs(results[1][name] - value).max() <= 0.03 * np.abs(value).max(), name


def test_integers_stay() -> None:
    inspection = ml.inspect(lambda x, w: (2 * x * (1 + x)) @ w + 1 + w[0], np.ones((3, 4), int), np.ones((4, 4), int))
    assert "addmm" not in emit_arrays(traced_program(inspection), "torch").text


def test_empty_arrays_stay() -> None:
    arrays = [np.ones(shape, "float32") for shape in ((5, 0), (6, 0), (6, 7))]
    text = emit_arrays(traced_program(ml.inspect(attention, *arrays)), "torch").text
    assert "scaled_dot_product" not in text


def test_statements_of_two_blocks_stay() -> None:
    def program(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        with block("product"):
            found = x @ w
        with block("sum"):
            return found + b

    arrays = [np.ones(shape, "float32") for shape in ((3, 4), (4, 5), 5)]
    assert "addmm" not in emit_arrays(traced_program(ml.inspect(program, *arrays)), "torch").text


def test_a_block_is_one_line_with_all_of_its_equations() -> None:
    model = models.TransformerBlock(width=8, heads=2, is_causal=True)
    inspection = ml.compile(model, shapes={"input": [2, 3, 8]}).inspect()
    stage, by_id = inspection.stage("torch"), traced_program(inspection).by_id
    (line,) = [one for one in stage.instructions if one.opcode == "attention"]
    assert {by_id[id].primitive for id in line.equations} >= {"dot_general", "exp", "reduce_max", "iota", "select_n"}
    assert line.blocks == {"attention/attention": 1.0}
    assert "scaled_dot_product_attention(query, key, value, is_causal=True)" in stage.text


def test_gradients_keep_the_arrays_that_they_read() -> None:
    model = models.Model() + models.Linear(4) + models.LayerNorm() + models.Gelu() + models.Softmax()
    text = ml.compile(model, ml.TorchBackend(), shapes={"input": [3, 4]}).source("forward+backward")
    assert "torch.addmm(bias, input, weight)" in text
    assert not [name for name in ("functional.layer_norm", "functional.gelu", "torch.softmax") if name in text]
