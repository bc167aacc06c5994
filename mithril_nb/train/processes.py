"""Training with several processes: the index of this process, and its share of each batch.

`mithril-nb launch` starts the processes. Without it there is one process, whose share is the whole batch.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from mithril_nb.errors import DataError, short_repr

_CHUNK = 1 << 24


@dataclass(frozen=True)
class Processes:
    """Index of this process, and number of processes that train together.

    Attributes:
        index: Index of this process, from 0.
        count: Number of processes.

    Examples:
        >>> me = distributed()
        >>> me.index, me.count, me.is_main
        (0, 1, True)
    """

    index: int
    count: int

    @property
    def is_main(self) -> bool:
        """True for the first process, which prints and saves for all."""
        return self.index == 0

    @cached_property
    def mesh(self) -> Mesh:
        """Mesh of all devices of all processes, with one axis, `"batch"`."""
        # Not jax.make_mesh, which may reorder the devices: the rows of a process must be on its own devices.
        devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        return Mesh(np.array(devices), ("batch",), axis_types=(AxisType.Auto,))

    def rows(self, count: int) -> slice:
        """Return the rows of a whole batch that belong to this process.

        Args:
            count: Rows in the whole batch; a multiple of the number of devices.

        Examples:
            >>> Processes(index=1, count=2).rows(8)
            slice(4, 8, None)
        """
        # Contiguous, because `assemble` joins the shares in the order of the processes.
        return slice(self.index * count // self.count, (self.index + 1) * count // self.count)

    def assemble(self, share: Any) -> Any:
        """Return a tree of global arrays from the rows of each process. With one process, return `share` unchanged.

        Args:
            share: Tree of this process's rows, on the first axis of each array.
        """
        return share if self.count == 1 else self._placed(share, "batch")

    def replicate(self, tree: Any) -> Any:
        """Return a tree of global arrays, replicated on each device. With one process, return `tree` unchanged."""
        return tree if self.count == 1 else self._placed(tree)

    def whole_outputs(self) -> dict[str, Any]:
        """Return options for `jax.jit` that replicate the outputs on each device; an empty dict with one process."""
        return {} if self.count == 1 else {"out_shardings": NamedSharding(self.mesh, PartitionSpec())}

    def _placed(self, tree: Any, *axes: str) -> Any:
        sharding = NamedSharding(self.mesh, PartitionSpec(*axes))

        def to_global(leaf: Any) -> Any:
            data = jax.make_array_from_process_local_data(sharding, numbers(leaf))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf)) if is_key(leaf) else data

        return jax.tree.map(to_global, tree)


# Called for each batch. The processes are fixed once JAX has initialized its backends.
@lru_cache(maxsize=1)
def distributed() -> Processes:
    """Return the index of this process and the number of processes.

    Examples:
        >>> distributed()
        Processes(index=0, count=1)
    """
    return Processes(jax.process_index(), jax.process_count())


def local(tree: Any) -> Any:
    """Return a tree with this process's copy of each replicated array, and all other leaves unchanged.

    Raises:
        DataError: An array is sharded over several processes.
    """

    def own(leaf: Any) -> Any:
        if getattr(leaf, "is_fully_addressable", True):
            return leaf
        if not leaf.is_fully_replicated:
            raise DataError(
                "an array is sharded over several processes: no process has it whole.",
                (("shape", str(leaf.shape)), ("sharding", short_repr(leaf.sharding))),
                "ml.distributed().replicate(array)",
            )
        return leaf.addressable_data(0)

    return jax.tree.map(own, tree)


def placed_like(array: np.ndarray, leaf: Any) -> Any:
    """Return a NumPy array as a JAX array of the kind and the devices of `leaf`: an array, or its spec."""
    if is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    # Keep Python numbers weakly typed: otherwise dtype promotion in the next step changes.
    is_weak = getattr(leaf, "weak_type", not hasattr(leaf, "dtype")) and array.ndim == 0
    return on_devices_of(jnp.asarray(array.item() if is_weak else array), leaf)


def on_devices_of(array: Any, leaf: Any) -> Any:
    """Return a local JAX array on the devices of `leaf`, which may be those of several processes."""
    sharding = getattr(leaf, "sharding", None)
    if sharding is None or len(sharding.device_set) == 1:
        return array
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    data = numbers(array)
    global_array = jax.make_array_from_callback(data.shape, sharding, lambda index: data[index])
    return jax.random.wrap_key_data(global_array, impl=jax.random.key_impl(array)) if is_key(array) else global_array


def fingerprint(tree: Any) -> int:
    """Return a hash of the bytes of the arrays in a tree. Shapes and dtypes do not count."""
    total = 0  # crc32, because Python's own hash of bytes differs between processes
    for leaf in jax.tree.leaves(tree):
        array = np.atleast_1d(numbers(leaf))
        rows = max(1, _CHUNK * len(array) // max(1, array.nbytes))
        for start in range(0, len(array), rows):  # a copy of the whole array may not fit into the memory
            total = zlib.crc32(array[start : start + rows].tobytes(), total)
    return total


def numbers(leaf: Any) -> np.ndarray:
    """Return a leaf as a NumPy array, a random key as its data."""
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def is_key(leaf: Any) -> bool:
    """Return whether a leaf is a key of `jax.random`, which does not convert to a NumPy array."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
