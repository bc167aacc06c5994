"""What runs each op on JAX: pure functions of arrays, traced once, a module for each family."""

from mithril_nb.backends.jax.kernels import (  # noqa: F401 - each registers its kernels
    activations,
    arithmetic,
    attention,
    classical,
    control,
    convolution,
    generators,
    layers,
    logic,
    losses,
    metrics,
    normalization,
    recurrent,
    reductions,
    shaping,
    statics,
    values,
)
from mithril_nb.backends.jax.kernels.registry import DRAWS, KERNELS, draws, kernel

__all__ = ["DRAWS", "KERNELS", "draws", "kernel"]
