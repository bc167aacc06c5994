"""The example of an empty workbench fills every pane and can be trained."""

from __future__ import annotations

import numpy as np
import pytest
from waiting import PATIENCE_S, until

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.session import Session, design_of


def test_the_example_has_stages_costs_and_data_to_train_on():
    session = Session(design_of(None, None), JaxBackend())
    session.do("want_stage", stage="stablehlo")
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
def test_the_example_takes_the_sizes_of_data_that_is_there(x, y, loss, kinds, output):
    session = Session(design_of(None, None), JaxBackend(), {"data": (np.ones(x, "float32"), y), "loss": loss})
    session.do("load_example")
    assert [node.block.kind for node in session.design.graph.nodes] == kinds
    assert list(session.snapshot()["blocks"].values())[-1]["outputs"][0]["shape"].startswith(output)
    session.do("step_once")
    until(lambda: session.training.run.step == 1)
    session.end()
