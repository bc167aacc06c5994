"""Import path of the Mithril documentation."""

from mithril_nb.backends.absent import MlxBackend

__all__ = ["MlxBackend"]
