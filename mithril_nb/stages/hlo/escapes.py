"""Decode quoted text of MLIR and XLA: each has its own escapes for characters outside ASCII."""

from __future__ import annotations

import re

# For example: \C3 in \C3\A9: MLIR writes bytes of UTF-8 as two hexadecimal digits
_MLIR = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)
# For example: \303 in \303\251: XLA writes bytes of UTF-8 as three octal digits
_XLA = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def read_mlir(written: str) -> str:
    r"""Return the decoded content of a quoted MLIR string.

    Examples:
        >>> read_mlir(r"f\CF\83"), read_mlir(r"a\22b\\c")
        ('fσ', 'a"b\\c')
    """
    return _read(written, _MLIR, 16) if "\\" in written else written


def read_xla(written: str) -> str:
    r"""Return the decoded content of a quoted XLA string.

    Examples:
        >>> read_xla(r"f\317\203"), read_xla(r"a\"b\'c")
        ('fσ', 'a"b\'c')
    """
    return _read(written, _XLA, 8) if "\\" in written else written


def _read(written: str, escape: re.Pattern[bytes], base: int) -> str:
    def byte(match: re.Match[bytes]) -> bytes:
        found = match.group(1)
        return bytes([int(found, base) & 255]) if len(found) > 1 else _LETTERS.get(found, found)

    return escape.sub(byte, written.encode()).decode(errors="replace")
