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

LEAST = 20_000
"""Texts with fewer characters are stored unchanged."""
# Only numbers that can be restored from their value: `7`, but not `007`. Other numbers remain in the template.
_NUMBER = re.compile(r"(0x[0-9a-f]{1,12}(?![0-9a-f])|(?<!\d)(?:0|[1-9]\d{0,14})(?!\d))", re.ASCII)
DECIMAL, HEX, ADDRESS = "\1", "\2", "\3"
"""Signs that replace numbers in a template: decimal; hexadecimal; hexadecimal with at least four digits."""
_SIGNS = re.compile(f"[{DECIMAL}{HEX}{ADDRESS}]")
# An address at the start of a line.
_LEADING = re.compile(r"(\s*)0x([0-9a-f]{4}|[1-9a-f][0-9a-f]{4,11})(?![0-9a-f])", re.ASCII)
_Line = tuple[int, Sequence[int], int | None]
"""A line: the index of its template, its numbers, and its first number if this is an address, else `None`.

An address at the very start is left out, because many lines differ only in this address.
"""


def packed_text(text: str) -> dict[str, Any]:
    r"""Return a long text as templates and columns of numbers if this is shorter, else as `{"text": ...}`.

    A template is the text that lines have in common if they differ only in their numbers. The n-th numbers of these
    lines are a column, stored as differences to the line before. Addresses at the start of lines are in the column
    `addresses` instead, which all templates share.

    Examples:
        >>> packed_text("a"), sorted(packed_text("".join(f"%{at} = add %{at - 1}\n" for at in range(1, 4000))))
        ({'text': 'a'}, ['addresses', 'lines', 'numbers', 'templates'])
    """
    if len(text) < LEAST or any(sign in text for sign in (DECIMAL, HEX, ADDRESS)):
        return {"text": text}
    found = in_columns(text)
    return found if _size(json.dumps(found, separators=(",", ":"))) < _size(text) else {"text": text}


def in_columns(text: str) -> dict[str, Any]:
    """Return a text as templates and columns of numbers. It must not contain the signs that replace numbers."""
    templates: dict[str, int] = {}
    seen: dict[str, _Line] = {}  # most lines are repeated, with another address at their start
    rows: list[list[Sequence[int]]] = []  # for each template, the numbers of its lines, without first addresses
    keys: list[int] = []
    addresses: list[int] = []
    for whole in text.split("\n"):
        leading = _LEADING.match(whole)
        line = whole if leading is None else f"{leading[1]}{ADDRESS}{whole[leading.end() :]}"
        found = seen.get(line)
        if found is None:
            found = seen[line] = _line(line, templates)
            if found[0] == len(rows):
                rows.append([])
        key, values, address = found
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
    """Return a line as template and numbers. If the template is new, it is added to `templates`."""
    parts = _NUMBER.split(line)
    values: list[int] = []
    for at in range(1, len(parts), 2):
        value, parts[at] = _read(parts[at])
        if value is not None:
            values.append(value)
    template = "".join(parts)
    first = _SIGNS.search(template)
    address = values.pop(0) if first and first[0] == ADDRESS and ADDRESS not in line else None
    return templates.setdefault(template, len(templates)), values, address


def _read(number: str) -> tuple[int | None, str]:
    """Return the value and the sign of a number; `None` and the number if it cannot be restored from its value."""
    if not number.startswith("0x"):
        return int(number), DECIMAL
    value = int(number, 16)
    if number == f"0x{value:04x}":
        return value, ADDRESS
    return (value, HEX) if number == f"0x{value:x}" else (None, number)


def _differences(values: Sequence[int]) -> str:
    return " ".join([str(value - before) for value, before in zip(values, [0, *values], strict=False)])


def _size(text: str) -> int:
    return len(zlib.compress(text.encode("utf-8", "surrogatepass"), 1))
