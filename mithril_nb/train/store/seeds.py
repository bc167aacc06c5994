"""The seeds of a trial of `ml.search`: runs of `ml.fit` whose steps JAX computes as one batch, where it can."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.stages.trace.equations import each_equation
from mithril_nb.train.checkpoints.equations import hash_of_programs
from mithril_nb.train.losses import parameters_of
from mithril_nb.train.processes import distributed
from mithril_nb.train.run.events import TrainingEvent
from mithril_nb.train.run.handle import Run
from mithril_nb.train.runtime import Runtime
from mithril_nb.train.store.following import ENDS, EVERY_S, rows_after
from mithril_nb.train.store.tracking import TrackedRun
from mithril_nb.train.stream import Stream
from mithril_nb.train.trainable import is_jitted

_POLL_S = 0.05  # a run that ends does not notify the runs that wait for its step


def check_seeds(make: Callable[..., Any], seeds: Any, space: Mapping[str, Any]) -> None:
    """Raise if the seeds of each trial are no number from 2, or `make` cannot train one of them."""
    if not isinstance(seeds, int) or seeds < 2:
        raise UnknownOptionError("seeds must be a number from 2.", (("got", short_repr(seeds)),), "seeds=4")
    if "seed" in space:
        facts = (("space", ", ".join(space)),)
        advice = 'ml.search(make, {"rate": (1e-4, 1e-1, "log")}, seeds=4)'
        raise UnknownOptionError("with seeds=, the space cannot have a setting seed.", facts, advice)
    names = parameters_of(make)
    if "seed" not in names or "run" in names:
        because = "run would receive the rows of several seeds" if "run" in names else "seed is missing"
        facts = (("parameters", ", ".join(names) or "unknown"), ("because", because))
        raise UnknownOptionError("with seeds=, make must take seed, and not run.", facts, "def make(rate, seed): ...")


def train_seeds(
    make: Callable[..., Any], settings: Mapping[str, Any], seeds: int, tracked: TrackedRun, metric: str
) -> None:
    """Train a trial with each seed, and log the mean of the metric, its spread, and its values by seed."""
    results = [make(**settings, seed=seed) for seed in range(seeds)]
    if all(isinstance(result, Run) for result in results):
        values = _Seeds(results, tracked).train(metric)
    elif any(isinstance(result, Run) or result is None for result in results):
        facts = (("got", ", ".join(type(result).__name__ for result in results)),)
        raise UnknownOptionError("with seeds=, make must return a run of ml.fit, or the value of the metric.", facts)
    else:
        _warn("make returns a number, not a run of ml.fit")
        values = [float(result) for result in results]
    if len(values) == seeds:
        spread = np.std(values, ddof=1)
        logged = {metric: np.mean(values), f"{metric}_spread": spread, f"{metric}_by_seed": np.array(values)}
        tracked.step = max(tracked.step, 1)
        tracked.append(tracked.step, tracked.elapsed_s, logged)


def _warn(because: str) -> None:
    text = f"the seeds of a trial train one after another: {because}."
    warnings.warn(text, RuntimeWarning, stacklevel=2)


class _Seeds:
    """The runs of a trial, which are steered as one. The rows of the trial are means over the steps that all took."""

    def __init__(self, runs: Sequence[Run], tracked: TrackedRun):
        self._runs, self._tracked = runs, tracked
        self._count, self._is_stopped, self._mutex = 0, False, threading.Lock()
        tracked.steered = self
        tracked._change({"steps": max(run.steps for run in runs)})
        rate = runs[0].learning_rate
        tracked.knob("learning_rate", rate, log=rate > 0)

    def train(self, metric: str) -> list[float]:
        """Train, and return the last value of the metric of each run that has one; of none if they were stopped."""
        runs = self._runs
        removals = [run.observe(self._copy, EVERY_S) for run in runs]
        try:
            if because := _obstacle(runs):
                _warn(because)
            else:
                _Lanes(runs)
                for run in runs:
                    run.start()
            for run in runs:
                if not self._is_stopped or run.state != "idle":
                    run.wait()
        finally:
            self.stop()
            for run, remove in zip(runs, removals, strict=True):
                while run._is_driven:
                    run._has_ended.wait(_POLL_S)
                remove()
        self._copy()
        if stopped := [run.message for run in runs if run.state == "stopped"]:
            self._tracked.finish("stopped", reason=stopped[0])
            return []
        latest = [{name: value for row in rows_after(run, 0) for name, value in row[2].items()} for run in runs]
        return [numbers[metric] for numbers in latest if metric in numbers]

    def _copy(self, event: TrainingEvent | None = None) -> None:
        tracked = self._tracked
        with self._mutex:
            for rows in zip(*(rows_after(run, self._count) for run in self._runs), strict=False):
                self._count += 1
                steps, seconds, numbers = zip(*rows, strict=True)
                if len({*steps}) == 1:
                    names = [name for name in numbers[0] if all(name in others for others in numbers)]
                    tracked.step = steps[0]
                    means = {name: np.mean([others[name] for others in numbers]) for name in names}
                    tracked.append(steps[0], float(np.mean(seconds)), means)
            state = {"paused": "paused", "resumed": "running"}.get("" if event is None else event.kind, tracked.state)
            if state != tracked.state:
                tracked.mark(state)
        if event is not None and event.kind == "failed":
            self.stop()

    def set(self, name: str, value: float) -> None:
        for run in self._runs:
            run.learning_rate = value  # raises the error of a negative rate
        self._tracked.set(name, value)

    def stop(self) -> None:
        self._is_stopped = True
        for run in self._driven:
            run.stop()

    def pause(self) -> None:
        for run in self._driven:
            run.pause()

    def resume(self) -> None:
        for run in self._driven:
            run.resume()

    def step_once(self, steps: int = 1) -> None:
        for run in self._driven:
            run.step_once(steps)

    @property
    def _driven(self) -> list[Run]:
        return [run for run in self._runs if run._is_driven]


def _arguments(run: Run) -> tuple[Any, ...]:
    """Return arguments of the step of a run that has not begun, in the shapes of its first step."""
    plan, state = run._plan, run._state
    data = plan.data.check(plan.data.first) if isinstance(plan.data, Stream) else plan.data
    batch = data.take(np.arange(plan.batch_size))
    return (state.params, state.opt_state, plan.runtime.rate(state.learning_rate), batch, *plan.keys(0))


def _obstacle(runs: Sequence[Run]) -> str:
    """Return why the steps of runs cannot be computed as one batch; `""` if they can."""
    if any(run.state != "idle" for run in runs):
        return "make returns a run that has begun"
    plans = [run._plan for run in runs]
    if distributed().count > 1 or any(type(plan.runtime) is not Runtime or not is_jitted(plan.model) for plan in plans):
        return "their steps are not jitted by JAX in one process"
    if any(plan.norms is not None for plan in plans):
        return "norms= has steps of another program"
    iterables = [plan.data.source for plan in plans if isinstance(plan.data, Stream)]
    if len({*map(id, iterables)}) < len(iterables) and not isinstance(iterables[0], list | tuple):
        return "they take batches of one iterable"  # in an order that depends on their threads
    hashes: set[int] = set()
    try:
        arguments = [_arguments(run) for run in runs]
        for run, plan, values in zip(runs, plans, arguments, strict=True):
            states = (run._state.model_state,) if run._state.model_state else ()
            programs = [
                jax.make_jaxpr(plan.step)(*values),
                jax.make_jaxpr(plan.evaluate)(values[0], values[3], *states),
            ]
            for equation in (each for program in programs for each in each_equation(program.jaxpr)):
                if because := _varies(equation):
                    return because
            hashes.add(hash_of_programs(*programs))
        if len(hashes) > 1:
            return "their programs differ in more than the params and the data"
        step = plans[0].step
        batched = jax.eval_shape(lambda trees: _unstacked(jax.vmap(step)(*_stacked(trees)))[0], arguments)
        if jax.tree.flatten(jax.eval_shape(step, *arguments[0])) != jax.tree.flatten(batched):
            return "a batch of their steps has other dtypes"
    except Exception as error:  # JAX documents none: an operation may have no rule for batches
        return f"JAX cannot batch their steps. {type(error).__name__}: {error}"
    return ""


def _varies(equation: Any) -> str:
    """Return why an equation may have other results in a batch, or for another seed; `""` if it has the same."""
    name = equation.primitive.name
    if "callback" in name:
        return f"they call Python in {name}, and the functions may differ"
    dtypes = [str(getattr(atom.aval, "dtype", "")) for atom in (*equation.invars, *equation.outvars)]
    if name.startswith("rng_") or any(dtype.startswith("key<") and dtype != "key<fry>" for dtype in dtypes):
        return f"random numbers of {name} are others in a batch"
    return ""


@jax.jit
def _stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@jax.jit
def _unstacked(tree: Any) -> list[Any]:
    count = len(jax.tree.leaves(tree)[0])
    return [jax.tree.map(lambda leaf, row=row: leaf[row], tree) for row in range(count)]


class _Lanes:
    """Where the steps of several runs meet, each in its thread. When all have arrived, one program computes them."""

    def __init__(self, runs: Sequence[Run]):
        first = runs[0]._plan
        self._runs, self._step, self._condition = runs, first.step, threading.Condition()
        self._calls: dict[int, tuple[Any, ...]] = {}
        self._results: dict[int, Any] = {}
        self._batched = first.runtime.compiled(jax.vmap(first.step), "train step of seeds", donated=(0, 1))
        for lane, run in enumerate(runs):
            run._plan = replace(run._plan, step=partial(self.step, lane), evaluate=first.evaluate)

    def step(self, lane: int, *arguments: Any) -> Any:
        with self._condition:
            self._calls[lane] = arguments
            while lane in self._calls:
                if all(other in self._calls or run.state in ENDS for other, run in enumerate(self._runs)):
                    calls, self._calls = self._calls, {}
                    try:
                        self._results |= self._computed(calls)
                    except Exception as error:  # of all runs, whose arguments may be donated
                        self._results |= dict.fromkeys(calls, error)
                    self._condition.notify_all()
                else:
                    self._condition.wait(_POLL_S)
            result = self._results.pop(lane)
        if isinstance(result, Exception):
            raise result
        return result

    def _computed(self, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        arguments = [*calls.values()]
        shapes = [jax.tree.map(np.shape, values[3]) for values in arguments]  # of the batches: no other shapes change
        if any(other != shapes[0] for other in shapes):  # such as a last batch that is not full
            return {lane: self._step(*values) for lane, values in calls.items()}
        # Copies of the first take the lanes of ended runs: another number of lanes would compile again. Stacks are
        # programs of their own: XLA for CPUs compiles one with the step in more than the time of both.
        missing = [arguments[0]] * (len(self._runs) - len(calls))
        return dict(zip(calls, _unstacked(self._batched(*_stacked([*arguments, *missing]))), strict=False))
