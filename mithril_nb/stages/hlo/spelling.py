"""Names of dtypes and quoted text, as XLA and MLIR write them."""

from __future__ import annotations

import re

# XLA and MLIR shorten `float` and drop the underscores: f8e4m3fn, f8E4M3FN.
_SMALL_FLOATS = (
    "float4_e2m1fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
_SHORT_FLOATS = {f"f{name.removeprefix('float').replace('_', '')}": name for name in _SMALL_FLOATS}
_FLOATS = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_BITS = (2, 4, 8, 16, 32, 64)

HLO_DTYPES = {
    "pred": "bool", "c64": "complex64", "c128": "complex128", **_FLOATS, **_SHORT_FLOATS,
    **{f"s{bits}": f"int{bits}" for bits in _BITS}, **{f"u{bits}": f"uint{bits}" for bits in _BITS},
}  # fmt: skip
"""Dtypes by XLA's names: `"f8e4m3fn"` is `"float8_e4m3fn"`."""

MLIR_DTYPES = {
    "i1": "bool", "complex<f32>": "complex64", "complex<f64>": "complex128", **_FLOATS,
    **{f"f{short[1:].upper()}": name for short, name in _SHORT_FLOATS.items()},
    **{f"i{bits}": f"int{bits}" for bits in _BITS}, **{f"ui{bits}": f"uint{bits}" for bits in _BITS},
}  # fmt: skip
"""Dtypes by MLIR's names: `"f8E4M3FN"` is `"float8_e4m3fn"`."""

# For example: \C3 in \C3\A9: MLIR writes bytes of UTF-8 as two hexadecimal digits
_MLIR = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)
# For example: \303 in \303\251: XLA writes bytes of UTF-8 as three octal digits
_XLA = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def read_mlir(text: str) -> str:
    r"""Return the decoded content of a quoted MLIR string.

    Examples:
        >>> read_mlir(r"f\CF\83"), read_mlir(r"a\22b\\c")
        ('fσ', 'a"b\\c')
    """
    return _read(text, _MLIR, 16) if "\\" in text else text


def read_xla(text: str) -> str:
    r"""Return the decoded content of a quoted XLA string.

    Examples:
        >>> read_xla(r"f\317\203"), read_xla(r"a\"b\'c")
        ('fσ', 'a"b\'c')
    """
    return _read(text, _XLA, 8) if "\\" in text else text


def _read(text: str, escape: re.Pattern[bytes], base: int) -> str:
    def byte(match: re.Match[bytes]) -> bytes:
        code = match.group(1)
        # Damaged text may contain a number above 255.
        return bytes([int(code, base) & 255]) if len(code) > 1 else _LETTERS.get(code, code)

    return escape.sub(byte, text.encode()).decode(errors="replace")
