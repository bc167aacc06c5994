"""Cells."""

from __future__ import annotations
