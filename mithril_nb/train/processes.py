"""Which of several processes this one is, and its share of what all of them train on.

`mithril-nb launch` starts the processes; without it there is one, and everything here does nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from mithril_nb.errors import DataError

if TYPE_CHECKING:
    from mithril_nb.train.course import Course
    from mithril_nb.train.data import DataSet
    from mithril_nb.train.state import State

MOST_READ = 256
"""Samples that are read to know some data again."""


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

    def whole_outputs(self) -> dict[str, Any]:
        """Return options for `jax.jit` by which each device holds all outputs whole; with one process, none."""
        return {} if self.count == 1 else {"out_shardings": NamedSharding(self.mesh, PartitionSpec())}

    def _placed(self, tree: Any, *axes: str) -> Any:
        sharding = NamedSharding(self.mesh, PartitionSpec(*axes))

        def place(leaf: Any) -> Any:
            if is_key(leaf):
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

    def own(leaf: Any) -> Any:
        return leaf if getattr(leaf, "is_fully_addressable", True) else leaf.addressable_data(0)

    return jax.tree.map(own, tree)


def spread(course: Course, state: State) -> None:
    """Put the arrays of a run that is about to begin on the devices of all processes; with one, do nothing.

    Raises:
        DataError: A batch cannot be shared out evenly, or the processes are not about to train the same: one that took
            other steps would leave the others waiting.
    """
    me = distributed()
    if me.count == 1:
        return
    devices = len(me.mesh.devices)
    if course.batch_size % devices:
        good = course.batch_size - course.batch_size % devices or devices
        raise DataError(
            "batch_size cannot be shared out evenly.",
            (("batch_size", str(course.batch_size)), ("devices", f"{devices}, of {me.count} processes")),
            f"batch_size={good}",
        )
    arrays = (state.params, state.opt_state)
    _check_agreement(
        {
            "samples": len(course.data),
            "data": data_fingerprint(course.data),
            "batch_size": course.batch_size,
            "epochs": state.epochs,
            "seed": course.seed,
            "step": state.step,
            "params": fingerprint(arrays),
        }
    )
    state.params, state.opt_state = me.replicate(arrays)


def _check_agreement(numbers: Mapping[str, int]) -> None:
    # As text: whole numbers of 64 bits are cut to 32 where x64 is off.
    mine = np.frombuffer(b"".join(f"{value:024d}".encode() for value in numbers.values()), np.uint8)
    table = np.asarray(multihost_utils.process_allgather(mine)).reshape(-1, len(numbers), 24)
    rows = [[int(bytes(cell)) for cell in row] for row in table]
    differs = [place for place in range(len(numbers)) if len({row[place] for row in rows}) > 1]
    if differs:
        names = list(numbers)
        raise DataError(
            "the processes are not about to train the same.",
            tuple((names[place], ", ".join(str(row[place]) for row in rows)) for place in differs),
            "the same data and options in each process; ml.fit takes each one's share of every batch itself.",
        )


def data_fingerprint(data: DataSet) -> int:
    """Return a number that other data, or the same in another order, will hardly have."""
    # Of samples spread over all of it: the whole would take long to read.
    places = np.linspace(0, len(data) - 1, min(len(data), MOST_READ)).astype(np.intp)
    return fingerprint(data.take(places))


def fingerprint(tree: Any) -> int:
    """Return a number that other arrays will hardly have."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        array = np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
        total = zlib.crc32(array.tobytes(), total)
    return total


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a key of `jax.random`, which has no numbers that NumPy knows."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
