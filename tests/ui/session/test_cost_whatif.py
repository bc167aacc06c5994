"""What-if costs: computed on a copy, at once without the compiler, and with it on request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export
from jax_programs import spec
from sessions import session_of
from waiting import PATIENCE_S

from mithril_nb.analysis.whatif import what_if
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.inspection import Inspection
from mithril_nb.models import Linear, Model, Multiply, Relu
from mithril_nb.targets import inspect
from mithril_nb.ui.session import Session
from mithril_nb.ui.session.commands import Client, ProgramView, Reply
from mithril_nb.ui.session.exploring import Exploration
from mithril_nb.ui.session.what_if import WhatIfRequests, settings_of

DEAF = Client(lambda *_: None, lambda: None, pytest.fail)


def dense(w: Any, x: Any) -> Any:
    with jax.named_scope("dense"):
        return jnp.tanh(x @ w).sum()


@pytest.fixture
def session() -> Session:
    model = Model(name="net") + Linear(7) + Relu() + Linear(3)
    return session_of(model, {"input": [4, 5]})


def ask(current: Session | Exploration, changes: list[list[Any]], **more: Any) -> tuple[Reply, Any]:
    """Return the answer, and the error of the command."""
    told: list[Any] = []
    leave = current.listen(lambda kind, value: told.append(value) if kind == "what_if" else None)
    problem = current.run_command("what_if", {"key": "k", "changes": changes, **more})
    assert current.wait(PATIENCE_S)
    leave()
    return (told[-1] if told else None), problem


def figures(rows: Any) -> dict[str, tuple[Any, Any]]:
    return {row["figure"]: (row["before"], row["after"]) for row in rows}


def test_what_if_equals_the_edited_design(session) -> None:
    before = session.cost.total
    changes = [["", "batch", 9], ["linear_0", "dimension", 11]]
    answer, problem = ask(session, changes)
    assert problem is None
    assert session.design.shapes == (("input", (4, 5)),), "the model is unchanged"
    assert session.snapshot()["can_undo"] is False
    found = figures(answer.data["rows"])
    assert found["flops"][0] == before.flops
    assert json.loads(json.dumps(answer.data))["changes"] == changes
    assert answer.data["how"].startswith("Analytic, traced again, in ")
    assert 'data-block="linear_0"' in answer.data["picture"]["svg"]
    assert "then" in answer.data["picture"]["text"]
    # The same changes as one real edit.
    assert session.run_command("apply_what_if", {"changes": changes}) is None
    assert session.wait(PATIENCE_S)
    after = session.cost.total
    assert found["flops"] == (before.flops, after.flops)
    assert found["bytes_accessed"] == (before.bytes_accessed, after.bytes_accessed)
    assert found["params"] == (before.params, after.params)
    snapshot = session.snapshot()
    assert snapshot["shapes"] == {"input": [9, 5]}
    assert snapshot["undo_label"] == "what-if: batch, linear_0.dimension"
    session.undo()
    assert session.design.shapes == (("input", (4, 5)),)
    assert session.errors == []


def test_an_input_without_dims_has_no_batch() -> None:
    model = Model(name="net")
    model |= Multiply()(left="x", right="scale", output="y")
    session = session_of(model, {"x": [4, 5], "scale": []})
    changes = [["", "batch", 9]]
    answer, _ = ask(session, changes)
    assert session.run_command("apply_what_if", {"changes": changes}) is None
    assert session.design.shapes == (("x", (9, 5)), ("scale", ()))
    assert figures(answer.data["rows"])["flops"][1] == session.cost.total.flops


def test_settings_of_a_design_have_current_values(session) -> None:
    assert session.snapshot()["costs"]["what_if"]["settings"] is None, "not requested yet"
    for size in (4, 6):
        session.do("set_shape", name="input", shape=[size, 5])
        session.run_command("request_settings", {})
        assert session.wait(PATIENCE_S)
        view = session.snapshot()["costs"]["what_if"]
        fields = [(field["name"], field["value"]) for field in view["settings"]]
        assert fields == [
            ("batch", size), ("input.1", 5), ("dtype", "float32"), ("remat", False), ("precision", "default"),
        ]  # fmt: skip
        assert view["version"] == session.snapshot()["version"]


def test_changed_dtype_equals_another_backend(session) -> None:
    answer, _ = ask(session, [["", "dtype", "bfloat16"]])
    other = Session(session.design, JaxBackend(dtype="bfloat16")).cost.total
    before = session.cost.total
    found = figures(answer.data["rows"])
    assert found["bytes_accessed"] == (before.bytes_accessed, other.bytes_accessed)
    assert found["flops"] == (before.flops, other.flops)
    assert before.bytes_accessed > other.bytes_accessed
    assert str(session.backend.default_dtype) == "float32"
    problem = session.run_command("apply_what_if", {"changes": [["", "dtype", "bfloat16"]]})
    assert str(problem) == (
        "the model has no setting 'dtype'.\n"
        "    settings  batch; the axis of an input (input.0); attributes of blocks\n"
        '    Try: ml.workbench(model, backend=ml.JaxBackend(dtype="bfloat16"))'
    )


def test_both_programs_compile_on_request(session) -> None:
    answer, _ = ask(session, [["", "batch", 8]])
    assert answer.data["compiled"] is None
    answer, _ = ask(session, [["", "batch", 8]], compile=True)
    now, then = figures(answer.data["compiled"])["flops"]
    assert now == session.analysis.inspection.cost("compiled").total.flops
    assert then > now
    peak = figures(answer.data["compiled"])["peak_bytes"]
    assert peak[0] == session.analysis.inspection.memory.peak_bytes
    answer, _ = ask(session, [["", "batch", 8]], figure="bytes_accessed")
    assert answer.data["compiled"] is not None, "compiled results are reused"


def test_failed_what_if_is_reported_as_answer(session) -> None:
    for changes, said in (
        ([["linear_0", "dimension", -1]], "dimension"),
        ([["", "depth", 3]], "has no setting 'depth'"),
        ([["", "dtype", "int8"]], "cannot be cast to 'int8'"),
        ([["nobody", "dimension", 3]], "has no setting 'nobody.dimension'"),
    ):
        answer, problem = ask(session, changes)
        assert problem is None
        assert said in answer.data["problem"]["summary"]
        assert answer.data["rows"] == []
    for args, text in (
        ({"changes": [["a", 1]]}, "[['a', 1]] is not a list of changes."),
        ({"changes": [], "figure": "cents"}, "unknown figure 'cents'."),
    ):
        problem = session.run_command("what_if", {"key": "k", **args})
        assert str(problem).startswith(text)


def test_program_accepts_other_batch_dtype_and_precision() -> None:
    exploration = Exploration(inspect(jax.grad(dense), spec(5, 3), spec(8, 5)))
    exploration.start()
    assert exploration.wait(PATIENCE_S)
    exploration.run_command("request_settings", {})
    assert exploration.wait(PATIENCE_S)
    fields = exploration.snapshot()["costs"]["what_if"]["settings"]
    assert [(field["name"], field["value"]) for field in fields] == [
        ("batch", 8), ("dtype", "float32"), ("precision", "default"),
    ]  # fmt: skip
    answer, _ = ask(exploration, [["", "batch", 16], ["", "precision", "highest"]])
    other = inspect(jax.grad(dense), spec(5, 3), spec(16, 5)).cost().total
    assert figures(answer.data["rows"])["flops"] == (exploration.cost.total.flops, other.flops)
    answer, _ = ask(exploration, [["dense", "dimension", 3]])
    assert "has no setting 'dense.dimension'" in answer.data["problem"]["summary"]
    assert exploration.errors == []


def test_answer_arrives_at_once_and_again_with_memory(session) -> None:
    told: list[Reply] = []
    session.listen(lambda kind, value: told.append(value) if kind == "what_if" else None)
    session.run_command("what_if", {"key": "k", "changes": [["", "batch", 6]]})
    assert session.wait(PATIENCE_S)
    first, last = (row(one) for one in (told[0], told[-1]))
    assert first == {"figure": "peak_bytes", "before": None, "after": None, "reason": "computing"}
    assert last["after"] > last["before"] > 0
    assert [one.data["rows"][0] for one in told] == [told[0].data["rows"][0]] * len(told)


def view_of(program: Inspection, version: int = 1, begin: Callable[[], Any] | None = None) -> ProgramView:
    return ProgramView(version, lambda: program, (), {}, begin or (lambda: what_if(program)))


def row(answer: Reply) -> Any:
    return next(one for one in answer.data["rows"] if one["figure"] == "peak_bytes")


def test_unknown_batch_is_not_a_setting() -> None:
    program = inspect(lambda x: x.sum(), spec())
    subject = view_of(program)
    assert [field["name"] for field in settings_of(subject, subject.what_if())] == ["dtype", "precision"]


def test_symbolic_size_is_not_a_setting() -> None:
    (size,) = export.symbolic_shape("B")
    program = inspect(dense, spec(5, 3), jax.ShapeDtypeStruct((size, 5), "float32"))
    subject = view_of(program)
    fields = json.loads(json.dumps(settings_of(subject, subject.what_if())))
    assert [field["name"] for field in fields] == ["dtype", "precision"]


def test_newer_design_creates_a_new_what_if() -> None:
    program, versions, asked = inspect(dense, spec(5, 3), spec(8, 5)), [1, 1, 2], []

    def begin() -> Any:
        asked.append(len(asked))
        return what_if(program)

    desk = WhatIfRequests(lambda: view_of(program, versions[0], begin), DEAF)
    while versions:
        desk.what_if("k", [["", "batch", 16]])
        assert desk.wait(PATIENCE_S)
        versions.pop(0)
    assert asked == [0, 1]
    desk.end()


def test_two_threads_share_one_what_if() -> None:
    program, asked = inspect(dense, spec(5, 3), spec(8, 5)), []
    version, has_begun, resume = [1], threading.Event(), threading.Event()

    def subject() -> ProgramView:
        number = version[0]

        def begin() -> Any:
            asked.append(number)
            has_begun.set()
            assert resume.wait(PATIENCE_S)
            return what_if(program)

        return view_of(program, number, begin)

    told: list[Any] = []
    desk = WhatIfRequests(subject, Client(lambda _, answer: told.append(answer), lambda: None, pytest.fail))
    desk.what_if("quick", [["", "batch", 16]])
    assert has_begun.wait(PATIENCE_S)
    desk.what_if("slow", [["", "batch", 16]], compile=True)
    desk.what_if("old", [["", "batch", 24]], compile=True)  # the design is another before this one's turn
    version[0] = 2
    desk.what_if("new", [["", "batch", 16]])
    resume.set()
    assert desk.wait(PATIENCE_S)
    assert asked == [1, 2]
    assert told[-1].data["problem"] is None
    desk.end()


def test_settings_are_found_after_an_untraceable_design() -> None:
    broken = inspect(lambda x, y: x @ y, spec(5, 3), spec(8, 5))
    good = inspect(dense, spec(5, 3), spec(8, 5))
    current = [view_of(broken)]
    desk = WhatIfRequests(lambda: current[0], DEAF)
    states = []
    for subject in (current[0], view_of(good, 2)):
        current[0] = subject
        desk.request_settings()
        assert desk.wait(PATIENCE_S)
        states.append((desk.view()["state"], bool(desk.view()["settings"]), (desk.view()["problem"] or {}).get("code")))
    assert states == [("unavailable", False, "StageUnavailableError"), ("ready", True, None)]
    desk.end()


def test_unexpected_error_is_stored_and_shown() -> None:
    def broken() -> Any:
        raise ZeroDivisionError("one / zero")

    told: list[Any] = []
    failed: list[BaseException] = []
    desk = WhatIfRequests(
        lambda: ProgramView(1, pytest.fail, (), {}, broken),
        Client(lambda *what: told.append(what), lambda: None, failed.append),
    )
    desk.what_if("k", [["", "batch", 16]])
    assert desk.wait(PATIENCE_S)
    assert [type(one) for one in failed] == [ZeroDivisionError]
    [(_, answer)] = told
    assert answer.data["problem"]["summary"] == "ZeroDivisionError: one / zero"
    assert desk.view()["state"] == "ready"
