"""Functions over several devices: import path of the user's documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.backends.jax.devices import check_even, make_mesh
from mithril_nb.errors import ShapeError, UnknownOptionError


def data_parallel(
    fn: Callable[..., Any], backend: JaxBackend | None = None, num_devices: int | None = None
) -> Callable[..., Any]:
    """Return a function that gives the same as another, computed on several devices at once.

    The first axis of each array that it is given is split over the devices; the compiler makes the rest follow, and
    puts in the sums between devices where the function asks for any. The results lie where they were made.

    Args:
        fn: A function of arrays, or of trees of arrays, all with the batch as their first axis.
        backend: Whose devices to use; those of its mesh, if it has one and `num_devices` is left out.
        num_devices: How many of them; by default all.

    Returns:
        The function, jitted.

    Raises:
        UnknownOptionError: What is no function, or no number.
        DeviceNotFoundError: More devices than there are.
        ShapeError: From the function, for an array whose first axis cannot be split evenly.

    Examples:
        >>> backend = JaxBackend()
        >>> rows = data_parallel(lambda x: x.sum(axis=1), backend=backend, num_devices=1)
        >>> rows(backend.ones(4, 3))
        Array([3., 3., 3., 3.], dtype=float32)
    """
    backend = JaxBackend() if backend is None else backend
    if not callable(fn) or not isinstance(backend, JaxBackend):
        wrong = fn if not callable(fn) else backend
        raise UnknownOptionError(
            f"cannot run {wrong!r} on several devices.",
            (("needs", "a function of arrays, and a JaxBackend"),),
            "data_parallel(fn, backend=ml.JaxBackend())",
        )
    platform = backend.device.platform if backend.device else None
    devices = len(jax.devices(platform)) if backend.mesh is None else backend.mesh.size
    count = devices if num_devices is None else num_devices
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UnknownOptionError(
            f"num_devices={num_devices!r} is no number of devices.",
            (("needs", "a whole number from 1"),),
            f"num_devices={devices}",
        )
    mesh = make_mesh((count,), platform, "num_devices")
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    jitted = jax.jit(fn, compiler_options=backend.compiler_options or None)

    def placed(array: Any) -> jax.Array:
        array = jax.numpy.asarray(array)
        if not array.ndim:
            raise ShapeError(
                "an array without axes cannot be split over devices.",
                advice="lambda x: fn(x, rate)  # a closure over it",
            )
        check_even("an array", array.shape, 0, count)
        return jax.device_put(array, sharding)

    def parallel(*batches: Any) -> Any:
        return jitted(*jax.tree.map(placed, batches))

    return parallel
