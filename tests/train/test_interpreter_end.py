"""A program that exits during training ends cleanly, with its own exit code."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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
    assert ".lock" not in os.listdir(tmp_path / "thread")
