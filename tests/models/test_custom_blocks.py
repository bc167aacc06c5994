"""Blocks and ops that people define: what they take over from the classes and functions before them."""

import jax
import numpy as np

import mithril_nb as ml
from mithril_nb.models import Operator, Softmax
from mithril_nb.models.op import Initializer


def gradient_at_5(name: str) -> float:
    pm = ml.compile(ml.op(name))
    return float(jax.grad(lambda x: pm.forward({}, {"input": x})["output"].sum())(np.float32([5.0]))[0])


def test_another_function_of_a_name_does_not_take_over_the_gradient():
    ml.register_primitive("pp")(lambda backend, x: 2 * x)
    ml.register_primitive("pp_grad")(lambda backend, x, grad: 2 * grad)
    assert gradient_at_5("pp") == 2
    ml.register_primitive("pp")(lambda backend, x: x * x)
    assert gradient_at_5("pp") == 10
    ml.register_primitive("pp_grad")(lambda backend, x, grad: 7 * grad)
    assert gradient_at_5("pp") == 7


def test_a_gradient_may_come_before_its_function_which_may_be_registered_again():
    def function(backend, x):
        return x * x

    ml.register_primitive("early_grad")(lambda backend, x, grad: 3 * grad)
    for _ in range(2):
        ml.register_primitive("early")(function)
        assert gradient_at_5("early") == 3


def compute(self, inputs):
    return inputs["input"]


def test_a_block_that_computes_is_what_its_parents_say():
    class Straight(Operator):
        is_activation = False
        input_dtypes = {"input": "int32"}  # noqa: RUF012

    class OwnStraight(Straight):
        compute = compute

    class OwnSoftmax(Softmax):
        compute = compute

    class Bent(Operator):
        compute = compute

    class WithWeight(Bent):
        initializers = {"weight": Initializer("zeros")}  # noqa: RUF012
        compute = compute

    class WithoutWeight(WithWeight):
        initializers = {}  # noqa: RUF012
        compute = compute

    kinds = OwnStraight, OwnSoftmax, Bent, WithWeight, WithoutWeight
    assert [kind.is_activation for kind in kinds] == [False, False, True, False, True]
    assert OwnStraight.input_dtypes == {"input": "int32"}
