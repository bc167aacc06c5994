"""fit on models of the house, compiled or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import DataError, UnknownOptionError
from mithril_nb.models import Dropout, Linear, Model, Relu
from mithril_nb.train import Trainable, fit, programs


def classifier() -> Model:
    model = Model()
    model |= Linear(dimension=32)
    model += Relu()
    model += Dropout(p=0.1)
    model += Linear(dimension=10)
    return model


def test_a_model_is_compiled_for_the_data(digits: Any) -> None:
    train, test = digits
    run = fit(classifier(), train, validation=test, learning_rate=5e-3, epochs=12).wait()
    assert run.evaluate(test)["accuracy"] > 0.95


@pytest.mark.parametrize("rows", [32, "batch"])
def test_a_physical_model_trains_at_any_batch_size(digits: Any, rows: Any) -> None:
    train, _ = digits
    pm = ml.compile(classifier(), ml.JaxBackend(), shapes={"input": [rows, 64]})
    assert isinstance(pm, Trainable)
    run = fit(pm, train, epochs=1, batch_size=50).wait()
    outputs = pm.forward(run.params, {"input": train[0]})["output"]
    assert run.evaluate(train)["accuracy"] == pytest.approx(np.mean(np.argmax(outputs, axis=-1) == train[1]))


def test_programs_of_a_physical_model() -> None:
    pm: Any = ml.compile(classifier(), shapes={"input": [32, 64]})
    found = programs(pm)
    assert list(found) == ["forward", "forward+backward", "train step"]
    assert found["train step"].specs[0]["linear_0.weight"].shape == (64, 32)


def test_what_cannot_be_trained() -> None:
    with pytest.raises(UnknownOptionError) as caught:
        fit("mlp", (np.zeros((4, 2)), np.zeros(4, int)))
    assert str(caught.value) == (
        "cannot train a value of type 'str'.\n"
        "    lacks  forward, randomize_params, input_names\n"
        '    Try: ml.fit(ml.compile(model, ml.JaxBackend(), shapes={"input": [32, 64]}), data)'
    )


def test_images_that_are_not_flat(digits: Any) -> None:
    (x, y), _ = digits
    pm = ml.compile(classifier(), shapes={"input": [32, 64]})
    with pytest.raises(DataError) as caught:
        fit(pm, (x.reshape(-1, 8, 8), y))
    assert str(caught.value) == (
        "data: input 'input' has another shape than the model takes.\n"
        "    data   (1437, 8, 8) float32\n"
        "    model  (32, 64) float32\n"
        "    Try: x.reshape(len(x), 64)"
    )
