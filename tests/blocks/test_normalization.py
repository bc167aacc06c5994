"""Norms: tests beyond the cases."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.models import (
    BatchNorm,
    BatchNorm1d,
    BatchNorm2D,
    BatchNorm2d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    Model,
    RMSNorm,
)


def test_the_bias_of_a_layer_norm_may_be_called_b() -> None:
    norm = LayerNorm()
    model = Model() | norm(input="x", weight="w", b="shift", output="y")
    assert [port.name for port in model.inputs] == ["x", "w", "shift"]
    assert norm.b.port == "bias"


def stepped(block: Model, x: Any, state: Any = None, training: bool = True) -> Any:
    pm = ml.compile(block, shapes={"input": x.shape})
    outputs, after = pm.forward_with_state(
        pm.randomize_params(0), {"input": x}, pm.initial_state() if state is None else state, training=training
    )
    return outputs["output"], after


def test_running_statistics_move_towards_those_of_the_batch() -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(2.0, 3.0, (4, 3, 5, 2)), "float32")
    start = {"running_mean": jnp.asarray([1.0, 2.0, 3.0]), "running_var": jnp.asarray([4.0, 5.0, 6.0])}
    out, after = stepped(BatchNorm2d(momentum=0.25), x, start)
    np.testing.assert_allclose(after["running_mean"], 0.75 * start["running_mean"] + 0.25 * x.mean((0, 2, 3)), 1e-5)
    variance = x.var((0, 2, 3), ddof=1)
    np.testing.assert_allclose(after["running_var"], 0.75 * start["running_var"] + 0.25 * variance, 1e-5)
    np.testing.assert_allclose(out.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(out.std((0, 2, 3)), 1, 1e-4)
    _, kept = stepped(BatchNorm2d(), x, start, training=False)
    assert all(np.array_equal(kept[name], start[name]) for name in start)


def test_inference_overrides_the_mode_of_the_program() -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3, 2, 2)), "float32")
    for inference in (True, False):
        training, still = (stepped(BatchNorm2D(inference=inference), x, training=t) for t in (True, False))
        np.testing.assert_array_equal(training[0], still[0])
        assert all(np.array_equal(training[1][name], still[1][name]) for name in still[1])
    # As in Mithril, the table's block uses its state by default.
    np.testing.assert_allclose(stepped(BatchNorm2D(), x)[0], x / np.sqrt(1 + 1e-5), 1e-5)


def test_batches_of_one_and_zero_keep_a_valid_state() -> None:
    one, after = stepped(BatchNorm1d(), jnp.asarray([[3.0, 4.0]]))
    np.testing.assert_array_equal(one, jnp.zeros((1, 2)))
    np.testing.assert_allclose(after["running_mean"], [0.3, 0.4], 1e-6)
    np.testing.assert_array_equal(after["running_var"], jnp.ones(2))
    none, after = stepped(BatchNorm(), jnp.zeros((0, 2)))
    assert none.shape == (0, 2)
    np.testing.assert_array_equal(after["running_mean"], jnp.zeros(2))


def test_a_state_may_be_connected() -> None:
    model = Model() | BatchNorm1d()(input="x", running_mean="mean", running_var="var", output="y")
    pm = ml.compile(model, shapes={"x": [2, 3]})
    assert [state.name for state in pm.states] == ["mean", "var"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "block",
    [LayerNorm(), RMSNorm(), GroupNorm(2), InstanceNorm(), BatchNorm2d(), BatchNorm2d(inference=False)],
    ids=repr,
)
def test_norms_in_16_bits_are_computed_in_32(block: Model, dtype: str) -> None:
    # Their squares overflow float16, and their sum exceeds the precision of bfloat16.
    x = np.random.default_rng(0).normal(300.0, 100.0, (2, 4, 8, 32))
    found = {}
    for name in (dtype, "float64"):
        backend = ml.JaxBackend(dtype="float32" if name == "float64" else name)
        pm = ml.compile(block, backend, shapes={"input": x.shape})
        given = {"input": jnp.asarray(x, dtype).astype(backend.default_dtype)}
        found[name] = pm.evaluate(pm.randomize_params(0), given, state=pm.initial_state())["output"]
    assert found[dtype].dtype == dtype
    near = {"float16": 2e-3, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(found[dtype].astype("float32"), found["float64"], near, near)


@pytest.mark.parametrize("block", [LayerNorm(), RMSNorm(), GroupNorm(2), InstanceNorm(), BatchNorm()], ids=repr)
def test_edges(block: Model) -> None:
    pm = ml.compile(block, shapes={"input": ["batch", 4, 3]})
    params, state = pm.randomize_params(0), pm.initial_state()
    constant = jnp.full((2, 4, 3), 7.0)
    assert np.isfinite(pm.evaluate(params, {"input": constant}, state=state)["output"]).all()
    assert pm.evaluate(params, {"input": constant[:0]}, state=state)["output"].shape == (0, 4, 3)
    spoilt = pm.evaluate(params, {"input": constant.at[0, 0, 0].set(jnp.nan)}, state=state)["output"]
    assert np.isnan(spoilt[0, 0, 0])
    assert np.isfinite(spoilt[1]).all()
