"""What XLA is told of our own accord: each option it may not know, with what it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Made = TypeVar("Made")

FILES: Mapping[str, Any] = {"xla_dump_compact_gte": False}
"""Write `get-tuple-element`s out, as `compiled.as_text()` does."""
KERNELS: Mapping[str, Any] = {"xla_dump_emitter_re": "llvm"}
"""Write LLVM IR."""
PASSES: Mapping[str, Any] = {"xla_dump_hlo_pass_re": ".*"}
"""Write every pass. At any other expression XLA also writes down what a pass made that changed nothing: five times as
much."""
NO_MACHINE_CODE: Mapping[str, Any] = {"xla_cpu_parallel_codegen_split_count": 0}
"""A CPU's compiler refuses to go on with this, after its passes and before it writes machine code."""
LEAST_EFFORT: Mapping[str, Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""A CPU's compiler makes the same module and the same plan of memory with this, and only LLVM leaves the code as it is:
two fifths of the time. `tests/stages/test_compilation.py` holds it to that with the programs of the corpus."""

_unknown: set[str] = set()
"""Options that this XLA does not know: being told so takes as long as lowering a small program."""


def compile_with(
    asked: Mapping[str, Any], options: Mapping[str, Any], compile: Callable[[Mapping[str, Any]], Made]
) -> Made:
    """Compile with options of ours, without those that this XLA does not know.

    Args:
        asked: Ours.
        options: Somebody else's: they come first, and what is wrong with them is raised.
        compile: Compiles with the options it is given.

    Raises:
        Exception: What XLA said when it could not compile.
    """
    known = {name: value for name, value in asked.items() if name not in _unknown}
    while True:
        try:
            return compile({**known, **options})
        except Exception as error:  # An XLA that does not know one says so before it starts.
            refused = [
                name for name in known if name not in options and f"No such compile option: '{name}'" in str(error)
            ]
            if not refused:
                raise
            _unknown.add(refused[0])
            del known[refused[0]]
