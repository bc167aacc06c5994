"""Layers: single operations with parameters or over windows, and attention."""

from mithril_nb.models.library.layers import (
    attention,
    convolution,
    linear,
    mithril_windows,
    normalization,
    pooling,
    recurrent,
    recurrent_cells,
)
from mithril_nb.models.library.layers.attention import *
from mithril_nb.models.library.layers.convolution import *
from mithril_nb.models.library.layers.linear import *
from mithril_nb.models.library.layers.mithril_windows import *
from mithril_nb.models.library.layers.normalization import *
from mithril_nb.models.library.layers.pooling import *
from mithril_nb.models.library.layers.recurrent import *
from mithril_nb.models.library.layers.recurrent_cells import *

__all__ = []
__all__ += attention.__all__
__all__ += convolution.__all__
__all__ += linear.__all__
__all__ += mithril_windows.__all__
__all__ += normalization.__all__
__all__ += pooling.__all__
__all__ += recurrent.__all__
__all__ += recurrent_cells.__all__
