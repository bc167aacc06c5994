"""Models with several outputs: the forward program until the output to train on is chosen."""

from __future__ import annotations

import ast
from dataclasses import replace

import numpy as np
import pytest
from sessions import session_of
from waiting import PATIENCE_S, until

from mithril_nb.errors import DataError, UnknownOptionError
from mithril_nb.models import IOKey, Linear, Model, Relu
from mithril_nb.ui.session import Session, design_of
from mithril_nb.ui.session.autosave import design_from_dict, design_source, design_to_dict
from mithril_nb.ui.session.design import source_of

WHY = "the model has 2 outputs, but the loss cross_entropy takes one: choose the output to train on"


def two_outputs() -> Model:
    model = Model()
    model |= Linear(8)(input="x", output="hidden")
    model |= Relu()(input="hidden", output=IOKey("features"))
    model |= Linear(3)(input="hidden", output=IOKey("logits"))
    return model


@pytest.fixture
def session() -> Session:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(64, 5)).astype("float32"), rng.integers(0, 3, 64)
    return session_of(two_outputs(), {"x": [4, 5]}, data=data, epochs=1)


def test_a_model_with_two_outputs_opens_with_its_forward_program(session):
    assert session.wait(PATIENCE_S)
    found = session.snapshot()
    assert (found["program"], found["program_note"], found["output"]) == ("forward", WHY, "")
    assert (found["outputs"], found["stages"]["jaxpr"]["state"]) == (["features", "logits"], "ready")
    assert found["cost"]["total"]["flops"] > 0
    assert session.errors == []
    with pytest.raises(DataError) as caught:
        session.do("train")
    assert str(caught.value) == (
        f"{WHY}.\n    outputs  'features', 'logits'\n    Try: output=\"logits\"  # in ml.workbench(...)"
    )


def test_choosing_an_output_and_a_loss_gives_all_programs(session):
    session.do("set_output", output="logits")
    assert session.wait(PATIENCE_S)
    found = session.snapshot()
    assert (found["program"], found["program_note"], found["undo_label"]) == (
        "train step",
        "",
        "output to train on",
    )
    assert "(loss)" in [row["block"] for row in found["cost"]["rows"]]
    session.do("train")
    until(lambda: session.training.run.state == "done")
    session.do("set_loss", loss="mean_squared_error")
    assert session.snapshot()["loss"] == "mean_squared_error"
    session.do("rename", path="linear_1", name="head")
    assert session.snapshot()["program"] == "train step"
    session.do("remove", paths=["head"])
    assert session.snapshot()["output"] == ""


def test_unknown_output_or_loss_is_rejected(session):
    with pytest.raises(UnknownOptionError) as caught:
        session.do("set_output", output="logit")
    assert str(caught.value) == (
        "the model has no output 'logit'.\n    outputs  'features', 'logits'\n    Try: output=\"logits\""
    )
    with pytest.raises(UnknownOptionError, match="unknown loss 'mse'"):
        session.do("set_loss", loss="mse")


def test_a_function_as_loss_takes_all_outputs():
    def loss(outputs, targets):
        return outputs["logits"].mean() + outputs["features"].mean()

    session = session_of(two_outputs(), {"x": [4, 5]}, loss=loss)
    assert session.wait(PATIENCE_S)
    found = session.snapshot()
    assert (found["program"], found["loss"], found["stages"]["jaxpr"]["state"]) == ("train step", "loss", "ready")


def test_the_chosen_output_and_loss_are_saved_with_the_design():
    design = replace(design_of(two_outputs(), {"x": ["batch", 5]}), output="logits", loss="mean_squared_error")
    assert design_from_dict(design_to_dict(design)) == design
    assert "# output: logits\n# loss: mean_squared_error" in design_source(design)


def test_a_name_does_not_end_its_comment():
    name = "x\nprint('ran')"
    design = replace(design_of(Linear(3), None), output=name, training=((name, 3),))
    tree = ast.parse(design_source(design))
    assert ast.dump(tree) == ast.dump(ast.parse(source_of(design)))
