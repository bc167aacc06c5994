"""Arrays of the JAX backend: creation, random numbers, and the operations of `operations.py`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from operator import index
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.core import Tracer
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from mithril_nb.backends.backend import Backend, check_seed, notice
from mithril_nb.backends.jax.devices import Device, make_mesh, mesh_shape, split_over
from mithril_nb.backends.jax.operations import OPERATIONS, SPELLINGS, operation_error
from mithril_nb.errors import MithrilError, UnknownOptionError, short_repr
from mithril_nb.graph.spec import ITEM_BYTES, as_dtype


class ArrayMaker(Backend):
    """The part of `JaxBackend` that creates arrays and computes with them.

    Attributes:
        default_dtype: Dtype of floating-point arrays.
        device: Device of new arrays; `None` for JAX's default device.
        mesh: Mesh of devices that programs run on; `None` without one.
        precision: Precision of matrix products.
        debug: True if an operation that computes NaN raises an error.
    """

    default_dtype: str
    device: Device | None
    mesh: Mesh | AbstractMesh | None
    precision: str | None
    debug: bool

    def tensor(self, data: Any, dtype: Any = None) -> jax.Array:
        """Convert data to an array. Floating-point data gets the backend's dtype, unless `dtype` is passed.

        Raises:
            UnknownOptionError: The data is not numeric, or contains integers that do not fit JAX's 32 bits.

        Examples:
            >>> from mithril_nb import JaxBackend
            >>> JaxBackend().tensor([1, 2, 3], dtype="float32")
            Array([1., 2., 3.], dtype=float32)
        """
        data, array_dtype = _numpy(data), None if dtype is None else self._dtype(dtype)
        if array_dtype is None and jnp.issubdtype(data.dtype, jnp.floating):
            array_dtype = self._dtype(None)
        if array_dtype is None or "int" in array_dtype:
            check_width(data)
        return self._placed(jnp.asarray(data, dtype=array_dtype))

    array = from_numpy = tensor

    def zeros(self, *shape: Any, dtype: Any = None, device_mesh: Any = None, tensor_split: Any = (0,)) -> jax.Array:
        """Return zeros of a shape, `zeros(3, 4)` or `zeros((3, 4))`. See `ones` for the other arguments."""
        return self._spread(self._run("zeros", jnp.zeros, _shape(shape), self._dtype(dtype)), device_mesh, tensor_split)

    def ones(self, *shape: Any, dtype: Any = None, device_mesh: Any = None, tensor_split: Any = (0,)) -> jax.Array:
        """Return ones of a shape, `ones(3, 4)` or `ones((3, 4))`.

        Args:
            shape: The shape.
            dtype: Dtype; default: the backend's.
            device_mesh: Number of devices along each axis of a mesh to shard the array over; default: no sharding.
            tensor_split: For each axis of the mesh, the axis of the array that is split over it, or `None`.

        Raises:
            ShapeError: An axis cannot be split evenly.
            DeviceNotFoundError: The machine has fewer devices.
        """
        return self._spread(self._run("ones", jnp.ones, _shape(shape), self._dtype(dtype)), device_mesh, tensor_split)

    def full(
        self, shape: Any, value: Any, *, dtype: Any = None, device_mesh: Any = None, tensor_split: Any = (0,)
    ) -> jax.Array:
        """Return an array filled with one number. See `ones` for the other arguments."""
        name = self._dtype(dtype)
        # Not the number itself: `tensor` checks that an integer fits the dtype.
        array = self._run("full", jnp.full, shape=_shape((shape,)), fill_value=self.tensor(value, name))
        return self._spread(array, device_mesh, tensor_split)

    def eye(self, rows: int, columns: int | None = None, *, dtype: Any = None) -> jax.Array:
        """Return a matrix with ones on the diagonal and zeros elsewhere."""
        return self._placed(self._run("eye", jnp.eye, rows, columns, dtype=self._dtype(dtype)))

    def ones_like(self, array: Any, dtype: Any = None) -> jax.Array:
        """Return ones with the shape, dtype and device of an array."""
        return self._like("ones_like", jnp.ones_like, array, dtype)

    def zeros_like(self, array: Any, dtype: Any = None) -> jax.Array:
        """Return zeros with the shape, dtype and device of an array."""
        return self._like("zeros_like", jnp.zeros_like, array, dtype)

    def full_like(self, array: Any, value: Any, dtype: Any = None) -> jax.Array:
        """Return an array filled with one number, with the shape, dtype and device of an array."""
        filling = self.tensor(value, jnp.result_type(array) if dtype is None else dtype)
        return self._like("full_like", jnp.full_like, array, dtype, filling)

    def arange(self, *bounds: Any, dtype: Any = None) -> jax.Array:
        """Return evenly spaced numbers: `arange(stop)`, `arange(start, stop)` or `arange(start, stop, step)`."""
        name = None if dtype is None else self._dtype(dtype)
        for bound in bounds:
            check_width(_numpy(bound))
        return self._placed(self._run("arange", jnp.arange, *bounds, dtype=name))

    def linspace(self, start: float, stop: float, count: int = 50, *, dtype: Any = None) -> jax.Array:
        """Return evenly spaced numbers from `start` to `stop`, both included."""
        return self._placed(self._run("linspace", jnp.linspace, start, stop, count, dtype=self._dtype(dtype)))

    def to_numpy(self, array: Any) -> np.ndarray:
        """Convert an array to NumPy."""
        return np.asarray(array)

    def shape(self, array: Any) -> tuple[int, ...]:
        """Return the shape of an array."""
        return jnp.shape(array)

    def dtype(self, array: Any) -> str:
        """Return the name of an array's dtype."""
        return as_dtype((array if hasattr(array, "dtype") else self.tensor(array)).dtype)

    # Random numbers

    def set_seed(self, seed: int) -> None:
        """Restart the random stream from a seed."""
        seed = check_seed(seed)
        self._start, self._key = seed, None
        # np.random.SeedSequence rejects negative numbers; JAX accepts them.
        self._seed, self._drawn = seed % 2**64, 0

    def get_random_key(self) -> jax.Array:
        """Return a new key, and advance the backend's random stream.

        During tracing, the key becomes a constant of the program, so each run draws the same numbers.
        """
        # The stream outlives a trace, so its key must not be a tracer.
        with jax.ensure_compile_time_eval():
            # Create the key on first use: JAX compiles a program for it, which takes longer than composing a GPT.
            before = jax.random.key(self._start) if self._key is None else self._key
            self._key, key = jax.random.split(before)
        return key

    def split_key(self, key: jax.Array, num: int = 2) -> tuple[jax.Array, ...]:
        """Return `num` new keys, computed from a key."""
        if isinstance(num, bool) or not isinstance(num, SupportsIndex) or index(num) < 1:
            raise UnknownOptionError(f"cannot split a key into {num!r}.", (("needs", "an integer, 1 or more"),))
        return tuple(self._run("split_key", jax.random.split, _checked_key(key), index(num)))

    def randn(self, *shape: Any, dtype: Any = None, device_mesh: Any = None, tensor_split: Any = (0,)) -> jax.Array:
        """Return numbers from the standard normal distribution. See `ones` for the other arguments."""
        drawn = self._random("randn", jax.random.normal, None, shape=_shape(shape), dtype=self._dtype(dtype))
        return self._spread(drawn, device_mesh, tensor_split)

    def rand(self, *shape: Any, dtype: Any = None, device_mesh: Any = None, tensor_split: Any = (0,)) -> jax.Array:
        """Return uniformly distributed numbers in [0, 1). See `ones` for the other arguments."""
        drawn = self._random("rand", jax.random.uniform, None, shape=_shape(shape), dtype=self._dtype(dtype))
        return self._spread(drawn, device_mesh, tensor_split)

    def randint(
        self, low: int, high: int, *shape: Any, dtype: Any = "int32", key: jax.Array | None = None
    ) -> jax.Array:
        """Return random integers from `low` to `high - 1`: `randint(0, 10, 3, 4)`.

        Raises:
            UnknownOptionError: `low` is not below `high`, or a bound does not fit the dtype.
        """
        name = self._dtype(dtype)
        if isinstance(low, int) and isinstance(high, int) and "int" in name:
            least, most = int(np.iinfo(name).min), int(np.iinfo(name).max)
            if not least <= low < high <= most:
                raise UnknownOptionError(
                    f"randint cannot draw integers x with {low} <= x < {high}.",
                    (("needs", f"low < high, both from {least} to {most}"), ("dtype", name)),
                )
        integers = partial(jax.random.randint, shape=_shape(shape), dtype=name)
        return self._placed(
            self._random("randint", lambda key, low, high: integers(key, minval=low, maxval=high), key, low, high)
        )

    def random_normal(
        self,
        key: jax.Array | None = None,
        *,
        shape: Any = (),
        mean: float = 0.0,
        stddev: float = 1.0,
        dtype: Any = None,
    ) -> jax.Array:
        """Return normally distributed numbers. If `key` is `None`, they come from the backend's stream."""
        shape, name = _shape((shape,)), self._dtype(dtype)

        def normal(key: jax.Array, mean: Any, stddev: Any) -> jax.Array:
            return mean + stddev * jax.random.normal(key, shape, name)

        return self._placed(self._random("random_normal", normal, key, mean, stddev))

    def random_uniform(
        self, key: jax.Array | None = None, *, shape: Any = (), low: float = 0.0, high: float = 1.0, dtype: Any = None
    ) -> jax.Array:
        """Return uniform numbers in [low, high). If `key` is `None`, they come from the backend's stream."""
        uniform = partial(jax.random.uniform, shape=_shape((shape,)), dtype=self._dtype(dtype))
        return self._placed(
            self._random("random_uniform", lambda key, low, high: uniform(key, minval=low, maxval=high), key, low, high)
        )

    def random_bernoulli(self, key: jax.Array | None = None, *, shape: Any = (), p: float = 0.5) -> jax.Array:
        """Return booleans that are true with probability `p`. If `key` is `None`, they come from the backend's stream.

        Raises:
            UnknownOptionError: `p` is not a probability.
        """
        chance = _numpy(p)
        if not isinstance(chance, Tracer) and not bool(((chance >= 0) & (chance <= 1)).all()):
            raise UnknownOptionError(f"p={short_repr(p)} is not a probability.", (("needs", "a number from 0 to 1"),))
        chance = jnp.asarray(chance, str(self.default_dtype))
        return self._placed(self._random("random_bernoulli", jax.random.bernoulli, key, chance, shape=_shape((shape,))))

    def permutation(self, items: Any, key: jax.Array | None = None) -> jax.Array:
        """Return the rows of an array, or the integers below a number, in random order."""
        return self._placed(self._random("permutation", jax.random.permutation, key, items))

    def _random(self, name: str, function: Callable[..., Any], key: Any, *numbers: Any, **options: Any) -> jax.Array:
        for number in numbers:
            _numpy(number)  # raises for values that are no arrays; JAX's message would describe its internals
        fresh = self.get_random_key() if key is None else _checked_key(key)
        drawn = self._run(name, partial(function, fresh), *numbers, **options)
        if key is None and isinstance(drawn, Tracer):
            notice(
                f"{name} uses the backend's random stream during tracing, so each run of that program draws the same "
                "numbers. Pass a key to the program, and draw with backend.random_normal(key, shape=...)."
            )
        return drawn

    def _like(self, name: str, function: Callable[..., Any], array: Any, dtype: Any, *value: Any) -> jax.Array:
        array_dtype = None if dtype is None else self._dtype(dtype)
        return self._placed(self._run(name, function, array, *value, dtype=array_dtype), array)

    def _dtype(self, dtype: Any) -> str:
        name = str(self.default_dtype if dtype is None else as_dtype(dtype))
        # complex64 has two numbers of 32 bits, which JAX creates without the x64 mode.
        if ITEM_BYTES[name] > (8 if "complex" in name else 4) and not jax.config.jax_enable_x64:  # pyright: ignore
            raise _too_wide(name)
        return name

    def _placed(self, array: jax.Array, like: Any = None) -> jax.Array:
        # If the backend has no device, leave the array uncommitted, so that JAX may move it to where it is used.
        if self.device is None or isinstance(array, Tracer):
            return array
        if like is not None and getattr(like, "committed", False):
            return jax.device_put(array, like.sharding)
        # With a mesh, replicate the array: otherwise only one of its devices would hold it.
        where = NamedSharding(self.mesh, PartitionSpec()) if isinstance(self.mesh, Mesh) else self.device
        return jax.device_put(array, where)

    def _spread(self, array: jax.Array, device_mesh: Any, tensor_split: Any) -> jax.Array:
        if device_mesh is None:
            return self._placed(array)
        shape = mesh_shape(device_mesh)
        if isinstance(self.mesh, Mesh) and tuple(self.mesh.shape.values()) == shape:
            mesh = self.mesh
        else:
            mesh = make_mesh(shape, self.device.platform if self.device else None)
        return jax.device_put(array, split_over(mesh, array.shape, tensor_split))

    def _run(self, name: str, function: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
        with ExitStack() as settings:
            if self.precision:
                settings.enter_context(jax.default_matmul_precision(self.precision))
            if self.debug:
                settings.enter_context(jax.debug_nans(True))
            try:
                return function(*arrays, **options)
            except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
                # A ShapeError is a ValueError too, and already has its message.
                if isinstance(error, MithrilError):
                    raise
                raise operation_error(name, arrays, options, error) from None


def _operation(name: str, function: Callable[..., Any], summary: str) -> Callable[..., Any]:
    def operation(self: ArrayMaker, *arrays: Any, **options: Any) -> Any:
        return self._run(name, function, *arrays, **options)

    operation.__name__, operation.__qualname__, operation.__doc__ = name, f"JaxBackend.{name}", summary
    return operation


for _name, (_function, _summary) in OPERATIONS.items():
    setattr(ArrayMaker, _name, _operation(_name, _function, _summary))
for _second, _first in SPELLINGS.items():
    setattr(ArrayMaker, _second, getattr(ArrayMaker, _first))


def check_width(data: Any) -> None:
    """Check that integers fit 32 bits, because JAX truncates 64-bit integers unless its x64 mode is on.

    Examples:
        >>> check_width(np.array([2**31 - 1]))
    """
    is_wide = isinstance(data, np.ndarray | np.generic) and data.dtype in ("int64", "uint64") and data.size
    if is_wide and not jax.config.jax_enable_x64:  # pyright: ignore
        bounds, extremes = np.iinfo(str(data.dtype).replace("64", "32")), (int(data.min()), int(data.max()))
        outside = [number for number in extremes if not bounds.min <= number <= bounds.max]
        if outside:
            raise _too_wide(str(data.dtype), (("number", str(outside[0])),))


def _too_wide(name: str, facts: tuple[tuple[str, str], ...] = ()) -> UnknownOptionError:
    return UnknownOptionError(
        f"JAX creates arrays of {name} only in its x64 mode, which is off.",
        (*facts, ("because", "JAX uses 32 bits by default, and would truncate these")),
        "backend.enable_x64()",
    )


def _checked_key(key: Any) -> jax.Array:
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == "uint32"):
        raise UnknownOptionError(
            f"{short_repr(key)} is not a random key.",
            (("needs", "one of backend.get_random_key(), split_key(key) or jax.random.key(seed)"),),
        )
    return key


def _numpy(data: Any) -> Any:
    if isinstance(data, jax.Array):
        return data
    try:
        array = np.asarray(data)
        if array.dtype == object or array.dtype.kind in "USV":
            raise ValueError
    except ValueError:
        raise UnknownOptionError(
            "cannot convert the value to an array.",
            (("given", short_repr(data)), ("needs", "numbers, or nested lists of numbers of equal lengths")),
        ) from None
    return array


def _shape(args: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        dims = args[0] if len(args) == 1 and not isinstance(args[0], SupportsIndex) else args
        # A symbolic size has no integer value, so `index` would raise an error.
        sizes = tuple(dim if export.is_symbolic_dim(dim) else index(dim) for dim in dims)
        if any(isinstance(size, int) and size < 0 for size in sizes):
            raise TypeError
        return sizes
    except TypeError:
        raise UnknownOptionError(
            f"{args[0] if len(args) == 1 else args!r} is not a shape.", (("needs", "sizes"),)
        ) from None
