"""Refused arguments of compiling and evaluating."""

from dataclasses import replace

import numpy as np
import pytest
from transcript import facts_of, read_transcript

import mithril_nb as ml
from mithril_nb.graph.edit import alone
from mithril_nb.graph.records import Edge, Endpoint, LogicalGraph, Node, Port
from mithril_nb.models import MLP, Add, Dropout, Embedding, Linear, Model, Multiply, Relu, Tanh  # noqa: F401 - used in CASES
from mithril_nb.models.shape_inference.infer import infer  # noqa: F401
from mithril_nb.program import Toolkit

X = np.ones((5, 4), "float32")
INPUTS = {"input": X}
UNFED = LogicalGraph((Node("r", Relu().block),), (Edge(Endpoint("r", "output"), Endpoint("", "y")),), (), (Port("y"),))
THREE = alone(Linear(3).block)


class OnlyRelu(ml.JaxBackend):
    """A backend with fewer kernels."""

    @property
    def toolkit(self) -> Toolkit:
        whole = super().toolkit
        return replace(whole, kernels={"relu": whole.kernels["relu"]})


# Not jitted: the checks are the same, and nothing is compiled.
mlp = ml.compile(MLP(None, [3], 2), shapes={"input": [5, 4]}, jit=False)
jitted = ml.compile(MLP(None, [3], 2), shapes={"input": [5, 4]})
params = mlp.randomize_params(0)
lookup = ml.compile(Embedding(3, 4), shapes={"input": [5]}, jit=False)
add = ml.compile(Add(), shapes={"left": [5, 4]}, jit=False)
relu = ml.compile(Model() | Relu()(input="x", output="y"), jit=False)
forgetful = Model() | Relu()(input="x", output="h") | Multiply()(left="h", output="y") | Tanh()(output="z")
unknown = ml.compile(Model() | Linear(3)(input="<x>"), jit=False)


def of(*blocks: Model, **shapes: list[int]) -> dict:
    model = Model()
    for block in blocks:
        model += block
    return ml.compile(model, shapes=shapes).randomize_params(0)


CASES = """
ml.compile(None)
UnknownOptionError: cannot compile None.
    needs  a model

ml.compile(Linear)
UnknownOptionError: cannot compile <class 'mithril_nb.models.library.layers.linear.Linear'>.
    needs  a model

ml.compile(Linear(3), "jax")
UnknownOptionError: cannot compile for 'jax'.
    needs  a backend that runs models

ml.compile(Linear(3), shape={"input": [1]})
UnknownOptionError: compile takes no argument 'shape'.
    takes  model, backend, shapes, jit, verbose, parallelism, jit_options, tpu_options, static_shapes, optimizations, constants, frozen, trainable

ml.compile(Linear(3), fast=True)
UnknownOptionError: compile takes no argument 'fast'.
    takes  model, backend, shapes, jit, verbose, parallelism, jit_options, tpu_options, static_shapes, optimizations, constants, frozen, trainable

ml.compile(UNFED)
UnconnectedPortError: the input 'r.input' is not connected.

ml.compile(Linear(3, input_size=5), shapes={"input": [2, 4]})
ShapeError: the input 'input' does not fit 'linear.input'.
    given  (2, 4) float32
    input  needs (..., 5)
    found  axis 1: 4 != 5

ml.compile(Linear(3), shapes={"input": [2, None]})
UnknownOptionError: [2, None] is not a shape for input 'input'.
    needs  a list of sizes, or names of unknown sizes; '...' may only come first

ml.compile(Linear(3), shapes=[32, 784])
UnknownOptionError: shapes must be given by name, in a dict.
    given   list
    inputs  'input'

ml.compile(Linear(3), shapes={"x": [1, 2]})
UnexpectedInputError: the model has no input 'x'.
    inputs  'input'

unknown.randomize_params()
ShapeError: the shape of 'linear_0.weight' is unknown.
    so far  ('input_size', 3) float32
    input   '<x>' ('...',) float32

mlp.randomize_params("a")
UnknownOptionError: cannot use 'a' as a seed.
    needs  an integer

mlp.randomize_params(1.5)
UnknownOptionError: cannot use 1.5 as a seed.
    needs  an integer

ml.compile(Relu(), jit="no")
UnknownOptionError: jit='no' must be a bool.
    needs  True or False

unknown.inspect()
ShapeError: the shape of input '<x>' is not concrete.
    so far  ('...',) float32

ml.PhysicalModel(THREE, OnlyRelu(), infer(THREE, {}), False)
UnknownOpError: backend 'jax' has no kernel for op 'linear' (block 'linear').
    has  relu (1 ops)

mlp.inspect("train")
UnknownOptionError: unknown program 'train'.
    known  forward, forward+backward

mlp.evaluate({}, INPUTS)
MissingParameterError: the model needs 4 parameters, got 0.
    missing  'linear_0.weight', 'linear_0.bias', 'linear_1.weight', 'linear_1.bias'
    given    none

mlp.evaluate({name: array for name, array in params.items() if "bias" not in name}, INPUTS)
MissingParameterError: the model needs 4 parameters, got 2.
    missing  'linear_0.bias', 'linear_1.bias'
    given    'linear_0.weight', 'linear_1.weight'

mlp.evaluate({**params, "linear_2.weight": X, "q": X}, INPUTS)
UnexpectedInputError: the model has no parameter 'linear_2.weight'.
    unknown     'linear_2.weight', 'q'
    parameters  'linear_0.weight', 'linear_0.bias', 'linear_1.weight', 'linear_1.bias'

mlp.evaluate(of(MLP(4, [3, 3], 2)), INPUTS)
MissingParameterError: the model needs 4 parameters, got 6.
    missing  'linear_0.weight', 'linear_0.bias', 'linear_1.weight', 'linear_1.bias'
    given    'mlp_0.linear_0.weight', 'mlp_0.linear_0.bias', 'mlp_0.linear_1.weight', 'mlp_0.linear_1.bias', 'mlp_0.linear_2.weight', 'mlp_0.linear_2.bias'

mlp.evaluate(of(Linear(3), Relu(), Linear(2), input=[5, 6]), INPUTS)
ShapeError: the shape of parameter 'linear_0.weight' does not match the model.
    given          (6, 3)
    needed         (4, 3)
    input 'input'  (5, 4), compiled for (5, 4) float32

mlp.evaluate(X, INPUTS)
UnknownOptionError: params must be given by name, in a dict.
    given  an array of shape (5, 4)

mlp.evaluate(None, INPUTS)
UnknownOptionError: params must be given by name, in a dict.
    given  NoneType

mlp.evaluate({**params, "linear_0": {"bias": X[0]}}, INPUTS)
UnexpectedInputError: the parameter 'linear_0.bias' is given twice, once nested and once with dots.

mlp.evaluate(params, {})
MissingInputError: the model needs 1 input, got 0.
    missing  'input' (5, 4) float32
    given    none

ml.compile(forgetful, jit=False).evaluate({}, {"x": X})
MissingInputError: the model needs 3 inputs, got 1.
    missing  'input' (multiply_0.right) ('...',) float32, 'tanh_0_input' (tanh_0.input) ('...',) float32
    given    'x'

add.evaluate({}, {"left": X})
MissingInputError: the model needs 2 inputs, got 1.
    missing  'right' ('...',) float32
    given    'left'

mlp.evaluate(params, {"image": X})
UnexpectedInputError: the model has no input 'image'.
    inputs  'input'

mlp.evaluate(params, {"input": X, "mask": X})
UnexpectedInputError: the model has no input 'mask'.
    inputs  'input'

relu.evaluate({}, {"input": X, "x": X})
UnexpectedInputError: the input 'x' is given twice: 'input' and 'x' are names of the same input.

add.evaluate({}, {"input": X})
UnexpectedInputError: the model has no input 'input'.
    inputs  'left', 'right'

mlp.evaluate(params, X)
UnknownOptionError: inputs must be given by name, in a dict.
    given   an array of shape (5, 4)
    inputs  'input'

mlp.evaluate(params, {"input": X[:, :3]})
ShapeError: the shape of parameter 'linear_0.weight' does not match the model.
    given          (4, 3)
    needed         (3, 3)
    input 'input'  (5, 3), compiled for (5, 4) float32

mlp.evaluate(params, {"input": X[0, 0]})
ShapeError: the input 'input' does not fit 'linear_0.input'.
    given  () float32
    input  needs at least one axis
    found  rank 0

add.evaluate({}, {"left": X, "right": X[:2]})
ShapeError: the input 'right' does not fit 'add.right'.
    given  (2, 4) float32
    right  needs a shape that broadcasts with (5, 4)
    found  axis -2: 5 != 2

lookup.evaluate(lookup.randomize_params(0), {"input": X[0]})
ShapeError: the input 'input' does not fit 'embedding.input'.
    given  (4,) float32
    input  needs whole numbers (int32)
    found  float32

relu.evaluate({}, {"x": X + 1j})
ShapeError: the input 'x' does not fit 'relu_0.input'.
    x      (5, 4) complex64
    input  needs floating-point numbers (float32)
    found  complex64

mlp.evaluate(params, INPUTS, {"loss": X})
UnexpectedInputError: the model has no output 'loss'.
    outputs  'output'

mlp.evaluate(params, INPUTS, {"output": X})
ShapeError: the gradient of output 'output' does not have the shape of the output.
    output    (5, 2)
    gradient  (5, 4)

mlp.evaluate(params, INPUTS, X)
UnknownOptionError: output_gradients must be given by name, in a dict.
    given    an array of shape (5, 4)
    outputs  'output'

ml.compile(Dropout(0.5)).forward({}, INPUTS, training=True)
MissingInputError: this model draws random numbers but receives no key.
    blocks  dropout

mlp.evaluate(params, {"input": None})
UnknownOptionError: input 'input' is not an array of numbers.
    given  None

jitted.evaluate(params, {"input": None})
UnknownOptionError: input 'input' is not an array of numbers.
    given  None

mlp.evaluate(params, {"input": [[1.0, 2.0], [3.0]]})
UnknownOptionError: input 'input' is not an array of numbers.
    given  [[1.0, 2.0], [3.0]]

jitted.evaluate(params, {"input": [[1.0, 2.0], [3.0]]})
UnknownOptionError: input 'input' is not an array of numbers.
    given  [[JitTracer(~float32[]), JitTracer(~float32[])], [JitTracer(~float32[])]]

mlp.evaluate(params, {"input": np.array(["a"])})
UnknownOptionError: input 'input' is not an array of numbers.
    given  array(['a'], dtype='<U1')

mlp.evaluate(params, {1: X, "input": X})
UnexpectedInputError: the model has no input 1.
    inputs  'input'

jitted.evaluate(params, 3)
UnknownOptionError: inputs must be given by name, in a dict.
    given   an array of shape ()
    inputs  'input'

mlp.evaluate({**params, "linear_0.bias": None}, INPUTS)
UnknownOptionError: parameter 'linear_0.bias' is not an array of numbers.
    given  None

jitted.evaluate(params, INPUTS, {"output": [[1.0], [1.0, 2.0]]})
UnknownOptionError: the gradient of output 'output' is not an array of numbers.
    given  [[JitTracer(~float32[])], [JitTracer(~float32[]), JitTracer(~float32[])]]
"""  # noqa: E501


@pytest.mark.parametrize(("code", "message"), read_transcript(CASES))
def test_message(code, message):
    assert facts_of(code, globals()) == message
