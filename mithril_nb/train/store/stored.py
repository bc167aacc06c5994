"""`ml.runs`: find stored runs, read their metrics and params, compare them, and continue from a step of one."""

from __future__ import annotations

import math
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from mithril_nb.backends.backend import check_count
from mithril_nb.display import Shown, draw
from mithril_nb.errors import CheckpointError, RunStoreError, UnknownOptionError, installed, short_repr
from mithril_nb.train.checkpoints.file import OtherVersionError, Saved, read
from mithril_nb.train.checkpoints.folder_lock import in_use
from mithril_nb.train.checkpoints.saver import checkpoints_in, step_of
from mithril_nb.train.metrics import is_lower_better
from mithril_nb.train.store.database import Database, Part, check_name, rebuilt
from mithril_nb.train.store.exporting import export_run, to_orbax
from mithril_nb.train.store.origin import differences, plain
from mithril_nb.train.store.states import prefix_of, restored_state

if TYPE_CHECKING:
    import pandas

FITTED = "checkpoints"
"""Folder of the checkpoints of `ml.fit`, in the folder of its run."""
TRASH = ".deleted"
"""Folder of the files of deleted runs."""


def runs(folder: str | os.PathLike[str] = "runs", *, repair: bool = False) -> Runs:
    """Return the runs that `ml.track` stored in a folder.

    Args:
        folder: The folder of the runs.
        repair: True to make a new database of all whole records of a damaged one, which stays beside it.

    Raises:
        RunStoreError: The folder has no runs, or its database is damaged, locked or of a newer version.

    Examples:
        >>> import tempfile
        >>> from mithril_nb.train.store.tracking import track
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for rate in (0.1, 0.2):
        ...         with track(f"{folder}/rate {rate}", config={"rate": rate}) as run:
        ...             run.log({"loss": 1 - rate})
        ...     [(run.name, run.config["rate"], run.history["loss"]) for run in runs(folder)]
        [('rate 0.1', 0.1, array([0.9])), ('rate 0.2', 0.2, array([0.8]))]
    """
    if repair:
        if lost := rebuilt(folder):
            warnings.warn(f"records are lost of: {', '.join(lost)}", RuntimeWarning, stacklevel=2)
    return Runs(Database(folder))


class Runs(Shown):
    """The runs of a folder, in the order of their start. Iterate over them, or take one by its name."""

    def __init__(self, database: Database):
        self._database = database

    def __repr__(self) -> str:
        return f"Runs({len(self)} in {str(self._database.folder)!r})"

    def __getitem__(self, name: str) -> StoredRun:
        self._database.summary(name)  # raises the error of an unknown run
        return StoredRun(self._database, name)

    def __iter__(self) -> Iterator[StoredRun]:
        return (StoredRun(self._database, name) for name in self._database.summaries())

    def __len__(self) -> int:
        return len(self._database.names())

    def table(self) -> list[dict[str, Any]]:
        """Return a dict for each run: name, state, step, seconds, tags, settings, and the latest value of each metric.

        The names of settings begin with `config.`.
        """
        rows: list[dict[str, Any]] = []
        for name, summary in self._database.summaries().items():
            if summary.get("hidden"):
                continue
            state = _state(self._database.folder / name, summary)
            row = {"name": name, "state": state, "step": summary["step"], "elapsed_s": summary["elapsed_s"]}
            row |= {"parent": "{} at {}".format(*summary["parent"]) if "parent" in summary else None}
            row |= {"started": summary["created"], "tags": " ".join(summary["tags"])}
            row |= {f"config.{key}": value for key, value in summary["config"].items()}
            rows.append(
                row | {f"metric.{key}" if key in row else key: value for key, value in summary["latest"].items()}
            )
        return rows

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return an HTML page with the table and the curves of all runs, and write it to `path` if given.

        The page needs no kernel and no network. A long curve is drawn by minimum and maximum of each interval.
        """
        return draw(self, "page", path=path)

    def data_frame(self) -> pandas.DataFrame:
        """Return the table as a `pandas.DataFrame`."""
        return installed("pandas", "data_frame").DataFrame(self.table())

    def compare(self, *names: str) -> Comparison:
        """Return how runs differ: config, code, values, versions, git, latest and best metrics, and their curves."""
        return Comparison([self[name] for name in names])

    def delete(self, name: str) -> None:
        """Delete a run. Its files move to the folder `.deleted`, from which `undelete` takes them back."""
        run = self[name]
        if run.state in ("running", "paused"):
            raise RunStoreError(f"run {name!r} is running.", (), "run.stop()  # then delete it")
        self._database.copy(name)
        aside = self._database.folder / TRASH / name
        if aside.exists():
            shutil.rmtree(aside)
        aside.parent.mkdir(exist_ok=True)
        os.replace(self._database.folder / name, aside)
        self._database.delete(name)

    def undelete(self, name: str) -> StoredRun:
        """Take a deleted run back."""
        aside, folder = self._database.folder / TRASH / check_name(name), self._database.folder / name
        if not aside.is_dir() or folder.exists():
            because = "a run of this name exists" if folder.exists() else "no deleted run has this name"
            raise RunStoreError(f"run {name!r} cannot be taken back.", (("because", because),))
        os.replace(aside, folder)
        with warnings.catch_warnings(action="ignore"):  # that the database lacks it
            return Runs(Database(self._database.folder))[name]


class StoredRun(Shown):
    """A stored run. It reads the database again each time, so a run that trains shows its current values.

    Attributes:
        name: Name of the run.
    """

    def __init__(self, database: Database, name: str):
        self.name, self._database = name, database

    def __repr__(self) -> str:
        return f"StoredRun({self.name!r}: {self.state}, step {self.step})"

    @property
    def summary(self) -> dict[str, Any]:
        """All that changes while a run trains, as JSON values."""
        return self._database.summary(self.name)

    @property
    def origin(self) -> dict[str, Any]:
        """All that the run was started with, as JSON values: config, code, values, versions, device, git."""
        return self._database.origin(self.name)

    @property
    def folder(self) -> Path:
        """Folder of the run's checkpoints."""
        return self._database.folder / self.name

    @property
    def state(self) -> str:
        """`"running"`, `"paused"`, `"stopped"`, `"done"`, `"failed"`, or `"killed"` if its process just ended."""
        return _state(self.folder, self.summary)

    @property
    def step(self) -> int:
        """Steps taken."""
        return self.summary["step"]

    @property
    def config(self) -> dict[str, Any]:
        """The config that `ml.track` received."""
        return self.origin["config"]

    @property
    def events(self) -> list[dict[str, Any]]:
        """Marks of the run: changed knobs, pauses, notes, its end; each with `step`, `time` and `text`."""
        return self.summary["events"]

    @property
    def history(self) -> dict[str, np.ndarray]:
        """The metrics as columns for `pandas.DataFrame`, with `step` and `elapsed_s`; NaN where a step has no value."""
        parts = self._database.parts(self.name)
        steps = np.unique(np.concatenate([table[:, 0] for _, table in parts])) if parts else np.empty(0)
        history = {name: np.full(len(steps), np.nan) for name in ("step", "elapsed_s")}
        orders: dict[str, np.ndarray] = {}
        for columns, table in parts:
            rows = np.searchsorted(steps, table[:, 0])
            for name, values in zip(columns, table.T, strict=True):
                column = history.setdefault(name, np.full(len(steps), np.nan))
                order = orders.setdefault(name, np.full(len(steps), -1.0))
                # If a step has several values, the last one counts. The rows of a part are in the order of logging.
                is_later = table[:, 2] >= order[rows]
                column[rows[is_later]], order[rows[is_later]] = values[is_later], table[is_later, 2]
        history.pop("order", None)
        return history

    @property
    def best(self) -> dict[str, tuple[float, int]]:
        """Best value, and its first step, of each metric with a known name, such as losses and accuracies.

        For `ml.fit`, `"loss"` and `"accuracy"` are those of one batch.
        """
        history, best = self.history, dict[str, tuple[float, int]]()
        for name in history.keys() - {"step", "elapsed_s"}:
            with suppress(UnknownOptionError):  # it is unknown whether a lower value is better
                values = history[name] if is_lower_better(name) else -history[name]
                if np.isfinite(values).any():
                    at = int(np.argmin(np.where(np.isfinite(values), values, np.inf)))
                    best[name] = float(history[name][at]), int(history["step"][at])
        return dict(sorted(best.items()))

    def arrays(self, name: str) -> dict[int, np.ndarray]:
        """Return the arrays that were logged under a name, by step."""
        return self._database.arrays(self.name, name)

    @property
    def checkpoints(self) -> list[int]:
        """Steps of the checkpoints, in ascending order."""
        return [step_of(path) for path in self._files()][::-1]

    def _files(self) -> list[Path]:
        return [*checkpoints_in(self.folder), *checkpoints_in(self.folder / FITTED)]

    def params(self, *, step: int | None = None, best: bool = False) -> dict[str, np.ndarray]:
        """Return the arrays of a checkpoint by their path in the state, such as `"['w']"`.

        Of a run of `ml.fit`, these are the params alone.

        Args:
            step: Step of the checkpoint; by default the latest.
            best: True for the checkpoint with the best value of `keep_best`.

        Raises:
            CheckpointError: There is no such checkpoint, or it is damaged.
        """
        saved = read(self._checkpoint(step, best))
        prefix = prefix_of(saved)
        return {name.removeprefix(prefix): array for name, array in saved.arrays.items() if name.startswith(prefix)}

    def restore(self, state: Any, *, step: int | None = None, best: bool = False) -> Any:
        """Return the state of a checkpoint in the structure of `state`, with arrays that are equal bit for bit.

        Args:
            state: A tree as in `TrackedRun.restore`; the params alone for a run of `ml.fit`.
            step: Step of the checkpoint; by default the latest.
            best: True for the checkpoint with the best value of `keep_best`.

        Raises:
            CheckpointError: There is no such checkpoint, it is damaged, or it has other arrays than `state`.
        """
        return restored_state(state, read(self._checkpoint(step, best)))

    def _checkpoint(self, step: int | None, best: bool = False) -> Path:
        if best:
            step = self.summary.get("best", {}).get("step", -1)
        paths = {step_of(path): path for path in self._files()}
        chosen = paths.get(max(paths, default=-1) if step is None else step)
        if chosen is None:
            raise CheckpointError(
                f"run {self.name!r} has no checkpoint of {'its best step' if best else f'step {step}'}.",
                (("checkpoints", ", ".join(map(str, sorted(paths))) or "none"),),
                'ml.track(..., keep_best="validation_loss")' if best else "",
            )
        return chosen

    def checkpoint_step(self, step: int | None = None, best: bool = False) -> int:
        """Return the step of a checkpoint; by default of the latest."""
        return step_of(self._checkpoint(step, best))

    def export(self, path: str | os.PathLike[str], *, step: int | None = None, best: bool = False) -> Path:
        """Write a new folder with params, config, metrics, code and a model card, and return its path.

        The card, `README.md`, has only what the run measured. A run without checkpoints has no params.

        Args:
            path: The folder, which must be new or empty.
            step: Step of the checkpoint; by default the latest.
            best: True for the checkpoint with the best value of `keep_best`.

        Raises:
            CheckpointError: There is no such checkpoint, or it is damaged.
            RunStoreError: The folder has files, or cannot be written. No half folder is left.
        """
        return export_run(self, path, step, best)

    def to_orbax(
        self, path: str | os.PathLike[str], state: Any = None, *, step: int | None = None, best: bool = False
    ) -> Path:
        """Write a checkpoint as a new folder that Orbax restores bit for bit, and return its path.

        Args:
            path: The folder, which must not exist.
            state: A tree as in `restore`, which Orbax then takes as the target of its restore. By default, dicts and
                lists are written: named tuples and modules as dicts, random keys as their data. Nodes without arrays,
                such as `optax.EmptyState`, are left out.
            step: Step of the checkpoint; by default the latest.
            best: True for the checkpoint with the best value of `keep_best`.

        Raises:
            CheckpointError: There is no such checkpoint, it is damaged, or it has other arrays than `state`.
            RunStoreError: The folder exists, or cannot be written.
            UnavailableBackendError: Orbax is not installed.
        """
        return to_orbax(read(self._checkpoint(step, best)), path, state)

    def fork(self, name: str | None = None, *, step: int | None = None, **config: Any) -> StoredRun:
        """Copy the run up to a checkpoint as a new run, which continues when its script starts with the new config.

        Args:
            name: Name of the new run; by default `NAME-2` or the first number that is free.
            step: Step of a checkpoint; by default the latest.
            **config: Values of the config to change.

        Raises:
            CheckpointError: There is no such checkpoint.
            RunStoreError: A run of this name exists.
            UnknownOptionError: The config has no such value.
        """
        path = self._checkpoint(step)
        names = self._database.names()
        free = (f"{self.name}-{number}" for number in range(2, len(names) + 3))
        chosen = next(other for other in free if other not in names) if name is None else check_name(name)
        if chosen in names or (self._database.folder / chosen).exists():
            raise RunStoreError(f"run {chosen!r} exists.", (("folder", str(self._database.folder)),))
        unknown = [key for key in config if key not in self.config]
        if unknown:
            facts = (("config", ", ".join(self.config)),)
            raise UnknownOptionError(f"the config of run {self.name!r} has no {unknown[0]!r}.", facts)
        at = step_of(path)
        copied = self._database.folder / chosen / path.relative_to(self.folder)
        copied.parent.mkdir(parents=True)
        shutil.copy2(path, copied)
        origin = self.origin
        parts, latest = rows_until(self._database.parts(self.name), at)
        summary = {
            **{key: value for key, value in self.summary.items() if key not in ("best", "pinned", "ended", "sound")},
            "state": "stopped",
            "reason": "forked",
            "created": time.time(),
            **({"sound": at} if self.summary.get("sound") == at else {}),
            "parent": [self.name, at],
            "step": at,
            "elapsed_s": read(path).facts["elapsed_s"],
            "latest": latest,
            "parts": 0,
            "events": [event for event in self.events if event["step"] <= at],
        }
        changed = plain(config)
        summary["config"] = origin["config"] | changed
        self._database.put(chosen, summary, origin | {"config": origin["config"] | changed, "is_fork": True})
        self._database.change(chosen, {}, parts)
        self._database.copy_arrays(self.name, chosen, at)
        return StoredRun(self._database, chosen)

    def tag(self, *tags: str) -> None:
        """Add tags."""
        self._edit({"tags": [tag for tag in map(str, tags) if tag not in self.summary["tags"]]})

    def hide(self, hidden: bool = True) -> None:
        """Leave the run out of tables, or show it again."""
        self._edit({"hidden": bool(hidden) or None})

    def note(self, text: str) -> None:
        """Add a line to the events."""
        self._edit({"events": [{"step": self.step, "time": time.time(), "text": str(text)}]})

    def pin(self, step: int) -> None:
        """Keep the checkpoint of a step."""
        self._checkpoint(step)
        self._edit({"pinned": [step]})

    def _edit(self, values: Mapping[str, Any]) -> None:
        self._database.change(self.name, values)
        if self.state not in ("running", "paused"):
            self._database.copy(self.name)

    def set(self, name: str, value: float) -> None:
        """Change a knob of a run that trains in any process."""
        if name not in (knobs := self.summary["knobs"]):
            raise UnknownOptionError(
                f"run {self.name!r} has no knob {name!r}.", (("knobs", ", ".join(knobs) or "none"),)
            )
        self._request({"name": name, "value": checked_number(name, value, log=knobs[name]["log"])})

    def pause(self) -> None:
        """Pause the run before its next step."""
        self._request({"action": "pause"})

    def resume(self) -> None:
        """Let a paused run continue."""
        self._request({"action": "resume"})

    def step_once(self, steps: int = 1) -> None:
        """Let a paused run take one step, or several."""
        self._request({"action": "step_once", "steps": check_count("steps", steps)})

    def stop(self) -> None:
        """End the run before its next step."""
        self._request({"action": "stop"})

    def _request(self, request: Mapping[str, Any]) -> None:
        if self.state not in ("running", "paused"):
            raise RunStoreError(f"run {self.name!r} is not running.", (("state", self.state),))
        self._database.request(self.name, request)


class Comparison(Shown):
    """Differences of runs.

    Attributes:
        runs: The runs.
        differences: Facts in which a run differs from the first: name of the fact, then what differs, by run.
    """

    def __init__(self, stored: list[StoredRun]):
        if len(stored) < 2:
            raise UnknownOptionError("compare takes two runs or more.", (), 'runs.compare("a", "b")')
        self.runs = stored
        first = stored[0].origin
        self.differences = {
            run.name: differences(first, other := run.origin) + _others(first, other) for run in stored[1:]
        }

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return an HTML page with the differences and the curves, and write it to `path` if given."""
        return draw(self, "page", path=path)

    def curves(self, metric: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return steps and values of a metric, by run. Runs without the metric are left out."""
        histories = {run.name: run.history for run in self.runs}
        return {
            name: (history["step"][has := ~np.isnan(history[metric])], history[metric][has])
            for name, history in histories.items()
            if metric in history
        }


def _others(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs = {
        name: (then["versions"].get(name), now["versions"].get(name))
        for name in {**then["versions"], **now["versions"]}
    }
    pairs |= {name: (then[name], now[name]) for name in ("device", "host", "git")}
    return [
        (name, f"{before or 'unknown'} → {after or 'unknown'}")
        for name, (before, after) in pairs.items()
        if before != after
    ]


def _state(folder: Path, summary: Mapping[str, Any]) -> str:
    is_alive = summary["state"] not in ("running", "paused") or in_use(folder)
    return summary["state"] if is_alive else "killed"


def checkpoint_of(folder: Path) -> Saved | None:
    """Return the latest whole checkpoint of a run; `None` if it has none. Warn about damaged ones."""
    broken: list[CheckpointError] = []
    for path in checkpoints_in(folder):
        try:
            return read(path)
        except OtherVersionError:  # an older one would silently lose the steps after it
            raise
        except CheckpointError as error:
            broken.append(error)
            warnings.warn(
                f"{error.diagnostics[0].summary} The run continues from an earlier one.", RuntimeWarning, stacklevel=3
            )
    if broken:
        raise broken[0]
    return None


def rows_until(parts: list[Part], step: int) -> tuple[dict[int, Part], dict[str, float]]:
    """Return the rows up to a step, as parts by number, and the latest value of each metric in them."""
    cut = [(columns, table[table[:, 0] <= step]) for columns, table in parts]
    left = [part for part in cut if len(part[1])]
    latest: dict[str, tuple[float, float]] = {}
    for columns, table in left:
        for name, value in zip(columns[3:], table[-1, 3:].tolist(), strict=True):
            latest[name] = max(latest.get(name, (-1.0, 0.0)), (table[-1, 2], value), key=lambda pair: pair[0])
    return dict(enumerate(left)), {name: value for name, (_, value) in latest.items()}


def checked_number(name: str, value: Any, *, log: bool = False) -> float:
    """Return the value of a knob as a finite float, positive if its slider is logarithmic."""
    number = value.item() if isinstance(value, jax.Array) and value.ndim == 0 else value
    is_number = isinstance(number, int | float | np.number) and not isinstance(number, bool)
    if not is_number or not math.isfinite(number) or (log and number <= 0):
        kind = "positive" if log else "finite"
        raise UnknownOptionError(f"knob {short_repr(name)} takes a {kind} number.", (("got", short_repr(value)),))
    return float(number)
