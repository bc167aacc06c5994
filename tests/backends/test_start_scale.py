"""Ten blocks deep, what comes out is neither lost nor blown up: the bar is a standard deviation from 0.1 to 10."""

from __future__ import annotations

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.models import Conv2d, LayerNorm, Linear, Model

ACTIVATIONS = ("Relu", "Gelu", "Tanh", "Sigmoid", "SiLU", "Elu", "Selu", "LeakyRelu", "Softplus", "Mish")
PAIRS = {
    **{f"Linear+{name}": (lambda name=name: (Linear(256), getattr(models, name)()), (64, 256)) for name in ACTIVATIONS},
    "Conv2d+Relu": (lambda: (Conv2d(32, 3), models.Relu()), (8, 32, 12, 12)),
    "Conv2d+Gelu": (lambda: (Conv2d(32, 3), models.Gelu()), (8, 32, 12, 12)),
    "Linear+LayerNorm": (lambda: (Linear(256), LayerNorm()), (64, 256)),
    "Linear+LayerNorm+Relu": (lambda: (Linear(256), LayerNorm(), models.Relu()), (64, 256)),
    "Linear+Dropout+Relu": (lambda: (Linear(256), models.Dropout(), models.Relu()), (64, 256)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_ten_deep_the_scale_is_kept(name):
    make, shape = PAIRS[name]
    model = Model()
    for _ in range(10):
        for block in make():
            model += block
    pm = ml.compile(model, ml.JaxBackend(seed=0), shapes={"input": list(shape)})
    x = np.random.default_rng(0).standard_normal(shape, "float32")
    assert 0.1 < float(np.std(pm.evaluate(pm.randomize_params(0), {"input": x})["output"])) < 10
