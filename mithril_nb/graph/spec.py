"""Shapes and dtypes as plain data, independent of any array library."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, SupportsIndex

from mithril_nb.errors import UnknownDtypeError, UnknownOptionError, short_repr
from mithril_nb.graph.paths import check_length

Value = None | bool | int | float | str | tuple["Value", ...]
"""Types that an attribute of a block may hold: plain, hashable, JSON-serialisable data."""


def exactly(value: Value) -> object:
    """Return a key that separates values which Python considers equal: `1`, `1.0` and `True`, or `0.0` and `-0.0`.

    Examples:
        >>> exactly(1) == exactly(1.0), exactly((0.0,)) == exactly((-0.0,)), exactly((1, "x")) == exactly((1, "x"))
        (False, False, True)
    """
    if isinstance(value, tuple):
        # Long tables contain floats: comparing their bytes takes a fraction of the time.
        if value and all(isinstance(entry, float) for entry in value):
            return array("d", value).tobytes()  # pyright: ignore
        return tuple(map(exactly, value))
    if isinstance(value, float):
        # The text separates 0.0 from -0.0, and makes equal NaNs equal.
        return float, value.hex()
    return (type(value), value) if isinstance(value, int) else value


Dim = int | str
"""A size, or the name of an unknown one (`"batch"`)."""
Dims = tuple[Dim, ...]
"""A shape. It may start with `LEADING`."""

LEADING = "..."
"""Represents any number of unknown leading dims at the front of a shape."""

UNKNOWN_SHAPE: Dims = (LEADING,)
"""The shape of an array of which nothing is known."""

MOST_AXES = 64
"""Maximum number of axes of an array, as in NumPy, and of levels of nested lists, which are read recursively."""
MOST_ITEMS = 2**63 - 1
"""Maximum size of an axis."""


def is_dim_name(text: str) -> bool:
    """Return whether a text is a valid name of a dim: an identifier, or `"..."`, which represents the leading dims.

    Examples:
        >>> is_dim_name("batch"), is_dim_name("-1"), is_dim_name("2.5")
        (True, False, False)
    """
    return text == LEADING or text.isidentifier()


ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Bytes of one item of each dtype."""


class DType(str):
    """The name of a dtype, equal to its string: `ml.float32 == "float32"`.

    Examples:
        >>> DType("float32"), DType("float32") == "float32"
        (mithril_nb.float32, True)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"mithril_nb.{self!s}"


float16 = DType("float16")
bfloat16 = DType("bfloat16")
float32 = DType("float32")
float64 = DType("float64")
int8 = DType("int8")
int16 = DType("int16")
int32 = DType("int32")
int64 = DType("int64")
uint8 = DType("uint8")
bool_ = DType("bool")


def as_dtype(dtype: object) -> DType:
    """Return the name of a dtype given as `ml.float32`, `"float32"`, or a NumPy or JAX dtype.

    Examples:
        >>> as_dtype("float32")
        mithril_nb.float32
    """
    # `jnp.float32` is a class with a name, `np.dtype` has an attribute `name`.
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    if name is None or str(name) not in ITEM_BYTES:
        raise UnknownDtypeError(
            f"unknown dtype {dtype!r}.",
            (("known", ", ".join(ITEM_BYTES)),),
            'dtype="float32"',
        )
    return DType(name)


def as_shape(name: str, dims: Any) -> tuple[Dim, ...]:
    """Validate the shape of the input `name`; return it as a tuple of sizes and names of sizes.

    Examples:
        >>> as_shape("input", ["batch", 784])
        ('batch', 784)
    """
    try:
        # `tuple("ab")` would be a shape of two names.
        if isinstance(dims, str):
            raise TypeError
        sizes = tuple(dims)
        if len(sizes) <= MOST_AXES:
            return tuple(_dim(axis, dim) for axis, dim in enumerate(sizes))
    except UnknownOptionError:
        raise
    except (TypeError, ValueError):
        size = dims if type(dims) is int and 0 < dims < 10**9 else 784
        raise UnknownOptionError(
            f"{short_repr(dims)} is not a shape for input {name!r}.",
            (("needs", "a list of sizes, or names of unknown sizes; '...' may only come first"),),
            f'shapes={{{name!r}: ["batch", {size}]}}',
            port=name,
        ) from None
    check_rank(name, sizes)
    return sizes


def check_rank(name: str, dims: Sized) -> None:
    """Raise if the shape of the input `name` has more axes than an array supports.

    Examples:
        >>> check_rank("input", ["batch", 784])
    """
    if len(dims) > MOST_AXES:
        raise UnknownOptionError(
            f"the shape of input {name!r} has {len(dims):,} axes.",
            (("at most", f"{MOST_AXES} axes"), ("given", short_repr(dims))),
            f'shapes={{{name!r}: ["batch", 784]}}',
            port=name,
        )


def _dim(axis: int, dim: Any) -> Dim:
    if isinstance(dim, str):
        if not is_dim_name(dim) or (dim == LEADING and axis):
            raise ValueError
        check_length(dim)
        return dim
    # NumPy's integers have `__index__`, floats do not.
    if isinstance(dim, bool) or not isinstance(dim, int | SupportsIndex) or not 0 <= int(dim) <= MOST_ITEMS:
        raise ValueError
    return int(dim)


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of an array; some dims may be unknown.

    Attributes:
        shape: Sizes (int) or names (str) of the dims. A leading `"..."` represents any number of further dims.
        dtype: Name of the dtype.

    Examples:
        >>> TensorSpec(("batch", 784))
        ('batch', 784) float32
        >>> TensorSpec((32, 10)).size, TensorSpec((32, 10)).nbytes
        (320, 1280)
    """

    shape: tuple[Dim, ...]
    dtype: str = "float32"

    def __repr__(self) -> str:
        return f"{self.shape} {self.dtype!s}"

    @property
    def is_concrete(self) -> bool:
        """True if every dim is a number."""
        return all(isinstance(dim, int) for dim in self.shape)

    @property
    def size(self) -> int | None:
        """Number of items, or `None` while a dim is unknown."""
        product = 1
        for dim in self.shape:
            if not isinstance(dim, int):
                return None
            product *= dim
        return product

    @property
    def nbytes(self) -> int | None:
        """Size in bytes, or `None` while a dim is unknown."""
        return None if self.size is None else self.size * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class StaticSpec:
    """A non-array value on a connection: a shape, an axis, a dtype's name.

    Attributes:
        value: The value, as far as it is known before the program runs; in a shape, names represent unknown sizes.
        is_known: True if the value is known.

    Examples:
        >>> StaticSpec(("batch", 3)), StaticSpec(is_known=False)
        (static ('batch', 3), static unknown)
    """

    value: Value = None
    is_known: bool = True

    def __repr__(self) -> str:
        return f"static {self.value!r}" if self.is_known else "static unknown"


Spec = TensorSpec | StaticSpec
"""The spec of the data on a connection."""


_ARRAY = re.compile(r"([A-Za-z]\w*)\[\s*(?:(\d+(?:\s*,\s*\d+)*)\s*,?\s*)?\]")
_SHORT = re.compile(r"(bf|f|i|s|u|c)(\d+)(\w*)")
_KINDS = {"bf": "bfloat", "f": "float", "i": "int", "s": "int", "u": "uint", "c": "complex"}


def read_spec(text: str) -> TensorSpec | None:
    """Parse a spec as written in jaxprs and HLO, or with the full name of its dtype; `None` if it is not a spec.

    The dtype is not checked: it may be unknown.

    Examples:
        >>> print(read_spec("bf16[8,3]"), read_spec("pred[]"), read_spec("int32[4]"), read_spec("relu"))
        (8, 3) bfloat16 () bool (4,) int32 None
    """
    match = _ARRAY.fullmatch(text.strip())
    if match is None:
        return None
    sizes = tuple(int(size) for size in (match[2] or "").split(",") if size)
    return TensorSpec(sizes, full_dtype(match[1]))


def full_dtype(name: str) -> str:
    """Return the full name of a dtype given as jaxprs and HLO write it; other names unchanged.

    Examples:
        >>> full_dtype("bf16"), full_dtype("pred"), full_dtype("float64")
        ('bfloat16', 'bool', 'float64')
    """
    # With a suffix, as in f8e4m3fn.
    short = _SHORT.fullmatch(name)
    if short is None:
        return "bool" if name == "pred" else name
    return f"{_KINDS[short[1]]}{short[2]}{short[3]}"
