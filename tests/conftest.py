"""What all tests share: no screen, no accelerator unless asked for, and an order that fails fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")  # else jupyter_core warns, and a warning is an error here

sys.path.insert(0, str(Path(__file__).parent))  # strategies.py serves several rooms

# A deadline would measure how busy the machine is. JAX compiles on the first call, which counts as a slow example.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("house")

ROOT = Path(__file__).resolve().parent.parent
ROOMS = [
    "house",
    "graph",
    "models",
    "program",
    "backends",
    "stages",
    "cost",
    "physical",
    "train",
    "interop",
    "viz",
    "session",
    "widgets",
    "cli",
]
"""What is quick and what others build on comes first; a room that is not named comes after these."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run quick rooms first, slow tests after all others, and tests with a browser last."""
    items.sort(key=_rank)  # a stable sort: the order within a file is kept


def _rank(item: pytest.Item) -> tuple[bool, bool, int]:
    room = item.path.relative_to(ROOT).parts[1] if item.path.is_relative_to(ROOT) else ""
    place = ROOMS.index(room) if room in ROOMS else len(ROOMS)
    return item.get_closest_marker("browser") is not None, item.get_closest_marker("slow") is not None, place


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
    """Undo what a test does to the process: the kinds of blocks it defines and JAX's x64 mode."""
    from mithril_nb.models.op import OPS
    from mithril_nb.models.registry import KINDS

    tables: list[dict] = [KINDS, OPS]
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
