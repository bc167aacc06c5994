"""Resume a run from a checkpoint: find the latest one, compare it with the run, and restore it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mithril_nb.errors import CheckpointError, Diagnostic, UnknownOptionError
from mithril_nb.train.checkpoints.equations import difference
from mithril_nb.train.checkpoints.file import OtherVersionError, Saved, broken, like, read
from mithril_nb.train.checkpoints.saver import Checkpoints, Saver, checkpoints_in, trees_of
from mithril_nb.train.processes import fingerprint
from mithril_nb.train.run.events import COLUMNS, History
from mithril_nb.train.run.state import State
from mithril_nb.train.training_plan import TrainingPlan

Resume = bool | Literal["anyway"]
COURSE = ("samples", "batch_size", "tail", "seed", "shuffle", "loss", "optimizer")
"""Facts that a resumed run must share with the checkpoint, so that its steps are the same."""


def latest(folder: str | PathLike[str]) -> Saved | None:
    """Return the latest complete checkpoint of a folder; `None` if it has none. Warn about broken checkpoints.

    Raises:
        CheckpointError: All checkpoints are broken.
        OtherVersionError: This mithril_nb cannot read the version of the latest complete checkpoint. Older ones are
            not tried.
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
            used = replace(problem, facts=(*problem.facts, ("instead", f"the run resumes from {path.name!r}")))
            warnings.warn(str(used), RuntimeWarning, stacklevel=2)
        return saved
    if problems:
        raise CheckpointError(problems[0], more=tuple(problems[1:]))
    return None


def prepare(
    checkpoint: Any, resume: Resume, plan: TrainingPlan, state: State, history: History, *, is_start_given: bool = False
) -> None:
    """Set up the checkpoints of a new run, and restore the latest one if the run resumes.

    Args:
        checkpoint: The folder, or a `Checkpoints`; `None` to take no checkpoints.
        resume: True to restore the latest checkpoint in the folder, if it has one; `"anyway"` to do so even if it
            belongs to another run.
        plan: The fixed parts of the run.
        state: State of the run; restored in place.
        history: Metrics of the run; restored in place.
        is_start_given: True if the user passed `params` or a model state. The run of the checkpoint must then have
            begun with the same values.

    Raises:
        CheckpointError: The folder cannot be created, another run is using it, it holds checkpoints and `resume` is
            False, or all its checkpoints are broken. The latest checkpoint belongs to another model, optimizer, data or
            seed, its run began with other params than the user passed, or it is past the last step of this run.
        UnknownOptionError: `resume` is True without a folder, or the folder is not a path.
    """
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
    here, facts = saver.plan_facts, saved.facts
    pairs = [(name, facts[name], here[name]) for name in COURSE]
    differs = [(name, f"{then!r} in the checkpoint, {now!r} here") for name, then, now in pairs if then != now]
    for name, label in (("data_hash", "data"), ("equations", "loss and optimizer")):
        if name not in facts:
            differs.append((label, "unknown: an earlier version of mithril_nb wrote the checkpoint"))
    if facts["samples"] == here["samples"] and facts.get("data_hash", here["data_hash"]) != here["data_hash"]:
        differs.append(("data", "the run began with other samples"))
    if is_start_given and facts.get("start", saver.start) != saver.start:
        differs.append(("params", "the run began with other params"))
    if differs and not accepts_changes:
        raise _another_run_error(saved, differs)
    trees = like(
        state.runtime.host(trees_of(state)), saved
    )  # before the equations, because its error names the arrays that do not match
    changes = {
        name: difference(then, now)
        for name, now in here["equations"].items()
        if (then := facts.get("equations", {}).get(name)) is not None
    }
    differs = [(name, text) for name, text in changes.items() if text]
    if differs and facts.get("jax") != here["jax"]:
        differs.append(
            ("jax", f"{facts.get('jax')} in the checkpoint, {here['jax']} here: it may write other equations")
        )
    if facts.get("model", here["model"]) != here["model"]:
        differs.append(("model", "the run trained another model with params of the same shapes"))
    if differs and not accepts_changes:
        raise _another_run_error(saved, differs)
    if facts["step"] > state.epochs * plan.steps_per_epoch:
        raise CheckpointError(
            f"checkpoint {saved.path.name!r} is past the last step of this run.",
            (
                ("folder", str(saved.path.parent)),
                ("checkpoint", f"step {facts['step']}"),
                ("this run", f"{state.epochs * plan.steps_per_epoch} steps, epochs={state.epochs}"),
            ),
            f'epochs={-(-facts["step"] // plan.steps_per_epoch)}  # or more; or checkpoint="another-folder"',
        )
    saver.start = facts.get("start", saver.start)
    state.params, state.opt_state = state.runtime.arrays((trees["params"], trees["opt_state"]))
    state.step, state.elapsed_s = facts["step"], facts["elapsed_s"]
    state.validation_loss, state.validation_accuracy = facts["validation_loss"], facts["validation_accuracy"]
    # Keep a rate that was changed while the run trained, unless the user now passes another one.
    if state.learning_rate == facts["starting_rate"]:
        state.learning_rate = facts["learning_rate"]
    history.restore(saved.arrays["history"])


def _another_run_error(saved: Saved, differs: Sequence[tuple[str, str]]) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {saved.path.name!r} belongs to another run.",
        (("folder", str(saved.path.parent)), *differs),
        'resume="anyway"  # continues with the changes; or checkpoint="another-folder" for a new run',
    )


def _check_facts(saved: Saved) -> None:
    """Raise if a fact or the history is missing, or has another type than mithril_nb writes."""
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
        raise broken(saved.path, f"missing or invalid: {', '.join(wrong)}")
