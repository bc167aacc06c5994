"""What runs each op on JAX: pure functions of arrays, traced once, a module for each family."""

from mithril_nb.backends.jax.kernels import activations, layers, values
from mithril_nb.backends.jax.kernels.registry import DRAWS, KERNELS, draws, kernel

__all__ = ["DRAWS", "KERNELS", "activations", "draws", "kernel", "layers", "values"]
