"""Shapes, sizes, dtypes."""

from __future__ import annotations
