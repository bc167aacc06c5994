"""Import path of the Mithril documentation."""

from mithril_nb.backends.backend import GGMLBackend

__all__ = ["GGMLBackend"]
