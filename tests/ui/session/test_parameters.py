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


@pytest.mark.parametrize("seed", range(6))
def test_parameters_of_repeated_blocks_count_all_rounds(seed: int) -> None:
    random = np.random.default_rng(seed)
    model = Model()
    for _ in range(2):
        body = Model() | Linear(8)(weight="own")
        body += Linear(8)(weight=str(random.choice(["own", "other"])))  # tied or not
        for _ in range(int(random.integers(1, 3))):
            body = Repeat(body, int(random.integers(2, 5)), is_shared=bool(random.integers(2)))
        model += body
    session = session_of(model, {"input": [4, 8]})
    pm = ml.compile(session.model, shapes={"input": [4, 8]})
    shown = {param["name"]: (param["shape"], param["count"]) for param in params_of(session).values()}
    assert shown == {array.name: (str(array.spec.shape), array.spec.size) for array in pm.parameters}
    assert session.cost.total.params == sum(count for _, count in shown.values())
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


def shared_model() -> Model:
    return Model() + Linear(4, use_bias=False) + Relu() + MLP(4, [4], 4) + Linear(4, use_bias=False)


SHARED = [
    ("linear_0.weight", "linear_1.weight"),
    ("linear_1.weight", "linear_0.weight"),
    ("linear_0.weight", "mlp_0/linear_1.weight"),
    ("mlp_0/linear_0.weight", "linear_0.weight"),
    ("mlp_0/linear_0.weight", "mlp_0/linear_1.weight"),
]


@pytest.mark.parametrize(("source", "target"), SHARED)
def test_a_shared_weight_is_one_array_whose_gradient_is_the_sum(source: str, target: str) -> None:
    plain = session_of(shared_model(), {"input": [16, 4]})
    session = session_of(shared_model(), {"input": [16, 4]})
    session.do("set_initializer", parameter=source, initializer="normal(0.25)")
    session.do("share", source=source, target=target)
    names = {end: param["name"] for end, param in params_of(session).items()}
    assert names[source] == names[target]
    assert params_of(session)[source]["shared"] == [target]
    assert "normal(0.25)" in session.snapshot()["source"]
    assert from_source(session.snapshot()["source"]).graph == session.design.graph
    assert session.analysis.problems == ()
    shapes = {"input": (16, 4)}
    whole, separate = ml.compile(session.model, shapes=shapes), ml.compile(plain.model, shapes=shapes)
    params = whole.randomize_params(3)
    assert len(params) == len(separate.randomize_params(3)) - 1
    assert session.cost is not None
    assert plain.cost is not None
    assert plain.cost.total.params is not None
    assert session.cost.total.params == plain.cost.total.params - 16
    apart = {param["name"]: params[names[end]] for end, param in params_of(plain).items()}
    rng = np.random.default_rng(1)
    outside = {"output": rng.normal(size=(16, 4)).astype("float32")}
    _, together = whole.evaluate_all(params, {"input": X[:16]}, output_gradients=outside)
    _, own = separate.evaluate_all(apart, {"input": X[:16]}, output_gradients=outside)
    of_plain = {end: param["name"] for end, param in params_of(plain).items()}
    for end, name in names.items():
        parts = [np.asarray(own[of_plain[other]], "float64") for other in names if names[other] == name]
        np.testing.assert_allclose(together[name], sum(parts), rtol=2e-5, atol=1e-6, err_msg=end)
    session.do("unshare", target=target)
    assert len(ml.compile(session.model, shapes=shapes).randomize_params(0)) == len(apart)
    session.end()
    plain.end()


def test_sharing_and_unsharing_on_one_level_gives_the_model_before(session: Session) -> None:
    session.do("add_block", kind="Linear")
    session.do("set_trainable", names=["linear_1.weight"], is_trainable=False)
    before = session.design
    session.do("share", source="linear_1.weight", target="linear_0.weight")
    assert params_of(session)["linear_0.weight"]["is_trainable"] is False
    assert len(session.analysis.problems) == 1  # two shapes
    session.do("unshare", target="linear_0.weight")
    assert session.design == before
    session.end()


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        ("linear_0.weight", "relu_0.input", "not a parameter"),
        ("linear_0.input", "mlp_0/linear_0.weight", "not a parameter"),
        ("linear_0.weight", "linear_0.weight", "same parameter"),
        ("linear_0.weight", "repeat_0/body.weight", "nothing inside"),
        ("batch_norm1d_0.running_mean", "linear_0.bias", "not a parameter"),
    ],
)
def test_what_cannot_be_shared_is_refused(session: Session, source: str, target: str, why: str) -> None:
    before = session.design
    with pytest.raises(MithrilError, match=why):
        session.do("share", source=source, target=target)
    with pytest.raises(MithrilError, match="of its own"):
        session.do("unshare", target="linear_0.weight")
    assert session.design is before
    session.end()


def test_a_repeated_block_keeps_what_its_parameters_have(session: Session) -> None:
    session.do("set_trainable", names=["linear_0.bias", "mlp_0/linear_0"], is_trainable=False)
    session.do("repeat", path="mlp_0/linear_0", count=2)
    session.do("repeat", path="linear_0", count=2)
    session.do("repeat", path="linear_0", count=3)
    frozen = {end.port for end, note in session.design.graph.notes if note.is_trainable is False}
    assert frozen == {"linear_0.body.bias", "mlp_0.linear_0.body.weight", "mlp_0.linear_0.body.bias"}
    session.end()
