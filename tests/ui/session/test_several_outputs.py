"""A model with several outputs trains on the sum of their losses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sessions import session_of

import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.models import MLP, Linear, Model, Relu
from mithril_nb.models.saving.reading import from_source
from mithril_nb.train.losses import cross_entropy, mean_squared_error
from mithril_nb.ui.session import Session
from mithril_nb.ui.session.autosave import design_from_dict, design_to_dict

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
LABELS = (X.sum(axis=1) > 0).astype("int64")
LOSSES = {"hidden": "mean_squared_error", "output": "cross_entropy"}


def two_outputs() -> Model:
    model = Model() | Linear(4)(output="hidden")
    model += Relu()
    model += Linear(2)
    return model.expose_keys("hidden")


@pytest.mark.parametrize("targets", [{"hidden": X, "output": LABELS, "unused": X}, X])
def test_a_step_minimizes_the_sum(targets) -> None:
    losses = (
        LOSSES
        if isinstance(targets, dict)
        else {"hidden": "mean_squared_error", "output": lambda y, t: y[:, 0] - t[:, 0]}
    )
    model = two_outputs()
    pm = ml.compile(model, shapes={"input": ["batch", 4]})
    start = pm.randomize_params(1)
    run = ml.fit(
        model, (X, targets), loss=losses, params=start, optimizer="sgd", learning_rate=0.5, epochs=1, batch_size=32
    ).wait()

    def total(params: dict[str, jax.Array]) -> jax.Array:
        hidden = jnp.asarray(X) @ params["linear_0.weight"] + params["linear_0.bias"]
        y = jax.nn.relu(hidden) @ params["linear_1.weight"] + params["linear_1.bias"]
        if isinstance(targets, dict):
            return mean_squared_error(hidden, X).mean() + cross_entropy(y, LABELS.astype("int32")).mean()
        return mean_squared_error(hidden, X).mean() + (y[:, 0] - X[:, 0]).mean()

    params = {name: jnp.asarray(array) for name, array in start.items()}
    value, grads = jax.value_and_grad(total)(params)
    np.testing.assert_allclose(run.history["loss"][0], value, rtol=1e-5)
    for name, array in run.params.items():
        np.testing.assert_allclose(array, params[name] - 0.5 * grads[name], rtol=2e-4, atol=1e-6)


def test_targets_are_checked_for_each_output() -> None:
    model = two_outputs()
    with pytest.raises(MithrilError, match="no targets for output 'output'"):
        ml.fit(model, (X, {"hidden": X}), loss=LOSSES)
    with pytest.raises(MithrilError, match="labels does not match"):
        ml.fit(model, (X, {"hidden": X, "output": X}), loss=LOSSES)
    with pytest.raises(MithrilError, match="has no output 'nothing'"):
        ml.fit(model, (X, X), loss={"nothing": "cross_entropy", "hidden": "mean_squared_error"})


def session_with_two() -> Session:
    return session_of(two_outputs(), {"input": [32, 4]}, data=(X, {"hidden": X, "output": LABELS}), epochs=1)


def test_the_losses_are_part_of_the_design() -> None:
    session = session_with_two()
    before = session.design
    assert session.snapshot()["program_note"]
    for output, loss in LOSSES.items():
        session.do("set_loss", loss=loss, output=output)
    assert (session.snapshot()["loss_of"], session.snapshot()["program_note"]) == (LOSSES, "")
    assert design_from_dict(design_to_dict(session.design)) == session.design
    assert session.analysis.inspection.stage("jaxpr").text
    session.do("train")
    run = session.training.run
    assert run is not None
    assert run.wait().state == "done"
    session.do("rename_output", output="hidden", name="features")
    assert session.snapshot()["loss_of"] == {"features": "mean_squared_error", "output": "cross_entropy"}
    session.do("set_loss", loss="", output="features")
    assert session.analysis.loss.output == "output"
    while session.snapshot()["can_undo"]:
        session.do("undo")
    assert session.design == before
    session.end()


def sources_of(session: Session) -> dict[str, str]:
    graph = session.design.graph
    return {edge.target.port: str(edge.source) for edge in graph.edges if not edge.target.node}


@pytest.mark.parametrize("target", ["output", "side", "relu_1_output"])
@pytest.mark.parametrize("is_exposed", [True, False])
def test_an_output_that_gets_another_source_is_the_only_one_that_changes(target: str, is_exposed: bool) -> None:
    model = two_outputs() + Relu() + Linear(5)
    session = session_of(model, {"input": [32, 4]})
    session.do("rename_output", output="hidden", name="side")
    session.do("expose", source="relu_1.output")
    if not is_exposed:  # no block reads it
        session.do("disconnect", source="relu_1.output", target="linear_2.input")
    session.do("set_loss", loss="mean_squared_error", output=target)
    before = session.design
    was, loss_of = sources_of(session), session.snapshot()["loss_of"]
    assert was == {"side": "linear_0.output", "relu_1_output": "relu_1.output", "output": "linear_2.output"}
    session.do("connect", source="relu_0.output", target=target)
    now = sources_of(session)
    assert {name: now.pop(name) for name in was} == {**was, target: "relu_0.output"}
    is_read = {"output": False, "side": True, "relu_1_output": is_exposed}[target]
    assert [*now.values()] == ([] if is_read else [was[target]])
    assert {name: loss for name, loss in session.snapshot()["loss_of"].items() if name in was} == loss_of
    assert from_source(session.snapshot()["source"]).graph == session.design.graph
    session.do("undo")
    assert session.design == before
    for output, source in was.items():
        if output != target:
            with pytest.raises(MithrilError, match=f"it is the output '{output}' already"):
                session.do("connect", source=source, target=target)
    with pytest.raises(MithrilError, match="not an input of a block"):
        session.do("connect", source="input", target=target)
    assert session.design == before
    session.do("expose", source="linear_1.output")
    assert sources_of(session) == {**was, "linear_1_output": "linear_1.output"}
    session.end()


def test_an_output_of_an_inner_block_becomes_one_of_the_model_and_an_input_is_added() -> None:
    session = session_of(Model() + MLP(4, [8], 2), {"input": [32, 4]})
    before = session.design
    session.do("expose", source="mlp_0/linear_0.output")
    shapes = [str(spec) for spec in session.analysis.inference.outputs.values()]
    assert sorted(shapes) == ["(32, 2) float32", "(32, 8) float32"]
    session.do("undo")
    session.do("add_block", kind="Add")
    session.do("connect", source="skip", target="add_0.right")
    session.do("set_dtype", name="skip", dtype="bfloat16")
    session.do("set_shape", name="skip", shape=[32, 2])
    assert str(session.analysis.inference.inputs["skip"]) == "(32, 2) bfloat16"
    assert session.snapshot()["dtypes"] == {"input": "float32", "skip": "bfloat16"}
    session.do("set_dtype", name="skip", dtype="")
    assert session.snapshot()["dtypes"]["skip"] == "float32"
    with pytest.raises(MithrilError, match="'float31'"):
        session.do("set_dtype", name="skip", dtype="float31")
    with pytest.raises(MithrilError, match="no input 'other'"):
        session.do("set_dtype", name="other", dtype="int32")
    while session.snapshot()["can_undo"]:
        session.do("undo")
    assert session.design == before
    session.end()
