"""Figures by role: a mapping that says which roles there are when it is asked for one that there is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from mithril_nb.errors import UnknownOptionError, nearest, short_repr

Value = TypeVar("Value")


class ByRole(dict[str, Value]):
    """What is known of each part of a step by its role; `""` is what has none.

    Args:
        known: It.
        of: What it is known of, for errors: `"costs of 'step'"`.
        called: How a person writes it, for errors.

    Examples:
        >>> roles = ByRole({"forward": 2, "backward": 4, "update": 0}, "costs of 'step'")
        >>> roles["backward"], roles.get("back")
        (4, None)
        >>> roles["forwards"]
        Traceback (most recent call last):
        mithril_nb.errors.UnknownOptionError: costs of 'step' have no role 'forwards'.
            roles  forward, backward, update
            Try: cost.by_role["forward"]
    """

    # `dataclasses.asdict` makes another of the pairs alone, as of any `dict`.
    def __init__(
        self,
        known: Mapping[str, Value] | Iterable[tuple[str, Value]] = (),
        of: str = "these figures",
        called: str = "cost.by_role",
    ):
        super().__init__(known)
        self._of, self._called = of, called

    def __missing__(self, role: object) -> Value:
        known = [one for one in self if one]
        near = nearest(role, known) or next(iter(known), "forward")
        raise UnknownOptionError(
            f"{self._of} have no role {short_repr(role)}.",
            (("roles", ", ".join(known) or "none"),),
            f'{self._called}["{near}"]',
        )
