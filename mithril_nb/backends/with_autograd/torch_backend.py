"""Import path of the Mithril documentation."""

from mithril_nb.backends.absent import TorchBackend

__all__ = ["TorchBackend"]
