"""The interface of all backends, as in the Mithril documentation, and checks and warnings about options."""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self, SupportsIndex

from mithril_nb.errors import MithrilError, UnavailableBackendError, UnknownOptionError
from mithril_nb.program import Toolkit

_OURS = {__name__.partition(".")[0], "jax", "contextlib", "functools", "importlib"}
"""Packages to skip in the call stack. JAX is among them, because it calls the functions that it traces."""


class MithrilWarning(UserWarning):
    """An option has no effect, or an expensive effect. The message contains the option and the reason."""


def notice(text: str) -> None:
    """Show a warning at the line of the user's code that called this package. Python shows it once per line."""
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, MithrilWarning, stacklevel=level)


class IncompleteBackendError(MithrilError, TypeError):
    """A backend class lacks an abstract method."""


class Backend(ABC):
    """Creates arrays of one array library, and runs models with it.

    A custom backend defines `tensor`, `zeros` and `ones`. It creates arrays, but it cannot run models: `ml.compile`
    accepts only a `JaxBackend`, `NumpyBackend`, `TorchBackend`, `MlxBackend`, `CBackend` or `GGMLBackend`.

    Raises:
        IncompleteBackendError: The constructed subclass lacks an abstract method.

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

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Reject a class that lacks an abstract method."""
        # Python's own message does not show what to write, and differs between versions.
        lacking = sorted(getattr(cls, "__abstractmethods__", ()))
        if lacking:
            has = [name for name in ("tensor", "zeros", "ones") if name not in lacking]
            raise IncompleteBackendError(
                f"cannot construct {cls.__name__}: it lacks {', '.join(map(repr, lacking))}.",
                (("has", ", ".join(has) or "no required method"),),
            )
        return super().__new__(cls)

    @abstractmethod
    def tensor(self, data: Any, dtype: Any = None) -> Any:
        """Convert data to an array."""

    @abstractmethod
    def zeros(self, *shape: Any, dtype: Any = None) -> Any:
        """Return an array of zeros."""

    @abstractmethod
    def ones(self, *shape: Any, dtype: Any = None) -> Any:
        """Return an array of ones."""

    @property
    def toolkit(self) -> Toolkit:
        """The kernels of the ops, and other functions with which the backend runs a graph.

        Raises:
            UnavailableBackendError: The backend creates arrays, but cannot run models.
        """
        raise UnavailableBackendError(
            f"{type(self).__name__} has no kernels, so it cannot run models.", advice="ml.JaxBackend()"
        )


def check_seed(seed: Any) -> int:
    """Return a seed as an integer of 64 bits."""
    if isinstance(seed, bool) or not isinstance(seed, SupportsIndex):
        raise UnknownOptionError(f"cannot use {seed!r} as a seed.", (("needs", "an integer"),))
    if not -(2**63) <= int(seed) < 2**63:
        raise UnknownOptionError(f"cannot use {seed!r} as a seed.", (("needs", "an integer from -2**63 to 2**63 - 1"),))
    return int(seed)


def check_count(name: str, value: Any) -> int:
    """Return the value of an option as an int, such as a number of epochs."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or int(value) < 1:
        raise UnknownOptionError(f"{name} must be an integer of at least 1.", (("got", repr(value)),))
    return int(value)


def check_switch(name: str, value: Any) -> None:
    """Check that an option is a bool or `None`."""
    if value is not None and not isinstance(value, bool):
        raise UnknownOptionError(f"{name}={value!r} must be a bool.", (("needs", "True or False"),))


def convert_params(params: Mapping[str, Any], backend: Any, other: Any) -> dict[str, Any]:
    """Return parameters as arrays of another backend."""
    target = getattr(other, "backend", other)
    if not hasattr(target, "tensor"):
        raise UnknownOptionError(
            f"cannot convert parameters for {other!r}.",
            (("needs", "a backend, or a compiled model"),),
        )
    return {
        name: convert_params(value, backend, other)
        if isinstance(value, Mapping)
        else target.tensor(backend.to_numpy(value))
        for name, value in params.items()
    }
