"""Two real processes train like one process, and resume from a checkpoint after one of them was killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from process import ONE_DEVICE

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import os, sys, time
import jax, numpy as np, optax
import mithril_nb as ml
from mithril_nb.models import Dropout, Linear, Model, Relu

me = ml.distributed()
print("pid", os.getpid(), flush=True)
out, folder, pause_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
rng = np.random.default_rng(0)
x, y = rng.normal(size=(60, 4)).astype("float32"), rng.integers(0, 3, 60)

model = Model()
model |= Linear(8)
model += Relu()
model += Linear(3)
checkpoint = ml.Checkpoints(folder, every_epoch=1) if folder != "-" else None
options = {"epochs": 4, "batch_size": 8, "validation": 0.2, "seed": 3, "optimizer": optax.sgd(0.1, momentum=0.9)}
run = ml.fit(model, (x, y), **options, checkpoint=checkpoint, resume=folder != "-")
print("from step", run.step)
for event in run:
    if event.kind == "epoch":
        print("epoch", event.epoch)
        time.sleep(pause_s)

by_hand = {}
if folder == "-":  # a hand-written step: each process gives its rows, all of them hold the params whole
    model = Model()
    model |= Linear(3)
    model += Dropout(0.2)
    pm = ml.compile(model, ml.JaxBackend(), shapes={"input": [8, 4]})
    tx = optax.sgd(0.1)
    params = me.replicate(pm.randomize_params(1))
    opt_state = me.replicate(tx.init(params))

    def loss(params, x, y):
        outputs = pm.forward(params, {"input": x}, key=jax.random.key(0), training=True)
        return optax.softmax_cross_entropy_with_integer_labels(outputs["output"], y).mean()

    @jax.jit
    def step(params, opt_state, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    for start in range(0, 56, 8):
        rows = np.arange(start, start + 8)[me.rows(8)]
        params, opt_state, value = step(params, opt_state, *me.assemble((x[rows], y[rows])))
    by_hand = {f"hand.{name}": array for name, array in params.items()} | {"hand.loss": value}
    print("scores", sorted(run.evaluate((x, y))))

if me.is_main:
    found = {f"fit.{name}": array for name, array in run.params.items()}
    columns = {name: run.history[name] for name in ("loss", "validation_loss", "accuracy")}
    np.savez(out, **{name: np.asarray(array) for name, array in (found | by_hand | columns).items()})
"""


@pytest.fixture(scope="module")
def training(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("together") / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def together(training, launched):
    """Return the result of two uninterrupted processes."""
    out = training.with_name("together.npz")
    launcher = launched("--processes", "2", training, out, "-", "0")
    assert launcher.wait() == 0, launcher.out + launcher.err
    assert "[0] scores ['accuracy', 'loss']\n" in launcher.out
    assert "[1] scores ['accuracy', 'loss']\n" in launcher.out
    return dict(np.load(out))


def test_two_processes_equal_one_process(training, together):
    out = training.with_name("alone.npz")
    subprocess.run(
        [sys.executable, "-W", "error", training, out, "-", "0"],
        env={**os.environ, **ONE_DEVICE, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        timeout=60,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    alone = dict(np.load(out))
    assert alone.keys() == together.keys()
    for name, array in alone.items():
        np.testing.assert_allclose(together[name], array, rtol=1e-5, atol=1e-5, err_msg=name)
    assert len(alone["loss"]) == 24
    assert alone["loss"][-1] < alone["loss"][0]


def test_killed_launch_resumes_with_the_same_command(training, together, launched, nothing_left, tmp_path):
    out, folder = tmp_path / "resumed.npz", tmp_path / "runs"
    launcher = launched("--processes", "2", training, out, folder, "1")
    pids = launcher.workers(2)
    launcher.until(r"\[1\] epoch 2\n")
    while not list(folder.glob("step-*.safetensors")):  # of the first epoch, by a thread of process 0
        assert launcher.process.poll() is None
        time.sleep(0.01)
    os.kill(pids[1], signal.SIGKILL)
    assert launcher.wait(20) == 128 + signal.SIGKILL
    nothing_left([launcher.process.pid, *pids])
    assert not out.exists()
    lines = launcher.err[launcher.err.index("LaunchError") :].splitlines()
    assert lines[0] == "LaunchError: process 1 of 2 was killed by SIGKILL."
    assert lines[1].startswith("    process 1  ")
    assert re.search(rf"^ +(process 1 +)?pid {pids[1]}$", launcher.err, re.MULTILINE)
    assert "    ended by mithril-nb  process 0" in lines

    again = launched("--processes", "2", training, out, folder, "0")
    assert again.wait() == 0, again.out + again.err
    steps = {int(again.until(rf"\[{index}\] from step (\d+)\n")[1]) for index in range(2)}
    assert len(steps) == 1
    assert steps <= {6, 12, 18}
    resumed = dict(np.load(out))
    assert {name: array.tobytes() for name, array in resumed.items()} == {
        name: array.tobytes() for name, array in together.items() if not name.startswith("hand.")
    }
