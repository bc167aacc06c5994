"""Comparisons and truth values."""

from __future__ import annotations

__all__: list[str] = []
