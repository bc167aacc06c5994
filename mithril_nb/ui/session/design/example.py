"""The example of an empty workbench: a small classifier with training data."""

from __future__ import annotations

from typing import Any

import numpy as np

from mithril_nb.models.library import Flatten, Linear, Relu
from mithril_nb.models.model import Model
from mithril_nb.train.data import read_data
from mithril_nb.train.losses import resolve_loss
from mithril_nb.ui.session.design.design import Design, design_of

_BATCH, _WIDTH, _SIDE = 32, 32, 8


def example_data(count: int = 1024, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Generate images of 8 × 8 pixels and their classes: a horizontal, vertical or diagonal bar.

    Args:
        count: Number of images.
        seed: Determines the images.

    Returns:
        A float32 array of shape (count, 64), and an int32 array of shape (count,) with values from 0 to 2.
    """
    rng = np.random.default_rng(seed)
    classes, place = rng.integers(0, 3, count), rng.integers(0, _SIDE, count)
    bars = np.zeros((count, _SIDE, _SIDE), "float32")
    for image, kind, at in zip(bars, classes, place, strict=True):
        if kind == 2:
            image[:] = np.roll(np.eye(_SIDE), at, axis=1)
        else:
            (image if kind == 0 else image.T)[at] = 1
    noise = rng.normal(scale=0.3, size=bars.shape)
    return (bars + noise).astype("float32").reshape(count, -1), classes.astype("int32")


def example_design(data: Any, loss: Any = "cross_entropy") -> Design:
    """Return a classifier or regression model with the sizes of the data.

    Args:
        data: Data, as in `fit`.
        loss: Loss, as in `fit`. It determines whether integer targets are classes.

    Raises:
        DataError: `fit` does not accept the form of the data.
    """
    found = read_data(data, None)
    x = next(iter(found.inputs.values()))
    y = np.asarray(found.targets)
    is_classes = resolve_loss(loss).targets == "labels"
    model = Model(name="example")
    if x.ndim > 2:
        model |= Flatten()
    model += Linear(_WIDTH)
    model += Relu()
    model += Linear(int(y.max()) + 1 if is_classes else int(np.prod(y.shape[1:])))
    return design_of(model, {"input": [_BATCH, *x.shape[1:]]})
