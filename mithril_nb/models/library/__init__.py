"""The built-in blocks. Each folder builds on the folders before it."""

from mithril_nb.models.library import classical, layers, networks, objectives, operations
from mithril_nb.models.library.classical import *
from mithril_nb.models.library.layers import *
from mithril_nb.models.library.networks import *
from mithril_nb.models.library.objectives import *
from mithril_nb.models.library.operations import *

__all__ = []
__all__ += operations.__all__
__all__ += layers.__all__
__all__ += networks.__all__
__all__ += objectives.__all__
__all__ += classical.__all__
