"""The base class of the backends that run emitted source: NumPy, PyTorch, MLX, C and GGML."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from mithril_nb.backends.backend import Backend, check_seed
from mithril_nb.errors import (
    DeviceNotFoundError,
    UnavailableBackendError,
    UnknownOptionError,
    listed,
    refuse_unknown,
)
from mithril_nb.graph.spec import as_dtype

_PLAIN = (
    "abs add cos divide exp log matmul maximum minimum multiply negative reshape sign sin sqrt square "
    "subtract tanh where"
).split()
"""Functions of the same name in every library."""

_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}
"""The dtypes of 32 bits that models use instead of dtypes of 64 bits, as JAX does, unless the backend is in float64."""

Arrays = Mapping[str, Any]
GRADS = ("autograd", "jax")
"""Values of the option `grads`. With `"autograd"`, the library derives the gradients, and with `"jax"`, JAX does."""


@dataclass(frozen=True)
class Availability:
    """Availability of a backend on this machine. It is true in a condition if the backend is available.

    Attributes:
        is_available: True if the backend is available.
        reason: The reason why the backend is not available; `""` if it is.
        install: The command that installs the missing package or program; `""` if nothing is missing.
    """

    is_available: bool
    reason: str = ""
    install: str = ""

    def __bool__(self) -> bool:
        return self.is_available


class EmittedBackend(Backend):
    """A backend that runs models as source code, which this package writes for the backend's library.

    Args:
        dtype: Dtype of parameters and of arrays that the backend creates: `"float32"`, or another dtype in `dtypes`.
        device: `"cpu"`, or another device of the library.
        seed: Seed of the random numbers.

    Raises:
        UnavailableBackendError: The library is not installed.
        UnknownOptionError: An option does not exist, or the backend does not support the dtype.
        DeviceNotFoundError: The library does not have the device.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    module_name: ClassVar[str]
    install: ClassVar[str]
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    compile = False
    grads = "jax"
    """`"autograd"` if the library derives the gradients; `"jax"` if JAX derives them as emitted source."""

    def __init__(self, dtype: Any = None, *, device: str | None = None, seed: int = 0, **unknown: Any):
        refuse_unknown(type(self).__name__, unknown, type(self).__init__)
        availability = self.available()
        if not availability:
            raise UnavailableBackendError(
                f"{type(self).__name__} needs {self.title}, {availability.reason}.", advice=availability.install
            )
        self.default_dtype = str(as_dtype("float32" if dtype is None else dtype))
        if self.default_dtype not in self.dtypes:
            raise UnknownOptionError(
                f"{type(self).__name__} does not run models in {self.default_dtype}.",
                (("needs", " or ".join(self.dtypes)),),
            )
        self._library: ModuleType = importlib.import_module(self.module_name)
        self.device: str | None = None
        self._set_device(device)
        self.set_seed(seed)

    def _set_device(self, device: str | None) -> None:
        before, self.device = self.device, device
        try:
            with self.on_device():
                self.copied(self.zeros(1))
        # PyTorch raises RuntimeError, or AssertionError if it is built without CUDA; MLX has no attribute of the name.
        except (RuntimeError, ValueError, AssertionError, AttributeError) as error:
            self.device = before
            raise DeviceNotFoundError(
                f"device {device!r} not found on backend {self.name!r}.",
                ((self.title, str(error).splitlines()[0]),),
            ) from None

    def on_device(self) -> AbstractContextManager[object]:
        """Return a context in which the library creates arrays on the device of the backend.

        Raises:
            ValueError: The library does not have the device.
        """
        if self.device not in (None, "cpu"):
            raise ValueError("it runs on the CPU only")
        return nullcontext()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dtype={self.default_dtype!r})"

    @classmethod
    def available(cls) -> Availability:
        """Return whether the library is installed. If not, return a reason and a command that installs it."""
        try:
            is_there = importlib.util.find_spec(cls.module_name.partition(".")[0]) is not None
            importlib.import_module(cls.module_name)
        except (ImportError, ValueError):  # a module that a test or a user has set to None
            is_there = False
        return Availability(True) if is_there else Availability(False, "which is not installed", cls.install)

    def tensor(self, data: Any, dtype: Any = None) -> Any:
        """Return data as an array. Floats get the dtype of the backend unless a dtype is given."""
        array = self._host(data)
        is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
        array_dtype = self.default_dtype if dtype is None and is_float else dtype
        array_dtype = str(array.dtype if array_dtype is None else as_dtype(array_dtype))
        if array_dtype == "bfloat16":  # NumPy has no bfloat16
            return self._cast(self._from_numpy(array.astype("float32")), array_dtype)
        return self._from_numpy(array.astype(array_dtype))

    def _host(self, data: Any) -> np.ndarray:
        is_array = hasattr(data, "__array__") or hasattr(data, "shape")
        return np.asarray(self.to_numpy(data) if is_array else data)

    array = tensor

    def from_numpy(self, array: Any) -> Any:
        """Return a NumPy array as an array of the library, with the same dtype."""
        array = np.asarray(array)
        return self.tensor(array, "bfloat16") if array.dtype.name == "bfloat16" else self._from_numpy(array)

    def to_numpy(self, array: Any) -> np.ndarray:
        """Return an array as a NumPy array."""
        return np.asarray(array)

    def _from_numpy(self, array: np.ndarray) -> Any:
        # A copy: the caller may change its array, and a broadcast view cannot be written to.
        return np.array(array)

    def as_own(self, value: Any) -> Any:
        """Return an array of the library unchanged. Convert any other value, to 32 bits unless in a float64 backend."""
        if self.is_own(value):
            return value
        array = self._host(value)
        is_narrow = self.default_dtype != "float64" and array.dtype.kind != "f"
        return self.tensor(array, _NARROW.get(array.dtype.name) if is_narrow else None)

    def as_argument(self, value: Any) -> Any:
        """Return a value as an array of the library. Arrays of the library with 64 bits get 32, as in JAX."""
        if not self.is_own(value):
            return self.as_own(value)
        array_dtype = _NARROW.get(self.dtype(value)) if self.default_dtype != "float64" else None
        return value if array_dtype is None else self._cast(value, array_dtype)

    def is_own(self, value: Any) -> bool:
        """Return whether a value is an array of the library."""
        return _package(type(value)) == self.module_name.partition(".")[0]

    def spec_dtype(self, array: Any) -> str:
        """Return the dtype with which JAX traces a program for an array of the library."""
        return self.dtype(array).removesuffix("_")

    def copied(self, array: Any) -> Any:
        """Return a copy of an array of the library."""
        return self._library.array(array)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return an emitted function. If the option `compile` is true, the library compiles the function."""
        return self._library.compile(function) if self.compile else function

    def finished(self, arrays: list[Any], dtypes: Sequence[str]) -> list[Any]:
        """Return the results of an emitted function, after a conversion or computation that the library needs.

        Args:
            arrays: The results, as a flat list.
            dtypes: Their dtypes in the program that JAX traced.
        """
        return arrays

    def differentiate(
        self, function: Callable[[Arrays], dict[str, Any]], params: Arrays, output_gradients: Arrays
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the outputs of a function, and the gradients of its params. The library derives the gradients.

        Args:
            function: A function from a dict of params to a dict of outputs.
            params: The params by name.
            output_gradients: d(loss)/d(output) by output name. Missing outputs count as zero.
        """
        raise NotImplementedError(f"{self.title} derives no gradients")

    def _cast(self, array: Any, dtype: str) -> Any:
        return array.astype(getattr(self._library, dtype))

    def zeros(self, *shape: Any, dtype: Any = None) -> Any:
        """Return an array of zeros; the shape is one tuple or several sizes."""
        return self.full(shape_of(shape), 0, dtype=dtype)

    def ones(self, *shape: Any, dtype: Any = None) -> Any:
        """Return an array of ones; the shape is one tuple or several sizes."""
        return self.full(shape_of(shape), 1, dtype=dtype)

    def full(self, shape: Any, value: float, *, dtype: Any = None) -> Any:
        """Return an array whose items are all `value`."""
        return self.tensor(np.full(shape_of((shape,)), value), dtype or self.default_dtype)

    def zeros_like(self, array: Any) -> Any:
        """Return zeros with the shape and dtype of an array."""
        return self._from_numpy(np.zeros_like(self.to_numpy(array)))

    def ones_like(self, array: Any) -> Any:
        """Return ones with the shape and dtype of an array."""
        return self._from_numpy(np.ones_like(self.to_numpy(array)))

    def eye(self, rows: int, columns: int | None = None, *, dtype: Any = None) -> Any:
        """Return a matrix with ones on its diagonal."""
        return self.tensor(np.eye(rows, columns), dtype)

    def arange(self, *bounds: Any, dtype: Any = None) -> Any:
        """Return evenly spaced numbers, as `numpy.arange` does. Integers are int32 unless `dtype` is given."""
        # NumPy counts in 64 bits, and models in 32.
        array = np.arange(*bounds)
        return self.tensor(array.astype("int32") if array.dtype.kind == "i" and dtype is None else array, dtype)

    def linspace(self, start: float, stop: float, count: int = 50, *, dtype: Any = None) -> Any:
        """Return evenly spaced numbers from `start` to `stop`."""
        return self.tensor(np.linspace(start, stop, count), dtype)

    def shape(self, array: Any) -> tuple[int, ...]:
        """Return the shape of an array."""
        return tuple(array.shape)

    def dtype(self, array: Any) -> str:
        """Return the name of the dtype of an array."""
        return _dtype_name(array.dtype)

    # Random numbers: NumPy draws them, so each library gets the same

    def set_seed(self, seed: int) -> None:
        """Restart the stream of random numbers from a seed.

        Raises:
            UnknownOptionError: The seed is not an integer of 64 bits.
        """
        # NumPy takes no negative seeds.
        self._random = np.random.Generator(np.random.Philox(check_seed(seed) % 2**64))

    def next_seed(self) -> int:
        """Return the next number of the random stream, as a seed."""
        return int(self._random.integers(2**31))

    def rand(self, *shape: Any, dtype: Any = None) -> Any:
        """Return numbers drawn uniformly from 0 to 1."""
        return self.tensor(self._random.random(shape_of(shape)), dtype)

    def randn(self, *shape: Any, dtype: Any = None) -> Any:
        """Return numbers drawn from the normal distribution."""
        return self.tensor(self._random.standard_normal(shape_of(shape)), dtype)

    def randint(self, low: int, high: int, shape: Any = (), *, dtype: Any = "int32") -> Any:
        """Return integers drawn uniformly, `low` included and `high` excluded."""
        return self.tensor(self._random.integers(low, high, shape_of((shape,))), dtype)

    def random_normal(self, *, shape: Any = (), mean: float = 0.0, stddev: float = 1.0) -> Any:
        """Return numbers drawn from a normal distribution."""
        return self.tensor(self._random.normal(mean, stddev, shape_of((shape,))), self.default_dtype)

    def random_uniform(self, *, shape: Any = (), low: float = 0.0, high: float = 1.0) -> Any:
        """Return numbers drawn uniformly from `low` to `high`."""
        return self.tensor(self._random.uniform(low, high, shape_of((shape,))), self.default_dtype)

    def permutation(self, count: int) -> Any:
        """Return the integers from 0 to `count - 1` in a random order."""
        return self.tensor(self._random.permutation(count), "int32")

    def operations(self) -> Mapping[str, Callable[..., Any]]:
        """Return the mathematical functions by name: `backend.operations()["relu"]` is `backend.relu`."""
        library = self._library
        plain: dict[str, Callable[..., Any]] = {name: getattr(library, name) for name in _PLAIN}
        reduced = {name: self._reduction(name) for name in ("sum", "mean", "max", "min", "prod")}
        # The libraries differ in names and keywords (axis or dim, transpose or permute): a function of each that does
        # is a method, which a subclass overrides.
        return {
            **plain,
            **reduced,
            **{f"reduce_{name}": function for name, function in reduced.items()},
            "power": lambda x, y: x**y,
            "relu": lambda x: library.where(x > 0, x, library.zeros_like(x)),
            "sigmoid": lambda x: 1 / (1 + library.exp(-x)),
            "softmax": self._softmax,
            "transpose": lambda x, axes=None: self._permuted(x, axes or tuple(range(len(x.shape)))[::-1]),
            "concat": lambda arrays, axis=0: self._concat(list(arrays), axis),
            "cross_entropy": self._cross_entropy,
            "cross_entropy_grad": self._cross_entropy_grad,
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # `copy` and `pickle` look up private names before `__init__` has set the library.
        if name.startswith("_"):
            raise AttributeError(name)
        operations = self.operations()
        if name not in operations:
            names = listed(sorted(operations))
            raise AttributeError(f"{type(self).__name__} has no function {name!r}; it has {names}.")
        return operations[name]

    def _softmax(self, x: Any, axis: int = -1) -> Any:
        library = self._library
        # The largest power is 1, so that no logit overflows.
        powers = library.exp(x - self._reduction("max")(x, axis, True))
        return powers / self._reduction("sum")(powers, axis, True)

    def _cross_entropy(self, logits: Any, labels: Any) -> Any:
        total = self._reduction("sum")
        shifted = logits - self._reduction("max")(logits, -1, True)
        logs = shifted - self._library.log(total(self._library.exp(shifted), -1, True))
        targets = self.one_hot(labels, logits.shape[-1], math.nan)  # not a factor below: 0 * -inf is NaN
        return -total(self._library.where(targets == 1, logs, targets)) / math.prod(logits.shape[:-1])

    def _cross_entropy_grad(self, logits: Any, labels: Any) -> Any:
        targets = self.one_hot(labels, logits.shape[-1], math.nan)
        return (self._softmax(logits) - targets) / math.prod(logits.shape[:-1])

    def one_hot(self, labels: Any, classes: int, outside: float = 0.0) -> Any:
        """Return rows with 1 at the index of the label and 0 elsewhere. For an invalid label, the row is `outside`."""
        # On the host: PyTorch's one_hot rejects labels out of range, and MLX has none.
        numbers = self.to_numpy(labels)[..., None]
        is_class = (numbers >= 0) & (numbers < classes)
        return self.tensor(np.where(is_class, numbers == np.arange(classes), outside))

    def _reduction(self, name: str) -> Callable[..., Any]:
        function = getattr(self._library, name)
        return lambda x, axis=None, keepdims=False: function(x, axis=axis, keepdims=keepdims)

    def _permuted(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.transpose(*axes)

    def _concat(self, arrays: list[Any], axis: int) -> Any:
        return self._library.concatenate(arrays, axis=axis)


# Cached, because NumPy takes 5 us to write the name of a dtype.
@lru_cache(maxsize=256)
def _dtype_name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


@lru_cache(maxsize=256)
def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def check_grads(backend: str, grads: Any) -> None:
    """Check the option `grads` of a backend."""
    if grads not in GRADS:
        raise UnknownOptionError(
            f"{backend} does not accept grads={grads!r}.",
            (("known", ", ".join(map(repr, GRADS))),),
        )


def shape_of(args: Any) -> tuple[int, ...]:
    """Return a shape given as several sizes, one tuple of sizes, or one size.

    Examples:
        >>> shape_of((2, 3)), shape_of(((2, 3),)), shape_of((2,))
        ((2, 3), (2, 3), (2,))
    """
    if len(args) == 1 and not isinstance(args[0], int):
        return tuple(args[0])
    return tuple(args)
