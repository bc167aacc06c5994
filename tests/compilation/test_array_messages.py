"""Full messages of `evaluate` for values that are not arrays, jitted or not."""

import textwrap

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.models import MLP

X = np.ones((5, 4), "float32")
INPUTS = {"input": X}

mlp = ml.compile(MLP(None, [3], 2), shapes={"input": [5, 4]}, jit=False)
jitted = ml.compile(MLP(None, [3], 2), shapes={"input": [5, 4]})
params = mlp.randomize_params(0)

CASES = [
    (
        "nothing for an input",
        lambda: mlp.evaluate(params, {"input": None}),
        """
        UnknownOptionError: input 'input' is not an array of numbers.
            given  None
            Try: np.asarray(values, dtype="float32")  # with rows of one length
        """,
    ),
    (
        "nothing for an input, jitted",
        lambda: jitted.evaluate(params, {"input": None}),
        """
        UnknownOptionError: input 'input' is not an array of numbers.
            given  None
            Try: np.asarray(values, dtype="float32")  # with rows of one length
        """,
    ),
    (
        "rows of different lengths",
        lambda: mlp.evaluate(params, {"input": [[1.0, 2.0], [3.0]]}),
        """
        UnknownOptionError: input 'input' is not an array of numbers.
            given  a list of 2
            Try: np.asarray(values, dtype="float32")  # with rows of one length
        """,
    ),
    (
        "rows of different lengths, jitted",
        lambda: jitted.evaluate(params, {"input": [[1.0, 2.0], [3.0]]}),
        """
        UnknownOptionError: input 'input' is not an array of numbers.
            given  a list of 2
            Try: np.asarray(values, dtype="float32")  # with rows of one length
        """,
    ),
    (
        "words for an input",
        lambda: mlp.evaluate(params, {"input": np.array(["a"])}),
        """
        UnknownOptionError: input 'input' is not an array of numbers.
            given  an array of shape (1,) of <U1
            Try: np.asarray(values, dtype="float32")  # with rows of one length
        """,
    ),
    (
        "a name that is not a string",
        lambda: mlp.evaluate(params, {1: X, "input": X}),
        """
        UnexpectedInputError: the model has no input 1.
            inputs  'input'
            Try: inputs = {'input': ...}
        """,
    ),
    (
        "a number for the inputs",
        lambda: jitted.evaluate(params, 3),
        """
        UnknownOptionError: inputs must be given by name, in a dict.
            given   an array of shape ()
            inputs  'input'
            Try: inputs = {'input': ...}
        """,
    ),
    (
        "a parameter that is nothing",
        lambda: mlp.evaluate({**params, "linear_0.bias": None}, INPUTS),
        """
        UnknownOptionError: parameter 'linear_0.bias' is not an array of numbers.
            given  None
            Try: np.asarray(values, dtype="float32")  # with rows of one length
        """,
    ),
    (
        "a gradient of rows of different lengths",
        lambda: jitted.evaluate(params, INPUTS, {"output": [[1.0], [1.0, 2.0]]}),
        """
        UnknownOptionError: the gradient of output 'output' is not an array of numbers.
            given  a list of 2
            Try: np.asarray(values, dtype="float32")  # with rows of one length
        """,
    ),
]


@pytest.mark.parametrize(("call", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_message(call, text):
    with pytest.raises(MithrilError) as error:
        call()
    assert f"{type(error.value).__name__}: {error.value}" == textwrap.dedent(text).strip()
