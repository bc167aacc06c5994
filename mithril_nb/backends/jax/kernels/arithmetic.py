"""Arithmetic and matrix products."""

from __future__ import annotations
