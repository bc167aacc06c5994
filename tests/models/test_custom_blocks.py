"""User-defined blocks and ops: inheritance and redefinition."""

import jax
import numpy as np

import mithril_nb as ml
from mithril_nb.models import Operator, Softmax
from mithril_nb.models.op import Initializer


def gradient_at_5(name: str) -> float:
    pm = ml.compile(ml.op(name))
    return float(jax.grad(lambda x: pm.forward({}, {"input": x})["output"].sum())(np.float32([5.0]))[0])


def test_a_redefined_function_drops_the_gradient():
    ml.register_primitive("pp")(lambda backend, x: 2 * x)
    ml.register_primitive("pp_grad")(lambda backend, x, grad: 2 * grad)
    assert gradient_at_5("pp") == 2
    ml.register_primitive("pp")(lambda backend, x: x * x)
    assert gradient_at_5("pp") == 10
    ml.register_primitive("pp_grad")(lambda backend, x, grad: 7 * grad)
    assert gradient_at_5("pp") == 7


def test_a_gradient_may_be_registered_before_its_function():
    def function(backend, x):
        return x * x

    ml.register_primitive("early_grad")(lambda backend, x, grad: 3 * grad)
    for _ in range(2):
        ml.register_primitive("early")(function)
        assert gradient_at_5("early") == 3


def compute(self, inputs):
    return inputs["input"]


def test_a_block_with_compute_inherits_declarations():
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
