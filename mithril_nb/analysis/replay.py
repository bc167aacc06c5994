"""The steps of a run again, from its latest state without NaN on."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from mithril_nb.errors import RunStoreError, UnknownOptionError
from mithril_nb.inspection import Inspection
from mithril_nb.stages import jax_versions
from mithril_nb.train import Run
from mithril_nb.train.checkpoints.file import Saved, read
from mithril_nb.train.checkpoints.saver import step_of
from mithril_nb.train.processes import distributed, is_key
from mithril_nb.train.run.control import RUNS
from mithril_nb.train.runtime import Runtime
from mithril_nb.train.store.states import has_nan
from mithril_nb.train.store.stored import StoredRun, runs
from mithril_nb.train.store.tracking import TrackedRun
from mithril_nb.train.stream import Stream, batches_from, unpacked

_KEYS = ("threefry2x32", "rbg", "unsafe_rbg")


class Step(NamedTuple):
    """A step that was replayed.

    Attributes:
        number: The step, from 1.
        target: Function or inspection of the step.
        arguments: Its arguments.
        data: Names of the arrays of the batch.
        loss: Its loss.
        state: Names of the arrays of the state.
        after: The state after the step.
    """

    number: int
    target: Any
    arguments: tuple[Any, ...]
    data: tuple[str, ...]
    loss: float
    state: tuple[str, ...]
    after: list[Any]


def replayed(run: Run | StoredRun | TrackedRun, args: Sequence[Any]) -> Generator[Step]:
    """Yield the steps of a run again, up to the one whose loss is not finite.

    Args:
        run: The run.
        args: The inspection of the step and the batches, for a loop of another process.

    Raises:
        UnknownOptionError: Something is missing, or the steps give other losses than in the run.
    """
    if isinstance(run, Run):
        return _of_fit(run)
    live = run if isinstance(run, TrackedRun) else None
    if isinstance(run, StoredRun):
        tracked = (other for other in tuple(RUNS) if isinstance(other, TrackedRun) and other.graph is not None)
        live = next((other for other in tracked if other.folder.resolve() == run.folder.resolve()), None)
    else:
        run.flush()
        run = runs(run.folder.parent)[run.name]
    if not args and live is not None:
        args = [value for value in (live.graph, live.source) if value is not None]
    if len(args) != 2 or not isinstance(args[0], Inspection):
        is_fit = any((run.folder / "checkpoints").glob("step-*"))
        raise UnknownOptionError(
            f"run {run.name!r} cannot be replayed from its folder alone.",
            (("missing", "the model and the data" if is_fit else "the step as an inspection, and the batches"),),
            f"ml.find_nan(ml.fit(..., track={str(run.folder)!r}))  # as in the script; it continues at a checkpoint"
            if is_fit
            else "ml.find_nan(run, ml.inspect(step, *args), batches)  # or graph=ml.inspect(step, *args) in ml.track",
        )
    return _of_loop(run, *args)


def _of_fit(run: Run) -> Generator[Step]:
    plan, state = run._plan, run._state
    problem = state.problem
    why, advice = "", ""
    if type(state.runtime) is not Runtime or distributed().count > 1:
        why, advice = "it does not train with JAX in one process", "ml.compile(model, ml.JaxBackend())"
    elif run.state in ("running", "paused"):
        why, advice = "it is training", "run.stop()"
    elif problem is not None and problem.code != "TrainingError":
        why, advice = f"another error ended it: {problem.summary}", "run.wait()"
    if why:
        raise UnknownOptionError("the run cannot be replayed.", (("because", why),), advice)
    earlier = _stored_step(run) if run.state == "idle" else None
    if problem is None and earlier is None:
        raise without_nan(run)
    params, held = run._lent()
    first, per_epoch = state.step, plan.steps_per_epoch
    losses = dict(zip(*run.history.rows(0, ("step", "loss")).tolist(), strict=True))
    # The step that failed is not stored.
    last = min(run.steps, (earlier if earlier is not None else int(max(losses, default=0))) + 1)

    stream = plan.data if isinstance(plan.data, Stream) else None
    order: tuple[int, Any] = (0, ())
    restore = None if stream is None else stream.rewound(first)
    try:
        for number in range(first + 1, last + 1):
            epoch, index = divmod(number - 1, per_epoch)
            if order[0] != epoch + 1:
                order = (epoch + 1, plan.order(epoch + 1))
            rate = state.runtime.rate(state.rate_at(number - 1))
            batch = plan.batch(order[1], index)
            arguments = (params, held, rate, batch, *plan.keys(number - 1))
            program = plan.program(number)
            # The step overwrites its arguments.
            params, held, numbers = program(*state.runtime.copied((params, held)), *arguments[2:])
            loss = float(np.asarray(numbers)[0])
            if np.isfinite(loss) and losses.get(number, loss) != loss:
                raise _differs(run, number, losses[number], [loss])
            names = [_names(name, tree) for name, tree in (("params", params), ("opt_state", held), ("batch", batch))]
            after = jax.tree.leaves((params, held))
            yield Step(number, _with_loss(program), arguments, names[2], loss, (*names[0], *names[1]), after)
            if number == last and problem is not None and np.isfinite(loss):
                raise _differs(run, number, math.nan, [loss])
    finally:
        if restore is not None:
            restore()


def _stored_step(run: Run) -> int | None:
    """Return the last stored step of a run that continues at a checkpoint; `None` if it is in no folder of runs."""
    if run._state.saver is None:
        return None
    folder = run._state.saver.folder.parent
    try:
        return runs(folder.parent)[folder.name].step
    except RunStoreError:
        return None


def _with_loss(program: Callable[..., Any]) -> Callable[..., Any]:
    def step(params: Any, opt_state: Any, rate: Any, batch: Any, *keys: Any) -> Any:
        after, held, numbers = program(params, opt_state, rate, batch, *keys)
        return after, held, numbers[0]  # a metric may be NaN

    return step


def _names(name: str, tree: Any) -> tuple[str, ...]:
    return tuple(name + jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree))


def _of_loop(run: StoredRun, inspection: Inspection, batches: Any) -> Generator[Step]:
    history = run.history
    bad = {event["step"]: event["metric"] for event in reversed(run.events) if _is_bad(event, history)}
    if not bad:
        raise without_nan(run)
    # A loss may be infinite at first, before any checkpoint, and NaN later.
    last = max(bad)
    paths = sorted((path for path in run._files() if step_of(path) < last), key=step_of, reverse=True)
    saved = next((checkpoint for checkpoint in map(read, paths) if not has_nan(checkpoint.arrays.values())), None)
    if saved is None:
        raise UnknownOptionError(
            f"run {run.name!r} has no checkpoint without NaN before step {last}.",
            (
                ("missing", "the state before that step"),
                ("checkpoints", ", ".join(map(str, run.checkpoints)) or "none"),
            ),
            "ml.track(..., checkpoint_every=10, resume=False)  # or ml.find_nan(step, *args) with the first state",
        )
    losses = dict(zip(history["step"].tolist(), history[bad[last]].tolist(), strict=True))
    closed, inputs = inspection.traced_program.trace.closed, inspection.traced_program.trace.inputs
    kinds = saved.facts["kinds"]
    state = [saved.arrays[name] for name in kinds]
    takes = _aligned(state, closed.in_avals, [*kinds.values()])
    gives = _aligned(state, closed.out_avals, [*kinds.values()])
    if takes is None or gives is None:
        raise _unmatched(inspection, f"{'takes' if takes is None else 'returns'} no state of {len(state)} arrays", run)
    values: list[Any] = [None] * len(inputs)
    for index, array in zip(takes, state, strict=True):
        if index is not None:
            values[index] = _as_input(array, closed.in_avals[index])
    own = [index for index in takes if index is not None]
    rest = [index for index in range(len(inputs)) if index not in own]
    outputs = [index for index, at in zip(gives, takes, strict=True) if at is not None]
    call = jax.jit(jax_versions.jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, closed.consts)))
    source = batches_from(batches, saved.facts["fetched"], unpacked(saved.facts["loader"]))
    for number in range(saved.facts["step"] + 1, last + 1):
        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(next(source))]
        at = _aligned(leaves, [closed.in_avals[index] for index in rest], [""] * len(leaves))
        if at is None:
            raise _unmatched(inspection, f"takes no batch of {', '.join(str(leaf.shape) for leaf in leaves)}", run)
        data = [rest[index] for index in at if index is not None]
        for index, leaf in zip(data, leaves, strict=True):
            values[index] = leaf
        knobs = [index for index in rest if index not in data]
        results: list[Any] = []
        # A knob that was set during a step may count from the next one on.
        for until in (number, number - 1):
            settings = _knobs(saved, run.events, until)
            for index in knobs:
                name = inputs[index].name if len(settings) != 1 or len(knobs) != 1 else next(iter(settings))
                if name not in settings:
                    raise _unmatched(inspection, f"takes {inputs[index].name!r}, no state, batch or knob", run)
                values[index] = _as_input(np.asarray(settings[name]), closed.in_avals[index])
            results = call(*values)
            numbers = [float(value) for value in results if np.shape(value) == () and not is_key(value)]
            logged = losses.get(number, math.nan)
            is_same = logged in numbers or (not math.isfinite(logged) and not all(map(math.isfinite, numbers)))
            if is_same or not knobs or number not in losses:
                break
        if number in losses and not is_same:
            raise _differs(run, number, logged, numbers)
        names = [tuple(inputs[index].name for index in indices) for indices in (data, own)]
        after = [results[index] for index in outputs if index is not None]
        yield Step(number, inspection, tuple(values), names[0], losses.get(number, 0.0), names[1], after)
        for index, value in zip(own, after, strict=True):
            values[index] = value


def _is_bad(event: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> bool:
    """Return whether it is the event of a bad loss that no later start of the run has computed again as finite."""
    if "metric" not in event or event["metric"] not in history:
        return False
    losses = history[event["metric"]][history["step"] == event["step"]]
    return losses.size > 0 and not np.isfinite(losses).any()


def without_nan(run: Run | StoredRun | TrackedRun) -> UnknownOptionError:
    """Return the error for a run whose losses are finite."""
    name = "the run" if isinstance(run, Run) else f"run {run.name!r}"
    advice = "ml.find_nan(step, *args)  # with the state and batch of any step"
    if isinstance(run, Run) and run.state in ("idle", "stopped"):
        advice = f"run.{'wait' if run.state == 'idle' else 'resume'}()  # if it fails, ml.find_nan(run)"
    return UnknownOptionError(f"no loss of {name} is NaN or infinite.", (("step", str(run.step)),), advice)


def _knobs(saved: Saved, events: Sequence[Mapping[str, Any]], until: int) -> dict[str, float]:
    knobs = {name: knob["value"] for name, knob in saved.facts["knobs"].items()}
    changes = (event for event in events if "knob" in event and saved.facts["step"] <= event["step"] <= until)
    return knobs | {event["knob"]: event["value"] for event in changes}


def _aligned(values: Sequence[Any], avals: Sequence[Any], kinds: Sequence[str]) -> list[int | None] | None:
    """Return for each value the position of its array: the first run of arrays with the shapes and types of all.

    Python numbers, such as those in a module of Equinox, may be static.
    """
    for start in range(len(avals) + 1):
        positions: list[int | None] = []
        at = start
        for value, kind in zip(values, kinds, strict=True):
            if at < len(avals) and _fits(value, avals[at]):
                positions.append(at)
                at += 1
            elif kind == "python":
                positions.append(None)
            else:
                break
        if len(positions) == len(values) and any(position is not None for position in positions):
            return positions
    return None


def _fits(value: Any, aval: Any) -> bool:
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return is_key(value) or (np.shape(value)[: len(aval.shape)] == aval.shape and value.dtype == np.uint32)
    is_number = np.shape(value) == () and not is_key(value)
    return np.shape(value) == aval.shape and (is_number or value.dtype == aval.dtype)


def _as_input(value: Any, aval: Any) -> Any:
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        impl = next(name for name in _KEYS if jax.random.key(0, impl=name).dtype == aval.dtype)
        return jax.random.wrap_key_data(jnp.asarray(value), impl=impl)
    return jnp.asarray(value, aval.dtype)


def _unmatched(inspection: Inspection, why: str, run: StoredRun) -> UnknownOptionError:
    takes = ", ".join(f"{leaf.name} {leaf.spec}" for leaf in inspection.traced_program.trace.inputs)
    return UnknownOptionError(
        f"the steps of run {run.name!r} cannot be repeated by program {inspection.name!r}.",
        (("because", f"it {why}"), ("takes", takes)),
        "ml.find_nan(step, *args)  # with the arguments of the failing step",
    )


def _differs(run: Any, number: int, logged: float, numbers: Sequence[float]) -> UnknownOptionError:
    return UnknownOptionError(
        f"the replay of {run!r} differs from the run at step {number}.",
        (
            ("loss of the run", repr(logged)),
            ("replay", ", ".join(map(repr, numbers)) or "no numbers"),
            ("because", "the step, the data or their order, or a setting is not that of the run"),
        ),
        "ml.find_nan(step, *args)  # with the arguments of the failing step",
    )
