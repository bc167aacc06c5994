"""Networks for images."""

from __future__ import annotations

__all__: list[str] = []
