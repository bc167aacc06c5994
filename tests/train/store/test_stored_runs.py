"""`ml.runs`: what was stored is found, compared and forked; damage is detected or repaired."""

from __future__ import annotations

import csv
import gc
import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

import mithril_nb as ml
from mithril_nb.errors import CheckpointError, RunStoreError, UnknownOptionError
from mithril_nb.train.store import exporting
from mithril_nb.train.store.database import COPY, FILE
from mithril_nb.viz import run_tables


def ended(folder: Path, name: str, rate: float = 0.1, steps: int = 6) -> None:
    with ml.track(folder / name, config={"rate": rate, "layers": [3, 4]}, checkpoint_every=2, tags=["first"]) as run:
        state = run.restore(np.zeros(2))
        for _ in run.steps([0], total=steps):
            state = state + rate
            run.log(
                {"loss": 1 / run.step, "rate": run.knob("rate", rate), "image": np.full((2, 3), run.step)}, state=state
            )
            if run.step == 3:
                run.note("third")


def everything(folder: Path) -> dict[str, Any]:
    """Return all that the folder says about its runs."""
    return {
        run.name: (
            run.state,
            run.origin,
            run.step,
            run.events,
            {name: column.tolist() for name, column in run.history.items()},
            {step: image.tolist() for step, image in run.arrays("image").items()},
        )
        for run in ml.runs(folder)
    }


def test_a_run_is_found_again(tmp_path: Path) -> None:
    ended(tmp_path, "a")
    run = ml.runs(tmp_path)["a"]
    assert (run.state, run.step, run.config) == ("done", 6, {"rate": 0.1, "layers": [3, 4]})
    np.testing.assert_array_equal(run.history["loss"], 1 / np.arange(1, 7))
    assert run.checkpoints == [4, 6]
    np.testing.assert_allclose(run.params()[""], 0.6)
    assert [event["text"] for event in run.events] == ["third", "done"]
    assert run.events[0]["step"] == 3
    assert run.origin["versions"]["jax"]
    assert run.origin["device"]
    assert "def ended" in run.origin["code"]["ended"]
    with pytest.raises(RunStoreError, match="no run 'aa'"):
        ml.runs(tmp_path)["aa"]
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 3"):
        run.params(step=3)
    with pytest.raises(RunStoreError, match="has no runs"):
        ml.runs(tmp_path / "none")


def test_the_table(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 0.2)):
        ended(tmp_path, name, rate)
    runs = ml.runs(tmp_path)
    frame = runs.data_frame()
    assert frame["config.rate"].tolist() == [0.1, 0.2]
    assert frame["loss"].tolist() == [1 / 6, 1 / 6]
    runs["a"].hide()
    runs["b"].tag("good", "first")
    assert [row["name"] for row in runs.table()] == ["b"]
    assert "<caption>1 runs, 1 hidden</caption>" in runs.to_html()
    assert runs.table()[0]["tags"] == "first good"
    runs["a"].hide(False)
    assert len(runs.table()) == len(runs) == 2


def test_curves_of_many_runs_are_those_of_the_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tables, "MOST_RUNS", 2)
    for name in "abc":
        ended(tmp_path, name)
    page = ml.runs(tmp_path).to_html()
    assert "curves of the latest 2 runs" in page
    assert [page.count(f'class="r{index}"') > 0 for index in range(3)] == [True, True, False]


def test_a_deleted_run_comes_back(tmp_path: Path) -> None:
    ended(tmp_path, "a")
    before, runs = everything(tmp_path), ml.runs(tmp_path)
    runs.delete("a")
    assert not [*runs]
    assert not (tmp_path / "a").exists()
    assert runs.undelete("a").checkpoints == [4, 6]
    assert everything(tmp_path) == before
    with pytest.raises(RunStoreError, match="a run of this name exists"):
        runs.undelete("a")


def test_comparison(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 0.2)):
        ended(tmp_path, name, rate)
    comparison = ml.runs(tmp_path).compare("a", "b")
    assert dict(comparison.differences["b"])["rate"] == "0.1 → 0.2"
    assert "name" not in dict(comparison.differences["b"])  # of the function that started both
    steps, values = comparison.curves("rate")["b"]
    assert steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert set(values) == {0.2}
    with pytest.raises(UnknownOptionError, match="two runs"):
        ml.runs(tmp_path).compare("a")


def test_a_fork_goes_on_with_another_config(tmp_path: Path) -> None:
    ended(tmp_path, "a")
    fork = ml.runs(tmp_path)["a"].fork("b", step=4, rate=0.5)
    assert (fork.state, fork.step, fork.summary["parent"]) == ("stopped", 4, ["a", 4])
    ended(tmp_path, "b", 0.5)
    np.testing.assert_array_equal(fork.history["step"], np.arange(1, 7))
    np.testing.assert_allclose(fork.params()[""], 4 * 0.1 + 2 * 0.5)
    assert ml.runs(tmp_path)["a"].fork().name == "a-2"
    early = ml.runs(tmp_path)["a"].fork("early", step=4)
    assert {row["name"]: row["parent"] for row in ml.runs(tmp_path).table()}["early"] == "a at 4"
    assert "parent" in str(ml.runs(tmp_path))
    assert early.summary["latest"]["loss"] == 1 / 4
    assert early.summary["elapsed_s"] < ml.runs(tmp_path)["a"].summary["elapsed_s"]
    with pytest.raises(UnknownOptionError, match="has no 'rat'"):
        fork.fork(rat=1)
    with pytest.raises(RunStoreError, match="exists"):
        fork.fork("a")


def test_a_fork_marks_only_its_own_checkpoint_as_sound(tmp_path: Path) -> None:
    ended(tmp_path, "a")
    run = ml.runs(tmp_path)["a"]
    run._database.change("a", {"sound": 4})
    assert [run.fork(step=step).summary.get("sound") for step in (4, None)] == [4, None]


def test_an_exported_run_has_what_the_run_measured(tmp_path: Path) -> None:
    ended(tmp_path / "runs", "a")
    run = ml.runs(tmp_path / "runs")["a"]
    folder = run.export(tmp_path / "out")
    arrays = load_file(folder / "params.safetensors")
    np.testing.assert_array_equal(arrays[""], run.params()[""])
    assert json.loads((folder / "config.json").read_text()) == run.config
    with open(folder / "metrics.csv", encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    for name, values in run.history.items():
        assert [float(row[name]) for row in rows] == values.tolist()
    assert "def ended" in (folder / "code.py").read_text()
    card = (folder / "README.md").read_text()
    assert "| loss | 0.166667 | 0.166667 | 6 |" in card
    assert "| rate | 0.1 | unknown | unknown |" in card
    assert "no `predict.py`" in card
    with pytest.raises(RunStoreError, match="contains files"):
        run.export(folder)
    with pytest.raises(CheckpointError):
        run.export(tmp_path / "none", step=1)
    assert not (tmp_path / "none").exists()
    with pytest.warns(RuntimeWarning, match="loss is NaN"), ml.track(tmp_path / "runs" / "bare") as bare:
        bare.log({"<b>|x": 1.0, "loss": float("nan")})
    card = (ml.runs(tmp_path / "runs")["bare"].export(tmp_path / "bare") / "README.md").read_text()
    assert "no checkpoint" in card
    assert "<b>" not in card
    assert not (tmp_path / "bare" / "params.safetensors").exists()


@pytest.mark.parametrize("knows_structure", [True, False])
def test_orbax_restores_a_checkpoint_bit_for_bit(tmp_path: Path, knows_structure: bool) -> None:
    dtypes = ["bfloat16", "float16", "float32", "float8_e4m3fn", "int8", "uint8", "int32", "uint32", "complex64"]
    bits = np.random.default_rng(0).integers(0, 256, 64, np.uint8)
    params = {name: jnp.asarray(bits.view(name)) for name in dtypes}
    params |= {"bool": bits > 9, "it's": [{"w": np.float64(1 / 3)}, (np.arange(3), {})]}
    state = {"params": params, "held": optax.adam(1e-3).init(jnp.ones(2)), "key": jax.random.key(3), "step": 7}
    with ml.track(tmp_path / "runs" / "a") as run:
        run.log({"loss": 1.0}, state=state)
    stored = ml.runs(tmp_path / "runs")["a"]
    with warnings.catch_warnings(action="ignore"):  # Orbax: no shardings are given
        path = stored.to_orbax(tmp_path / "orbax", state if knows_structure else None)
        with ocp.StandardCheckpointer() as checkpointer:
            tree = checkpointer.restore(path, state if knows_structure else None)
    if knows_structure:
        assert jax.tree.structure(tree) == jax.tree.structure(state)
        tree["key"] = jax.random.key_data(tree["key"])
    else:
        assert [*map(type, tree["params"]["it's"])] == [dict, list]
    leaves, expected = (
        [(array.dtype.name, array.tobytes()) for array in map(np.asarray, jax.tree.leaves(values))]
        for values in (tree, state | {"key": jax.random.key_data(state["key"])})
    )
    assert leaves == expected
    with pytest.raises(RunStoreError, match="cannot be written"):
        stored.to_orbax(path)


def test_an_export_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(tmp_path / "runs", "a")

    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "_card", full)
    with pytest.raises(RunStoreError, match="cannot be exported"):
        ml.runs(tmp_path / "runs")["a"].export(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_a_lost_database_is_made_again(tmp_path: Path) -> None:
    ended(tmp_path, "a")
    before = everything(tmp_path)
    for file in tmp_path.glob(f"{FILE}*"):
        file.unlink()
    with pytest.warns(RuntimeWarning, match="was restored"):
        assert everything(tmp_path) == before


@pytest.mark.parametrize("damaged", [FILE, f"{FILE}-wal", COPY, "step-*.safetensors"])
def test_a_flipped_bit_is_detected_or_repaired(damaged: str, tmp_path: Path, stress: Any) -> None:
    """Whatever bit is flipped: the folder says the same as before, or an error names what is damaged."""
    ended(tmp_path, "open")
    reader = ml.runs(tmp_path) if damaged.endswith("wal") else None  # an open database keeps its log
    for name in ("a", "b"):
        ended(tmp_path, name)
    before = everything(tmp_path)
    whole = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and not file.match("*-shm")}
    reader = None
    flips, chance, refused, wrong = stress.size(short=20, long=200), random.Random(0), 0, []
    for _ in range(flips):
        file = chance.choice([path for path in whole if path.match(damaged)])
        data = bytearray(whole[file])
        data[(at := chance.randrange(len(data)))] ^= 1 << chance.randrange(8)
        for path in tmp_path.rglob("*"):
            if path.is_file() and path not in whole:
                path.unlink()
        for path, content in whole.items():
            path.write_bytes(content)
        file.write_bytes(data)
        with warnings.catch_warnings(action="ignore"):
            try:
                now = everything(tmp_path)
                for run in ml.runs(tmp_path):
                    np.testing.assert_allclose(run.params(step=4)[""], 0.4)
                    np.testing.assert_allclose(run.params(step=6)[""], 0.6)
            except (RunStoreError, CheckpointError):
                refused += 1
                if not file.match("step-*"):
                    ml.runs(tmp_path, repair=True)
                now = everything(tmp_path)  # from the copies of ended runs
        wrong += [at] if now != before else []
    stress.report(flips=flips, refused=refused, wrong=len(wrong))
    assert wrong == []
    assert reader is None


@pytest.mark.parametrize("loss", ["gone", "empty", "cut"])
@pytest.mark.parametrize("repair", [False, True])
def test_a_lost_log_loses_no_ended_run(tmp_path: Path, loss: str, repair: bool) -> None:
    ended(tmp_path, "open")
    reader = ml.runs(tmp_path)  # an open database keeps its log
    ended(tmp_path, "a")
    before = everything(tmp_path)
    files = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and not file.match("*-shm")}
    del reader
    gc.collect()
    for path in tmp_path.glob(f"{FILE}*"):
        path.unlink()
    for path, content in files.items():
        path.write_bytes(content)
    log = tmp_path / f"{FILE}-wal"
    log.unlink() if loss == "gone" else log.write_bytes(log.read_bytes()[: 40 if loss == "cut" else 0])
    with pytest.warns(RuntimeWarning, match="'a' was restored"):
        ml.runs(tmp_path, repair=repair)
    ml.runs(tmp_path)["a"].tag("x")
    assert everything(tmp_path) == before


def test_a_summary_that_is_no_json_is_restored(tmp_path: Path) -> None:
    ended(tmp_path, "a")
    before = everything(tmp_path)
    connection = sqlite3.connect(tmp_path / FILE)
    with connection:
        connection.execute("update records set data = ? where kind = 'summary'", (b"{",))
    connection.close()
    with pytest.warns(RuntimeWarning, match="its summary differs from its checksum"):
        assert everything(tmp_path) == before


def test_a_damaged_record_never_reaches_the_copy(tmp_path: Path) -> None:
    ended(tmp_path, "a")
    before = ml.runs(tmp_path)["a"].history["loss"].tolist()
    connection = sqlite3.connect(tmp_path / FILE)
    with connection:
        number, data = connection.execute("select number, data from records where kind = 'part'").fetchone()
        changed = bytes([*data[:-1], data[-1] ^ 1])
        connection.execute("update records set data = ? where kind = 'part' and number = ?", (changed, number))
    connection.close()
    with pytest.warns(RuntimeWarning, match="checksum"):
        ml.runs(tmp_path)["a"].tag("x")
    for path in tmp_path.glob(f"{FILE}*"):
        path.unlink()
    with pytest.warns(RuntimeWarning, match="lacks it"):
        run = ml.runs(tmp_path)["a"]
    assert run.history["loss"].tolist() == before


def test_a_database_that_is_no_database(tmp_path: Path) -> None:
    ended(tmp_path, "a")
    before = everything(tmp_path)
    (tmp_path / FILE).write_bytes(b"no database at all, but long enough to be read as one" * 100)
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"{FILE}{suffix}").unlink(missing_ok=True)
    with pytest.raises(RunStoreError, match="repair=True"):
        ml.runs(tmp_path)
    with warnings.catch_warnings(action="ignore"):
        ml.runs(tmp_path, repair=True)
    assert everything(tmp_path) == before
    assert [*tmp_path.glob(f"{FILE}.damaged-*")]


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    ended(tmp_path, "a")
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("pragma user_version = 99")
    connection.close()
    with pytest.raises(RunStoreError, match="version 99"):
        ml.runs(tmp_path)


def test_a_folder_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(tmp_path, "a")
    before = everything(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as root, a test cannot make it read-only
    assert everything(tmp_path) == before
    assert not [*tmp_path.glob(f"{FILE}-*")]
    with pytest.raises(RunStoreError, match="readonly"):
        ml.runs(tmp_path)["a"].note("more")
    monkeypatch.undo()
    writer = ml.runs(tmp_path)["a"]
    writer.note("more")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert [*tmp_path.glob(f"{FILE}-wal")]
    assert ml.runs(tmp_path)["a"].events[-1]["text"] == "more"
    assert writer.state == "done"


def test_a_full_disk_loses_no_row_that_fits_later(tmp_path: Path) -> None:
    with ml.track(tmp_path / "a") as run:
        run.log({"loss": 1.0})
        run._flush()
        (pages,) = run._database._connection.execute("pragma page_count").fetchone()
        run._database._connection.execute(f"pragma max_page_count = {pages}")
        run._is_over = True  # its thread ends, so that the warning is raised here
        run._thread.join()
        for _ in range(2000):
            run.log({"loss": 2.0})
        with pytest.warns(RuntimeWarning, match="full"):
            run._flush()
        run._is_over = False
        run._database._connection.execute("pragma max_page_count = 100000")
    np.testing.assert_array_equal(ml.runs(tmp_path)["a"].history["step"], np.arange(1, 2002))


def test_two_kernels_write_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, mithril_nb as ml\n"
        f"with ml.track({str(tmp_path)!r} + '/' + sys.argv[1]) as run:\n"
        "    for step in run.steps([0], total=300): run.log({'loss': run.step})\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, name]) for name in ("a", "b")]
    assert [process.wait() for process in processes] == [0, 0]
    for run in ml.runs(tmp_path):
        assert run.state == "done"
        assert run.history["loss"].tolist() == [*range(1, 301)]


def test_many_threads_change_one_summary(tmp_path: Path) -> None:
    ended(tmp_path, "a")

    def note(number: int) -> None:
        ml.runs(tmp_path)["a"].note(str(number))

    threads = [threading.Thread(target=note, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {event["text"] for event in ml.runs(tmp_path)["a"].events} >= {*map(str, range(8))}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.dictionaries(st.text(max_size=5), st.floats(), max_size=4), min_size=1, max_size=30))
def test_every_row_is_stored(tmp_path: Path, rows: list[dict[str, float]]) -> None:
    """Any names and numbers, NaN and infinities included, at any set of columns per step."""
    with ml.track(tmp_path / "rows", resume=False) as run:
        for row in rows:
            run.log(row)
    history = ml.runs(tmp_path)[run.name].history
    for name in {name for row in rows for name in row if name not in ("step", "elapsed_s")}:
        expected = dict.fromkeys(range(1, len(rows) + 1), np.nan) | {
            step: row[name] for step, row in enumerate(rows, 1) if name in row
        }
        got = dict(zip(history["step"].astype(int).tolist(), history[name].tolist(), strict=True))
        np.testing.assert_array_equal([got.get(step, np.nan) for step in expected], [*expected.values()])


def test_repeated_logs_of_a_step(tmp_path: Path) -> None:
    with ml.track(tmp_path / "a") as run:
        for metrics in ({"loss": 1}, {"loss": 2, "accuracy": 1}, {"loss": 3, "name": 4}):
            run.log(metrics, step=1)
    stored = ml.runs(tmp_path)["a"]
    assert stored.history["loss"].tolist() == [3]
    (row,) = ml.runs(tmp_path).table()
    assert (row["loss"], row["name"], row["metric.name"]) == (3, "a", 4)


def test_all_requests_are_obeyed(tmp_path: Path) -> None:
    with ml.track(tmp_path / "a") as run:
        run.knob("x", 1.0)
        run.knob("y", 1.0)
        run._flush()
        stored = ml.runs(tmp_path)["a"]
        stored.set("x", 5)
        stored.set("y", 6)
        until = time.monotonic() + 20
        while (run.knob("x", 1.0), run.knob("y", 1.0)) != (5, 6):
            assert time.monotonic() < until
            time.sleep(0.02)
        with pytest.raises(RunStoreError, match="while a run uses it"):
            ml.runs(tmp_path, repair=True)
        run.log({"loss": 1})


def test_a_repair_of_a_whole_database_changes_nothing(tmp_path: Path) -> None:
    ended(tmp_path, "a")
    before = everything(tmp_path)
    ml.runs(tmp_path, repair=True)
    assert everything(tmp_path) == before


def test_reading_leaves_no_file_open(tmp_path: Path) -> None:
    ended(tmp_path, "a")
    ml.runs(tmp_path)
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    for _ in range(20):
        assert ml.runs(tmp_path)["a"].step == 6
    assert sys.platform != "linux" or len(os.listdir("/proc/self/fd")) <= before + 3


def test_an_unusable_loader_ends_the_run_whole(tmp_path: Path) -> None:
    class Loader(list):
        def get_state(self) -> Any:
            return object()

        def set_state(self, state: Any) -> None: ...

    run = ml.track(tmp_path / "a")
    for _ in run.steps(Loader([1]), total=2):
        run.log({"loss": 1}, state=1)
    with pytest.warns(RuntimeWarning, match="last state"):
        run.finish("done")
    assert ml.runs(tmp_path)["a"].history["step"].tolist() == [1, 2]
    with ml.track(tmp_path / "a") as run:
        assert run.name == "a-2"
