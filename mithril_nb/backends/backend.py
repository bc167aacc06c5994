"""What every backend is: the interface of the user's documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from mithril_nb.errors import UnavailableBackendError
from mithril_nb.program import Toolkit


class Backend(ABC):
    """Makes and moves arrays of one array library, and runs models with it.

    A backend of your own defines the three abstract methods; `toolkit` is needed to run models on it.
    """

    @abstractmethod
    def tensor(self, data: Any, dtype: Any = None) -> Any:
        """Return an array of the data."""

    @abstractmethod
    def zeros(self, *shape: Any, dtype: Any = None) -> Any:
        """Return an array of zeros."""

    @abstractmethod
    def ones(self, *shape: Any, dtype: Any = None) -> Any:
        """Return an array of ones."""

    @property
    def toolkit(self) -> Toolkit:
        """Kernels and scopes with which this backend runs a graph.

        Raises:
            UnavailableBackendError: The backend makes arrays only.
        """
        raise UnavailableBackendError(
            f"{type(self).__name__} brings no kernels: it cannot run models.", advice="ml.JaxBackend()"
        )
