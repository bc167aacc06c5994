"""`ml.track`: any training loop as a run that is stored, can be paused from outside, and continues after a crash."""

from __future__ import annotations

import math
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mithril_nb.backends.backend import check_count, check_switch
from mithril_nb.errors import CheckpointError, DataError, RunStoreError, UnknownOptionError, listed, short_repr
from mithril_nb.train.checkpoints.file import to_host, write
from mithril_nb.train.checkpoints.folder_lock import FolderLock
from mithril_nb.train.checkpoints.saver import Resume, checkpoints_in, step_of
from mithril_nb.train.metrics import is_lower_better
from mithril_nb.train.processes import distributed, fingerprint, local
from mithril_nb.train.run.control import RUNS, RunControl, interrupts_to
from mithril_nb.train.store.database import COPY, Database, check_name
from mithril_nb.train.store.origin import code_of, described, differences, plain, surroundings
from mithril_nb.train.store.sinks import Sender, checked_sinks, end
from mithril_nb.train.store.states import arrays_of, has_nan, kind_of, restored_state
from mithril_nb.train.store.stored import checked_number, checkpoint_of, rows_until
from mithril_nb.train.stream import STATES, packed, unpacked

FLUSH_S = 0.25
"""Seconds between two writes of rows. A killed process loses at most the rows since the last write."""
MOST_ROWS = 512
"""Rows of a part, which is written again with each flush until it is full."""
_MOST_BAD = 100  # events of one loss: a loop may log NaN at each second step
ENDING_S = 2.0
"""Seconds to wait for the lock of a run that may be ending."""
OWN = ("step", "elapsed_s", "order")
"""Columns of a row that are no metrics."""
_IMMUTABLE = (float, int, jax.Array, np.generic)  # a tuple, because a union is created again in each step
_END = object()


def track(
    path: str | PathLike[str],
    *,
    config: Any = None,
    graph: Any = None,
    data: Any = None,
    checkpoint_every: int | None = None,
    keep: int = 2,
    keep_best: str | tuple[str, str] | None = None,
    tags: Iterable[str] = (),
    sinks: Any = (),
    resume: Resume = True,
) -> TrackedRun:
    """Store a training loop as a run: its metrics, settings, code and checkpoints. Use it in a `with` statement.

    If the loop is started again after it was stopped, failed or killed, the same run continues: `restore` returns the
    state of its latest checkpoint. If the run had ended, a new one starts as `NAME-2`. A run whose config, code or data
    differ does not continue, and the error lists the differences.

    Args:
        path: `"FOLDER/NAME"`: the folder of the runs, and the name of this one. `"NAME"` alone is in the folder `runs`.
        config: Settings of the run: a dict or dataclass of numbers, texts, lists and dicts.
        graph: The inspection of the step, or the model. Its equations are then compared too. With the inspection,
            `ml.find_nan` of the run replays the steps.
        data: Arrays of training data, as any tree. All bytes are compared when the run continues.
        checkpoint_every: Steps between two checkpoints; by default, one is taken about every 30 seconds.
        keep: Number of latest checkpoints to keep.
        keep_best: Name of a metric, such as `"validation_loss"`: the checkpoint of its best value is also kept.
            `("error", "min")` for an own metric.
        tags: Words to find the run by. A run that continues gets the new ones.
        sinks: Where else the numbers go: `"tensorboard"`, `"trackio"`, `"wandb"`, `"mlflow"`, which receive the config
            too; a `SummaryWriter`, a run of trackio or W&B; or any object with a method `log`, of step and metrics, and
            a method `close`. A thread for each calls them. If one fails, it is dropped with a warning, and the run
            continues.
        resume: False to start a new run even if one could continue; `"anyway"` to continue with other config or code.

    Raises:
        RunStoreError: The run in the folder has another config, code or data; another process is training it; or the
            folder is damaged, locked or of a newer version.
        UnavailableBackendError: The package of a sink is not installed.
        UnknownOptionError: An option or the config has an invalid value.

    Examples:
        >>> import jax, tempfile
        >>> step = jax.jit(lambda w, batch: (w - 0.1 * (w - batch), {"loss": (w - batch) ** 2}))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with track(f"{folder}/line", config={"rate": 0.1}) as run:
        ...         w = run.restore(0.0)
        ...         for batch in run.steps([1.0, 2.0], total=4):
        ...             w, metrics = step(w, batch)
        ...             run.log(metrics, state=w)
        ...     run
        TrackedRun('line': done, step 4)
    """
    if resume != "anyway":
        check_switch("resume", resume)
    if checkpoint_every is not None:
        check_count("checkpoint_every", checkpoint_every)
    check_count("keep", keep)
    words = [tags] if isinstance(tags, str) else tags
    if not isinstance(words, Iterable):
        raise UnknownOptionError("tags must be texts.", (("got", short_repr(tags)),), 'tags=["baseline"]')
    name, mode = keep_best if isinstance(keep_best, tuple) else (keep_best, None)
    if not isinstance(name, str | None):
        raise UnknownOptionError(
            "keep_best must be the name of a metric.", (("got", short_repr(keep_best)),), 'keep_best="validation_loss"'
        )
    best = None if name is None else (name, is_lower_better(name, mode))
    receivers = checked_sinks(sinks)
    sources, values = code_of(sys._getframe(1))
    own = {repr(str(path)), repr(Path(str(path)).name)}  # a variable that holds the name of the run is no setting
    values = {name: text for name, text in values.items() if text not in own}
    if data is not None:
        values["data"] = described(data)
    text = None if graph is None else _graph_text(graph)
    if text is not None:
        values["graph"] = f"hash {fingerprint(np.frombuffer(text.encode(), np.uint8)):08x}"
    settings = plain({} if config is None else config)
    if not isinstance(settings, dict):
        raise UnknownOptionError(
            "config must be a dict or a dataclass.", (("got", short_repr(config)),), 'config={"rate": 0.1}'
        )
    origin = {"config": settings, "code": sources, "values": values, "graph": text}
    database, chosen, lock = claimed(path, origin, resume, [str(tag) for tag in words])
    run = TrackedRun(database, chosen, lock, checkpoint_every, keep, best, receivers)
    run.graph = graph
    return run


def _graph_text(graph: Any) -> str:
    if hasattr(graph, "stage"):  # an inspection
        return str(graph.stage("jaxpr" if "jaxpr" in graph.stages else graph.stages[0]).text)
    return str(getattr(graph, "model", graph))


def claimed(
    path: str | PathLike[str], origin: Mapping[str, Any], resume: Resume, tags: Sequence[str] = ()
) -> tuple[Database, str, FolderLock]:
    """Lock the run that continues, or a new one; return the open database, the name of the run, and its lock.

    Of several processes, the first does this, and the others follow it.
    """
    database, name = opened(path)
    lock, chosen, me = None, "", distributed()
    if not me.is_main:
        if chosen := _of_first_process(""):
            return database, chosen, FolderLock(database.folder / chosen)
        database.close()
        raise RunStoreError("process 0 could not begin the run. Its error names the cause.", (("run", name),))
    try:
        while True:
            chosen = unfinished(database, name, resume)
            lock = locked(database, chosen)
            if unfinished(database, name, resume) == chosen:  # nor has it ended while this waited for the lock
                break
            lock.release()
        stored = database.summary(chosen) if chosen in database.names() else None
        begin(database, chosen, stored, origin, resume, tags)
    except BaseException:
        if lock is not None:
            lock.release()
        database.close()
        if me.count > 1:
            _of_first_process("")
        raise
    if me.count > 1:
        _of_first_process(chosen)
    return database, chosen, lock


def _of_first_process(name: str) -> str:
    from jax.experimental import multihost_utils  # imports more of JAX than one process needs

    text = np.zeros(512, np.uint8)  # of 100 characters and a number
    text[: len(name.encode())] = [*name.encode()]
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(text))).rstrip(b"\0").decode()


def opened(path: str | PathLike[str]) -> tuple[Database, str]:
    """Return the database of a path `"FOLDER/NAME"`, and the name."""
    if not isinstance(path, str | PathLike):
        raise UnknownOptionError("path must be a path.", (("got", short_repr(path)),), 'ml.track("runs/digits")')
    folder, name = Path(path).parent, check_name(Path(path).name)
    return Database("runs" if str(folder) == "." and "/" not in str(path) else folder, creates=True), name


def unfinished(database: Database, name: str, resume: Resume) -> str:
    """Return the first of NAME, NAME-2, ... that has not ended, or that does not exist."""
    number, chosen, names = 1, name, database.names()
    while chosen in names and (resume is False or database.summary(chosen)["state"] == "done"):
        number += 1
        chosen = f"{name}-{number}"
    return chosen


def locked(database: Database, name: str, *, is_search: bool = False) -> FolderLock:
    """Lock the folder of a run, or of a search. Waits for a run that is just ending."""
    folder = database.folder / (f".{name}.search" if is_search else name)
    lock, until = FolderLock(folder), time.monotonic() + ENDING_S
    try:
        folder.mkdir(exist_ok=True)
        while distributed().is_main and not lock.is_held:
            try:
                lock.acquire()
            except CheckpointError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
    except CheckpointError as error:
        what, work = ("search", "running") if is_search else ("run", "training")
        facts = ((what, name), *error.diagnostics[0].facts)
        advice = f'ml.search(..., track="{name}-b")' if is_search else f'ml.track("{name}-b")'
        raise RunStoreError(f"another process is {work} this {what}.", facts, advice) from error
    except OSError as error:
        facts = (("folder", str(folder)), ("because", error.strerror or str(error)))
        raise RunStoreError("the folder of the run cannot be created.", facts) from error
    return lock


def begin(
    database: Database,
    name: str,
    stored: dict[str, Any] | None,
    origin: Mapping[str, Any],
    resume: Resume,
    tags: Sequence[str],
) -> None:
    """Enter a run into the database, or compare a stored one, given as its summary, with its new origin."""
    if stored is None and (checkpoints := checkpoints_in(database.folder / name)):
        raise RunStoreError(
            f"the folder of run {name!r} has checkpoints of a run that the database lacks.",
            (("folder", str(database.folder / name)), ("latest", checkpoints[0].name)),
            "move the folder away, or choose another name",
        )
    if stored is None:
        summary = {"state": "running", "created": time.time(), "step": 0, "elapsed_s": 0.0, "parts": 0}
        summary |= {"config": origin["config"], "latest": {}, "knobs": {}, "events": [], "tags": [*tags]}
        database.put(name, summary, {**origin, **surroundings()})
        return
    before = database.origin(name)
    changes = differences(before, origin)
    is_fork = before.pop("is_fork", False)
    if is_fork and before["config"] == origin["config"]:
        resume = "anyway"  # the script of a fork may differ from the script of its parent
    if changes and resume != "anyway":
        raise RunStoreError(
            f"run {name!r} has not ended, and it was started with another script.",
            (*changes, ("folder", str(database.folder)), ("state", f"{stored['state']}, step {stored['step']}")),
            'resume="anyway"  # continues with the changes; or resume=False for a new run',
        )
    if new_tags := [tag for tag in tags if tag not in stored["tags"]]:
        database.change(name, {"tags": new_tags})
        stored["tags"] += new_tags
    if changes or is_fork:
        event = {
            "step": stored["step"],
            "time": time.time(),
            "text": f"changed: {', '.join(key for key, _ in changes)}" if changes else "first start of a fork",
        }
        stored |= {"events": [*stored["events"], event], "config": origin["config"]}
        database.put(name, stored, {**before, **origin})


class TrackedRun:
    """A training loop whose metrics and states are stored; `ml.track` makes it.

    Attributes:
        name: Name of the run in its folder.
        step: Steps taken so far: in the loop, the number of the current step, from 1.
        state: `"running"`, `"paused"`, `"stopped"`, `"done"` or `"failed"`.
        steered: What pauses, stops and sets at the request of another process: the run itself, or one of `ml.fit`.
        graph: The inspection of the step, or the model, if one was given.
        source: The loader that `steps` received.
        sends_after: Step whose rows the sinks have already, with those before it.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        lock: FolderLock,
        every: int | None = None,
        keep: int = 2,
        keep_best: tuple[str, bool] | None = None,
        sinks: Sequence[Any] = (),
    ):
        self.name, self.step, self.state = name, 0, "running"
        self._database, self._lock = database, lock
        self._every, self._keep, self._keep_best = every, keep, keep_best
        self._is_writer = distributed().is_main
        self._control = RunControl()
        self.steered: Any = self
        self.graph: Any = None
        self.source: Any = None
        self.sends_after = -1
        summary = database.summary(name)
        self._knobs: dict[str, dict[str, Any]] = summary["knobs"]
        best = summary.get("best", {})
        is_same = keep_best is not None and best.get("metric") == keep_best[0]
        self._best: float | None = best["value"] if is_same else None
        self._before_s, self._started = summary["elapsed_s"], time.perf_counter()
        self._saved_step, self._saved_at = -1, time.perf_counter()
        self._sound_step: int | None = None  # of the latest checkpoint without NaN
        self._bad_losses: set[str] = set()  # names of losses whose latest value is not finite
        self._bad_counts: Counter[str] = Counter()  # how often each loss became so
        self._bad_steps: list[int] = []  # where, since the latest checkpoint
        self._new_losses: list[str] = []  # texts of warnings that the loop has not received yet
        self._was_restored, self._position = False, None
        self._first_step, self._has_rows = 0, False
        self._drives, self._batches = False, lambda: None
        self._loader: Any = None
        self._fetched = 0
        self._last: tuple[int, int, list[Any], Any] | None = None
        self._waiting: deque[tuple[int, float, Mapping[str, Any]]] = deque()
        self._changes: dict[str, Any] = {"state": "running", "reason": None, "traceback": None}
        self._mutex = threading.RLock()
        self._writing = threading.Lock()
        self._open: dict[tuple[str, ...], tuple[int, list[list[float]]]] = {}
        self._unsaved: dict[int, tuple[tuple[str, ...], list[list[float]]]] = {}
        self._arrays: list[tuple[str, int, np.ndarray]] = []
        self._parts, self._order = summary["parts"], 0
        self._wake, self._is_over = threading.Event(), False
        self._problem: str | None = None
        self._saving: threading.Thread | None = None
        self._thread = threading.Thread(target=self._work, name="mithril_nb run", daemon=True)
        self._senders = [Sender(sink, self.folder, summary, self._report) for sink in sinks if self._is_writer]
        if self._is_writer:
            (self.folder / COPY).unlink(missing_ok=True)  # of the earlier start, which a damaged record would restore
            self._thread.start()
        RUNS.add(self)

    def __repr__(self) -> str:
        return f"TrackedRun({self.name!r}: {self.state}, step {self.step})"

    def __enter__(self) -> TrackedRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self.finish("stopped" if self._control.requested == "stop" else "done")
        elif isinstance(error, KeyboardInterrupt | GeneratorExit | SystemExit):
            self.finish("stopped", reason="interrupted")
        else:
            text = "".join(traceback.format_exception(error))[-20_000:]
            self.finish("failed", reason=f"{type(error).__name__}: {error}"[:2_000], traceback=text)

    @property
    def folder(self) -> Path:
        """Folder of the run's checkpoints."""
        return self._database.folder / self.name

    @property
    def elapsed_s(self) -> float:
        """Seconds of the loop so far, with those of earlier starts."""
        return self._before_s + time.perf_counter() - self._started

    def restore(self, state: Any, loader: Any = None) -> Any:
        """Return the state of the latest checkpoint, in the structure of `state`; `state` itself on a new run.

        The arrays are equal bit for bit. The run then continues at the step of the checkpoint, and rows after it are
        dropped, because the loop computes them again.

        Args:
            state: Any tree: params, optimizer state, keys, counters, modules of Equinox or Flax. Leaves that are
                neither arrays nor numbers, such as functions, are those of `state`.
            loader: The loader that is given to `steps`. If it, or its iterator, has `get_state` and `set_state` or
                `state_dict` and `load_state_dict`, it continues exactly. Of other iterables, the samples that were
                seen are skipped, which is exact only if their order is the same each time. Without `steps`, the loader
                itself needs such a state.

        Raises:
            CheckpointError: No checkpoint of the run is whole, or they have other arrays than `state`.
        """
        saved = checkpoint_of(self.folder)
        if loader is not None and self._stateful(loader) is not None:
            self._loader = loader
        if saved is None:
            return state
        restored = restored_state(state, saved)
        self.step = self._saved_step = self._first_step = saved.facts["step"]
        self._sound_step = None if has_nan(saved.arrays.values()) else self.step
        self._was_restored, self._position = True, unpacked(saved.facts["loader"])
        self._fetched = saved.facts["fetched"]
        if self._position is not None and self._loader is not None:
            self._set_position(self._loader)
        self._before_s, self._started = saved.facts["elapsed_s"], time.perf_counter()
        self._knobs |= saved.facts["knobs"]
        self._change({"knobs": dict(self._knobs)})
        return restored

    def steps(self, loader: Iterable[Any], total: int | None = None) -> Iterator[Any]:
        """Yield batches, and count the steps. Between two steps, the run can be paused, stopped or steered.

        An iterable is iterated again when it ends. An iterator that is exhausted ends the run.

        Args:
            loader: Iterable of batches.
            total: Number of steps of the whole run, those before a restart included; `None` until the loader or
                `stop` ends it.

        Raises:
            DataError: The loader has no batch.
            RunStoreError: The run has other steps already; use one loop, or a run for each.
        """
        if self._drives:
            raise RunStoreError("steps was called before in this run.", (("run", self.name),), "one loop for each run")
        if total is not None:
            check_count("total", total)
        self._drives, self.source = True, loader
        self._change({"steps": total})
        batches = self._batches_of(loader, total)
        # The traceback of an error in the loop holds the generator, which would keep the handler of Ctrl-C.
        self._batches = weakref.ref(batches)
        return batches

    def _batches_of(self, loader: Any, total: int | None) -> Generator[Any]:
        is_iterator, iterator = isinstance(loader, Iterator), self._continued(loader)
        with interrupts_to(self._control):
            while total is None or self.step < total:
                if self._control.pending and not self._may_go_on():
                    break
                batch = next(iterator, _END)
                if batch is _END and not is_iterator:
                    iterator = self._iterator(loader)
                    batch = next(iterator, _END)
                if batch is _END and not self._fetched:
                    raise DataError("the loader has no batch.", (("got", type(loader).__name__),))
                if batch is _END:
                    break
                self._fetched += 1
                self.step += 1
                yield batch
        if self._control.interrupted:
            raise KeyboardInterrupt

    def _continued(self, loader: Any) -> Iterator[Any]:
        iterator = self._iterator(loader)
        if not self._was_restored or not self._fetched:
            return iterator
        if self._position is not None and self._loader is not None:
            self._set_position(self._loader)
            # A loader gives its state to the iterators that start afterwards.
            return self._iterator(loader) if self._loader is loader and iterator is not loader else iterator
        if not isinstance(loader, list | tuple | range):
            warnings.warn(
                f"no state of {type(loader).__name__} is stored for this step, so {self._fetched} batches are skipped: "
                "the run continues exactly only if it yields the same batches in the same order.",
                RuntimeWarning,
                stacklevel=3,
            )
        for _ in range(self._fetched):
            if next(iterator, _END) is _END:
                iterator = self._iterator(loader)
                if next(iterator, _END) is _END:
                    break
        return iterator

    def _iterator(self, loader: Any) -> Iterator[Any]:
        try:
            iterator = iter(loader)
        except TypeError as error:
            raise DataError("the loader cannot be iterated.", (("got", short_repr(loader)),)) from error
        self._loader = next((owner for owner in (iterator, loader) if self._stateful(owner) is not None), None)
        return iterator

    @staticmethod
    def _stateful(loader: Any) -> tuple[str, str] | None:
        return next(((get, put) for get, put in STATES if hasattr(loader, get) and hasattr(loader, put)), None)

    def _set_position(self, loader: Any) -> None:
        if (names := self._stateful(loader)) is not None:
            getattr(loader, names[1])(self._position)

    def _may_go_on(self) -> bool:
        while (turn := self._control.turn()) == "pause":
            if self.state != "paused":
                self.mark("paused")
            self._control.wait_while_held()
        if self.state == "paused":
            self.mark("running")
        return turn == "go"

    def mark(self, state: str) -> None:
        """Store that the run is paused, or running again."""
        self.state = state
        self._change({"state": state, "events": [self._event(state)]})
        self._wake.set()

    def _event(self, text: str) -> dict[str, Any]:
        return {"step": self.step, "time": time.time(), "text": text}

    def _change(self, values: Mapping[str, Any]) -> None:
        with self._mutex:
            for key, value in values.items():
                is_list = isinstance(value, list) and isinstance(self._changes.get(key), list)
                self._changes[key] = self._changes[key] + value if is_list else value

    def knob(self, name: str, value: float, *, log: bool = False) -> float:
        """Return the current value of a setting that `set`, `ml.runs` or the page can change while the loop runs.

        A Python number that a jitted step receives as an argument needs no recompilation when it changes.

        Args:
            name: Name of the setting, such as `"lr"`.
            value: Its value at the start of the run.
            log: True to show it on a logarithmic slider, which takes positive values.

        Raises:
            UnknownOptionError: The value is no finite number, or with `log`, not positive.
        """
        knob = self._knobs.get(name)
        if knob is None or knob["start"] != value:  # a value that was changed in the script counts, not one by `set`
            value = checked_number(name, value, log=log)
            self._knobs[name] = {"value": value, "log": log, "start": value}
            self._change({"knobs": dict(self._knobs)})
        return self._knobs[name]["value"]

    def set(self, name: str, value: float) -> None:
        """Change a setting that the loop reads with `knob`. The change is an event of the run."""
        if name not in self._knobs:
            known = ", ".join(self._knobs) or "none"
            raise UnknownOptionError(f"the run has no knob {short_repr(name)}.", (("knobs", known),))
        value = checked_number(name, value, log=self._knobs[name]["log"])
        event = self._event(f"{name}: {self._knobs[name]['value']:g} → {value:g}") | {"knob": name, "value": value}
        self._knobs[name] = self._knobs[name] | {"value": value}
        self._change({"knobs": dict(self._knobs), "events": [event]})

    def pause(self) -> None:
        """Pause before the next step, until `resume` or `stop`."""
        self._control.request("pause")

    def resume(self) -> None:
        """Continue after a pause."""
        self._control.request("go")

    def step_once(self, steps: int = 1) -> None:
        """Take one step, or several, then pause."""
        self._control.request("pause", steps=check_count("steps", steps))

    def stop(self) -> None:
        """End the loop before its next step. The run is not finished: it continues when the script starts again."""
        self._control.request("stop")

    def note(self, text: str) -> None:
        """Add a line to the events of the run, at the current step."""
        self._change({"events": [self._event(str(text))]})

    def log(self, metrics: Mapping[str, Any] | None = None, *, state: Any = None, step: int | None = None) -> None:
        """Store metrics of a step, and take a checkpoint if one is due.

        It waits for no file, except for an earlier checkpoint that is still being written when the next one is due. If
        512 rows wait for their values, it waits for these. A loss that becomes NaN or infinite is an event of the run,
        and a warning, again after it was finite (100 times at most). The latest checkpoint before it, or before a state
        with NaN, is kept until there is a later one.

        Args:
            metrics: Numbers by name, as JAX arrays of shape (), NumPy or Python numbers. A thread waits for their
                values. Larger arrays, such as images, are stored whole.
            state: State after the step, in the structure that `restore` received. If a checkpoint is due, it is copied
                to the host first, so that the next step may donate it.
            step: Number of the step, for a loop without `steps`; by default, each call is a step.
        """
        if not self._has_rows:
            self._begin_rows()
        if self._new_losses:
            self._warn_of_losses()
        if step is not None and (self._drives or not isinstance(step, int | np.integer) or step < 0):
            because = "steps counts them" if self._drives else "it must be a whole number from 0"
            raise UnknownOptionError("step cannot be set.", (("got", short_repr(step)), ("because", because)))
        if not self._drives:
            self.step = self.step + 1 if step is None else int(step)
        if metrics:
            if not isinstance(metrics, Mapping):
                raise UnknownOptionError(
                    "metrics must be a dict of numbers by name.",
                    (("got", short_repr(metrics)),),
                    'run.log({"loss": loss})',
                )
            # The loop may change its own arrays before the thread reads them.
            copied = {
                name: value if isinstance(value, _IMMUTABLE) else np.array(value) for name, value in metrics.items()
            }
            self.append(self.step, self.elapsed_s, copied)
        if state is not None and distributed().count > 1:
            local(state)  # refuses one in each process: the others would wait for the first
        if not self._is_writer:
            return
        if state is not None:
            self._last = (self.step, self._fetched, *jax.tree.flatten(state))  # the loop may change its containers
        if self._last is None or self._last[0] != self.step:
            return
        is_best = self._is_best(metrics)  # also if state and metric are logged in two calls
        if self._every is not None:
            # Not only at multiples: a loop may log a state at every tenth step alone.
            is_due = self.step // self._every != max(self._saved_step, 0) // self._every
        else:
            is_idle = self._saving is None or not self._saving.is_alive()
            is_due = is_idle and time.perf_counter() - self._saved_at > 30.0
        if is_best or (state is not None and is_due and self.step != self._saved_step):
            self._save(self._last, is_best)

    def append(self, step: int, elapsed_s: float, metrics: Mapping[str, Any]) -> None:
        """Add a row."""
        if not self._has_rows:
            self._begin_rows()
        if not self._is_writer:
            return
        self._waiting.append((step, elapsed_s, metrics))
        if len(self._waiting) >= MOST_ROWS:  # the thread gets too little of the interpreter to keep up with fast steps
            with self._mutex:
                self._sort_waiting()

    def restart(self) -> None:
        """Drop all rows: the next ones are those of the whole run."""
        with self._mutex:
            self._waiting.clear()
            self._has_rows, self._first_step = False, 0

    def _is_best(self, metrics: Mapping[str, Any] | None) -> bool:
        if self._keep_best is None:
            return False
        name, is_lower = self._keep_best
        if not metrics or name not in metrics:
            return False
        value = float(np.asarray(metrics[name]))
        if np.isnan(value) or (self._best is not None and (value >= self._best if is_lower else value <= self._best)):
            return False
        self._best = value
        return True

    def _save(self, logged: tuple[int, int, list[Any], Any], is_best: bool) -> None:
        if self._saving is not None:
            self._saving.join()
        step, fetched, values, structure = logged
        self._saved_step, self._saved_at = step, time.perf_counter()
        leaves = arrays_of(local(jax.tree.unflatten(structure, values)))
        # A view of a JAX array ends with its donation, and a NumPy array is the loop's own.
        arrays = {name: np.array(array) for name, array in to_host(leaves).items()}
        # A loader that is ahead of the state is set to its place by counting.
        names = self._stateful(self._loader) if step == self.step else None
        try:
            loader = None if names is None else packed(getattr(self._loader, names[0])())
        except TypeError as error:
            raise DataError("the state of the loader cannot be stored.", (("because", str(error)),)) from error
        facts = {"step": step, "fetched": fetched, "loader": loader, "knobs": dict(self._knobs)}
        facts |= {
            "elapsed_s": self.elapsed_s,
            "run": self.name,
            "kinds": {name: kind_of(leaf) for name, leaf in leaves.items()},
        }
        facts |= {"value": self._best if is_best else None}
        self._saving = threading.Thread(target=self._write, args=(arrays, facts, is_best), name="mithril_nb checkpoint")
        try:
            self._saving.start()
        except RuntimeError:  # since Python 3.12, no thread can start while the interpreter exits
            self._saving = None
            self._write(arrays, facts, is_best)

    def _write(self, arrays: dict[str, np.ndarray], facts: dict[str, Any], is_best: bool) -> None:
        try:
            self._flush()  # a run that continues from this checkpoint has all rows before it
            path = self.folder / f"step-{facts['step']:010}.safetensors"
            write(path, arrays, facts)
            if is_best:
                best = {"metric": (self._keep_best or ("",))[0], "step": facts["step"], "value": facts["value"]}
                self._database.change(self.name, {"best": best})
            is_sound = not has_nan(arrays.values())
            with self._mutex:
                later = [step for step in self._bad_steps if step > facts["step"]]
                is_after, self._bad_steps = len(later) < len(self._bad_steps), later
            if self._sound_step is not None and (
                is_after or not is_sound
            ):  # to find the cause, or to go back before it; only the latest, or these would fill the disk
                self._database.change(self.name, {"sound": self._sound_step})
            self._sound_step = facts["step"] if is_sound else None
            summary = self._database.summary(self.name)
            pinned = {summary.get("best", {}).get("step"), summary.get("sound"), *summary.get("pinned", ())}
            latest = [path for path in checkpoints_in(self.folder) if step_of(path) <= facts["step"]]
            for old in latest[self._keep :]:
                if step_of(old) not in pinned:
                    old.unlink(missing_ok=True)
        except Exception as error:  # a full disk is an OSError, or an error of safetensors
            self._warn(f"the checkpoint of step {facts['step']} could not be written: {error}")

    def _report(self, problem: str) -> None:
        self._change({"events": [self._event(problem)]})
        self._warn(problem)

    def _warn(self, problem: str, level: int = 2) -> None:
        if problem != self._problem:
            self._problem = problem
            warnings.warn(f"run {self.name!r}: {problem}", RuntimeWarning, stacklevel=level + 1)

    def _warn_of_losses(self) -> None:
        with self._mutex:
            texts, self._new_losses = self._new_losses, []
        self._warn(f"{listed(texts)}. ml.find_nan names the cause: of this run, or of the step with its arguments.", 3)

    def _work(self) -> None:
        while not self._is_over:
            self._wake.wait(FLUSH_S)
            self._wake.clear()
            try:
                with suppress(Warning):  # of `_warn`, which a filter has made an error
                    self._flush()
                for request in self._database.requests(self.name):
                    self._obey(request)
            except Exception as error:  # this thread must not end before the run
                with suppress(Warning):
                    self._warn(str(error))

    def flush(self) -> None:
        """Store the rows so far, unless the run has ended."""
        if not self._is_over and self._is_writer:
            self._flush()

    def _flush(self) -> None:
        with self._writing:
            with self._mutex:  # not while the disk is slow or locked: the loop would wait
                self._sort_waiting()
                changes, self._changes = self._changes, {}
                unsaved, self._unsaved = self._unsaved, {}
                arrays, self._arrays = self._arrays, []
                parts = {number: (columns, np.array(rows)) for number, (columns, rows) in unsaved.items()}
            if not (parts or arrays or changes):
                return
            try:
                self._database.change(self.name, changes, parts, arrays)
            except (RunStoreError, CheckpointError) as error:  # a full or locked disk: the rows stay, for the next time
                with self._mutex:
                    newer, self._changes = self._changes, changes
                    if "latest" in newer:
                        newer["latest"] = changes.get("latest", {}) | newer["latest"]
                    self._change(newer)
                    self._unsaved, self._arrays = unsaved | self._unsaved, arrays + self._arrays
                self._warn(error.diagnostics[0].summary)

    def _sort_waiting(self) -> None:
        """Move what was logged to the rows of its part: each part has one set of columns."""
        latest: dict[str, float] = {}
        step = None
        for _ in range(len(self._waiting)):  # without rows that the loop logs meanwhile, or a fast loop never ends here
            step, elapsed_s, metrics = self._waiting.popleft()
            numbers: dict[str, float] = {}
            for name, value in metrics.items():
                try:
                    array = np.asarray(value)
                    if array.dtype.kind not in "biufcV":
                        raise ValueError(f"its dtype is {array.dtype}")
                    if name in OWN:
                        raise ValueError("the run stores its own value under this name")
                    if array.ndim == 0:
                        numbers[str(name)] = number = float(array)
                        # Between two validations, many loops log NaN.
                        is_loss = "loss" in str(name) and "val" not in str(name)
                        if math.isfinite(number):
                            self._bad_losses.discard(name)
                        elif is_loss and name not in self._bad_losses and self._bad_counts[name] < _MOST_BAD:
                            self._bad_losses.add(name)
                            self._bad_counts[name] += 1
                            self._bad_steps.append(step)
                            text = f"{name} is {'NaN' if math.isnan(number) else 'infinite'}"
                            self._new_losses.append(f"{text} at step {step}")
                            self._change({"events": [self._event(text) | {"step": step, "metric": str(name)}]})
                    else:
                        is_narrow = array.dtype.kind == "V"  # such as bfloat16, whose name NumPy does not know
                        self._arrays.append((str(name), step, array.astype(np.float32) if is_narrow else array))
                except Exception as error:  # also of a computation that failed
                    self._warn(f"metric {name!r} of step {step} cannot be stored: {error}")
            for sender in self._senders if numbers and step > self.sends_after else ():
                sender.put((step, dict(numbers)))
            columns = (*OWN, *numbers)
            number, rows = self._open.get(columns, (self._parts, []))
            if len(rows) >= MOST_ROWS:
                number, rows = self._parts, []
            self._parts = max(self._parts, number + 1)
            rows.append([step, elapsed_s, self._order, *numbers.values()])
            self._order += 1
            self._open[columns] = (number, rows)
            self._unsaved[number] = (columns, rows)
            latest |= numbers
        if step is not None:
            self._changes["latest"] = self._changes.get("latest", {}) | latest
            self._changes |= {"step": step, "elapsed_s": elapsed_s}

    def _begin_rows(self) -> None:
        self._has_rows = True
        if not self._is_writer:
            return
        stale = [path for path in checkpoints_in(self.folder) if step_of(path) > self._first_step]
        if stale and not self._was_restored:
            self._has_rows = False
            raise RunStoreError(
                f"run {self.name!r} has checkpoints, and the loop did not restore one.",
                (("latest", stale[0].name),),
                "state = run.restore(state)  # or ml.track(..., resume=False) for a new run",
            )
        for path in stale:  # damaged ones
            path.replace(path.with_name(f"{path.name}.damaged"))
        with self._writing, self._mutex:
            # The loop computes the rows after the checkpoint again.
            left, latest = rows_until(self._database.parts(self.name), self._first_step)
            best = self._database.summary(self.name).get("best", {})
            values = {"latest": latest} | ({"best": None} if best.get("step", 0) > self._first_step else {})
            self._best = self._best if "best" not in values else None
            self._database.change(self.name, values, left, until=self._first_step)
            self._parts, self._open, self._unsaved = len(left), {}, {}
            self._order = 1 + max((int(table[:, 2].max()) for _, table in left.values()), default=-1)

    def _obey(self, request: Mapping[str, Any]) -> None:
        if distributed().count > 1:  # the other processes would not know
            self._warn(f"it has several processes, so that it ignores the request {short_repr(dict(request))}")
        elif (action := request.get("action")) in ("pause", "resume", "stop", "step_once"):
            getattr(self.steered, action)(*([request["steps"]] if "steps" in request else []))
        elif "name" in request:
            self.steered.set(request["name"], request["value"])

    def finish(self, state: str, **facts: Any) -> None:
        """Store the last rows and the end of the run."""
        if self._is_over:
            return
        if (batches := self._batches()) is not None:
            with suppress(ValueError):  # it runs in another thread
                batches.close()
        try:
            self._save_last(is_whole="reason" not in facts)
        except Exception as error:
            self._warn(f"its last state could not be stored: {error}")
        finally:
            last_step, self._last = self.step, None
            self.state, self._is_over = state, True
            self._wake.set()
        try:
            if self._thread is not threading.current_thread() and self._thread.is_alive():
                self._thread.join()
            if self._saving is not None:
                self._saving.join()
            if self._is_writer:
                self._change({"ended": time.time()})
                if self._has_rows or self._was_restored:
                    self._change({"step": last_step, "elapsed_s": self.elapsed_s})
                try:
                    self._flush()  # before the sinks end: one may hang, and their problems are events
                    end(self._senders, state)
                finally:  # also after Ctrl-C
                    is_idle = state == "done" and not (self._has_rows or self._was_restored)
                    if is_idle and self._database.summary(self.name)["step"]:
                        self.state = state = "stopped"  # it did nothing, and the earlier start had not ended
                    self._change({"state": state, "events": [self._event(state)]} | facts)
                    self._flush()
                    self._database.copy(self.name)
        except (RunStoreError, CheckpointError) as error:
            self._warn(error.diagnostics[0].summary)
        finally:
            self._database.close()
            self._lock.release()
        if self._new_losses:
            self._warn_of_losses()

    def _save_last(self, *, is_whole: bool) -> None:
        if self._last is None:
            if is_whole and (self._every is not None or self._keep_best is not None) and self._has_rows:
                self._warn("no state was logged, so it has no checkpoint: log({...}, state=state)")
            return
        step, _, leaves, _ = self._last
        # After an error, a step may have changed NumPy arrays halfway.
        is_sound = is_whole or not any(isinstance(leaf, np.ndarray) for leaf in leaves)
        if step > self._saved_step and is_sound and not _is_deleted(leaves):
            self._save(self._last, False)

    def _end(self, timeout_s: float) -> None:
        """End the run with the interpreter, if no `with` statement has."""
        self.finish("stopped", reason="the program ended")


def _is_deleted(state: Any) -> bool:
    return any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in jax.tree.leaves(state))
