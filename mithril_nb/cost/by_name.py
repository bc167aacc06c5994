"""A mapping that knows what it is of, and how a person writes it, for what it says of a name that there is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, TypeVar

Value = TypeVar("Value")


class ByName(dict[str, Value]):
    """What is known of several things by their names.

    Args:
        known: It.
        of: What it is known of: `"costs of 'step'"`.
        called: How a person writes it.
    """

    _usually_called: ClassVar[str] = "cost"

    # `dataclasses.asdict` makes another of the pairs alone, as of any `dict`.
    def __init__(
        self,
        known: Mapping[str, Value] | Iterable[tuple[str, Value]] = (),
        of: str = "these figures",
        called: str = "",
    ):
        super().__init__(known)
        self._of, self._called = of, called or self._usually_called
