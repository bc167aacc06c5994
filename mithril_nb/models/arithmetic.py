"""Arithmetic on arrays, item by item, and matrix products."""

from __future__ import annotations

__all__: list[str] = []
