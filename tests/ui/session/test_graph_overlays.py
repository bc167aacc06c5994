"""The overlay of a session: remembered, computed again after edits, and the user's own values."""

from __future__ import annotations

import pytest

import mithril_nb as ml
from mithril_nb.models import MLP, Linear, Model, Relu, Sigmoid
from mithril_nb.ui.session.exploring import Exploration

WAIT_S = 120


@pytest.fixture
def model() -> Model:
    return Model() + Linear(16) + Relu() + MLP(activations=[Relu(), Sigmoid()], dimensions=[8, 4])


def listen(session):
    found = []
    session.listen(lambda kind, reply: found.append(reply) if kind == "overlay" else None)
    return found


def test_an_exploration_sends_the_values_of_all_nodes(model):
    session = Exploration(ml.inspect(model, shapes={"input": [8, 32]}, program="train step"))
    found = listen(session)
    session.start()
    assert session.wait(WAIT_S)
    assert found == [], "nothing is sent without an overlay"
    view = session.snapshot()["overlay"]
    assert (view["name"], view["own"]) == ("", False)
    assert {name for name, _ in view["choices"]} >= {"flops", "memory", "role", "dtype"}
    for own, title in ((False, "FLOPs, with inner blocks"), (True, "own FLOPs")):
        assert session.run_command("show_overlay", {"name": "flops", "own": own}) is None
        assert session.wait(WAIT_S)
        data = found[-1].data
        assert (found[-1].head["stage"], data["title"], data["own"]) == ("jaxpr", title, own)
        values = dict(zip(data["keys"], data["values"], strict=True))
        figures = session.cost.by_block["mlp_0"] if own else session.cost.subtree("mlp_0")
        assert values["mlp_0"] == figures.flops
    assert session.run_command("show_overlay", {"name": "flop"}).summary == "unknown overlay 'flop'."
    assert session.run_command("show_overlay", {"name": ""}) is None
    assert session.wait(WAIT_S)
    assert found[-1].data is None
    assert [str(one)[:23] for one in session.errors] == ["unknown overlay 'flop'."]
    session.end()


def test_a_workbench_follows_edits_and_shows_your_own_values(model):
    workbench = ml.workbench(model, shapes={"input": [8, 32]}, autosave=False)
    session = workbench.session
    found = listen(session)
    workbench.overlay("flops")
    assert session.wait(WAIT_S)
    before = dict(zip(found[-1].data["keys"], found[-1].data["values"], strict=True))
    session.do("set_attribute", path="linear_0", name="dimension", value=32)
    assert session.wait(WAIT_S)
    after = dict(zip(found[-1].data["keys"], found[-1].data["values"], strict=True))
    assert after["linear_0"] > before["linear_0"]
    workbench.overlay({"linear_0": 0.25}, title="sparsity")
    assert session.wait(WAIT_S)
    data = found[-1].data
    values = dict(zip(data["keys"], data["values"], strict=True))
    assert (data["title"], values["linear_0"], values["relu_0"]) == ("sparsity", 0.25, "?")
    view = session.snapshot()["overlay"]
    assert view["name"] == "own values: sparsity" == view["choices"][0][0]
    workbench.overlay({"linaer_0": 1}, title="wrong")
    assert session.wait(WAIT_S)
    assert found[-1].head["problem"].startswith("the graph has no node 'linaer_0'")
    workbench.close()
