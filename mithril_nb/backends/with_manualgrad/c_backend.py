"""Import path of the user's documents."""

from mithril_nb.backends.absent import CBackend

__all__ = ["CBackend"]
