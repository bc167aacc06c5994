"""Runs of a session after Stop: resumed, or restarted at the set rate; and whether their model is current."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import optax
import pytest
from sessions import session_of
from waiting import until

from mithril_nb.errors import UnknownOptionError
from mithril_nb.models import Linear, Model, Relu
from mithril_nb.train import Run
from mithril_nb.ui.session import Session


@pytest.fixture
def session() -> Iterator[Session]:
    model = Model() + Linear(16) + Relu() + Linear(2)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(256, 8)).astype("float32")
    data = (x, (x[:, 0] > 0).astype("int32"))
    found = session_of(model, {"input": [32, 8]}, data=data, epochs=100_000)
    yield found
    if found.training.run is not None:
        found.training.run.stop()


def run_of(session: Session) -> Run:
    run = session.training.run
    assert run is not None
    return run


def stopped(session: Session) -> Run:
    session.do("train")
    run = run_of(session)
    until(lambda: run.step > 3)
    session.do("stop")
    until(lambda: run.state == "stopped")
    return run


def test_stopped_run_resumes(session):
    run = stopped(session)
    step = run.step
    session.do("resume")
    assert run_of(session) is run
    until(lambda: run.step > step)


def test_new_run_uses_the_last_set_rate(session):
    first = stopped(session)
    session.do("set_learning_rate", value=0.25)
    session.do("train")
    second = run_of(session)
    assert second is not first
    assert second.learning_rate == 0.25
    assert session.snapshot()["run"]["learning_rate"] == 0.25


@pytest.mark.parametrize(
    ("options", "rate", "is_relative"),
    [
        ({}, 1e-3, False),
        ({"optimizer": "sgd"}, 1e-2, False),
        ({"learning_rate": 0.3}, 0.3, False),
        ({"optimizer": optax.adam(0.2)}, 1.0, True),
    ],
)
def test_the_rate_is_shown_and_set_before_the_first_run(session, options, rate, is_relative):
    session.training.options |= options
    view = session.snapshot()["run"]
    assert (view["state"], view["learning_rate"], view["learning_rate_is_relative"]) == ("none", rate, is_relative)
    session.do("set_learning_rate", value=rate / 2)
    assert session.snapshot()["run"]["learning_rate"] == rate / 2
    session.do("step_once")
    assert run_of(session).learning_rate == rate / 2


def test_new_run_keeps_the_previous_rate(session):
    first = stopped(session)
    session.do("train")
    assert run_of(session).learning_rate == first.learning_rate


def test_run_reports_whether_its_model_is_current(session):
    told = []
    session.listen(lambda kind, value: told.append(value) if kind == "run" else None)

    def is_current() -> bool:
        return session.snapshot()["run"]["is_current_model"]

    assert is_current()
    run = stopped(session)
    assert is_current()
    # The version grows with the program and the shapes, but the model is the same.
    session.do("set_program", program="forward")
    session.do("set_shape", name="input", shape=[64, 8])
    assert is_current()
    session.do("set_attribute", path="linear_0", name="dimension", value=24)
    assert not is_current()
    told.clear()
    session.do("resume")
    until(lambda: told and told[-1]["state"] == "running")
    assert told[-1]["is_current_model"] is False
    session.do("undo")
    assert is_current()
    session.do("redo")
    session.do("stop")
    until(lambda: run.state == "stopped")
    session.do("train")
    assert is_current()


@pytest.mark.parametrize("command", ["train", "step_once"])
@pytest.mark.parametrize("rest", ["pause", "stop"])
def test_the_model_that_is_shown_is_trained(session, command, rest):
    session.do("train")
    old = run_of(session)
    session.do(rest)
    until(lambda: old.state in ("paused", "stopped"))
    session.do("set_loss", loss="mean_squared_error")
    assert not session.snapshot()["run"]["is_current_model"]
    session.do("undo")
    assert session.snapshot()["run"]["is_current_model"]
    session.do("set_attribute", path="linear_0", name="dimension", value=24)
    session.do(command)
    new = run_of(session)
    assert new is not old
    until(lambda: old.state == "stopped")
    assert session.snapshot()["run"]["is_current_model"]
    session.do("stop")
    until(lambda: new.state == "stopped")
    session.do("resume")
    assert run_of(session) is new


@pytest.mark.parametrize(
    ("command", "args", "text"),
    [
        ("pause", {}, 'there is no run to pause.\n    runs  none\n    Try: wb.do("train")'),
        (
            "resume",
            {},
            'there is no run to continue.\n    runs  none\n    Try: wb.do("train")',
        ),
        ("stop", {}, 'there is no run to stop.\n    runs  none\n    Try: wb.do("train")'),
        (
            "set_learning_rate",
            {"value": -0.1},
            "the learning rate must be a finite number of at least 0.\n    got  -0.1\n    Try: learning_rate=1e-3",
        ),
        (
            "set_learning_rate",
            {},
            "command 'set_learning_rate' failed: missing a required argument: 'value'.\n"
            "    given  nothing\n"
            "    takes  value: a number\n"
            '    Try: wb.do("set_learning_rate", value=...)',
        ),
        (
            "pause",
            {"bogus": 1},
            "command 'pause' failed: got an unexpected keyword argument 'bogus'.\n"
            "    given  bogus=1\n"
            "    takes  nothing\n"
            '    Try: wb.do("pause")',
        ),
    ],
)
def test_failed_commands_give_a_reason(session, command, args, text):
    with pytest.raises(UnknownOptionError) as caught:
        session.do(command, **args)
    assert str(caught.value) == text


def test_invalid_rate_does_not_change_the_run(session):
    run = stopped(session)
    before = run.learning_rate
    with pytest.raises(UnknownOptionError) as caught:
        session.do("set_learning_rate", value="abc")
    assert str(caught.value) == (
        "the learning rate must be a finite number of at least 0.\n    got  'abc'\n    Try: learning_rate=1e-3"
    )
    assert run.learning_rate == before
