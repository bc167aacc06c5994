"""Python's operators on connections, with arrays on either side."""

import operator

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.models import Identity, IOKey, Model

FLOATS, WHOLE, TRUTHS = np.float32([1.5, -2, 7]), np.int32([1, 2, 5]), np.array([True, False, True])
OTHERS = {"float32": np.float32([2, 3, 4]), "int32": np.int32([3, 1, 2]), "bool": np.array([True, True, False])}


@pytest.mark.parametrize("is_reflected", [False, True])
@pytest.mark.parametrize(
    ("function", "array"),
    [
        *((one, FLOATS) for one in (operator.add, operator.sub, operator.mul, operator.truediv, operator.mod)),
        *((one, WHOLE) for one in (operator.floordiv, operator.mod, operator.lshift, operator.rshift)),
        *((one, TRUTHS) for one in (operator.and_, operator.or_, operator.xor)),
    ],
    ids=lambda one: one.__name__ if callable(one) else str(one.dtype),
)
def test_operators_accept_a_numpy_array_on_either_side(function, array: np.ndarray, is_reflected: bool):
    other = OTHERS[str(array.dtype)]
    model = Model()
    model |= Identity()(input=IOKey("input", type=str(array.dtype)), output="x")
    both = (other, model.x) if is_reflected else (model.x, other)
    model |= Identity()(input=function(*both), output="output")
    found = ml.compile(model, shapes={"input": [3]}).evaluate({}, {"input": array})["output"]
    np.testing.assert_allclose(found, function(other, array) if is_reflected else function(array, other), 1e-6)
