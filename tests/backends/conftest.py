"""Both precisions in one process: float64 is enabled for one test at a time."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> Iterator[str]:
    """Dtype of a backend. The settings of JAX are restored after the test."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", request.param == "float64")
    yield request.param
    jax.config.update("jax_enable_x64", before)
