"""Import path of the Mithril documentation."""

from mithril_nb.backends.backend import CBackend

__all__ = ["CBackend"]
