"""Blocks that run other blocks, beside the same written out by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import MithrilError, ShapeError
from mithril_nb.models import Add, Cond, Dropout, LayerNorm, Linear, Model, Relu, Repeat, Scan, Tanh


def cell(width: int) -> Model:
    model = Model(name="cell")
    model |= Linear(width)(input="x", output="from_x")
    model |= Linear(width, use_bias=False)(input="before", output="from_before")
    model |= Add()(left="from_x", right="from_before", output="sum")
    model |= Tanh()(input="sum", output="after")
    model.expose_keys("after")
    model |= Linear(2)(input="after", output="y")
    return model


def compiled(model: Model, **shapes):
    return ml.compile(model, ml.JaxBackend(), shapes=shapes)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_scan_is_its_body_round_after_round(axis):
    body = cell(4)
    pm = compiled(Scan(body, carry={"after": "before"}, axis=axis), x=[5, 6, 3], before=[6 if axis == 0 else 5, 4])
    params = pm.randomize_params(0)
    x, start = np.random.default_rng(0).normal(size=(5, 6, 3)), np.zeros((6 if axis == 0 else 5, 4))
    found = pm.evaluate(params, {"x": x, "before": start})

    one = compiled(body)
    held, rows = jnp.asarray(start, "float32"), []
    own = {name.removeprefix("scan.body."): array for name, array in params.items()}
    for step in range(x.shape[axis]):
        outputs = one.evaluate(own, {"x": np.take(x, step, axis), "before": held})
        held = outputs["after"]
        rows.append(outputs["y"])
    np.testing.assert_allclose(found["after"], held, 1e-5, 1e-6)
    np.testing.assert_allclose(found["y"], jnp.stack(rows, axis), 1e-5, 1e-6)


def test_a_repeat_is_its_body_many_times_with_parameters_of_its_own():
    block = Model() | LayerNorm()
    block += Linear(8)
    block += Relu()
    pm = compiled(Repeat(block, 5), input=["batch", 8])
    params = pm.randomize_params(0)
    assert {name: array.shape for name, array in params.items()} == {
        "repeat.body.layer_norm_0.weight": (5, 8),
        "repeat.body.layer_norm_0.bias": (5, 8),
        "repeat.body.linear_0.weight": (5, 8, 8),
        "repeat.body.linear_0.bias": (5, 8),
    }
    weights = params["repeat.body.linear_0.weight"]
    assert not np.array_equal(weights[0], weights[1]), "each starts by itself"
    alone = compiled(Linear(8), input=[2, 8]).randomize_params(0)["weight"]
    assert 0.8 < np.std(weights) / np.std(alone) < 1.25, "its fans are those of one of them"
    x = np.random.default_rng(0).normal(size=(3, 8)).astype("float32")
    one, expected = compiled(block), x
    for round_ in range(5):
        own = {name.removeprefix("repeat.body."): array[round_] for name, array in params.items()}
        expected = one.evaluate(own, {"input": expected})["output"]
    np.testing.assert_allclose(pm.evaluate(params, {"input": x})["output"], expected, 1e-5, 1e-6)


def test_gradients_go_through_a_repeat():
    pm = compiled(Repeat(Linear(4), 3), input=[2, 4])
    params, x = pm.randomize_params(0), np.ones((2, 4), "float32")
    _, gradients = pm.evaluate(params, {"input": x}, {"output": np.ones((2, 4))})

    def by_hand(params):
        y = x
        for k in range(3):
            y = y @ params["repeat.body.weight"][k] + params["repeat.body.bias"][k]
        return y.sum()

    for name, gradient in jax.grad(by_hand)(params).items():
        np.testing.assert_allclose(gradients[name], gradient, 1e-5, 1e-6)


def test_each_round_draws_by_itself():
    pm = compiled(Repeat(Dropout(0.5), 2), input=[400])
    out = pm.forward({}, {"input": np.ones(400)}, key=jax.random.key(0), training=True)["output"]
    shares = [float((out == value).mean()) for value in (0.0, 4.0)]
    assert abs(shares[0] - 0.75) < 0.1, "two draws that are not the same let a quarter through"
    assert abs(shares[1] - 0.25) < 0.1


@pytest.mark.parametrize("condition", [True, False])
def test_a_cond_is_one_of_two(condition):
    model = Cond(Linear(3), Model() | Linear(3)(input="input", output="output"))
    pm = compiled(model, input=[2, 4])
    params = pm.randomize_params(0)
    assert sorted(params) == [
        "cond.otherwise.linear_0.bias", "cond.otherwise.linear_0.weight", "cond.then.bias", "cond.then.weight",
    ]  # fmt: skip
    x = np.ones((2, 4), "float32")
    found = pm.evaluate(params, {"input": x, "condition": np.asarray(condition)})["output"]
    prefix = "cond.then" if condition else "cond.otherwise.linear_0"
    np.testing.assert_allclose(found, x @ params[f"{prefix}.weight"] + params[f"{prefix}.bias"], 1e-5, 1e-6)


def test_what_is_inside_is_a_part_of_the_model():
    model = Model() | Linear(8)
    model += Repeat(Linear(8), 4)
    model += Linear(2)
    pm = compiled(model, input=[2, 8])
    assert [path for path, _ in model.graph.walk()] == ["linear_0", "repeat_0", "repeat_0/body", "linear_1"]
    assert pm.inference.blocks["repeat_0/body"].outputs["output"].shape == (2, 8)
    blocks = {block for one in pm.hlo.instructions for block in one.blocks}
    assert {"linear_0", "linear_1"} <= blocks
    assert any(block.startswith("repeat_0") for block in blocks)


def test_a_deep_model_stays_small():
    sizes = [len(compiled(Repeat(Linear(8), count), input=[2, 8]).stablehlo.text) for count in (2, 64)]
    assert abs(sizes[1] - sizes[0]) < 100


CASES = [
    (
        "a body that gives another shape",
        lambda: compiled(Repeat(Linear(3), 2), input=[2, 4]),
        """
        ShapeError: the input 'input' does not fit 'repeat.input'.
            given  (2, 4) float32
            input  (2, 3) float32, as the body gives it      each round must take what the one before gave
            Try: a body that gives what it takes, or another start.
        """,
    ),
    (
        "a carry that the body does not have",
        lambda: Scan(Relu(), carry={"hidden": "input"}),
        """
        UnknownOptionError: Scan cannot take carry of 'hidden': the body has no such port.
            inputs   input
            outputs  output
            Try: Scan(Relu(...), carry={'output': 'input'})
        """,
    ),
]


@pytest.mark.parametrize(("call", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_message(call, text):
    import textwrap

    with pytest.raises(MithrilError) as error:
        call()
    assert f"{type(error.value).__name__}: {error.value}" == textwrap.dedent(text).strip()


def test_a_mismatch_inside_names_the_place():
    body = Model() | Linear(4)
    body += Linear(4, input_size=5)
    with pytest.raises(ShapeError) as error:
        compiled(Repeat(body, 2), input=[2, 4])
    assert str(error.value).startswith("cannot connect 'repeat/body/linear_0.output' to 'repeat/body/linear_1.input'.")
    assert error.value.diagnostics[0].block == "repeat/body/linear_1"
