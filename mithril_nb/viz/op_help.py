"""One plain line of help for every operation of every stage, from `op_help.json` beside this file.

The front end reads the same file. It holds one table per dialect, a table shared by all array dialects (`all`), and
aliases (`same`). For machine code it holds regular expressions for families of mnemonics; the first match wins.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

_ARRAYS = {"jaxpr": "jaxpr", "stablehlo": "stablehlo", "hlo_before": "hlo", "hlo": "hlo"}


def op_help(stage: str, opcode: str) -> str | None:
    """Return a one-line description of an operation, or `None` if there is none.

    Args:
        stage: Name of the stage, such as `"jaxpr"` or `"hlo"`.
        opcode: Name of the operation in the stage; prefixes such as `stablehlo.` and `chlo.broadcast_` are allowed.

    Examples:
        >>> op_help("hlo", "dot")
        'Multiplies and sums over the contracted axes, as a matrix product does.'
        >>> op_help("stablehlo", "stablehlo.exponential") == op_help("jaxpr", "exp")
        True
        >>> op_help("asm", "vfmadd231ps")
        'Multiplies and adds in one step (fused): the core of matrix products.'
        >>> op_help("python", "x = 1") is None
        True
    """
    tables = _tables()
    if stage == "asm":
        return next((text for pattern, text in tables["asm"] if pattern.fullmatch(opcode.lower())), None)
    if stage == "llvm":
        return tables["llvm"].get(opcode)
    dialect = _ARRAYS.get(stage)
    if dialect is None:
        return None
    name = opcode.rpartition(".")[2].replace("-", "_")
    # A CHLO op that broadcasts its operands first has the help of the op itself.
    for one in (name, name.removeprefix("broadcast_")):
        for known in (one, tables["same"].get(one, one)):
            text = tables[dialect].get(known) or tables["all"].get(known)
            if text is not None:
                return text
    return None


@cache
def _tables() -> dict[str, Any]:
    tables = json.loads((Path(__file__).parent / "op_help.json").read_text(encoding="utf-8"))
    tables["asm"] = [(re.compile(pattern, re.ASCII), text) for pattern, text in tables["asm"]]
    return tables
