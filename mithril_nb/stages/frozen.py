"""Frozen dataclasses that are quick to make: there are several of them for each equation of a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import update_wrapper
from typing import Any, TypeVar

Record = TypeVar("Record")


def quick_to_make(cls: type[Record]) -> type[Record]:
    """Let a frozen dataclass write its values into its `__dict__`; nothing else about it changes.

    Its own `__init__` calls `object.__setattr__` for each field, as it has forbidden itself to assign to one: that
    takes three times as long. The new one is made of text as dataclasses make theirs, so that Python itself sees to
    the arguments and to what it says of wrong ones.

    Args:
        cls: A frozen dataclass whose `__init__` takes every field, and which has neither slots, nor `__post_init__`,
            nor fields with a `default_factory`.

    Returns:
        The same class.

    Examples:
        >>> from dataclasses import dataclass
        >>> @quick_to_make
        ... @dataclass(frozen=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1, 2), Point(y=2, x=1) == Point(1, 2), Point(3)
        (Point(x=1, y=2), True, Point(x=3, y=0))
    """
    names = [field.name for field in fields(cls)]  # pyright: ignore[reportArgumentType]
    # Assigned one after the other and always in this order, the keys are kept once for all records of the class.
    lines = "".join(f"    __values__[{name!r}] = {name}\n" for name in names)
    space: dict[str, Callable[..., None]] = {}
    exec(f"def __init__(self, {', '.join(names)}):\n    __values__ = self.__dict__\n{lines}", space)
    plain: Any = cls.__init__
    quick: Any = update_wrapper(space["__init__"], plain)
    quick.__defaults__ = plain.__defaults__
    cls.__init__ = quick
    return cls
