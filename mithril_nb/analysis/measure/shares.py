"""Divide the time of a run among its instructions, so that no moment counts twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mithril_nb.analysis.measure.events import RunEvents
from mithril_nb.cost.hlo.module import HloModule
from mithril_nb.stages.records import Stage


@dataclass(frozen=True)
class RunTimes:
    """The time of one run, divided; the parts sum to the whole.

    Attributes:
        wall_ns: Time from the call until the results are ready.
        by_id: Time of each instruction, without the instructions that it runs.
        between_ns: Time between instructions.
        dispatch_ns: Time before the first and after the last instruction.
        events: Number of recorded events.
    """

    wall_ns: float
    by_id: Mapping[str, float]
    between_ns: float
    dispatch_ns: float
    events: int


def callers_of(stage: Stage) -> Mapping[str, frozenset[str]]:
    """Return, for each instruction, all loops, branches and calls that contain it."""
    module = HloModule.of(stage)
    if module is None:
        return {}
    called: dict[str, set[str]] = {}
    home: dict[str, str] = {}
    for body in module.computations.values():
        for one in body.by_id.values():
            home[one.id] = body.name
            for callee in module.called(one):
                called.setdefault(callee.name, set()).add(one.id)
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
    the inner one. Instructions that run at the same time on different threads or devices share it equally. So the
    parts sum to the time of the run.

    Args:
        run: The events of the run.
        callers: For each instruction, the loops, branches and calls that contain it.

    Examples:
        >>> from mithril_nb.analysis.measure.events import Event
        >>> run = RunEvents(0, 100, [Event("while", 10, 90), Event("dot", 20, 50), Event("tanh", 40, 70)])
        >>> times = divided(run, {"dot": frozenset({"while"}), "tanh": frozenset({"while"})})
        >>> times.by_id, times.dispatch_ns
        ({'while': 30.0, 'dot': 25.0, 'tanh': 25.0}, 20)
    """
    by_id = {event.id: 0.0 for event in run.events}
    points: list[tuple[float, bool, int]] = []
    for place, event in enumerate(run.events):
        start, end = max(event.start_ns, run.start_ns), min(event.end_ns, run.end_ns)
        if end > start:
            points += [(start, True, place), (end, False, place)]
    points.sort()  # At the same moment, ends come before starts.
    wall = run.end_ns - run.start_ns
    if not points:
        return RunTimes(wall, by_id, 0.0, wall, len(run.events))
    between, before = 0.0, points[0][0]
    running: dict[int, str] = {}
    nobody: frozenset[str] = frozenset()
    for moment, begins, place in points:
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
            running[place] = run.events[place].id
        else:
            del running[place]
    dispatch = points[0][0] - run.start_ns + run.end_ns - points[-1][0]
    return RunTimes(wall, by_id, between, dispatch, len(run.events))
