"""Loops of one and of two processes that are killed continue bit for bit, and lose at most the rows of a second."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from process import ONE_DEVICE, ROOT

import mithril_nb as ml
from mithril_nb.errors import RunStoreError

SCRIPT = """
import hashlib, os, sys, time
import jax, jax.numpy as jnp, numpy as np, optax
import mithril_nb as ml

path, log, pause_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
me = ml.distributed()
print("pid", os.getpid(), flush=True)

class Loader:
    def __init__(self): self.rng = np.random.default_rng(3)
    def __iter__(self):
        while True: yield self.rng.normal(size=(8, 4)).astype(np.float32)
    def get_state(self): return self.rng.bit_generator.state
    def set_state(self, state): self.rng.bit_generator.state = state

optimizer = optax.adam(1e-2)
def loss(params, averages, x, key):  # with dropout and BatchNorm
    mean, variance = x.mean(0), x.var(0)
    averages = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, averages, (mean, variance))
    h = (x - mean) / jnp.sqrt(variance + 1e-3) * params["scale"]
    h = jnp.tanh(h @ params["w"]) * jax.random.bernoulli(key, 0.5, (8, 4))
    return jnp.mean((h - x) ** 2), averages

@jax.jit
def step(state, x):
    params, held, averages, key = state
    key, now = jax.random.split(key)
    (value, averages), grads = jax.value_and_grad(loss, has_aux=True)(params, averages, x, now)
    updates, held = optimizer.update(grads, held)
    return (optax.apply_updates(params, updates), held, averages, key), value

params = {"w": jnp.eye(4), "scale": jnp.ones(4)}
state, loader = (params, optimizer.init(params), (jnp.zeros(4), jnp.ones(4)), jax.random.key(0)), Loader()
state = me.replicate(state)
file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
with ml.track(path, checkpoint_every=7) as run:
    state = run.restore(state, loader)
    for batch in run.steps(loader, total=60):
        state, value = step(state, me.assemble(batch[me.rows(8)]))
        run.log({"loss": value}, state=state)
        if me.is_main:
            os.write(file, f"{run.step} {time.time()}\\n".encode())
        time.sleep(pause_s)
digest = hashlib.sha256()
for leaf in jax.tree.leaves((state[:3], jax.random.key_data(state[3]))):
    digest.update(np.asarray(leaf.addressable_data(0)).tobytes())
print("digest", digest.hexdigest(), flush=True)
"""
STEPS = np.arange(1, 61)


class Script:
    """A script that one process runs, or two."""

    def __init__(self, path: Path, processes: int):
        launch = ["-m", "mithril_nb", "launch", "--processes", str(processes)] if processes > 1 else []
        self._command = [sys.executable, *launch, str(path)]
        self._processes = processes

    def start(self, *arguments: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._command, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **ONE_DEVICE, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        )

    def digest(self, *arguments: Any) -> str:
        """Return the digest that each of the processes prints at its end."""
        out, errors = (process := self.start(*arguments)).communicate(timeout=120)
        assert process.returncode == 0, errors
        digests = [line.split()[-1] for line in out.splitlines() if "digest " in line]
        assert len(digests) == self._processes
        assert len({*digests}) == 1
        return digests[0]


@pytest.mark.parametrize("processes", [1, 2])
def test_killed_loops_continue_bit_for_bit(processes: int, tmp_path: Path, stress: Any) -> None:
    kills, chance = stress.size(short=1, long=30), random.Random(processes)
    (tmp_path / "loop.py").write_text(SCRIPT)
    script, runs = Script(tmp_path / "loop.py", processes), tmp_path / "runs"
    reference = script.digest(runs / "whole", tmp_path / "log", 0)
    losses = ml.runs(runs)["whole"].history["loss"]
    wrong, lost_s, killed, started = [], [], 0, 0
    while killed < kills:
        started += 1
        name, log = f"run {started}", tmp_path / f"log {started}"
        for _ in range(min(3, kills - killed)):
            process = script.start(runs / name, log, 0.03)
            pids = [int(process.stdout.readline().split()[-1]) for _ in range(processes)]  # pyright: ignore[reportOptionalMemberAccess]
            before = log.read_text() if log.exists() else ""
            is_training = kills == 1 or chance.random() < 0.7  # else at any moment of its start
            while is_training and process.poll() is None and (not log.exists() or log.read_text() == before):
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 1))
            at = time.time()
            with suppress(ProcessLookupError):
                os.kill(chance.choice(pids), signal.SIGKILL)
            process.communicate(timeout=60)
            if process.returncode == 0:
                break
            killed += 1
            # Of this start alone, because it has dropped the rows after its checkpoint, to compute them again.
            logged = log.read_text()[len(before) :] if log.exists() else ""
            lines = [line.split() for line in logged.splitlines()]
            with suppress(RunStoreError):  # killed before it was stored
                stored = ml.runs(runs)[name]
                steps, last = {*stored.history["step"]}, max(stored.checkpoints, default=0)
                # All rows up to the last checkpoint are stored.
                wrong += [] if {*range(1, last + 1)} <= steps else [(name, "rows")]
                lost_s += [at - float(when) for step, when in lines if int(step) not in steps and float(when) < at]
        if process.returncode != 0:
            wrong += [] if script.digest(runs / name, log, 0) == reference else [(name, "digest")]
        history = ml.runs(runs)[name].history
        if not np.array_equal(history["step"], STEPS) or not np.array_equal(history["loss"], losses):
            wrong.append((name, "history"))
    stress.report(kills=killed, wrong=len(wrong), lost_s=round(max(lost_s, default=0.0), 2))
    assert wrong == []
    assert max(lost_s, default=0.0) <= 1.0
