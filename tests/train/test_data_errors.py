"""Full messages for bad data and options: all problems at once, before anything is compiled."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from transcript import facts_of, without_advice

from mithril_nb.errors import DataError, MithrilError, UnknownOptionError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import Add, Embedding, Flatten, Linear, Model
from mithril_nb.train import fit, programs
from mithril_nb.train.optimizers import resolve_optimizer

X = np.ones((6, 4), np.float32)
Y = np.array([0, 1, 2, 0, 1, 2])
NAN = X.copy()
NAN[2, 1] = NAN[4, 3] = np.nan
INF = np.full((6, 4), 1e300)

DATA = {
    "no pair": (
        X,
        "data is not a pair of inputs and targets.\n"
        "    got     ndarray of shape (6, 4)\n"
        "    needed  (x, y), or ({input name: array, ...}, y)\n",
    ),
    "one value": (
        (X,),
        "data is not a pair of inputs and targets.\n"
        "    got     tuple of length 1\n"
        "    needed  (x, y), or ({input name: array, ...}, y)\n",
    ),
    "wrong names": (
        ({"image": X, "mask": X}, Y),
        "data does not have the model's inputs.\n    needed  'input'\n    given   'image', 'mask'\n",
    ),
    "empty": (
        (X[:0], Y[:0]),
        "data is empty: 0 samples.",
    ),
    "lengths": (
        (X, Y[:5]),
        "data has inputs and targets of different lengths.\n"
        "    input 'input'  6 samples\n    targets        5 samples\n",
    ),
    "text": (
        (np.array([["a"] * 4] * 6), Y),
        "data: input 'input' is not numeric.\n    dtype  <U1\n    first  np.str_('a')\n",
    ),
    "ragged": (
        ([[1.0], [1.0, 2.0]], [0, 1]),
        "data: input 'input' is not an array: its rows have different lengths.\n",
    ),
    "ragged sequences of vectors": (
        ([np.ones((3, 8)), np.ones((5, 8))], [0, 1]),
        "data: input 'input' is not an array: its rows have different lengths.\n",
    ),
    "ragged lists in rows": (
        (X[:2], [[[1, 2], [3]], [[1], [2]]]),
        "data: targets is not an array: its rows have different lengths.\n",
    ),
    "a number among rows": (
        ([jnp.ones(3), jnp.ones(())], [0, 1]),
        "data: input 'input' is not an array: its rows have different lengths.\n",
    ),
    "scalar": ((X, 3), "data: targets is one number, not an array of samples.\n    got  3"),
    "NaN": (
        (NAN, Y),
        "data: input 'input' holds NaN or infinity.\n    count  2 of 24\n    first  [2, 1] is nan\n",
    ),
    "too large for float32": (
        (INF, Y),
        "data: input 'input' holds NaN or infinity.\n    count  24 of 24\n    first  [0, 0] is 1e+300\n",
    ),
    "width": (
        (X[:, :3], Y),
        "data: input 'input' does not have the shape of the model's input.\n"
        "    data   (6, 3) float32\n    model  ('batch', 4) float32\n",
    ),
    "shape and NaN at once": (
        (X.reshape(6, 2, 2), np.array([0, 1, np.nan, 0, 1, 2])),
        "data: input 'input' does not have the shape of the model's input.\n"
        "    data   (6, 2, 2) float32\n    model  ('batch', 4) float32\n"
        "\n"
        "data: targets holds NaN or infinity.\n    count  1 of 6\n    first  [2] is nan\n",
    ),
    "labels too large": (
        (X, Y + 1),
        "data: labels are out of range for an output of width 3.\n"
        "    labels  from 1 to 3\n    needed  from 0 to 2\n    first   [2] is 3, 2 in all\n",
    ),
    "labels negative": (
        (X, Y - 1),
        "data: labels are out of range for an output of width 3.\n"
        "    labels  from -1 to 1\n    needed  from 0 to 2\n    first   [0] is -1, 2 in all\n",
    ),
    "labels negative, and too many": (
        (X, np.array([-1, 0, 1, 2, 4, 4])),
        "data: labels are out of range for an output of width 3.\n"
        "    labels  from -1 to 4\n    needed  from 0 to 2\n    first   [0] is -1, 3 in all\n",
    ),
    "labels as floats": (
        (X, Y.astype(float)),
        "data: the labels are not integers; loss 'cross_entropy' expects class labels.\n"
        "    targets  (6,) float64\n    output   'output' (3, 3) float32\n    first    0.0\n",
    ),
    "one-hot": (
        (X, np.eye(3)[Y]),
        "data: the targets look one-hot; loss 'cross_entropy' expects class labels.\n"
        "    targets  (6, 3) float64\n    output   'output' (3, 3) float32\n",
    ),
    "labels of another rank": (
        (X, Y[:, None, None]),
        "data: the shape of the labels does not match the output.\n"
        "    targets  (6, 1, 1) int64\n    output   'output' (3, 3) float32\n"
        "    needed   labels of shape ('samples',)",
    ),
}


@pytest.mark.parametrize("case", DATA)
def test_bad_data(small: Any, case: str) -> None:
    data, text = DATA[case]
    with pytest.raises(DataError) as caught:
        fit(small, data, batch_size=3)
    assert without_advice(str(caught.value)) == without_advice(text)
    assert all(problem.code == "DataError" for problem in caught.value.diagnostics)


def test_labels_of_another_shape_for_an_output_of_tokens() -> None:
    tokens = Model() + (Model(name="in") + Embedding(5, 4)) + Linear(3)
    for labels in (np.zeros((6, 4), int), Y):
        with pytest.raises(DataError) as caught:
            fit(tokens, (np.zeros((6, 2, 2), int), labels), batch_size=3)
        assert without_advice(str(caught.value)) == (
            f"data: the shape of the labels does not match the output.\n    targets  {labels.shape} int64\n"
            f"    output   'output' (3, 2, 2, 3) float32\n    needed   labels of shape ('samples', 2, 2)"
        )


def test_validation_without_targets_reports_the_form(small: Any) -> None:
    assert facts_of(lambda: fit(small, (X, Y), validation=X, batch_size=3)) == (
        "DataError: validation data is not a pair of inputs and targets.\n"
        "    got     ndarray of shape (6, 4)\n"
        "    needed  (x, y), or ({input name: array, ...}, y)"
    )


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (X, "data has one array of inputs, the model has 2 inputs.\n    inputs  'left', 'right'"),
        ({"left": X}, "data does not have the model's inputs.\n    needed  'left', 'right'\n    given   'left'"),
    ],
)
def test_uncompiled_model_reports_its_inputs(inputs: Any, text: str) -> None:
    assert facts_of(lambda: fit(Add(), (inputs, Y), batch_size=3)) == (f"DataError: {text}")


def test_data_without_inputs_is_empty() -> None:
    assert facts_of(lambda: fit("not a model", ({}, Y))) == ("DataError: data is empty: 0 samples.")


def test_bad_validation_data_is_reported(small: Any) -> None:
    with pytest.raises(DataError) as caught:
        fit(small, (X, Y), validation=(X, Y[:4]), batch_size=3)
    assert str(caught.value).startswith("validation data has inputs and targets of different lengths.\n")


def test_targets_of_regression_and_of_two_classes(mlp: Any) -> None:
    assert facts_of(lambda: fit(mlp(4, 2), (X, Y), loss="mean_squared_error", batch_size=3)) == (
        "DataError: data: the targets and the output differ in shape; "
        "loss 'mean_squared_error' compares them elementwise.\n"
        "    targets  (6,) int64\n    output   'output' (3, 2) float32"
    )
    assert facts_of(lambda: fit(mlp(4, 1), (X, Y), loss="binary_cross_entropy", batch_size=3)) == (
        "DataError: data: the targets are not between 0 and 1; loss 'binary_cross_entropy' expects probabilities.\n"
        "    targets  from 0 to 2"
    )


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


def test_many_inputs() -> None:
    assert facts_of(lambda: fit(Tokens(), (X, Y), batch_size=3)) == (
        "DataError: data has one array of inputs, the model has 2 inputs.\n    inputs  'tokens', 'mask'"
    )
    assert facts_of(lambda: fit(Tokens(), ({"tokens": X + 0.5, "mask": X}, Y), batch_size=3)) == (
        "DataError: data: input 'tokens' has fractions, but the model expects integers.\n"
        "    data   (6, 4) float32\n    model  ('batch', 'time') int32"
    )
    assert facts_of(lambda: fit(Tokens(), ({"tokens": X, "mask": X}, Y), batch_size=3)) == (
        "DataError: loss 'cross_entropy' takes one output and one array of targets.\n"
        "    outputs  'output', 'other'\n    targets  (6,) int64"
    )
    for model, inputs, output, outputs in (
        (Tokens(), {"tokens": X, "mask": X}, None, "'output', 'other'"),
        (Linear(3), X, None, "'output'"),
        (Tokens(), {"tokens": X, "mask": X}, "other", "'output', 'other'"),
    ):
        call = partial(fit, model, (inputs, {"output": Y, "other": Y}), output=output, batch_size=3)
        assert facts_of(call) == (
            "DataError: loss 'cross_entropy' takes one output and one array of targets.\n"
            f"    outputs  {outputs}\n    targets  'output', 'other'"
        )
    assert facts_of(lambda: programs(Tokens())) == (
        "ShapeError: input 'tokens' has unknown dims.\n    spec  ('batch', 'time') int32"
    )


class TorchLike:
    """Constructed from params, like torch's optimizers."""

    def __init__(self, params: Any, lr: float = 1e-3):
        self.params = list(params)


OPTIMIZERS = "adam, adamw, sgd, rmsprop, lion, adagrad, adabelief, nadam, nadamw, adamax, radam, lamb, lars, yogi, adan"
OPTIONS = {
    "batch too large": (
        {"batch_size": 7},
        "batch_size is larger than the data: 7 > 6 samples.",
    ),
    "no batch": ({"batch_size": 0}, "batch_size must be an integer of at least 1.\n    got  0"),
    "an option that is nearly one": (
        {"epoch": 3},
        "fit takes no argument 'epoch'.\n"
        "    takes  model, data, loss, output, optimizer, learning_rate, epochs, batch_size, validation, params, seed, "
        "metrics, shuffle, backend, checkpoint, resume, model_state\n",
    ),
    "a word for a seed": ({"seed": "a"}, "cannot use 'a' as a seed.\n    needs  an integer"),
    "a fraction for a seed": ({"seed": 1.5}, "cannot use 1.5 as a seed.\n    needs  an integer"),
    "half an epoch": ({"epochs": 0.5}, "epochs must be an integer of at least 1.\n    got  0.5"),
    "loss": (
        {"loss": "cros_entropy"},
        "unknown loss 'cros_entropy'.\n    known  cross_entropy, mean_squared_error, binary_cross_entropy\n",
    ),
    "an invalid loss": (
        {"loss": 3},
        "loss must be a name or a function, not 3.\n"
        "    known  cross_entropy, mean_squared_error, binary_cross_entropy\n",
    ),
    "optimizer": (
        {"optimizer": "adams"},
        f"unknown optimizer 'adams'.\n    known  {OPTIMIZERS}",
    ),
    "an invalid optimizer": (
        {"optimizer": 3},
        f"optimizer must be a name, an optax factory or an optax transformation, not 3.\n    known  {OPTIMIZERS}",
    ),
    "factory of nothing": (
        {"optimizer": lambda rate: rate},
        "'<lambda>' does not return an optimizer for a learning rate.\n"
        "    needed  a value with init(params) and update(grads, state, params)\n    got     float\n",
    ),
    "loss of three arguments": (
        {"loss": lambda prediction, targets, third: prediction.mean()},
        "loss '<lambda>' must be a function of prediction and targets.\n    takes  (prediction, targets, third)\n",
    ),
    **{
        f"loss that gives {name}": (
            {"loss": lambda prediction, targets, given=given: given},
            f"loss '<lambda>' does not return floats, so training cannot minimize it.\n    got     {received}\n"
            "    needed  one float, or an array of floats whose first axis is the batch\n",
        )
        for name, given, received in (
            ("a tuple", (0.5, 1), "(0.5, 1)"),
            ("nothing", None, "None"),
            ("a word", "low", "'low'"),
            ("whole numbers", np.arange(3, dtype=np.int32), "int32 of shape (3,)"),
        )
    },
    "class of another library": (
        {"optimizer": TorchLike},
        "'TorchLike' does not return an optimizer for a learning rate.\n"
        "    needed   a value with init(params) and update(grads, state, params)\n"
        "    because  TypeError: 'float' object is not iterable\n",
    ),
    "class of Python": (
        {"optimizer": type},
        "'type' does not return an optimizer for a learning rate.\n"
        "    needed  a value with init(params) and update(grads, state, params)\n    got     type\n",
    ),
    "schedule of words": (
        {"learning_rate": lambda step: "a"},
        "learning_rate= is a function but not a schedule.\n"
        "    needed  a function of the step count that returns a finite number of at least 0\n"
        "    got     'a' at step 0\n",
    ),
    "schedule without a step": (
        {"learning_rate": lambda: 0.1},
        "learning_rate= is a function but not a schedule.\n"
        "    needed  a function of the step count that returns a finite number of at least 0\n"
        "    takes   ()\n",
    ),
    "rate": (
        {"learning_rate": -1},
        "the learning rate must be a finite number of at least 0.\n    got  -1",
    ),
    "rate beside an optimizer that has one": (
        {"optimizer": resolve_optimizer("sgd"), "learning_rate": 0.5},
        "learning_rate= has no effect: the optimizer is a transformation that contains its own rate.\n"
        "    optimizer      Optimizer\n    learning_rate  0.5",
    ),
    "metric": (
        {"metrics": ("f1",)},
        "unknown metric 'f1'.\n    known  accuracy",
    ),
    "invalid metrics": (
        {"metrics": 3},
        "metrics must be a sequence of names.\n    got  3\n",
    ),
    "invalid params": (
        {"params": 3},
        "params must be a dict of arrays by name.\n    got  3",
    ),
    "params that are no arrays": (
        {"params": {"linear_0.weight": np.array(["one"])}},
        "params['linear_0.weight'] is not an array of numbers.\n    got  array(['one'], dtype='<U3')\n",
    ),
    "a word for a switch": (
        {"shuffle": "no"},
        "shuffle='no' must be a bool.\n    needs  True or False",
    ),
    "another word for a switch": (
        {"resume": "yes", "checkpoint": "runs"},
        "resume='yes' must be a bool.\n    needs  True or False",
    ),
    "no name for a folder": (
        {"checkpoint": ""},
        "folder must be a path.\n    got  ''",
    ),
    "metric without a meaning": (
        {"metrics": "top5", "loss": lambda prediction, targets: prediction.mean()},
        "unknown metric 'top5'.\n    known  accuracy",
    ),
    "fraction": (
        {"validation": 1.5},
        "validation must be a fraction that leaves samples for both training and validation.\n"
        "    got      1.5\n    samples  6\n",
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options(small: Any, case: str) -> None:
    options, text = OPTIONS[case]
    with pytest.raises(MithrilError) as caught:
        fit(small, (X, Y), **{"batch_size": 3, **options})
    assert without_advice(str(caught.value)) == without_advice(text)


def test_loss_may_return_a_python_number(small: Any) -> None:
    assert (
        fit(small, (X, Y), loss=lambda prediction, targets: 0.5, batch_size=3, epochs=1).wait().history["loss"][0]
        == 0.5
    )


def test_bad_rate_during_training_is_rejected(small: Any) -> None:
    run = fit(small, (X, Y), batch_size=3)
    with pytest.raises(UnknownOptionError, match="the learning rate must be a finite number of at least 0"):
        run.learning_rate = float("nan")
    assert run.learning_rate == 1e-3


def test_bad_data_runs_no_model_code(mlp: Any) -> None:
    model = mlp(4, 8, 3)
    with pytest.raises(DataError):
        fit(model, (NAN, Y), batch_size=3)
    assert model.traces == 0


def test_indices_out_of_range_for_an_embedding() -> None:
    model = Model() + (Model(name="in") + Embedding(5, 4)) + Flatten() + Linear(3)
    tokens = np.arange(12).reshape(6, 2)
    assert facts_of(lambda: fit(model, (tokens, Y), batch_size=3)) == (
        "DataError: data: input 'input' has indices out of range for the block that reads it.\n"
        "    data    from 0 to 11\n"
        "    needed  from 0 to 4\n"
        "    first   [2, 1] is 5, 7 in all"
    )
    with pytest.raises(DataError, match="indices out of range"):
        fit(model, (tokens % 5 - 1, Y), batch_size=3)
    assert fit(model, (tokens % 5, Y), batch_size=3).state == "idle"


def test_integers_out_of_range_for_the_input_dtype() -> None:
    tokens = np.array([[2], [2**32 + 2], [0], [1], [2], [2**31]])
    assert facts_of(
        lambda: fit(Model() + (Model(name="in") + Embedding(5, 4)) + Flatten() + Linear(3), (tokens, Y), batch_size=3)
    ) == (
        "DataError: data: input 'input' has numbers outside the range of int32, the dtype of the model's input.\n"
        "    data   (6, 1) int64, from 0 to 4294967298\n"
        "    first  [1, 0] is 4294967298"
    )
