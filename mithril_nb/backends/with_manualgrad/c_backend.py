"""Import path of the Mithril documentation."""

from mithril_nb.backends.absent import CBackend

__all__ = ["CBackend"]
