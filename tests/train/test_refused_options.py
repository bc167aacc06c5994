"""Refused data and options of `fit`: all problems at once, before anything is compiled."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp  # noqa: F401 - used in CASES
import numpy as np
import pytest
from transcript import facts_of, read_transcript

from mithril_nb.errors import DataError, UnknownOptionError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import Add, Embedding, Flatten, IOKey, Linear, Model  # noqa: F401
from mithril_nb.train import fit, programs  # noqa: F401
from mithril_nb.train.checkpoints.saver import Checkpoints  # noqa: F401
from mithril_nb.train.optimizers import resolve_optimizer  # noqa: F401
from tests.train.conftest import PlainMLP

X, Y = np.ones((6, 4), "float32"), np.array([0, 1, 2, 0, 1, 2])
NAN, INF = X.copy(), np.full((6, 4), 1e300)
NAN[2, 1] = NAN[4, 3] = np.nan
TOKENS = Model() + (Model(name="in") + Embedding(5, 4)) + Linear(3)
LOOKUP = Model() + (Model(name="in") + Embedding(5, 4)) + Flatten() + Linear(3)
small = PlainMLP(4, 8, 3)
TWO = Model() | Linear(4)(input="x", output=IOKey("first")) | Linear(3)(input="x", output=IOKey("logits"))


class Tokens:
    """A model with two integer inputs."""

    input_names = ("tokens", "mask")
    output_names = ("output", "other")
    needs_key = False

    def __init__(self) -> None:
        self.input_specs = {"tokens": TensorSpec(("batch", "time"), "int32"), "mask": TensorSpec(("...", "time"))}

    def forward(self, params: Any, inputs: Any, *, key: Any = None, training: bool = False) -> dict[str, Any]:
        return {"output": inputs["mask"] * params["weight"], "other": inputs["mask"]}

    def randomize_params(self, seed: int | None = None) -> dict[str, Any]:
        return {"weight": np.float32(1)}


class TorchLike:
    """Constructed from params, like torch's optimizers."""

    def __init__(self, params: Any, lr: float = 1e-3):
        self.params = list(params)


CASES = """
fit(small, X, batch_size=3)
DataError: data is not a pair of inputs and targets.
    got     ndarray of shape (6, 4)
    needed  (x, y), (x, y, weights), or ({input name: array, ...}, y)

fit(small, (X,), batch_size=3)
DataError: data is not a pair of inputs and targets.
    got     tuple of length 1
    needed  (x, y), (x, y, weights), or ({input name: array, ...}, y)

fit(small, ({'image': X, 'mask': X}, Y), batch_size=3)
DataError: data does not have the model's inputs.
    needed  'input'
    given   'image', 'mask'

fit(small, (X[:0], Y[:0]), batch_size=3)
DataError: data is empty: 0 samples.

fit(small, (np.array([['a'] * 4] * 6), Y), batch_size=3)
DataError: data: input 'input' is not numeric.
    dtype  <U1
    first  np.str_('a')

fit(small, ([[1.0], [1.0, 2.0]], [0, 1]), batch_size=3)
DataError: data: input 'input' is not an array: its rows have different lengths.

fit(small, ([np.ones((3, 8)), np.ones((5, 8))], [0, 1]), batch_size=3)
DataError: data: input 'input' is not an array: its rows have different lengths.

fit(small, (X[:2], [[[1, 2], [3]], [[1], [2]]]), batch_size=3)
DataError: data: targets is not an array: its rows have different lengths.

fit(small, ([jnp.ones(3), jnp.ones(())], [0, 1]), batch_size=3)
DataError: data: input 'input' is not an array: its rows have different lengths.

fit(small, (X, 3), batch_size=3)
DataError: data: targets is one number, not an array of samples.
    got  3

fit(small, (NAN, Y), batch_size=3)
DataError: data: input 'input' holds NaN or infinity.
    count  2 of 24
    first  [2, 1] is nan

fit(small, (INF, Y), batch_size=3)
DataError: data: input 'input' holds NaN or infinity.
    count  24 of 24
    first  [0, 0] is 1e+300

fit(small, (X.reshape(6, 2, 2), np.array([0, 1, np.nan, 0, 1, 2])), batch_size=3)
DataError: data: input 'input' does not have the shape of the model's input.
    data   (6, 2, 2) float32
    model  ('batch', 4) float32
data: targets holds NaN or infinity.
    count  1 of 6
    first  [2] is nan

fit(small, (X, Y - 1), batch_size=3)
DataError: data: labels are out of range for an output of width 3.
    labels  from -1 to 1
    needed  from 0 to 2
    first   [0] is -1, 2 in all

fit(small, (X, np.array([-1, 0, 1, 2, 4, 4])), batch_size=3)
DataError: data: labels are out of range for an output of width 3.
    labels  from -1 to 4
    needed  from 0 to 2
    first   [0] is -1, 3 in all

fit(small, (X, Y[:, None, None]), batch_size=3)
DataError: data: the shape of the labels does not match the output.
    targets  (6, 1, 1) int64
    output   'output' (3, 3) float32
    needed   labels of shape ('samples',)

fit(small, (X, Y), batch_size=7)
DataError: batch_size is larger than the data: 7 > 6 samples.

fit(small, (X, Y), batch_size=0)
UnknownOptionError: batch_size must be an integer of at least 1.
    got  0

fit(small, (X, Y), seed='a', batch_size=3)
UnknownOptionError: cannot use 'a' as a seed.
    needs  an integer

fit(small, (X, Y), seed=1.5, batch_size=3)
UnknownOptionError: cannot use 1.5 as a seed.
    needs  an integer

fit(small, (X, Y), epochs=0.5, batch_size=3)
UnknownOptionError: epochs must be an integer of at least 1.
    got  0.5

fit(small, (X, Y), loss=3, batch_size=3)
UnknownOptionError: loss must be a name or a function, not 3.
    known  cross_entropy, mean_squared_error, binary_cross_entropy

fit(small, (X, Y), optimizer=3, batch_size=3)
UnknownOptionError: optimizer must be a name, an optax factory or an optax transformation, not 3.
    known  adam, adamw, sgd, rmsprop, lion, adagrad, adabelief, nadam, nadamw, adamax, radam, lamb, lars, yogi, adan

fit(small, (X, Y), optimizer=lambda rate: rate, batch_size=3)
UnknownOptionError: '<lambda>' does not return an optimizer for a learning rate.
    needed  a value with init(params) and update(grads, state, params)
    got     float

fit(small, (X, Y), loss=lambda prediction, targets, third: prediction.mean(), batch_size=3)
UnknownOptionError: loss '<lambda>' must be a function of prediction and targets.
    takes  (prediction, targets, third)

fit(small, (X, Y), optimizer=TorchLike, batch_size=3)
UnknownOptionError: 'TorchLike' does not return an optimizer for a learning rate.
    needed   a value with init(params) and update(grads, state, params)
    because  TypeError: 'float' object is not iterable

fit(small, (X, Y), optimizer=type, batch_size=3)
UnknownOptionError: 'type' does not return an optimizer for a learning rate.
    needed  a value with init(params) and update(grads, state, params)
    got     type

fit(small, (X, Y), learning_rate=lambda step: 'a', batch_size=3)
UnknownOptionError: learning_rate= is a function but not a schedule.
    needed  a function of the step count that returns a finite number of at least 0
    got     'a' at step 0

fit(small, (X, Y), learning_rate=lambda: 0.1, batch_size=3)
UnknownOptionError: learning_rate= is a function but not a schedule.
    needed  a function of the step count that returns a finite number of at least 0
    takes   ()

fit(small, (X, Y), learning_rate=-1, batch_size=3)
UnknownOptionError: the learning rate must be a finite number of at least 0.
    got  -1

fit(small, (X, Y), optimizer=resolve_optimizer('sgd'), learning_rate=0.5, batch_size=3)
UnknownOptionError: learning_rate= has no effect: the optimizer is a transformation that contains its own rate.
    optimizer      Optimizer
    learning_rate  0.5

fit(small, (X, Y), metrics=3, batch_size=3)
UnknownOptionError: metrics must be a sequence of names.
    got  3

fit(small, (X, Y), params=3, batch_size=3)
UnknownOptionError: params must be a dict of arrays by name.
    got  3

fit(small, (X, Y), params={'linear_0.weight': np.array(['one'])}, batch_size=3)
UnknownOptionError: params['linear_0.weight'] is not an array of numbers.
    got  array(['one'], dtype='<U3')

fit(small, (X, Y), shuffle='no', batch_size=3)
UnknownOptionError: shuffle='no' must be a bool.
    needs  True or False

fit(small, (X, Y), resume='yes', checkpoint='runs', batch_size=3)
UnknownOptionError: resume='yes' must be a bool.
    needs  True or False

fit(small, (X, Y), checkpoint='', batch_size=3)
UnknownOptionError: folder must be a path.
    got  ''

fit(small, (X, Y), metrics='top5', loss=lambda prediction, targets: prediction.mean(), batch_size=3)
UnknownOptionError: unknown metric 'top5'.
    known  accuracy, f1, auc, r2, confusion, perplexity, top_3

fit(small, (X, Y), validation=1.5, batch_size=3)
UnknownOptionError: validation must be a fraction that leaves samples for both training and validation.
    got      1.5
    samples  6

fit(small, (X, Y), batch_size=3, loss=lambda prediction, targets: (0.5, 1))
UnknownOptionError: loss '<lambda>' does not return floats, so training cannot minimize it.
    got     (0.5, 1)
    needed  one float, or an array of floats whose first axis is the batch

fit(small, (X, Y), batch_size=3, loss=lambda prediction, targets: None)
UnknownOptionError: loss '<lambda>' does not return floats, so training cannot minimize it.
    got     None
    needed  one float, or an array of floats whose first axis is the batch

fit(small, (X, Y), batch_size=3, loss=lambda prediction, targets: 'low')
UnknownOptionError: loss '<lambda>' does not return floats, so training cannot minimize it.
    got     'low'
    needed  one float, or an array of floats whose first axis is the batch

fit(small, (X, Y), batch_size=3, loss=lambda prediction, targets: np.arange(3, dtype='int32'))
UnknownOptionError: loss '<lambda>' does not return floats, so training cannot minimize it.
    got     int32 of shape (3,)
    needed  one float, or an array of floats whose first axis is the batch

fit(TOKENS, (np.zeros((6, 2, 2), int), np.zeros((6, 4), int)), batch_size=3)
DataError: data: the shape of the labels does not match the output.
    targets  (6, 4) int64
    output   'output' (3, 2, 2, 3) float32
    needed   labels of shape ('samples', 2, 2)

fit(TOKENS, (np.zeros((6, 2, 2), int), Y), batch_size=3)
DataError: data: the shape of the labels does not match the output.
    targets  (6,) int64
    output   'output' (3, 2, 2, 3) float32
    needed   labels of shape ('samples', 2, 2)

fit(small, (X, Y), validation=X, batch_size=3)
DataError: validation data is not a pair of inputs and targets.
    got     ndarray of shape (6, 4)
    needed  (x, y), (x, y, weights), or ({input name: array, ...}, y)

fit(Add(), (X, Y), batch_size=3)
DataError: data has one array of inputs, the model has 2 inputs.
    inputs  'left', 'right'

fit(Add(), ({'left': X}, Y), batch_size=3)
DataError: data does not have the model's inputs.
    needed  'left', 'right'
    given   'left'

fit('not a model', ({}, Y))
DataError: data is empty: 0 samples.

fit(small, (X, Y), validation=(X, Y[:4]), batch_size=3)
DataError: validation data has inputs and targets of different lengths.
    input 'input'  6 samples
    targets        4 samples

fit(PlainMLP(4, 2), (X, Y), loss='mean_squared_error', batch_size=3)
DataError: data: the targets and the output differ in shape; loss 'mean_squared_error' compares them elementwise.
    targets  (6,) int64
    output   'output' (3, 2) float32

fit(PlainMLP(4, 1), (X, Y), loss='binary_cross_entropy', batch_size=3)
DataError: data: the targets are not between 0 and 1; loss 'binary_cross_entropy' expects probabilities.
    targets  from 0 to 2

fit(Tokens(), (X, Y), batch_size=3)
DataError: data has one array of inputs, the model has 2 inputs.
    inputs  'tokens', 'mask'

fit(Tokens(), ({'tokens': X + 0.5, 'mask': X}, Y), batch_size=3)
DataError: data: input 'tokens' has fractions, but the model expects integers.
    data   (6, 4) float32
    model  ('batch', 'time') int32

fit(Tokens(), ({'tokens': X, 'mask': X}, Y), batch_size=3)
DataError: loss 'cross_entropy' takes one output and one array of targets.
    outputs  'output', 'other'
    targets  (6,) int64

fit(Tokens(), ({'tokens': X, 'mask': X}, {'output': Y, 'other': Y}), batch_size=3)
DataError: loss 'cross_entropy' takes one output and one array of targets.
    outputs  'output', 'other'
    targets  'output', 'other'

fit(Linear(3), (X, {'output': Y, 'other': Y}), batch_size=3)
DataError: loss 'cross_entropy' takes one output and one array of targets.
    outputs  'output'
    targets  'output', 'other'

fit(Tokens(), ({'tokens': X, 'mask': X}, {'output': Y, 'other': Y}), output='other', batch_size=3)
DataError: loss 'cross_entropy' takes one output and one array of targets.
    outputs  'output', 'other'
    targets  'output', 'other'

programs(Tokens())
ShapeError: input 'tokens' has unknown dims.
    spec  ('batch', 'time') int32

setattr(fit(small, (X, Y), batch_size=3), 'learning_rate', float('nan'))
UnknownOptionError: the learning rate must be a finite number of at least 0.
    got  nan

fit(LOOKUP, (np.arange(12).reshape(6, 2), Y), batch_size=3)
DataError: data: input 'input' has indices out of range for the block that reads it.
    data    from 0 to 11
    needed  from 0 to 4
    first   [2, 1] is 5, 7 in all

fit(LOOKUP, (np.arange(12).reshape(6, 2) % 5 - 1, Y), batch_size=3)
DataError: data: input 'input' has indices out of range for the block that reads it.
    data    from -1 to 3
    needed  from 0 to 4
    first   [0, 0] is -1, 3 in all

fit(LOOKUP, (np.array([[2], [2**32 + 2], [0], [1], [2], [2**31]]), Y), batch_size=3)
DataError: data: input 'input' has numbers outside the range of int32, the dtype of the model's input.
    data   (6, 1) int64, from 0 to 4294967298
    first  [1, 0] is 4294967298

fit(TWO, (X, Y), batch_size=3, output='logit')
UnknownOptionError: the model has no output 'logit'.
    outputs  'first', 'logits'

fit(TWO, (X, Y), batch_size=3, output=3)
UnknownOptionError: the model has no output 3.
    outputs  'first', 'logits'

fit(TWO, (X, Y), batch_size=3, output=['logits'])
UnknownOptionError: the model has no output ['logits'].
    outputs  'first', 'logits'

fit(TWO, (X, Y), batch_size=3, output='')
UnknownOptionError: the model has no output ''.
    outputs  'first', 'logits'

fit('mlp', (np.zeros((4, 2)), np.zeros(4, int)))
UnknownOptionError: cannot train a value of type 'str'.
    lacks  forward, randomize_params, input_names

Checkpoints('')
UnknownOptionError: folder must be a path.
    got  ''

Checkpoints(3)
UnknownOptionError: folder must be a path.
    got  3

Checkpoints('a', 1, 0)
UnknownOptionError: every_epoch must be an integer of at least 1.
    got  0

Checkpoints('a', 1, 1, True)
UnknownOptionError: keep must be an integer of at least 1.
    got  True

Checkpoints('a', float('nan'))
UnknownOptionError: every_s must be a positive number of seconds.
    got  nan
"""


@pytest.mark.parametrize(("code", "facts"), read_transcript(CASES))
def test_refused(code: str, facts: str) -> None:
    assert facts_of(code, globals()) == facts


def test_loss_may_return_a_python_number() -> None:
    run = fit(small, (X, Y), loss=lambda prediction, targets: 0.5, batch_size=3, epochs=1).wait()
    assert run.history["loss"][0] == 0.5


def test_refused_rate_changes_nothing() -> None:
    run = fit(small, (X, Y), batch_size=3)
    with pytest.raises(UnknownOptionError):
        run.learning_rate = float("nan")
    assert run.learning_rate == 1e-3


def test_refused_data_runs_no_model_code() -> None:
    model = PlainMLP(4, 8, 3)
    with pytest.raises(DataError) as caught:
        fit(model, (NAN, Y), batch_size=3)
    assert caught.value.diagnostics[0].code == "DataError"
    assert model.traces == 0


def test_indices_in_the_range_of_an_embedding_are_accepted() -> None:
    assert fit(LOOKUP, (np.arange(12).reshape(6, 2) % 5, Y), batch_size=3).state == "idle"
