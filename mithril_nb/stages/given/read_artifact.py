"""Read serialized StableHLO in a separate process, because MLIR aborts the process on some damaged bytes.

`python -P read_artifact.py exported < file` prints a program from `jax.export` as JSON; `python -P read_artifact.py
bytecode < file` prints a module of MLIR bytecode. The program is not executed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
from jax import export
from jax._src.interpreters import mlir
from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]
from jaxlib.mlir import ir


def text_of_bytecode(data: bytes) -> str:
    """Return the text of a serialized StableHLO module, with its locations."""
    with mlir.make_ir_context():
        try:
            # openxla/stablehlo#2967: this aborts on an attribute of an unexpected type, instead of raising an error.
            module: Any = _jax.mlir.deserialize_portable_artifact(data)
        except Exception:  # plain bytecode, without the versions of a portable artifact
            module = ir.Module.parse(data)
        return mlir.module_to_string(module, enable_debug_info=True)


def _exported(data: bytes) -> dict[str, Any]:
    exported = export.deserialize(bytearray(data))
    sizes = [str(dim) for aval in exported.in_avals for dim in aval.shape if jax.export.is_symbolic_dim(dim)]
    text = text_of_bytecode(exported.mlir_module_serialized)
    return {"text": text, "name": exported.fun_name, "platforms": list(exported.platforms), "sizes": sizes}


def main() -> None:
    """Print the program read from standard input, or the reason why it cannot be read."""
    data = sys.stdin.buffer.read()
    try:
        result = _exported(data) if sys.argv[1] == "exported" else {"text": text_of_bytecode(data)}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
