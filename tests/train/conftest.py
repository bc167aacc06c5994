"""Small models in plain JAX, so that tests of training do not need the other packages."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.train import fit
from mithril_nb.train.checkpoints.saver import Checkpoints


class PlainMLP:
    """Linear layers with relus between them, and dropout after the first one if a rate is given."""

    input_names = ("input",)
    output_names = ("output",)
    is_immutable = True

    def __init__(self, *widths: int, dropout: float = 0.0):
        self.widths, self.dropout = widths, dropout
        self.input_specs = {"input": TensorSpec(("batch", widths[0]))}
        self.traces = 0

    @property
    def needs_key(self) -> bool:
        return self.dropout > 0

    def forward(self, params: Any, inputs: Any, *, key: Any = None, training: bool = False) -> dict[str, Any]:
        self.traces += 1
        x, depth = inputs["input"], len(self.widths) - 1
        for place in range(depth):
            with jax.named_scope(f"block:linear_{place}"):
                x = x @ params[f"linear_{place}.weight"] + params[f"linear_{place}.bias"]
            if place < depth - 1:
                with jax.named_scope(f"block:relu_{place}"):
                    x = jnp.maximum(x, 0)
            if place == 0 and self.dropout and training:
                x = jnp.where(jax.random.bernoulli(key, 1 - self.dropout, x.shape), x / (1 - self.dropout), 0.0)
        return {"output": x}

    def randomize_params(self, seed: int | None = None) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        params: dict[str, Any] = {}
        for place, (rows, columns) in enumerate(pairwise(self.widths)):
            params[f"linear_{place}.weight"] = (rng.normal(size=(rows, columns)) / rows**0.5).astype(np.float32)
            params[f"linear_{place}.bias"] = np.zeros(columns, np.float32)
        return params


@pytest.fixture
def mlp() -> type[PlainMLP]:
    """Return the class of the small models."""
    return PlainMLP


@pytest.fixture(scope="session")
def small() -> PlainMLP:
    """Return the model that most tests train, compiled once."""
    return PlainMLP(4, 8, 3)


@pytest.fixture(scope="session")
def digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return scikit-learn's handwritten digits: 1437 to train on and 360 to test on."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32), y[order]
    return (x[:1437], y[:1437]), (x[1437:], y[1437:])


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray]:
    """Return 60 points with 4 features in 3 well separated classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    return (rng.normal(size=(60, 4)) + 3 * np.eye(3, 4)[y]).astype(np.float32), y


@pytest.fixture
def two(small, blobs, tmp_path) -> Path:
    """Return a folder with the checkpoints of steps 4 and 8."""
    fit(small, blobs, epochs=2, batch_size=16, checkpoint=Checkpoints(tmp_path, every_epoch=1)).wait()
    assert sorted(os.listdir(tmp_path)) == ["step-0000000004.safetensors", "step-0000000008.safetensors"]
    return tmp_path
