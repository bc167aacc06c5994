"""C types, literals and declarations for the dtypes of JAX."""

from __future__ import annotations

import math

from mithril_nb.emission.program import Number, Operand

C_TYPES = {
    "float32": "float", "float64": "double", "bool": "bool", "float0": "bool", "int8": "int8_t", "int16": "int16_t",
    "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t",
    "uint64": "uint64_t", "key<fry>": "uint32_t",
}  # fmt: skip
"""The C type for each dtype. A random key, `key<fry>`, is two `uint32_t`."""
_BYTES = {"float": 4, "double": 8, "bool": 1}
_KEY = "key<fry>"


def c_shape(value: Operand) -> tuple[int, ...]:
    """Return the shape of a value in C. A random key has one more axis, of size 2."""
    return (*value.shape, 2) if value.dtype == _KEY else value.shape


def suffix(dtype: str) -> str:
    """Return the ending that names of helper functions have for a dtype.

    Examples:
        >>> suffix("float32"), suffix("uint8")
        ('float', 'uint8')
    """
    return C_TYPES[dtype].removesuffix("_t")


def item_bytes(dtype: str) -> int:
    """Return the number of bytes of an item."""
    kind = C_TYPES[dtype]
    return _BYTES[kind] if kind in _BYTES else bits(dtype) // 8


def bits(dtype: str) -> int:
    """Return the number of bits of an integer dtype, or of `bool`."""
    return int("".join(one for one in C_TYPES[dtype] if one.isdigit()) or 8)


def is_float(dtype: str) -> bool:
    """Return whether the C type for a dtype is `float` or `double`."""
    return dtype in ("float32", "float64")


def literal(value: complex, dtype: str) -> str:
    """Return a number of a dtype as a C expression.

    Examples:
        >>> literal(0.1, "float32"), literal(2.0, "float64"), literal(float("-inf"), "float32")
        ('0.1f', '2.0', '(-INFINITY)')
        >>> literal(-1, "int32"), literal(True, "bool"), literal(7, "uint32"), literal(-(2**31), "int32")
        ('(-1)', 'true', '7u', 'INT32_MIN')
    """
    kind = C_TYPES[dtype]
    if kind == "bool":
        return "true" if value else "false"
    if is_float(dtype):
        value = float(value.real)
        if math.isnan(value):
            return "NAN"
        text = "INFINITY" if math.isinf(value) else Number(abs(value), dtype).text + ("f" if kind == "float" else "")
        return f"(-{text})" if math.copysign(1, value) < 0 else text
    value = int(value.real)
    if kind.startswith("int"):
        if value == -(2 ** (bits(dtype) - 1)):
            return f"INT{bits(dtype)}_MIN"
        text = f"INT64_C({abs(value)})" if dtype == "int64" and abs(value) >= 2**31 else str(abs(value))
        return f"(-{text})" if value < 0 else text
    return f"UINT64_C({value})" if dtype == "uint64" else f"{value}{'u' if dtype == 'uint32' else ''}"


def dims(shape: tuple[int, ...]) -> str:
    """Return the text of a shape for comments.

    Examples:
        >>> dims((2, 3)), dims(())
        ('2 x 3', 'a number')
    """
    return " x ".join(map(str, shape)) or "a number"


def subscripts(shape: tuple[int, ...]) -> str:
    """Return the dimensions of an array declaration.

    Examples:
        >>> subscripts((2, 3))
        '[2][3]'
    """
    return "".join(f"[{size}]" for size in shape)


def pointer_type(dtype: str, shape: tuple[int, ...], is_const: bool = False) -> tuple[str, str]:
    """Return the text before and after the name in the declaration of a pointer to an array.

    The pointer points to the first item, or to the first row if the array has more than one axis.

    Examples:
        >>> pointer_type("float32", (2, 3)), pointer_type("int32", (5,), True)
        (('float (*', ')[3]'), ('const int32_t *', ''))
    """
    kind = ("const " if is_const else "") + C_TYPES[dtype]
    return (f"{kind} (*", f"){subscripts(shape[1:])}") if len(shape) > 1 else (f"{kind} *", "")
