"""User-defined blocks and ops: inheritance and redefinition."""

import inspect
import pickle
import pydoc
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError
from mithril_nb.models import Composite, Connection, Linear, Model, Operator, Softmax
from mithril_nb.models.fields import fields_of
from mithril_nb.models.library.operations.activations import Activation
from mithril_nb.models.op import Initializer, Range


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


class Snake(Activation):
    """x + sin²(a x) / a."""

    a: float = 1.0

    op = "snake_of_tests"
    option_ports = ("a",)
    formula = "y = x + sin²(a x) / a"
    kernel = lambda x, a: x + jnp.sin(a * x) ** 2 / a  # noqa: E731


class Wider(Snake):
    """The same, with one more attribute."""

    shift: Annotated[int, Range(0, 9)] = 0

    op = "wider_of_tests"
    kernel = lambda x, a, shift: x + shift  # noqa: E731


class Pair(Composite):
    """Two blocks."""

    width: int
    a: float = 2.0

    def compose(self):
        """Add the blocks."""
        self += Linear(self.width)
        self += Snake(self.a)


def test_fields_are_the_arguments_of_the_constructor():
    assert str(inspect.signature(Snake)) == "(a: float = 1.0, name: 'str | None' = None)"
    assert [*inspect.signature(Wider).parameters] == ["a", "shift", "name"]
    assert [field.range for field in fields_of(Wider)] == [None, Range(0, 9)]
    assert Wider(3, shift=4, name="w").options == {"a": 3.0, "shift": 4}
    assert "a: float = 1.0" in pydoc.render_doc(Snake)
    for wrong in (lambda: Wider(shift=10), lambda: Wider(b=1), lambda: Pair()):
        with pytest.raises(UnknownOptionError):
            wrong()


def test_attributes_can_be_read_and_ports_hide_them():
    assert Pair(3).a == 2.0
    assert Pair(width=3).graph.nodes[1].block.options == {"a": 2.0}
    assert isinstance(Snake().a, Connection)  # an attribute that can be connected is a port
    assert Wider(shift=5).shift == 5
    assert pickle.loads(pickle.dumps(Pair(4))) == Pair(4)


def test_a_kernel_in_a_class_runs_with_given_and_connected_attributes():
    model = Model() | Snake(2.0)(input="x", output="y")
    model |= Snake()(input="x", a="b", output="z")
    pm = ml.compile(model, shapes={"x": [3], "b": []})
    x = jnp.arange(3.0)
    out = pm.evaluate({}, {"x": x, "b": jnp.float32(2)})
    assert jnp.allclose(out["y"], x + jnp.sin(2 * x) ** 2 / 2)
    assert jnp.allclose(out["z"], out["y"])
