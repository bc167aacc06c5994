"""What a test finds in its process, and leaves there: fixtures around every test and every example of a docstring."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

QUICK_ROOMS = {"backends", "blocks", "interop", "physical", "session", "stages", "targets", "train"}
"""Rooms whose tests ask what a program computes, or what XLA's passes make of it, and not what LLVM makes of that."""
CODE = {"test_kernels.py", "test_machine_code.py", "test_llvm.py", "test_dump.py"}
"""Files that look at LLVM IR and machine code as they are at full strength."""


@pytest.fixture(autouse=True)
def quick_compiling(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have XLA skip its dear passes where they change no answer, as JAX's own tests do: a third of the time."""
    import jax

    path: Path = request.node.path
    is_quick = path.parent.name in QUICK_ROOMS and path.name not in CODE
    jax.config.update("jax_disable_most_optimizations", is_quick)
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
