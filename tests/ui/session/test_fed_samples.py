"""The values inside the model of a session for one sample: on the graph, as pictures, and after edits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from sessions import session_of
from strategies import WIDTH, models
from waiting import until

import mithril_nb as ml
from mithril_nb.models import CNN, MLP, Embedding, Linear, Log, Model, Relu, Reshape

WAIT_S = 120
X = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
Y = np.arange(40, dtype="int32") % 3


def fed(model, sample=0, shapes=None, gradients=False, **training):
    session = session_of(model, shapes, **training)
    replies = []
    session.listen(lambda kind, reply: replies.append((kind, reply)) if kind in ("overlay", "value") else None)
    session.do("show_sample", sample=sample, gradients=gradients)
    assert session.wait(WAIT_S)
    return session, replies


def on_graph(replies):
    overlay = [reply for kind, reply in replies if kind == "overlay"][-1]
    return dict(zip(overlay.data["keys"], overlay.data["values"], strict=True))


@pytest.mark.parametrize("sample", [0, 7, 41])
def test_a_sample_of_the_data_has_the_values_of_evaluate(sample):
    session, replies = fed(MLP(4, [8], 3), sample, data=(X, Y))
    state = session.snapshot()["values"]
    assert (state["sample"], state["samples"], state["message"]) == (sample % 40, 40, "")
    pm = ml.compile(MLP(4, [8], 3), shapes={"input": [1, 4]})
    expected = pm.evaluate(pm.randomize_params(0), {"input": X[[sample % 40]]})["output"]
    np.testing.assert_allclose(session.values.traced.outputs["output"], expected, rtol=1e-5)
    assert on_graph(replies)["linear_1"] == pytest.approx(float(np.std(expected)), rel=1e-4)


def test_other_samples_compile_nothing_and_an_edit_computes_again():
    session, replies = fed(Model() + Linear(8) + Relu() + Linear(3), data=(X, Y), shapes={"input": ["batch", 4]})
    model = session.values._ready[1].physical
    for sample in range(1, 5):
        session.do("show_sample", sample=sample)
        assert session.wait(WAIT_S)
    assert session.values._ready[1].physical is model
    assert model._tapping._cache_size() == 1
    session.do("rename", path="relu_0", name="sharp")
    assert session.wait(WAIT_S)
    assert session.snapshot()["values"]["sample"] == 4
    assert set(session.values.traced.values) == {"linear_0", "sharp", "linear_1"}
    assert all(not reply.head["problem"] for kind, reply in replies if kind == "overlay")


def test_own_numbers_replace_those_of_the_sample():
    session, _ = fed(MLP(4, [8], 3), 5, data=(X, Y))
    own = [0.5, -1.0, 2.0, 0.25]
    session.do("show_sample", sample=5, values={"input": own})
    assert session.wait(WAIT_S)
    assert session.snapshot()["values"]["own"]
    pm = ml.compile(MLP(4, [8], 3), shapes={"input": [1, 4]})
    expected = pm.evaluate(pm.randomize_params(0), {"input": np.array([own], "float32")})["output"]
    np.testing.assert_allclose(session.values.traced.outputs["output"], expected, rtol=1e-5)
    session.do("show_sample", sample=5, values={"input": own[:3]})
    assert session.wait(WAIT_S)
    assert session.snapshot()["values"]["message"] == "input 'input' needs 4 numbers."
    session.do("show_sample", sample=6)
    assert session.wait(WAIT_S)
    state = session.snapshot()["values"]
    assert (state["own"], state["message"]) == (False, "")


@pytest.mark.parametrize(("number", "message"), [(1.5, "has fractions"), (99, "input 'input' has")])
def test_own_indices_are_checked_like_data(number, message):
    session, _ = fed(Model() + Embedding(7, 4), shapes={"input": [1, 3]})
    assert session.snapshot()["values"]["message"] == ""
    session.do("show_sample", values={"input": [0, 1, number]})
    assert session.wait(WAIT_S)
    assert message in session.snapshot()["values"]["message"]


def test_values_follow_the_parameters_of_a_run_that_ended():
    session, _ = fed(MLP(4, [8], 3), data=(X, Y), epochs=1)
    before = session.values.traced.outputs["output"]
    session.do("train")
    session.training.run.wait()
    until(lambda: session.snapshot()["run"]["state"] == "done")
    assert session.wait(WAIT_S)
    after = session.values.traced.outputs["output"]
    assert not np.allclose(before, after)
    expected = session.analysis.physical.evaluate(session.training.run.params, {"input": X[:32]})["output"][:1]
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-5)


def test_statistics_of_parameters_are_those_of_the_current_run():
    session = session_of(Model() + Linear(8) + Relu() + Linear(3), data=(X, Y), epochs=2)
    replies = []
    session.listen(lambda kind, reply: replies.append(reply) if kind == "parameters" else None)
    names = ["linear_0.weight", "linear_0.bias", "no.such"]

    def rows():
        session.do("request_parameters", names=names)
        assert session.wait(WAIT_S)
        return replies[-1].data

    assert rows() == []
    session.do("train")
    until(lambda: session.training.run.state == "done", WAIT_S)
    weights = np.asarray(session.training.run.params["linear_0.weight"], "float64")
    weight, bias = rows()
    assert (weight["name"], bias["name"]) == tuple(names[:2])
    assert (float(weight["mean"]), float(weight["std"])) == pytest.approx((weights.mean(), weights.std()), rel=5e-3)
    assert sum(weight["counts"]) == weights.size
    session.do("set_attribute", path="linear_0", name="dimension", value=9)
    assert rows() == []


def test_pictures_of_a_block_of_the_inputs_and_of_gradients():
    session, replies = fed(CNN([4], 3), gradients=True, data=(X.reshape(40, 1, 2, 2), Y))
    session.do("request_value", block="conv2d_0")
    session.wait(WAIT_S)
    session.do("request_value", block="")
    session.wait(WAIT_S)
    block, inputs = [reply for kind, reply in replies if kind == "value"]
    assert [picture["title"] for picture in block.data] == ["output", "gradient"]
    assert "4 heat maps" in block.data[0]["about"]
    assert [picture["title"] for picture in inputs.data] == ["input", "output"]
    assert inputs.head["inputs"]["input"] == {"shape": [1, 1, 2, 2], "numbers": pytest.approx([*map(float, X[0])])}
    assert dict(inputs.data[0]["rows"])["shape"] == "1 × 1 × 2 × 2"


def test_the_first_nan_is_a_problem_of_its_block_until_an_edit_removes_it():
    session, _ = fed(Model() + Linear(8) + Log() + Linear(3), data=(X, Y))
    problem, *others = session.snapshot()["problems"]
    assert others == []
    assert problem["block"] == "log_0"
    assert problem["facts"][0][0] == "equation"
    assert session.analysis.can_run
    fix = problem["fix"]
    assert (fix["command"], fix["args"]["name"], fix["args"]["value"]) == ("set_attribute", "robust", True)
    session.do(fix["command"], **fix["args"])
    assert session.wait(WAIT_S)
    assert session.snapshot()["problems"] == []
    session.do("hide_values")
    assert session.snapshot()["overlay"]["choices"][0][0] != "own values: output: std"


def test_a_model_that_fixes_its_batch_gets_the_sample_in_each_row():
    session, replies = fed(Model() + Linear(8) + Reshape((32, 2, 4)), 3, data=(X, X), loss="mean_squared_error")
    assert session.snapshot()["values"]["message"] == ""
    rows = session.values.traced.values["linear_0"]
    np.testing.assert_allclose(rows, np.broadcast_to(rows[:1], rows.shape), rtol=1e-5)
    session.do("request_value", block="")
    assert session.wait(WAIT_S)
    shown = [reply for kind, reply in replies if kind == "value"][-1].head["inputs"]["input"]
    assert (shown["shape"], len(shown["numbers"])) == ([1, 4], 4)
    session.do("show_sample", sample=3, values={"input": shown["numbers"]})
    assert session.wait(WAIT_S)
    assert session.snapshot()["values"]["message"] == ""
    np.testing.assert_allclose(session.values.traced.values["linear_0"], rows, rtol=1e-5)


def test_without_data_inputs_are_random_and_in_range():
    session, _ = fed(Model() + Embedding(5, 3), 2, {"input": [2, 6]})
    assert session.snapshot()["values"]["samples"] is None
    assert session.values._inputs["input"].max() < 5
    session.do("show_sample", sample=0, gradients=True)
    session.wait(WAIT_S)
    assert session.snapshot()["values"]["message"] == "gradients need data with targets."
    empty, _ = fed(None)
    assert empty.snapshot()["values"]["message"] == "there is no block yet"


@settings(max_examples=8)
@given(models(most=3))
def test_random_models_have_values_or_a_reason(model):
    names = [port.name for port in model.graph.inputs if port.role == "data"]
    session, replies = fed(model, 0, {name: [3, WIDTH] for name in names})
    state = session.snapshot()["values"]
    assert bool(state["message"]) == (session.values.traced is None)
    assert all(not reply.head["problem"] for kind, reply in replies if kind == "overlay")
