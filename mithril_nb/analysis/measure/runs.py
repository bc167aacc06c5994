"""Runs of a compiled program, with and without the profiler in turns, on the user's arrays or placeholder values."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.analysis.measure.events import MARKER, RUN, Recording, RunEvents, read_recording
from mithril_nb.errors import ProfilingError, UnexpectedInputError
from mithril_nb.inspection.inspection import Inspection
from mithril_nb.stages.failure import failure_of
from mithril_nb.stages.records import Input
from mithril_nb.targets.arrays import NUMBERS

_MOST_NAMES = 4
_SEED = 0
_DRAWN = 1 << 16
"""Number of random values that are drawn for a placeholder; larger arrays repeat them."""
_SPREAD = 0.02
"""Standard deviation of placeholder parameters, as in many initializers: activations neither grow nor vanish."""


@dataclass(frozen=True)
class Values:
    """The arguments of one run of a program.

    Attributes:
        leaves: The arrays in the order of the program's inputs, on the devices that the program needs.
        structure: The tree structure of the arguments, `(args, kwargs)`.
        donated: For each of `leaves`, true if the program donates the array, so that a run invalidates it.
        placeholders: Names of the inputs with placeholder values.
    """

    leaves: tuple[Any, ...]
    structure: Any
    donated: tuple[bool, ...]
    placeholders: tuple[str, ...]

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of one run. Donated arrays are copied, because the next run needs them again."""
        leaves = [
            leaf.copy() if is_donated and not _is_number(leaf) else leaf
            for leaf, is_donated in zip(self.leaves, self.donated, strict=True)
        ]
        jax.block_until_ready(leaves)
        return jax.tree.unflatten(self.structure, leaves)

    @property
    def notes(self) -> tuple[str, ...]:
        """A note that lists the inputs with placeholder values; empty if there are none."""
        if not self.placeholders:
            return ()
        names = ", ".join(self.placeholders[:_MOST_NAMES])
        more = f", and {len(self.placeholders) - _MOST_NAMES} more" if len(self.placeholders) > _MOST_NAMES else ""
        return (f"placeholder values for {names}{more}: integers are 0, other numbers small and random",)


def values_for(inspection: Inspection, args: tuple[Any, ...]) -> Values:
    """Return the arguments for running a compiled program.

    Args:
        inspection: The program; it is compiled if necessary.
        args: The user's arrays for all inputs, for the last ones, or none. Missing inputs and
            `jax.ShapeDtypeStruct`s get placeholder values.

    Raises:
        UnexpectedInputError: The program does not accept these arrays.
    """
    compiled, inputs = inspection.compiled, inspection.inputs
    avals = jax.tree.leaves(compiled.in_avals)
    shardings = jax.tree.leaves(compiled.input_shardings, is_leaf=lambda leaf: leaf is None)
    donated = tuple(
        info.donated
        for info in jax.tree.leaves(inspection.lowered.args_info, is_leaf=lambda leaf: hasattr(leaf, "donated"))
    )
    passed = _fitting(inspection, args, avals, inputs)
    padded = [None] * (len(avals) - len(passed)) + passed
    leaves: list[Any] = []
    placeholders: list[str] = []
    for index, (leaf, aval, argument) in enumerate(zip(padded, avals, inputs, strict=True)):
        if leaf is None or isinstance(leaf, jax.ShapeDtypeStruct):
            leaf = _placeholder(aval, bool(argument.is_param), index)
            placeholders.append(argument.name)
        # Keep a Python number: it has a weak type, which an array made from it would not have.
        leaves.append(leaf if _is_number(leaf) else _put(leaf, aval, shardings[index]))
    return Values(tuple(leaves), compiled.in_tree, donated, tuple(placeholders))


def _fitting(inspection: Inspection, args: tuple[Any, ...], avals: Sequence[Any], inputs: Sequence[Input]) -> list[Any]:
    """Return the leaves of `args` that are inputs of the program.

    Python numbers may be inputs or static arguments. They are returned if all leaves together fit the inputs, and left
    out if only the arrays fit.

    Raises:
        UnexpectedInputError: The shapes, dtypes or number of the leaves do not fit.
    """
    leaves = [leaf for leaf in jax.tree.leaves(args) if _is_array(leaf) or _is_number(leaf)]
    for candidates in (leaves, [leaf for leaf in leaves if _is_array(leaf)]):
        expected = avals[len(avals) - len(candidates) :] if len(candidates) <= len(avals) else ()
        if len(candidates) == len(expected) and all(
            _fits(leaf, aval) for leaf, aval in zip(candidates, expected, strict=True)
        ):
            return candidates
    raise UnexpectedInputError(
        f"program {inspection.name!r} does not take these arguments.",
        (
            ("takes", ", ".join(f"{argument.name} {argument.spec}" for argument in inputs) or "nothing"),
            ("given", ", ".join(_describe(leaf) for leaf in leaves)),
        ),
        "ml.profile(inspection)  # with placeholder values of the right shapes",
    )


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, NUMBERS) and not isinstance(leaf, np.generic)


def _fits(leaf: Any, aval: Any) -> bool:
    if _is_number(leaf):
        return aval.shape == () and jnp.result_type(leaf) == aval.dtype
    return (
        tuple(leaf.shape) == tuple(aval.shape)
        and jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True) == aval.dtype
    )


def _describe(leaf: Any) -> str:
    return f"{tuple(leaf.shape)} {leaf.dtype}" if _is_array(leaf) else repr(leaf)


def _put(leaf: Any, aval: Any, sharding: Any) -> Any:
    if isinstance(leaf, np.ndarray | np.generic):
        leaf = jnp.asarray(np.asarray(leaf, aval.dtype))
    # `device_put` keeps the layout: JAX rejects 4-bit integers in a layout other than the one it compiled for.
    return leaf if leaf.sharding == sharding else jax.device_put(leaf, sharding)


def _placeholder(aval: Any, is_param: bool, index: int) -> Any:
    if not jnp.issubdtype(aval.dtype, jnp.inexact):
        return jnp.zeros(aval.shape, aval.dtype)
    draw = np.random.default_rng((_SEED, index))
    # Data and optimizer state must not be negative: optimizers take square roots.
    numbers = draw.normal(0, _SPREAD, _DRAWN) if is_param else draw.random(_DRAWN)
    return np.resize(numbers.astype(aval.dtype), aval.shape)


_TURNS = 4
"""Number of turns. A turn is some runs without the profiler, then as many with it, so that a change of the machine's
speed affects both."""
_WAITING = threading.Lock()
"""Held while the profiler is in use: JAX has one per process, so a second thread waits."""


@dataclass(frozen=True)
class Runs:
    """The measurements of one profile.

    Attributes:
        walls_s: Seconds of each run without the profiler.
        profiled_walls_s: Seconds of each run with the profiler.
        profiled: The runs for which the profiler returned events, the executions of instructions.
        planes: Names of the profiler's planes with these events. A plane is one device or the host.
        left_out: A reason for each recording of the profiler without events. A recording covers several runs.
        times_run: Number of runs of the program, warm-up included.
    """

    walls_s: tuple[float, ...]
    profiled_walls_s: tuple[float, ...]
    profiled: tuple[RunEvents, ...]
    planes: tuple[str, ...]
    left_out: tuple[str, ...]
    times_run: int

    @property
    def unavailable(self) -> str | None:
        """The reason why the events of all runs are unknown; `None` if some are known."""
        return None if self.profiled else self.left_out[0]


class Runner:
    """A compiled program with its arguments, and a count of its runs.

    Args:
        name: Name of the program, for errors.
        compiled: The program.
        values: The arguments.
        recorded: The program to run with the profiler; by default `compiled`.
    """

    def __init__(
        self, name: str, compiled: Callable[..., Any], values: Values, recorded: Callable[..., Any] | None = None
    ):
        self._name, self._compiled, self._values, self._recorded = name, compiled, values, recorded or compiled
        self.times_run = 0

    def run(self, number: int | None = None) -> float:
        """Run the program once, and return the seconds until its results are ready.

        Args:
            number: Number that identifies the run in the profiler's recording; `None` to run without the profiler.

        Raises:
            ProfilingError: The program raised an error.
        """
        args, kwargs = self._values.arguments()
        self.times_run += 1
        program = self._compiled if number is None else self._recorded
        try:
            with nullcontext() if number is None else jax.profiler.TraceAnnotation(MARKER, **{RUN: number}):
                start = time.perf_counter()
                results = jax.block_until_ready(program(*args, **kwargs))
                if not jax.tree.leaves(results):
                    jax.effects_barrier()
                elapsed_s = time.perf_counter() - start
        except Exception as error:
            failure = failure_of(error)
            raise ProfilingError(
                f"program {self._name!r} failed in run {self.times_run} of its measurement.",
                ((failure.kind, failure.message), ("your arrays", "are unchanged")),
                "inspection.compiled(*args)  # shows where it fails",
            ) from error
        return elapsed_s


def measured_runs(runner: Runner, runs: int, warm_up: int, module: str, ids: Collection[str]) -> Runs:
    """Run a program `warm_up` times, then `runs` times without and `runs` times with the profiler.

    These runs are divided into up to four turns: some runs without the profiler, then as many with it.

    Args:
        runner: The program.
        runs: Number of measured runs without the profiler; as many more are measured with it.
        warm_up: Number of runs before the measured runs.
        module: Name of the program's HLO module. The profiler's events for other modules are dropped.
        ids: Names of the instructions of the module.

    Raises:
        ProfilingError: The program raised an error, or JAX's profiler is already in use.
    """
    walls: list[float] = []
    profiled_walls: list[float] = []
    recordings: list[Recording] = []
    with _WAITING:
        for _ in range(warm_up):
            runner.run()
        for count in _in_turns(runs):
            runner.run()  # not counted, because the first run of a turn is slower
            walls += [runner.run() for _ in range(count)]
            recordings.append(_recorded(runner, count, profiled_walls, module, ids))
    read = [recording for recording in recordings if recording.unavailable is None]
    return Runs(
        tuple(walls),
        tuple(profiled_walls),
        tuple(run for recording in read for run in recording.runs.values()),
        tuple(sorted({plane for recording in read for plane in recording.planes})),
        tuple(recording.unavailable for recording in recordings if recording.unavailable is not None),
        runner.times_run,
    )


def _in_turns(runs: int) -> list[int]:
    """Divide a number of runs into at most four turns of about equal length, and return the length of each turn.

    Examples:
        >>> _in_turns(10), _in_turns(2)
        ([3, 3, 2, 2], [1, 1])
    """
    turns = min(_TURNS, runs)
    return [runs // turns + (turn < runs % turns) for turn in range(turns)]


def _recorded(runner: Runner, count: int, walls: list[float], module: str, ids: Collection[str]) -> Recording:
    """Run a program `count` times under the profiler, add the seconds of each run to `walls`, and return the events.

    `module` is the name of the program's HLO module, and `ids` are the names of its instructions. Afterwards the
    profiler is off and its folder is deleted, also after an error.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # no events for Python
    options.host_tracer_level = 1  # events for instructions, not for every task of the thread pool
    options.enable_hlo_proto = False
    with tempfile.TemporaryDirectory(prefix="mithril_nb_profile_", ignore_cleanup_errors=True) as folder:
        try:
            jax.profiler.start_trace(folder, profiler_options=options)
        except RuntimeError as error:
            raise ProfilingError(
                "the profiler of JAX is in use; a process has only one.",
                (("RuntimeError", str(error)),),
                "jax.profiler.stop_trace()  # then ml.profile again",
            ) from error
        done = False
        try:
            runner.run()  # not counted, because threads begin to write events
            for number in range(count):
                walls.append(runner.run(number))
            done = True
        finally:
            reason = _stop(is_failing=not done)
        if reason is not None:
            return Recording({}, unavailable=reason)
        try:
            return read_recording(Path(folder), module, ids)
        except Exception as error:  # another version may write another format; the times of whole runs are still valid
            return Recording({}, unavailable=f"the profiler's events cannot be read: {error}")


def _stop(is_failing: bool) -> str | None:
    """Stop the profiler. Return the reason if this fails; `None` if it succeeds or the program has failed."""
    try:
        jax.profiler.stop_trace()
    except Exception as error:
        if is_failing:
            return None
        return f"the profiler returned no events: {error}"
    return None
