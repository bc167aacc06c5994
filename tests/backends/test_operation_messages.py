"""Full messages of a backend's operations for invalid arguments."""

import numpy as np  # noqa: F401 - used in CASES
import pytest
from transcript import facts_of, read_transcript

import mithril_nb as ml

B = ml.JaxBackend()
CASES = """
B.ones(-1)
UnknownOptionError: -1 is not a shape.
    needs  sizes

B.eye(-1)
ShapeError: eye does not accept these arguments.
    given    -1, None
    dtype    'float32'
    because  negative dimensions are not allowed, got -1 and None

B.arange()
UnknownOptionError: arange does not accept these arguments.
    because  arange() missing 1 required positional argument: 'start'

B.arange(0, 1, 0)
UnknownOptionError: arange does not accept these arguments.
    given    0, 1, 0
    because  division by zero

B.linspace(0, 1, -2)
ShapeError: linspace does not accept these arguments.
    given    0, 1, -2
    dtype    'float32'
    because  Number of samples, -2, must be non-negative.

B.randn(2, dtype="int32")
UnknownOptionError: randn does not accept these arguments.
    shape    (2,)
    dtype    'int32'
    because  dtype argument to `normal` must be a float or complex dtype, got int32

B.randint(0, 2**40, 3)
UnknownOptionError: randint cannot draw integers x with 0 <= x < 1099511627776.
    needs  low < high, both from -2147483648 to 2147483647
    dtype  int32

B.randint(10, 0, 3)
UnknownOptionError: randint cannot draw integers x with 10 <= x < 0.
    needs  low < high, both from -2147483648 to 2147483647
    dtype  int32

B.full((2,), "x")
UnknownOptionError: cannot convert the value to an array.
    given  'x'
    needs  numbers, or nested lists of numbers of equal lengths

B.full((2,), [1, 2, 3])
ShapeError: full does not accept these arguments.
    shape       (2,)
    fill_value  (3,) float32
    because     Incompatible types for broadcasting: input type=float32[3] and requested type=float32[2]

B.permutation("a")
UnknownOptionError: cannot convert the value to an array.
    given  'a'
    needs  numbers, or nested lists of numbers of equal lengths

B.split_key(3)
UnknownOptionError: 3 is not a random key.
    needs  one of backend.get_random_key(), split_key(key) or jax.random.key(seed)

B.split_key(B.get_random_key(), 0)
UnknownOptionError: cannot split a key into 0.
    needs  an integer, 1 or more

B.random_normal(3)
UnknownOptionError: 3 is not a random key.
    needs  one of backend.get_random_key(), split_key(key) or jax.random.key(seed)

B.random_bernoulli(p=2)
UnknownOptionError: p=2 is not a probability.
    needs  a number from 0 to 1

B.grad(lambda x: x * 2)(np.ones(3, "float32"))
ShapeError: cannot differentiate a function that does not return a floating-point scalar.
    returns  (3,) float32

B.grad(lambda x: "a")(1.0)
ShapeError: cannot differentiate a function that does not return a floating-point scalar.
    returns  str

B.grad(3)
UnknownOptionError: cannot differentiate 3.
    needs  a function of arrays that returns a scalar

B.grad(lambda x: x.sum())(np.arange(3, dtype="int32"))
UnknownOptionError: cannot differentiate with respect to a value that is not floating point.
    given  (3,) int32

B.tensor(np.array([1, 2**40 + 5]))
UnknownOptionError: JAX creates arrays of int64 only in its x64 mode, which is off.
    number   1099511627781
    because  JAX uses 32 bits by default, and would truncate these

B.tensor([-(2**40)], dtype="int32")
UnknownOptionError: JAX creates arrays of int64 only in its x64 mode, which is off.
    number   -1099511627776
    because  JAX uses 32 bits by default, and would truncate these

B.arange(2**40, 2**40 + 3)
UnknownOptionError: JAX creates arrays of int64 only in its x64 mode, which is off.
    number   1099511627776
    because  JAX uses 32 bits by default, and would truncate these

B.cross_entropy(B.ones(2, 3), np.eye(3, dtype="int32")[:2])
ShapeError: cross_entropy does not accept targets of shape (2, 3) int32.
    logits  (2, 3) float32
    needs   (2,) integers, or (2, 3) probabilities
"""


@pytest.mark.parametrize(("code", "message"), read_transcript(CASES))
def test_message(code, message):
    assert facts_of(code, globals()) == message
