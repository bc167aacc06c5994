"""Full messages of a backend's operations for invalid arguments."""

import numpy as np  # noqa: F401 - used in CASES
import pytest
from transcript import message_of, read_transcript

import mithril_nb as ml

B = ml.JaxBackend()
CASES = """
B.ones(-1)
UnknownOptionError: -1 is not a shape.
    needs  sizes
    Try: zeros(3, 4)

B.eye(-1)
ShapeError: eye does not accept these arguments.
    given    -1, None
    dtype    'float32'
    because  negative dimensions are not allowed, got -1 and None
    Try: help(backend.eye)

B.arange()
UnknownOptionError: arange does not accept these arguments.
    given    nothing
    because  arange() missing 1 required positional argument: 'start'
    Try: help(backend.arange)

B.arange(0, 1, 0)
UnknownOptionError: arange does not accept these arguments.
    given    0, 1, 0
    because  division by zero
    Try: help(backend.arange)

B.linspace(0, 1, -2)
ShapeError: linspace does not accept these arguments.
    given    0, 1, -2
    dtype    'float32'
    because  Number of samples, -2, must be non-negative.
    Try: help(backend.linspace)

B.linspace("a", 1)
UnknownOptionError: linspace does not accept these arguments.
    given    'a', 1, 50
    dtype    'float32'
    because  start is not an array of numbers, but of type str
    Try: help(backend.linspace)

B.randn(2, dtype="int32")
UnknownOptionError: randn does not accept these arguments.
    shape    (2,)
    dtype    'int32'
    because  dtype argument to `normal` must be a float or complex dtype, got int32
    Try: help(backend.randn)

B.randint(0, 2**40, 3)
UnknownOptionError: randint cannot draw integers x with 0 <= x < 1099511627776.
    needs  low < high, both from -2147483648 to 2147483647
    dtype  int32
    Try: randint(0, 10, 3, 4)

B.randint(10, 0, 3)
UnknownOptionError: randint cannot draw integers x with 10 <= x < 0.
    needs  low < high, both from -2147483648 to 2147483647
    dtype  int32
    Try: randint(0, 10, 3, 4)

B.full((2,), "x")
UnknownOptionError: cannot convert the value to an array.
    given  'x'
    needs  numbers, or nested lists of numbers of equal lengths
    Try: backend.array([[1.0, 2.0], [3.0, 4.0]])

B.full((2,), [1, 2, 3])
ShapeError: full does not accept these arguments.
    given    (3,) float32
    shape    (2,)
    dtype    'float32'
    because  Incompatible types for broadcasting: input type=float32[3] and requested type=float32[2]
    Try: help(backend.full)

B.permutation("a")
UnknownOptionError: cannot convert the value to an array.
    given  'a'
    needs  numbers, or nested lists of numbers of equal lengths
    Try: backend.array([[1.0, 2.0], [3.0, 4.0]])

B.split_key(3)
UnknownOptionError: 3 is not a random key.
    needs  one of backend.get_random_key(), split_key(key) or jax.random.key(seed)
    Try: backend.get_random_key()

B.split_key(B.get_random_key(), 0)
UnknownOptionError: cannot split a key into 0.
    needs  an integer, 1 or more
    Try: split_key(key, num=2)

B.random_normal(3)
UnknownOptionError: 3 is not a random key.
    needs  one of backend.get_random_key(), split_key(key) or jax.random.key(seed)
    Try: backend.get_random_key()

B.random_bernoulli(p=2)
UnknownOptionError: p=2 is not a probability.
    needs  a number from 0 to 1
    Try: p=0.5

B.grad(lambda x: x * 2)(np.ones(3, "float32"))
ShapeError: cannot differentiate a function that does not return a floating-point scalar.
    returns  (3,) float32
    Try: backend.grad(lambda x: backend.sum(f(x)))

B.grad(lambda x: "a")(1.0)
ShapeError: cannot differentiate a function that does not return a floating-point scalar.
    returns  str
    Try: backend.grad(lambda x: backend.sum(f(x)))

B.grad(3)
UnknownOptionError: cannot differentiate 3.
    needs  a function of arrays that returns a scalar
    Try: backend.grad(lambda x: backend.sum(x * x))(x)

B.grad(lambda x: x.sum())(np.arange(3, dtype="int32"))
UnknownOptionError: cannot differentiate with respect to a value that is not floating point.
    given  (3,) int32
    Try: backend.array(x, dtype="float32")

B.tensor(np.array([1, 2**40 + 5]))
UnknownOptionError: JAX creates arrays of int64 only in its x64 mode, which is off.
    number   1099511627781
    because  JAX uses 32 bits by default, and would truncate these
    Try: backend.enable_x64()  # or JaxBackend(dtype="float64") from the start; otherwise dtype="float32"

B.tensor([-(2**40)], dtype="int32")
UnknownOptionError: JAX creates arrays of int64 only in its x64 mode, which is off.
    number   -1099511627776
    because  JAX uses 32 bits by default, and would truncate these
    Try: backend.enable_x64()  # or JaxBackend(dtype="float64") from the start; otherwise dtype="float32"

B.arange(2**40, 2**40 + 3)
UnknownOptionError: JAX creates arrays of int64 only in its x64 mode, which is off.
    number   1099511627776
    because  JAX uses 32 bits by default, and would truncate these
    Try: backend.enable_x64()  # or JaxBackend(dtype="float64") from the start; otherwise dtype="float32"

B.cross_entropy(B.ones(2, 3), np.eye(3, dtype="int32")[:2])
ShapeError: cross_entropy does not accept targets of shape (2, 3) int32.
    logits  (2, 3) float32
    needs   (2,) integers, or (2, 3) probabilities
    Try: backend.array(targets, dtype="float32")
"""


@pytest.mark.parametrize(("code", "message"), read_transcript(CASES))
def test_message(code, message):
    assert message_of(code, globals()) == message
