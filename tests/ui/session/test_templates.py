"""Each template opens without problems, has all stages of a train step, and learns its data."""

from __future__ import annotations

import numpy as np
import pytest
from sessions import session_of

from mithril_nb.errors import UnknownOptionError
from mithril_nb.models.saving.reading import from_source
from mithril_nb.ui.session.autosave import design_from_dict, design_to_dict
from mithril_nb.ui.session.templates import TEMPLATES

LEAST_DROP = 0.6


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_opens_and_learns(name: str) -> None:
    session = session_of(epochs=3, learning_rate=3e-3)
    session.do("load_example", template=name)
    shown = session.snapshot()
    assert (shown["problems"], shown["notice"], shown["program_note"]) == ([], None, "")
    assert session.cost is not None
    assert (session.cost.total.flops or 0) > 0
    assert from_source(shown["source"]).graph == session.design.graph
    assert design_from_dict(design_to_dict(session.design)) == session.design
    session.do("train")
    run = session.training.run
    assert run is not None
    loss = run.wait(150).history["loss"]
    assert np.mean(loss[-8:]) < LEAST_DROP * np.mean(loss[:4])
    session.end()


def test_templates_with_data_of_the_user_train_on_it() -> None:
    data = np.ones((40, 64), "float32"), np.zeros(40, "int32")
    session = session_of(data=data, epochs=1)
    session.do("load_example", template="mlp")
    session.do("train")
    run = session.training.run
    assert run is not None
    assert run.steps == 2
    run.wait(60)
    session.end()


def test_the_loss_for_data_of_the_user_stays() -> None:
    data = np.ones((40, 64), "float32"), np.zeros((40, 3), "float32")
    session = session_of(data=data, loss="mean_squared_error")
    session.do("load_example", template="mlp")
    assert session.snapshot()["loss"] == "mean_squared_error"
    session.end()


def test_an_unknown_template_is_refused() -> None:
    session = session_of()
    with pytest.raises(UnknownOptionError, match="template"):
        session.do("load_example", template="bert")
    assert session.design.graph.nodes == ()
