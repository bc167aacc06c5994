"""Losses: ports, connected options, rejected inputs, and values at singularities."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import (
    AbsoluteError,
    BinaryCrossEntropy,
    CosineSimilarity,
    CrossEntropy,
    FocalLoss,
    HuberLoss,
    InfoNCE,
    KLDivergence,
    Linear,
    LogCosh,
    Mean,
    Model,
    QuantileLoss,
)
from tests.blocks.running import fit_or_raise, gradients, outputs

INF, NAN = np.inf, np.nan
TINY = float(np.finfo("float32").tiny)


def test_a_loss_returns_one_value_per_sample():
    shapes = {"input": (8, 5, 4, 3), "target": ((8, 4, 3), "int32")}
    assert fit_or_raise(CrossEntropy(), **shapes)["output"] == TensorSpec((8, 4, 3))


def test_the_shape_of_the_target_follows_the_scores():
    model = Model()
    model |= Linear(10)(input="x", output="scores")
    model |= CrossEntropy()(input="scores", target="labels", output="loss")
    model |= Mean()(input="loss", output="mean")
    found = ml.compile(model, shapes={"x": [32, 7]})
    assert found.input_specs["labels"] == TensorSpec((32,), "int32")
    assert found.output_specs["mean"] == TensorSpec(())


def test_connected_options_have_an_effect():
    x, t = np.float32([1.0, 2.0]), np.float32([2.0, 0.0])
    model = Model()
    model |= QuantileLoss()(input="input", target="target", quantile="q", output="output")
    found = outputs(model, input=x, target=t, q=np.float32(0.9))["output"]
    np.testing.assert_allclose(found, [0.9, 0.2], 1e-6)
    model = Model()
    model |= CrossEntropy("probs")(input="input", target="target", weights="w", robust="r", output="output")
    scores, target = np.float32([[0.0, 1.0], [0.5, 0.5]]), np.int32([0, 1])
    found = outputs(model, input=scores, target=target, w=np.float32([2.0, 3.0]), r=np.bool_(True))["output"]
    np.testing.assert_allclose(found, [-2 * np.log(TINY / 2), 3 * np.log(2)], 1e-5)
    found = outputs(model, input=scores, target=target, w=np.float32([2.0, 3.0]), r=np.bool_(False))["output"]
    np.testing.assert_allclose(found, [INF, 3 * np.log(2)], 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("block", "x", "t"),
    [
        (CrossEntropy("probs", robust=True), [[0.0, 1.0]], np.int32([0])),
        (CrossEntropy(robust=True), [[-INF, 1.0]], np.int32([0])),
        (CrossEntropy(), [[-INF, 1.0]], np.int32([1])),
        (CrossEntropy("probs", robust=True, categorical=False), [[0.0, 1.0]], [[1.0, 0.0]]),
        (CrossEntropy("probs", categorical=False), [[0.0, 1.0]], [[0.0, 1.0]]),
        (CrossEntropy(categorical=False), [[-INF, 1.0]], [[0.0, 1.0]]),
        (KLDivergence(), [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]),
        (BinaryCrossEntropy("probs", robust=True), [0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]),
        (BinaryCrossEntropy(robust=True), [-INF, INF, -INF, INF], [0.0, 1.0, 1.0, 0.0]),
        (BinaryCrossEntropy(), [-60000.0, 60000.0, 60000.0], [0.0, 1.0, 0.0]),
        (FocalLoss(0.5), [-1000.0, 1000.0, 1000.0], [0.0, 1.0, 0.0]),
        (LogCosh(), [0.0, 60000.0, -60000.0], [0.0, 0.0, 0.0]),
        (AbsoluteError(), [1.0], [1.0]),
        (HuberLoss(), [1.0], [1.0]),
    ],
    ids=lambda one: f"{one!r}"[:40],
)
def test_robust_values_and_gradients_are_finite(block: Model, x: Any, t: Any, dtype: str):
    x = jnp.asarray(x, dtype)
    t = t if isinstance(t, np.ndarray) else jnp.asarray(t, dtype)
    found = outputs(block, input=x, target=t)["output"]
    assert found.dtype == x.dtype
    assert np.isfinite(np.asarray(found, "float64")).all()
    for port, gradient in gradients(block, input=x, target=t).items():
        assert np.isfinite(gradient.astype("float64")).all(), port


def test_the_robust_logarithm_is_continuous():
    threshold = 1e-3
    block = KLDivergence(threshold)
    x = np.float32([threshold * (1 - 1e-4), threshold * (1 + 1e-4)])
    one = np.ones(2, "float32")
    below, above = outputs(block, input=x, target=one)["output"]
    assert abs(below - above) < 1e-3
    slopes = gradients(block, input=x, target=one)["input"]
    assert abs(slopes[0] / slopes[1] - 1) < 1e-3


def test_a_class_that_does_not_exist_gives_nan():
    scores = np.zeros((4, 3), "float32")
    for block in (CrossEntropy(), CrossEntropy("probs", robust=True), CrossEntropy(label_smoothing=0.1)):
        found = outputs(block, input=scores, target=np.int32([0, 3, -1, 2]))["output"]
        assert np.isnan(np.asarray(found)).tolist() == [False, True, True, False]


def test_nan_stays_nan():
    x = np.float32([NAN])
    for block in (HuberLoss(), KLDivergence()):
        assert np.isnan(outputs(block, input=x, target=np.float32([0.5]))["output"]).all(), block


def test_an_empty_batch_gives_an_empty_result():
    empty = np.zeros((0, 3), "float32")
    for weights in ("", "auto"):
        found = outputs(CrossEntropy(weights=weights), input=empty, target=np.zeros(0, "int32"))["output"]
        assert found.shape == (0,)
    assert outputs(BinaryCrossEntropy(pos_weight="auto"), input=empty, target=empty)["output"].shape == (0, 3)
    assert outputs(InfoNCE(), input=empty, target=empty)["output"].shape == (0,)


def test_the_cosine_of_zero_vectors_is_zero_with_a_gradient():
    nothing, some = np.zeros((1, 3), "float32"), np.ones((1, 3), "float32")
    assert outputs(CosineSimilarity(), left=nothing, right=some)["output"] == 0
    assert np.isfinite(gradients(CosineSimilarity(), left=nothing, right=nothing)["left"]).all()


def test_both_forms_of_cross_entropy_survive_a_file():
    for block in (CrossEntropy(weights=[1.0, 2.0]), CrossEntropy(categorical=False)):
        model = Model() | block
        assert ml.models.from_dict(ml.models.to_dict(model.graph)).graph == model.graph
        changed = block(robust=True).model
        assert (changed.block.op, changed.options["robust"]) == (block.block.op, True)


def test_log_cosh_is_exact_near_zero():
    found = outputs(LogCosh(), input=np.float32([1e-4]), target=np.float32([0.0]))["output"]
    np.testing.assert_allclose(found, [5e-9], 1e-5)
