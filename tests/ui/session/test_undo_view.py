"""Undo and redo keep the view: untouched groups stay unchanged, and returning groups are open as before."""

from __future__ import annotations

import mithril_nb as ml
from mithril_nb.models import MLP, Linear, Model, Relu
from mithril_nb.ui.session import Session, design_of


def session_of(model):
    session = Session(design_of(model, {"input": [8, 32]}), ml.JaxBackend())
    for key in opened(session):  # the first view opens groups
        session.do("collapse", path=key)
    return session


def opened(session):
    return set(session.snapshot()["graph"]["opened"])


def drawn(session):
    return [node.key for node in session.diagram.nodes]


def two_groups():
    return Model() + MLP(activations=[Relu()], dimensions=[8]) + Linear(4) + MLP(activations=[Relu()], dimensions=[4])


def test_a_removed_group_returns_open_and_in_its_place():
    session = session_of(two_groups())
    session.do("expand", path="mlp_0")
    session.do("move", places=[["mlp_0", 40, 120]])
    session.do("remove", paths=["mlp_0"])
    assert opened(session) == set()
    session.do("undo")
    assert opened(session) == {"mlp_0"}
    assert session.snapshot()["graph"]["moved"] == {"mlp_0": (40.0, 120.0)}
    session.do("redo")
    assert opened(session) == set()
    session.do("undo")
    assert opened(session) == {"mlp_0"}
    session.end()


def test_groups_that_an_edit_does_not_touch_stay_as_they_are():
    session = session_of(two_groups())
    session.do("expand", path="mlp_0")
    session.do("set_attribute", path="linear_0", name="dimension", value=16)
    session.do("collapse", path="mlp_0")
    session.do("expand", path="mlp_1")
    session.do("undo")
    assert opened(session) == {"mlp_1"}
    session.do("redo")
    assert opened(session) == {"mlp_1"}
    session.end()


def test_a_new_block_with_the_name_of_a_removed_one_is_closed():
    session = session_of(two_groups())
    session.do("expand", path="mlp_1")
    session.do("remove", paths=["mlp_1"])
    session.do("add_block", kind="MLP")
    assert "mlp_1" in session.snapshot()["blocks"]
    assert opened(session) == set()
    session.do("undo")
    session.do("undo")
    assert opened(session) == {"mlp_1"}
    session.end()


def test_a_group_that_was_renamed_stays_open():
    session = session_of(two_groups())
    session.do("expand", path="mlp_0")
    session.do("rename", path="mlp_0", name="body")
    assert opened(session) == {"body"}
    session.do("undo")
    assert opened(session) == {"mlp_0"}
    session.do("redo")
    assert opened(session) == {"body"}
    session.end()


def test_a_replaced_model_returns_folded():
    model = Model()
    for _ in range(20):
        model += Linear(32)
        model += Relu()
    session = session_of(model)
    before = drawn(session)
    assert before == ["input:input", "repeat:linear_0", "output:output"]
    session.set_design(design_of(two_groups(), {"input": [8, 32]}))
    session.do("undo")
    assert drawn(session) == before
    session.end()


def test_undo_and_redo_go_through_moves_and_edits_in_order():
    session = session_of(two_groups())
    steps = [
        ("move", {"places": [["linear_0", 40, 120]]}),
        ("add_block", {"kind": "Relu", "x": 300, "y": 10}),
        ("move", {"places": [["mlp_0", 0, 0]]}),
        ("rename", {"path": "linear_0", "name": "head"}),
        ("move", {"places": [["head", 7, 8]]}),
        ("tidy", {}),
        ("remove", {"paths": ["head"]}),
        ("add_block", {"kind": "Linear", "after": "mlp_0"}),
    ]
    state = [(session.design, dict(session._view.moved))]
    labels = []
    for command, args in steps:
        session.do(command, **args)
        state.append((session.design, dict(session._view.moved)))
        labels.append(session.snapshot()["undo_label"])
    assert len(set(labels)) == len(steps) == len({str(one) for one in state}) - 1
    for before, label in zip(reversed(state[:-1]), reversed(labels), strict=True):
        assert session.snapshot()["undo_label"] == label
        session.do("undo")
        assert (session.design, session._view.moved) == before
    assert not session.snapshot()["can_undo"]
    for after in state[1:]:
        session.do("redo")
        assert (session.design, session._view.moved) == after
    assert session.edit_labels == tuple(label for label in labels if not label.startswith(("move", "tidy")))
    session.end()


def test_a_move_to_the_same_place_or_of_no_block_is_no_step():
    session = session_of(two_groups())
    session.do("tidy")
    session.do("move", places=[["ghost", 1, 2]])
    assert not session.snapshot()["can_undo"]
    session.do("move", places=[["mlp_0", 1, 2]])
    session.do("undo")
    session.do("redo")
    session.do("move", places=[["mlp_0", 1, 2]])
    session.do("undo")
    assert not session.snapshot()["can_undo"]
    assert session.edits == 0
    session.end()
