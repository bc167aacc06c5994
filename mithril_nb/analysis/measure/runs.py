"""Runs of a compiled program, with and without the profiler in turns, and the profiler's events.

The program runs on the user's arrays or placeholder values. The time of a run is divided among its instructions.
"""

from __future__ import annotations

import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.profiler import ProfileData

from mithril_nb.errors import ProfilingError, UnexpectedInputError
from mithril_nb.inspection.inspection import Inspection
from mithril_nb.stages.failure import failure_of
from mithril_nb.stages.hlo.module import HloModule
from mithril_nb.stages.jax_jit import hold_types_of_stats
from mithril_nb.stages.records import Input, Stage
from mithril_nb.targets.arguments import NUMBERS

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


# Names of the plane and the module of an event, the id of the program, and the event.
_Raw = tuple[str, str, Any, Event]


def read_recording(folder: Path, module: str, ids: Collection[str]) -> Recording:
    """Return the events of one program from the profiler's files."""
    # The profiler writes below plugins/profile/<time>/, one file for each host.
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
        instruction = Event(str(stats[NAMED]), event.start_ns, max(end_ns, event.start_ns))
        yield plane.name, str(stats.get(MODULE, "")), stats.get(PROGRAM), instruction


def _recording(runs: Mapping[int, RunEvents], raw_events: list[_Raw], module: str, ids: Collection[str]) -> Recording:
    if not runs:
        return Recording({}, unavailable="the profiler recorded no run of the program")
    if not raw_events:
        return Recording(runs, unavailable="the profiler of this platform records no instructions")
    # On accelerators the host has events, too: they are the launches of kernels, not their execution.
    if any(plane.startswith(DEVICE_PLANE) for plane, *_ in raw_events):
        raw_events = [raw for raw in raw_events if raw[0].startswith(DEVICE_PLANE)]
    starts = [run.start_ns for run in runs.values()]
    numbers = list(runs)
    during: list[tuple[RunEvents, str, Any, Event]] = []
    for plane, name, program, event in raw_events:
        index = bisect_right(starts, event.start_ns) - 1
        if name == module and index >= 0 and event.start_ns <= runs[numbers[index]].end_ns:
            during.append((runs[numbers[index]], plane, program, event))
    programs = {program for _, _, program, _ in during}
    # The ids of programs are unknown before a run, so the names of instructions distinguish them.
    if len(programs) > 1:  # another thread ran a program of the same name: drop programs with other instructions
        programs -= {program for _, _, program, event in during if event.id not in ids}
    if not during:
        return Recording(runs, unavailable=f"the profiler recorded no instruction of module {module!r}")
    if len(programs) != 1:
        return Recording(runs, unavailable=f"several programs called {module!r} ran at the same time")
    planes: set[str] = set()
    for run, plane, program, event in during:
        if program in programs:
            run.events.append(event)
            planes.add(plane)
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

    Examples:
        >>> from mithril_nb.analysis.measure.runs import Event
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
            # An instruction and the loop around it run at once; only the inner one works.
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


_MOST_NAMES = 4
_SEED = 0
# Number of random values that are drawn for a placeholder; larger arrays repeat them.
_DRAWN = 1 << 16
# Standard deviation of placeholder parameters, as in many initializers: activations neither grow nor vanish.
_SPREAD = 0.02


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
        # Copies are asynchronous, and would count for the run.
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
    """Return the arguments for running a compiled program."""
    compiled, inputs = inspection.compiled, inspection.inputs
    avals = jax.tree.leaves(compiled.in_avals)
    # An input without a sharding is `None`, which JAX would drop from the tree.
    shardings = jax.tree.leaves(compiled.input_shardings, is_leaf=lambda leaf: leaf is None)
    donated = tuple(
        info.donated
        for info in jax.tree.leaves(inspection.lowered.args_info, is_leaf=lambda leaf: hasattr(leaf, "donated"))
    )
    passed = _fitting(inspection, args, avals, inputs)
    # The last arguments suffice, such as the data after the parameters.
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
    # Python numbers may be inputs or static arguments. They are returned if all leaves together fit the inputs,
    # and left out if only the arrays fit.
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
        # Random keys have an extended dtype, which is rejected by default.
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
    # To draw every value would take seconds for the parameters of a large model.
    return np.resize(numbers.astype(aval.dtype), aval.shape)


# Number of turns. A turn is some runs without the profiler, then as many with it, so that a change of the machine's
# speed affects both.
_TURNS = 4
# Held while the profiler is in use: JAX has one per process, so a second thread waits.
_WAITING = threading.Lock()


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
        """Run the program once, and return the seconds until its results are ready."""
        args, kwargs = self._values.arguments()
        self.times_run += 1
        program = self._compiled if number is None else self._recorded
        try:
            with nullcontext() if number is None else jax.profiler.TraceAnnotation(MARKER, **{RUN: number}):
                start = time.perf_counter()
                results = jax.block_until_ready(program(*args, **kwargs))
                # Without results there is nothing to wait for, but callbacks may still run.
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
    """
    walls: list[float] = []
    profiled_walls: list[float] = []
    recordings: list[Recording] = []
    with _WAITING:
        for _ in range(warm_up):
            runner.run()
        turns = min(_TURNS, runs)
        for turn in range(turns):
            count = runs // turns + (turn < runs % turns)
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


def _recorded(runner: Runner, count: int, walls: list[float], module: str, ids: Collection[str]) -> Recording:
    # Afterwards the profiler is off and its folder is deleted, also after an error.
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
        try:
            runner.run()  # not counted, because threads begin to write events
            for number in range(count):
                walls.append(runner.run(number))
        # Also after KeyboardInterrupt: a process has one profiler, which would stay on for all later profiles.
        except BaseException:
            with suppress(Exception):  # the error of the program is the one to report
                jax.profiler.stop_trace()
            raise
        try:
            jax.profiler.stop_trace()
        except Exception as error:
            return Recording({}, unavailable=f"the profiler returned no events: {error}")
        try:
            return read_recording(Path(folder), module, ids)
        except Exception as error:  # another version may write another format; the times of whole runs are still valid
            return Recording({}, unavailable=f"the profiler's events cannot be read: {error}")
