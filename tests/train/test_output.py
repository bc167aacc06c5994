"""Training on one of several outputs."""

from __future__ import annotations

import numpy as np
import pytest
from transcript import message_of

import mithril_nb as ml
from mithril_nb.models import IOKey, Linear, Model


def two_outputs() -> Model:
    model = Model()
    model |= Linear(4, name="first")(input="x", output=IOKey("first_out"))
    model |= Linear(3, name="head")(input="x", output=IOKey("logits"))
    return model


RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(64, 5)).astype("float32"), RNG.integers(0, 3, 64)


def test_loss_takes_the_named_output():
    run = ml.fit(two_outputs(), DATA, output="logits", epochs=2, batch_size=16)
    start = {name: np.asarray(value) for name, value in run.params.items()}
    run.wait()
    assert len(run.history["accuracy"]) == 8
    for name, before in start.items():
        assert np.array_equal(before, run.params[name]) == name.startswith("first."), name


@pytest.mark.parametrize("output", ["logit", 3, ["logits"], ""])
def test_unknown_output_is_rejected(output):
    assert message_of(lambda: ml.fit(two_outputs(), DATA, output=output, batch_size=16)) == (
        f"UnknownOptionError: the model has no output {output!r}.\n"
        "    outputs  'first_out', 'logits'\n    Try: output=\"logits\""
    )


def test_naming_the_only_output_keeps_checkpoints_valid(tmp_path):
    model = Model() | Linear(3, name="head")(input="x", output=IOKey("logits"))
    options = {"batch_size": 16, "checkpoint": tmp_path, "resume": True}
    ml.fit(model, DATA, epochs=1, **options).wait()
    named = ml.fit(model, DATA, epochs=2, output="logits", **options)
    assert named.step == 4
    named.wait()
    assert ml.fit(model, DATA, epochs=2, **options).step == 8
