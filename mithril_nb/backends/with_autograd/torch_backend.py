"""Import path of the user's documents."""

from mithril_nb.backends.absent import TorchBackend

__all__ = ["TorchBackend"]
