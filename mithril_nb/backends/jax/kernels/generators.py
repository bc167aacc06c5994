"""Ranges, ones, random numbers."""

from __future__ import annotations
