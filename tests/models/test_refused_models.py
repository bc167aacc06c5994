"""Refused constructors, connections and shapes of models. The commonest are in `tests/mistakes`, with their advice."""

from __future__ import annotations

import pytest
from transcript import facts_of, read_transcript

import mithril_nb as ml  # noqa: F401 - used in CASES
from mithril_nb import models
from mithril_nb.errors import UnknownBlockError
from mithril_nb.models import Add, Composite, Embedding, IOKey, Linear, Model, Operator, Relu
from mithril_nb.models.model import with_attributes  # noqa: F401
from mithril_nb.models.naming import input_specs
from mithril_nb.models.registry import kind_named
from mithril_nb.models.shape_inference.infer import infer


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


def linear() -> Model:
    return Model() | Linear(3)


def twice(first: IOKey, second: IOKey) -> Model:
    return Model() | Linear(2)(input=first, output="y") | Linear(2)(input=second, output="z")


def chain(*blocks: Model) -> Model:
    return sum(blocks, Model())


def shapes(model: Model, **given: tuple) -> None:
    infer(model.graph, input_specs(model.graph, given)).raise_problems()


def in_body() -> Model:
    inner = chain(Model(name="head") + Relu(), Linear(10, input_size=128))
    return chain(Linear(64), inner, Model.of(chain(Linear(5, input_size=9)).graph, "b"))


def several() -> Model:
    model = Model() | Linear(3)(input="x", output="a")
    model |= Linear(4, input_size=4, name="wrong")(input="a", output="b")
    return model | Add()(left="a", right="x") | Relu()(input="b")


def shared() -> Model:
    first, second = (Linear(width, use_bias=False)(input="x", weight="w") for width in (4, 5))
    return Model() | first | second


def read_by_two() -> Model:
    return Model() | Embedding(3, 4)(input="x") | Linear(3)(input="x")


CASES = """
Idle()
UnknownOpError: Idle has no method compute, so its outputs are undefined.
    needs  compute(self, inputs), which takes arrays by port and returns arrays by port

Halves()
UnknownOpError: Halves has no method compute, so its outputs are undefined.
    needs  compute(self, inputs), which takes arrays by port and returns arrays by port

second_class('Swish', 'relu')
NameTakenError: cannot define Swish: the op 'relu' already exists.
    defined by  mithril_nb.models.library.operations.activations.Relu

second_class('Relu', 'swish')
NameTakenError: cannot define Relu: the kind 'Relu' already exists.
    defined by  mithril_nb.models.library.operations.activations.Relu

Relu('a', 'b')
UnknownOptionError: cannot make Relu: too many positional arguments.
    takes  name=None
    given  'a', 'b'

Encoder()
UnknownOptionError: cannot make Encoder: missing a required argument: 'width'.
    takes  width, *more, depth=2

Linear('many')
UnknownOptionError: Linear cannot take dimension='many'.
    needs  a whole number from 1 to 1048576, or None
    means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.

Linear(True)
UnknownOptionError: Linear cannot take dimension=True.
    needs  a whole number from 1 to 1048576, or None
    means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.

Linear(0)
UnknownOptionError: Linear cannot take dimension=0.
    needs  a whole number from 1 to 1048576, or None
    means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.

Linear(2.5)
UnknownOptionError: Linear cannot take dimension=2.5.
    needs  a whole number from 1 to 1048576, or None
    means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.

Linear(float('inf'))
UnknownOptionError: Linear cannot take dimension=inf.
    needs  a whole number from 1 to 1048576, or None
    means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.

Linear(2 ** 21)
UnknownOptionError: Linear cannot take dimension=2097152.
    needs  a whole number from 1 to 1048576, or None
    means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.

Conv2d(None)
UnknownOptionError: Conv2d cannot take out_channels=None.
    needs  a whole number from 1 to 1048576
    means  Number of channels of the output.

Dropout(1.5)
UnknownOptionError: Dropout cannot take p=1.5.
    needs  a number from 0 to 0.99
    means  Probability that an item is set to zero.

Dropout(float('nan'))
UnknownOptionError: Dropout cannot take p=nan.
    needs  a number from 0 to 0.99
    means  Probability that an item is set to zero.

MLP(3, [4, 0], 2)
UnknownOptionError: MLP cannot take hidden_sizes=[4, 0].
    needs  whole numbers from 1 to 1048576
    means  Widths of the hidden blocks.

MLP(3, 'wide', 2)
UnknownOptionError: MLP cannot take hidden_sizes='wide'.
    needs  whole numbers from 1 to 1048576
    means  Widths of the hidden blocks.

MaxPool2d(stride=())
UnknownOptionError: MaxPool2d cannot take stride=().
    needs  2 whole numbers from 1 to 64, or one for all, or None
    means  Distance between neighbouring windows; by default the size of a window.

Linear(3, use_bias='yes')
UnknownOptionError: Linear cannot take use_bias='yes'.
    needs  True or False
    means  If true, add a bias.

Relu()(inputs='x')
UnknownOptionError: Relu has no port and no attribute 'inputs'.
    ports       input, output
    attributes  none

Linear(4)(use_bais=False)
UnknownOptionError: Linear has no port and no attribute 'use_bais'.
    ports       bias, input, output, weight
    attributes  dimension, use_bias, input_size

Linear(4, use_bias=False)(qqq='x')
UnknownOptionError: Linear has no port and no attribute 'qqq'.
    ports       input, output, weight
    attributes  dimension, use_bias, input_size

(Model() | Linear(4))(inputs='x')
UnknownOptionError: Model has no port and no attribute 'inputs'.
    ports       input, output
    attributes  none

Model()(input='x')
UnknownOptionError: Model has no port and no attribute 'input'.
    ports       none
    attributes  none

Relu()(input=object)
ConnectionError: cannot connect port 'input' of Relu to <class 'object'>.
    needs  a name, a connection, or a number

Relu()(input='')
ConnectionError: cannot connect port 'input' of Relu to ''.
    needs  a name, a connection, or a number

Linear(3)(dimension='x')
UnknownOptionError: Linear cannot take dimension='x'.
    needs  a whole number from 1 to 1048576, or None
    means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.

Model() + 3
UnknownOptionError: cannot add 3 to a model.
    needs  a block, or a block with connections

Model(name='')
UnknownOptionError: a model cannot be named ''.
    needs  a string, or None

Linear(3, name=5)
UnknownOptionError: a model cannot be named 5.
    needs  a string, or None

Shortened(3)
UnknownOptionError: Shortened.__init__ does not pass 'width' to super().__init__.
    because  Shortened is rebuilt from its attributes
    passed   depth

with_attributes(Linear(3), {'width': 4})
UnknownOptionError: Linear takes no argument 'width'.
    takes  dimension, use_bias, input_size

with_attributes(Model(), {'width': 4})
UnknownOptionError: Model has no attribute 'width'.
    attributes  none

with_attributes(Relu(), {'slope': 4})
UnknownOptionError: Relu has no attribute 'slope'.
    attributes  none

kind_named('Linaer')
UnknownBlockError: unknown kind of block 'Linaer'.
    known kinds     list(mithril_nb.models.KINDS)
    your own kinds  first define or import the class

kind_named('ReLU')
UnknownBlockError: unknown kind of block 'ReLU'.
    known kinds     list(mithril_nb.models.KINDS)
    your own kinds  first define or import the class

kind_named('Dense')
UnknownBlockError: unknown kind of block 'Dense'.
    known kinds     list(mithril_nb.models.KINDS)
    your own kinds  first define or import the class

kind_named('Qxyzzy')
UnknownBlockError: unknown kind of block 'Qxyzzy'.
    known kinds     list(mithril_nb.models.KINDS)
    your own kinds  first define or import the class

Blank.infer({}, {})
UnknownOpError: Blank has no shape rule.
    op  'blank'

(Model() | Linear(3)(output='logits')).set_shapes(logit=[2])
ConnectionError: the model has no connection 'logit'.
    names  logits, input, linear_0.output, linear_0.input, linear_0.weight, linear_0.bias

(Model() | Linear(3)(input='x', output='y')).rename_keys(y='x')
NameTakenError: cannot give 'linear_0.output' the name 'x': 'x' already has it.
    names  x, y

ml.compile((Model() | Linear(3)).set_shapes(input=[2, 4]), shapes={'input': [2, 5]})
ShapeError: 'input': declared shape does not match the inferred shape.
    declared  (2, 4)
    inferred  (2, 5) float32

ml.compile((Model() | Linear(3)).set_shapes({'linear_0.weight': [7, 3]}), shapes={'input': [2, 4]})
ShapeError: the parameter 'linear_0.weight': declared shape does not match the inferred shape.
    declared  (7, 3)
    inferred  (4, 3)

ml.compile((Model() | Linear(3)).set_types(output='float16'), shapes={'input': [2, 4]})
ShapeError: 'linear_0.output': declared dtype does not match the inferred dtype.
    declared  float16
    inferred  (2, 3) float32

ml.compile((Model() | Linear(3)).set_types({'linear_0.bias': 'float16'}), shapes={'input': [2, 4]})
ShapeError: the parameter 'linear_0.bias': declared dtype does not match the inferred dtype.
    declared  float16
    inferred  float32

ml.compile(Model() | Relu()(input=IOKey('x', shape=['n', 'n'])), shapes={'x': [2, 3]})
ShapeError: 'x': declared shape does not match the inferred shape.
    declared  ('n', 'n')
    inferred  (2, 3) float32

Relu()(output=3)
ConnectionError: cannot connect port 'output' of Relu to 3.
    needs  a name

linear().rename_keys(input=3)
ConnectionError: a connection cannot have the name 3.
    needs  a non-empty string

linear().rename_keys(input='')
ConnectionError: a connection cannot have the name ''.
    needs  a non-empty string

linear().rename_keys(input='enc.x')
ConnectionError: a connection cannot have the name 'enc.x': a dot separates a block from its port.
    needs  a name without dots

Model() | Linear(3)(input=IOKey('enc.x'))
ConnectionError: a connection cannot have the name 'enc.x': a dot separates a block from its port.
    needs  a name without dots

twice(IOKey('x', type='float32'), IOKey('x', type='int32'))
ConnectionError: IOKey('x') declares another type= than an earlier IOKey of this connection.
    before  type='float32'
    now     type='int32'

twice(IOKey('x', value=1.0), IOKey('x', value=2.0))
ConnectionError: IOKey('x') declares another value= than an earlier IOKey of this connection.
    before  value=1.0
    now     value=2.0

twice(IOKey('x', value=1.0, type='float16'), IOKey('x', value=1.0, type='float32'))
ConnectionError: IOKey('x') declares another type= than an earlier IOKey of this connection.
    before  type='float16'
    now     type='float32'

twice(IOKey('x', differentiable=True), IOKey('x', differentiable=False))
ConnectionError: IOKey('x') declares another differentiable= than an earlier IOKey of this connection.
    before  differentiable=True
    now     differentiable=False

linear().expose_keys(3)
ConnectionError: the model has no connection 3.
    names  input, output, linear_0.output, linear_0.input, linear_0.weight, linear_0.bias

linear().expose_keys('input')
ConnectionError: cannot expose 'input': it is an input of the model, not an output.
    outputs of blocks  'linear_0.output'

linear().expose_keys(y='input')
ConnectionError: cannot expose 'input': it is an input of the model, not an output.
    outputs of blocks  'linear_0.output'

linear().expose_keys('linear_0.weight')
ConnectionError: cannot expose 'linear_0.weight': it is a parameter of the model, not an output.
    outputs of blocks  'linear_0.output'

linear().expose_keys(**{'enc.y': 'output'})
ConnectionError: a connection cannot have the name 'enc.y': a dot separates a block from its port.
    needs  a name without dots

linear().set_shapes('input')
UnknownOptionError: set_shapes takes values by name, not 'input'.
    needs  a dict with string keys

linear().set_shapes({3: [2]})
UnknownOptionError: set_shapes takes values by name, not {3: [2]}.
    needs  a dict with string keys

linear().set_initializers({3: 'zeros'})
UnknownOptionError: set_initializers takes values by name, not {3: 'zeros'}.
    needs  a dict with string keys

Relu()(Linear(3).output)
ConnectionError: cannot connect Relu to Linear(...).output: no port of Relu is given.
    inputs   input
    outputs  output

linear()['outputt']
ConnectionError: Model has no connection 'outputt'.
    connections  output, input

shapes(chain(Linear(64), Linear(10, input_size=128)), input=('batch', 784))
ShapeError: cannot connect 'linear_0.output' to 'linear_1.input'.
    output  ('batch', 64) float32
    input   needs (..., 128)
    found   axis 1: 64 != 128

shapes(in_body(), input=('batch', 784))
ShapeError: cannot connect 'model_0/head.output' to 'model_0/linear_0.input'.
    output  ('batch', 64) float32
    input   needs (..., 128)
    found   axis 1: 64 != 128

shapes(several(), x=('n', 7))
ShapeError: cannot connect 'linear_0.output' to 'wrong.input'.
    output  ('n', 3) float32
    input   needs (..., 4)
    found   axis 1: 3 != 4
the input 'x' does not fit 'add_0.right'.
    x      ('n', 7) float32
    right  needs a shape that broadcasts with ('n', 3)
    found  axis -1: 3 != 7

shapes(Model() + Linear(4, name='a/b') + Linear(4, input_size=3, name='<b>.50%'), input=(2, 4))
ShapeError: cannot connect 'a%2Fb.output' to '<b>%2E50%25.input'.
    output  (2, 4) float32
    input   needs (..., 3)
    found   axis 1: 4 != 3

shapes(shared(), x=(2, 7))
ShapeError: the blocks 'linear_0' and 'linear_1' share 'w' in two shapes.
    linear_0.weight  (7, 4) float32
    linear_1.weight  (7, 5) float32

shapes(Linear(2), input=())
ShapeError: the input 'input' does not fit 'linear.input'.
    given  () float32
    input  needs at least one axis
    found  rank 0

shapes(Flatten(), input=())
ShapeError: the input 'input' does not fit 'flatten.input'.
    given  () float32
    input  needs at least one axis
    found  rank 0

shapes(LayerNorm(), input=())
ShapeError: the input 'input' does not fit 'layer_norm.input'.
    given  () float32
    input  needs at least one axis
    found  rank 0

shapes(read_by_two(), x=(2, 3))
ShapeError: the input 'x' does not fit 'linear_0.input'.
    x      (2, 3) int32
    input  needs floating-point numbers (float32)
    found  int32

shapes(Model(), input=(2, 3))
UnexpectedInputError: the model has no input 'input'.
    inputs  none

shapes(Linear(3), input='3, 4')
UnknownOptionError: '3, 4' is not a shape for input 'input'.
    needs  a list of sizes, or names of unknown sizes; '...' may only come first

shapes(Linear(3), input=['-1', '2.5'])
UnknownOptionError: ['-1', '2.5'] is not a shape for input 'input'.
    needs  a list of sizes, or names of unknown sizes; '...' may only come first

shapes(Linear(3), input=784)
UnknownOptionError: 784 is not a shape for input 'input'.
    needs  a list of sizes, or names of unknown sizes; '...' may only come first

shapes(Linear(3), input=(-1, 4))
UnknownOptionError: (-1, 4) is not a shape for input 'input'.
    needs  a list of sizes, or names of unknown sizes; '...' may only come first

shapes(Linear(3), input=(None, 4))
UnknownOptionError: (None, 4) is not a shape for input 'input'.
    needs  a list of sizes, or names of unknown sizes; '...' may only come first

shapes(Linear(3), input=(1, '...'))
UnknownOptionError: (1, '...') is not a shape for input 'input'.
    needs  a list of sizes, or names of unknown sizes; '...' may only come first

input_specs(several().graph, [32, 784])
UnknownOptionError: shapes must be given by name, in a dict.
    given   list
    inputs  'x'
"""


@pytest.mark.parametrize(("code", "facts"), read_transcript(CASES))
def test_refused(code: str, facts: str) -> None:
    assert facts_of(code, {**vars(models), **globals()}) == facts


@pytest.mark.parametrize(("name", "kind"), [("Linaer", "Linear"), ("ReLU", "Relu"), ("Dense", "Linear")])
def test_names_of_kinds_of_other_libraries_are_known(name: str, kind: str) -> None:
    with pytest.raises(UnknownBlockError, match=f'Try: kind="{kind}"'):
        kind_named(name)


def test_a_redefined_class_replaces_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mithril_nb.models.op.OPS", ops := {})
    monkeypatch.setattr("mithril_nb.models.op.KINDS", {})
    classes = [type("Swish", (Operator,), {"op": "swish", "__module__": "__main__"}) for _ in range(2)]
    assert ops == {"swish": classes[1]}
