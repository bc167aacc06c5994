"""What the profiler wrote down is read into runs, and each moment of a run has one owner."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mithril_nb.measure.events import Event, RunEvents, _Raw, _recording
from mithril_nb.measure.shares import divided

IDS = ("while", "body", "dot", "tanh")
INSIDE = {"body": frozenset({"while"}), "dot": frozenset({"while", "body"})}


@given(st.lists(st.tuples(st.sampled_from(IDS), st.integers(-5, 105), st.integers(0, 50)), max_size=12))
def test_every_moment_is_counted_once(found: list[tuple[str, int, int]]) -> None:
    events = [Event(id, start, start + length) for id, start, length in found]
    times = divided(RunEvents(0, 100, events), INSIDE)
    assert sum(times.by_id.values()) + times.between_ns + times.dispatch_ns == pytest.approx(100)
    assert all(value >= 0 for value in (*times.by_id.values(), times.between_ns, times.dispatch_ns))
    assert times.by_id.keys() == {id for id, _, _ in found}
    assert times.events == len(found)


def test_a_loop_has_only_what_its_body_leaves() -> None:
    events = [Event("while", 10, 60), Event("dot", 10, 30), Event("body", 30, 40), Event("dot", 40, 55)]
    times = divided(RunEvents(0, 100, events), INSIDE)
    assert times.by_id == {"while": 5, "dot": 35, "body": 10}
    assert (times.between_ns, times.dispatch_ns) == (0, 50)


def test_gaps_are_told_from_what_lies_around() -> None:
    times = divided(RunEvents(0, 100, [Event("dot", 10, 30), Event("tanh", 35, 60)]), {})
    assert (times.by_id, times.between_ns, times.dispatch_ns) == ({"dot": 20, "tanh": 25}, 5, 50)
    assert divided(RunEvents(0, 100, []), {}).dispatch_ns == 100


def raw(id: str, start: float, plane: str = "/host:CPU", module: str = "jit_f", program: int = 8) -> _Raw:
    return _Raw(plane, id, module, program, start, start + 1)


def two_runs() -> dict[int, RunEvents]:
    return {0: RunEvents(10, 20), 1: RunEvents(30, 40)}


def test_events_belong_to_the_run_in_which_they_begin() -> None:
    found = _recording(two_runs(), [raw("dot", 5), raw("dot", 12), raw("tanh", 31), raw("dot", 25)], "jit_f", IDS)
    assert [[event.id for event in run.events] for run in found.runs.values()] == [["dot"], ["tanh"]]
    assert (found.planes, found.unavailable) == (("/host:CPU",), None)


def test_other_programs_are_left_out() -> None:
    others = [raw("add", 13, module="jit_g"), raw("sort", 14, program=9), raw("dot", 15, program=9)]
    found = _recording(two_runs(), [raw("dot", 12), raw("dot", 32), *others], "jit_f", IDS)
    assert [len(run.events) for run in found.runs.values()] == [1, 1]


def test_accelerators_speak_for_themselves() -> None:
    launches = [raw("dot", 12), raw("dot", 32)]
    found = _recording(two_runs(), [*launches, raw("dot", 14, "/device:GPU:0")], "jit_f", IDS)
    assert [len(run.events) for run in found.runs.values()] == [1, 0]
    assert found.planes == ("/device:GPU:0",)


@pytest.mark.parametrize(
    ("runs", "events", "reason"),
    [
        ({}, [], "the profiler wrote down no run of the program"),
        (two_runs(), [], "the profiler of this platform tells of no instructions"),
        (two_runs(), [raw("dot", 12, module="jit_g")], "the profiler tells of no instruction of module 'jit_f'"),
        (
            two_runs(),
            [raw("dot", 12), raw("dot", 13, program=9)],
            "several programs called 'jit_f' ran at the same time",
        ),
    ],
)
def test_what_cannot_be_told_has_a_reason(runs: dict[int, RunEvents], events: list[_Raw], reason: str) -> None:
    assert _recording(runs, events, "jit_f", IDS).unavailable == reason
