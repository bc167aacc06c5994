"""`wb.history.to_python()` repeats what led to the current model, without what the user undid."""

from __future__ import annotations

from dataclasses import fields
from random import Random

import pytest
from random_edits import random_edit
from sessions import session_of

from mithril_nb.models import Linear, Model, Relu
from mithril_nb.ui.session.design import EDITS, design_of
from mithril_nb.ui.session.editor import CommandHistory


@pytest.mark.parametrize("seed", range(20))
def test_commands_repeat_the_design(seed: int) -> None:
    random = Random(seed)
    session, again = (session_of(Model() + Linear(8) + Relu(), {"input": [4, 3]}) for _ in range(2))
    for _ in range(30):
        turn = random.random()
        if turn < 0.3:
            session.run_command(random.choice(["undo", "undo", "redo"]), {})
        elif turn < 0.4:
            session.run_command("set_training", {"name": "epochs", "value": random.randrange(9)})
        else:
            session.run_command(*random_edit(random, session.design))
    code = session.commands_so_far.to_python()
    exec(code, {"wb": again})
    assert again.design == session.design
    assert "undo" not in code


def test_positions_and_the_block_before_are_recorded() -> None:
    session = session_of(Model() + Linear(8) + Relu(), {"input": [4, 3]})
    session.do("select", paths=["linear_0"])
    session.do("add_block", kind="Gelu")
    session.do("add_block", kind="Relu", x=10, y=20)
    session.do("undo")
    assert repr(session.commands_so_far) == "wb.do('add_block', kind='Gelu', after='linear_0')"
    session.do("redo")
    assert "x=10, y=20" in session.commands_so_far.to_python()


def test_the_history_holds_no_lookup_tables() -> None:
    design = design_of(Model() + Linear(8) + Relu(), {"input": [4, 3]})
    history = CommandHistory(design)
    for size in range(1, 4):
        args = {"path": "linear_0", "name": "dimension", "value": size}
        design = EDITS["set_attribute"](design, **args).design
        history.add("set_attribute", args, design)
        assert design.graph.by_name  # a table, which the graph caches
    graphs = [held.graph for _, _, *designs in history._changes for held in designs]
    assert len(history.commands) == 3
    assert all(vars(graph).keys() == {field.name for field in fields(graph)} for graph in graphs)
