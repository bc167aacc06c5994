"""The function that a person called: what is refused behind it names it, and advises a call of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mithril_nb.errors import short_repr


@dataclass(frozen=True)
class EntryPoint:
    """A function that takes what `ml.inspect` takes.

    Attributes:
        name: What a person writes to call it.
        own: Arguments that it takes besides and was given, as they are written.

    Examples:
        >>> EntryPoint("ml.sweep", ("batch=[8, 16]",)).call("model", "x")
        'ml.sweep(model, x, batch=[8, 16])'
    """

    name: str
    own: tuple[str, ...] = ()

    def call(self, *args: str) -> str:
        """Return a call of it, as it is written."""
        return f"{self.name}({', '.join((*args, *self.own))})"


_INSPECT = EntryPoint("ml.inspect")
_DOOR: ContextVar[EntryPoint | None] = ContextVar("door", default=None)


def door() -> EntryPoint:
    """Return what the person called."""
    return _DOOR.get() or _INSPECT


@contextmanager
def called_as(name: str, **own: Any) -> Iterator[None]:
    """Have what is refused in here name another function than `ml.inspect`.

    Args:
        name: What the person wrote to call it.
        **own: Arguments that it takes besides and was given.

    Examples:
        >>> with called_as("ml.assert_cost", flops=500):
        ...     door().call("model", "x")
        'ml.assert_cost(model, x, flops=500)'
    """
    token = _DOOR.set(EntryPoint(name, tuple(f"{key}={short_repr(value, 60)}" for key, value in own.items())))
    try:
        yield
    finally:
        _DOOR.reset(token)
