"""Import path of the user's documents."""

from mithril_nb.backends.absent import MlxBackend

__all__ = ["MlxBackend"]
