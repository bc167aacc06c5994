"""Which of several processes this one is, and its share of what all of them train on.

`mithril-nb launch` starts the processes; without it there is one, and everything here does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from mithril_nb.errors import DataError


@dataclass(frozen=True)
class Processes:
    """This process among those that train together.

    Attributes:
        index: Which one this is, counted from 0.
        count: How many there are.

    Examples:
        >>> me = distributed()
        >>> me.index, me.count, me.is_main
        (0, 1, True)
    """

    index: int
    count: int

    @property
    def is_main(self) -> bool:
        """Whether this is the process that speaks for all: the one that prints and saves."""
        return self.index == 0

    @property
    def mesh(self) -> Mesh:
        """All devices of all processes in one row, the axis `"batch"`."""
        return _mesh()

    def rows(self, count: int) -> slice:
        """Return which of the rows of a whole batch are this process's share.

        Args:
            count: Rows in the whole batch; a multiple of the number of devices.

        Examples:
            >>> Processes(index=1, count=2).rows(8)
            slice(4, 8, None)
        """
        return slice(self.index * count // self.count, (self.index + 1) * count // self.count)

    def assemble(self, share: Any) -> Any:
        """Return a tree of global arrays, of which each process gives its rows; with one process, what was given.

        Args:
            share: Tree of this process's rows, on the first axis of each array.
        """
        return share if self.count == 1 else self._placed(share, "batch")

    def replicate(self, tree: Any) -> Any:
        """Return a tree of global arrays that each device holds whole; with one process, what was given.

        Args:
            tree: Tree of arrays, the same in each process.
        """
        return tree if self.count == 1 else self._placed(tree)

    def _placed(self, tree: Any, *axes: str) -> Any:
        sharding = NamedSharding(self.mesh, PartitionSpec(*axes))

        def place(leaf: Any) -> Any:
            if hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                data = jax.make_array_from_process_local_data(sharding, np.asarray(jax.random.key_data(leaf)))
                return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
            return jax.make_array_from_process_local_data(sharding, np.asarray(leaf))

        return jax.tree.map(place, tree)


@lru_cache(maxsize=1)
def distributed() -> Processes:
    """Return which process this is, of how many.

    Examples:
        >>> distributed()
        Processes(index=0, count=1)
    """
    return Processes(jax.process_index(), jax.process_count())


@lru_cache(maxsize=1)
def _mesh() -> Mesh:
    # Not jax.make_mesh, which may put the devices in another order: a process's rows must lie on its own devices.
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    return Mesh(np.array(devices), ("batch",), axis_types=(AxisType.Auto,))


def local(tree: Any) -> Any:
    """Return a tree with this process's copy of each array that all processes hold whole."""
    return jax.tree.map(lambda leaf: leaf if leaf.is_fully_addressable else leaf.addressable_data(0), tree)


def check_batches(batch_size: int) -> None:
    """Refuse a batch that cannot be shared out evenly.

    Raises:
        DataError: It cannot.
    """
    me, devices = distributed(), len(jax.devices())
    if me.count > 1 and batch_size % devices:
        good = batch_size - batch_size % devices or devices
        raise DataError(
            "batch_size cannot be shared out evenly.",
            (("batch_size", str(batch_size)), ("devices", f"{devices}, of {me.count} processes")),
            f"batch_size={good}",
        )


def check_agreement(numbers: Mapping[str, int]) -> None:
    """Make sure that all processes are about to do the same; one that did other steps would leave the others waiting.

    Args:
        numbers: What must be the same in each process, by name.

    Raises:
        DataError: It is not.
    """
    if distributed().count == 1:
        return
    # As text: whole numbers of 64 bits are cut to 32 where x64 is off.
    mine = np.frombuffer(b"".join(f"{value:024d}".encode() for value in numbers.values()), np.uint8)
    table = multihost_utils.process_allgather(mine).reshape(-1, len(numbers), 24)
    rows = [[int(bytes(cell)) for cell in row] for row in np.asarray(table)]
    differs = [place for place in range(len(numbers)) if len({row[place] for row in rows}) > 1]
    if differs:
        names = list(numbers)
        raise DataError(
            "the processes are not about to train the same.",
            tuple((names[place], ", ".join(str(row[place]) for row in rows)) for place in differs),
            "the same data and options in each process; ml.fit takes each one's share of every batch itself.",
        )
