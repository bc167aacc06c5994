"""Full messages of a backend for unsupported requests."""

import jax
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
"""  # noqa: E501


@pytest.mark.parametrize(("code", "message"), read_transcript(CASES))
def test_message(code, message):
    assert facts_of(code, globals()) == message
