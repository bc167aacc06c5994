"""Refused custom ops."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from transcript import facts_of, read_transcript, without_advice

import mithril_nb as ml
from mithril_nb.errors import MithrilError, UnknownOptionError
from mithril_nb.models import Operator
from mithril_nb.models.op import OPS

X = np.linspace(-2, 2, 12, dtype="float32").reshape(4, 3)


backend = ml.JaxBackend()


class Wrong(Operator):
    def compute(self, inputs):
        return {"out": inputs["input"]}


class NoArray(Operator):
    def compute(self, inputs):
        return {"output": "text"}


class Misspelt(Operator):
    def compute(self, inputs):
        return inputs["inptu"]


class Lost(Operator):
    def __init__(self, k=3, name=None):
        super().__init__(name)
        self.k = k

    def compute(self, inputs):
        return {"output": inputs["input"] * self.k}


class LostOne(Operator):
    def __init__(self, by, power, name=None):
        super().__init__(name, power=power)

    def compute(self, inputs):
        return {"output": inputs["input"]}


def with_attribute():
    backend.register_op("scaled")(lambda x, factor=2.0: factor * x)
    ml.op("scaled", factor=3.0)


def of_primitive(function, gradient):
    ml.register_primitive("wrong")(function)
    ml.register_primitive("wrong_grad")(gradient)
    pm = ml.compile(ml.op("wrong"), backend)
    jax.grad(lambda x: pm.forward({}, {"input": x})["output"].sum())(jnp.asarray(X))


def of_shapes(function, **given):
    backend.register_op("picky")(function)
    ml.compile(ml.op("picky"), backend, shapes=given)


CASES = """
Lost(k=5)
UnknownOptionError: Lost.__init__ does not pass 'k' to super().__init__.
    because  Lost is rebuilt from its attributes
    passed   nothing

LostOne(1, 2)
UnknownOptionError: LostOne.__init__ does not pass 'by' to super().__init__.
    because  LostOne is rebuilt from its attributes
    passed   power

backend.register_op("grad")
NameTakenError: cannot register the op 'grad': the backend already has an attribute of this name.
    attribute  backend.grad

ml.op("gelo")
UnknownOpError: unknown op 'gelo'.
    known  COUNT ops; see list(mithril_nb.models.op.OPS)

ml.op("zzzz")
UnknownOpError: unknown op 'zzzz'.
    known  COUNT ops; see list(mithril_nb.models.op.OPS)

backend.register_op(abs)
UnknownOptionError: 'abs' is not a valid op name.
    needs  a string of letters, digits and '_'

ml.register_primitive("my op")
UnknownOptionError: 'my op' is not a valid op name.
    needs  a string of letters, digits and '_'

backend.register_op("many")(lambda *arrays: arrays[0])
UnknownOptionError: backend.register_op('many') cannot determine the inputs of '<lambda>'.
    needs  a function of at least one array, each as a named argument

ml.register_primitive("lone")(lambda backend: 0)
UnknownOptionError: ml.register_primitive('lone') cannot determine the inputs of '<lambda>'.
    needs  a function of the backend, then at least one array, each as a named argument

ml.register_primitive("lone_grad")(lambda backend, grad: 0)
UnknownOptionError: ml.register_primitive('lone_grad') cannot determine the inputs of '<lambda>'.
    needs  a function of the backend, the arrays, then the gradient: at least one array, each as a named argument

backend.register_op("add")(lambda x: x)
UnknownOptionError: the function has 1 argument, but the op 'add' has more inputs.
    inputs  left, right

ml.register_primitive("Linear")(lambda backend, x: x)
NameTakenError: cannot define Linear: the kind 'Linear' already exists.
    defined by  mithril_nb.models.library.layers.linear.Linear

ml.compile(Wrong()).evaluate({}, {"input": X})
UnknownOptionError: Wrong.compute returned 'out'.
    needs  a dict with 'output'

ml.compile(NoArray()).evaluate({}, {"input": X})
UnknownOptionError: NoArray.compute did not return an array for 'output'.
    returned  str

of_primitive(lambda backend, x: 2 * x, lambda backend, x, grad: grad.sum())
ShapeError: wrong_grad does not return a gradient of the shape of each input.
    returned  ()
    inputs    (4, 3)

of_shapes(lambda x: x.reshape(2, 7), input=[4, 3])
ShapeError: the input 'input' does not fit 'picky.input'.
    given  (4, 3) float32
    input  needs arrays that 'picky' accepts
    found  TypeError: cannot reshape array of shape (4, 3) (size 12) into shape (2, 7) (size 14)

ml.compile(Misspelt()).evaluate({}, {"input": X})
UnknownOptionError: the function of the op 'Misspelt' fails.
    because  KeyError: 'inptu'
    where    HERE
    given    'input' (4, 3) float32

of_shapes(lambda x: np.tanh(x), input=[4, 3])
UnknownOptionError: the function of the op 'picky' fails.
    because  TracerArrayConversionError: The numpy.ndarray conversion method __array__() was called on traced array with shape float32[4,3]
    where    HERE
    given    'input' (4, 3) float32

of_shapes(lambda x: x if x.sum() > 0 else -x, input=[4, 3])
UnknownOptionError: the function of the op 'picky' fails.
    because  TracerBoolConversionError: Attempted boolean conversion of traced array with shape bool[].
    where    HERE
    given    'input' (4, 3) float32

of_shapes(lambda x: x * float(x.sum()), input=[4, 3])
UnknownOptionError: the function of the op 'picky' fails.
    because  ConcretizationTypeError: Abstract tracer value encountered where concrete value is expected: traced array with shape float32[]
    where    HERE
    given    'input' (4, 3) float32

with_attribute()
UnknownOptionError: the op 'scaled' takes no attributes.
    given    factor
    because  it is a registered function: its inputs are its arguments without a default
"""  # noqa: E501


@pytest.mark.parametrize(("code", "message"), read_transcript(CASES))
def test_message(code, message):
    found = re.sub(rf"({re.escape(__file__)}|<string>):\d+$", "HERE", facts_of(code, globals()), flags=re.MULTILINE)
    assert found == message.replace("COUNT", str(len(OPS)))  # other tests register ops


def test_error_of_a_function_is_the_cause():
    with pytest.raises(UnknownOptionError) as error:
        ml.compile(Misspelt()).evaluate({}, {"input": X})
    assert isinstance(error.value.__cause__, KeyError)


def test_unknown_operation_is_rejected() -> None:
    with pytest.raises(AttributeError) as error:
        _ = backend.matmull
    assert str(error.value) == "JaxBackend has no operation 'matmull'. To add one: @backend.register_op('matmull')."


def test_infer_error_of_a_custom_op_names_its_class():
    def infer(options, inputs):
        return None

    with pytest.raises(MithrilError) as caught:
        type("Loose", (Operator,), {"infer": staticmethod(infer), "compute": lambda self, inputs: inputs})
    assert without_advice(str(caught.value)) == (
        "Loose.infer is not a class method.\n"
        "    needs  a class method that computes specs from attributes and input specs"
    )
