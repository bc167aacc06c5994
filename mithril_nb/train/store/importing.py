"""`ml.import_runs`: the runs of TensorBoard, trackio and MLflow as stored runs."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mithril_nb.errors import RunStoreError, UnknownOptionError, installed, short_repr
from mithril_nb.train.store.database import Database
from mithril_nb.train.store.origin import plain
from mithril_nb.train.store.sinks import PACKAGES
from mithril_nb.train.store.stored import Runs, runs
from mithril_nb.train.store.tracking import OWN

_STATES = {"FINISHED": "done", "FAILED": "failed"}


class _Imported(NamedTuple):
    identity: list[str]
    name: str
    config: Mapping[str, Any]
    state: str
    points: Iterable[tuple[int, float, Mapping[str, Any]]]
    """Step, time in seconds, and metrics, in the order of logging."""


def import_runs(source: str, project: str | os.PathLike[str], folder: str | os.PathLike[str] = "runs") -> Runs:
    """Store the runs of another tool: names, configs, and the numbers of each step. Return all runs of the folder.

    A run that was imported before gets the numbers that it has now, and keeps its tags and notes. Runs without a known
    end are `"stopped"`. Times are those of the tool, from the first number of a run. Images and texts are left out.

    Args:
        source: `"tensorboard"`, `"trackio"` or `"mlflow"`.
        project: The folder with the event files of TensorBoard, in which each folder with files is a run; the project
            of trackio; or the experiment of MLflow, in the store that `mlflow.set_tracking_uri` or
            `MLFLOW_TRACKING_URI` names.
        folder: The folder of the stored runs, created if missing.

    Raises:
        RunStoreError: There are no such runs, an event file is damaged, or the folder cannot be used.
        UnavailableBackendError: The package of the tool is not installed; for TensorBoard, it is tensorboardX.
        UnknownOptionError: Runs of this source cannot be imported.

    Examples:
        The runs of a folder of TensorBoard, compared with others:

            ml.import_runs("tensorboard", "lightning_logs").compare("version_0", "version_1")
    """
    readers = {"tensorboard": _of_tensorboard, "trackio": _of_trackio, "mlflow": _of_mlflow}
    if source not in readers:
        facts = (("got", short_repr(source)), ("sources", ", ".join(readers)))
        raise UnknownOptionError("runs of this source cannot be imported.", facts, 'ml.import_runs("mlflow", "digits")')
    library = installed(PACKAGES[source], f'import_runs("{source}")')
    imported = [*readers[source](library, os.fspath(project))]
    if not imported:
        raise RunStoreError(f"{source} has no runs in {str(project)!r}.", (("folder", os.getcwd()),))
    database = Database(folder, creates=True)
    try:
        names = {json.dumps(database.origin(name).get("imported")): name for name in database.names()}
        for run in imported:
            own = [source, str(database.folder / run.name)]  # the files of the sink of a run in its own folder
            if run.identity != own or run.name not in database.names():
                _store(database, run, names.get(json.dumps(run.identity)))
    finally:
        database.close()
    return runs(folder)


def _store(database: Database, run: _Imported, name: str | None) -> None:
    rows: dict[int, tuple[float, dict[str, float]]] = {}
    for step, time, metrics in run.points:
        numbers = {
            f"metric.{key}" if key in OWN else key: float(value)
            for key, value in metrics.items()
            if isinstance(value, int | float | np.number) and not isinstance(value, bool)
        }
        rows[step] = time, rows.get(step, (0, {}))[1] | numbers  # if a step has several values, the last one counts
    started = min((time for time, _ in rows.values()), default=0.0)
    tables: dict[tuple[str, ...], list[list[float]]] = {}
    latest: dict[str, float] = {}
    for order, (step, (time, numbers)) in enumerate(sorted(rows.items())):
        tables.setdefault((*OWN, *numbers), []).append([step, time - started, order, *numbers.values()])
        latest |= numbers
    changes = {"state": run.state, "step": max(rows, default=0), "latest": latest, "config": plain(dict(run.config))}
    changes["elapsed_s"] = max((time for time, _ in rows.values()), default=0.0) - started
    if name is None:
        base = re.sub(r"[^\w .+=@-]+", "-", run.name).strip(" ._+=@-")[:90] or "run"
        taken = {*database.names(), *(path.name for path in database.folder.iterdir())}
        name = next(free for n in range(1, len(taken) + 2) if (free := base if n == 1 else f"{base}-{n}") not in taken)
        summary = {"created": started, "parts": 0, "knobs": {}, "events": [], "tags": [], "reason": "imported"}
        unknown = dict.fromkeys(("graph", "device", "host", "git", "git_diff"))
        origin = {"config": changes["config"], "code": {}, "values": {}, "versions": {}, **unknown}
        database.put(name, {**summary, **changes}, {**origin, "imported": run.identity})
    parts = {number: (columns, np.array(table)) for number, (columns, table) in enumerate(tables.items())}
    database.change(name, changes, parts, until=sys.maxsize)
    database.copy(name)


def _of_tensorboard(library: Any, folder: str) -> Iterator[_Imported]:
    event_of = installed("tensorboardX.proto.event_pb2", "tensorboard").Event
    masked_crc32c = installed("tensorboardX.record_writer", "tensorboard").masked_crc32c
    root = Path(folder).absolute()
    for run in sorted({path.parent for path in root.rglob("*tfevents*")}):
        config, points = dict[str, Any](), list[tuple[int, float, dict[str, Any]]]()
        for path in sorted(run.glob("*tfevents*")):
            data, at = path.read_bytes(), 0
            while at + 12 <= len(data) and (end := at + 16 + int.from_bytes(data[at : at + 8], "little")) <= len(data):
                body = data[at + 12 : end - 4]  # a record: length, its checksum, event, its checksum
                if masked_crc32c(body) != int.from_bytes(data[end - 4 : end], "little"):
                    raise RunStoreError(f"the event file {path.name!r} is damaged.", (("folder", str(run)),))
                event, at = event_of.FromString(body), end
                if event.HasField("session_log"):  # a restart, which computes the steps from here on again
                    points = [point for point in points if point[0] < event.step]
                for value in event.summary.value:
                    plugin, tensor = value.metadata.plugin_data.plugin_name, value.tensor
                    if value.HasField("simple_value") and not plugin:
                        points.append((event.step, event.wall_time, {value.tag: value.simple_value}))
                    elif plugin == "scalars" and tensor.dtype == 1:  # float32, as TensorFlow 2 writes them
                        number = [*tensor.float_val, *np.frombuffer(tensor.tensor_content, np.float32)][0]
                        points.append((event.step, event.wall_time, {value.tag: number}))
                    elif value.tag == "config/text_summary":  # of our sink
                        with suppress(ValueError):
                            config = json.loads(
                                tensor.string_val[0].decode().removeprefix("```json").removesuffix("```")
                            )
        name = run.name if run == root else str(run.relative_to(root))
        yield _Imported(["tensorboard", str(run)], name, config, "stopped", points)


def _of_trackio(library: Any, project: str) -> Iterator[_Imported]:
    storage = installed("trackio.sqlite_storage", "trackio").SQLiteStorage
    for run in library.Api().runs(project) if storage.get_project_db_path(project).exists() else ():
        config = {key: value for key, value in (run.config or {}).items() if not key.startswith("_")}
        logs = storage.get_logs(project, run.name, run_id=run.id)
        points = [(row.pop("step"), datetime.fromisoformat(row.pop("timestamp")).timestamp(), row) for row in logs]
        yield _Imported(["trackio", project, run.id], run.name, config, "stopped", points)


def _of_mlflow(library: Any, project: str) -> Iterator[_Imported]:
    client = library.MlflowClient()
    experiment = client.get_experiment_by_name(project)
    for run in client.search_runs([experiment.experiment_id], max_results=50_000) if experiment else ():
        key = run.info.run_id
        points = [
            (metric.step, metric.timestamp / 1000, {name: metric.value})
            for name in run.data.metrics
            for metric in client.get_metric_history(key, name)
        ]
        config = {name: _value(text) for name, text in run.data.params.items()}
        state = _STATES.get(run.info.status, "stopped")
        yield _Imported(["mlflow", project, key], run.info.run_name, config, state, points)


def _value(text: str) -> Any:
    """Return the value of a parameter, which MLflow stores as the text of Python."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
