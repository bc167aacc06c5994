"""Errors of invalid block constructors and calls: the whole text."""

import textwrap

import pytest
from raised import message_of

from mithril_nb import models
from mithril_nb.models import MLP, Composite, Conv2d, Dropout, Linear, MaxPool2d, Model, OneHot, Operator, Relu
from mithril_nb.models.model import with_attributes
from mithril_nb.models.registry import kind_named


class Encoder(Model):
    def __init__(self, width, *more, depth=2):
        super().__init__()


class Blank(Operator):
    pass


Blank.op = "blank"  # set late, so that it is not registered as a kind of block


def second_class(kind: str, op: str) -> None:
    type(kind, (Operator,), {"op": op})


class Idle(Operator):
    pass


class Halves(Operator):
    output_ports = ("low", "high")

    def __init__(self, width=2, name=None):
        super().__init__(name, width=width)


class Shortened(Composite):
    def __init__(self, width: int, depth: int = 2, name: str | None = None):
        super().__init__(name, depth=depth)


CASES = {
    "an operator that is empty": (
        lambda: Idle(),
        """
        UnknownOpError: Idle has no method compute, so its outputs are undefined.
            needs  compute(self, inputs), which takes arrays by port and returns arrays by port
            Try: def compute(self, inputs): return {"output": inputs["input"]}
        """,
    ),
    "an operator that has attributes alone": (
        lambda: Halves(),
        """
        UnknownOpError: Halves has no method compute, so its outputs are undefined.
            needs  compute(self, inputs), which takes arrays by port and returns arrays by port
            Try: def compute(self, inputs): return {"low": inputs["input"], "high": inputs["input"]}
        """,
    ),
    "an op that exists": (
        lambda: second_class("Swish", "relu"),
        """
        NameTakenError: cannot define Swish: the op 'relu' already exists.
            defined by  mithril_nb.models.library.operations.activations.Relu
            Try: op = "my_relu"
        """,
    ),
    "a kind that exists": (
        lambda: second_class("Relu", "swish"),
        """
        NameTakenError: cannot define Relu: the kind 'Relu' already exists.
            defined by  mithril_nb.models.library.operations.activations.Relu
            Try: class MyRelu(Operator)
        """,
    ),
    "a missing required argument": (
        lambda: OneHot(),
        """
        UnknownOptionError: cannot make OneHot: missing a required argument: 'num_classes'.
            takes  num_classes, axis=-1, dtype=None, name=None
            Try: OneHot(num_classes=64)
        """,
    ),
    "an unknown argument": (
        lambda: Linear(64, width=1),
        """
        UnknownOptionError: cannot make Linear: got an unexpected keyword argument 'width'.
            takes  dimension=None, use_bias=True, input_size=None, name=None
            given  64, width=1
            Try: Linear(dimension=64)
        """,
    ),
    "too many": (
        lambda: Relu("a", "b"),
        """
        UnknownOptionError: cannot make Relu: too many positional arguments.
            takes  name=None
            given  'a', 'b'
            Try: Relu()
        """,
    ),
    "a class of one's own": (
        lambda: Encoder(),
        """
        UnknownOptionError: cannot make Encoder: missing a required argument: 'width'.
            takes  width, *more, depth=2
            Try: Encoder(width=...)
        """,
    ),
    "text for a number": (
        lambda: Linear("many"),
        """
        UnknownOptionError: Linear cannot take dimension='many'.
            needs  a whole number from 1 to 1048576, or None
            means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.
            Try: Linear(dimension=64)
        """,
    ),
    "a bool for a number": (
        lambda: Linear(True),
        """
        UnknownOptionError: Linear cannot take dimension=True.
            needs  a whole number from 1 to 1048576, or None
            means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.
            Try: Linear(dimension=64)
        """,
    ),
    "zero": (
        lambda: Linear(0),
        """
        UnknownOptionError: Linear cannot take dimension=0.
            needs  a whole number from 1 to 1048576, or None
            means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.
            Try: Linear(dimension=64)
        """,
    ),
    "a fraction": (
        lambda: Linear(2.5),
        """
        UnknownOptionError: Linear cannot take dimension=2.5.
            needs  a whole number from 1 to 1048576, or None
            means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.
            Try: Linear(dimension=64)
        """,
    ),
    "infinity": (
        lambda: Linear(float("inf")),
        """
        UnknownOptionError: Linear cannot take dimension=inf.
            needs  a whole number from 1 to 1048576, or None
            means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.
            Try: Linear(dimension=64)
        """,
    ),
    "too great": (
        lambda: Linear(2**21),
        """
        UnknownOptionError: Linear cannot take dimension=2097152.
            needs  a whole number from 1 to 1048576, or None
            means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.
            Try: Linear(dimension=64)
        """,
    ),
    "none": (
        lambda: Conv2d(None),
        """
        UnknownOptionError: Conv2d cannot take out_channels=None.
            needs  a whole number from 1 to 1048576
            means  Number of channels of the output.
            Try: Conv2d(out_channels=64)
        """,
    ),
    "a chance above one": (
        lambda: Dropout(1.5),
        """
        UnknownOptionError: Dropout cannot take p=1.5.
            needs  a number from 0 to 0.99
            means  Probability that an item is set to zero.
            Try: Dropout(p=0.5)
        """,
    ),
    "a rate that is not a number": (
        lambda: Dropout(float("nan")),
        """
        UnknownOptionError: Dropout cannot take p=nan.
            needs  a number from 0 to 0.99
            means  Probability that an item is set to zero.
            Try: Dropout(p=0.5)
        """,
    ),
    "a choice": (
        lambda: MLP(activation="swish"),
        """
        UnknownOptionError: MLP cannot take activation='swish'.
            needs  one of 'relu', 'gelu', 'sigmoid', 'tanh'
            means  The activation between two blocks.
            Try: MLP(activation='relu')
        """,
    ),
    "one of several numbers": (
        lambda: MLP(3, [4, 0], 2),
        """
        UnknownOptionError: MLP cannot take hidden_sizes=[4, 0].
            needs  whole numbers from 1 to 1048576
            means  Widths of the hidden blocks.
            Try: MLP(input_size=3, hidden_sizes=(64,), output_size=2)
        """,
    ),
    "text for several numbers": (
        lambda: MLP(3, "wide", 2),
        """
        UnknownOptionError: MLP cannot take hidden_sizes='wide'.
            needs  whole numbers from 1 to 1048576
            means  Widths of the hidden blocks.
            Try: MLP(input_size=3, hidden_sizes=(64,), output_size=2)
        """,
    ),
    "three for a pair": (
        lambda: Conv2d(3, (1, 2, 3)),
        """
        UnknownOptionError: Conv2d cannot take kernel_size=(1, 2, 3).
            needs  2 whole numbers from 1 to 64, or one for all
            means  Height and width of a window.
            Try: Conv2d(out_channels=3, kernel_size=3)
        """,
    ),
    "none for a pair": (
        lambda: MaxPool2d(stride=()),
        """
        UnknownOptionError: MaxPool2d cannot take stride=().
            needs  2 whole numbers from 1 to 64, or one for all, or None
            means  Distance between neighbouring windows; by default the size of a window.
            Try: MaxPool2d(stride=(2, 2))
        """,
    ),
    "another padding": (
        lambda: Conv2d(3, padding="full"),
        """
        UnknownOptionError: Conv2d cannot take padding='full'.
            needs  'same', 'valid', a number, 2 numbers, or 2 pairs (before, after)
            means  `"same"` keeps the size at stride 1, `"valid"` adds nothing. Or the number of zeros at each end: one number for both axes, or for each axis a number or a pair (before, after).
            Try: Conv2d(out_channels=3, padding='same')
        """,  # noqa: E501 - as it is shown
    ),
    "text for a flag": (
        lambda: Linear(3, use_bias="yes"),
        """
        UnknownOptionError: Linear cannot take use_bias='yes'.
            needs  True or False
            means  If true, add a bias.
            Try: Linear(dimension=3, use_bias=True)
        """,
    ),
    "no such port": (
        lambda: Relu()(inputs="x"),
        """
        UnknownOptionError: Relu has no port and no attribute 'inputs'.
            ports       input, output
            attributes  none
            Try: Relu()(input="x")
        """,
    ),
    "a port that is misspelt": (
        lambda: Linear(4)(inputs="x"),
        """
        UnknownOptionError: Linear has no port and no attribute 'inputs'.
            ports       bias, input, output, weight
            attributes  dimension, use_bias, input_size
            Try: Linear(dimension=4)(input="x")
        """,
    ),
    "an attribute that is misspelt": (
        lambda: Linear(4)(use_bais=False),
        """
        UnknownOptionError: Linear has no port and no attribute 'use_bais'.
            ports       bias, input, output, weight
            attributes  dimension, use_bias, input_size
            Try: Linear(dimension=4)(use_bias=False)
        """,
    ),
    "a port like no other": (
        lambda: Linear(4, use_bias=False)(qqq="x"),
        """
        UnknownOptionError: Linear has no port and no attribute 'qqq'.
            ports       input, output, weight
            attributes  dimension, use_bias, input_size
            Try: Linear(dimension=4, use_bias=False)(input="x")
        """,
    ),
    "a port of a model of one's own": (
        lambda: (Model() | Linear(4))(inputs="x"),
        """
        UnknownOptionError: Model has no port and no attribute 'inputs'.
            ports       input, output
            attributes  none
            Try: block(input="x")
        """,
    ),
    "no ports yet": (
        lambda: Model()(input="x"),
        """
        UnknownOptionError: Model has no port and no attribute 'input'.
            ports       none
            attributes  none
            Try: model |= Linear(64)  # add a block first
        """,
    ),
    "a number for a name": (
        lambda: Relu()(input=object),
        """
        ConnectionError: cannot connect port 'input' of Relu to <class 'object'>.
            needs  a name, a connection, or a number
            Try: Relu()(input="hidden")
        """,
    ),
    "an empty name": (
        lambda: Relu()(input=""),
        """
        ConnectionError: cannot connect port 'input' of Relu to ''.
            needs  a name, a connection, or a number
            Try: Relu()(input="hidden")
        """,
    ),
    "a wrong attribute in a call": (
        lambda: Linear(3)(dimension="x"),
        """
        UnknownOptionError: Linear cannot take dimension='x'.
            needs  a whole number from 1 to 1048576, or None
            means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.
            Try: Linear(dimension=64)
        """,
    ),
    "no model": (
        lambda: Model() + 3,
        """
        UnknownOptionError: cannot add 3 to a model.
            needs  a block, or a block with connections
            Try: model += Linear(64)  # or model |= Linear(64)(input="x")
        """,
    ),
    "a class in place of a block": (
        lambda: Model() + Linear,
        """
        UnknownOptionError: cannot add <class 'mithril_nb.models.library.layers.linear.Linear'> to a model.
            needs  a block, or a block with connections
            Try: model += Linear(64)  # or model |= Linear(64)(input="x")
        """,
    ),
    "an empty name of a model": (
        lambda: Model(name=""),
        """
        UnknownOptionError: a model cannot be named ''.
            needs  a string, or None
            Try: Model(name="classifier")
        """,
    ),
    "a number for the name of a model": (
        lambda: Linear(3, name=5),
        """
        UnknownOptionError: a model cannot be named 5.
            needs  a string, or None
            Try: Model(name="classifier")
        """,
    ),
    "an argument that a composite does not pass on": (
        lambda: Shortened(3),
        """
        UnknownOptionError: Shortened.__init__ does not pass 'width' to super().__init__.
            because  Shortened is rebuilt from its attributes
            passed   depth
            Try: super().__init__(name, depth=depth, width=width)
        """,
    ),
    "an attribute that it has not": (
        lambda: with_attributes(Linear(3), {"width": 4}),
        """
        UnknownOptionError: Linear takes no argument 'width'.
            takes  dimension, use_bias, input_size
            Try: Linear(dimension=64)
        """,
    ),
    "an attribute of a model": (
        lambda: with_attributes(Model(), {"width": 4}),
        """
        UnknownOptionError: Model has no attribute 'width'.
            attributes  none
            Try: change the attributes of a block inside the model.
        """,
    ),
    "an attribute of a Relu": (
        lambda: with_attributes(Relu(), {"slope": 4}),
        """
        UnknownOptionError: Relu has no attribute 'slope'.
            attributes  none
            Try: Relu()
        """,
    ),
    "an unknown kind": (
        lambda: kind_named("Linaer"),
        """
        UnknownBlockError: unknown kind of block 'Linaer'.
            known kinds     list(mithril_nb.models.KINDS)
            your own kinds  first define or import the class
            Try: kind="Linear"
        """,
    ),
    "a kind in another case": (
        lambda: kind_named("ReLU"),
        """
        UnknownBlockError: unknown kind of block 'ReLU'.
            known kinds     list(mithril_nb.models.KINDS)
            your own kinds  first define or import the class
            Try: kind="Relu"
        """,
    ),
    "a kind of another library": (
        lambda: kind_named("Dense"),
        """
        UnknownBlockError: unknown kind of block 'Dense'.
            known kinds     list(mithril_nb.models.KINDS)
            your own kinds  first define or import the class
            Try: kind="Linear"
        """,
    ),
    "a quite unknown kind": (
        lambda: kind_named("Qxyzzy"),
        """
        UnknownBlockError: unknown kind of block 'Qxyzzy'.
            known kinds     list(mithril_nb.models.KINDS)
            your own kinds  first define or import the class
            Try: list(ml.models.KINDS)  # one of these names
        """,
    ),
    "no shape rule": (
        lambda: Blank.infer({}, {}),
        """
        UnknownOpError: Blank has no shape rule.
            op  'blank'
            Try: define Blank.infer(options, inputs).
        """,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case):
    call, text = CASES[case]
    assert message_of(call) == textwrap.dedent(text).strip()


def test_a_redefined_class_replaces_itself(monkeypatch):
    monkeypatch.setattr("mithril_nb.models.op.OPS", ops := {})
    monkeypatch.setattr("mithril_nb.models.op.KINDS", {})
    classes = [type("Swish", (Operator,), {"op": "swish", "__module__": "__main__"}) for _ in range(2)]
    assert ops == {"swish": classes[1]}


@pytest.mark.parametrize(
    ("name", "advice"), [("ReLU", " Did you mean 'Relu'?"), ("Dense", " Did you mean 'Linear'?"), ("Qxyzzy", "")]
)
def test_a_name_of_another_library_suggests_the_block(name: str, advice: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(models, name)
    assert str(error.value) == f"module 'mithril_nb.models' has no attribute {name!r}.{advice}"
