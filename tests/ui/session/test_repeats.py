"""Repeated parts of a model in the workbench: one node with ×N, which opens, and never hides what the user edits."""

from __future__ import annotations

import pytest

from mithril_nb.models import MLP, Linear, Model, Relu
from mithril_nb.ui.widgets import workbench
from mithril_nb.viz.diagrams.nested import Box


@pytest.fixture
def session():
    model = Model()
    for _ in range(20):
        model += Linear(8)
        model += Relu()
    widget = workbench(model + Linear(2), shapes={"input": (4, 8)})
    yield widget.session
    widget.close()


def nodes(session) -> dict[str, Box]:
    return {node.key: node for node in session.diagram.nodes}


def test_a_long_chain_is_one_node_that_opens(session) -> None:
    assert [*nodes(session)] == ["input:input", "repeat:linear_0", "linear_20", "output:output"]
    repeat = nodes(session)["repeat:linear_0"]
    assert session.wait(60)
    shares = [nodes(session)[key].share for key in ("repeat:linear_0", "linear_20")]
    assert sum(shares) == pytest.approx(1, abs=0.05)  # the loss has the rest
    assert (repeat.name, repeat.repeat, repeat.is_group, repeat.expanded) == (
        "linear_0 … relu_0",
        20,
        True,
        False,
    )
    assert session.run_command("expand", {"path": "repeat:linear_0"}) is None
    opened = nodes(session)
    assert opened["repeat:linear_0"].expanded
    assert opened["linear_7"].parent == "repeat:linear_0"
    assert session.run_command("collapse", {"path": "repeat:linear_0"}) is None
    assert len(nodes(session)) == 4


def test_the_part_stays_folded_and_open_through_edits(session) -> None:
    session.run_command("expand", {"path": "repeat:linear_0"})
    assert session.run_command("rename", {"path": "linear_0", "name": "first"}) is None
    assert nodes(session)["repeat:first"].expanded
    assert session.run_command("set_attribute", {"path": "linear_19", "name": "dimension", "value": 16}) is None
    assert nodes(session)["repeat:first"].repeat == 19
    assert session.run_command("undo", {}) is None
    assert nodes(session)["repeat:first"].repeat == 20


def test_blocks_that_the_user_adds_are_folded_by_tidy_alone() -> None:
    widget = workbench(Model() + Linear(8), shapes={"input": (4, 8)})
    session = widget.session
    for _ in range(3):
        assert session.run_command("add_block", {"kind": "MLP"}) is None
    assert {f"mlp_{at}" for at in range(3)} <= set(nodes(session))
    session.run_command("tidy", {})
    assert nodes(session)["repeat:mlp_0"].repeat == 3
    widget.close()


def test_a_repeated_part_inside_a_group_moves_with_its_frame() -> None:
    inner = Model()
    for _ in range(3):
        inner += MLP(8, (4,), 8)
    widget = workbench(Model() + inner, shapes={"input": (4, 8)})
    session = widget.session
    outer = next(key for key, node in nodes(session).items() if node.is_group)
    for key in (outer, f"repeat:{outer}/mlp_0"):
        assert session.run_command("expand", {"path": key}) is None
    assert session.run_command("move", {"places": [[f"{outer}/mlp_1", 40, 90]]}) is None
    moved, frame = nodes(session)[f"{outer}/mlp_1"], nodes(session)[f"repeat:{outer}/mlp_0"]
    assert (moved.x - frame.x, moved.y - frame.y) == (40, 90)
    widget.close()
