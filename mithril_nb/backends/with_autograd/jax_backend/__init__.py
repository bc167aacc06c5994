"""Import path of the user's documents."""

from mithril_nb.backends.jax import JaxBackend

__all__ = ["JaxBackend"]
