"""C types, literals and declarations for the dtypes of JAX, and expressions of indices."""

from __future__ import annotations

import math

import numpy as np

from mithril_nb.emission.program import Number, Operand

C_TYPES = {
    "float32": "float", "float64": "double", "bool": "bool", "float0": "bool", "int8": "int8_t", "int16": "int16_t",
    "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t",
    "uint64": "uint64_t", "key<fry>": "uint32_t",
}  # fmt: skip
"""The C type for each dtype. A random key, `key<fry>`, is two `uint32_t`."""


def c_shape(value: Operand) -> tuple[int, ...]:
    """Return the shape of a value in C. A random key has one more axis, of size 2."""
    return (*value.shape, 2) if value.dtype == "key<fry>" else value.shape


def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype({"float": "float32", "double": "float64"}.get(kind := suffix(dtype), kind))


def suffix(dtype: str) -> str:
    return C_TYPES[dtype].removesuffix("_t")


def bits(dtype: str) -> int:
    return 8 * numpy_dtype(dtype).itemsize


def is_float(dtype: str) -> bool:
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
        return f"(-{text})" if math.copysign(1, value) < 0 else text  # also -0.0; `x --1` is no C
    value = int(value.real)
    if kind.startswith("int"):
        if value == -(2 ** (bits(dtype) - 1)):  # C has no negative literals, only -x for an x that is too large
            return f"INT{bits(dtype)}_MIN"
        text = f"INT64_C({abs(value)})" if dtype == "int64" and abs(value) >= 2**31 else str(abs(value))
        return f"(-{text})" if value < 0 else text
    return f"UINT64_C({value})" if dtype == "uint64" else f"{value}{'u' if dtype == 'uint32' else ''}"


def dims(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a number"


def subscripts(shape: tuple[int, ...]) -> str:
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


def scaled(index: str, factor: int = 1, offset: int = 0) -> str:
    """Return the index `factor * index + offset`.

    Examples:
        >>> scaled("i"), scaled("i", 2, 1), scaled("3", 2, 1), scaled("i", -1, 7), scaled("i + 1", 1, -1)
        ('i', '2 * i + 1', '7', '7 - i', 'i + 1 - 1')
    """
    if is_number(index):  # constants are computed here, so that a reader sees the subscript
        return str(factor * int(index) + offset)
    inner = enclosed(index)
    if factor == -1:
        return f"{offset} - {inner}" if offset else f"-{inner}"
    text = index if factor == 1 else f"{factor} * {inner}"
    if not offset:
        return text
    return f"{text} {'-' if offset < 0 else '+'} {abs(offset)}"


def divided(index: str, by: int) -> str:
    """Return an index divided by a number and rounded down; the index must not be negative.

    Examples:
        >>> divided("i", 2), divided("i + 1", 2), divided("i + 1", 1), divided("5", 2)
        ('i / 2', '(i + 1) / 2', 'i + 1', '2')
    """
    if by == 1:
        return index
    return str(int(index) // by) if is_number(index) else f"{enclosed(index)} / {by}"


def remainder(index: str, by: int) -> str:
    """Return the remainder of an index divided by a number; the index must not be negative."""
    if by == 1:
        return "0"
    return str(int(index) % by) if is_number(index) else f"{enclosed(index)} % {by}"


def enclosed(index: str) -> str:
    return index if index.isidentifier() else f"({index})"


def total(*parts: str) -> str:
    """Return the sum of some indices.

    Examples:
        >>> total("i", "0", "2"), total("1", "2"), total("i", "7 - j")
        ('i + 2', '3', 'i + 7 - j')
    """
    number = sum(int(part) for part in parts if is_number(part))
    others = [part for part in parts if not is_number(part)]
    return scaled(" + ".join(others), 1, number) if others else str(number)


def flat(index: tuple[str, ...], shape: tuple[int, ...]) -> str:
    """Return the position of an item in the flattened array.

    Examples:
        >>> flat(("i", "j"), (2, 3)), flat((), ())
        ('3 * i + j', '0')
    """
    return total(*(scaled(text, math.prod(shape[axis + 1 :])) for axis, text in enumerate(index)))


def is_number(index: str) -> bool:
    return index.removeprefix("-").isdigit()
