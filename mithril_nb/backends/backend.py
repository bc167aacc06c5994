"""What every backend is: the interface of the user's documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self, SupportsIndex

from mithril_nb.errors import MithrilError, UnavailableBackendError, UnknownOptionError
from mithril_nb.program import Toolkit


class IncompleteBackendError(MithrilError, TypeError):
    """A backend class that lacks a method which every backend has."""


class Backend(ABC):
    """Makes and moves arrays of one array library, and runs models with it.

    A backend of your own defines the three abstract methods, and makes arrays. `ml.compile` takes a `JaxBackend`, or a
    subclass of it.

    Raises:
        IncompleteBackendError: A subclass that lacks one of them is made.

    Examples:
        >>> class Lists(Backend):
        ...     def tensor(self, data, dtype=None):
        ...         return list(data)
        ...     def zeros(self, shape, dtype=None):
        ...         return [0] * shape
        ...     def ones(self, shape, dtype=None):
        ...         return [1] * shape
        >>> Lists().ones(3)
        [1, 1, 1]
    """

    def __new__(cls, *given: Any, **options: Any) -> Self:
        """Refuse a class that lacks a method."""
        # Python's own refusal does not say what to write, and says it otherwise in each version.
        lacking = sorted(getattr(cls, "__abstractmethods__", ()))
        if lacking:
            has = [name for name in ("tensor", "zeros", "ones") if name not in lacking]
            raise IncompleteBackendError(
                f"cannot make a {cls.__name__}: it lacks {', '.join(map(repr, lacking))}.",
                (("has", ", ".join(has) or "none of the methods that every backend has"),),
                f"def {lacking[0]}(self, {'data' if lacking[0] == 'tensor' else 'shape'}, dtype=None): ...",
            )
        return super().__new__(cls)

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
        """Kernels and scopes with which a backend that runs models runs a graph.

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
