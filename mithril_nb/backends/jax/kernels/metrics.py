"""Metrics."""

from __future__ import annotations
