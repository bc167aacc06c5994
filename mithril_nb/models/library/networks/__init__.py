"""Networks and their parts, composed from other blocks."""

from mithril_nb.models.library.networks import feedforward, sequences, transformers
from mithril_nb.models.library.networks.feedforward import *
from mithril_nb.models.library.networks.sequences import *
from mithril_nb.models.library.networks.transformers import *

__all__ = []
__all__ += feedforward.__all__
__all__ += sequences.__all__
__all__ += transformers.__all__
