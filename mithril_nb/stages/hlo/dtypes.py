"""The dtype names of XLA and MLIR, and the usual names."""

from __future__ import annotations

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
