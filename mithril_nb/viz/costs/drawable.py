"""Replace numbers that cannot be drawn: NaN, infinite ones, and ones so large that their products overflow a float."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril_nb.display import finite

_MOST = 1e150
_NOT_DRAWN = "shown as unknown: numbers that are infinite, NaN, or above 1e150"


def replace_undrawable(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the data with undrawable numbers replaced by unknown, and a note if there were any.

    Examples:
        >>> replace_undrawable({"flops": 3}) == {"flops": 3}
        True
        >>> replace_undrawable({"time_s": float("inf")})
        {'time_s': None, 'notes': ['shown as unknown: numbers that are infinite, NaN, or above 1e150']}
    """
    drawn = finite(data, _MOST)
    if drawn == data:
        return data
    return {**drawn, "notes": [*(drawn.get("notes") or ()), _NOT_DRAWN]}
