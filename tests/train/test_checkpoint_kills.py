"""Runs whose process is killed or exits: each resume is exact to the last bit, and no partial file is left."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from process import ONE_DEVICE

from mithril_nb.train import Run
from mithril_nb.train.checkpoints.file import to_host
from mithril_nb.train.checkpoints.folder_lock import NAME
from mithril_nb.train.checkpoints.saver import checkpoints_in
from tests.train.killable import STEPS, new_run

COLUMNS = ("step", "loss", "accuracy", "epoch", "learning_rate")


def digest(run: Run) -> str:
    """Return a digest of the params, the optimizer's state and the history."""
    arrays = to_host({"params": run.params, "opt_state": run.opt_state})
    found = hashlib.sha256(run.history.rows(0, COLUMNS).tobytes())
    for name in sorted(arrays):
        found.update(name.encode() + arrays[name].tobytes())
    return found.hexdigest()


def leftovers(folder: Path) -> set[str]:
    """Return the files that are not complete checkpoints: a lock, or a partial file.

    A process that is killed before it marks its new temporary folder leaves an empty one, which nothing proves to be
    ours, so that it is kept.
    """
    unmarked = {path.name for path in folder.glob(".mithril_nb-*.part") if path.is_dir() and not any(path.iterdir())}
    return set(os.listdir(folder)) - {path.name for path in checkpoints_in(folder)} - unmarked


def test_killed_runs_resume_bit_for_bit(tmp_path, stress):
    kills, rng = stress.size(short=2, long=100), np.random.default_rng(0)  # a failure can be repeated
    whole = new_run(None)
    right = {0: digest(whole)}
    for event in whole:
        if event.kind in ("step", "epoch"):  # the last step of an epoch is in the history when the epoch ends
            right[event.step] = digest(whole)
    folder, killed, resumes, within_a_write, locked = tmp_path / "runs", 0, [], 0, 0
    wrong, left_behind = [], []
    command = [sys.executable, "-W", "ignore", "-m", "tests.train.killable"]
    environment = {**os.environ, **ONE_DEVICE}  # compiled as in this process, to the same bits
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    with server:
        while killed < kills:
            server.stdin.write(f"{folder}\n")
            server.stdin.flush()
            child = int(server.stdout.readline())
            if is_training := not resumes or rng.random() < 0.8:  # else at any moment of its start
                is_training = server.stdout.readline() == "training\n"
            time.sleep(rng.uniform(0, 0.25 if is_training else 1.0))
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            while server.stdout.readline() != "ended\n":
                pass
            left = os.listdir(folder) if folder.exists() else []
            within_a_write += any(name.endswith(".part") for name in left)
            killed, locked = killed + 1, locked + (NAME in left)
            run = new_run(folder)  # a warning would be an error
            wrong += [run.step] if digest(run) != right[run.step] else []
            left_behind += leftovers(folder)
            resumes.append(run.step)
            if run.step > STEPS // 2:
                shutil.rmtree(folder)
        server.stdin.close()
    last = new_run(folder).wait()
    left_behind += leftovers(folder)
    stress.report(kills=killed, wrong_resumes=len(wrong), left_behind=len(left_behind))
    stress.report(within_a_write=within_a_write, holding_the_lock=locked)
    assert (wrong, left_behind) == ([], [])
    assert (last.step, digest(last)) == (STEPS, right[STEPS])
    assert max(resumes) > 0


PROGRAM = """
import sys, time
import numpy as np
import mithril_nb as ml
from mithril_nb.models import MLP
x = np.ones((64, 4), "float32")
data = x, np.zeros(64, "int32")
events = iter(ml.fit(MLP(4, [8], 2), data, epochs=1_000_000, checkpoint=sys.argv[1] + "/loop"))
for _ in range(3):
    next(events)  # and the loop stands still until the end
run = ml.fit(MLP(4, [8], 2), data, epochs=1_000_000, checkpoint=sys.argv[1] + "/thread").start()
while len(run.history) < {steps}:
    time.sleep(0.01)
sys.exit(7)
"""


@pytest.mark.parametrize("steps", [0, 20], ids=["while it compiles", "while it trains"])
def test_interpreter_exits_cleanly_during_a_run(steps, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(steps=steps), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (7, "")
    assert os.listdir(tmp_path / "loop") == ["step-0000000002.safetensors"]
    assert NAME not in os.listdir(tmp_path / "thread")
