"""Layers: single operations with parameters or over windows, and attention."""

from mithril_nb.models.library.layers import attention, linear, normalization, recurrent, windows
from mithril_nb.models.library.layers.attention import *
from mithril_nb.models.library.layers.linear import *
from mithril_nb.models.library.layers.normalization import *
from mithril_nb.models.library.layers.recurrent import *
from mithril_nb.models.library.layers.windows import *

__all__ = []
__all__ += attention.__all__
__all__ += linear.__all__
__all__ += normalization.__all__
__all__ += recurrent.__all__
__all__ += windows.__all__
