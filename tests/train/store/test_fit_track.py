"""`ml.fit(..., track=)`: its runs are stored, continue after a stop, and are steered like those of own loops."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import CheckpointError, UnknownOptionError
from mithril_nb.models import Linear

X = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
Y = (X @ np.array([[1.0], [2.0], [3.0]], np.float32)).astype(np.float32)


def run_of(path: Path, **options: Any) -> Any:
    settings = {"loss": "mean_squared_error", "learning_rate": 0.05, "epochs": 4, "batch_size": 16, "seed": 1}
    return ml.fit(Linear(1), (X, Y), track=str(path), **settings | options)


def test_a_run_is_stored(tmp_path: Path) -> None:
    run = run_of(tmp_path / "line", validation=0.25).wait()
    wait_for(lambda: ml.runs(tmp_path)["line"].state == "done")
    stored = ml.runs(tmp_path)["line"]
    for name in ("step", "loss", "validation_loss", "learning_rate"):
        np.testing.assert_array_equal(stored.history[name], run.history[name])
    assert stored.config["optimizer"] == "adam"
    assert stored.checkpoints[-1] == run.step
    assert {*stored.params()} == {f"[{name!r}]" for name in run.params}
    run.resume(epochs=1)
    run.wait()
    wait_for(lambda: ml.runs(tmp_path)["line"].step == run.step and ml.runs(tmp_path)["line"].state == "done")
    np.testing.assert_array_equal(ml.runs(tmp_path)["line"].history["loss"], run.history["loss"])
    assert len(ml.runs(tmp_path)) == 1
    assert run.errors == []


class Rows:
    def __init__(self) -> None:
        self.rows: list[tuple[int, float]] = []

    def log(self, step: int, metrics: Any) -> None:
        self.rows.append((step, metrics["loss"]))

    def close(self) -> None: ...


def test_sinks_receive_each_row_once_over_a_stop(tmp_path: Path) -> None:
    rows = Rows()
    for event in (run := run_of(tmp_path / "line", sinks=[rows])):
        if event.step == 6:
            run.stop()
    wait_for(lambda: ml.runs(tmp_path)["line"].state == "stopped")
    run = run_of(tmp_path / "line", sinks=[rows]).wait()
    wait_for(lambda: ml.runs(tmp_path)["line"].state == "done")
    assert rows.rows == [*zip(range(1, 17), run.history["loss"].tolist(), strict=True)]
    with pytest.raises(UnknownOptionError, match="sinks= needs track="):
        ml.fit(Linear(1), (X, Y), sinks=[rows])


def test_a_stopped_run_continues(tmp_path: Path) -> None:
    whole = run_of(tmp_path / "whole").wait()
    for event in (run := run_of(tmp_path / "line")):
        if event.step == 6:
            run.stop()
    wait_for(lambda: ml.runs(tmp_path)["line"].state == "stopped")
    with pytest.raises(CheckpointError, match="batch_size"):
        run_of(tmp_path / "line", batch_size=8)
    assert ml.runs(tmp_path)["line"].config["batch_size"] == 16
    again = run_of(tmp_path / "line")
    assert again.step == 6
    again.wait()
    wait_for(lambda: ml.runs(tmp_path)["line"].state == "done")
    np.testing.assert_array_equal(ml.runs(tmp_path)["line"].history["loss"], whole.history["loss"])
    assert run_of(tmp_path / "line").step == 0  # a new run, as that one has ended
    assert [stored.name for stored in ml.runs(tmp_path)] == ["whole", "line", "line-2"]


def test_a_run_is_steered(tmp_path: Path) -> None:
    run = run_of(tmp_path / "line", epochs=100_000)
    run.start()
    wait_for(lambda: ml.runs(tmp_path)["line"].step > 0)
    stored = ml.runs(tmp_path)["line"]
    stored.set("learning_rate", 0.001)
    stored.pause()
    wait_for(lambda: stored.state == "paused")
    assert run.learning_rate == 0.001
    stored.resume()
    wait_for(lambda: stored.state == "running")
    stored.stop()
    wait_for(lambda: stored.state == "stopped")
    assert run.state == "stopped"
    assert "learning_rate: 0.05 → 0.001" in [event["text"] for event in stored.events]


def wait_for(condition: Any) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)
