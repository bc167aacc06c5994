"""The Train tab's settings: every value that a field allows trains, and the step equals optax with the same numbers."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sessions import session_of

from mithril_nb.errors import UnknownOptionError
from mithril_nb.models.library import Linear, Relu
from mithril_nb.models.model import Model
from mithril_nb.train.optimizers import DEFAULT_RATES
from mithril_nb.ui.session.autosave import design_from_dict, design_to_dict
from mithril_nb.ui.session.session import Session
from mithril_nb.ui.session.train_settings import TrainSettings

X = np.random.default_rng(0).normal(size=(40, 3)).astype("float32")
Y = (X.sum(axis=1) > 0).astype("int32")
SCHEDULES = ("constant", "cosine decay", "linear decay", "warm-up, cosine decay")


def workbench(**training: Any) -> Session:
    options = {"data": (X, Y), "epochs": 1, "batch_size": 8, **training}
    return session_of(Model() + Linear(4) + Relu() + Linear(2), {"input": [8, 3]}, **options)


def values(session: Session) -> dict[str, Any]:
    return {field["name"]: field["value"] for field in session.snapshot()["training"]}


@given(st.data())
@settings(max_examples=10)
def test_parameters_are_those_of_optax(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(DEFAULT_RATES)))
    train = TrainSettings({}, (("optimizer", name),) if name != "adam" else ())
    others = {"epochs", "batch_size", "optimizer", "schedule", "seed", "accuracy", "norms"}
    parameters = [field for field in train.fields if field.name not in others]
    chosen = data.draw(st.lists(st.sampled_from(parameters), unique=True) if parameters else st.just([]))
    expected: dict[str, Any] = {}
    for field in chosen:
        strategy = st.booleans() if field.type == "bool" else st.sampled_from([0.125, 0.25, 0.5, 0.75])
        expected[field.name] = data.draw(strategy)
        train = TrainSettings({}, train.changed(field.name, expected[field.name]))
    params, grads = {"w": np.float32([1.0, -2.0])}, {"w": np.float32([0.5, 0.25])}
    theirs, ours = getattr(optax, name)(0.01, **expected), train.optimizer
    their_state, our_state = theirs.init(params), ours.init(params)
    for _ in range(2):
        their_updates, their_state = theirs.update(grads, their_state, params)
        our_updates, our_state = ours.update(grads, our_state, params, 0.01)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), their_updates, our_updates)


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_recorded_rates_are_those_of_the_schedule(kind: str, optimizer: str) -> None:
    session = workbench(epochs=2)
    for name, value in [("optimizer", optimizer), ("schedule", kind), ("learning_rate", 0.2), ("warmup", 3)]:
        if name in values(session):
            session.do("set_training", name=name, value=value)
    session.do("train")
    run = session.training.run
    assert run is not None
    run.wait(60)
    references = {
        "constant": lambda step: DEFAULT_RATES[optimizer],
        "cosine decay": optax.cosine_decay_schedule(0.2, 10, 0.01),
        "linear decay": optax.linear_schedule(0.2, 0.002, 10),
        "warm-up, cosine decay": optax.warmup_cosine_decay_schedule(0, 0.2, 3, 10, 0.002),
    }
    np.testing.assert_allclose(run.history["learning_rate"], [references[kind](step) for step in range(10)], rtol=1e-5)


def test_settings_are_kept_undone_and_saved() -> None:
    session = workbench()
    before = session.design
    for name, value in [("epochs", 3), ("batch_size", 16), ("optimizer", "sgd"), ("momentum", 0.5), ("seed", 7)]:
        session.do("set_training", name=name, value=value)
        assert values(session)[name] == value
    assert design_from_dict(json.loads(json.dumps(design_to_dict(session.design)))) == session.design
    session.do("train")
    run = session.training.run
    assert run is not None
    run.wait(60)
    assert (run.steps, session.snapshot()["run"]["is_current_model"]) == (3 * 3, True)
    session.do("resume", epochs=2)
    assert run.wait(60).steps == 5 * 3
    session.do("set_training", name="epochs", value=9)
    assert session.snapshot()["run"]["is_current_model"]
    session.do("set_training", name="seed", value=8)
    assert not session.snapshot()["run"]["is_current_model"]
    while session.snapshot()["can_undo"]:
        session.do("undo")
    assert session.design == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("epochs", 0), ("epochs", 1.5), ("batch_size", -1), ("optimizer", "adan2"), ("b1", 1.0), ("b1", "much"),
     ("seed", 2**40), ("schedule", "sometimes"), ("rate", 1), ("warmup", 3), ("accuracy", 2)],
)  # fmt: skip
def test_invalid_settings_are_refused_and_change_nothing(name: str, value: Any) -> None:
    session = workbench()
    before = session.design
    with pytest.raises(UnknownOptionError, match=name):
        session.do("set_training", name=name, value=value)
    assert session.design == before


def test_invalid_settings_of_a_file_count_as_none() -> None:
    data = design_to_dict(workbench().design)
    data["training"] = {"epochs": -4, "optimizer": "eval", "b1": [1], "batch_size": "8", "shell": "rm"}
    design = design_from_dict(data)
    assert TrainSettings({}, design.training).values == TrainSettings({}).values


def test_an_optimizer_of_the_cell_stays_a_choice() -> None:
    session = workbench(optimizer=optax.chain(optax.clip(1.0), optax.sgd(0.1)))
    row = next(field for field in session.snapshot()["training"] if field["name"] == "optimizer")
    assert (row["value"], row["optional"]) == (None, True)
    assert "schedule" not in values(session)  # a transformation has its own rate
    session.do("set_training", name="optimizer", value="adam")
    assert {"b1", "schedule"} <= values(session).keys()
    session.do("set_training", name="optimizer", value=None)
    session.do("train")
    assert session.training.run is not None
    session.training.run.wait(60)
    np.testing.assert_allclose(session.training.run.history["learning_rate"], 0.1)


def test_settings_of_the_run_keep_the_compiled_program() -> None:
    session = workbench()
    first = session.analysis.program
    session.do("set_training", name="epochs", value=5)
    assert session.analysis.program is first
    session.do("set_training", name="optimizer", value="sgd")
    assert session.analysis.program is not first


@pytest.mark.parametrize("second", ["place_block", "connect"])
@pytest.mark.parametrize("name", ["input", "image"])
@pytest.mark.parametrize("form", ["pair", "weights", "shape"])
def test_an_input_keeps_the_shape_of_the_data_if_another_appears(form: str, name: str, second: str) -> None:
    images, labels, weights = np.zeros((64, 1, 8, 8), "float32"), np.zeros(64, "int32"), np.ones(64, "float32")
    data = {"pair": (images, labels), "weights": (images, labels, weights)}
    session = session_of(None, {"input": [32, 1, 8, 8]} if form == "shape" else None, data=data.get(form, ()))
    for kind in ("Conv2d", "Relu"):
        session.do("add_block", kind=kind)
    if name != "input":
        session.do("rename_input", input="input", name=name)
    before = session.design
    shape, outputs = {name: [32, 1, 8, 8]}, str(session.analysis.inference.blocks["relu_0"].outputs["output"])
    assert session.snapshot()["shapes"] == shape
    session.do("place_block", kind="Add", source="relu_0.output" if second == "connect" else "")
    if second == "connect":
        session.do("connect", source="skip", target="add_0.right")
    shapes = session.snapshot()["shapes"]
    assert len(shapes) > 1
    assert {port: dims for port, dims in shapes.items() if dims} == shape
    assert str(session.analysis.inference.blocks["relu_0"].outputs["output"]) == outputs
    session.do("rename_input", input=name, name="picture")
    assert session.snapshot()["shapes"]["picture"] == shape[name]
    assert "picture" not in {problem.edge[0] for problem in session.analysis.problems if problem.edge}
    while session.design != before:
        session.do("undo")
    assert session.snapshot()["shapes"] == shape
    session.end()


def test_data_of_the_input_is_that_of_the_only_input() -> None:
    session = session_of(Model() + Linear(3), data=({"input": np.zeros((64, 8), "float32")}, np.zeros(64, "int32")))
    session.do("rename_input", input="input", name="image")
    assert session.snapshot()["shapes"] == {"image": [32, 8]}
    session.end()
