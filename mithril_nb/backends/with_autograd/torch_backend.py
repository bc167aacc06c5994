"""Import path of the Mithril documentation."""

from mithril_nb.backends.backend import TorchBackend

__all__ = ["TorchBackend"]
