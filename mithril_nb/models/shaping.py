"""Blocks that rearrange items: reshape, transpose, slices, joins."""

from __future__ import annotations

__all__: list[str] = []
