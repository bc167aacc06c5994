"""Blocks that make arrays: ranges, ones, random numbers."""

from __future__ import annotations

__all__: list[str] = []
