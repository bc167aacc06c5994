"""Kernels, support vectors, Gaussian processes, distances and embeddings."""

from __future__ import annotations

__all__: list[str] = []
