"""The JAX backend: arrays, kernels, and jitted programs."""

from mithril_nb.backends.jax.backend import JaxBackend

__all__ = ["JaxBackend"]
