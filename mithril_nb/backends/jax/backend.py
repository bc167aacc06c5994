"""`JaxBackend`: arrays, random numbers, devices and gradients, as the user's documents name them."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from mithril_nb.backends.backend import Backend, check_seed, check_switch
from mithril_nb.backends.jax import kernels
from mithril_nb.backends.jax.initializers import initial, stream
from mithril_nb.errors import DeviceNotFoundError, UnknownOptionError, refuse_unknown
from mithril_nb.graph.spec import ITEM_BYTES, as_dtype
from mithril_nb.models.infer import Parameter
from mithril_nb.program import Toolkit

Device = Any
"""A `jax.Device`, which type checkers do not know as a type."""

_PRECISIONS = {"default": "default", "high": "high", "highest": "highest"}


class JaxBackend(Backend):
    """Runs models with JAX.

    Args:
        dtype: Dtype of parameters and of arrays made here. `"float64"` switches JAX's x64 mode on for the whole
            process: arrays made elsewhere by JAX are then 64 bits wide too.
        jit: Whether programs are jitted where `compile` does not say.
        jit_compile: The same under its other name.
        device: `"cpu"`, `"gpu"`, `"gpu:0"`, `"tpu"`, or one of `jax.devices()`; by default JAX's own default device.
        platform: The same for those who name only the kind.
        precision: Of matrix products: a `jax.lax.Precision`, or `"default"`, `"high"`, `"highest"`; a dtype's name
            (`"bfloat16"`) sets the dtype instead.
        seed: Seed of the random numbers that it draws.

    Raises:
        UnknownDtypeError: A dtype that does not exist.
        UnknownOptionError: Options that contradict each other, or that make no sense.
        DeviceNotFoundError: A device that the machine does not have.

    Examples:
        >>> backend = JaxBackend(dtype="float32")
        >>> backend.zeros(2, 3).shape
        (2, 3)
    """

    name = "jax"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]:
            """The operations of the table below this class."""
            ...

    def __init__(
        self,
        dtype: Any = None,
        *,
        jit: bool | None = None,
        jit_compile: bool | None = None,
        device: str | Device | None = None,
        platform: str | None = None,
        precision: Any = None,
        seed: int = 0,
        **unknown: Any,
    ):
        super().__init__()
        refuse_unknown("JaxBackend", unknown, JaxBackend.__init__)
        if isinstance(precision, str) and precision in ITEM_BYTES:
            if dtype is not None and as_dtype(dtype) != precision:
                raise UnknownOptionError(
                    f"dtype={str(as_dtype(dtype))!r} and precision={precision!r} contradict each other.",
                    advice=f"JaxBackend(dtype={precision!r})",
                )
            dtype, precision = precision, None
        self.default_dtype = as_dtype(dtype or "float32")
        if "float" not in self.default_dtype:
            raise UnknownOptionError(
                f"cannot compute gradients in dtype {str(self.default_dtype)!r}.",
                (("needs", "float16, bfloat16, float32 or float64"),),
                'JaxBackend(dtype="float32"); arrays of other dtypes are made by array(data, dtype="int32").',
            )
        if self.default_dtype == "float64":
            jax.config.update("jax_enable_x64", True)
        self.precision = _checked_precision(precision)
        for option, value in (("jit", jit), ("jit_compile", jit_compile)):
            check_switch(option, value, f"JaxBackend({option}=False)")
        self.jit = True if jit is None and jit_compile is None else bool(jit if jit is not None else jit_compile)
        if jit is not None and jit_compile is not None and jit != jit_compile:
            raise UnknownOptionError(
                f"jit={jit} and jit_compile={jit_compile} contradict each other: they are one option.",
                advice=f"JaxBackend(jit={jit})",
            )
        for option, value in (("device", device), ("platform", platform)):
            if value is not None and not isinstance(value, jax.Device) and not (isinstance(value, str) and value):
                raise UnknownOptionError(
                    f"{option}={value!r} is no device.",
                    (("needs", "a name such as 'cpu' or 'gpu:1', or one of jax.devices()"),),
                    'JaxBackend(device="cpu")',
                )
        if device and platform and str(getattr(device, "platform", device)).partition(":")[0] != platform:
            raise UnknownOptionError(
                f"device={device!r} and platform={platform!r} contradict each other.",
                advice=f"JaxBackend(device={device!r})",
            )
        self.device = find_device(device or platform) if device or platform else None
        self.set_seed(seed)

    def __repr__(self) -> str:
        return f"JaxBackend(dtype={str(self.default_dtype)!r}, device={self.device_name!r})"

    @property
    def device_name(self) -> str:
        """The device that programs run on, as `"cpu:0"`."""
        return _device_name(self.device or jax.devices()[0])

    @property
    def toolkit(self) -> Toolkit:
        """Kernels and scopes with which it runs a graph."""
        return Toolkit(self.name, kernels.KERNELS, jax.named_scope, jax.random.fold_in, kernels.draws)

    # Arrays

    def tensor(self, data: Any, dtype: Any = None) -> jax.Array:
        """Return an array of the data; floating numbers get the backend's dtype unless one is given.

        Examples:
            >>> JaxBackend().tensor([1, 2, 3], dtype="float32")
            Array([1., 2., 3.], dtype=float32)
        """
        if dtype is None:
            data = data if isinstance(data, jax.Array) else np.asarray(data)
            dtype = self.default_dtype if jnp.issubdtype(data.dtype, jnp.floating) else None
        return self._placed(jnp.asarray(data, dtype=str(as_dtype(dtype)) if dtype is not None else None))

    array = from_numpy = tensor

    def zeros(self, *shape: Any, dtype: Any = None) -> jax.Array:
        """Return zeros of a shape, given as `zeros(3, 4)` or `zeros((3, 4))`."""
        return self._placed(jnp.zeros(_shape(shape), self._dtype(dtype)))

    def ones(self, *shape: Any, dtype: Any = None) -> jax.Array:
        """Return ones of a shape, given as `ones(3, 4)` or `ones((3, 4))`."""
        return self._placed(jnp.ones(_shape(shape), self._dtype(dtype)))

    def ones_like(self, array: Any, dtype: Any = None) -> jax.Array:
        """Return ones of an array's shape and dtype."""
        return self._placed(jnp.ones_like(array, dtype=None if dtype is None else self._dtype(dtype)))

    def zeros_like(self, array: Any, dtype: Any = None) -> jax.Array:
        """Return zeros of an array's shape and dtype."""
        return self._placed(jnp.zeros_like(array, dtype=None if dtype is None else self._dtype(dtype)))

    def arange(self, *bounds: Any, dtype: Any = None) -> jax.Array:
        """Return evenly spaced numbers: `arange(stop)`, `arange(start, stop)` or `arange(start, stop, step)`."""
        return self._placed(jnp.arange(*bounds, dtype=None if dtype is None else self._dtype(dtype)))

    def to_numpy(self, array: Any) -> np.ndarray:
        """Return a NumPy array of the same items."""
        return np.asarray(array)

    def shape(self, array: Any) -> tuple[int, ...]:
        """Return the shape of an array."""
        return jnp.shape(array)

    def dtype(self, array: Any) -> str:
        """Return the name of an array's dtype."""
        return as_dtype(array.dtype)

    # Random numbers

    def set_seed(self, seed: int) -> None:
        """Start the stream of random numbers anew."""
        seed = check_seed(seed)
        self._key = jax.random.key(seed)
        # A seed sequence takes no negative numbers; JAX takes any.
        self._seed, self._drawn = seed % 2**64, 0

    def get_random_key(self) -> jax.Array:
        """Return a fresh key, and move the backend's stream on."""
        self._key, key = jax.random.split(self._key)
        return key

    def split_key(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return two new keys made from one."""
        first, second = jax.random.split(key)
        return first, second

    def randn(self, *shape: Any, dtype: Any = None) -> jax.Array:
        """Return normally distributed numbers."""
        return self._placed(jax.random.normal(self.get_random_key(), _shape(shape), self._dtype(dtype)))

    def rand(self, *shape: Any, dtype: Any = None) -> jax.Array:
        """Return numbers distributed evenly from 0 to 1."""
        return self._placed(jax.random.uniform(self.get_random_key(), _shape(shape), self._dtype(dtype)))

    def random_normal(
        self,
        key: jax.Array | None = None,
        *,
        shape: Any = (),
        mean: float = 0.0,
        stddev: float = 1.0,
        dtype: Any = None,
    ) -> jax.Array:
        """Return normally distributed numbers of a mean and standard deviation, from a key or the backend's stream."""
        key = self.get_random_key() if key is None else key
        return self._placed(mean + stddev * jax.random.normal(key, _shape((shape,)), self._dtype(dtype)))

    # Gradients

    def grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the gradient of a function that gives one number, by its first argument.

        Examples:
            >>> backend = JaxBackend()
            >>> backend.grad(lambda x: backend.reduce_sum(backend.power(x, 2)))(backend.tensor([1.0, 2.0, 3.0]))
            Array([2., 4., 6.], dtype=float32)
        """
        return jax.grad(function)

    def initial_params(self, parameters: tuple[Parameter, ...], seed: int | None = None) -> dict[str, jax.Array]:
        """Return starting values for parameters of known shapes, the same for the same seed.

        Raises:
            UnknownOptionError: The seed is no whole number.
        """
        if seed is None:
            start, self._drawn = (self._seed, self._drawn + 1), self._drawn + 1
        else:
            start = (check_seed(seed) % 2**64,)
        return {
            parameter.name: self._placed(
                jnp.asarray(
                    initial(
                        parameter.initializer, stream(start, parameter.name), tuple(map(int, parameter.spec.shape))
                    ),
                    parameter.spec.dtype,
                )
            )
            for parameter in parameters
        }

    def _dtype(self, dtype: Any) -> str:
        return str(self.default_dtype if dtype is None else as_dtype(dtype))

    def _placed(self, array: jax.Array) -> jax.Array:
        # Without a device of its own the array stays uncommitted, so that JAX may move it to where it is used.
        return array if self.device is None or isinstance(array, Tracer) else jax.device_put(array, self.device)


def _operation(name: str, function: Callable[..., Any], summary: str) -> Callable[..., Any]:
    def operation(self: JaxBackend, *arrays: Any, **options: Any) -> Any:
        with jax.default_matmul_precision(self.precision) if self.precision else _NOTHING:
            return function(*arrays, **options)

    operation.__name__, operation.__qualname__, operation.__doc__ = name, f"JaxBackend.{name}", summary
    return operation


class _Nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


_NOTHING = _Nothing()

_OPERATIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "add": (jnp.add, "Return the sum, item by item."),
    "subtract": (jnp.subtract, "Return the difference, item by item."),
    "multiply": (jnp.multiply, "Return the product, item by item."),
    "divide": (jnp.divide, "Return the quotient, item by item."),
    "power": (jnp.power, "Return the power, item by item."),
    "matmul": (jnp.matmul, "Return the matrix product; of two vectors, their dot product."),
    "sum": (jnp.sum, "Return the sum, over all items or along `axis`."),
    "reduce_sum": (jnp.sum, "Return the sum, over all items or along `axis`."),
    "mean": (jnp.mean, "Return the mean, over all items or along `axis`."),
    "reduce_mean": (jnp.mean, "Return the mean, over all items or along `axis`."),
    "max": (jnp.max, "Return the greatest, of all items or along `axis`."),
    "relu": (jax.nn.relu, "Return what is positive, the rest as zero."),
    "sigmoid": (jax.nn.sigmoid, "Return `1 / (1 + exp(-x))`."),
    "tanh": (jnp.tanh, "Return the hyperbolic tangent."),
    "sin": (jnp.sin, "Return the sine."),
    "cos": (jnp.cos, "Return the cosine."),
    "reshape": (jnp.reshape, "Return the items in another shape."),
    "transpose": (jnp.transpose, "Return the array with its axes reversed, or in a given order."),
    "concat": (jnp.concatenate, "Return a list of arrays joined along `axis`."),
}
for _name, (_function, _summary) in _OPERATIONS.items():
    setattr(JaxBackend, _name, _operation(_name, _function, _summary))


def find_device(text: str | Device) -> Device:
    """Return the device of a name such as `"cpu"`, `"gpu:1"`; a device is returned as it is.

    Raises:
        DeviceNotFoundError: The machine has no such device; the message names those it has.
    """
    if isinstance(text, jax.Device):
        return text
    platform, _, number = str(text).partition(":")
    try:
        if number and not number.isdecimal():
            raise IndexError
        return jax.devices(platform)[int(number or 0)]
    except (RuntimeError, IndexError):
        present = _present_devices()
        raise DeviceNotFoundError(
            f"no device {text!r} on backend 'jax'.", (("present", ", ".join(present)),), f'device="{present[0]}"'
        ) from None


def _present_devices() -> list[str]:
    """Names of all devices, those of JAX's default platform first."""
    devices = list(jax.devices())
    for platform in ("gpu", "tpu", "cpu"):
        try:
            devices += [device for device in jax.devices(platform) if device not in devices]
        except RuntimeError:
            continue  # JAX's way to say that the platform is not here
    return [_device_name(device) for device in devices]


def _device_name(device: Device) -> str:
    return f"{device.platform}:{device.id}"


def _checked_precision(precision: Any) -> str | None:
    if precision is None:
        return None
    name = str(getattr(precision, "name", precision)).lower()
    if name not in _PRECISIONS:
        raise UnknownOptionError(
            f"unknown precision {precision!r}.",
            (("known", "default, high, highest, a jax.lax.Precision, or a dtype's name"),),
            'precision="highest"',
        )
    return _PRECISIONS[name]


def _shape(given: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape from `(3, 4)` given as two numbers or as one sequence."""
    try:
        dims = given[0] if len(given) == 1 and not isinstance(given[0], SupportsIndex) else given
        return tuple(index(dim) for dim in dims)
    except TypeError:
        raise UnknownOptionError(
            f"{given[0] if len(given) == 1 else given!r} is no shape.", (("needs", "sizes"),), "zeros(3, 4)"
        ) from None
