"""Objectives: losses, regularizers and metrics."""

from mithril_nb.models.library.objectives import counting, cross_entropies, losses, metrics
from mithril_nb.models.library.objectives.counting import *
from mithril_nb.models.library.objectives.cross_entropies import *
from mithril_nb.models.library.objectives.losses import *
from mithril_nb.models.library.objectives.metrics import *

__all__ = []
__all__ += counting.__all__
__all__ += cross_entropies.__all__
__all__ += losses.__all__
__all__ += metrics.__all__
