"""Data parallelism over several devices, at the import path of the Mithril documentation."""

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
    """Return a function that computes the same result on several devices.

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
        )
    platform = backend.device.platform if backend.device else None
    devices = len(jax.devices(platform)) if backend.mesh is None else backend.mesh.size
    count = devices if num_devices is None else num_devices
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UnknownOptionError(
            f"num_devices={num_devices!r} is not a number of devices.",
            (("needs", "an integer, 1 or more"),),
        )
    mesh = make_mesh((count,), platform, "num_devices")
    # Mithril uses PositionalSharding, which JAX 0.10 no longer has.
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    jitted = jax.jit(fn, compiler_options=backend.compiler_options or None)

    def placed(array: Any) -> jax.Array:
        array = jax.numpy.asarray(array)
        if not array.ndim:
            raise ShapeError(
                "an array without axes cannot be split over devices.",
            )
        check_even("an array", array.shape, 0, count)
        return jax.device_put(array, sharding)

    def parallel(*batches: Any) -> Any:
        return jitted(*jax.tree.map(placed, batches))

    return parallel
