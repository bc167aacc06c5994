"""Attention and what goes with it."""

from __future__ import annotations

__all__: list[str] = []
