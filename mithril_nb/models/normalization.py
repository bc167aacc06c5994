"""Blocks that give activations mean and scale."""

from __future__ import annotations

__all__: list[str] = []
