"""Checkpoints: a resumed run equals an uninterrupted run to the last bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from transcript import facts_of, without_advice

from mithril_nb.errors import CheckpointError, TrainingError
from mithril_nb.interop import load_params
from mithril_nb.models import BatchNorm, Linear, Model
from mithril_nb.train import fit
from mithril_nb.train.checkpoints import saver as rooms
from mithril_nb.train.checkpoints.file import KEY, NAME, ZEROS, read, seal, to_host, write
from mithril_nb.train.checkpoints.saver import Checkpoints, checkpoints_in, latest
from tests.train.conftest import PlainMLP
from tests.train.resuming import resumed

COLUMNS = ("step", "loss", "accuracy", "validation_loss", "validation_accuracy", "epoch", "learning_rate")


def same(left, right) -> bool:
    """Return whether two trees of arrays are equal to the last bit."""
    left, right = to_host({"": left}), to_host({"": right})
    return left.keys() == right.keys() and all(left[name].tobytes() == right[name].tobytes() for name in left)


def steps(run, count: int):
    """Take some steps of a run, then leave the loop."""
    for event in run:
        if event.step == count and event.kind == "step":
            break
    return run


def assert_same_run(run, whole) -> None:
    assert (run.step, run.state) == (whole.step, "done")
    assert same(run.params, whole.params)
    assert same(run.opt_state, whole.opt_state)
    assert run.history.rows(0, COLUMNS).tobytes() == whole.history.rows(0, COLUMNS).tobytes()


@pytest.mark.parametrize(("stop", "validation"), [(1, 0.2), (5, 0.2), (13, 0.2), (8, None), (32, None)])
def test_resumed_run_equals_uninterrupted_run(small, blobs, tmp_path, stop, validation):
    options = {"epochs": 4, "batch_size": 8, "validation": validation, "seed": 3}
    whole = fit(small, blobs, **options).wait()
    folder = tmp_path / "runs"
    left = steps(fit(small, blobs, **options, checkpoint=folder), stop)
    assert left.step == stop
    run = fit(small, blobs, **options, checkpoint=folder, resume=True)
    assert (run.step, len(run.history)) == (stop, stop)
    assert same(run.params, left.params)
    assert_same_run(run.wait(), whole)


NOISY = optax.chain(optax.add_noise(0.1, 0.5, 0), optax.sgd(0.1))
PARAMS = {name: jnp.asarray(array, jnp.bfloat16) for name, array in PlainMLP(4, 8, 3).randomize_params(0).items()}
NORMALIZED = Model() + Linear(8) + BatchNorm() + Linear(3)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        *(
            pytest.param(PlainMLP(4, 8, 3), {"optimizer": optimizer}, id=name)
            for name, optimizer in {
                "sgd": "sgd",
                "adamw": "adamw",
                "a schedule": optax.adam(optax.cosine_decay_schedule(1e-2, 20)),
                "a factory": optax.lion,
                "noise": NOISY,
            }.items()
        ),
        pytest.param(PlainMLP(4, 8, 3, dropout=0.5), {"seed": 5}, id="dropout"),
        pytest.param(PlainMLP(4, 8, 3), {"params": PARAMS}, id="bfloat16"),
        pytest.param(NORMALIZED, {"validation": 0.2}, id="state"),
    ],
)
def test_every_kind_of_state_resumes(blobs, tmp_path, model, options):
    options = {"epochs": 3, "batch_size": 16, **options}
    whole = fit(model, blobs, **options).wait()
    left = steps(fit(model, blobs, **options, checkpoint=tmp_path), 5)
    run = fit(model, blobs, **options, checkpoint=tmp_path, resume=True)
    assert run.step == 5
    assert jax.tree.map(lambda leaf: leaf.dtype, run.params) == jax.tree.map(lambda leaf: leaf.dtype, left.params)
    assert same(run.model_state, left.model_state)
    assert_same_run(run.wait(), whole)
    assert same(run.model_state, whole.model_state)
    assert bool(run.model_state) == (model is NORMALIZED)


def test_thread_takes_checkpoints_while_training(small, blobs, tmp_path):
    options = {"epochs": 6, "batch_size": 16}
    whole = fit(small, blobs, **options).wait()
    fit(small, blobs, **options, checkpoint=Checkpoints(tmp_path, every_epoch=2, keep=None)).wait()
    assert [path.name for path in checkpoints_in(tmp_path)] == [f"step-{step:010}.safetensors" for step in (24, 16, 8)]
    (tmp_path / "step-0000000024.safetensors").unlink()
    run = fit(small, blobs, **options, checkpoint=tmp_path, resume=True)
    assert run.step == 16
    assert_same_run(run.wait(), whole)


def test_timed_checkpoints_keep_only_the_latest(small, blobs, tmp_path):
    taken = []
    run = fit(small, blobs, epochs=30, batch_size=4, checkpoint=Checkpoints(tmp_path, every_s=1e-9, keep=3))
    for _ in run:
        taken.append([path.name for path in checkpoints_in(tmp_path)])
    assert max(map(len, taken)) <= 4  # one more for the moment between writing it and taking the oldest away
    assert len({name for names in taken for name in names}) > 5
    assert (len(checkpoints_in(tmp_path)), checkpoints_in(tmp_path)[0].name) == (3, "step-0000000450.safetensors")


def test_resume_with_more_epochs_and_another_rate(small, blobs, tmp_path):
    fit(small, blobs, epochs=2, batch_size=16, checkpoint=tmp_path).wait()
    run = fit(small, blobs, epochs=3, batch_size=16, checkpoint=tmp_path, resume=True)
    assert (run.step, run.steps) == (8, 12)
    run.learning_rate = 0.25
    run.wait()
    assert fit(small, blobs, epochs=4, batch_size=16, checkpoint=tmp_path, resume=True).learning_rate == 0.25
    again = fit(small, blobs, epochs=4, batch_size=16, learning_rate=0.5, checkpoint=tmp_path, resume=True)
    assert again.learning_rate == 0.5


def test_completed_run_stays_completed(small, blobs, tmp_path):
    done = fit(small, blobs, epochs=1, batch_size=16, checkpoint=tmp_path).wait()
    again = fit(small, blobs, epochs=1, batch_size=16, checkpoint=tmp_path, resume=True).wait()
    assert (again.state, again.step, same(again.params, done.params)) == ("done", 4, True)


def test_resume_without_checkpoint_starts_from_scratch(small, blobs, tmp_path):
    run = fit(small, blobs, epochs=1, batch_size=16, checkpoint=tmp_path / "new" / "folder", resume=True)
    assert run.step == 0
    assert_same_run(run.wait(), fit(small, blobs, epochs=1, batch_size=16).wait())


def test_the_training_thread_does_not_wait_for_the_disk(small, blobs, tmp_path, monkeypatch):
    go = threading.Event()
    monkeypatch.setattr(rooms, "write", lambda *arguments: (go.wait(30), write(*arguments)))
    run = fit(small, blobs, epochs=2, batch_size=16, checkpoint=Checkpoints(tmp_path, every_s=1e-9))
    for event in run:
        if event.step == 7:
            go.set()  # seven steps were taken while the first checkpoint waited for its disk
    assert checkpoints_in(tmp_path)[0].name == "step-0000000008.safetensors"


def test_rolled_back_run_removes_its_later_checkpoints(small, blobs, tmp_path):
    options = {"epochs": 2, "batch_size": 16, "optimizer": "sgd", "learning_rate": 0.1}
    run = fit(small, blobs, **options, checkpoint=Checkpoints(tmp_path, every_s=1e-9, keep=None))
    with pytest.raises(TrainingError):  # noqa: PT012 - it comes from the loop
        for event in run:
            if event.kind == "started":
                (tmp_path / "step-0000000099.safetensors").write_bytes(b"not of this run")
            run._state.saver.finish()  # else a step that waits for the disk is left out
            if event.kind == "step" and event.step == 6:
                run.learning_rate = 1e30
    assert run.step == 4
    assert [rooms.step_of(path) for path in checkpoints_in(tmp_path)] == [99, 7, 6, 5, 4, 3, 2, 1]
    run.learning_rate = 0.1
    steps(run, 5)
    assert [rooms.step_of(path) for path in checkpoints_in(tmp_path)] == [99, 5, 4, 3, 2, 1]


def test_nan_params_are_not_written(small, blobs, tmp_path):
    def flat_with_a_corner(prediction, targets):
        return jnp.sqrt(jnp.sum((0 * prediction) ** 2))  # 0, and its gradient is NaN

    options = {"loss": flat_with_a_corner, "batch_size": 16, "checkpoint": Checkpoints(tmp_path, every_s=1e-9)}
    with pytest.raises(TrainingError):
        fit(small, blobs, **options).wait()
    assert checkpoints_in(tmp_path) == []


# What is on the disk


def test_reading_runs_no_code_and_shows_plain_names(two):
    saved = read(two / "step-0000000008.safetensors")
    assert {name for name in saved.arrays if name.startswith("params")} == {
        f"params['linear_{place}.{name}']" for place in (0, 1) for name in ("weight", "bias")
    }
    assert saved.facts["step"] == 8
    assert saved.arrays["history"].shape == (8, 8)


def test_truncated_file_falls_back_to_the_previous_one(small, blobs, two):
    path = two / "step-0000000008.safetensors"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(RuntimeWarning) as caught:
        run = resumed(small, blobs, two)
    assert run.step == 4
    assert [without_advice(str(warning.message)) for warning in caught] == [
        f"""'step-0000000008.safetensors' is not a complete checkpoint.
    folder   {two}
    because  it was changed or truncated after it was written (sha256)
    instead  the run resumes from 'step-0000000004.safetensors'"""
    ]
    assert_same_run(run.wait(), fit(small, blobs, epochs=2, batch_size=16).wait())


def changed(path: Path, header=None, **arrays) -> None:
    """Rewrite a file with other arrays, or another header."""
    with safe_open(path, framework="numpy") as file:
        own = json.loads(file.metadata()[KEY])
    text = json.dumps(header(own)) if header else json.dumps(own)
    save_file(load_file(path) | arrays, path, {KEY: text, NAME: ZEROS})
    seal(path)


def edit(path: Path, old: bytes, new: bytes) -> None:
    """Change some bytes of a file."""
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


CHANGED = "it was changed or truncated after it was written (sha256)"
BROKEN = [
    (CHANGED, lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?")),
    (CHANGED, lambda path: edit(path, b".sha256", b".sha266")),
    (CHANGED, lambda path: save_file(load_file(path), path)),
    (
        "it cannot be read: list indices must be integers or slices, not str",
        lambda path: changed(path, lambda h: [[[h]]]),
    ),
    (
        "missing or invalid: step, learning_rate",
        lambda path: changed(path, lambda h: {**h, "facts": {**h["facts"], "step": "8", "learning_rate": None}}),
    ),
    (
        "missing or invalid: history",
        lambda path: write(
            path, {"params": np.zeros(3)}, json.loads(safe_open(path, framework="numpy").metadata()[KEY])["facts"]
        ),
    ),
]


@pytest.mark.parametrize(("reason", "damage"), BROKEN)
def test_broken_or_foreign_files_are_rejected(small, blobs, two, reason, damage):
    path = two / "step-0000000008.safetensors"
    damage(path)
    (two / "step-0000000004.safetensors").unlink()
    assert facts_of(lambda: resumed(small, blobs, two)) == (
        f"""CheckpointError: 'step-0000000008.safetensors' is not a complete checkpoint.
    folder   {two}
    because  {reason}"""
    )


def test_other_version_is_not_skipped(small, blobs, two):
    changed(two / "step-0000000008.safetensors", lambda h: {**h, "version": 4})
    assert facts_of(lambda: resumed(small, blobs, two)) == (
        f"""OtherVersionError: checkpoint 'step-0000000008.safetensors' has version 4; this mithril_nb reads version 3.
    folder  {two}"""
    )
    assert sorted(os.listdir(two)) == ["step-0000000004.safetensors", "step-0000000008.safetensors"]


def test_foreign_checkpoints_are_kept(small, blobs, two):
    path = two / "step-0000000008.safetensors"
    path.write_bytes(b"half a checkpoint")
    with pytest.warns(RuntimeWarning, match="the run resumes from 'step-0000000004.safetensors'"):
        run = resumed(small, blobs, two)
    steps(run, 6)
    assert sorted(os.listdir(two)) == [f"step-{step:010}.safetensors" for step in (4, 6, 8)]
    assert path.read_bytes() == b"half a checkpoint"


def test_error_names_every_broken_checkpoint(small, blobs, two):
    for path in checkpoints_in(two):
        path.write_bytes(b"not a checkpoint at all")
    with pytest.raises(CheckpointError) as caught:
        resumed(small, blobs, two)
    assert [diagnostic.summary for diagnostic in caught.value.diagnostics] == [
        "'step-0000000008.safetensors' is not a complete checkpoint.",
        "'step-0000000004.safetensors' is not a complete checkpoint.",
    ]


def test_interrupted_write_is_ignored(small, blobs, two):
    (two / ".step-0000000012.safetensors.part").write_bytes(b"half")
    (two / "notes.txt").write_text("mine")
    assert resumed(small, blobs, two).step == 8


def test_killed_process_leaves_complete_files(tmp_path):
    code = """
import sys, numpy as np
from mithril_nb.train.checkpoints.file import write
from pathlib import Path
print("go", flush=True)
for step in range(10_000):
    write(Path(sys.argv[1]) / f"step-{step % 3:010}.safetensors", {"params": np.full(200_000, step)}, {"step": step})
"""
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        while len(checkpoints_in(tmp_path)) < 3:
            assert child.poll() is None
        child.kill()
    assert [len(set(read(path).arrays["params"].tolist())) for path in checkpoints_in(tmp_path)] == [1, 1, 1]


def test_repeated_step_replaces_its_checkpoint(mlp, blobs, tmp_path):
    options = {"optimizer": "sgd", "learning_rate": 0.01, "epochs": 4, "batch_size": 15, "loss": "mean_squared_error"}
    data = (blobs[0], np.eye(3, dtype=np.float32)[blobs[1]])
    run = fit(mlp(4, 3), data, **options, checkpoint=Checkpoints(tmp_path, every_epoch=1))
    with pytest.raises(TrainingError):  # noqa: PT012 - it comes from the loop
        for event in run:
            if event.kind == "step" and event.step == 3:
                run.learning_rate = 1e25
    wild = latest(tmp_path)
    assert wild is not None
    assert (wild.facts["step"], run.step) == (4, 0)
    assert np.abs(wild.arrays["params['linear_0.weight']"]).max() > 1e20
    run.learning_rate = 0.01
    steps(run, 4)
    again = fit(mlp(4, 3), data, **options, checkpoint=tmp_path, resume=True)
    assert (again.step, same(again.params, run.params)) == (4, True)


def test_latest_of_missing_folder_is_none(tmp_path):
    assert latest(tmp_path / "nowhere") is None


def test_arrays_of_every_dtype_round_trip(tmp_path):
    arrays = {
        name: np.asarray(jnp.asarray([[0, 1, 2]], name)) for name in ("bfloat16", "float16", "int8", "uint32", "bool")
    }
    arrays |= {
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.float64(0.1),
        "float8": np.asarray(jnp.ones(3, "float8_e4m3fn")),
    }
    write(tmp_path / "step-0000000001.safetensors", {k: np.asarray(v) for k, v in arrays.items()}, {})
    found = read(tmp_path / "step-0000000001.safetensors").arrays
    assert {name: (array.dtype, array.shape) for name, array in found.items()} == {
        name: (np.asarray(array).dtype, np.asarray(array).shape) for name, array in arrays.items()
    }
    assert jax.tree.all(jax.tree.map(lambda a, b: a.tobytes() == np.asarray(b).tobytes(), found, arrays))


def test_params_of_a_checkpoint_load(small, blobs, two):
    loaded = load_params(two / "step-0000000008.safetensors")
    assert set(loaded) == set(small.randomize_params(0))
    assert fit(small, blobs, params=loaded, batch_size=16).step == 0
    of_folder = load_params(two)
    assert all(np.array_equal(of_folder[name], loaded[name]) for name in loaded)
    (two / "latest").symlink_to(two / "step-0000000008.safetensors")
    assert set(load_params(two / "latest")) == set(loaded)
