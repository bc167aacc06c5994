"""Checkpoints of a run: when to take one, where to write it, and how a run resumes from it."""

from __future__ import annotations

import math
import re
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError

from mithril_nb.atomic_write import remove_leftovers
from mithril_nb.backends.backend import check_count
from mithril_nb.errors import CheckpointError, Diagnostic, UnknownOptionError
from mithril_nb.train.checkpoints.equations import difference, equations_of
from mithril_nb.train.checkpoints.file import OtherVersionError, Saved, broken, content_id, like, read, to_host, write
from mithril_nb.train.checkpoints.folder_lock import FolderLock
from mithril_nb.train.processes import distributed, fingerprint
from mithril_nb.train.run.events import COLUMNS, History
from mithril_nb.train.run.state import Backup, State
from mithril_nb.train.stream import Stream, packed, unpacked
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
                check_count(name, getattr(self, name))
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
        # By content, not by path or time: a checkpoint that was copied or restored from a backup is still of this run.
        self._known: set[str] = set()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Create the folder, lock it while its checkpoints are read, and remove what killed writes left.

        The run locks the folder again when it trains, so that an idle run does not block another run.
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
        """Lock the folder before training."""
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
        names: dict[str, str] = {}
        for path in checkpoints_in(self.folder):
            if (content := content_id(path)) is not None:  # `latest` reports other files
                names.setdefault(content, path.name)
        return names

    def _is_own(self, path: Path) -> bool:
        return content_id(path) in self._known

    def is_due(self, step: int) -> bool:
        """Return whether to take a checkpoint after this step. If the step ends an epoch, call it after validation."""
        if not self._is_writer:
            return False
        epochs, per_epoch = self.options.every_epoch, self._plan.steps_per_epoch
        if epochs is not None and step % (epochs * per_epoch) == 0:
            return True
        # Only if the last write has ended: a slow disk then makes checkpoints rarer, not the training slower.
        is_time = self.options.every_s is not None and time.monotonic() - self._taken_at >= self.options.every_s
        return is_time and (self._thread is None or not self._thread.is_alive())

    def take(self, state: State, history: History) -> None:
        """Take a checkpoint and return before it is written. The history must hold the metrics of every step."""
        if not self._is_writer or state.step == self._taken:
            return
        self.finish()
        self._taken, self._taken_at = state.step, time.monotonic()
        self._farthest = max(self._farthest, state.step)
        # `rows` is a copy too: the run appends to the history while the thread writes.
        # The next step overwrites the arrays: start the copy first, and fetch it while the step runs.
        trees = state.runtime.saved(trees_of(state))
        facts = self.plan_facts | {
            "step": state.step,
            "epochs": state.epochs,
            "learning_rate": state.learning_rate,
            "starting_rate": self._starting_rate,
            "start": self.start,
            "elapsed_s": state.elapsed_s,
            "validation": {name: np.asarray(value).tolist() for name, value in state.validation.items()},
            "best_step": None if state.best is None else state.best.step,
            "columns": list(history.columns),
            "validated": list(history.validated),
            "position": None if state.stream is None else packed(state.stream.position),
        }
        work = (trees, history.rows(), facts)
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

    def _write(self, trees: Mapping[str, Any], rows: np.ndarray, facts: Mapping[str, Any]) -> None:
        try:
            self._claim()
            arrays = to_host(trees)
            # Do not save params that are not finite: no run can resume from them.
            params = [array for name, array in arrays.items() if name.startswith("params")]
            if all(not jnp.issubdtype(array.dtype, jnp.inexact) or np.isfinite(array).all() for array in params):
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
        except (OSError, SafetensorError) as error:  # a full disk is an error of safetensors, without an errno
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
        # A later one with a number above `_farthest` was put there by someone else.
        left = [path for path in paths if step < step_of(path) <= self._farthest]
        before = [path for path in paths if step_of(path) <= step]
        for path in left + (before[self.options.keep :] if self.options.keep else []):
            if self._is_own(path):
                path.unlink(missing_ok=True)


def trees_of(state: State) -> dict[str, Any]:
    """Return the trees of a state whose arrays a checkpoint stores, by name."""
    best = {} if state.best is None else {"best": state.best.restored()}
    return {"params": state.params, "opt_state": state.opt_state, **best}


def plan_facts(plan: TrainingPlan) -> dict[str, Any]:
    """Return the facts that a checkpoint stores about the plan of its run."""
    return {
        "samples": None if isinstance(plan.data, Stream) else len(plan.data),
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


Resume = bool | Literal["anyway"]
COURSE = ("samples", "batch_size", "tail", "seed", "shuffle", "loss", "optimizer")
"""Facts that a resumed run must share with the checkpoint, so that its steps are the same."""


def latest(folder: str | PathLike[str]) -> Saved | None:
    """Return the latest complete checkpoint of a folder; `None` if it has none. Warn about broken checkpoints."""
    problems: list[Diagnostic] = []
    for path in checkpoints_in(Path(folder)):
        try:
            saved = read(path)
            _check_facts(saved)
        except OtherVersionError:  # an older one would silently lose the steps after it
            raise
        except CheckpointError as error:
            problems.extend(error.diagnostics)
            continue
        for problem in problems:
            used = replace(problem, facts=(*problem.facts, ("instead", f"the run resumes from {path.name!r}")))
            warnings.warn(str(used), RuntimeWarning, stacklevel=2)
        return saved
    if problems:
        raise CheckpointError(problems[0], more=tuple(problems[1:]))
    return None


def prepare(
    checkpoint: Any, resume: Resume, plan: TrainingPlan, state: State, history: History, *, is_start_given: bool = False
) -> None:
    """Set up the checkpoints of a new run, and restore the latest one if the run resumes."""
    if checkpoint is None:
        if resume:
            raise UnknownOptionError(
                "resume=True needs a checkpoint folder.",
                (),
                'ml.fit(model, data, checkpoint="runs/digits", resume=True)',
            )
        return
    options = checkpoint if isinstance(checkpoint, Checkpoints) else Checkpoints(checkpoint)
    params, model_state = state.runtime.host((state.params, state.model_state))
    if state.stream is not None and not state.stream.is_exact:
        warnings.warn(
            "a run on this iterable does not resume exactly: a resumed run continues with its first batches: it "
            "has neither get_state() and set_state() nor state_dict() and load_state_dict().",
            RuntimeWarning,
            stacklevel=3,
        )
    saver = Saver(options, plan, state.learning_rate, params, fingerprint((params, model_state)))
    with saver.reading():
        existing = checkpoints_in(saver.folder)
        if existing and not resume:
            raise CheckpointError(
                "the folder already holds checkpoints of a run.",
                (("folder", str(saver.folder)), ("latest", existing[0].name)),
                "resume=True  # or another folder for this run",
            )
        if (saved := latest(saver.folder)) is not None:
            _restore(saved, plan, state, history, saver, is_start_given, resume == "anyway")
    state.saver = saver


def _restore(
    saved: Saved,
    plan: TrainingPlan,
    state: State,
    history: History,
    saver: Saver,
    is_start_given: bool,
    accepts_changes: bool,
) -> None:
    # In the order of what a user can understand best: options and data, then arrays, then equations.
    here, facts = saver.plan_facts, saved.facts
    pairs = [(name, facts[name], here[name]) for name in COURSE]
    differs = [(name, f"{then!r} in the checkpoint, {now!r} here") for name, then, now in pairs if then != now]
    if facts["samples"] == here["samples"] and facts["data_hash"] != here["data_hash"]:
        differs.append(("data", "the run began with other samples"))
    if is_start_given and facts["start"] != saver.start:
        differs.append(("params", "the run began with other params"))
    if differs and not accepts_changes:
        raise _another_run_error(saved, differs)
    if facts["best_step"] is not None:
        state.best = Backup(facts["best_step"], lambda: (state.params, state.model_state))
    trees = like(state.runtime.host(trees_of(state)), saved)  # first, because its error names the arrays
    if state.best is not None:
        best = state.runtime.arrays(trees["best"])
        state.best = Backup(state.best.step, state.runtime.restorer(best)) if plan.keep_best else None
    then, equations = facts["equations"], here["equations"].items()
    changes = [(name, difference(then[name], now)) for name, now in equations if name in then]
    differs = [(name, text) for name, text in changes if text]
    if differs and facts["jax"] != here["jax"]:
        differs.append(("jax", f"{facts['jax']} in the checkpoint, {here['jax']} here: it may write other equations"))
    if facts["model"] != here["model"]:
        differs.append(("model", "the run trained another model with params of the same shapes"))
    if differs and not accepts_changes:
        raise _another_run_error(saved, differs)
    steps = state.steps(plan.steps_per_epoch)
    if facts["step"] > steps:
        raise CheckpointError(
            f"checkpoint {saved.path.name!r} is past the last step of this run.",
            (
                ("folder", str(saved.path.parent)),
                ("checkpoint", f"step {facts['step']}"),
                ("this run", f"{steps} steps, epochs={state.epochs}"),
            ),
            f'epochs={-(-facts["step"] // plan.steps_per_epoch)}  # or more; or checkpoint="another-folder"',
        )
    saver.start = facts["start"]
    state.params, state.opt_state = state.runtime.arrays((trees["params"], trees["opt_state"]))
    state.step, state.elapsed_s = facts["step"], facts["elapsed_s"]
    state.validation = {
        name: np.array(value) if isinstance(value, list) else value for name, value in facts["validation"].items()
    }
    # Keep a rate that was changed while the run trained, unless the user now passes another one.
    if state.learning_rate == facts["starting_rate"]:
        state.learning_rate = facts["learning_rate"]
    history.restore(saved.arrays["history"], facts["columns"], facts["validated"])
    if state.stream is not None:
        state.stream.restore(unpacked(facts.get("position")))


def _another_run_error(saved: Saved, differs: Sequence[tuple[str, str]]) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {saved.path.name!r} belongs to another run.",
        (("folder", str(saved.path.parent)), *differs),
        'resume="anyway"  # continues with the changes; or checkpoint="another-folder" for a new run',
    )


def _check_facts(saved: Saved) -> None:
    facts, rows = saved.facts, saved.arrays.get("history")
    kinds: dict[str, Any] = {"step": int, "samples": int | None, "batch_size": int, "seed": int, "shuffle": bool}
    kinds |= {"tail": str, "loss": str, "optimizer": str, "jax": str, "equations": dict, "data_hash": int | None}
    kinds |= {"start": int, "model": int | None}
    kinds |= dict.fromkeys(("learning_rate", "starting_rate", "elapsed_s"), int | float)
    kinds |= {"validation": dict, "best_step": int | None, "columns": list, "validated": list}
    wrong = [name for name, kind in kinds.items() if name not in facts or not isinstance(facts[name], kind)]
    wrong += ["step"] if not wrong and facts["step"] < 0 else []
    wrong += ["columns"] if not wrong and facts["columns"][: len(COLUMNS)] != list(COLUMNS) else []
    if rows is None or rows.ndim != 2 or rows.shape[0] != len(facts.get("columns", ())) or rows.dtype != np.float64:
        wrong.append("history")
    if wrong:
        raise broken(saved.path, f"missing or invalid: {', '.join(wrong)}")
