"""States of stages: a text has lines and seconds; a missing text has neither."""

from __future__ import annotations

import threading
import time

import pytest
from sessions import session_of

from mithril_nb.models import Linear, Model
from mithril_nb.stages.records import Stage
from mithril_nb.ui.session.analysis import LazyProgram
from mithril_nb.ui.session.stages import StageMaker, StageState


class OneStage:
    """A design with one computed stage."""

    version = 3

    def __init__(self, stage: Stage):
        self.inspection = self
        self._stage = stage

    def stage(self, name: str) -> Stage:
        return self._stage

    def advice_for(self, stage: Stage) -> str:
        return ""


def state_of(stage: Stage) -> StageState:
    maker = StageMaker(threading.RLock(), lambda: None, lambda error: None)
    maker._analysis = analysis = OneStage(stage)
    maker._wanted = frozenset({stage.name})
    assert maker._accept(analysis, stage.name)
    return maker.states[stage.name]


@pytest.mark.parametrize(("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("a\n\n", 2)])
def test_trailing_newline_adds_no_line(text, lines):
    assert state_of(Stage("hlo", text, elapsed_s=0.5)) == StageState("ready", 3, 0.5, lines)


def test_a_stage_that_is_unavailable_has_no_lines_and_took_no_time():
    found = state_of(Stage("hlo", "", elapsed_s=0.5, unavailable="this platform gives no text"))
    assert found == StageState("unavailable", 3, None, 0, "this platform gives no text")


def test_lines_of_a_real_stage():
    model = Model() + Linear(4)
    session = session_of(model, {"input": [2, 3]})
    session.request_stage("stablehlo")
    assert session.wait(60)
    for name in ("jaxpr", "stablehlo"):
        text = session.analysis.inspection.stage(name).text
        assert session.snapshot()["stages"][name]["lines"] == len(text.splitlines())


def test_an_edit_is_sent_before_its_costs_are_computed(monkeypatch):
    session = session_of(Model() + Linear(4), {"input": [2, 3]})
    assert session.wait(60)
    computed: list[int] = []
    were_computed: list[int] = []
    cost = LazyProgram.cost
    monkeypatch.setattr(LazyProgram, "cost", lambda *args: computed.append(1) or cost(*args))

    def send(kind: str, value: object) -> None:
        if kind == "snapshot" and not were_computed:
            time.sleep(0.1)  # the thread of the costs could begin
            were_computed.append(len(computed))

    session.listen(send)
    session.do("add_block", kind="Relu")
    assert session.wait(60)
    assert (were_computed, computed) == ([0], [1])
