"""Classical machine learning: kernel machines, Gaussian processes and manifolds."""

from mithril_nb.models.library.classical import kernel_machines, manifolds, operators
from mithril_nb.models.library.classical.kernel_machines import *
from mithril_nb.models.library.classical.manifolds import *
from mithril_nb.models.library.classical.operators import *

__all__ = []
__all__ += kernel_machines.__all__
__all__ += manifolds.__all__
__all__ += operators.__all__
