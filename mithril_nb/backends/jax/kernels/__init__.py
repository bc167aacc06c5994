"""JAX kernels of the ops: pure functions of arrays, with one module per family."""

from mithril_nb.backends.jax.kernels import (  # noqa: F401 - each registers its kernels
    arithmetic,
    attention,
    classical,
    convolution,
    declared,
    generators,
    layers,
    loops,
    objectives,
    shaping,
)
from mithril_nb.backends.jax.kernels.registry import DRAWS, KERNELS, draws, kernel

__all__ = ["DRAWS", "KERNELS", "draws", "kernel"]
