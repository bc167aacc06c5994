"""Numbers of elements and bytes of arrays, whose sizes may be symbolic."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, TypeVar

from mithril_nb.cost.formulas.parsing import parse
from mithril_nb.cost.formulas.symbols import Expression
from mithril_nb.graph.spec import ITEM_BYTES, TensorSpec

Size = TypeVar("Size", int, Expression)


def size(spec: TensorSpec) -> int:
    """Return the number of elements of a spec without symbolic dims."""
    return prod(int(dim) for dim in spec.shape)


def count(spec: TensorSpec) -> Expression:
    """Return the number of elements of a spec; a polynomial if a dim is symbolic."""
    return times(as_size(dim) for dim in spec.shape)


def times(factors: Iterable[Expression]) -> Expression:
    """Return the product of sizes."""
    return prod(factors)


def length(spec: TensorSpec, axis: int) -> Expression:
    """Return the size of one axis."""
    return as_size(spec.shape[axis])


def as_size(dim: Any) -> Expression:
    """Return a dim, or a param that is a size: text as a polynomial, other values as integers.

    Raises:
        UndecidedError: `dim` is a text that is not a polynomial, such as `"..."`.
    """
    return parse(dim) if isinstance(dim, str) else int(dim)


def nbytes(spec: TensorSpec) -> int | None:
    """Return the size of an array in bytes; `None` if a dim is symbolic, or the size of the dtype is unknown.

    A token has no bytes. A random key has two words of 4 bytes, and four for `rbg` and `unsafe_rbg`. An element of
    another dtype has the number of bits in the name of the dtype.

    Examples:
        >>> nbytes(TensorSpec((4,), "float32")), nbytes(TensorSpec((), "key<fry>")), nbytes(TensorSpec((3,), "int4"))
        (16, 8, 2)
        >>> nbytes(TensorSpec(("batch", 4), "float32")), nbytes(TensorSpec((4,), "opaque"))
        (None, None)
    """
    found = bytes_of(spec) if spec.is_concrete else 0 if spec.dtype == "token" else None
    return found if isinstance(found, int) else None


def bytes_of(spec: TensorSpec) -> Expression | None:
    """Return the size of an array in bytes, like `nbytes`, but as a polynomial if a dim is symbolic.

    Examples:
        >>> bytes_of(TensorSpec(("batch", 4), "float32")), bytes_of(TensorSpec(("batch", 3), "int4"))
        (16·batch, floor((12·batch + 7)/8))
    """
    if spec.dtype == "token":
        return 0
    key = {"key<rbg>": 16, "key<urbg>": 16}.get(spec.dtype, 8) if spec.dtype.startswith("key<") else None
    item = ITEM_BYTES.get(spec.dtype, key)
    if item is not None:
        return item * count(spec)
    digits = "".join(char for char in spec.dtype.split("_")[0] if char.isdigit())
    # Rounded up to whole bytes: two int4 share a byte.
    return (int(digits) * count(spec) + 7) // 8 if digits else None


def sum_of(*values: Size | None) -> Size | None:
    """Return the sum; `None` if one of the values is unknown.

    Examples:
        >>> sum_of(1, 2), sum_of(1, None), sum_of()
        (3, None, 0)
    """
    known = [value for value in values if value is not None]
    whole: Any = sum(known)
    return whole if len(known) == len(values) else None


def repeated(each: int | None, repeats: int | None) -> int | None:
    """Return the cost of all runs from the cost of one run; 0 if either is 0, else `None` if either is unknown.

    Examples:
        >>> repeated(3, 2), repeated(3, None), repeated(None, 2), repeated(0, None), repeated(None, 0)
        (6, None, None, 0, 0)
    """
    if each == 0 or repeats == 0:
        return 0
    return None if each is None or repeats is None else each * repeats


def bytes_sum(*specs: TensorSpec) -> Expression | None:
    """Return the size of several arrays together in bytes; `None` if one size is unknown."""
    return sum_of(*map(bytes_of, specs))
