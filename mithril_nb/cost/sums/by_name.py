"""A dict whose error for a missing key names what the dict describes, and suggests the nearest key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, TypeVar

Value = TypeVar("Value")


class ByName(dict[str, Value]):
    """A dict with a description of itself for error messages.

    Args:
        known: The items.
        of: What the elements describe: `"costs of 'step'"`.
        called: The expression that gives this dict: `"cost.by_block"`.
    """

    _usually_called: ClassVar[str] = "cost"

    # `dataclasses.asdict` copies any dict from its pairs alone, so the other arguments have defaults.
    def __init__(
        self,
        known: Mapping[str, Value] | Iterable[tuple[str, Value]] = (),
        of: str = "these figures",
        called: str = "",
    ):
        super().__init__(known)
        self._of, self._called = of, called or self._usually_called
