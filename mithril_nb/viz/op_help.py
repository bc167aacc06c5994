"""One line in plain words for every operation of every stage, from `op_help.json` beside this file.

The front end reads the same file. It holds a table for each dialect, one for what is the same in all dialects of
arrays (`all`), other names for the same thing (`same`), and for machine code regular expressions for families of
mnemonics, the first that fits wins.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

_ARRAYS = {"jaxpr": "jaxpr", "stablehlo": "stablehlo", "hlo_before": "hlo", "hlo": "hlo"}


def op_help(stage: str, opcode: str) -> str | None:
    """Return what an operation does, in one line of plain words, or `None` if there is nothing to say.

    Args:
        stage: Name of the stage, such as `"jaxpr"` or `"hlo"`.
        opcode: What the stage calls the operation; prefixes such as `stablehlo.` and `chlo.broadcast_` may stay.

    Examples:
        >>> op_help("hlo", "dot")
        'Multiplies and sums over the contracted axes: a matrix product when there is one.'
        >>> op_help("stablehlo", "stablehlo.exponential") == op_help("jaxpr", "exp")
        True
        >>> op_help("asm", "vfmadd231ps")
        'Multiplies and adds in one step (fused): the work-horse of matrix products.'
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
    # An op of CHLO that broadcasts its operands first is otherwise the op itself.
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
