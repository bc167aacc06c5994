"""A compact form of long compiler texts: lines that differ only in their numbers share a template.

The machine code of a thousand blocks repeats the same lines with other registers and addresses. gzip does not find
these repetitions, because they are farther apart than its window. `page/packed-text.ts` of the front end reads the
compact form.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from typing import Any

# Texts with fewer characters are stored unchanged.
LEAST = 20_000
# Only numbers that can be restored from their value: `7`, but not `007`. Other numbers remain in the template.
_NUMBER = re.compile(r"(0x[0-9a-f]{1,12}(?![0-9a-f])|(?<!\d)(?:0|[1-9]\d{0,14})(?!\d))", re.ASCII)
# Signs that replace numbers in a template: decimal; hexadecimal; hexadecimal with at least four digits.
DECIMAL, HEX, ADDRESS = "\1", "\2", "\3"
_SIGNS = re.compile(f"[{DECIMAL}{HEX}{ADDRESS}]")
# An address at the start of a line.
_LEADING = re.compile(r"(\s*)0x([0-9a-f]{4}|[1-9a-f][0-9a-f]{4,11})(?![0-9a-f])", re.ASCII)
# A line: the index of its template, its numbers, and its first number if this is an address, else `None`.
#
# An address at the very start is left out, because many lines differ only in this address.
_Line = tuple[int, Sequence[int], int | None]


def packed_text(text: str) -> dict[str, Any]:
    """Return a long text as templates and columns of numbers if this is shorter, else as `{"text": ...}`.

    A template is the text that lines have in common if they differ only in their numbers. The n-th numbers of these
    lines are a column, stored as differences to the line before. Addresses at the start of lines are in the column
    `addresses` instead, which all templates share.
    """
    if len(text) < LEAST or any(sign in text for sign in (DECIMAL, HEX, ADDRESS)):
        return {"text": text}
    columns = in_columns(text)
    return columns if _size(json.dumps(columns, separators=(",", ":"))) < _size(text) else {"text": text}


def in_columns(text: str) -> dict[str, Any]:
    """Return a text as templates, the template of each line, and columns of numbers."""
    templates: dict[str, int] = {}
    seen: dict[str, _Line] = {}  # most lines are repeated, with another address at their start
    rows: list[list[Sequence[int]]] = []  # for each template, the numbers of its lines, without first addresses
    keys: list[int] = []
    addresses: list[int] = []
    for row in text.split("\n"):
        leading = _LEADING.match(row)
        line = row if leading is None else f"{leading[1]}{ADDRESS}{row[leading.end() :]}"
        if line not in seen:
            seen[line] = _line(line, templates)
            rows += [[] for _ in range(len(templates) - len(rows))]
        key, values, address = seen[line]
        keys.append(key)
        rows[key].append(values)
        if leading is not None:
            addresses.append(int(leading[2], 16))
        elif address is not None:
            addresses.append(address)
    return {
        "templates": list(templates),
        "lines": keys,
        "addresses": _differences(addresses),
        "numbers": [_differences(column) for each in rows for column in zip(*each, strict=True)],
    }


def _line(line: str, templates: dict[str, int]) -> _Line:
    parts = _NUMBER.split(line)
    values: list[int] = []
    for at in range(1, len(parts), 2):
        number = parts[at]
        is_hex = number.startswith("0x")
        value = int(number, 16 if is_hex else 10)
        if is_hex and number not in (f"0x{value:04x}", f"0x{value:x}"):
            continue  # it cannot be restored from its value
        parts[at] = DECIMAL if not is_hex else ADDRESS if number == f"0x{value:04x}" else HEX
        values.append(value)
    template = "".join(parts)
    first = _SIGNS.search(template)
    address = values.pop(0) if first and first[0] == ADDRESS and ADDRESS not in line else None
    return templates.setdefault(template, len(templates)), values, address


def _differences(values: Sequence[int]) -> str:
    return " ".join([str(value - before) for value, before in zip(values, [0, *values], strict=False)])


def _size(text: str) -> int:
    # The fastest level is enough to compare two sizes.
    return len(zlib.compress(text.encode("utf-8", "surrogatepass"), 1))
