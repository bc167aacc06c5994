"""Mistakes that people make in a workbench: a design, data, options of training, and the edit with the mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.models import (
    Add,
    BatchNorm2d,
    Concat,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    Glu,
    GroupNorm,
    Linear,
    LogicalAnd,
    MatMul,
    MaxPool2d,
    Model,
    MultiHeadAttention,
    Pad,
    Relu,
    Repeat,
    Reshape,
    Residual,
    Softmax,
    Squeeze,
    Transpose,
)
from mithril_nb.ui.session import Session
from mithril_nb.ui.session.design import design_of

_RNG = np.random.default_rng(0)
COUNT = 64
FLAT = _RNG.normal(size=(COUNT, 64)).astype("float32")
IMAGES = _RNG.normal(size=(COUNT, 3, 8, 8)).astype("float32")
TOKENS = _RNG.integers(0, 50, (COUNT, 12)).astype("int32")
CLASSES = np.arange(COUNT, dtype="int32") % 10
NUMBERS = _RNG.normal(size=(COUNT, 1)).astype("float32")
MSE, BINARY = {"loss": "mean_squared_error"}, {"loss": "binary_cross_entropy"}
Edit = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Mistake:
    """One situation. Without a problem in the design, training reports it."""

    model: Callable[[], Model]
    shapes: Mapping[str, Any] | None = None
    data: Any = None
    training: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()  # the last one may fail
    has_button: bool = True  # False if no change of the workbench mends the mistake, such as NaN in the data

    def session(self) -> Session:
        """Return a workbench in which the mistake has been made."""
        options = {"epochs": 1, **self.training, **({} if self.data is None else {"data": self.data})}
        wb = Session(design_of(self.model(), self.shapes), JaxBackend(), options, lambda design: None)
        for command, args in self.edits:
            wb.run_command(command, args)
        return wb


def chain(*blocks: Any) -> Callable[[], Model]:
    """Return a function that connects blocks one after the other."""

    def build() -> Model:
        model = Model()
        for block in blocks:
            model += block
        return model

    return build


def branches(left: Any, right: Any, join: Any, ports: tuple[str, str] = ("left", "right")) -> Callable[[], Model]:
    """Return a function that connects two branches of the same input to a block."""

    def build() -> Model:
        model = Model()
        model |= left(input="input", output="a")
        model |= right(input="input", output="b")
        model |= join(**dict(zip(ports, ("a", "b"), strict=True)), output="y")
        return model

    return build


def two_outputs() -> Model:
    """Return a model with two outputs."""
    model = Model()
    model |= Linear(8)(input="x", output="a")
    model |= Linear(10)(input="x", output="b")
    return model


def open_addition() -> Model:
    """Return a model in which one input of an addition is not connected."""
    model = Model()
    model |= Linear(8)(input="input", output="h")
    model |= Add()(left="h", right="skip", output="y")
    return model


def _set(path: str, name: str, value: Any) -> Edit:
    return "set_attribute", {"path": path, "name": name, "value": value}


def _with(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.copy()
    changed[3] = value
    return changed


_MLP = chain(Linear(16), Relu(), Linear(10))
_CNN = chain(Conv2d(8), Relu(), Flatten(), Linear(10))
_X, _PICTURES, _SEQUENCE = {"input": [32, 64]}, {"input": [32, 3, 8, 8]}, {"input": [32, 12, 16]}

MISTAKES: dict[str, Mistake] = {
    # Shapes
    "no shape of the input": Mistake(_MLP),
    "flat input of a convolution": Mistake(_CNN, _X),
    "images with channels last": Mistake(
        chain(Conv2d(8, in_channels=3), Flatten(), Linear(10)), data=(IMAGES.transpose(0, 2, 3, 1), CLASSES)
    ),
    "channels of the input": Mistake(chain(Conv2d(8), Conv2d(8, in_channels=3)), _PICTURES),
    "kernel larger than the image": Mistake(chain(Conv2d(8, kernel_size=9, padding="valid")), _PICTURES),
    "pooled to nothing": Mistake(chain(*[MaxPool2d(2)] * 4), _PICTURES),
    "groups of a convolution": Mistake(chain(Conv2d(8, groups=2)), _PICTURES),
    "features of a norm": Mistake(chain(Conv2d(16), BatchNorm2d(8)), _PICTURES),
    "groups of a norm": Mistake(chain(Conv2d(10), GroupNorm(4)), _PICTURES),
    "width of attention": Mistake(chain(MultiHeadAttention(24)), _SEQUENCE),
    "heads of attention": Mistake(
        chain(MultiHeadAttention(16)), _SEQUENCE, edits=(_set("multi_head_attention_0", "heads", 5),)
    ),
    "branches of different widths": Mistake(branches(Linear(8), Linear(9), Add()), _X),
    "branches of different channels": Mistake(branches(Conv2d(8), Conv2d(16), Add()), _PICTURES),
    "skip over a stride": Mistake(branches(Conv2d(8, stride=2), Conv2d(8), Add()), _PICTURES),
    "images and vectors": Mistake(branches(Flatten(), Conv2d(8), Concat(n=2), ("input1", "input2")), _PICTURES),
    "axis of a concatenation": Mistake(branches(Linear(8), Linear(9), Concat(n=2, axis=0), ("input1", "input2")), _X),
    "axis out of range": Mistake(chain(Linear(8), Softmax(axis=2)), _X),
    "sizes of a product": Mistake(branches(Linear(8), Linear(9), MatMul()), _X),
    "residual of another width": Mistake(chain(Residual(Linear(8))), _X),
    "repeated with another width": Mistake(chain(Repeat(Linear(8), 3)), _X),
    "reshaped to another size": Mistake(chain(Linear(8), Reshape((32, 3, 3))), _X),
    "order of the axes": Mistake(chain(Linear(8), Transpose((0, 2, 1))), _X),
    "axis that is not 1": Mistake(chain(Linear(8), Squeeze(1)), _X),
    "odd width of a gate": Mistake(chain(Linear(9), Glu()), _X),
    "padding of another rank": Mistake(chain(Pad(((0, 0), (1, 1), (1, 1)))), _X),
    "embedding of floats": Mistake(chain(Linear(8), Embedding(10, 4)), _X),
    "logic on floats": Mistake(branches(Linear(8), Linear(8), LogicalAnd()), _X),
    "unconnected input": Mistake(open_addition, _X),
    "no block": Mistake(Model, data=(FLAT, CLASSES)),
    "parameters of many gigabytes": Mistake(_MLP, {"input": [1, 10**5]}, edits=(_set("linear_0", "dimension", 10**5),)),
    # Edits
    "cycle": Mistake(
        _MLP, _X, edits=(("connect", {"source": "linear_1.output", "target": "linear_0.input"}),), has_button=False
    ),
    "dropout of everything": Mistake(chain(Linear(8), Dropout(0.5)), _X, edits=(_set("dropout_0", "p", 1.0),)),
    "negative width": Mistake(_MLP, _X, edits=(_set("linear_0", "dimension", -4),)),
    "width as text": Mistake(_MLP, _X, edits=(_set("linear_0", "dimension", "128 units"),)),
    "batch of nothing": Mistake(_MLP, _X, edits=(("set_shape", {"name": "input", "shape": [0, 64]}),)),
    "batch without a size": Mistake(_MLP, _X, edits=(("set_shape", {"name": "input", "shape": ["None", 64]}),)),
    "unknown output": Mistake(_MLP, _X, edits=(("set_output", {"output": "outptu"}),)),
    "misspelt block": Mistake(_MLP, _X, edits=(("place_block", {"kind": "Conv2D"}),)),
    "port that does not exist": Mistake(
        _MLP, _X, edits=(("connect", {"source": "linear_0.out", "target": "linear_1.input"}),)
    ),
    "epochs of nothing": Mistake(_MLP, _X, edits=(("set_training", {"name": "epochs", "value": 0}),)),
    "negative learning rate": Mistake(_MLP, _X, edits=(("set_learning_rate", {"value": -0.1}),)),
    # Data and training
    "images without Flatten": Mistake(_MLP, data=(IMAGES, CLASSES)),
    "convolution without Flatten": Mistake(chain(Conv2d(4), Relu(), Linear(10)), data=(IMAGES, CLASSES)),
    "too few classes": Mistake(chain(Linear(5)), data=(FLAT, CLASSES)),
    "classes as numbers": Mistake(_MLP, data=(FLAT, CLASSES), training=MSE),
    "numbers as classes": Mistake(chain(Linear(1)), data=(FLAT, NUMBERS)),
    "targets of one number": Mistake(chain(Linear(3)), data=(FLAT, NUMBERS), training=MSE),
    "two outputs for yes or no": Mistake(chain(Linear(2)), data=(FLAT, CLASSES % 2), training=BINARY),
    "sigmoid of classes": Mistake(_MLP, data=(FLAT, CLASSES), training=BINARY),
    "classes as one-hot": Mistake(_MLP, data=(FLAT, np.eye(10, dtype="float32")[CLASSES])),
    "features of the data": Mistake(_MLP, {"input": [32, 63]}, data=(FLAT, CLASSES)),
    "size with two values": Mistake(_MLP, {"input": ["n", "n"]}, data=(FLAT, CLASSES)),
    "two outputs, one loss": Mistake(two_outputs, data=(FLAT, CLASSES)),
    "batch larger than the data": Mistake(_MLP, data=(FLAT, CLASSES), training={"batch_size": 128}),
    "flat pictures of a convolution": Mistake(_CNN, data=(FLAT, CLASSES)),
    "model that cannot be trained yet": Mistake(
        branches(Linear(10), Linear(9), Add()), data=(FLAT, CLASSES), edits=(("train", {}),)
    ),
    "learning rate too high": Mistake(
        chain(Linear(16), Linear(16), Linear(1)),
        data=(FLAT, NUMBERS),
        training={**MSE, "optimizer": "sgd", "learning_rate": 1e6, "epochs": 20},
    ),
    "indices out of range": Mistake(chain(Embedding(20, 8), Flatten(), Linear(10)), data=(TOKENS, CLASSES)),
    "fractions as indices": Mistake(chain(Embedding(50, 8), Flatten(), Linear(10)), data=(TOKENS + 0.5, CLASSES)),
    "no data": Mistake(_MLP, _X),
    "NaN in the data": Mistake(_MLP, data=(_with(FLAT, np.nan), CLASSES), has_button=False),
    "negative labels": Mistake(_MLP, data=(FLAT, CLASSES - 1), has_button=False),
    "labels as text": Mistake(_MLP, data=(FLAT, CLASSES.astype(str)), has_button=False),
    "inputs without targets": Mistake(_MLP, data=(FLAT, CLASSES[:-1]), has_button=False),
    "validation of another shape": Mistake(
        _MLP, data=(FLAT, CLASSES), training={"validation": (FLAT[:, 1:], CLASSES)}, has_button=False
    ),
}
