"""Profiler events: when each instruction ran, and how the time of a run is divided among its instructions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jax.profiler import ProfileData

from mithril_nb.stages.hlo.module import HloModule
from mithril_nb.stages.jax_jit import hold_types_of_stats
from mithril_nb.stages.records import Stage

MARKER = "mithril_nb run"
"""Name of the profiler's annotation around each run. Its attribute `RUN` is the number of the run."""
RUN = "run"
NAMED = "hlo_op"
"""Attribute of the events of instructions on every platform; its value is the name of the instruction."""
MODULE = "hlo_module"
PROGRAM = "program_id"
DEVICE_PLANE = "/device:"
"""Prefix of the planes of accelerators. A plane is the profiler's group of events of one device or of the host."""
TRIED_PLANES = ("/host:CPU", "/device:GPU")
"""Prefixes of the planes whose event format was verified, on a CPU and on an H100 (JAX 0.11.2). Events of other planes
are read in the same way, with a note."""
# XLA's CPU runtime writes a second event when an instruction completes, maybe on another thread. Attribute `_p` of the
# first event equals attribute `_c` of the second. If there is no second event, the end of the first one counts.
_THROUGH, _GIVES, _TAKES = "end: ", "_p", "_c"


@dataclass(frozen=True)
class Event:
    """One execution of an instruction."""

    id: str
    start_ns: float
    end_ns: float


@dataclass
class RunEvents:
    """The events of one run of a program: the executions of its instructions.

    Attributes:
        start_ns: Time of the call in nanoseconds, by the profiler's clock.
        end_ns: Time when the results were ready, by the same clock.
        events: The executions that started between these two times.
    """

    start_ns: float
    end_ns: float
    events: list[Event] = field(default_factory=list)


@dataclass(frozen=True)
class Recording:
    """The profiler's events of one program: the executions of its instructions.

    Attributes:
        runs: The runs of the program in order. The keys are the numbers given to `Runner.run`.
        planes: Names of the profiler's planes with these events. A plane is one device or the host, such as
            `"/device:GPU:0"`.
        unavailable: The reason why there are no events; `None` if there are some.
    """

    runs: Mapping[int, RunEvents]
    planes: tuple[str, ...] = ()
    unavailable: str | None = None


@dataclass(frozen=True)
class _Raw:
    plane: str
    id: str
    module: str
    program: Any
    start_ns: float
    end_ns: float


def read_recording(folder: Path, module: str, ids: Collection[str]) -> Recording:
    """Return the events of one program from the profiler's files.

    Args:
        folder: The folder that the profiler wrote.
        module: Name of the program's HLO module.
        ids: Names of the instructions of the module.
    """
    files = sorted(folder.rglob("*.xplane.pb"))
    if not files:
        return Recording({}, unavailable="the profiler wrote no file")
    runs: dict[int, RunEvents] = {}
    raw_events: list[_Raw] = []
    hold_types_of_stats()
    for file in files:
        for plane in ProfileData.from_file(str(file)).planes:
            raw_events.extend(_events_of(plane, runs))
    return _recording(dict(sorted(runs.items())), raw_events, module, ids)


def _events_of(plane: Any, runs: dict[int, RunEvents]) -> Iterator[_Raw]:
    """Yield the executions of instructions on one plane, and add the runs that are annotated on it to `runs`."""
    begun: list[tuple[Any, dict[str, Any]]] = []
    through: dict[Any, float] = {}
    for line in plane.lines:
        for event in line.events:
            name = event.name
            if name.startswith(_THROUGH):
                through[dict(event.stats).get(_TAKES)] = event.start_ns
                continue
            stats = dict(event.stats)
            if NAMED in stats:
                begun.append((event, stats))
            elif name == MARKER and RUN in stats:
                runs[int(stats[RUN])] = RunEvents(event.start_ns, event.end_ns)
    for event, stats in begun:
        end_ns = through.get(stats.get(_GIVES), event.end_ns) if _GIVES in stats else event.end_ns
        yield _Raw(
            plane.name, str(stats[NAMED]), str(stats.get(MODULE, "")), stats.get(PROGRAM), event.start_ns,
            max(end_ns, event.start_ns),
        )  # fmt: skip


def _recording(runs: Mapping[int, RunEvents], raw_events: list[_Raw], module: str, ids: Collection[str]) -> Recording:
    if not runs:
        return Recording({}, unavailable="the profiler recorded no run of the program")
    if not raw_events:
        return Recording(runs, unavailable="the profiler of this platform records no instructions")
    if any(event.plane.startswith(DEVICE_PLANE) for event in raw_events):
        raw_events = [event for event in raw_events if event.plane.startswith(DEVICE_PLANE)]
    starts = [run.start_ns for run in runs.values()]
    numbers = list(runs)
    during: list[tuple[RunEvents, _Raw]] = []
    for event in raw_events:
        index = bisect_right(starts, event.start_ns) - 1
        if event.module == module and index >= 0 and event.start_ns <= runs[numbers[index]].end_ns:
            during.append((runs[numbers[index]], event))
    programs = {event.program for _, event in during}
    if len(programs) > 1:  # another thread ran a program of the same name: drop programs with other instructions
        strange = {event.program for _, event in during if event.id not in ids}
        programs -= strange
    if not during:
        return Recording(runs, unavailable=f"the profiler recorded no instruction of module {module!r}")
    if len(programs) != 1:
        return Recording(runs, unavailable=f"several programs called {module!r} ran at the same time")
    for run, event in during:
        if event.program in programs:
            run.events.append(Event(event.id, event.start_ns, event.end_ns))
    planes = {event.plane for _, event in during if event.program in programs}
    return Recording(runs, tuple(sorted(planes)))


@dataclass(frozen=True)
class RunTimes:
    """The time of one run, divided into parts that add up to `wall_ns`.

    Attributes:
        wall_ns: Time from the call until the results are ready.
        by_id: Time of each instruction. The time of a loop, branch or call excludes the instructions inside it.
        between_ns: Time between instructions.
        dispatch_ns: Time before the first and after the last instruction.
        events: Number of recorded executions of instructions.
    """

    wall_ns: float
    by_id: Mapping[str, float]
    between_ns: float
    dispatch_ns: float
    events: int


def callers_of(stage: Stage) -> Mapping[str, frozenset[str]]:
    """Return a dict from the id of each instruction to the ids of all loops, branches and calls around it."""
    module = HloModule.of(stage)
    if module is None:
        return {}
    called: dict[str, set[str]] = {}
    home: dict[str, str] = {}
    for body in module.computations.values():
        for instruction in body.by_id.values():
            home[instruction.id] = body.name
            for callee in module.called(instruction):
                called.setdefault(callee.name, set()).add(instruction.id)
    around: dict[str, frozenset[str]] = {}

    def outside(body: str) -> frozenset[str]:
        if body not in around:
            direct = called.get(body, set())
            around[body] = frozenset(direct).union(*(outside(home[id]) for id in direct))
        return around[body]

    return {id: outside(body) for id, body in home.items()}


def divided(run: RunEvents, callers: Mapping[str, frozenset[str]]) -> RunTimes:
    """Divide the time of a run among its instructions.

    Each moment belongs to the instruction that runs. If a loop and an instruction inside it run, the moment belongs to
    the inner one. Instructions that run at the same time on different threads or devices share the moment equally.

    Args:
        run: The events of the run.
        callers: For each instruction, the loops, branches and calls around it, as `callers_of` returns them.

    Examples:
        >>> from mithril_nb.analysis.measure.events import Event
        >>> run = RunEvents(0, 100, [Event("while", 10, 90), Event("dot", 20, 50), Event("tanh", 40, 70)])
        >>> times = divided(run, {"dot": frozenset({"while"}), "tanh": frozenset({"while"})})
        >>> times.by_id, times.dispatch_ns
        ({'while': 30.0, 'dot': 25.0, 'tanh': 25.0}, 20)
    """
    by_id = {event.id: 0.0 for event in run.events}
    points: list[tuple[float, bool, int]] = []
    for index, event in enumerate(run.events):
        start, end = max(event.start_ns, run.start_ns), min(event.end_ns, run.end_ns)
        if end > start:
            points += [(start, True, index), (end, False, index)]
    points.sort()  # at the same moment, ends come before starts
    wall = run.end_ns - run.start_ns
    if not points:
        return RunTimes(wall, by_id, 0.0, wall, len(run.events))
    between, before = 0.0, points[0][0]
    running: dict[int, str] = {}
    nobody: frozenset[str] = frozenset()
    for moment, begins, index in points:
        if moment > before:
            ids = list(running.values())
            outer = frozenset().union(*(callers.get(id, nobody) for id in ids)) if len(ids) > 1 else nobody
            inner = [id for id in ids if id not in outer]
            for id in inner:
                by_id[id] += (moment - before) / len(inner)
            if not inner:
                between += moment - before
            before = moment
        if begins:
            running[index] = run.events[index].id
        else:
            del running[index]
    dispatch = points[0][0] - run.start_ns + run.end_ns - points[-1][0]
    return RunTimes(wall, by_id, between, dispatch, len(run.events))
