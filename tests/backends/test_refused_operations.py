"""Refused options of a backend, and refused arguments of its operations."""

import jax
import numpy as np  # noqa: F401 - used in CASES
import pytest
from transcript import facts_of, read_transcript

import mithril_nb as ml
from mithril_nb.backends.backend import Backend


class ArraysOnly(Backend):
    """A backend as in the Mithril documentation: it creates arrays and runs no models."""

    def tensor(self, data, dtype=None):
        return data

    def zeros(self, shape, dtype=None):
        return [0] * shape

    def ones(self, shape, dtype=None):
        return [1] * shape


class WithoutOnes(Backend):
    """A backend with two of the three methods. Defining it is valid; constructing it raises."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def tensor(self, data, dtype=None):
        pass

    def zeros(self, shape, dtype=None):
        pass


B = ml.JaxBackend()


def double_without_x64():
    before = jax.config.read("jax_enable_x64")
    try:
        ml.JaxBackend(dtype="float64").enable_x64(False)
    finally:
        jax.config.update("jax_enable_x64", before)


CASES = """
ml.JaxBackend(device_mesh=True)
UnknownOptionError: device_mesh=True is not a mesh shape.
    needs  the number of devices along each axis

B.set_platform("tpu")
DeviceNotFoundError: no device 'tpu' on backend 'jax'.
    present  cpu:0

WithoutOnes(1, two=2)
IncompleteBackendError: cannot construct WithoutOnes: it lacks 'ones'.
    has  tensor, zeros

Backend()
IncompleteBackendError: cannot construct Backend: it lacks 'ones', 'tensor', 'zeros'.
    has  no required method

ml.JaxBackend(amp=True)
UnknownOptionError: JaxBackend takes no argument 'amp'.
    takes  dtype, jit, jit_compile, device, platform, precision, seed, debug, device_mesh, xla_flags

ml.JaxBackend(devce="cpu")
UnknownOptionError: JaxBackend takes no argument 'devce'.
    takes  dtype, jit, jit_compile, device, platform, precision, seed, debug, device_mesh, xla_flags

ml.JaxBackend(device=0)
UnknownOptionError: device=0 is not a device.
    needs  a name such as 'cpu' or 'gpu:1', or one of jax.devices()

ml.JaxBackend(device="")
UnknownOptionError: device='' is not a device.
    needs  a name such as 'cpu' or 'gpu:1', or one of jax.devices()

ml.JaxBackend(jit="no")
UnknownOptionError: jit='no' must be a bool.
    needs  True or False

ml.JaxBackend(seed=2**63)
UnknownOptionError: cannot use 9223372036854775808 as a seed.
    needs  an integer from -2**63 to 2**63 - 1

ml.JaxBackend(dtype="float31")
UnknownDtypeError: unknown dtype 'float31'.
    known  bool, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float16, bfloat16, float32, float64, complex64, complex128

ml.JaxBackend(dtype="int32")
UnknownOptionError: cannot compute gradients in dtype 'int32'.
    needs  float16, bfloat16, float32 or float64

ml.JaxBackend(device="gpu")
DeviceNotFoundError: no device 'gpu' on backend 'jax'.
    present  cpu:0

ml.JaxBackend(device="cpu:9")
DeviceNotFoundError: no device 'cpu:9' on backend 'jax'.
    present  cpu:0

ml.JaxBackend(device="cpu:first")
DeviceNotFoundError: no device 'cpu:first' on backend 'jax'.
    present  cpu:0

ml.JaxBackend(platform="tpu")
DeviceNotFoundError: no device 'tpu' on backend 'jax'.
    present  cpu:0

ml.JaxBackend(device="cpu", platform="gpu")
UnknownOptionError: device='cpu' and platform='gpu' contradict each other.

ml.JaxBackend(jit=True, jit_compile=False)
UnknownOptionError: jit=True and jit_compile=False contradict each other: they are one option.

ml.JaxBackend(precision="ultra")
UnknownOptionError: unknown precision 'ultra'.
    known  default, high, highest, a jax.lax.Precision, or a dtype's name

ml.JaxBackend(dtype="float32", precision="bfloat16")
UnknownOptionError: dtype='float32' and precision='bfloat16' contradict each other.

ml.JaxBackend(seed="x")
UnknownOptionError: cannot use 'x' as a seed.
    needs  an integer

ml.JaxBackend().set_seed(True)
UnknownOptionError: cannot use True as a seed.
    needs  an integer

ml.JaxBackend().zeros("abc")
UnknownOptionError: 'abc' is not a shape.
    needs  sizes

ml.JaxBackend().ones(2.5)
UnknownOptionError: 2.5 is not a shape.
    needs  sizes

ml.JaxBackend().randn(2, 2.5)
UnknownOptionError: (2, 2.5) is not a shape.
    needs  sizes

ml.JaxBackend().zeros(3, dtype="flot")
UnknownDtypeError: unknown dtype 'flot'.
    known  bool, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float16, bfloat16, float32, float64, complex64, complex128

ml.JaxBackend().zeros(3, dtype=3)
UnknownDtypeError: unknown dtype 3.
    known  bool, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float16, bfloat16, float32, float64, complex64, complex128

ArraysOnly().toolkit
UnavailableBackendError: ArraysOnly has no kernels, so it cannot run models.

double_without_x64()
UnknownOptionError: cannot disable the x64 mode for a backend of dtype 'float64'.
    because  JAX would create float32 arrays instead of float64

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
"""  # noqa: E501


@pytest.mark.parametrize(("code", "message"), read_transcript(CASES))
def test_message(code, message):
    assert facts_of(code, globals()) == message
