"""The one door from a value up to its renderer: values know that they can be shown, never how.

`mithril_nb.viz` registers a renderer for each type; it is imported when something is shown for the first time.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

UNATTRIBUTED_LABEL = "(unattributed)"
"""What people read in the place of a block where no block caused something, or nobody knows which."""
AT_LEAST = "≥ "
"""What stands before a figure that leaves out something unknown."""


@singledispatch
def render(value: object) -> dict[str, str]:
    """Return the MIME bundle of a value: `text/plain`, and `image/svg+xml` or `text/html` where there is a picture."""
    return {"text/plain": repr(value)}


class Shown:
    """Mixin: gives a value a rich display in notebooks, made by the renderer that is registered for its type.

    `print` and `str` give the text of it.
    """

    def __str__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        importlib.import_module("mithril_nb.viz")
        return render(self)


def finite(data: Any, most: float = math.inf) -> Any:
    """Return plain data in which what is no number, infinite or too large is `None`: unknown, as JSON can say it.

    Args:
        data: Numbers, texts, and lists, tuples and mappings of them.
        most: The largest number that stays.

    Examples:
        >>> finite({"time_s": float("nan"), "flops": [1, 10**400, float("inf")]}, 1e150)
        {'time_s': None, 'flops': [1, None, None]}
    """
    if isinstance(data, Mapping):
        named: Mapping[Any, Any] = data
        return {name: finite(value, most) for name, value in named.items()}
    if isinstance(data, list):
        every: list[Any] = data
        return [finite(value, most) for value in every]
    if isinstance(data, tuple):
        parts: tuple[Any, ...] = data
        return tuple(finite(value, most) for value in parts)
    if isinstance(data, int | float) and not (abs(data) <= most and abs(data) < math.inf):
        return None
    return data
