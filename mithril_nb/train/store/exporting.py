"""The folder of an exported run: params, config, metrics, code, and a model card of what was measured."""

from __future__ import annotations

import csv
import html
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from mithril_nb.atomic_write import new_folder
from mithril_nb.errors import RunStoreError, installed
from mithril_nb.train.checkpoints.file import Saved, nested
from mithril_nb.train.store.states import prefix_of, restored_state

_FILES = {
    "params.safetensors": "arrays of the checkpoint, by their path in the state",
    "config.json": "config of the run",
    "metrics.csv": "metrics of each step; empty where a step has no value",
    "code.py": "code of the loop and the functions that it uses, as stored",
    "changes.diff": "changes of the git commit",
}


def export_run(run: Any, path: str | os.PathLike[str], step: int | None, best: bool) -> Path:
    """Write the folder of a `StoredRun`. A failure leaves no folder."""
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        because = "it contains files" if target.is_dir() else "it is a file"
        raise RunStoreError(
            f"run {run.name!r} cannot be exported to {str(path)!r}.", (("because", because),), "another, new folder"
        )
    origin, history = run.origin, run.history
    at, params = None, dict[str, np.ndarray]()
    if run.checkpoints or best or step is not None:
        at = run.checkpoint_step(step, best)
        params = run.params(step=at)  # a run that trains may have a later one by now
    code = "\n\n".join(f"# {' '.join(name.split())}\n{text}" for name, text in origin["code"].items())
    texts = {"config.json": json.dumps(origin["config"], indent=2) + "\n"}
    texts |= {"code.py": f"{code}\n"} if code else {}
    texts |= {"changes.diff": diff} if (diff := origin["git_diff"]) else {}
    try:
        with new_folder(target) as part:
            if params:
                save_file(
                    {name: np.asarray(array, order="C") for name, array in params.items()}, part / "params.safetensors"
                )
            with open(part / "metrics.csv", "w", encoding="utf-8", newline="") as file:
                table = csv.writer(file, lineterminator="\n")
                table.writerow(history)
                for row in zip(*(values.tolist() for values in history.values()), strict=True):
                    table.writerow(["" if value != value else value for value in row])
            for name, text in texts.items():
                (part / name).write_text(text, encoding="utf-8", errors="replace", newline="\n")
            names = [name for name in _FILES if (part / name).exists()]
            card = _card(run, origin, at, names)
            (part / "README.md").write_text(card, encoding="utf-8", errors="replace", newline="\n")
    except (OSError, SafetensorError) as error:
        because = getattr(error, "strerror", None) or str(error)
        facts = (("because", because),)
        raise RunStoreError(f"run {run.name!r} cannot be exported to {str(path)!r}.", facts) from error
    return target


def to_orbax(saved: Saved, path: str | os.PathLike[str], state: Any) -> Path:
    """Write a checkpoint as one of Orbax, in the structure of `state`, or in dicts and lists."""
    ocp = installed("orbax.checkpoint", "to_orbax", "orbax-checkpoint")
    target, prefix = Path(os.path.realpath(path)), prefix_of(saved)
    if state is None:
        tree = _with_lists(nested({name: array for name, array in saved.arrays.items() if name.startswith(prefix)}))
    else:
        tree = restored_state(state, saved)
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(target, tree)
    except Exception as error:  # Orbax and tensorstore document no errors
        facts = (("because", str(error)),)
        raise RunStoreError(f"{saved.path.name!r} cannot be written to {str(path)!r}.", facts) from error
    return target


def _with_lists(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    values = {key: _with_lists(value) for key, value in tree.items()}
    return [values[index] for index in range(len(values))] if {*values} == {*range(len(values))} else values


def _card(run: Any, origin: dict[str, Any], at: int | None, names: list[str]) -> str:
    summary, best = run.summary, run.best
    parent = "{} at step {}".format(*summary["parent"]) if "parent" in summary else "none"
    versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
    facts = {"state": run.state, "steps": run.step, "seconds": f"{summary['elapsed_s']:.6g}", "forked from": parent}
    facts |= {"params": "none: the run has no checkpoint" if at is None else f"of step {at}"}
    facts |= {
        "device": origin["device"],
        "versions": versions,
        "git commit": origin["git"],
        "tags": ", ".join(summary["tags"]),
    }
    best_texts = {name: (f"{value:.6g}", step) for name, (value, step) in best.items()}
    latest = summary["latest"].items()
    metrics = [(name, f"{value:.6g}", *best_texts.get(name, ("unknown", "unknown"))) for name, value in latest]
    parts = [
        f"# {_line(run.name)}",
        "Exported by mithril_nb from a stored run, whose loop measured all figures.",
        _table("run", "value", [*facts.items()]),
        _table("metric", "latest", metrics, "best", "at step"),
        _table("config", "value", [(name, json.dumps(value)) for name, value in origin["config"].items()]),
        _table("file", "contents", [(name, _FILES[name]) for name in names]),
        "There is no `predict.py`, because the run stores arrays and code, but no model that could be called.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(name: str, value: str, rows: list[Any], *more: str) -> str:
    heads = (name, value, *more)
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(_line, line))} |" for line in lines) if rows else ""


def _line(value: Any) -> str:
    """Return a value as text of one line, without the characters that are markup in Markdown."""
    text = html.escape(" ".join(str("unknown" if value is None else value).split()), quote=False)
    return "".join(f"\\{char}" if char in "|`*_[]\\" else char for char in text)
