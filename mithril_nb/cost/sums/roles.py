"""Figures by role: a dict whose error for a missing role lists the known roles."""

from __future__ import annotations

from mithril_nb.cost.sums.by_name import ByName, Value
from mithril_nb.errors import UnknownOptionError, nearest, short_repr


class ByRole(ByName[Value]):
    """Values by role of the part of a training step; `""` is the part without a role.

    Args:
        known: The items.
        of: What the elements describe, for errors: `"costs of 'step'"`.
        called: The expression that gives this dict, for errors; by default `"cost.by_role"`.

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
