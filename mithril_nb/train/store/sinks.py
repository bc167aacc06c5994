"""Sinks: where else a run sends its numbers, such as TensorBoard, trackio, Weights & Biases and MLflow."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mithril_nb.errors import UnknownOptionError, installed, nearest, short_repr

PACKAGES = {"tensorboard": "tensorboardX", "trackio": "trackio", "wandb": "wandb", "mlflow": "mlflow"}
CLOSING_S = 60.0
"""Seconds that the end of a run waits for its sinks, such as for an upload."""
MOST_ROWS = 100_000
"""Rows that may wait for a sink; it is dropped if they are more."""


def checked_sinks(sinks: Any) -> list[Any]:
    """Return sinks as a list, after importing the packages of those with a name."""
    sinks = [*sinks] if isinstance(sinks, Iterable) and not isinstance(sinks, str) else [sinks]
    for sink in sinks:
        if isinstance(sink, str) and sink in PACKAGES:
            installed(PACKAGES[sink], f'sinks=["{sink}"]')
        elif not (hasattr(sink, "add_scalar") or (hasattr(sink, "log") and {"close", "finish"} & {*dir(sink)})):
            name = nearest(sink, PACKAGES) if isinstance(sink, str) else None
            raise UnknownOptionError(
                "a sink must be a name, or an object with the methods log(step, metrics) and close().",
                (("got", short_repr(sink)), ("names", ", ".join(PACKAGES))),
                f'sinks=["{name or "tensorboard"}"]',
            )
    return sinks


class Sender:
    """Sends the rows of a run to a sink, in a thread of its own. A sink that fails is dropped."""

    def __init__(self, sink: Any, folder: Path, summary: Mapping[str, Any], warn: Callable[[str], None]):
        self._sink, self._folder, self._summary, self._warn = sink, folder, summary, warn
        self._rows: queue.Queue[tuple[int, dict[str, float]] | None] = queue.Queue(MOST_ROWS)
        self._is_dropped = self.is_failed = False
        self._thread = threading.Thread(target=self._send, name="mithril_nb sink", daemon=True)
        self._thread.start()

    def put(self, row: tuple[int, dict[str, float]] | None) -> None:
        """Send a row; `None` after the last one. Waits for nothing."""
        if not self._is_dropped:
            try:
                self._rows.put_nowait(row)
            except queue.Full:
                self._drop(f"{MOST_ROWS} rows wait for it")

    def join(self, until: float) -> None:
        """Wait until the sink has all rows and is closed, or for a time of `time.monotonic()`."""
        if not self._is_dropped:
            self._thread.join(max(until - time.monotonic(), 0.0))
            if self._thread.is_alive():
                self._drop(f"it did not end in {CLOSING_S:g} s")

    def _send(self) -> None:
        sink = self._sink
        try:
            row = self._rows.get()
            if isinstance(sink, str):
                sink = None if row is None else _opened(sink, self._folder, self._summary, row[0])
            try:
                while row is not None and not self._is_dropped:
                    _log(sink, *row)
                    if self._rows.empty():
                        getattr(sink, "flush", lambda: None)()
                    row = self._rows.get()
            finally:
                if isinstance(sink, _MlFlow) and self.is_failed:
                    sink.status = "FAILED"
                getattr(sink, "close", getattr(sink, "finish", lambda: None))()
        except BaseException as error:  # SystemExit too, which would end the thread without a word
            self._drop(f"{type(error).__name__}: {error}")

    def _drop(self, because: str) -> None:
        if not self._is_dropped:
            name = self._sink if isinstance(self._sink, str) else type(self._sink).__name__
            with suppress(Warning):  # which a filter has made an error
                self._warn(f"the sink {name} is dropped. {because}")
            self._is_dropped = True  # afterwards, so that `join` waits for the warning
            with suppress(queue.Full):  # the thread may have sent all rows meanwhile, and wait for one
                self._rows.put_nowait(None)


def end(senders: Iterable[Sender], state: str) -> None:
    """Close the sinks of a run with this state. Waits `CLOSING_S` for all together."""
    until = time.monotonic() + CLOSING_S
    for sender in senders:
        sender.is_failed = state == "failed"
        sender.put(None)
    for sender in senders:
        sender.join(until)


def _opened(name: str, folder: Path, summary: Mapping[str, Any], step: int) -> Any:
    """Open the library of a sink for a run, which continues there if it continues here."""
    library, config = installed(PACKAGES[name], name), summary["config"]
    project = folder.parent.parent.name if folder.parent.name == "runs" else folder.parent.name
    about: dict[str, Any] = {"project": project or "runs", "name": folder.name, "config": config}
    if name == "tensorboard":
        # The name of its file has the second, in which a run may start twice.
        writer = library.SummaryWriter(str(folder), purge_step=step, filename_suffix=f".{time.time_ns()}")
        writer.add_text("config", f"```json\n{json.dumps(config, indent=2)}\n```", step)
        return writer
    key = f"{int(summary['created'] * 1e6):x}"  # a name alone may be that of a run in another folder
    if name == "wandb":
        return library.init(**about, id=key, resume="allow", reinit="create_new")
    if name == "trackio":
        return library.init(**about, resume="allow" if summary["step"] else "never")
    return _MlFlow(about, key)


class _MlFlow:
    def __init__(self, about: Mapping[str, Any], key: str):
        self._entities = installed("mlflow.entities", "mlflow", "mlflow")
        self._client = client = installed("mlflow", "mlflow").MlflowClient()
        experiment = client.get_experiment_by_name(about["project"])
        number = experiment.experiment_id if experiment else client.create_experiment(about["project"])
        runs = client.search_runs([number], f"tags.mithril_nb = '{key}'")
        run = runs[0] if runs else client.create_run(number, tags={"mithril_nb": key}, run_name=about["name"])
        self._run, self.status = run.info.run_id, "FINISHED"
        for name, value in about["config"].items() if not runs else ():
            client.log_param(self._run, name, value)

    def log(self, step: int, metrics: dict[str, float]) -> None:
        now = int(time.time() * 1000)
        values = [self._entities.Metric(name, value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self._run, values)

    def close(self) -> None:
        self._client.set_terminated(self._run, self.status)


def _log(sink: Any, step: int, metrics: dict[str, float]) -> None:
    if hasattr(sink, "add_scalar"):  # a SummaryWriter of TensorBoard
        for name, value in metrics.items():
            sink.add_scalar(name, value, step)
    elif hasattr(sink, "close"):
        sink.log(step, metrics)
    else:  # a run of trackio or Weights & Biases
        sink.log(metrics, step=step)
