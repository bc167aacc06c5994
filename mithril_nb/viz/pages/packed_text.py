"""A compact form of long compiler texts: lines that differ only in their numbers share one template.

Machine code of a thousand blocks repeats the same lines with other registers and addresses, farther apart than the
window of gzip. `page/packed-text.ts` reads this form.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from typing import Any

LEAST = 20_000
"""Fewest characters of a text that is packed; shorter texts are stored unchanged."""
# Numbers whose value is enough to write them again, as `7` but not `007`; other numbers stay in the template.
_NUMBER = re.compile(r"(0x[0-9a-f]{1,12}(?![0-9a-f])|(?<!\d)(?:0|[1-9]\d{0,14})(?!\d))", re.ASCII)
DECIMAL, HEX, ADDRESS = "\1", "\2", "\3"
"""Signs in a template: a decimal number, a hexadecimal number, and a hexadecimal number of at least four digits."""
_SIGNS = re.compile(f"[{DECIMAL}{HEX}{ADDRESS}]")
# An address at the start of a line.
_LEADING = re.compile(r"(\s*)0x([0-9a-f]{4}|[1-9a-f][0-9a-f]{4,11})(?![0-9a-f])", re.ASCII)
_Line = tuple[int, Sequence[int], int | None]
"""The index of a line's template, the numbers of the line, and its first number if this is an address.

An address at the start of the line is in neither.
"""


def packed_text(text: str) -> dict[str, Any]:
    r"""Return a long text as templates and columns of numbers, if that is shorter; else as `{"text": ...}`.

    A column has the numbers at one sign of one template, each as the difference to the number before. Addresses that
    are the first number of their line are in one column, `addresses`, whatever the template of the line is.

    Examples:
        >>> packed_text("a"), sorted(packed_text("".join(f"%{at} = add %{at - 1}\n" for at in range(1, 4000))))
        ({'text': 'a'}, ['addresses', 'lines', 'numbers', 'templates'])
    """
    if len(text) < LEAST or any(sign in text for sign in (DECIMAL, HEX, ADDRESS)):
        return {"text": text}
    found = in_columns(text)
    return found if _size(json.dumps(found, separators=(",", ":"))) < _size(text) else {"text": text}


def in_columns(text: str) -> dict[str, Any]:
    """Return a text as templates and columns of numbers; the text must not contain the signs of templates."""
    templates: dict[str, int] = {}
    seen: dict[str, _Line] = {}  # most lines are repeated, except for the address at their start
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
    """Return the parts of a line; a new template is added to `templates`."""
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
    """Return the value of a number and its sign; `None` and the text if value and sign do not restore the text."""
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
