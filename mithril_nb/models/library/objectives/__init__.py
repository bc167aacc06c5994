"""Objectives: losses, regularizers and metrics."""

from mithril_nb.models.library.objectives import losses, metrics
from mithril_nb.models.library.objectives.losses import *
from mithril_nb.models.library.objectives.metrics import *

__all__ = []
__all__ += losses.__all__
__all__ += metrics.__all__
