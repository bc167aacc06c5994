"""The example of an empty workbench fills every pane and can be trained."""

from __future__ import annotations

import numpy as np
import pytest
from sessions import session_of
from waiting import PATIENCE_S, until

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import DataError
from mithril_nb.models import MLP
from mithril_nb.ui.session import Session, design_of
from mithril_nb.ui.session.autosave import Autosave


def test_the_example_has_stages_costs_and_data_to_train_on():
    session = session_of()
    session.do("request_stage", stage="stablehlo")
    session.do("load_example")
    assert session.wait(PATIENCE_S)
    found = session.snapshot()
    assert [found["stages"][name]["state"] for name in ("jaxpr", "stablehlo")] == ["ready", "ready"]
    assert found["cost"]["total"]["flops"] > 0
    assert (found["problems"], found["notice"], found["shapes"]) == ([], None, {"input": [32, 64]})
    session.do("train")
    run = session.training.run
    until(lambda: run.state == "done")
    assert np.mean(run.history["accuracy"][-32:]) > 0.9
    session.do("undo")
    assert session.design.graph.nodes == ()


@pytest.mark.parametrize(
    ("x", "y", "loss", "kinds", "output"),
    [
        ((40, 5), np.arange(40) % 4, "cross_entropy", ["Linear", "Relu", "Linear"], "(32, 4)"),
        ((40, 4, 4, 3), np.ones((40, 2)), "mean_squared_error", ["Flatten", "Linear", "Relu", "Linear"], "(32, 2)"),
    ],
)
def test_example_uses_the_sizes_of_given_data(x, y, loss, kinds, output):
    session = session_of(data=(np.ones(x, "float32"), y), loss=loss)
    session.do("load_example")
    assert [node.block.kind for node in session.design.graph.nodes] == kinds
    assert list(session.snapshot()["blocks"].values())[-1]["outputs"][0]["shape"].startswith(output)
    session.do("step_once")
    until(lambda: session.training.run.step == 1)
    session.end()


NO_DATA = "no data to train on"


def message(session: Session) -> str:
    return session.snapshot()["run"]["message"]


def test_snapshot_of_the_example_has_its_data():
    session, messages = session_of(), list[str]()
    session.listen(lambda kind, value: messages.append(value["run"]["message"]) if kind == "snapshot" else None)
    session.do("load_example")
    assert messages[0] == ""
    session.end()


@pytest.mark.parametrize("way", ["undo", "set_design", "remove"])
def test_no_other_model_trains_on_the_data_of_the_example(way):
    session = session_of()
    session.do("load_example")
    if way == "undo":
        session.do("undo")
    if way == "remove":
        session.do("remove", paths=[node.name for node in session.design.graph.nodes])
        session.do("add_block", kind="Linear")
    else:
        session.set_design(design_of(MLP(64, [8], 3), {"input": [32, 64]}))
    assert message(session) == NO_DATA
    with pytest.raises(DataError, match=r"this workbench has no data to train on\."):
        session.do("train")
    session.end()


def test_redo_and_edits_of_the_example_keep_its_data():
    session = session_of()
    for command in ("load_example", "undo", "redo"):
        session.do(command)
    session.do("rename", path="relu_0", name="act")
    assert message(session) == ""
    session.end()


@pytest.mark.parametrize("data", [{}, {"data": (np.ones((40, 5), "float32"), np.arange(40) % 4)}])
def test_restored_example_uses_its_data_by_default(tmp_path, data):
    def opened(training) -> Session:
        return Session(design_of(None, None), JaxBackend(), training, lambda d: Autosave(tmp_path / "cell.json", d))

    session = opened(data)
    session.run_command("load_example", {})
    session.end()
    later = opened({})
    assert later.run_command("restore_edits", {}) is None
    assert message(later) == ("" if not data else NO_DATA)
    if not data:
        later.do("step_once")
        until(lambda: later.training.run.step == 1)
    later.end()
