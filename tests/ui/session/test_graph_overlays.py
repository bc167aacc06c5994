"""The overlay of a session: remembered, computed again after edits, and the user's own values."""

from __future__ import annotations

import threading

import pytest

import mithril_nb as ml
from mithril_nb.errors import StageUnavailableError
from mithril_nb.models import MLP, Linear, Model, Relu, Sigmoid
from mithril_nb.ui.session.exploring import Exploration
from mithril_nb.ui.session.graphs import overlays

WAIT_S = 120


@pytest.fixture
def model() -> Model:
    return Model() + Linear(16) + Relu() + MLP(activations=[Relu(), Sigmoid()], dimensions=[8, 4])


def listen(session):
    found = []
    session.listen(lambda kind, reply: found.append(reply) if kind == "overlay" else None)
    return found


def values_of(reply):
    return dict(zip(reply.data["keys"], reply.data["values"], strict=True))


def explored(model, **options):
    """Return an exploration after its first view, and the overlays that it sends."""
    session = Exploration(ml.inspect(model, shapes={"input": [8, 32]}, **options))
    found = listen(session)
    session.start()
    assert session.wait(WAIT_S)
    return session, found


def test_an_exploration_sends_the_values_of_all_nodes(model):
    session, found = explored(model, program="train step")
    assert found == [], "nothing is sent without an overlay"
    view = session.snapshot()["overlay"]
    assert (view["name"], view["own"]) == ("", False)
    assert {name for name, _ in view["choices"]} >= {"flops", "memory", "role", "dtype"}
    for own, title in ((False, "FLOPs, with inner blocks"), (True, "own FLOPs")):
        assert session.run_command("show_overlay", {"name": "flops", "own": own}) is None
        assert session.wait(WAIT_S)
        data = found[-1].data
        assert (found[-1].head["stage"], data["title"], data["own"]) == ("jaxpr", title, own)
        values = values_of(found[-1])
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
    before = values_of(found[-1])
    session.do("set_attribute", path="linear_0", name="dimension", value=32)
    assert session.wait(WAIT_S)
    after = values_of(found[-1])
    assert after["linear_0"] > before["linear_0"]
    workbench.overlay({"linear_0": 0.25}, title="sparsity")
    assert session.wait(WAIT_S)
    data = found[-1].data
    values = values_of(found[-1])
    assert (data["title"], values["linear_0"], values["relu_0"]) == ("sparsity", 0.25, "?")
    view = session.snapshot()["overlay"]
    assert view["name"] == "own values: sparsity" == view["choices"][0][0]
    workbench.overlay({"linaer_0": 1}, title="wrong")
    assert session.wait(WAIT_S)
    assert found[-1].head["problem"].startswith("the graph has no node 'linaer_0'")
    workbench.close()


@pytest.mark.parametrize("fails", [False, True])
def test_a_slow_overlay_does_not_replace_a_later_choice(fails, monkeypatch):
    started, ends = threading.Event(), threading.Event()
    session, found = explored(Model() + Linear(4))
    compute = overlays.overlay_by_name

    def slow(inspection, name, nodes, data, **options):
        if name == "memory":
            started.set()
            assert ends.wait(WAIT_S)
            if fails:
                raise StageUnavailableError("the compiler failed.")
        return compute(inspection, name, nodes, data, **options)

    monkeypatch.setattr(overlays, "overlay_by_name", slow)
    session.run_command("show_overlay", {"name": "memory"})
    assert started.wait(WAIT_S)
    session.run_command("show_overlay", {"name": "flops"})
    assert session.overlays._quick.wait(WAIT_S)
    ends.set()
    assert session.wait(WAIT_S)
    assert [(one.head["name"], one.head["problem"]) for one in found] == [("flops", "")]
    session.end()


def test_own_values_need_no_costs_and_others_are_stale():
    workbench = ml.workbench(Model() + Linear(16) + Relu(), shapes={"input": [8, 32]}, autosave=False)
    session, found = workbench.session, listen(workbench.session)
    workbench.overlay("flops")
    assert session.wait(WAIT_S)
    assert found[-1].data["title"] == "FLOPs"
    session.do("add_block", kind="MatrixMultiply")  # the model cannot run
    assert session.wait(WAIT_S)
    assert not session.analysis.can_run
    assert (found[-1].head["name"], found[-1].head["is_stale"], found[-1].data) == ("flops", True, None)
    workbench.overlay({"linear_0": 0.5})
    assert session.wait(WAIT_S)
    values = values_of(found[-1])
    assert (found[-1].head["is_stale"], values["linear_0"]) == (False, 0.5)
    workbench.overlay("memory")
    assert session.wait(WAIT_S)
    assert (found[-1].head["name"], found[-1].head["is_stale"]) == ("memory", True)
    session.do("undo")
    assert session.wait(WAIT_S)
    assert (found[-1].head["is_stale"], found[-1].data["title"]) == (False, "memory at the peak, compiled")
    workbench.close()


def test_a_measurement_adds_its_overlay_at_once(model):
    session, _ = explored(model)
    assert session.run_command("measure", {}) is None
    assert session.wait(WAIT_S)
    assert ("time_s", "time, measured") in session.snapshot()["overlay"]["choices"]
    session.end()


def test_a_measured_workbench_follows_edits_that_break_the_model(model):
    workbench = ml.workbench(model, shapes={"input": [8, 32]}, autosave=False)
    session, found = workbench.session, listen(workbench.session)
    for name, args in (("measure", {}), ("show_overlay", {"name": "flops"})):
        session.do(name, **args)
        assert session.wait(WAIT_S)
    assert ("time_s", "time, measured") in session.snapshot()["overlay"]["choices"]
    session.do("set_shape", name="input", shape=[])
    assert session.wait(WAIT_S)
    assert not session.analysis.can_run
    assert (session.errors, found[-1].head["is_stale"]) == ([], True)
    workbench.close()
