"""Import path of the user's documents."""

from mithril_nb.backends.absent import GGMLBackend

__all__ = ["GGMLBackend"]
