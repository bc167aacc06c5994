"""Errors of shape mismatches: the whole text, with ports, shapes and advice."""

import textwrap

import pytest
from raised import message_of

from mithril_nb.models import Add, Conv2d, Embedding, Flatten, LayerNorm, Linear, MaxPool2d, Model, Relu, Softmax
from mithril_nb.models.naming import input_specs
from mithril_nb.models.shape_inference.infer import infer


def chain(*blocks: Model) -> Model:
    model = Model()
    for block in blocks:
        model += block
    return model


def shapes(model: Model, **given: tuple) -> None:
    infer(model.graph, input_specs(model.graph, given)).raise_problems()


def in_body() -> Model:
    head = Model(name="head") + Relu()
    return chain(
        Linear(64), chain(head, Linear(10, input_size=128)), Model.of(chain(Linear(5, input_size=9)).graph, "b")
    )


def several() -> Model:
    model = Model()
    model |= Linear(3)(input="x", output="a")
    model |= Linear(4, input_size=4, name="wrong")(input="a", output="b")
    model |= Add()(left="a", right="x")
    model |= Relu()(input="b")
    return model


def shared() -> Model:
    model = Model()
    model |= Linear(4, use_bias=False)(input="x", weight="w")
    model |= Linear(5, use_bias=False)(input="x", weight="w")
    return model


def read_by_two() -> Model:
    model = Model()
    model |= Embedding(3, 4)(input="x")
    model |= Linear(3)(input="x")
    return model


CASES = {
    "a connection": (
        lambda: shapes(chain(Linear(64), Relu(), Linear(10, input_size=128)), input=(32, 784)),
        """
        ShapeError: cannot connect 'relu_0.output' to 'linear_1.input'.
            output  (32, 64) float32
            input   needs (..., 128)
            found   axis 1: 64 != 128
            Try: Linear(10, input_size=64)  # or leave input_size out
        """,
    ),
    "an input": (
        lambda: shapes(Linear(10, input_size=128), input=(32, 784)),
        """
        ShapeError: the input 'input' does not fit 'linear.input'.
            given  (32, 784) float32
            input  needs (..., 128)
            found  axis 1: 784 != 128
            Try: Linear(10, input_size=784)  # or leave input_size out
        """,
    ),
    "a name in the shape": (
        lambda: shapes(chain(Linear(64), Linear(10, input_size=128)), input=("batch", 784)),
        """
        ShapeError: cannot connect 'linear_0.output' to 'linear_1.input'.
            output  ('batch', 64) float32
            input   needs (..., 128)
            found   axis 1: 64 != 128
            Try: Linear(10, input_size=64)  # or leave input_size out
        """,
    ),
    "inside of blocks": (
        lambda: shapes(in_body(), input=("batch", 784)),
        """
        ShapeError: cannot connect 'model_0/head.output' to 'model_0/linear_0.input'.
            output  ('batch', 64) float32
            input   needs (..., 128)
            found   axis 1: 64 != 128
            Try: Linear(10, input_size=64)  # or leave input_size out
        """,
    ),
    "several at once": (
        lambda: shapes(several(), x=("n", 7)),
        """
        ShapeError: cannot connect 'linear_0.output' to 'wrong.input'.
            output  ('n', 3) float32
            input   needs (..., 4)
            found   axis 1: 3 != 4
            Try: Linear(4, input_size=3)  # or leave input_size out
        the input 'x' does not fit 'add_0.right'.
            x      ('n', 7) float32
            right  needs a shape that broadcasts with ('n', 3)
            found  axis -1: 3 != 7
            Try: use the same sizes, or size 1 on an axis to broadcast.
        """,
    ),
    "hostile names": (
        lambda: shapes(Model() + Linear(4, name="a/b") + Linear(4, input_size=3, name="<b>.50%"), input=(2, 4)),
        """
        ShapeError: cannot connect 'a%2Fb.output' to '<b>%2E50%25.input'.
            output  (2, 4) float32
            input   needs (..., 3)
            found   axis 1: 4 != 3
            Try: Linear(4, input_size=4)  # or leave input_size out
        """,
    ),
    "a shared weight": (
        lambda: shapes(shared(), x=(2, 7)),
        """
        ShapeError: the blocks 'linear_0' and 'linear_1' share 'w' in two shapes.
            linear_0.weight  (7, 4) float32
            linear_1.weight  (7, 5) float32
            Try: give both blocks the same sizes, or give their parameters different names.
        """,
    ),
    "no image": (
        lambda: shapes(Conv2d(3), input=(2, 7)),
        """
        ShapeError: the input 'input' does not fit 'conv2d.input'.
            given  (2, 7) float32
            input  needs (batch, channels, height, width)
            found  rank 2 != 4
            Try: shapes={"input": [32, 1, 28, 28]}
        """,
    ),
    "other channels": (
        lambda: shapes(Conv2d(3, in_channels=3), input=(2, 1, 8, 8)),
        """
        ShapeError: the input 'input' does not fit 'conv2d.input'.
            given  (2, 1, 8, 8) float32
            input  needs (batch, 3, height, width)
            found  axis 1: 1 != 3
            Try: Conv2d(3, in_channels=1)  # or leave in_channels out
        """,
    ),
    "a window that is too great": (
        lambda: shapes(chain(MaxPool2d(2), MaxPool2d(4)), input=(2, 1, 6, 6)),
        """
        ShapeError: cannot connect 'max_pool2d_0.output' to 'max_pool2d_1.input'.
            output  (2, 1, 3, 3) float32
            input   needs at least 4 items on axis 2
            found   axis 2: 3 < 4
            Try: padding='same'  # or a smaller kernel_size: a window covers 4x4 items
        """,
    ),
    "no such axis": (
        lambda: shapes(Softmax(2), input=(2, 1)),
        """
        ShapeError: the input 'input' does not fit 'softmax.input'.
            given  (2, 1) float32
            input  needs an array that has axis 2
            found  rank 2
            Try: Softmax(axis=1)
        """,
    ),
    "a number for Linear": (
        lambda: shapes(Linear(2), input=()),
        """
        ShapeError: the input 'input' does not fit 'linear.input'.
            given  () float32
            input  needs at least one axis
            found  rank 0
            Try: use an input with axes, such as (batch, features).
        """,
    ),
    "a number for Flatten": (
        lambda: shapes(Flatten(), input=()),
        """
        ShapeError: the input 'input' does not fit 'flatten.input'.
            given  () float32
            input  needs at least one axis
            found  rank 0
            Try: use an input with a batch axis.
        """,
    ),
    "a number for LayerNorm": (
        lambda: shapes(LayerNorm(), input=()),
        """
        ShapeError: the input 'input' does not fit 'layer_norm.input'.
            given  () float32
            input  needs at least one axis
            found  rank 0
            Try: use an input with axes, such as (batch, features).
        """,
    ),
    "floating numbers for an Embedding": (
        lambda: shapes(chain(Linear(3), Embedding(3, 4)), input=(2, 3)),
        """
        ShapeError: cannot connect 'linear_0.output' to 'embedding_0.input'.
            output  (2, 3) float32
            input   needs whole numbers (int32)
            found   float32
            Try: x.cast("int32")  # or a Cast(dtype="int32") before it
        """,
    ),
    "whole numbers for a Linear": (
        lambda: shapes(read_by_two(), x=(2, 3)),
        """
        ShapeError: the input 'x' does not fit 'linear_0.input'.
            x      (2, 3) int32
            input  needs floating-point numbers (float32)
            found  int32
            Try: array.astype("float32")  # or a separate input for this block
        """,
    ),
    "a sum": (
        lambda: shapes(Add(), left=(2, 3, 4), right=(2, 1)),
        """
        ShapeError: the input 'right' does not fit 'add.right'.
            given  (2, 1) float32
            right  needs a shape that broadcasts with (2, 3, 4)
            found  axis -2: 3 != 2
            Try: use the same sizes, or size 1 on an axis to broadcast.
        """,
    ),
    "no input at all": (
        lambda: shapes(Model(), input=(2, 3)),
        """
        UnexpectedInputError: the model has no input 'input'.
            inputs  none
            Try: shapes = {}
        """,
    ),
    "a text for a shape": (
        lambda: shapes(Linear(3), input="3, 4"),
        """
        UnknownOptionError: '3, 4' is not a shape for input 'input'.
            needs  a list of sizes, or names of unknown sizes; '...' may only come first
            Try: shapes={'input': ["batch", 784]}
        """,
    ),
    "a name that is a number": (
        lambda: shapes(Linear(3), input=["-1", "2.5"]),
        """
        UnknownOptionError: ['-1', '2.5'] is not a shape for input 'input'.
            needs  a list of sizes, or names of unknown sizes; '...' may only come first
            Try: shapes={'input': ["batch", 784]}
        """,
    ),
    "a number for a shape": (
        lambda: shapes(Linear(3), input=784),
        """
        UnknownOptionError: 784 is not a shape for input 'input'.
            needs  a list of sizes, or names of unknown sizes; '...' may only come first
            Try: shapes={'input': ["batch", 784]}
        """,
    ),
    "below zero": (
        lambda: shapes(Linear(3), input=(-1, 4)),
        """
        UnknownOptionError: (-1, 4) is not a shape for input 'input'.
            needs  a list of sizes, or names of unknown sizes; '...' may only come first
            Try: shapes={'input': ["batch", 784]}
        """,
    ),
    "no number": (
        lambda: shapes(Linear(3), input=(None, 4)),
        """
        UnknownOptionError: (None, 4) is not a shape for input 'input'.
            needs  a list of sizes, or names of unknown sizes; '...' may only come first
            Try: shapes={'input': ["batch", 784]}
        """,
    ),
    "dots in the middle": (
        lambda: shapes(Linear(3), input=(1, "...")),
        """
        UnknownOptionError: (1, '...') is not a shape for input 'input'.
            needs  a list of sizes, or names of unknown sizes; '...' may only come first
            Try: shapes={'input': ["batch", 784]}
        """,
    ),
    "no dict": (
        lambda: input_specs(several().graph, [32, 784]),
        """
        UnknownOptionError: shapes must be given by name, in a dict.
            given   list
            inputs  'x'
            Try: shapes = {'x': [32, 784]}
        """,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case):
    call, text = CASES[case]
    assert message_of(call) == textwrap.dedent(text).strip()
