"""Operations on arrays, without parameters."""

from mithril_nb.models.library.operations import (
    activations,
    elementwise,
    generators,
    indexing,
    reductions,
    reshaping,
    statics,
)
from mithril_nb.models.library.operations.activations import *
from mithril_nb.models.library.operations.elementwise import *
from mithril_nb.models.library.operations.generators import *
from mithril_nb.models.library.operations.indexing import *
from mithril_nb.models.library.operations.reductions import *
from mithril_nb.models.library.operations.reshaping import *
from mithril_nb.models.library.operations.statics import *

__all__ = []
__all__ += activations.__all__
__all__ += elementwise.__all__
__all__ += generators.__all__
__all__ += indexing.__all__
__all__ += reductions.__all__
__all__ += reshaping.__all__
__all__ += statics.__all__
