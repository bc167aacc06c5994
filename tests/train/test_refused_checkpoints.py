"""Refused checkpoints, folders that cannot be created, and checkpoints that cannot be written."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax  # noqa: F401 - used in CASES
import numpy as np  # noqa: F401
import optax  # noqa: F401
import pytest
from transcript import facts_of, read_transcript, without_advice

import mithril_nb as ml
from mithril_nb.errors import CheckpointError
from mithril_nb.models import Dropout, Linear, Model, Relu, Tanh
from mithril_nb.train import fit
from tests.train.resuming import resumed

CASES = """
fit(small, blobs, checkpoint=two)
CheckpointError: the folder already holds checkpoints of a run.
    folder  TWO
    latest  step-0000000008.safetensors

resumed(small, (x[:50], y[:50]), two, seed=1)
CheckpointError: checkpoint 'step-0000000008.safetensors' belongs to another run.
    folder   TWO
    samples  60 in the checkpoint, 50 here
    seed     0 in the checkpoint, 1 here

resumed(small, (2 * x, y), two, params=jax.tree.map(np.zeros_like, small.randomize_params(0)))
CheckpointError: checkpoint 'step-0000000008.safetensors' belongs to another run.
    folder  TWO
    data    the run began with other samples
    params  the run began with other params

resumed(mlp(4, 9, 3), blobs, two)
CheckpointError: checkpoint 'step-0000000008.safetensors' belongs to another model or optimizer.
    folder  TWO
    has     opt_state[0].mu['linear_0.bias']: (8,) float32, the model needs (9,) float32

resumed(small, blobs, two, optimizer=lambda rate: optax.chain(optax.clip(1.0), optax.adam(rate)))
CheckpointError: checkpoint 'step-0000000008.safetensors' belongs to another run.
    folder     TWO
    optimizer  'adam' in the checkpoint, '<lambda>' here

resumed(small, blobs, two, epochs=1)
CheckpointError: checkpoint 'step-0000000008.safetensors' is past the last step of this run.
    folder      TWO
    checkpoint  step 8
    this run    4 steps, epochs=1

fit(small, blobs, checkpoint=two / "step-0000000008.safetensors" / "runs")
CheckpointError: the folder for checkpoints cannot be created.
    folder   TWO/step-0000000008.safetensors/runs
    because  Not a directory
"""


@pytest.mark.parametrize(("code", "facts"), read_transcript(CASES))
def test_refused(small, mlp, blobs, two, code: str, facts: str) -> None:
    names = {**globals(), "small": small, "mlp": mlp, "blobs": blobs, "x": blobs[0], "y": blobs[1], "two": two}
    assert facts_of(code, names).replace(str(two), "TWO").startswith(facts)


def test_params_passed_again_must_be_those_of_the_run(small, blobs, two) -> None:
    run = resumed(small, blobs, two, params=small.randomize_params(0), epochs=3)
    assert run.step == 8
    run.wait()
    assert resumed(small, blobs, two, params=small.randomize_params(0), epochs=3).step == 12
    with pytest.raises(CheckpointError, match="params  the run began with other params"):
        resumed(small, blobs, two, params=small.randomize_params(1), epochs=3)


@pytest.mark.parametrize(("then", "now"), [(Relu(), Tanh()), (Dropout(0.3), Dropout(0.6))])
def test_model_with_other_computation_is_rejected(blobs, tmp_path, then, now):
    options = {"epochs": 1, "batch_size": 16, "checkpoint": tmp_path}
    fit(Model() + Linear(8) + then + Linear(3), blobs, **options).wait()
    with pytest.raises(CheckpointError, match="model   the run trained another model with params of the same shapes"):
        fit(Model() + Linear(8) + now + Linear(3), blobs, **options, resume=True)
    again = ml.compile(Model() + Linear(8) + then + Linear(3), shapes={"input": ["batch", 4]})
    assert fit(again, blobs, **options, resume=True).step == 4


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Limit the size of files, like on a full disk: the operating system rejects further writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def assert_lost(run, caught, folder: Path, because: str) -> None:
    message = f"""the checkpoint of step 4 could not be written; the training continues.
    folder   {folder}
    because  {because}"""
    assert [without_advice(str(warning.message)) for warning in caught] == [message]
    assert [without_advice(str(problem)) for problem in run.errors] == [message]
    assert run.state == "done"


def test_full_disk_does_not_end_training(small, blobs, tmp_path):
    run = fit(small, blobs, epochs=1, batch_size=16, checkpoint=tmp_path)
    with pytest.warns(RuntimeWarning) as caught, disk_of(512):
        for _ in run:
            pass
    assert_lost(run, caught, tmp_path, "Error while serializing: I/O error: File too large (os error 27)")
    assert list(tmp_path.iterdir()) == []


def test_missing_folder_does_not_end_training(small, blobs, tmp_path):
    run = fit(small, blobs, epochs=1, batch_size=16, checkpoint=tmp_path / "runs")
    (tmp_path / "runs").rmdir()
    with pytest.warns(RuntimeWarning) as caught:
        for _ in run:
            pass
    assert_lost(run, caught, tmp_path / "runs", "No such file or directory")
