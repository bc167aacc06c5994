"""Comparisons and truth values."""

from __future__ import annotations
