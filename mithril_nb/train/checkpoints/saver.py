"""Checkpoints of a run: when to take one, and where to write it."""

from __future__ import annotations

import math
import re
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError

from mithril_nb.atomic_write import remove_leftovers
from mithril_nb.backends.backend import check_count
from mithril_nb.errors import CheckpointError, Diagnostic, UnknownOptionError
from mithril_nb.train.checkpoints.equations import equations_of
from mithril_nb.train.checkpoints.file import content_id, to_host, write
from mithril_nb.train.checkpoints.folder_lock import FolderLock
from mithril_nb.train.processes import distributed
from mithril_nb.train.run.events import COLUMNS, History
from mithril_nb.train.run.state import State
from mithril_nb.train.trainable import model_fingerprint
from mithril_nb.train.training_plan import TrainingPlan

NAME = re.compile(r"step-(\d{10,})\.safetensors")


@dataclass(frozen=True)
class Checkpoints:
    """Options for checkpoints.

    A run also takes a checkpoint at its end, unless it fails.

    Attributes:
        folder: Folder of the checkpoints, created if missing. It belongs to one run, which locks it while it trains.
        every_s: Minimum seconds between two checkpoints; `None` to take none by the clock. If the previous checkpoint
            is not written yet, the training continues, and the checkpoint is taken later.
        every_epoch: Take a checkpoint at the end of every `every_epoch`-th epoch; `None` to take none by epochs. If the
            previous checkpoint is not written yet, the training waits, so that no checkpoint is skipped.
        keep: Number of latest checkpoints to keep; `None` to keep all. With the default of 2, one is left if the latest
            is broken.

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
                "folder must be a path.",
                (("got", repr(self.folder)),),
                'ml.fit(model, data, checkpoint="runs/digits")',
            )
        for name in ("every_epoch", "keep"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), f"Checkpoints({str(self.folder)!r}, {name}=2)")
        seconds = self.every_s
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and math.isfinite(seconds) and seconds > 0):
            raise UnknownOptionError(
                "every_s must be a positive number of seconds.",
                (("got", repr(seconds)),),
                f"Checkpoints({str(self.folder)!r}, every_s=60)",
            )


class Saver:
    """Takes the checkpoints of one run. The state is copied on the device, and a separate thread writes the copy.

    If several processes train, the first process writes: all of them hold the same params.

    Attributes:
        start: Fingerprint of the params and model state that the run began with.
        plan_facts: Facts about the plan of the run, with the equations of its loss and optimizer.
        problem: The error of the latest write; `None` if it succeeded.
    """

    def __init__(self, options: Checkpoints, plan: TrainingPlan, starting_rate: float, params: Any, start: int):
        self.start = start
        self.plan_facts = plan_facts(plan) | {"equations": equations_of(plan, params), "jax": jax.__version__}
        self.options, self.folder = options, Path(options.folder).absolute()  # the user may call os.chdir later
        self.problem: Diagnostic | None = None
        self._plan, self._starting_rate = plan, starting_rate
        self._is_writer = distributed().is_main
        self._taken_at, self._taken, self._farthest = time.monotonic(), -1, -1
        self._thread: threading.Thread | None = None
        self._lock = FolderLock(self.folder)
        self._known: set[str] = set()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Create the folder, lock it while its checkpoints are read, and remove what killed writes left.

        The run locks the folder again when it trains, so that an idle run does not block another run.

        Raises:
            CheckpointError: The folder cannot be created or locked, or another run is using it.
        """
        failed = "created"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            failed = "locked"
            if self._is_writer:
                self._lock.acquire()
                remove_leftovers(self.folder)
        except OSError as error:
            because = error.strerror or str(error)
            if failed == "locked" and error.filename is not None:  # the cause is a file in the folder
                because = f"{because}: {str(error.filename)!r}"
            raise CheckpointError(
                f"the folder for checkpoints cannot be {failed}.",
                (("folder", str(self.folder)), ("because", because)),
                'ml.fit(model, data, checkpoint="runs/digits")',
            ) from error
        try:
            yield
        finally:
            self.release()

    def begin(self) -> None:
        """Lock the folder before training.

        Raises:
            CheckpointError: Another run is using the folder, or has written checkpoints in it.
        """
        with suppress(OSError):  # the next checkpoint reports the error, and the training continues
            self._claim()

    def release(self) -> None:
        """Unlock the folder, and record its checkpoints, so that `begin` detects checkpoints of another run."""
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
                "another run has written checkpoints in the folder of this run.",
                (("folder", str(self.folder)), ("latest", max(others))),
                f"ml.fit(model, data, checkpoint={str(self.folder)!r}, resume=True)  # continues from there",
            )

    def _contents(self) -> dict[str, str]:
        """Return the name of each checkpoint in the folder, by an id of its content."""
        names: dict[str, str] = {}
        for path in checkpoints_in(self.folder):
            if (content := content_id(path)) is not None:  # `latest` reports other files
                names.setdefault(content, path.name)
        return names

    def _is_own(self, path: Path) -> bool:
        """Return whether this run, or the run that it resumes, wrote the file at a path."""
        return content_id(path) in self._known

    def is_due(self, step: int) -> bool:
        """Return whether to take a checkpoint after this step. If the step ends an epoch, call it after validation."""
        if not self._is_writer:
            return False
        epochs, per_epoch = self.options.every_epoch, self._plan.steps_per_epoch
        if epochs is not None and step % (epochs * per_epoch) == 0:
            return True
        is_time = self.options.every_s is not None and time.monotonic() - self._taken_at >= self.options.every_s
        return is_time and (self._thread is None or not self._thread.is_alive())

    def take(self, state: State, history: History) -> None:
        """Take a checkpoint and return before it is written. The history must hold the metrics of every step.

        Waits for the previous checkpoint to be written.
        """
        if not self._is_writer or state.step == self._taken:
            return
        self.finish()
        self._taken, self._taken_at = state.step, time.monotonic()
        self._farthest = max(self._farthest, state.step)
        # The next step overwrites the arrays: start the copy first, and fetch it while the step runs.
        trees = state.runtime.saved(trees_of(state))
        work = (trees, history.rows(), self._facts(state))
        thread = threading.Thread(target=self._write, args=work, name="mithril_nb checkpoint")
        try:
            thread.start()
        except RuntimeError:  # since Python 3.12, no thread can start while the interpreter exits
            self._write(*work)
        else:
            self._thread = thread

    def went_back(self) -> None:
        """Forget the last checkpoint after a return to an earlier step: the same step now has another state."""
        self._taken = -1

    def finish(self) -> None:
        """Wait until the last checkpoint is written. Warn once if the write failed."""
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        if self.problem is not None:
            warnings.warn(str(self.problem), RuntimeWarning, stacklevel=2)

    def _facts(self, state: State) -> dict[str, Any]:
        return self.plan_facts | {
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
            # Do not save params that are not finite: no run can resume from them.
            if all(_is_finite(array) for name, array in arrays.items() if name.startswith("params")):
                path = self.folder / f"step-{facts['step']:010}.safetensors"
                write(path, arrays | {"history": rows}, facts, self._is_own)
                self._known.add(content_id(path) or "")
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
                "free disk space, or remove what blocks the path. The run still tries to write the next checkpoint.",
                code="CheckpointError",
            )
        else:
            self.problem = None

    def _prune(self, step: int) -> None:
        paths = checkpoints_in(self.folder)
        # After a failure, the run returned to `step`: its checkpoints after this step, up to `_farthest`, are outdated.
        left = [path for path in paths if step < step_of(path) <= self._farthest]
        before = [path for path in paths if step_of(path) <= step]
        for path in left + (before[self.options.keep :] if self.options.keep else []):
            if self._is_own(path):
                path.unlink(missing_ok=True)


def trees_of(state: State) -> dict[str, Any]:
    """Return the trees of a state whose arrays a checkpoint stores, by name."""
    return {"params": state.params, "opt_state": state.opt_state}


def plan_facts(plan: TrainingPlan) -> dict[str, Any]:
    """Return the facts that a checkpoint stores about the plan of its run."""
    return {
        "samples": len(plan.data),
        "data_hash": plan.data.fingerprint,
        "batch_size": plan.batch_size,
        "tail": plan.tail,
        "seed": plan.seed,
        "shuffle": bool(plan.shuffle),
        "loss": plan.loss.name if plan.loss.output is None else f"{plan.loss.name} of {plan.loss.output}",
        "optimizer": plan.optimizer.name,
        "model": model_fingerprint(plan.model),
    }


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the paths of the checkpoints in a folder, latest first."""
    paths = [path for path in folder.iterdir() if NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(paths, key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """Return the step number in the name of a checkpoint."""
    return int(path.name[5:].partition(".")[0])


def _is_finite(array: np.ndarray) -> bool:
    return not jnp.issubdtype(array.dtype, jnp.inexact) or bool(np.isfinite(array).all())
