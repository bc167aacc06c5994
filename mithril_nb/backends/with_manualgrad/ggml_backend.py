"""Import path of the Mithril documentation."""

from mithril_nb.backends.absent import GGMLBackend

__all__ = ["GGMLBackend"]
