"""Blocks that run other blocks, compared with hand-written equivalents."""

from __future__ import annotations

import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from transcript import message_of

import mithril_nb as ml
from mithril_nb.errors import ShapeError, UnknownOptionError
from mithril_nb.models import (
    Add,
    Cond,
    Constant,
    Dropout,
    LayerNorm,
    Linear,
    Model,
    Relu,
    Repeat,
    Scan,
    Sequential,
    Shape,
    Sum,
    Tanh,
)
from mithril_nb.models.model import with_attributes


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
def test_a_scan_equals_its_body_step_by_step(axis):
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


def test_a_repeat_equals_its_body_with_separate_parameters():
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
    assert not np.array_equal(weights[0], weights[1]), "each is initialized separately"
    alone = compiled(Sequential(Linear(8), Relu()), input=[2, 8]).randomize_params(0)["linear_0.weight"]
    assert 0.8 < np.std(weights) / np.std(alone) < 1.25, "the fans are those of a single block"
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


@pytest.mark.parametrize("backend", [ml.JaxBackend, ml.NumpyBackend])
def test_a_repeat_with_shared_parameters_equals_one_whose_parameters_are_equal(backend):
    block = Sequential(Linear(4), Tanh())
    shared, own = (ml.compile(Repeat(block, 3, flag), backend(), shapes={"input": [2, 4]}) for flag in (True, False))
    params, x = shared.randomize_params(0), np.ones((2, 4), "float32")
    stacked = {name: np.stack([array] * 3) for name, array in params.items()}
    assert {name: array.shape for name, array in stacked.items()} == {
        one.name: one.spec.shape for one in own.parameters
    }
    outputs, gradients = shared.evaluate(params, {"input": x}, {"output": np.ones((2, 4))})
    expected, of_each = own.evaluate(stacked, {"input": x}, {"output": np.ones((2, 4))})
    np.testing.assert_allclose(outputs["output"], expected["output"], 1e-5, 1e-6)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, np.sum(of_each[name], 0), 1e-5, 1e-6)


def test_each_step_draws_separately():
    pm = compiled(Repeat(Dropout(0.5), 2), input=[400])
    out = pm.forward({}, {"input": np.ones(400)}, key=jax.random.key(0), training=True)["output"]
    shares = [float((out == value).mean()) for value in (0.0, 4.0)]
    assert abs(shares[0] - 0.75) < 0.1, "two independent draws keep a quarter"
    assert abs(shares[1] - 0.25) < 0.1


@pytest.mark.parametrize("condition", [True, False])
def test_a_cond_runs_one_of_two(condition):
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


def test_inner_blocks_are_part_of_the_model():
    model = Model() | Linear(8)
    model += Repeat(Linear(8), 4)
    model += Linear(2)
    pm = compiled(model, input=[2, 8])
    assert [path for path, _ in model.graph.walk()] == ["linear_0", "repeat_0", "repeat_0/body", "linear_1"]
    assert pm.inference.blocks["repeat_0/body"].outputs["output"].shape == (2, 8)
    blocks = {block for one in pm.hlo.instructions for block in one.blocks}
    assert {"linear_0", "linear_1"} <= blocks
    assert any(block.startswith("repeat_0") for block in blocks)


def test_a_deep_repeat_has_a_small_program():
    sizes = [len(compiled(Repeat(Linear(8), count), input=[2, 8]).stablehlo.text) for count in (2, 64)]
    assert abs(sizes[1] - sizes[0]) < 100


def total() -> Model:
    return Model() | Add()(left="x", right="before", output="sum")


def test_a_cond_may_run_another_cond():
    inner = Cond(Relu(), Tanh())
    pm = compiled(Cond(Model() | inner(condition="then_condition"), Tanh()), input=[2])
    for outer in (True, False):
        given = {"input": np.ones(2), "condition": np.asarray(outer), "then_condition": np.asarray(True)}
        np.testing.assert_allclose(pm.evaluate({}, given)["output"], 1.0 if outer else np.tanh(1.0), 1e-6)


def test_changed_attributes_are_checked_like_in_the_constructor():
    scan = with_attributes(Scan(total(), carry={"sum": "before"}), {"axis": 0})
    assert scan == Scan(total(), carry={"sum": "before"}, axis=0)
    with pytest.raises(UnknownOptionError, match="Repeat cannot take count=0"):
        with_attributes(Repeat(Relu(), 3), {"count": 0})


CASES = {
    "a body that gives another shape": (
        lambda: compiled(Repeat(Linear(3), 2), input=[2, 4]),
        """
        ShapeError: the input 'input' does not fit 'repeat.input'.
            given  (2, 4) float32
            input  needs (2, 3) float32: each step receives the output of the step before
            Try: use a body whose output has the shape and dtype of its input, or another initial value.
        """,
    ),
    "a carry that the body does not have": (
        lambda: Scan(Relu(), carry={"hidden": "input"}),
        """
        UnknownOptionError: Scan cannot take carry of 'hidden': the body has no such port.
            inputs   input
            outputs  output
            Try: carry=None
        """,
    ),
    "a body that is none": (
        lambda: Scan(None),
        """
        UnknownOptionError: Scan cannot run None.
            needs  a block
            Try: Scan(body=Linear(64))
        """,
    ),
    "a carry that is not a dict": (
        lambda: Scan(Relu(), carry="ab"),
        """
        UnknownOptionError: Scan cannot take carry='ab'.
            needs  a dict from an output of the body to the input that receives it in the next step
            Try: Scan(body, carry={'hidden': 'prev_hidden'})
        """,
    ),
    "no rounds": (
        lambda: Repeat(Relu(), 0),
        """
        UnknownOptionError: Repeat cannot take count=0.
            needs  a whole number from 1 to 10000
            Try: Repeat(body, count=2)
        """,
    ),
    "half a round": (
        lambda: Repeat(Relu(), 2.5),
        """
        UnknownOptionError: Repeat cannot take count=2.5.
            needs  a whole number from 1 to 10000
            Try: Repeat(body, count=2)
        """,
    ),
    "an axis that is not a number": (
        lambda: Scan(Relu(), axis="x"),
        """
        UnknownOptionError: Scan cannot take axis='x'.
            needs  a whole number from 0 to 16
            Try: Scan(body, axis=1)
        """,
    ),
    "a repeat without an input": (
        lambda: Repeat(Constant(1.0)),
        """
        UnknownOptionError: Repeat cannot run Constant(value=1.0, dtype=None): no input can receive its output.
            inputs  none
            Try: Repeat(Linear(64), count=2)
        """,
    ),
    "a body that gives nothing": (
        lambda: Repeat(Model()),
        """
        UnknownOptionError: Repeat cannot run Model(): it has no outputs.
            needs  a block with an output
            Try: Repeat(body=Linear(64))
        """,
    ),
    "a scan along nothing": (
        lambda: Scan(Relu(), carry={"output": "input"}),
        """
        UnknownOptionError: Scan cannot run Relu(): no input is scanned along the axis.
            inputs            input
            carried or fixed  input
            Try: Repeat(body, count=2)  # or a body with one more input, which Scan reads along the axis
        """,
    ),
    "fixed as text": (
        lambda: Scan(total(), fixed="x"),
        """
        UnknownOptionError: Scan cannot take fixed='x'.
            needs  a list of input names of the body
            Try: Scan(body, fixed=['mask'])
        """,
    ),
    "a fixed input that the body does not have": (
        lambda: Scan(total(), fixed=["mask"]),
        """
        UnknownOptionError: Scan cannot take fixed of 'mask': the body has no such port.
            inputs   x, before
            outputs  sum
            Try: fixed=['before']  # or fixed=[]
        """,
    ),
    "a cond in a cond": (
        lambda: Cond(Cond(Relu(), Tanh()), Tanh()),
        """
        NameTakenError: Cond cannot run a block with an input 'condition': Cond has an input of that name.
            then  condition, input
            Try: then=Model() | inner(condition='then_condition')  # inner is the block
        """,
    ),
    "a body that drops axes": (
        lambda: compiled(Scan(Sum(), axis=1), input=[5, 6, 3]),
        """
        ShapeError: the input 'input' does not fit 'scan.input'.
            given  (5, 6, 3) float32
            input  needs a body whose 'output' has 1 axes or more
            found  each step returns (): axis 1 is out of range
            Try: axis=0  # or a body that keeps the axes of its input
        """,
    ),
    "a scan of a value that is not an array": (
        lambda: compiled(Scan(Shape()), input=[5, 6, 3]),
        """
        ShapeError: the input 'input' does not fit 'scan.input'.
            given  (5, 6, 3) float32
            input  needs a body that returns arrays
            found  'output' of the body is a static value
            Try: compute 'output' outside of Scan.
        """,
    ),
    "a branch that is not an array": (
        lambda: compiled(Cond(Relu(), Shape()), input=[5, 6, 3]),
        """
        ShapeError: the input 'input' does not fit 'cond.input'.
            given  (5, 6, 3) float32
            input  needs a body that returns arrays
            found  'output' of the body is a static value
            Try: compute 'output' outside of Cond.
        """,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case):
    call, text = CASES[case]
    assert message_of(call) == textwrap.dedent(text).strip()


def test_an_inner_mismatch_names_the_place():
    body = Model() | Linear(4)
    body += Linear(4, input_size=5)
    with pytest.raises(ShapeError) as error:
        compiled(Repeat(body, 2), input=[2, 4])
    assert str(error.value).startswith("cannot connect 'repeat/body/linear_0.output' to 'repeat/body/linear_1.input'.")
    assert error.value.diagnostics[0].block == "repeat/body/linear_1"
