"""Import path of the Mithril documentation."""

from mithril_nb.backends.absent import NumpyBackend

__all__ = ["NumpyBackend"]
