"""What every backend is: the interface of the user's documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, SupportsIndex

from mithril_nb.errors import UnavailableBackendError, UnknownOptionError
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


def check_seed(seed: Any) -> int:
    """Return a seed as a whole number of 64 bits.

    Raises:
        UnknownOptionError: It is none.
    """
    if isinstance(seed, bool) or not isinstance(seed, SupportsIndex):
        raise UnknownOptionError(f"cannot use {seed!r} as a seed.", (("needs", "a whole number"),), "seed=42")
    if not -(2**63) <= int(seed) < 2**63:
        raise UnknownOptionError(
            f"cannot use {seed!r} as a seed.", (("needs", "a whole number from -2**63 to 2**63 - 1"),), "seed=42"
        )
    return int(seed)


def check_switch(name: str, value: Any, advice: str) -> None:
    """Raise if an option is neither on, nor off, nor left out.

    Raises:
        UnknownOptionError: It is something else.
    """
    if value is not None and not isinstance(value, bool):
        raise UnknownOptionError(
            f"{name}={value!r} neither switches on nor off.", (("needs", "True or False"),), advice
        )
