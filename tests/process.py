"""Fixtures around every test and every docstring example that set up and restore the process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ANSWERS = {"backends", "blocks", "compilation", "documents", "emission", "interop", "models", "seeds", "train"}
"""Rooms whose tests depend only on results. With MITHRIL_NB_EXAMPLES set they compile as users do."""
ALSO_ANSWERS = {"test_transforms.py"}
"""Files of other rooms whose tests depend only on results."""
ROOT = Path(__file__).resolve().parent.parent
_JAXLIB = tuple(int(part) for part in version("jaxlib").split(".")[:2])
QUICK_CODE = {
    # XLA of jaxlib 0.12 has no other way than through MLIR, nor this flag: it ends a process that names it.
    **({"xla_cpu_use_fusion_emitters": False} if _JAXLIB < (0, 12) else {}),
    "xla_cpu_parallel_codegen_split_count": 1,
}
"""Make XLA write LLVM IR directly instead of through MLIR, and in one piece: a quarter of the time."""


def _of_quick_code(**flags: int) -> dict[str, str]:
    flags = QUICK_CODE | flags
    words = [f"--{flag}={str(value).lower()}" for flag, value in flags.items()]
    return {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": " ".join(words)}


ONE_DEVICE = _of_quick_code()
"""The environment of a fresh process that computes quickly compiled programs."""
EIGHT_DEVICES = _of_quick_code(xla_force_host_platform_device_count=8)
"""The same, on eight devices."""
CODE = {
    "test_dump.py",
    "test_instruction_history.py",
    "test_kernel_code.py",
    "test_kernels.py",
    "test_options.py",
}
"""Files that test fully optimized output of XLA: fusions, LLVM IR, machine code."""


@pytest.fixture(autouse=True)
def quick_compiling(request: pytest.FixtureRequest) -> Iterator[None]:
    """Skip XLA's expensive passes where they change no result, as JAX's own tests do: a third of the time."""
    import jax

    path: Path = request.node.path
    is_quick = path.name not in CODE
    asks_for_answers = _room(path) in ANSWERS or path.name in ALSO_ANSWERS
    jax.config.update("jax_disable_most_optimizations", is_quick)
    if is_quick and asks_for_answers and "MITHRIL_NB_EXAMPLES" not in os.environ:
        _write_code_quickly(request.getfixturevalue("monkeypatch"))
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def _room(path: Path) -> str:
    """Return the room of a test or of a module with examples: the folder below `tests` or `mithril_nb`."""
    parts = path.relative_to(ROOT).parts if path.is_relative_to(ROOT) else ()
    return parts[1] if len(parts) > 1 else ""


def _write_code_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    # XLA_FLAGS would apply to the whole process, including stages and machine code, and JAX has no setting for it.
    from jax._src import compiler

    asked = compiler.get_compile_options

    def get_compile_options(*args: Any, env_options_overrides: dict[str, Any] | None = None, **options: Any) -> Any:
        return asked(*args, env_options_overrides=QUICK_CODE | (env_options_overrides or {}), **options)

    monkeypatch.setattr(compiler, "get_compile_options", get_compile_options)


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """Restore the process after a test: registered blocks and ops, and JAX's x64 mode."""
    from mithril_nb.models.op import GRADIENTS, OPS, PRIMITIVES
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
