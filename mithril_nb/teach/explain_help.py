"""Help texts for the operations of each stage, from a JSON file.

`op_help.json` has a help text for each operation: in one table for each dialect, and in the table `all` for operations
of several dialects. `same` maps names to other names of the same operation. The table of machine code has regular
expressions; the first match is used. `lines` has texts for parts of a line, such as the layout of an array:
regular expressions, whose groups replace `$1` and `$2`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

_ARRAYS = {"hlo_before": "hlo", "hlo": "hlo", "launches": "hlo"} | {
    name: name for name in ("jaxpr", "stablehlo", "mosaic")
}


def op_help(stage: str, opcode: str) -> str | None:
    """Return a help text of one line for an operation; `None` if there is none."""
    tables = _tables()
    if stage == "asm":
        return next((text for pattern, text in tables["asm"] if pattern.fullmatch(opcode.lower())), None)
    if stage == "sass":
        return tables["sass"].get(opcode.partition(".")[0])
    if stage == "llvm":
        return tables["llvm"].get(opcode)
    dialect = _ARRAYS.get(stage)
    if dialect is None:
        return None
    name = opcode.rpartition(".")[2].replace("-", "_")
    # `broadcast_add` of CHLO broadcasts its operands before it adds them. It has the help text of `add`.
    for alias in (name, name.removeprefix("broadcast_")):
        for candidate in (alias, tables["same"].get(alias, alias)):
            text = tables[dialect].get(candidate) or tables["all"].get(candidate)
            if text is not None:
                return text
    return None


def line_help(stage: str, text: str) -> list[str]:
    """Return help texts for parts of a line of a stage.

    Examples:
        >>> line_help("hlo", "%a = f32[3]{0:T(128)S(5)} copy(%b)")
        ['T(128): stored in pieces of 128 elements; the last one is padded.', 'S(5): in the memory of the host.']
    """
    return list(
        dict.fromkeys(
            re.sub(r"\$(\d)", lambda number, match=match: match[int(number[1])], help)
            for pattern, help in patterns_in(stage, text)
            for match in re.finditer(pattern, text, re.ASCII)
        )
    )


def patterns_in(stage: str, text: str) -> list[tuple[str, str]]:
    """Return the patterns of `line_help` that occur in a text, with their help texts."""
    rows = _tables()["lines"].get(stage, ())
    return [(pattern, help) for pattern, help in rows if re.search(pattern, text, re.ASCII)]


@cache
def _tables() -> dict[str, Any]:
    tables = json.loads((Path(__file__).parent / "op_help.json").read_text(encoding="utf-8"))
    tables["asm"] = [(re.compile(pattern, re.ASCII), text) for pattern, text in tables["asm"]]
    return tables
