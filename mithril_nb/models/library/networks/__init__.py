"""Networks and their parts, composed from other blocks."""

from mithril_nb.models.library.networks import containers, sequences, transformers, vision
from mithril_nb.models.library.networks.containers import *
from mithril_nb.models.library.networks.sequences import *
from mithril_nb.models.library.networks.transformers import *
from mithril_nb.models.library.networks.vision import *

__all__ = []
__all__ += containers.__all__
__all__ += sequences.__all__
__all__ += transformers.__all__
__all__ += vision.__all__
