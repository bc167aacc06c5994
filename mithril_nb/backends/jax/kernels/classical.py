"""Kernels, distances, embeddings."""

from __future__ import annotations
