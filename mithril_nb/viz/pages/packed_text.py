"""Compact form of long texts of compilers: lines that differ only in their numbers share one template.

Machine code of a thousand blocks repeats the same lines with other registers and addresses, farther apart than the
window of gzip. `page/packed-text.ts` reads the form.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

LEAST = 20_000
"""Characters from which a text is packed; shorter texts are stored unchanged."""
# Numbers that are written in one way only, so that their value is enough; others stay in the template.
_NUMBER = re.compile(r"(0x[0-9a-f]{1,12}(?![0-9a-f])|(?<!\d)(?:0|[1-9]\d{0,14})(?!\d))", re.ASCII)
DECIMAL, HEX, ADDRESS = "\1", "\2", "\3"
"""Signs in a template: a decimal number, a hexadecimal one, and one with at least four digits."""
_SIGNS = re.compile(f"[{DECIMAL}{HEX}{ADDRESS}]")


def packed_text(text: str) -> dict[str, Any]:
    r"""Return a text as `{"text": ...}` or, if it is long and then shorter, as templates and columns of numbers.

    Each column has the numbers at one sign of one template, as differences to the number before. The first number of a
    line is compared with that of the previous line if it is an address.

    Examples:
        >>> packed_text("a"), sorted(packed_text("".join(f"%{at} = add %{at - 1}\n" for at in range(1, 4000))))
        ({'text': 'a'}, ['addresses', 'lines', 'numbers', 'templates'])
    """
    if len(text) < LEAST or _SIGNS.search(text):
        return {"text": text}
    found = in_columns(text)
    return found if _size(json.dumps(found, separators=(",", ":"))) < _size(text) else {"text": text}


def in_columns(text: str) -> dict[str, Any]:
    """Return a text without signs as templates and columns of numbers."""
    templates: dict[str, int] = {}
    columns: dict[tuple[int, int], list[int]] = {}
    lines: list[int] = []
    addresses: list[int] = []
    for line in text.split("\n"):
        parts = _NUMBER.split(line)
        values: list[int] = []
        first = ""
        for at in range(1, len(parts), 2):
            value, parts[at] = _read(parts[at])
            if value is not None:
                first = first or parts[at]
                values.append(value)
        key = templates.setdefault("".join(parts), len(templates))
        lines.append(key)
        if first == ADDRESS:
            addresses.append(values.pop(0))
        for at, value in enumerate(values):
            columns.setdefault((key, at), []).append(value)
    return {
        "templates": list(templates),
        "lines": lines,
        "addresses": _differences(addresses),
        "numbers": [_differences(column) for column in columns.values()],
    }


def _read(number: str) -> tuple[int | None, str]:
    """Return the value of a number and its sign; `None` and the text if the sign does not restore the text."""
    if not number.startswith("0x"):
        return int(number), DECIMAL
    value = int(number, 16)
    if number == f"0x{value:04x}":
        return value, ADDRESS
    return (value, HEX) if number == f"0x{value:x}" else (None, number)


def _differences(values: list[int]) -> str:
    return " ".join([str(value - before) for value, before in zip(values, [0, *values], strict=False)])


def _size(text: str) -> int:
    return len(zlib.compress(text.encode("utf-8", "surrogatepass"), 1))
