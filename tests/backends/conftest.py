"""Both precisions in one process: float64 is switched on for a test and off again."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> Iterator[str]:
    """Dtype of a backend; JAX is as before when the test is over."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", request.param == "float64")
    yield request.param
    jax.config.update("jax_enable_x64", before)
