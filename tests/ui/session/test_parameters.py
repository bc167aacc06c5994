"""Parameters on the canvas: freeze them, choose how they start, and share them between blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sessions import session_of

import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.models import MLP, BatchNorm1d, Linear, Model, Relu, Repeat
from mithril_nb.models.saving.reading import from_source
from mithril_nb.ui.session import Session
from mithril_nb.ui.session.autosave import design_from_dict, design_to_dict

X = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
Y = (X.sum(axis=1) > 0).astype("int32")


@pytest.fixture
def session() -> Session:
    model = Model() + Linear(8) + BatchNorm1d() + Relu() + Repeat(Linear(8), 2) + MLP(8, [8], 2)
    return session_of(model, {"input": [16, 4]}, data=(X, Y), epochs=2, batch_size=16)


def params_of(session: Session) -> dict[str, Any]:
    blocks = session.snapshot()["blocks"]
    return {f"{path}.{param['port']}": param for path, block in blocks.items() for param in block["params"]}


def boxes(session: Session) -> dict[str, str]:
    return {box.key: box.frozen for box in session.diagram.nodes}


def test_training_changes_all_parameters_but_the_frozen_ones(session: Session) -> None:
    session.do("set_trainable", names=["linear_0", "repeat_0/body.bias", "mlp_0/linear_1.weight"], is_trainable=False)
    frozen = {"linear_0.weight", "linear_0.bias", "repeat_0.body.bias", "mlp_0.linear_1.weight"}
    assert {param["name"] for param in params_of(session).values() if param["is_trainable"] is False} == frozen
    assert params_of(session)["batch_norm1d_0.running_mean"]["is_trainable"] is None  # a state
    shown = {key: state for key, state in boxes(session).items() if state}
    assert shown.items() >= {"linear_0": "all", "repeat_0": "some", "mlp_0": "some"}.items()
    session.do("train")
    run = session.training.run
    assert run is not None
    run.wait()
    initial = ml.compile(session.model, shapes={"input": ["batch", 4]}).randomize_params(0)
    assert {name for name, array in run.params.items() if np.array_equal(array, initial[name])} == frozen
    moments = str(run.opt_state)
    assert {name for name in initial if f"'{name}'" in moments} == {*initial} - frozen
    session.end()


def test_frozen_parameters_are_kept_in_source_file_and_autosave(session: Session) -> None:
    before = session.design
    session.do("set_trainable", names=["mlp_0", "linear_0.bias"], is_trainable=False)
    session.do("set_initializer", parameter="repeat_0/body.weight", initializer="normal(0.02)")
    after = session.design
    assert from_source(session.snapshot()["source"]).graph == after.graph
    assert Model.from_dict(session.model.to_dict()).graph == after.graph
    assert design_from_dict(design_to_dict(after)) == after
    assert after.graph.by_name["mlp_0"].block.kind == "MLP"
    assert params_of(session)["repeat_0/body.weight"]["usual"] == "normal"
    exec(session.commands_so_far.to_python(), {"wb": (again := session_of(Model.of(before.graph)))})
    assert again.design.graph == after.graph
    session.do("set_trainable", names=["mlp_0", "linear_0.bias"], is_trainable=True)
    session.do("set_initializer", parameter="repeat_0.body.weight", initializer="")
    assert session.design == before
    session.end()


def test_a_new_block_does_not_inherit_what_a_removed_one_had(session: Session) -> None:
    before = session.design.graph.notes
    session.do("set_trainable", names=["linear_0", "mlp_0"], is_trainable=False)
    session.do("remove", paths=["mlp_0"])
    session.do("replace_block", path="linear_0", kind="Relu")
    assert session.design.graph.notes == before
    session.end()


def test_a_name_that_is_no_parameter_is_refused_with_those_that_are(session: Session) -> None:
    for name in ("relu_0", "linear_7.weight", ""):
        with pytest.raises(MithrilError, match="has no parameter"):
            session.do("set_trainable", names=[name], is_trainable=False)
    with pytest.raises(MithrilError, match="has no parameter 'linear_0'"):
        session.do("set_initializer", parameter="linear_0", initializer="zeros")
    session.end()
