"""Classical machine learning: kernel machines, Gaussian processes and manifolds."""

from mithril_nb.models.library.classical import (
    gaussian_processes,
    kernel_machines,
    manifolds,
)
from mithril_nb.models.library.classical.gaussian_processes import *
from mithril_nb.models.library.classical.kernel_machines import *
from mithril_nb.models.library.classical.manifolds import *

__all__ = []
__all__ += gaussian_processes.__all__
__all__ += kernel_machines.__all__
__all__ += manifolds.__all__
