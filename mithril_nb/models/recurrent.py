"""Cells that are repeated over time."""

from __future__ import annotations

__all__: list[str] = []
