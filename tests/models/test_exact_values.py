"""Values that are equal in Python but differ in a program: by type, or by the sign of zero."""

import pickle

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.models import Constant, Model, to_source


def value(model: Model) -> np.ndarray:
    pm = ml.compile(model)
    return np.asarray(pm.evaluate(pm.randomize_params(), {})["output"])


def test_numbers_of_another_type_have_separate_programs():
    found = [value(Model() | Constant(number)) for number in (1, 1.0, True)]
    assert [str(one.dtype) for one in found] == ["int32", "float32", "bool"]


def test_the_sign_of_zero_is_kept():
    assert [bool(np.signbit(value(Model() | Constant(zero)))) for zero in (0.0, -0.0)] == [False, True]


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (0.0, -0.0), ((1, 2), (1, 2.0)), (((0.0,),), ((-0.0,),)), ((1,), 1)],
)
def test_models_of_such_values_differ(one, other):
    assert Constant(one) != Constant(other)
    assert Constant(one) == Constant(one)
    assert hash(Constant(one).block) == hash(pickle.loads(pickle.dumps(Constant(one).block)))


def test_nan_constants_are_equal():
    assert Constant(float("nan")) == Constant(float("nan"))


def test_the_source_keeps_the_sign_of_zero():
    scope: dict = {}
    model = Model() | Constant(-0.0)
    exec(to_source(model.graph), scope)
    assert scope["model"] == model
