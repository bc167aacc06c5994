"""Shapes and slices."""

from __future__ import annotations
