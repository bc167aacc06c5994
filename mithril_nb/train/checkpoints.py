"""Checkpoints of a run: when one is taken, where it is put, and how a run goes on from one."""

from __future__ import annotations

import math
import re
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError

from mithril_nb.atomic_write import remove_leftovers
from mithril_nb.errors import CheckpointError, Diagnostic, UnknownOptionError
from mithril_nb.train.checkpoint_file import OtherVersionError, Saved, broken, like, read, to_host, write
from mithril_nb.train.checksum import content_id
from mithril_nb.train.course import Course
from mithril_nb.train.folder_lock import FolderLock
from mithril_nb.train.history import COLUMNS, History
from mithril_nb.train.logical import model_fingerprint
from mithril_nb.train.processes import data_fingerprint, distributed, fingerprint, local
from mithril_nb.train.state import State, copied

NAME = re.compile(r"step-(\d{10,})\.safetensors")
LEFTOVER = re.compile(r"\.step-\d{10,}\.safetensors\.part|\.tmp[A-Za-z0-9]{6}")
"""Files that killed writes of earlier versions left: ours, and those of safetensors."""
COURSE = ("samples", "batch_size", "tail", "seed", "shuffle", "loss", "optimizer")
"""What must be the same in a run that goes on, so that its steps are those of the run before."""


@dataclass(frozen=True)
class Checkpoints:
    """Where a run keeps its checkpoints, and how often it takes one. The end of a run, or a stop, always takes one.

    Attributes:
        folder: Where to; made if it is not there. It holds the checkpoints of one run, which locks it while it trains.
        every_s: Seconds of training between two of them; `None` for none by the clock. One that would have to wait
            for the one before to be written is left out.
        every_epoch: Take one at the end of every so many epochs; each of them is written.
        keep: How many of the latest to keep; `None` for all. With 2, a broken one has one before it.

    Examples:
        >>> Checkpoints("runs/digits", every_epoch=1).keep
        2
    """

    folder: str | PathLike[str]
    every_s: float | None = 30.0
    every_epoch: int | None = None
    keep: int | None = 2

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | PathLike) or not str(self.folder):
            raise UnknownOptionError(
                "a checkpoint's folder is a path.",
                (("got", repr(self.folder)),),
                'ml.fit(model, data, checkpoint="runs/digits")',
            )
        for name in ("every_epoch", "keep"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise UnknownOptionError(
                    f"{name} is not a whole number from 1 on.",
                    (("got", repr(value)),),
                    f"Checkpoints({str(self.folder)!r}, {name}=2)",
                )
        seconds = self.every_s
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and math.isfinite(seconds) and seconds > 0):
            raise UnknownOptionError(
                "every_s is not a number of seconds above 0.",
                (("got", repr(seconds)),),
                f"Checkpoints({str(self.folder)!r}, every_s=60)",
            )


class Saver:
    """Takes the checkpoints of one run. What it takes is copied on the device, and written by a thread of its own.

    Where several processes train, the first one writes: all of them hold the same params.

    Attributes:
        start: Fingerprint of what the run began with.
        problem: Why a checkpoint could not be written, the latest time; `None` if all were.
    """

    def __init__(self, options: Checkpoints, course: Course, starting_rate: float, start: int):
        self.start = start
        self.options, self.folder = options, Path(options.folder).absolute()  # whatever os.chdir does meanwhile
        self.problem: Diagnostic | None = None
        self._course, self._starting_rate = course, starting_rate
        self._is_writer = distributed().is_main
        self._taken_at, self._taken, self._farthest = time.monotonic(), -1, -1
        self._thread: threading.Thread | None = None
        self._lock = FolderLock(self.folder)
        self._known: set[str] = set()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Make and lock the folder while its checkpoints are read, and remove what killed writes left in it.

        The run locks it again when it trains: a run that only exists keeps no other one out.

        Raises:
            CheckpointError: The folder cannot be made or locked, or another run is using it.
        """
        failed = "made"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            failed = "locked"
            if self._is_writer:
                self._lock.acquire()
                self._remove_leftovers()
        except OSError as error:
            raise CheckpointError(
                f"the folder for checkpoints cannot be {failed}.",
                (("folder", str(self.folder)), ("because", error.strerror or str(error))),
                'ml.fit(model, data, checkpoint="runs/digits")',
            ) from error
        try:
            yield
        finally:
            self.release()

    def begin(self) -> None:
        """Lock the folder for the steps that follow.

        Raises:
            CheckpointError: Another run is using the folder, or has written checkpoints in it.
        """
        with suppress(OSError):  # the next checkpoint reports it, and the training continues
            self._claim()

    def release(self) -> None:
        """Unlock the folder: all that was taken is written. What is there now was not written by another run later."""
        with suppress(OSError):
            if self._lock.is_held:
                self._known.update(self._contents())
        self._lock.release()

    def _claim(self) -> None:
        if not self._is_writer or self._lock.is_held:
            return
        self._lock.acquire()
        others = [name for content, name in self._contents().items() if content not in self._known]
        if others:
            self._lock.release()
            raise CheckpointError(
                "another run has written checkpoints in the folder of this one.",
                (("folder", str(self.folder)), ("latest", max(others))),
                f"ml.fit(model, data, checkpoint={str(self.folder)!r}, resume=True)  # continues from there",
            )

    def _contents(self) -> dict[str, str]:
        """Return the name of each checkpoint in the folder by its content, which is the same in a copy."""
        found: dict[str, str] = {}
        for path in checkpoints_in(self.folder):
            with suppress(OSError):  # one that cannot be read is reported by `latest`
                found.setdefault(content_id(path), path.name)
        return found

    def _remove_leftovers(self) -> None:
        remove_leftovers(self.folder, is_exclusive=True)
        for path in self.folder.iterdir():
            if LEFTOVER.fullmatch(path.name) and path.is_file():
                path.unlink(missing_ok=True)

    def is_due(self, step: int) -> bool:
        """Whether to take a checkpoint after this step, whose epoch is closed if it was the epoch's last."""
        if not self._is_writer:
            return False
        every, per_epoch = self.options.every_epoch, self._course.steps_per_epoch
        if every is not None and step % (every * per_epoch) == 0:
            return True
        is_time = self.options.every_s is not None and time.monotonic() - self._taken_at >= self.options.every_s
        return is_time and (self._thread is None or not self._thread.is_alive())

    def take(self, state: State, history: History) -> None:
        """Take a checkpoint of a state whose steps all have their numbers in the history; return before it is written.

        Waits for the one before if that is not written yet.
        """
        if not self._is_writer or state.step == self._taken:
            return
        self.finish()
        self._taken, self._taken_at = state.step, time.monotonic()
        self._farthest = max(self._farthest, state.step)
        # The next step overwrites the arrays: the copy is begun before it, and fetched beside it.
        trees = copied(local(trees_of(state)))
        work = (trees, history.rows(), self._facts(state))
        thread = threading.Thread(target=self._write, args=work, name="mithril_nb checkpoint")
        try:
            thread.start()
        except RuntimeError:  # since Python 3.12 no thread can start while the interpreter ends
            self._write(*work)
        else:
            self._thread = thread

    def went_back(self) -> None:
        """Take note that the state went back: a step that is reached again is another one, and taken again."""
        self._taken = -1

    def finish(self) -> None:
        """Wait until what was taken is written; warn, once, if it could not be."""
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        if self.problem is not None:
            warnings.warn(str(self.problem), RuntimeWarning, stacklevel=2)

    def _facts(self, state: State) -> dict[str, Any]:
        return course_facts(self._course) | {
            "step": state.step,
            "epochs": state.epochs,
            "learning_rate": state.learning_rate,
            "starting_rate": self._starting_rate,
            "start": self.start,
            "elapsed_s": state.elapsed_s,
            "validation_loss": state.validation_loss,
            "validation_accuracy": state.validation_accuracy,
            "columns": list(COLUMNS),
        }

    def _write(self, trees: Mapping[str, Any], rows: np.ndarray, facts: Mapping[str, Any]) -> None:
        try:
            self._claim()
            arrays = to_host(trees)
            # Params that the next step will find to be NaN are no place to go on from.
            if all(_is_finite(array) for name, array in arrays.items() if name.startswith("params")):
                path = self.folder / f"step-{facts['step']:010}.safetensors"
                write(path, arrays | {"history": rows}, facts)
                self._known.add(content_id(path))
                self._prune(facts["step"])
        except CheckpointError as error:
            first = error.diagnostics[0]
            self.problem = Diagnostic(
                f"the checkpoint of step {facts['step']} could not be written; the training continues.",
                (("because", first.summary), *first.facts),
                first.advice,
                code="CheckpointError",
            )
        except (OSError, SafetensorError) as error:
            because = getattr(error, "strerror", None) or str(error)
            self.problem = Diagnostic(
                f"the checkpoint of step {facts['step']} could not be written; the training continues.",
                (("folder", str(self.folder)), ("because", because)),
                "make room, or take away what is in the way; the next checkpoint is tried all the same.",
                code="CheckpointError",
            )
        else:
            self.problem = None

    def _prune(self, step: int) -> None:
        paths = checkpoints_in(self.folder)
        # This run was there, and went back to this step after a failure. What lies farther off is not its own.
        left = [path for path in paths if step < _step_of(path) <= self._farthest]
        before = [path for path in paths if _step_of(path) <= step]
        for path in left + (before[self.options.keep :] if self.options.keep else []):
            path.unlink(missing_ok=True)


def trees_of(state: State) -> dict[str, Any]:
    """Return the trees of arrays that make up a state."""
    return {"params": state.params, "opt_state": state.opt_state}


def course_facts(course: Course) -> dict[str, Any]:
    """Return what a checkpoint says of the course it belongs to."""
    return {
        "samples": len(course.data),
        "data": data_fingerprint(course.data),
        "batch_size": course.batch_size,
        "tail": course.tail,
        "seed": course.seed,
        "shuffle": bool(course.shuffle),
        "loss": course.loss.name if course.loss.output is None else f"{course.loss.name} of {course.loss.output}",
        "optimizer": course.optimizer.name,
        "model": model_fingerprint(course.model),
    }


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, the latest first."""
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=_step_of, reverse=True)


def _step_of(path: Path) -> int:
    return int(path.name[5:].partition(".")[0])


def latest(folder: str | PathLike[str]) -> Saved | None:
    """Return the latest whole checkpoint of a folder, `None` if it has no checkpoints; warn of broken ones.

    Raises:
        CheckpointError: There are checkpoints, and all of them are broken.
        OtherVersionError: The latest that is not broken is of another version: it is not passed over.
    """
    problems: list[Diagnostic] = []
    for path in checkpoints_in(Path(folder)):
        try:
            saved = read(path)
            _check_facts(saved)
        except OtherVersionError:
            raise
        except CheckpointError as error:
            problems.extend(error.diagnostics)
            continue
        for problem in problems:
            warnings.warn(f"{problem}\n    going on from {path.name!r}, the one before.", RuntimeWarning, stacklevel=2)
        return saved
    if problems:
        raise CheckpointError(problems[0], more=tuple(problems[1:]))
    return None


def prepare(
    checkpoint: Any, resume: bool, course: Course, state: State, history: History, *, is_start_given: bool = False
) -> None:
    """Give a run that is about to begin its checkpoints, and put it where the latest one was.

    Args:
        checkpoint: A folder, a `Checkpoints`, or `None`.
        resume: Whether to go on from what is in the folder. If there is nothing, the run begins at its beginning.
        course: What the run is going to do.
        state: Its state, changed in place.
        history: Its history, changed in place.
        is_start_given: Whether somebody chose the params that it is about to begin with.

    Raises:
        CheckpointError: Another run is using the folder; it holds checkpoints and `resume` was not asked for; all of
            them are broken; or the latest is of another model, optimizer, data or seed, began with other params than
            those chosen, or is farther on than the run goes.
        UnknownOptionError: `resume` without a folder.
    """
    if checkpoint is None:
        if resume:
            raise UnknownOptionError(
                "resume=True does not say where from.", (), 'ml.fit(model, data, checkpoint="runs/digits", resume=True)'
            )
        return
    options = checkpoint if isinstance(checkpoint, Checkpoints) else Checkpoints(checkpoint)
    saver = Saver(options, course, state.learning_rate, fingerprint((state.params, state.model_state)))
    with saver.reading():
        there = checkpoints_in(saver.folder)
        if there and not resume:
            raise CheckpointError(
                "the folder holds checkpoints of a run already.",
                (("folder", str(saver.folder)), ("latest", there[0].name)),
                "resume=True  # or another folder for this run",
            )
        if (saved := latest(saver.folder)) is not None:
            _go_on(saved, course, state, history, saver, is_start_given)
    state.saver = saver


def _go_on(saved: Saved, course: Course, state: State, history: History, saver: Saver, is_start_given: bool) -> None:
    here = course_facts(course)
    # Checkpoints that were written before these were kept know none of them.
    facts = {"data": here["data"], "start": saver.start, "model": here["model"]} | saved.facts
    pairs = [(name, facts[name], here[name]) for name in COURSE]
    differs = [(name, f"{then!r} in the checkpoint, {now!r} here") for name, then, now in pairs if then != now]
    if facts["samples"] == here["samples"] and facts["data"] != here["data"]:
        differs.append(("data", "the run began with other samples than are given here"))
    if is_start_given and facts["start"] != saver.start:
        differs.append(("params", "the run began with others than are given here"))
    if differs:
        raise _of_another_run(saved, differs)
    trees = like(trees_of(state), saved, ("history",))  # says which array does not fit, where that tells models apart
    if facts["model"] != here["model"]:
        raise _of_another_run(saved, [("model", "the run trained another, with params of the same shapes")])
    if facts["step"] > state.epochs * course.steps_per_epoch:
        raise CheckpointError(
            f"checkpoint {saved.path.name!r} is farther on than this run goes.",
            (
                ("folder", str(saved.path.parent)),
                ("there", f"step {facts['step']}"),
                ("here", f"step {state.epochs * course.steps_per_epoch}, epochs={state.epochs}"),
            ),
            f'epochs={-(-facts["step"] // course.steps_per_epoch)} or more; or checkpoint="another-folder".',
        )
    saver.start = facts["start"]
    state.params, state.opt_state = trees["params"], trees["opt_state"]
    state.step, state.elapsed_s = facts["step"], facts["elapsed_s"]
    state.validation_loss, state.validation_accuracy = facts["validation_loss"], facts["validation_accuracy"]
    # A rate that was changed while the run trained is kept; one that is given anew takes its place.
    if state.learning_rate == facts["starting_rate"]:
        state.learning_rate = facts["learning_rate"]
    history.restore(saved.arrays["history"])


def _of_another_run(saved: Saved, differs: Sequence[tuple[str, str]]) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {saved.path.name!r} is of another run.",
        (("folder", str(saved.path.parent)), *differs),
        'the same model, data and options as before; or checkpoint="another-folder".',
    )


def _check_facts(saved: Saved) -> None:
    """Refuse facts that nobody but a stranger would write."""
    facts, rows = saved.facts, saved.arrays.get("history")
    kinds: dict[str, Any] = {"step": int, "samples": int, "batch_size": int, "seed": int, "shuffle": bool}
    kinds |= {"tail": str, "loss": str, "optimizer": str}
    kinds |= dict.fromkeys(("learning_rate", "starting_rate", "elapsed_s"), int | float)
    kinds |= dict.fromkeys(("validation_loss", "validation_accuracy"), int | float | None)
    wrong = [name for name, kind in kinds.items() if name not in facts or not isinstance(facts[name], kind)]
    wrong += ["step"] if not wrong and facts["step"] < 0 else []
    wrong += ["columns"] if facts.get("columns") != list(COLUMNS) else []
    if rows is None or rows.ndim != 2 or rows.shape[0] != len(COLUMNS) or rows.dtype != np.float64:
        wrong.append("history")
    if wrong:
        raise broken(saved.path, f"it lacks, or has no right {', '.join(wrong)}")


def _is_finite(array: np.ndarray) -> bool:
    return not jnp.issubdtype(array.dtype, jnp.inexact) or bool(np.isfinite(array).all())
