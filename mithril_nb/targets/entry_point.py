"""The public function that the user called, so that errors raised below it name it and advise a call of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mithril_nb.errors import short_repr


@dataclass(frozen=True)
class EntryPoint:
    """A public function that accepts the arguments of `ml.inspect`.

    Attributes:
        name: The function as the user writes it, `"ml.sweep"`.
        own: Its additional arguments in this call, as source code.

    Examples:
        >>> EntryPoint("ml.sweep", ("batch=[8, 16]",)).call("model", "x")
        'ml.sweep(model, x, batch=[8, 16])'
    """

    name: str
    own: tuple[str, ...] = ()

    def call(self, *args: str) -> str:
        """Return the source code of a call."""
        return f"{self.name}({', '.join((*args, *self.own))})"


_INSPECT = EntryPoint("ml.inspect")
_ENTRY_POINT: ContextVar[EntryPoint | None] = ContextVar("entry_point", default=None)


def entry_point() -> EntryPoint:
    """Return the public function that the user called."""
    return _ENTRY_POINT.get() or _INSPECT


@contextmanager
def called_as(name: str, **own: Any) -> Iterator[None]:
    """Make errors inside the `with` block name another function than `ml.inspect`.

    Args:
        name: The function as the user writes it.
        **own: Its additional arguments in this call.

    Examples:
        >>> with called_as("ml.assert_cost", flops=500):
        ...     entry_point().call("model", "x")
        'ml.assert_cost(model, x, flops=500)'
    """
    token = _ENTRY_POINT.set(EntryPoint(name, tuple(f"{key}={short_repr(value, 60)}" for key, value in own.items())))
    try:
        yield
    finally:
        _ENTRY_POINT.reset(token)
