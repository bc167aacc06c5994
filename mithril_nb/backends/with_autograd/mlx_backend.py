"""Import path of the Mithril documentation."""

from mithril_nb.backends.backend import MlxBackend

__all__ = ["MlxBackend"]
