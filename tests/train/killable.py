"""A run with a checkpoint after each step, and a server that forks training processes, because forks start quickly."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from mithril_nb.train import Checkpoints, Run, fit
from tests.train.conftest import PlainMLP

STEPS = 300
MODEL = PlainMLP(64, 256, 10)


def new_run(folder: Path | None) -> Run:
    """Return the run, continued from the checkpoints of a folder."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(60, 64)).astype(np.float32), rng.integers(0, 10, 60)
    options = {} if folder is None else {"checkpoint": Checkpoints(folder, every_s=1e-9), "resume": True}
    return fit(MODEL, data, epochs=STEPS // 15, batch_size=4, **options)


def serve() -> None:
    """Train in a child for each folder on standard input; print its process id, `training`, and `ended`."""
    while line := sys.stdin.readline():
        child = os.fork()
        if not child:
            steps = (event for event in new_run(Path(line.strip())) if event.kind == "step")
            for number, _ in enumerate(steps):
                if number == 1:  # compiled, and the first checkpoint is being written
                    print("training", flush=True)
            os._exit(0)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    serve()
