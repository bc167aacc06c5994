"""Import path of the Mithril documentation."""

from mithril_nb.backends.backend import NumpyBackend

__all__ = ["NumpyBackend"]
