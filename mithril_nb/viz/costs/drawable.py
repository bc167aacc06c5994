"""Which numbers can be drawn: not those that are none, nor infinite ones, nor those whose products no float holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril_nb.display import finite

_MOST = 1e150
_NOT_DRAWN = "unknown here: numbers that are infinite, none at all, or above 1e150"


def drawable(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return data whose numbers can be drawn; where there were others, they are unknown, and a note says so.

    Examples:
        >>> drawable({"flops": 3}) == {"flops": 3}
        True
        >>> drawable({"time_s": float("inf")})
        {'time_s': None, 'notes': ['unknown here: numbers that are infinite, none at all, or above 1e150']}
    """
    made = finite(data, _MOST)
    if made == data:
        return data
    return {**made, "notes": [*(made.get("notes") or ()), _NOT_DRAWN]}
