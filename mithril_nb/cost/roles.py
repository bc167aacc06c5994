"""Figures by role: a mapping that says which roles there are when it is asked for one that there is not."""

from __future__ import annotations

from mithril_nb.cost.by_name import ByName, Value
from mithril_nb.errors import UnknownOptionError, nearest, short_repr


class ByRole(ByName[Value]):
    """What is known of each part of a step by its role; `""` is what has none.

    Args:
        known: It.
        of: What it is known of, for errors: `"costs of 'step'"`.
        called: How a person writes it, for errors; by default `"cost.by_role"`.

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

    _usually_called = "cost.by_role"

    def __missing__(self, role: object) -> Value:
        known = [one for one in self if one]
        near = nearest(role, known) or next(iter(known), "forward")
        raise UnknownOptionError(
            f"{self._of} have no role {short_repr(role)}.",
            (("roles", ", ".join(known) or "none"),),
            f'{self._called}["{near}"]',
        )
