"""Full messages for rejected checkpoints, invalid options, and checkpoints that cannot be written."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from transcript import facts_of, without_advice

import mithril_nb as ml
from mithril_nb.errors import CheckpointError, UnknownOptionError
from mithril_nb.models import Dropout, Linear, Model, Relu, Tanh
from mithril_nb.train import fit
from mithril_nb.train.checkpoints.saver import Checkpoints
from tests.train.resuming import resumed


def test_folder_with_checkpoints_needs_resume(small, blobs, two):
    assert facts_of(lambda: fit(small, blobs, checkpoint=two)) == (
        f"""CheckpointError: the folder already holds checkpoints of a run.
    folder  {two}
    latest  step-0000000008.safetensors"""
    )


def test_checkpoint_of_another_run_is_rejected(small, blobs, two):
    x, y = blobs
    assert facts_of(lambda: resumed(small, (x[:50], y[:50]), two, seed=1)) == (
        f"""CheckpointError: checkpoint 'step-0000000008.safetensors' belongs to another run.
    folder   {two}
    samples  60 in the checkpoint, 50 here
    seed     0 in the checkpoint, 1 here"""
    )


def test_other_data_or_params_are_rejected(small, blobs, two):
    x, y = blobs
    assert facts_of(
        lambda: resumed(small, (2 * x, y), two, params=jax.tree.map(np.zeros_like, small.randomize_params(0)))
    ) == (
        f"""CheckpointError: checkpoint 'step-0000000008.safetensors' belongs to another run.
    folder  {two}
    data    the run began with other samples
    params  the run began with other params"""
    )
    run = resumed(small, blobs, two, params=small.randomize_params(0), epochs=3)
    assert run.step == 8
    run.wait()
    assert resumed(small, blobs, two, params=small.randomize_params(0), epochs=3).step == 12
    with pytest.raises(CheckpointError, match="params  the run began with other params"):
        resumed(small, blobs, two, params=small.randomize_params(1), epochs=3)


def test_checkpoint_of_another_model_is_rejected(mlp, blobs, two):
    text = facts_of(lambda: resumed(mlp(4, 9, 3), blobs, two))
    assert text.startswith(
        f"""CheckpointError: checkpoint 'step-0000000008.safetensors' belongs to another model or optimizer.
    folder  {two}
    has     opt_state[0].mu['linear_0.bias']: (8,) float32, the model needs (9,) float32
"""
    )


def test_other_optimizer_is_rejected(small, blobs, two):
    assert facts_of(
        lambda: resumed(small, blobs, two, optimizer=lambda rate: optax.chain(optax.clip(1.0), optax.adam(rate)))
    ) == (
        f"""CheckpointError: checkpoint 'step-0000000008.safetensors' belongs to another run.
    folder     {two}
    optimizer  'adam' in the checkpoint, '<lambda>' here"""
    )


@pytest.mark.parametrize(("then", "now"), [(Relu(), Tanh()), (Dropout(0.3), Dropout(0.6))])
def test_model_with_other_computation_is_rejected(blobs, tmp_path, then, now):
    options = {"epochs": 1, "batch_size": 16, "checkpoint": tmp_path}
    fit(Model() + Linear(8) + then + Linear(3), blobs, **options).wait()
    assert facts_of(lambda: fit(Model() + Linear(8) + now + Linear(3), blobs, **options, resume=True)) == (
        f"""CheckpointError: checkpoint 'step-0000000004.safetensors' belongs to another run.
    folder  {tmp_path}
    model   the run trained another model with params of the same shapes"""
    )
    again = ml.compile(Model() + Linear(8) + then + Linear(3), shapes={"input": ["batch", 4]})
    assert fit(again, blobs, **options, resume=True).step == 4


def test_fewer_epochs_than_trained_are_rejected(small, blobs, two):
    assert facts_of(lambda: resumed(small, blobs, two, epochs=1)) == (
        f"""CheckpointError: checkpoint 'step-0000000008.safetensors' is past the last step of this run.
    folder      {two}
    checkpoint  step 8
    this run    4 steps, epochs=1"""
    )


WRONG = {
    "folder must be a path.\n    got  ''": ("",),
    "folder must be a path.\n    got  3": (3,),
    "every_epoch must be an integer of at least 1.\n    got  0": ("a", 1, 0),
    "keep must be an integer of at least 1.\n    got  True": ("a", 1, 1, True),
    "every_s must be a positive number of seconds.\n    got  nan": (
        "a",
        float("nan"),
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_invalid_options_are_rejected(message):
    with pytest.raises(UnknownOptionError) as caught:
        Checkpoints(*WRONG[message])
    assert without_advice(str(caught.value)) == message


def test_resume_without_folder_is_rejected(small, blobs):
    assert facts_of(lambda: fit(small, blobs, resume=True)) == (
        """UnknownOptionError: resume=True needs a checkpoint folder."""
    )


def test_folder_creation_failure_is_reported(small, blobs, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert facts_of(lambda: fit(small, blobs, checkpoint=tmp_path / "file" / "runs")) == (
        f"""CheckpointError: the folder for checkpoints cannot be created.
    folder   {tmp_path / "file" / "runs"}
    because  Not a directory"""
    )


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
