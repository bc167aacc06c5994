"""`ml.import_runs`: what a sink received comes back as the run that sent it."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import RunStoreError, UnavailableBackendError, UnknownOptionError
from mithril_nb.train.store.sinks import PACKAGES

SOURCES = ["tensorboard", "trackio", "mlflow"]
CONFIG = {"rate": 0.5, "layers": [3, 4], "kind": "a b", "is_deep": True, "nothing": None}


@pytest.fixture(params=SOURCES)
def source(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip(PACKAGES[request.param])
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    return request.param


def loop(name: str, sink: str, steps: int = 20, stops: Sequence[int] = ()) -> None:
    with ml.track(f"runs/{name}", config=CONFIG, checkpoint_every=5, sinks=sink) as run:
        state = run.restore(0.0)
        for _ in run.steps([0], total=steps):
            state += 0.5
            numbers = {"train/loss": np.float32(1 / run.step), "rate": state}
            run.log(numbers | ({"validation_loss": 2.0} if run.step % 5 == 0 else {}), state=state)
            if run.step in stops:
                run.stop()


def project(source: str) -> str:
    return "runs" if source == "tensorboard" else Path.cwd().name


def assert_same(imported: Any, run: Any) -> None:
    assert imported.config == run.config == CONFIG
    history, expected = imported.history, run.history
    assert history.keys() == expected.keys()
    for name in expected.keys() - {"elapsed_s"}:
        np.testing.assert_array_equal(history[name], expected[name], name)
    assert (np.diff(history["elapsed_s"]) >= 0).all()
    assert history["elapsed_s"][0] == 0
    assert (imported.step, imported.summary["latest"]) == (run.step, run.summary["latest"])


@pytest.mark.filterwarnings("default")  # of these packages
def test_exported_runs_come_back(source: str) -> None:
    loop("a", source, stops=[8])
    loop("a", source)  # continues after step 8
    loop("b", source, 7)
    for _ in range(2):
        imported = ml.import_runs(source, project(source), "copies")
        assert sorted(run.name for run in imported) == ["a", "b"]
    for name in "ab":
        assert_same(imported[name], ml.runs("runs")[name])
    assert imported["a"].state == ("done" if source == "mlflow" else "stopped")
    assert math.isclose(imported["a"].summary["created"], ml.runs("runs")["a"].summary["created"], abs_tol=60)
    imported.compare("a", "b")
    imported["a"].tag("good")
    loop("a", source, 22)  # the run had ended, so that this is another one
    again = ml.import_runs(source, project(source), "copies")
    assert sorted(run.name for run in again) == ["a", "a-2", "b"]
    assert again["a"].summary["tags"] == ["good"]


def test_an_imported_run_gets_its_new_numbers(tmp_path: Path) -> None:
    library = pytest.importorskip("tensorboardX")
    for steps in (3, 5):
        with library.SummaryWriter(str(tmp_path / "logs"), filename_suffix=f".{steps}") as writer:
            for step in range(steps):
                writer.add_scalar("loss", step / 2, step)
                writer.add_scalar("order", -step, step)  # a name that the store uses itself
            writer.add_text("note", "no number")
        (run,) = ml.import_runs("tensorboard", tmp_path / "logs", tmp_path / "runs")
        assert run.history["loss"].tolist() == [step / 2 for step in range(steps)]
        assert run.history["metric.order"].tolist() == [-step for step in range(steps)]
        assert (run.name, run.step, run.config) == ("logs", steps - 1, {})


def test_scalars_as_tensors(tmp_path: Path) -> None:
    library = pytest.importorskip("tensorboardX")
    with library.SummaryWriter(str(tmp_path / "logs")) as writer:
        for step in (0, 1):
            writer.add_scalar("loss", 0.5 + step, step, summary_description="as TensorFlow writes it")
    (run,) = ml.import_runs("tensorboard", tmp_path / "logs", tmp_path / "runs")
    assert run.history["loss"].tolist() == [0.5, 1.5]


def test_stored_runs_are_not_doubled_by_their_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboardX")
    monkeypatch.chdir(tmp_path)
    loop("a", "tensorboard")
    assert [run.name for run in ml.import_runs("tensorboard", "runs", "runs")] == ["a"]
    assert ml.runs("runs")["a"].state == "done"


def test_damaged_and_cut_files(tmp_path: Path) -> None:
    library = pytest.importorskip("tensorboardX")
    with library.SummaryWriter(str(tmp_path / "logs")) as writer:
        for step in range(9):
            writer.add_scalar("loss", step, step)
    (file,) = (tmp_path / "logs").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:-3])  # of a process that was killed
    (run,) = ml.import_runs("tensorboard", tmp_path / "logs", tmp_path / "runs")
    assert run.history["step"].tolist() == [*range(8)]
    file.write_bytes(data[:-10] + bytes([data[-10] ^ 1]) + data[-9:])
    with pytest.raises(RunStoreError, match=rf"the event file '{file.name}' is damaged"):
        ml.import_runs("tensorboard", tmp_path / "logs", tmp_path / "runs")


def test_what_cannot_be_imported_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownOptionError, match=r"sources +tensorboard, trackio, mlflow\n"):
        ml.import_runs("wandb", "digits", tmp_path / "runs")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UnavailableBackendError, match="pip install mlflow"):
        ml.import_runs("mlflow", "digits", tmp_path / "runs")
    assert not [*tmp_path.iterdir()]


def test_a_source_without_runs_is_named(source: str, tmp_path: Path) -> None:
    with pytest.raises(RunStoreError, match=f"{source} has no runs in 'nothing'"):
        ml.import_runs(source, "nothing", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
