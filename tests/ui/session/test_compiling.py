"""XLA generates machine code only on request, and never twice. The shown times match the compilation."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import pytest
from sessions import session_of
from waiting import PATIENCE_S

from mithril_nb.models import Linear, Model
from mithril_nb.stages.stage_kinds import STAGE_KINDS
from mithril_nb.stages.xla.dump import NO_MACHINE_CODE
from mithril_nb.targets import inspect
from mithril_nb.ui.session import Session
from mithril_nb.ui.session.exploring import Exploration
from mithril_nb.ui.session.stages import StageState

WITHOUT_CODE, IN_FULL = "without machine code", "in full"


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the compilations of the inspected program, and whether they are full."""
    found: list[str] = []
    compile = jax.stages.Lowered.compile

    def told(self, compiler_options=None, **options):
        compiled = compile(self, compiler_options, **options)
        asked = compiler_options or {}
        # With this option XLA stops after its passes, which is not a compilation.
        if NO_MACHINE_CODE.items() <= asked.items():
            return compiled
        found.append(WITHOUT_CODE if "xla_backend_optimization_level" in asked else IN_FULL)
        return compiled

    monkeypatch.setattr(jax.stages.Lowered, "compile", told)
    return found


@pytest.fixture
def session() -> Session:
    model = Model() + Linear(7)
    return session_of(model, {"input": [3, 5]})


@pytest.fixture
def exploration() -> Exploration:
    array = jax.ShapeDtypeStruct((5, 5), "float32")
    found = Exploration(inspect(lambda x: jnp.tanh(x @ x), array))
    found.start()
    return found


@pytest.fixture(params=["session", "exploration"])
def current(request: pytest.FixtureRequest) -> Session | Exploration:
    return request.getfixturevalue(request.param)


def ask(current: Session | Exploration, *stages: str) -> None:
    for stage in stages:
        current.request_stage(stage)
    assert current.wait(PATIENCE_S)
    assert current.errors == []


def times(current: Session | Exploration) -> dict[str, bool]:
    """Return the names of the reported XLA times."""
    status = current.snapshot()["status"]
    return {name: status[f"{name}_s"] is not None for name in ("optimize", "compile")}


def test_hlo_costs_and_memory_need_no_machine_code(current, turns):
    assert times(current) == {"optimize": False, "compile": False}
    ask(current, "hlo")
    current.run_command("request_cost", {"source": "compiled"})
    current.run_command("request_cost_picture", {"key": "m", "view": "memory", "sources": ["compiled"]})
    current.run_command("request_passes", {})
    ask(current)
    assert turns == [WITHOUT_CODE]  # for passes alone, compiling ends where machine code would begin
    assert times(current) == {"optimize": True, "compile": False}


def test_memory_and_hlo_share_a_compilation(current, turns):
    ask(current, "hlo")
    current.run_command("request_cost_picture", {"key": "m", "view": "memory", "sources": ["compiled"]})
    ask(current)
    assert turns == [WITHOUT_CODE]


def test_machine_code_request_compiles_once(session, turns):
    ask(session, "hlo", "asm")
    assert turns == [IN_FULL]
    assert times(session) == {"optimize": False, "compile": True}


def test_machine_code_alone_compiles_once(exploration, turns):
    ask(exploration, "asm")
    ask(exploration, "hlo", "llvm")
    assert turns == [IN_FULL]
    assert times(exploration) == {"optimize": False, "compile": True}


def test_later_machine_code_compiles_once_more(current, turns):
    ask(current, "hlo")
    ask(current, "asm")
    ask(current, "llvm")
    assert turns == [WITHOUT_CODE, IN_FULL]
    assert times(current) == {"optimize": True, "compile": True}


def test_measurement_and_machine_code_share_a_compilation(current, turns):
    ask(current, "hlo")
    current.run_command("measure", {})
    ask(current)
    assert turns[:2] == [WITHOUT_CODE, IN_FULL]
    turns.clear()  # what the machine can do is measured with programs of their own
    ask(current, "asm")
    assert turns == []


def test_costs_and_stages_share_a_compilation_after_an_edit(session, turns):
    ask(session, "hlo", "asm")
    for size in (8, 9, 10):
        turns.clear()
        session.do("set_attribute", path="linear_0", name="dimension", value=size)
        session.do("request_cost", source="compiled")
        session.do("request_passes")
        ask(session)
        assert turns == [IN_FULL]


def test_hidden_stage_is_not_computed_for_new_designs(session, turns):
    ask(session, "hlo", "asm")
    turns.clear()
    session.do("leave_stage", stage="asm")
    assert session.snapshot()["stages"]["asm"]["state"] == "ready", "available stages stay"
    session.do("set_attribute", path="linear_0", name="dimension", value=8)
    ask(session)
    assert turns == [WITHOUT_CODE]
    states = {name: state["state"] for name, state in session.snapshot()["stages"].items()}
    assert (states["hlo"], states["asm"]) == ("ready", "stale")
    turns.clear()
    ask(session, "asm")
    assert turns == [IN_FULL]
    assert session.snapshot()["stages"]["asm"]["version"] == session.snapshot()["version"]


def test_costs_follow_an_edit_while_the_jaxpr_is_hidden(session):
    assert session.wait(PATIENCE_S)
    session.do("leave_stage", stage="jaxpr")
    session.do("set_attribute", path="linear_0", name="dimension", value=8)
    assert session.wait(PATIENCE_S)
    snapshot = session.snapshot()
    assert not snapshot["cost"]["stale"]
    assert snapshot["stages"]["jaxpr"]["state"] == "stale"


def test_stage_left_early_is_not_loading(session, monkeypatch):
    assert session.wait(PATIENCE_S)
    monkeypatch.setattr("mithril_nb.ui.session.stages._REST_S", 60.0)  # it has not begun
    session.do("request_stage", stage="asm")
    assert session.snapshot()["stages"]["asm"]["state"] == "loading"
    session.do("leave_stage", stage="asm")
    assert session.snapshot()["stages"]["asm"] == vars(StageState())
    assert session.wait(PATIENCE_S)
    assert str(session.run_command("leave_stage", {"stage": "exe"})) == (
        f"unknown stage 'exe'.\n    known  {', '.join(STAGE_KINDS)}\n    Try: stage=\"jaxpr\""
    )


def test_a_stopped_compilation_delays_nothing_and_is_not_repeated(session, turns, monkeypatch):
    assert session.wait(PATIENCE_S)
    compile, began, may_end = jax.stages.Lowered.compile, threading.Event(), threading.Event()

    def slow(self, *args, **options):
        began.set()
        assert may_end.wait(PATIENCE_S)
        return compile(self, *args, **options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", slow)
    stopped = session.design
    session.do("request_stage", stage="hlo")
    assert began.wait(PATIENCE_S)
    session.do("leave_stage", stage="hlo")
    assert session.wait(PATIENCE_S)
    assert session.snapshot()["stages"]["hlo"] == vars(StageState())
    session.do("set_attribute", path="linear_0", name="dimension", value=8)
    assert session.wait(PATIENCE_S)
    assert session.snapshot()["stages"]["jaxpr"]["state"] == "ready", "while XLA compiles the earlier design"
    session.do("undo")
    assert session.design == stopped
    session.do("request_stage", stage="hlo")
    may_end.set()
    assert session.wait(PATIENCE_S)
    assert session.snapshot()["stages"]["hlo"]["state"] == "ready"
    assert turns == [WITHOUT_CODE]


def test_explorer_keeps_computed_stages(exploration, turns):
    ask(exploration, "hlo")
    assert exploration.run_command("leave_stage", {"stage": "hlo"}) is None
    assert exploration.snapshot()["stages"]["hlo"]["state"] == "ready"
    assert turns == [WITHOUT_CODE]
