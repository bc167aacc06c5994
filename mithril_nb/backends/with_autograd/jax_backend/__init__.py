"""Import path of the Mithril documentation."""

from mithril_nb.backends.jax import JaxBackend

__all__ = ["JaxBackend"]
