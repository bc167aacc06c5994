"""XLA's compilers for other devices, installed once for all tests."""

from __future__ import annotations

import pytest

from mithril_nb.hardware import compiler_of


@pytest.fixture(scope="session")
def compilers():
    """Install both compilers where `MITHRIL_NB_COMPILERS` says, unless `make test` has done it."""
    for platform in ("cuda", "tpu", "sass"):
        compiler = compiler_of(platform)
        if not compiler.is_installed:
            compiler.install()
