"""Stages of a program, computed on first use, or in the background for the latest design."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict, cast

import jax

from mithril_nb.cost import Cost
from mithril_nb.errors import StageUnavailableError
from mithril_nb.inspection import Inspection
from mithril_nb.jobs import JobQueue, in_thread, rests
from mithril_nb.stages import Stage
from mithril_nb.stages.once import paused_collector
from mithril_nb.stages.stage_kinds import STAGE_KINDS, has_machine_code, stages_on
from mithril_nb.ui.session.analysis import Analysis
from mithril_nb.ui.session.commands import State, check_choice, problem_of, without_code

# Seconds without edits before XLA compiles, because a compilation cannot be cancelled.
_REST_S = 0.15

# For each time in the status line, the stage whose computation it measures.
STAGES_TIMED = {"trace": "jaxpr", "lower": "stablehlo", "optimize": "hlo", "compile": "hlo"}


class StatusFigures(TypedDict):
    """Times of the steps in seconds, and the share of FLOPs attributed to blocks; null if unknown."""

    trace_s: float | None
    lower_s: float | None
    optimize_s: float | None  # without code generation
    compile_s: float | None
    attributed: float | None


@dataclass(frozen=True)
class StageState:
    """State of a stage."""

    state: State = "empty"
    version: int = 0  # of the design that the text belongs to; 0 without a text
    elapsed_s: float | None = None  # to compute the text
    lines: int = 0
    message: str = ""  # why the stage is not ready


class StageMaker:
    """Computes the stages and costs of the current design, and keeps the latest computed results."""

    def __init__(self, lock: threading.RLock, changed: Callable[[], None], failed: Callable[[BaseException], None]):
        self._lock, self._changed, self._failed = lock, changed, failed
        self.states: dict[str, StageState] = dict.fromkeys(stages_on(jax.default_backend()), StageState())
        self.cost: Cost | None = None
        self.cost_version = 0
        self._made: dict[str, tuple[int, Inspection]] = {}
        self._wanted = {"jaxpr"}
        self._analysis: Analysis | None = None
        self._worker = JobQueue("mithril_nb-stages")

    def latest(self, name: str) -> tuple[int, Inspection] | None:
        """Return the version and program of the latest text of a stage; `None` without a text."""
        return self._made.get(name)

    def inspection_of(self, analysis: Analysis) -> Inspection:
        """Return the program of a design, prepared for the requested stages, so that it compiles only once."""
        return with_wanted_stages(analysis.inspection, self._wanted)

    def want(self, name: str) -> bool:
        """Compute a stage, and compute it again after each edit."""
        check_choice("stage", name, self.states, "jaxpr")
        if name in self._wanted:
            return False
        self._wanted.add(name)
        if self._analysis is not None:
            self.follow(self._analysis)
        return True

    def leave(self, name: str) -> bool:
        """Stop computing a stage, now and after edits."""
        check_choice("stage", name, STAGE_KINDS, "jaxpr")
        if name not in self._wanted:
            return False
        self._wanted.discard(name)
        if name in self.states and self.states[name].state == "loading":
            # XLA cannot be interrupted: its compilation ends in another thread, and the next request gets its result.
            self.states[name] = idle(self.states[name])
            if self._analysis is not None:
                self.follow(self._analysis)
            self._worker.abandon()
        return True

    def abandon(self) -> None:
        """Stop waiting for XLA, which compiles for another device."""
        self._worker.abandon()

    def follow(self, analysis: Analysis) -> None:
        """Compute the requested stages of a design, and cancel the work for an earlier design."""
        self._analysis = analysis
        self.states = {name: self.states.get(name, StageState()) for name in analysis.stages}
        for name, state in self.states.items():
            if not analysis.can_run:
                self.states[name] = idle(state, analysis.why_not)
            elif name in self._wanted and (state.version != analysis.version or state.state != "ready"):
                self.states[name] = replace(state, state="loading", message="")
            elif state.version and state.version != analysis.version:
                self.states[name] = idle(state)
        self._worker.submit(partial(self._work, analysis) if analysis.can_run else lambda _: None)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the requested stages are computed; return False on timeout."""
        return self._worker.wait(timeout_s)

    def figures(self) -> StatusFigures:
        """Return the data of the status line."""
        latest = {name: self._made.get(stage) for name, stage in STAGES_TIMED.items()}
        return figures_of({name: entry and entry[1] for name, entry in latest.items()}, self.cost)

    def end(self) -> None:
        """Cancel all work, and end the thread."""
        self._worker.end()

    # In the worker's thread

    def _work(self, analysis: Analysis, is_wanted: Callable[[], bool]) -> None:
        try:
            self._work_through(analysis, is_wanted)
        except Exception as error:  # the worker has no caller, so the front end shows it instead of the stages
            with self._lock:
                if self._analysis is analysis:
                    message = str(without_code(problem_of(error)))
                    for name, state in self.states.items():
                        if state.state == "loading":
                            self.states[name] = StageState("failed", state.version, message=message)
                    self._failed(error)

    def _work_through(self, analysis: Analysis, is_wanted: Callable[[], bool]) -> None:
        with paused_collector():
            with self._lock:  # the thread of an edit first sends the new graph, which takes longer beside this one
                has_cost = self.cost_version == analysis.version
            if not has_cost and not self._accept(analysis, "jaxpr", analysis.cost):
                return
        for name in analysis.stages:
            state = self.states.get(name, StageState())
            if name not in self._wanted or (state.state == "ready" and state.version == analysis.version):
                continue
            inspection = self.inspection_of(analysis)
            if STAGE_KINDS[name].needs == "compile" and not inspection.is_optimized and not rests(is_wanted, _REST_S):
                return
            if not is_wanted():
                return
            inspection.stage(name)
            if not self._accept(analysis, name):
                return

    def _accept(self, analysis: Analysis, stage: str = "", cost: Cost | None = None) -> bool:
        with self._lock:
            # Costs come with the jaxpr, but are shown without its pane, too.
            if self._analysis is not analysis or (cost is None and stage not in self._wanted):
                return False
            if cost is not None:
                self.cost, self.cost_version = cost, analysis.version
            if stage in self._wanted:
                computed = analysis.inspection.stage(stage)
                self._made[stage] = (analysis.version, analysis.inspection)
                self.states[stage] = state_of(computed, analysis.version, analysis.advice_for(computed))
            self._changed()
            return True


def idle(state: StageState, message: str = "") -> StageState:
    """Return the state of a stage that is no longer computed."""
    return replace(state, state="stale" if state.version else "empty", message=message)


def with_wanted_stages(inspection: Inspection, stages: Collection[str]) -> Inspection:
    """Set which stages of a program will be requested, before it compiles, and return the program."""
    # Without machine code, the compilation takes about 40 % less time.
    inspection.want(machine_code=has_machine_code(stages))
    return inspection


def figures_of(programs: Mapping[str, Inspection | None], cost: Cost | None) -> StatusFigures:
    """Return the data of the status line, from the programs whose times are shown, by the keys of `STAGES_TIMED`."""
    times = {f"{name}_s": program.elapsed.get(name) if program else None for name, program in programs.items()}
    return cast(StatusFigures, {**times, "attributed": cost.attributed_share if cost else None})


def state_of(stage: Stage, version: int, advice: str = "") -> StageState:
    """Return the state of a computed stage."""
    lines = stage.text.count("\n") + (stage.text != "" and not stage.text.endswith("\n"))
    if stage.unavailable is not None:
        message = f"{stage.unavailable}. {advice}" if advice else stage.unavailable
        return StageState("unavailable", version, None, lines, message)
    return StageState("ready", version, stage.elapsed_s, lines)


class LazyStages(Mapping[str, Stage]):
    """Stages by name."""

    def __init__(self, inspection: Inspection):
        self._inspection = inspection

    def __getitem__(self, name: str) -> Stage:
        try:
            return in_thread(self._inspection.stage, name)
        except StageUnavailableError as error:
            raise KeyError(name) from error

    def __contains__(self, name: object) -> bool:
        return name in self._inspection.stages

    def __iter__(self) -> Iterator[str]:
        return iter(self._inspection.stages)

    def __len__(self) -> int:
        return len(self._inspection.stages)

    def __repr__(self) -> str:
        computed = [name for name in self if self._inspection.has_stage(name)]
        return f"stages({', '.join(self)}; computed: {', '.join(computed) or 'none yet'})"
