"""Import path of the user's documents."""

from mithril_nb.backends.absent import NumpyBackend

__all__ = ["NumpyBackend"]
