"""Sinks: the numbers of a run arrive there, and no sink delays, fails or changes the run."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import UnavailableBackendError, UnknownOptionError
from mithril_nb.train.store import sinks as module
from mithril_nb.train.store import tracking

STEPS = 20


class Collected:
    """A sink that records its rows."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.is_closed = False

    def log(self, step: int, metrics: dict[str, float]) -> None:
        assert not self.is_closed
        self.rows.append((step, dict(metrics)))
        metrics.clear()

    def close(self) -> None:
        self.is_closed = True


class Failing(Collected):
    def log(self, step: int, metrics: dict[str, float]) -> None:
        super().log(step, metrics)
        if step == 3:
            raise OSError("the network is down")


class Blocked(Collected):
    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Event()

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self.may_end.wait(30)
        super().log(step, metrics)


def loop(path: Path, sinks: Any, steps: int = STEPS, stops: Sequence[int] = ()) -> list[tuple[int, dict[str, float]]]:
    """Train, and return the rows."""
    with ml.track(path, config={"rate": 0.5, "layers": [3, 4]}, checkpoint_every=5, sinks=sinks) as run:
        state = run.restore(0.0)
        for _ in run.steps([0], total=steps):
            state += 0.5
            run.log({"train/loss": np.float32(1 / run.step), "rate": state, "image": np.ones((2, 2))}, state=state)
            if run.step in stops:  # a list, whose values do not count as code
                run.stop()
    return rows_of(path)


def rows_of(path: Path) -> list[tuple[int, dict[str, float]]]:
    history = ml.runs(path.parent)[path.name].history
    names = ["train/loss", "rate"]
    return [(int(step), {name: history[name][at] for name in names}) for at, step in enumerate(history["step"])]


def test_sinks_receive_the_stored_numbers(tmp_path: Path) -> None:
    first, second = Collected(), Collected()
    rows = loop(tmp_path / "a", [first, second])
    assert first.rows == second.rows == rows
    assert len(rows) == STEPS
    assert first.is_closed
    unused = Collected()
    with ml.track(tmp_path / "b", sinks=unused):
        pass
    assert unused.is_closed


def test_a_sink_that_fails_is_dropped(tmp_path: Path) -> None:
    failing, whole = Failing(), Collected()
    with pytest.warns(RuntimeWarning, match="sink Failing is dropped. OSError: the network is down") as caught:
        rows = loop(tmp_path / "a", [failing, whole])
    assert len(caught) == 1
    assert whole.rows == rows
    assert [step for step, _ in failing.rows] == [1, 2, 3]
    assert failing.is_closed
    assert any("network" in event["text"] for event in ml.runs(tmp_path)["a"].events)


def test_a_sink_that_hangs_does_not_delay_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSING_S", 0.2)
    monkeypatch.setattr(module, "MOST_ROWS", 10)
    for steps, because in ((5, r"did not end in 0\.2 s"), (50, "10 rows wait")):
        blocked = Blocked()
        with pytest.warns(RuntimeWarning, match=because):
            assert len(loop(tmp_path / str(steps), [blocked], steps)) == steps
        assert not blocked.rows
        blocked.may_end.set()


@pytest.mark.parametrize("rows", [1, 50])
def test_a_dropped_sink_is_closed_and_its_thread_ends(
    tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSING_S", 0.2)
    monkeypatch.setattr(module, "MOST_ROWS", 10)
    blocked, before = Blocked(), {*threading.enumerate()}
    with pytest.warns(RuntimeWarning, match="sink Blocked is dropped"):
        loop(tmp_path / "a", [blocked], rows)
    threads = [thread for thread in threading.enumerate() if "sink" in thread.name and thread not in before]
    blocked.may_end.set()
    for thread in threads:
        thread.join(10)
    assert [thread.is_alive() for thread in threads] == [False]
    assert blocked.is_closed
    assert len(blocked.rows) == 1


def test_the_thread_of_a_dropped_sink_without_rows_ends() -> None:
    """The rows may have been sent between the moment when they were too many and the drop."""
    collected = Collected()
    sender = module.Sender(collected, Path(), {}, lambda _: None)
    sender._drop("100 rows wait for it")
    sender._thread.join(10)
    assert not sender._thread.is_alive()
    assert collected.is_closed


def test_hanging_sinks_share_one_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSING_S", 0.5)
    sinks, start = [Blocked() for _ in range(4)], time.monotonic()
    with pytest.warns(RuntimeWarning, match="did not end"):
        loop(tmp_path / "a", sinks)
    assert time.monotonic() - start < 1.8
    run = ml.runs(tmp_path)["a"]
    assert (run.state, len(run.history["step"])) == ("done", STEPS)
    assert sum("did not end" in event["text"] for event in run.events) == 4
    for sink in sinks:
        sink.may_end.set()


@pytest.mark.parametrize("error", [SystemExit(1), OSError("no upload")])
def test_a_sink_that_fails_at_the_end_is_an_event(tmp_path: Path, error: BaseException) -> None:
    class Ending(Collected):
        def close(self) -> None:
            raise error

    with pytest.warns(RuntimeWarning, match=f"sink Ending is dropped. {type(error).__name__}"):
        loop(tmp_path / "a", [Ending()])
    run = ml.runs(tmp_path)["a"]
    assert [event["text"] for event in run.events][-1] == run.state == "done"
    assert any("sink Ending is dropped" in event["text"] for event in run.events)


def test_the_rows_are_stored_before_the_sinks_end(tmp_path: Path) -> None:
    stored: list[int] = []

    class Reading(Collected):
        def close(self) -> None:
            stored.append(len(rows_of(tmp_path / "a")))

    loop(tmp_path / "a", [Reading()])
    assert stored == [STEPS]


def test_an_interrupt_while_a_sink_ends_keeps_the_end_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "end", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        loop(tmp_path / "a", [])
    assert ml.runs(tmp_path)["a"].state == "done"
    assert len(rows_of(tmp_path / "a")) == STEPS


def test_mlflow_receives_how_a_run_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, ends = mock.MagicMock(), []
    library.MlflowClient().search_runs.return_value = []
    library.MlflowClient().set_terminated = lambda run, status: ends.append(status)
    monkeypatch.setitem(sys.modules, "mlflow", library)
    monkeypatch.setitem(sys.modules, "mlflow.entities", library.entities)
    loop(tmp_path / "a", "mlflow", 2)
    run = ml.track(tmp_path / "b", sinks="mlflow")
    run.log({"loss": 1.0})
    run.finish("failed")
    assert ends == ["FINISHED", "FAILED"]


@pytest.mark.parametrize(
    ("sink", "message"),
    [("tensorbord", 'sinks=\\["tensorboard"\\]'), (print, "must be a name, or an object"), (None, "got +None")],
)
def test_what_is_no_sink_is_refused_before_the_run(tmp_path: Path, sink: Any, message: str) -> None:
    with pytest.raises(UnknownOptionError, match=message):
        ml.track(tmp_path / "a", sinks=[sink])
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", module.PACKAGES)
def test_a_missing_package_is_named(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module.PACKAGES[name], None)
    with pytest.raises(UnavailableBackendError, match=f"pip install {module.PACKAGES[name]}"):
        ml.track(tmp_path / "a", sinks=name)


def rows_of_tensorboard(folder: Path) -> Iterator[tuple[int, str, float]]:
    from tensorboardX.proto.event_pb2 import Event

    for file in sorted(folder.glob("runs/a/events*")):
        data = file.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            event, data = Event.FromString(data[12 : 12 + length]), data[16 + length :]
            yield from (
                (event.step, value.tag, value.simple_value)
                for value in event.summary.value
                if not value.metadata.plugin_data.plugin_name
            )


def rows_of_trackio(folder: Path) -> Iterator[tuple[int, str, float]]:
    from trackio.sqlite_storage import SQLiteStorage

    assert SQLiteStorage.get_runs(folder.name) == ["a"]
    for row in SQLiteStorage.get_logs(folder.name, "a"):
        yield from ((row["step"], name, row[name]) for name in ("train/loss", "rate"))


def rows_of_wandb(folder: Path) -> Iterator[tuple[int, str, float]]:
    import json

    from wandb.proto.wandb_internal_pb2 import Record

    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        data, at, record = file.read_bytes(), 7, b""
        while at < len(data):  # the format of LevelDB's logs: blocks of 32 KiB, in which a record may be split
            left = 32768 - at % 32768
            length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
            record, at = (record, at + left) if left < 7 else (record + data[at + 7 : at + 7 + length], at + 7 + length)
            if left >= 7 and kind in (1, 4):
                items = Record.FromString(record).history.item
                row, record = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in items}, b""
                yield from ((row["_step"], name, row[name]) for name in ("train/loss", "rate") if row)


def rows_of_mlflow(folder: Path) -> Iterator[tuple[int, str, float]]:
    import mlflow

    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name(folder.name).experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params == {"rate": "0.5", "layers": "[3, 4]"}
    for name in ("train/loss", "rate"):
        yield from ((metric.step, name, metric.value) for metric in client.get_metric_history(run.info.run_id, name))


@pytest.mark.parametrize("name", module.PACKAGES)
@pytest.mark.filterwarnings("default")  # of these packages
def test_libraries_receive_the_stored_numbers(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in (
        ("WANDB_MODE", "offline"),
        ("TRACKIO_DIR", str(tmp_path / "trackio")),
        ("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db"),
    ):
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(tmp_path)
    pytest.importorskip(module.PACKAGES[name])
    with warnings.catch_warnings(action="error", category=RuntimeWarning):
        loop(Path("runs/a"), name, stops=[8])
        rows = loop(Path("runs/a"), name)
    assert [step for step, _ in rows] == [*range(1, STEPS + 1)]
    rows_there = {
        "tensorboard": rows_of_tensorboard,
        "trackio": rows_of_trackio,
        "wandb": rows_of_wandb,
        "mlflow": rows_of_mlflow,
    }[name](tmp_path)
    received = {(step, metric): value for step, metric, value in rows_there}
    expected = {(step, metric): value for step, metrics in rows for metric, value in metrics.items()}
    assert received == expected
