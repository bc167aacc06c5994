"""What a test finds in its process, and leaves there: fixtures around every test and every example of a docstring."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

NUMBERS_ONLY = {"backends", "blocks", "interop", "train"}
"""Rooms whose tests ask what a program computes, not what XLA makes of it."""


@pytest.fixture(autouse=True)
def quick_compiling(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have XLA skip its dear passes where they change no answer, as JAX's own tests do: a third of the time."""
    import jax

    path: Path = request.node.path
    jax.config.update("jax_disable_most_optimizations", path.parent.name in NUMBERS_ONLY)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """Undo what a test does to the process: the kinds of blocks and ops that it defines, and JAX's x64 mode."""
    from mithril_nb.models.custom import GRADIENTS, PRIMITIVES
    from mithril_nb.models.op import OPS
    from mithril_nb.models.registry import KINDS

    tables: list[dict] = [KINDS, OPS, PRIMITIVES, GRADIENTS]
    if "mithril_nb.backends.jax.kernels" in sys.modules:
        tables.append(sys.modules["mithril_nb.backends.jax.kernels"].KERNELS)
    before = [dict(table) for table in tables]
    jax = sys.modules.get("jax")
    is_wide = jax is not None and jax.config.read("jax_enable_x64")
    yield
    for table, known in zip(tables, before, strict=True):
        if table != known:
            table.clear()
            table.update(known)
    jax = sys.modules.get("jax")
    if jax is not None and jax.config.read("jax_enable_x64") != is_wide:
        jax.config.update("jax_enable_x64", is_wide)
