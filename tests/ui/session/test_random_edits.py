"""Random edits, valid and invalid: each works or raises a MithrilError, and undo restores every design."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_edits import WRONG, assert_explained, random_edit

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import MithrilError
from mithril_nb.graph.check import check
from mithril_nb.models import MLP, Linear, Model, Relu
from mithril_nb.ui.session import Session, design_of
from mithril_nb.ui.session.analysis import Analysis
from mithril_nb.ui.session.commands import check_arguments
from mithril_nb.ui.session.cost_tables import cost_table
from mithril_nb.ui.session.design import EDITS, Design
from mithril_nb.ui.session.editor import EditHistory
from mithril_nb.ui.session.snapshot import description_of, hues_of
from mithril_nb.ui.session.stages import StageMaker

VIEWS: dict[str, dict[str, Any]] = {
    **{key: {} for key in ("undo", "redo", "tidy", "dismiss", "set_design", "x")},
    **{key: {"path": "mlp_0"} for key in ("expand", "collapse")},
    "select": {"paths": ["linear_0"]},
    "move": {"places": [["linear_0", 40, 120]]},
    "apply_what_if": {"changes": [["linear_0", "dimension", 512], ["", "batch", 64]]},
}


def start() -> Design:
    model = Model() + Linear(8) + Relu() + MLP(8, [4], 2)
    return design_of(model, {"input": [4, 3]})


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session that computes no stages, because there are many edits."""
    monkeypatch.setattr(StageMaker, "follow", lambda *_: None)
    return Session(start(), JaxBackend())


def random_command(random: Random, design: Design) -> tuple[str, dict[str, Any]]:
    """Return an edit or another command, some with a missing or unknown argument."""
    name, args = random_edit(random, design)
    if random.random() < 0.4:
        name = random.choice([*VIEWS])
        args = dict(VIEWS[name])
        if args and random.random() < 0.5:
            args[random.choice([*args])] = random.choice(WRONG)
    if random.random() < 0.05:
        args.pop(random.choice([*args, "none"]), None)
    if random.random() < 0.05:
        args["unknown"] = random.choice(WRONG)
    return name, args


@settings(max_examples=3, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_costs_shown_are_those_of_the_design(random):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StageMaker, "follow", lambda *_: None)
        session = Session(start(), JaxBackend())
        cost = session._maker.cost = session.analysis.cost
        for _ in range(12):
            session.run_command(*random_edit(random, session.design))
            paths = [path for path, _ in session.design.graph.walk()]
            table = cost_table(cost, paths, hues_of(session.design.graph))
            assert session.snapshot()["cost"] == {**table, "stale": True}
            # Data of blocks are kept from edit to edit; as text, because 1 == True.
            assert json.dumps(session._described) == json.dumps(description_of(session.analysis))
        session.end()


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False))
def test_random_commands_work_or_are_rejected(random):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StageMaker, "follow", lambda *_: None)
        session = Session(start(), JaxBackend())
        for _ in range(12):
            name, args = random_command(random, session.design)
            before = session.design
            if random.random() < 0.5:
                try:
                    session.do(name, **args)
                except MithrilError as error:
                    assert_explained(error)
                    assert session.design is before
            elif session.run_command(name, args):
                assert isinstance(session.errors[-1], MithrilError), session.errors[-1]
                assert session.design is before
        session.end()


@pytest.mark.parametrize("args", [None, 3, [], "x", [("name", 1)], {1: 2}, {"command": 1}, {"self": 1}, {"": 2}])
@pytest.mark.parametrize("name", ["rename", "undo", "nothing", None, 3, [], {}])
def test_names_and_arguments_of_wrong_types_are_rejected(session, name, args):
    if args == [] and name == "undo":
        args = None
    problem = session.run_command(name, args)
    assert problem is not None
    assert problem.facts
    assert problem.advice or name == "undo"
    assert isinstance(session.errors[-1], MithrilError)


def test_positional_arguments_are_rejected(session):
    assert str(session.run_command("rename", ["linear_0", "encoder"])) == (
        "command 'rename' failed: its arguments are not a dict of names and values.\n"
        "    given  ['linear_0', 'encoder']\n"
        '    Try: wb.do("rename", ...)'
    )


@pytest.mark.parametrize("seed", range(3))
def test_random_edits_are_undone_and_redone(stress, seed):
    random, counts = Random(seed), Counter[str]()
    history = first = EditHistory(start())
    backend = JaxBackend()
    steps = stress.size(short=300, long=20_000)
    for number in range(steps):
        name, args = random_edit(random, history.present)
        try:
            # As `Session.do` does, without what follows from a design: a picture, a snapshot and stages.
            check_arguments(name, EDITS[name], args, ignored=("design",))
            changed = history.with_change(EDITS[name](history.present, **args), 10.0 * number)
            if number % 20 == 0:
                check(changed.present.graph)
                Analysis(changed.present, 1, backend, {})
        except MithrilError as error:
            assert_explained(error)
            counts["refused"] += 1
        else:
            history = changed
        if number % 20 == 0 and random.random() < 0.3:
            undone = history.undone()
            assert undone.redone().present == history.present
            history = undone if random.random() < 0.5 else history
    last = history.present
    kept = history.edits
    while history.undo:
        history = history.undone()
    assert history.present == first.present
    while history.redo:
        history = history.redone()
    assert history.present == last
    stress.report(edits=steps, refused=counts["refused"], escaped=0, undone=kept)
    assert 0 < counts["refused"] < steps
