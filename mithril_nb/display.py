"""Rich display: values declare that they are displayable; `mithril_nb.viz` registers a renderer for each type.

`mithril_nb.viz` is imported when a value is displayed for the first time.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

UNATTRIBUTED_LABEL = "(unattributed)"
"""Label of costs and instructions that are not attributed to any block."""
AT_LEAST = "≥ "
"""Prefix of a figure that omits an unknown part."""


@singledispatch
def render(value: object) -> dict[str, str]:
    """Return the MIME bundle of a value: `text/plain`, and `image/svg+xml` or `text/html` if a picture exists."""
    return {"text/plain": repr(value)}


class Shown:
    """Mixin: gives a value a rich display in notebooks, through the renderer registered for its type.

    `print` and `str` give its `text/plain` form.
    """

    def __str__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        importlib.import_module("mithril_nb.viz")
        return render(self)


def finite(data: Any, most: float = math.inf) -> Any:
    """Return plain data with NaN, infinite and too large numbers replaced by `None`, which JSON can represent.

    Args:
        data: Numbers, texts, and lists, tuples and mappings of them.
        most: The largest number to keep.

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
