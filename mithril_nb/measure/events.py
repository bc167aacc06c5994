"""What the profiler wrote down: when each instruction of a program ran, in each of its runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jax.profiler import ProfileData

from mithril_nb.stages.jax_jit import hold_types_of_stats

MARKER = "mithril_nb run"
"""Name of the annotation around each run; its `RUN` says which."""
RUN = "run"
NAMED = "hlo_op"
"""The stat that makes an event one of an instruction, on every platform; its value is the name of the instruction."""
MODULE = "hlo_module"
PROGRAM = "program_id"
DEVICE_PLANE = "/device:"
"""How the names of planes begin that hold what accelerators did; on a CPU the threads of the host do the work."""
TRIED_PLANES = ("/host:CPU",)
"""Planes whose events were seen to be what is said here; those of others are read the same way, and a note says so."""
# XLA's CPU runtime writes a second event when an instruction is through, maybe on another thread: `_p` of the first is
# `_c` of the second. Without it, an instruction is through when its event ends.
_THROUGH, _GIVES, _TAKES = "end: ", "_p", "_c"


@dataclass(frozen=True)
class Event:
    """One time that an instruction ran.

    Attributes:
        id: Name of the instruction.
        start_ns: When it began.
        end_ns: When it was through.
    """

    id: str
    start_ns: float
    end_ns: float


@dataclass
class RunEvents:
    """One run of the program.

    Attributes:
        start_ns: When it was called.
        end_ns: When its results were there.
        events: What ran meanwhile.
    """

    start_ns: float
    end_ns: float
    events: list[Event] = field(default_factory=list)


@dataclass(frozen=True)
class Recording:
    """What the profiler wrote down of one program.

    Attributes:
        runs: Its runs, in order, by their number.
        planes: Names of the planes that its events stand on.
        unavailable: Why there are no events, or `None`.
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
    """Return what the profiler wrote into a folder about one program.

    Args:
        folder: Where it wrote.
        module: Name of the program's HLO module.
        ids: Names of its instructions.
    """
    files = sorted(folder.rglob("*.xplane.pb"))
    if not files:
        return Recording({}, unavailable="the profiler wrote no file")
    runs: dict[int, RunEvents] = {}
    found: list[_Raw] = []
    hold_types_of_stats()
    for file in files:
        for plane in ProfileData.from_file(str(file)).planes:
            found.extend(_events_of(plane, runs))
    return _recording(dict(sorted(runs.items())), found, module, ids)


def _events_of(plane: Any, runs: dict[int, RunEvents]) -> Iterator[_Raw]:
    """Yield the instructions on one plane, and add the runs that are marked on it."""
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


def _recording(runs: Mapping[int, RunEvents], found: list[_Raw], module: str, ids: Collection[str]) -> Recording:
    if not runs:
        return Recording({}, unavailable="the profiler wrote down no run of the program")
    if not found:
        return Recording(runs, unavailable="the profiler of this platform tells of no instructions")
    if any(one.plane.startswith(DEVICE_PLANE) for one in found):
        found = [one for one in found if one.plane.startswith(DEVICE_PLANE)]
    starts = [run.start_ns for run in runs.values()]
    numbers = list(runs)
    during: list[tuple[RunEvents, _Raw]] = []
    for one in found:
        place = bisect_right(starts, one.start_ns) - 1
        if one.module == module and place >= 0 and one.start_ns <= runs[numbers[place]].end_ns:
            during.append((runs[numbers[place]], one))
    programs = {one.program for _, one in during}
    if len(programs) > 1:  # Another thread ran a program of the same name: ours has only instructions that we know.
        strange = {one.program for _, one in during if one.id not in ids}
        programs -= strange
    if not during:
        return Recording(runs, unavailable=f"the profiler tells of no instruction of module {module!r}")
    if len(programs) != 1:
        return Recording(runs, unavailable=f"several programs called {module!r} ran at the same time")
    for run, one in during:
        if one.program in programs:
            run.events.append(Event(one.id, one.start_ns, one.end_ns))
    planes = {one.plane for _, one in during if one.program in programs}
    return Recording(runs, tuple(sorted(planes)))
