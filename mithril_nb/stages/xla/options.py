"""Our own XLA options, which an XLA version may not support, each with its purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Made = TypeVar("Made")

FILES: Mapping[str, Any] = {"xla_dump_compact_gte": False}
"""Write `get-tuple-element`s out, as `compiled.as_text()` does."""
KERNELS: Mapping[str, Any] = {"xla_dump_emitter_re": "llvm"}
"""Write LLVM IR."""
PASSES: Mapping[str, Any] = {"xla_dump_hlo_pass_re": ".*"}
"""Write every pass. With any other expression XLA also writes passes that changed nothing: five times as much."""
NO_MACHINE_CODE: Mapping[str, Any] = {"xla_cpu_parallel_codegen_split_count": 0}
"""Makes a CPU's compiler fail after its passes and before it generates code."""
LEAST_EFFORT: Mapping[str, Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""With this a CPU's compiler makes the same module and memory plan, but LLVM does not optimize the code, which saves
40 % of the time. `tests/stages/test_compilation.py` checks this for the programs of the corpus."""

_unknown: set[str] = set()
"""Options that this XLA version rejected; another rejection would take as long as lowering a small program."""


def compile_with(
    ours: Mapping[str, Any], options: Mapping[str, Any], compile: Callable[[Mapping[str, Any]], Made]
) -> Made:
    """Compile with our options, except options that this XLA version does not support.

    Args:
        ours: Our options.
        options: The user's options: they take precedence, and errors about them are raised.
        compile: Compiles with the options it receives.

    Raises:
        Exception: The error of XLA, if it does not compile.
    """
    known = {name: value for name, value in ours.items() if name not in _unknown}
    while True:
        try:
            return compile({**known, **options})
        except Exception as error:  # An XLA that does not support an option raises before it starts.
            refused = [
                name for name in known if name not in options and f"No such compile option: '{name}'" in str(error)
            ]
            if not refused:
                raise
            _unknown.add(refused[0])
            del known[refused[0]]
