"""A run of `ml.fit` in the store of runs: its metrics, its checkpoints, its end."""

from __future__ import annotations

import math
import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mithril_nb.train.processes import distributed
from mithril_nb.train.run.events import TrainingEvent
from mithril_nb.train.run.handle import Run
from mithril_nb.train.store.database import Database
from mithril_nb.train.store.origin import code_of, plain
from mithril_nb.train.store.tracking import TrackedRun, claimed, locked, opened, unfinished

EVERY_S = 0.25
ENDS = ("done", "stopped", "failed")


def upcoming(path: str) -> tuple[Path, bool]:
    """Return the folder of the run that `entered` would continue or begin, and whether it continues one."""
    database, name = opened(path)
    try:
        chosen = unfinished(database, name, True)
        return database.folder / chosen, chosen in database.names() and database.summary(chosen)["step"] > 0
    finally:
        database.close()


def entered(path: str, frame: types.FrameType, config: Mapping[str, Any], *, continues: bool) -> Path:
    """Enter a run of `ml.fit` into the store, and return its folder.

    Nothing is refused here: `fit` has compared model, data, loss and optimizer with the checkpoint.
    """
    sources, _ = code_of(frame)
    origin = {"config": plain(config), "code": sources, "values": {}, "graph": None}
    database, name, lock = claimed(path, origin, "anyway" if continues else False)
    try:
        if distributed().is_main:
            database.change(name, {"state": "stopped"})
        return database.folder / name
    finally:
        lock.release()  # until the run trains
        database.close()


def follow(run: Run, folder: Path, tracked: TrackedRun | None = None, sinks: Sequence[Any] = ()) -> None:
    """Copy the rows of a run to the stored run of a folder at its events; to `tracked` if it is open already."""
    follower = _Follower(run, folder, tracked, sinks)
    run.observe(follower.copy, EVERY_S)
    if tracked is not None and run.state in ENDS and run._state.latest is not None:  # no event will come
        follower.copy(run._state.latest)


def rows_after(run: Run, count: int) -> Iterator[tuple[int, float, dict[str, float]]]:
    """Yield the rows of a run after the first `count`: step, seconds, and the metrics with a value."""
    names = run.history.columns
    rows = run.history.rows(count, names).T
    # A validation may give NaN; in other rows, NaN is a column without a value.
    validated, scores = {*run.history.validated}, {f"validation_{name}" for name in run.validation}
    for index, row in enumerate(rows.tolist(), count):
        filled = scores if index in validated else ()
        pairs = zip(names, row, strict=True)
        numbers = {name: value for name, value in pairs if name in filled or not math.isnan(value)}
        yield int(numbers.pop("step")), numbers.pop("elapsed_s", 0.0), numbers


class _Follower:
    def __init__(self, run: Run, folder: Path, tracked: TrackedRun | None, sinks: Sequence[Any]):
        self._run, self._folder = weakref.ref(run), folder  # the run holds this object by its listener
        self._tracked, self._sinks, self._sent_step = tracked, sinks, run.step or -1
        self._version, self._count = -1, 0
        if tracked is not None:
            self._steer(tracked, run)

    def copy(self, event: TrainingEvent) -> None:
        run = self._run()
        if run is None or (self._tracked is None and event.kind in ENDS and not len(run.history)):
            return
        if self._tracked is None:
            database = Database(self._folder.parent)
            self._tracked = TrackedRun(
                database, self._folder.name, locked(database, self._folder.name), sinks=self._sinks
            )
            self._tracked.sends_after = self._sent_step
            self._steer(self._tracked, run)
        tracked = self._tracked
        if run.history.version != self._version:  # the run is new, resumed, or went back to an earlier step
            self._version, self._count = run.history.version, 0
            tracked.restart()
        for tracked.step, elapsed_s, numbers in rows_after(run, self._count):
            self._count += 1
            tracked.append(tracked.step, elapsed_s, numbers)
        if event.kind in ("paused", "resumed"):
            tracked.mark("paused" if event.kind == "paused" else "running")
        if event.kind in ENDS:
            reason = {} if event.kind == "done" else {"reason": event.message}
            tracked.finish(event.kind, elapsed_s=event.elapsed_s, **reason)
            self._tracked, self._sent_step = None, tracked.step

    def _steer(self, tracked: TrackedRun, run: Run) -> None:
        tracked.steered, self._version = self, -1
        tracked._change({"steps": run.steps})
        # The first rate of a warm-up is 0, which a logarithmic slider lacks.
        tracked.knob("learning_rate", run.learning_rate, log=run.learning_rate > 0)

    def set(self, name: str, value: float) -> None:
        if (run := self._run()) is not None and self._tracked is not None:
            run.learning_rate = value  # raises the error of a negative rate
            self._tracked.set(name, value)

    def __getattr__(self, action: str) -> Any:
        return getattr(self._run(), action)
