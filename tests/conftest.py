"""Settings of all tests: no screen, no accelerator unless requested, and an order that fails fast."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")  # else jupyter_core warns, and a warning is an error here
# Tests, and processes that they start, do not use the user's cache, such as the machine's peaks.
if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker inherits the folder of the main process
    CACHES = tempfile.TemporaryDirectory(prefix="mithril_nb-tests-", ignore_cleanup_errors=True)
    os.environ["XDG_CACHE_HOME"] = CACHES.name
    if sys.platform == "win32":
        os.environ["LOCALAPPDATA"] = CACHES.name

# XLA's compilers for other devices are large, so all runs share them.
os.environ.setdefault("MITHRIL_NB_COMPILERS", str(Path(__file__).resolve().parent.parent / ".make" / "compilers"))

sys.path.insert(0, str(Path(__file__).parent))  # strategies.py serves several rooms

# Collected tests and traced programs are millions of long-lived objects. With Python's default thresholds, garbage
# collection takes a tenth of the total time. Rarer collections cost only a few tens of megabytes.
gc.set_threshold(50_000, 10, 10)

# A deadline would measure how busy the machine is. JAX compiles on the first call, which counts as a slow example.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("house")

ROOT = Path(__file__).resolve().parent.parent
ROOMS = [
    "house",
    "atomic_write",
    "graph",
    "models",
    "program",
    "backends",
    "stages",
    "cost",
    "compilation",
    "train",
    "interop",
    "targets",
    "analysis",
    "viz",
    "ui",
    "cli",
    "documents",
]
"""Order of the rooms: quick and basic ones first; other rooms come after these."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flag that rewrites golden files; review the diff."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files with the current output")


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """Return a function that compares a text with the file of a name in the folder `golden` beside the test."""

    def check(name: str, text: str) -> None:
        file = request.path.parent / "golden" / name
        if request.config.getoption("--update-golden"):
            file.write_text(text, encoding="utf-8", newline="\n")
        assert file.exists(), f"{name} is new: make it with --update-golden, and look at it"
        assert text == file.read_text(encoding="utf-8"), f"{name} differs: look, then --update-golden"

    return check


def pytest_configure(config: pytest.Config) -> None:
    """Apply the fixtures of `process.py` to doctests too, which are outside this folder."""
    for plugin in ("process", "stress"):
        config.pluginmanager.register(importlib.import_module(plugin))


def pytest_collection_finish() -> None:
    """Exempt the collected tests, about a million objects that stay, from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run quick rooms first, slow tests after all others, and tests with a browser last."""
    items.sort(key=_rank)  # a stable sort: the order within a file is kept
    if part := os.environ.get("MITHRIL_NB_SLOW_TESTS"):
        _leave_out_slow_tests(config, items, *map(int, part.split("/")))


def _leave_out_slow_tests(config: pytest.Config, items: list[pytest.Item], number: int, parts: int) -> None:
    """Keep one part of the slow tests; neighbours in the list, such as cases of one test, are in different parts."""
    slow = (ROOT / "tests" / "slow_tests.txt").read_text(encoding="utf-8").splitlines()
    part = {name: place % parts for place, name in enumerate(slow)}
    config.hook.pytest_deselected(items=[one for one in items if part.get(one.nodeid, number) != number])
    items[:] = [one for one in items if part.get(one.nodeid, number) == number]


def _rank(item: pytest.Item) -> tuple[bool, bool, int]:
    room = item.path.relative_to(ROOT).parts[1] if item.path.is_relative_to(ROOT) else ""
    place = ROOMS.index(room) if room in ROOMS else len(ROOMS)
    return item.get_closest_marker("browser") is not None, item.get_closest_marker("slow") is not None, place


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Start no test after the time that `make quick` has."""
    if time.time() > float(os.environ.get("MITHRIL_NB_STOP_AT", "inf")):
        pytest.skip("make quick has no time left")


@pytest.fixture(scope="session")
def compilers():
    """Install both compilers where `MITHRIL_NB_COMPILERS` says, unless `make test` has done it."""
    from mithril_nb.hardware import compiler_of

    for platform in ("cuda", "tpu"):
        compiler = compiler_of(platform)
        if not compiler.is_installed:
            compiler.install()
