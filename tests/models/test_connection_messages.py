"""Errors of invalid connections: the whole text."""

from __future__ import annotations

import textwrap

import pytest
from raised import message_of

import mithril_nb as ml
from mithril_nb.models import (
    IOKey,
    Linear,
    Model,
    Relu,
)


def dedented(text: str) -> str:
    return textwrap.dedent(text).strip()


def linear() -> Model:
    return Model() | Linear(3)


def twice(first: IOKey, second: IOKey) -> Model:
    return Model() | Linear(2)(input=first, output="y") | Linear(2)(input=second, output="z")


CASES = {
    "a block that is not there": (
        lambda: Model() | Relu()(input=Linear(3).output),
        """
        ConnectionError: Linear(...).output is not part of this model.
            because  the Linear block was not added to it
            Try: model |= block  # then connect to block.output
        """,
    ),
    "a name that is not there": (
        lambda: (Model() | Linear(3)(output="logits")).set_shapes(logit=[2]),
        """
        ConnectionError: the model has no connection 'logit'.
            names  logits, input, linear_0.output, linear_0.input, linear_0.weight, linear_0.bias
            Try: 'logits'
        """,
    ),
    "two outputs made one": (
        lambda: (Model() | Linear(3)(output="a") | Linear(3)(output="b")).merge_connections("a", "b"),
        """
        ConnectionError: cannot merge 'linear_0.output' and 'linear_1.output'.
            because  two blocks would feed one connection
            Try: merge an input of the model with an output of a block, or with another input.
        """,
    ),
    "a name that is taken": (
        lambda: (Model() | Linear(3)(input="x", output="y")).rename_keys(y="x"),
        """
        NameTakenError: cannot give 'linear_0.output' the name 'x': 'x' already has it.
            names  x, y
            Try: 'x_2'
            """,
    ),
    "another shape than declared": (
        lambda: ml.compile((Model() | Linear(3)(output="y")).set_shapes(y=[2, 4]), shapes={"input": [2, 5]}),
        """
        ShapeError: 'linear_0.output': declared shape does not match the inferred shape.
            declared  (2, 4)
            inferred  (2, 3) float32
            Try: model.set_shapes({'linear_0.output': [2, 3]})  # or change the blocks or shapes that lead to 'linear_0.output'
        """,  # noqa: E501
    ),
    "an input with another shape than declared": (
        lambda: ml.compile((Model() | Linear(3)).set_shapes(input=[2, 4]), shapes={"input": [2, 5]}),
        """
        ShapeError: 'input': declared shape does not match the inferred shape.
            declared  (2, 4)
            inferred  (2, 5) float32
            Try: model.set_shapes({'input': [2, 5]})  # or pass an input of the declared shape
        """,
    ),
    "a parameter with another shape than declared": (
        lambda: ml.compile((Model() | Linear(3)).set_shapes({"linear_0.weight": [7, 3]}), shapes={"input": [2, 4]}),
        """
        ShapeError: the parameter 'linear_0.weight': declared shape does not match the inferred shape.
            declared  (7, 3)
            inferred  (4, 3)
            Try: model.set_shapes({'linear_0.weight': [4, 3]})  # or declare no shape
        """,
    ),
    "another dtype than a block gives": (
        lambda: ml.compile((Model() | Linear(3)).set_types(output="float16"), shapes={"input": [2, 4]}),
        """
        ShapeError: 'linear_0.output': declared dtype does not match the inferred dtype.
            declared  float16
            inferred  (2, 3) float32
            Try: x.cast("float16")  # or a Cast(dtype="float16") after it
        """,
    ),
    "another dtype of a parameter": (
        lambda: ml.compile((Model() | Linear(3)).set_types({"linear_0.bias": "float16"}), shapes={"input": [2, 4]}),
        """
        ShapeError: the parameter 'linear_0.bias': declared dtype does not match the inferred dtype.
            declared  float16
            inferred  float32
            Try: ml.compile(model, ml.JaxBackend(dtype="float16"))  # the dtype of all parameters
        """,
    ),
    "one name for two sizes": (
        lambda: ml.compile(Model() | Relu()(input=IOKey("x", shape=["n", "n"])), shapes={"x": [2, 3]}),
        """
        ShapeError: 'x': declared shape does not match the inferred shape.
            declared  ('n', 'n')
            inferred  (2, 3) float32
            Try: model.set_shapes({'x': [2, 3]})  # or pass an input of the declared shape
        """,
    ),
    "a number for an output": (
        lambda: Relu()(output=3),
        """
        ConnectionError: cannot connect port 'output' of Relu to 3.
            needs  a name
            Try: Relu()(output="hidden")
        """,
    ),
    "a name that is a number": (
        lambda: linear().rename_keys(input=3),
        """
        ConnectionError: a connection cannot have the name 3.
            needs  a non-empty string
            Try: 'hidden'
        """,
    ),
    "no name": (
        lambda: linear().rename_keys(input=""),
        """
        ConnectionError: a connection cannot have the name ''.
            needs  a non-empty string
            Try: 'hidden'
        """,
    ),
    "a name with a dot": (
        lambda: linear().rename_keys(input="enc.x"),
        """
        ConnectionError: a connection cannot have the name 'enc.x': a dot separates a block from its port.
            needs  a name without dots
            Try: 'enc_x'
        """,
    ),
    "a key with a dot": (
        lambda: Model() | Linear(3)(input=IOKey("enc.x")),
        """
        ConnectionError: a connection cannot have the name 'enc.x': a dot separates a block from its port.
            needs  a name without dots
            Try: 'enc_x'
        """,
    ),
    "another shape": (
        lambda: twice(IOKey("x", shape=["b", 3]), IOKey("x", shape=["b", 4])),
        """
        ConnectionError: IOKey('x') declares another shape= than an earlier IOKey of this connection.
            before  shape=('b', 3)
            now     shape=('b', 4)
            Try: IOKey("x_2", shape=('b', 4))  # or IOKey("x") without shape=
        """,
    ),
    "another type": (
        lambda: twice(IOKey("x", type="float32"), IOKey("x", type="int32")),
        """
        ConnectionError: IOKey('x') declares another type= than an earlier IOKey of this connection.
            before  type='float32'
            now     type='int32'
            Try: IOKey("x_2", type='int32')  # or IOKey("x") without type=
        """,
    ),
    "another value": (
        lambda: twice(IOKey("x", value=1.0), IOKey("x", value=2.0)),
        """
        ConnectionError: IOKey('x') declares another value= than an earlier IOKey of this connection.
            before  value=1.0
            now     value=2.0
            Try: IOKey("x_2", value=2.0)  # or IOKey("x") without value=
        """,
    ),
    "another dtype of a value": (
        lambda: twice(IOKey("x", value=1.0, type="float16"), IOKey("x", value=1.0, type="float32")),
        """
        ConnectionError: IOKey('x') declares another type= than an earlier IOKey of this connection.
            before  type='float16'
            now     type='float32'
            Try: IOKey("x_2", type='float32')  # or IOKey("x") without type=
        """,
    ),
    "trained and not": (
        lambda: twice(IOKey("x", differentiable=True), IOKey("x", differentiable=False)),
        """
        ConnectionError: IOKey('x') declares another differentiable= than an earlier IOKey of this connection.
            before  differentiable=True
            now     differentiable=False
            Try: IOKey("x_2", differentiable=False)  # or IOKey("x") without differentiable=
        """,
    ),
    "a number exposed": (
        lambda: linear().expose_keys(3),
        """
        ConnectionError: the model has no connection 3.
            names  input, output, linear_0.output, linear_0.input, linear_0.weight, linear_0.bias
            Try: 'input'  # or another of these names
        """,
    ),
    "an input exposed": (
        lambda: linear().expose_keys("input"),
        """
        ConnectionError: cannot expose 'input': it is an input of the model, not an output.
            outputs of blocks  'linear_0.output'
            Try: model |= Buffer()(input="input", output="y")
        """,
    ),
    "an input exposed under another name": (
        lambda: linear().expose_keys(y="input"),
        """
        ConnectionError: cannot expose 'input': it is an input of the model, not an output.
            outputs of blocks  'linear_0.output'
            Try: model |= Buffer()(input="input", output="y")
        """,
    ),
    "a parameter exposed": (
        lambda: linear().expose_keys("linear_0.weight"),
        """
        ConnectionError: cannot expose 'linear_0.weight': it is a parameter of the model, not an output.
            outputs of blocks  'linear_0.output'
            Try: pm.randomize_params()["linear_0.weight"]
        """,
    ),
    "an output exposed under a name with a dot": (
        lambda: linear().expose_keys(**{"enc.y": "output"}),
        """
        ConnectionError: a connection cannot have the name 'enc.y': a dot separates a block from its port.
            needs  a name without dots
            Try: 'enc_y'
        """,
    ),
    "shapes as text": (
        lambda: linear().set_shapes("input"),
        """
        UnknownOptionError: set_shapes takes values by name, not 'input'.
            needs  a dict with string keys
            Try: model.set_shapes({"input": ["batch", 784]})
        """,
    ),
    "a shape of a number": (
        lambda: linear().set_shapes({3: [2]}),
        """
        UnknownOptionError: set_shapes takes values by name, not {3: [2]}.
            needs  a dict with string keys
            Try: model.set_shapes({"input": ["batch", 784]})
        """,
    ),
    "an initializer of a number": (
        lambda: linear().set_initializers({3: "zeros"}),
        """
        UnknownOptionError: set_initializers takes values by name, not {3: 'zeros'}.
            needs  a dict with string keys
            Try: model.set_initializers({"linear_0.weight": "he_normal"})
        """,
    ),
    "a connection without a port": (
        lambda: Relu()(Linear(3).output),
        """
        ConnectionError: cannot connect Relu to Linear(...).output: no port of Relu is given.
            inputs   input
            outputs  output
            Try: Relu()(input="x")
        """,
    ),
    "an unknown connection name": (
        lambda: linear()["outputt"],
        """
        ConnectionError: Model has no connection 'outputt'.
            connections  output, input
            Try: model['output']
        """,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case):
    call, text = CASES[case]
    assert message_of(call) == dedented(text)
