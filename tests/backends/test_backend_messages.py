"""What a backend says that is asked for what it has not: the whole text."""

import textwrap

import jax
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.backends.backend import Backend
from mithril_nb.errors import MithrilError


class ArraysOnly(Backend):
    """A backend as the documents show one: it makes arrays and runs nothing."""

    def tensor(self, data, dtype=None):
        return data

    def zeros(self, shape, dtype=None):
        return [0] * shape

    def ones(self, shape, dtype=None):
        return [1] * shape


class WithoutOnes(Backend):
    """The backend of the documents: two of the three methods. To define it is no mistake; to make one is."""

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


CASES = [
    (
        "a switch for a mesh",
        lambda: ml.JaxBackend(device_mesh=True),
        """
        UnknownOptionError: device_mesh=True is no mesh.
            needs  how many devices there are along each of its axes
            Try: device_mesh=(2,), or device_mesh=(2, 4)
        """,
    ),
    (
        "another platform that is not there",
        lambda: B.set_platform("tpu"),
        """
        DeviceNotFoundError: no device 'tpu' on backend 'jax'.
            present  cpu:0
            Try: backend.set_platform("cpu:0")
        """,
    ),
    (
        "64 bits switched off that are needed",
        double_without_x64,
        """
        UnknownOptionError: cannot switch 64 bits off for a backend of dtype 'float64'.
            because  JAX would make arrays of float32 where float64 is asked for
            Try: ml.JaxBackend(dtype="float32").enable_x64(False)
        """,
    ),
    (
        "a backend that lacks a method",
        lambda: WithoutOnes(1, two=2),
        """
        IncompleteBackendError: cannot make a WithoutOnes: it lacks 'ones'.
            has  tensor, zeros
            Try: def ones(self, shape, dtype=None): ...
        """,
    ),
    (
        "no backend at all",
        lambda: Backend(),
        """
        IncompleteBackendError: cannot make a Backend: it lacks 'ones', 'tensor', 'zeros'.
            has  none of the methods that every backend has
            Try: def ones(self, shape, dtype=None): ...
        """,
    ),
    (
        "an unknown option",
        lambda: ml.JaxBackend(amp=True),
        """
        UnknownOptionError: JaxBackend takes no argument 'amp'.
            takes  dtype, jit, jit_compile, device, platform, precision, seed, debug, device_mesh, xla_flags
            Try: one of these.
        """,
    ),
    (
        "an option that is nearly one",
        lambda: ml.JaxBackend(devce="cpu"),
        """
        UnknownOptionError: JaxBackend takes no argument 'devce'.
            takes  dtype, jit, jit_compile, device, platform, precision, seed, debug, device_mesh, xla_flags
            Try: JaxBackend(device=...)
        """,
    ),
    (
        "a number for a device",
        lambda: ml.JaxBackend(device=0),
        """
        UnknownOptionError: device=0 is no device.
            needs  a name such as 'cpu' or 'gpu:1', or one of jax.devices()
            Try: JaxBackend(device="cpu")
        """,
    ),
    (
        "a device without a name",
        lambda: ml.JaxBackend(device=""),
        """
        UnknownOptionError: device='' is no device.
            needs  a name such as 'cpu' or 'gpu:1', or one of jax.devices()
            Try: JaxBackend(device="cpu")
        """,
    ),
    (
        "a word for a switch",
        lambda: ml.JaxBackend(jit="no"),
        """
        UnknownOptionError: jit='no' neither switches on nor off.
            needs  True or False
            Try: JaxBackend(jit=False)
        """,
    ),
    (
        "a seed that is too large",
        lambda: ml.JaxBackend(seed=2**63),
        """
        UnknownOptionError: cannot use 9223372036854775808 as a seed.
            needs  a whole number from -2**63 to 2**63 - 1
            Try: seed=42
        """,
    ),
    (
        "an unknown dtype",
        lambda: ml.JaxBackend(dtype="float31"),
        """
        UnknownDtypeError: unknown dtype 'float31'.
            known  bool, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float16, bfloat16, float32, float64, complex64, complex128
            Try: dtype="float32"
        """,  # noqa: E501
    ),
    (
        "a dtype without gradients",
        lambda: ml.JaxBackend(dtype="int32"),
        """
        UnknownOptionError: cannot compute gradients in dtype 'int32'.
            needs  float16, bfloat16, float32 or float64
            Try: JaxBackend(dtype="float32"); arrays of other dtypes are made by array(data, dtype="int32").
        """,
    ),
    (
        "no such platform",
        lambda: ml.JaxBackend(device="gpu"),
        """
        DeviceNotFoundError: no device 'gpu' on backend 'jax'.
            present  cpu:0
            Try: device="cpu:0"
        """,
    ),
    (
        "no such device",
        lambda: ml.JaxBackend(device="cpu:9"),
        """
        DeviceNotFoundError: no device 'cpu:9' on backend 'jax'.
            present  cpu:0
            Try: device="cpu:0"
        """,
    ),
    (
        "no number of a device",
        lambda: ml.JaxBackend(device="cpu:first"),
        """
        DeviceNotFoundError: no device 'cpu:first' on backend 'jax'.
            present  cpu:0
            Try: device="cpu:0"
        """,
    ),
    (
        "no such platform, by its other name",
        lambda: ml.JaxBackend(platform="tpu"),
        """
        DeviceNotFoundError: no device 'tpu' on backend 'jax'.
            present  cpu:0
            Try: device="cpu:0"
        """,
    ),
    (
        "two places",
        lambda: ml.JaxBackend(device="cpu", platform="gpu"),
        """
        UnknownOptionError: device='cpu' and platform='gpu' contradict each other.
            Try: JaxBackend(device='cpu')
        """,
    ),
    (
        "jit and not",
        lambda: ml.JaxBackend(jit=True, jit_compile=False),
        """
        UnknownOptionError: jit=True and jit_compile=False contradict each other: they are one option.
            Try: JaxBackend(jit=True)
        """,
    ),
    (
        "an unknown precision",
        lambda: ml.JaxBackend(precision="ultra"),
        """
        UnknownOptionError: unknown precision 'ultra'.
            known  default, high, highest, a jax.lax.Precision, or a dtype's name
            Try: precision="highest"
        """,
    ),
    (
        "two dtypes",
        lambda: ml.JaxBackend(dtype="float32", precision="bfloat16"),
        """
        UnknownOptionError: dtype='float32' and precision='bfloat16' contradict each other.
            Try: JaxBackend(dtype='bfloat16')
        """,
    ),
    (
        "a seed that is text",
        lambda: ml.JaxBackend(seed="x"),
        """
        UnknownOptionError: cannot use 'x' as a seed.
            needs  a whole number
            Try: seed=42
        """,
    ),
    (
        "a seed that is a flag",
        lambda: ml.JaxBackend().set_seed(True),
        """
        UnknownOptionError: cannot use True as a seed.
            needs  a whole number
            Try: seed=42
        """,
    ),
    (
        "a shape that is text",
        lambda: ml.JaxBackend().zeros("abc"),
        """
        UnknownOptionError: 'abc' is no shape.
            needs  sizes
            Try: zeros(3, 4)
        """,
    ),
    (
        "a shape that is a fraction",
        lambda: ml.JaxBackend().ones(2.5),
        """
        UnknownOptionError: 2.5 is no shape.
            needs  sizes
            Try: zeros(3, 4)
        """,
    ),
    (
        "a shape with a fraction in it",
        lambda: ml.JaxBackend().randn(2, 2.5),
        """
        UnknownOptionError: (2, 2.5) is no shape.
            needs  sizes
            Try: zeros(3, 4)
        """,
    ),
    (
        "a dtype of an array",
        lambda: ml.JaxBackend().zeros(3, dtype="flot"),
        """
        UnknownDtypeError: unknown dtype 'flot'.
            known  bool, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float16, bfloat16, float32, float64, complex64, complex128
            Try: dtype="float32"
        """,  # noqa: E501
    ),
    (
        "a dtype that is no name",
        lambda: ml.JaxBackend().zeros(3, dtype=3),
        """
        UnknownDtypeError: unknown dtype 3.
            known  bool, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float16, bfloat16, float32, float64, complex64, complex128
            Try: dtype="float32"
        """,  # noqa: E501
    ),
    (
        "not there yet",
        lambda: ml.TorchBackend(device="cuda"),
        """
        UnavailableBackendError: TorchBackend is not there yet: models run on JAX for now.
            needs  PyTorch, and an emitter that this version of mithril_nb does not have
            Try: ml.JaxBackend()
        """,
    ),
    (
        "no kernels",
        lambda: ArraysOnly().toolkit,
        """
        UnavailableBackendError: ArraysOnly brings no kernels: it cannot run models.
            Try: ml.JaxBackend()
        """,
    ),
    (
        "a negative size",
        lambda: B.ones(-1),
        """
        UnknownOptionError: -1 is no shape.
            needs  sizes
            Try: zeros(3, 4)
        """,
    ),
    (
        "a negative size of a matrix",
        lambda: B.eye(-1),
        """
        ShapeError: eye cannot be done with these arguments.
            given    -1, None
            dtype    'float32'
            because  negative dimensions are not allowed, got -1 and None
            Try: help(backend.eye)
        """,
    ),
    (
        "a range of nothing",
        lambda: B.arange(),
        """
        UnknownOptionError: arange cannot be done with these arguments.
            given    nothing
            because  arange() missing 1 required positional argument: 'start'
            Try: help(backend.arange)
        """,
    ),
    (
        "a range without steps",
        lambda: B.arange(0, 1, 0),
        """
        UnknownOptionError: arange cannot be done with these arguments.
            given    0, 1, 0
            because  division by zero
            Try: help(backend.arange)
        """,
    ),
    (
        "a negative count",
        lambda: B.linspace(0, 1, -2),
        """
        ShapeError: linspace cannot be done with these arguments.
            given    0, 1, -2
            dtype    'float32'
            because  Number of samples, -2, must be non-negative.
            Try: help(backend.linspace)
        """,
    ),
    (
        "text for a number",
        lambda: B.linspace("a", 1),
        """
        UnknownOptionError: linspace cannot be done with these arguments.
            given    'a', 1, 50
            dtype    'float32'
            because  start is no array of numbers, but of type str
            Try: help(backend.linspace)
        """,
    ),
    (
        "normal whole numbers",
        lambda: B.randn(2, dtype="int32"),
        """
        UnknownOptionError: randn cannot be done with these arguments.
            shape    (2,)
            dtype    'int32'
            because  dtype argument to `normal` must be a float or complex dtype, got int32
            Try: help(backend.randn)
        """,
    ),
    (
        "a bound that is too large",
        lambda: B.randint(0, 2**40, 3),
        """
        UnknownOptionError: randint cannot draw from 0 to one less than 1099511627776.
            needs  low < high, both from -2147483648 to 2147483647
            dtype  int32
            Try: randint(0, 10, 3, 4)
        """,
    ),
    (
        "nothing to draw from",
        lambda: B.randint(10, 0, 3),
        """
        UnknownOptionError: randint cannot draw from 10 to one less than 0.
            needs  low < high, both from -2147483648 to 2147483647
            dtype  int32
            Try: randint(0, 10, 3, 4)
        """,
    ),
    (
        "text all over a shape",
        lambda: B.full((2,), "x"),
        """
        UnknownOptionError: cannot make an array of this.
            given  'x'
            needs  numbers, or lists of numbers of one length at each depth
            Try: backend.array([[1.0, 2.0], [3.0, 4.0]])
        """,
    ),
    (
        "too many numbers for a shape",
        lambda: B.full((2,), [1, 2, 3]),
        """
        ShapeError: full cannot be done with these arguments.
            given    (3,) float32
            shape    (2,)
            dtype    'float32'
            because  Incompatible types for broadcasting: input type=float32[3] and requested type=float32[2]
            Try: help(backend.full)
        """,
    ),
    (
        "text in random order",
        lambda: B.permutation("a"),
        """
        UnknownOptionError: cannot make an array of this.
            given  'a'
            needs  numbers, or lists of numbers of one length at each depth
            Try: backend.array([[1.0, 2.0], [3.0, 4.0]])
        """,
    ),
    (
        "a number for a key",
        lambda: B.split_key(3),
        """
        UnknownOptionError: 3 is no random key.
            needs  one of backend.get_random_key(), split_key(key) or jax.random.key(seed)
            Try: backend.get_random_key()
        """,
    ),
    (
        "a key split into none",
        lambda: B.split_key(B.get_random_key(), 0),
        """
        UnknownOptionError: cannot split a key into 0.
            needs  a whole number from 1
            Try: split_key(key, num=2)
        """,
    ),
    (
        "a key that is a number",
        lambda: B.random_normal(3),
        """
        UnknownOptionError: 3 is no random key.
            needs  one of backend.get_random_key(), split_key(key) or jax.random.key(seed)
            Try: backend.get_random_key()
        """,
    ),
    (
        "a probability above 1",
        lambda: B.random_bernoulli(p=2),
        """
        UnknownOptionError: p=2 is no probability.
            needs  a number from 0 to 1
            Try: p=0.5
        """,
    ),
    (
        "a gradient of several numbers",
        lambda: B.grad(lambda x: x * 2)(np.ones(3, "float32")),
        """
        ShapeError: cannot differentiate a function that does not give one floating number.
            gives  (3,) float32
            Try: backend.grad(lambda x: backend.sum(f(x)))
        """,
    ),
    (
        "a gradient of text",
        lambda: B.grad(lambda x: "a")(1.0),
        """
        ShapeError: cannot differentiate a function that does not give one floating number.
            gives  str
            Try: backend.grad(lambda x: backend.sum(f(x)))
        """,
    ),
    (
        "a gradient of no function",
        lambda: B.grad(3),
        """
        UnknownOptionError: cannot differentiate 3.
            needs  a function of arrays that gives one number
            Try: backend.grad(lambda x: backend.sum(x * x))(x)
        """,
    ),
    (
        "a gradient by whole numbers",
        lambda: B.grad(lambda x: x.sum())(np.arange(3, dtype="int32")),
        """
        UnknownOptionError: cannot differentiate by what is no floating number.
            given  (3,) int32
            Try: backend.array(x, dtype="float32")
        """,
    ),
    (
        "numbers that are too wide",
        lambda: B.tensor(np.array([1, 2**40 + 5])),
        """
        UnknownOptionError: JAX makes no arrays of int64 unless it is told to.
            number   1099511627781
            because  it computes with 32 bits by default, and would cut these off
            Try: backend.enable_x64(), or JaxBackend(dtype="float64") from the start; else dtype="float32".
        """,
    ),
    (
        "numbers that are too wide for their dtype",
        lambda: B.tensor([-(2**40)], dtype="int32"),
        """
        UnknownOptionError: JAX makes no arrays of int64 unless it is told to.
            number   -1099511627776
            because  it computes with 32 bits by default, and would cut these off
            Try: backend.enable_x64(), or JaxBackend(dtype="float64") from the start; else dtype="float32".
        """,
    ),
    (
        "a range that is too wide",
        lambda: B.arange(2**40, 2**40 + 3),
        """
        UnknownOptionError: JAX makes no arrays of int64 unless it is told to.
            number   1099511627776
            because  it computes with 32 bits by default, and would cut these off
            Try: backend.enable_x64(), or JaxBackend(dtype="float64") from the start; else dtype="float32".
        """,
    ),
    (
        "one-hot targets of whole numbers",
        lambda: B.cross_entropy(B.ones(2, 3), np.eye(3, dtype="int32")[:2]),
        """
        ShapeError: cross_entropy cannot take targets of shape (2, 3) int32.
            logits  (2, 3) float32
            needs   (2,) whole numbers, or (2, 3) probabilities
            Try: backend.array(targets, dtype="float32")
        """,
    ),
]


@pytest.mark.parametrize(("call", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_message(call, text):
    with pytest.raises(MithrilError) as error:
        call()
    assert f"{type(error.value).__name__}: {error.value}" == textwrap.dedent(text).strip()
