"""Profiler events are read into runs, and each moment of a run is attributed once."""

from __future__ import annotations

from pathlib import Path

import pytest
from fresh import run_fresh
from hypothesis import given
from hypothesis import strategies as st
from jax.profiler import ProfileData

from mithril_nb.analysis.measure.runs import Event, RunEvents, _Raw, _recording, divided, read_recording

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


def test_loop_has_only_the_time_outside_its_body() -> None:
    events = [Event("while", 10, 60), Event("dot", 10, 30), Event("body", 30, 40), Event("dot", 40, 55)]
    times = divided(RunEvents(0, 100, events), INSIDE)
    assert times.by_id == {"while": 5, "dot": 35, "body": 10}
    assert (times.between_ns, times.dispatch_ns) == (0, 50)


def test_gaps_and_dispatch_are_separate() -> None:
    times = divided(RunEvents(0, 100, [Event("dot", 10, 30), Event("tanh", 35, 60)]), {})
    assert (times.by_id, times.between_ns, times.dispatch_ns) == ({"dot": 20, "tanh": 25}, 5, 50)
    assert divided(RunEvents(0, 100, []), {}).dispatch_ns == 100


def raw(id: str, start: float, plane: str = "/host:CPU", module: str = "jit_f", program: int = 8) -> _Raw:
    return plane, module, program, Event(id, start, start + 1)


def two_runs() -> dict[int, RunEvents]:
    return {0: RunEvents(10, 20), 1: RunEvents(30, 40)}


def test_events_belong_to_the_run_in_which_they_begin() -> None:
    found = _recording(two_runs(), [raw("dot", 5), raw("dot", 12), raw("tanh", 31), raw("dot", 25)], "jit_f", IDS)
    assert [[event.id for event in run.events] for run in found.runs.values()] == [["dot"], ["tanh"]]
    assert (found.planes, found.unavailable) == (("/host:CPU",), None)


def test_events_of_other_programs_are_ignored() -> None:
    others = [raw("add", 13, module="jit_g"), raw("sort", 14, program=9), raw("dot", 15, program=9)]
    found = _recording(two_runs(), [raw("dot", 12), raw("dot", 32), *others], "jit_f", IDS)
    assert [len(run.events) for run in found.runs.values()] == [1, 1]


def test_accelerator_events_replace_host_events() -> None:
    launches = [raw("dot", 12), raw("dot", 32)]
    found = _recording(two_runs(), [*launches, raw("dot", 14, "/device:GPU:0")], "jit_f", IDS)
    assert [len(run.events) for run in found.runs.values()] == [1, 0]
    assert found.planes == ("/device:GPU:0",)


@pytest.mark.parametrize(
    ("runs", "events", "reason"),
    [
        ({}, [], "the profiler recorded no run of the program"),
        (two_runs(), [], "the profiler of this platform records no instructions"),
        (two_runs(), [raw("dot", 12, module="jit_g")], "the profiler recorded no instruction of module 'jit_f'"),
        (
            two_runs(),
            [raw("dot", 12), raw("dot", 13, program=9)],
            "several programs called 'jit_f' ran at the same time",
        ),
    ],
)
def test_unavailable_times_have_a_reason(runs: dict[int, RunEvents], events: list[_Raw], reason: str) -> None:
    assert _recording(runs, events, "jit_f", IDS).unavailable == reason


def xspace() -> bytes:
    """Two threads of XLA's CPU runtime, in the form of jaxlib 0.10.2: a tanh continues after its call has returned."""
    ours = {"hlo_module": "jit_f", "program_id": 8}
    events = [
        ("python", "mithril_nb run", 1_000, 9_000, {"run": 0}),
        ("worker", "wrapped_tanh", 2_000, 500, {"hlo_op": "wrapped_tanh", **ours, "_p": 5}),
        ("worker", "dot.1", 6_000, 1_000, {"hlo_op": "dot.1", **ours, "_p": 6}),
        ("worker", "end: dot.1", 6_900, 50, {"_c": 6}),
        ("pool", "end: wrapped_tanh", 5_000, 40, {"_c": 5}),
        ("pool", "ThunkExecutor::Execute", 1_500, 8_000, {}),
        ("worker", "copy.2", 8_000, 300, {"hlo_op": "copy.2", **ours}),
    ]  # fmt: skip
    names = sorted({name for _, name, _, _, _ in events})
    stats = sorted({stat for *_, found in events for stat in found})

    def value(one: int | str) -> str:
        return f'str_value: "{one}"' if isinstance(one, str) else f"int64_value: {one}"

    def format_event(name: str, start: int, length: int, found: dict[str, int | str]) -> str:
        inner = " ".join(
            f"stats {{ metadata_id: {stats.index(stat) + 1} {value(one)} }}" for stat, one in found.items()
        )
        return (
            f"events {{ metadata_id: {names.index(name) + 1} offset_ps: {start}000 duration_ps: {length}000 {inner} }}"
        )

    def line(number: int, thread: str) -> str:
        found = " ".join(format_event(*event) for where, *event in events if where == thread)
        return f'lines {{ id: {number} name: "{thread}" {found} }}'

    lines = " ".join(line(number, thread) for number, thread in enumerate(("python", "worker", "pool")))
    entry = '{}_metadata {{ key: {} value {{ id: {} name: "{}" }} }}'
    known = [entry.format("event", place, place, name) for place, name in enumerate(names, 1)]
    known += [entry.format("stat", place, place, name) for place, name in enumerate(stats, 1)]
    return ProfileData.text_proto_to_serialized_xspace(f'planes {{ name: "/host:CPU" {lines} {" ".join(known)} }}')


def test_completion_event_on_another_thread_counts(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "profile" / "2026_11_22"
    folder.mkdir(parents=True)
    (folder / "vm.xplane.pb").write_bytes(xspace())
    found = read_recording(tmp_path, "jit_f", {"wrapped_tanh", "dot.1", "copy.2"})
    assert found.unavailable is None
    (run,) = found.runs.values()
    assert (run.start_ns, run.end_ns) == (1_000, 10_000)
    assert sorted(run.events, key=lambda event: event.start_ns) == [
        Event("wrapped_tanh", 2_000, 5_000),
        Event("dot.1", 6_000, 6_900),
        Event("copy.2", 8_000, 8_300),
    ]


READING = """
import gc, sys
from pathlib import Path
from mithril_nb.analysis.measure.runs import read_recording
for _ in range(3):
    gc.collect()  # collects the type of the data unless something references it
    print(read_recording(Path(sys.argv[1]), "jit_f", {"dot.1"}).planes)
"""


def test_a_trace_is_read_where_warnings_are_errors(tmp_path: Path) -> None:
    (tmp_path / "vm.xplane.pb").write_bytes(xspace())
    assert run_fresh(READING, str(tmp_path)) == "('/host:CPU',)\n" * 3  # a fresh process: the first trace that it reads


def test_a_folder_without_a_trace_has_a_reason(tmp_path: Path) -> None:
    assert read_recording(tmp_path, "jit_f", IDS).unavailable == "the profiler wrote no file"
