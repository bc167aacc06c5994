"""Values that are no arrays: shapes, sizes, dtypes, lists."""

from __future__ import annotations

__all__: list[str] = []
