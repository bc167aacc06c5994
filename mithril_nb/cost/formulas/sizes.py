"""Numbers of elements and of bytes of arrays. For symbolic sizes, these are polynomials."""

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
    """Return a size as a polynomial if it is text, such as `"2*batch"`, else as an integer."""
    return parse(dim) if isinstance(dim, str) else int(dim)


def nbytes(spec: TensorSpec) -> int | None:
    """Return the size of an array in bytes; `None` if a dim is symbolic, or the size of the dtype is unknown.

    A random key has 8 bytes, or 16 for `rbg` and `unsafe_rbg`.

    Examples:
        >>> nbytes(TensorSpec((4,), "float32")), nbytes(TensorSpec((), "key<fry>")), nbytes(TensorSpec((3,), "int4"))
        (16, 8, 2)
        >>> nbytes(TensorSpec(("batch", 4), "float32")), nbytes(TensorSpec((4,), "opaque"))
        (None, None)
    """
    size_in_bytes = bytes_of(spec) if spec.is_concrete else 0 if spec.dtype == "token" else None
    return size_in_bytes if isinstance(size_in_bytes, int) else None


def bytes_of(spec: TensorSpec) -> Expression | None:
    """Return the size of an array in bytes, as a polynomial if a dim is symbolic; `None` if the dtype is unknown.

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
    # The name of the dtype has the number of bits. Two int4 share a byte, so the sum is rounded up to whole bytes.
    return (int(digits) * count(spec) + 7) // 8 if digits else None


def sum_of(*values: Size | None) -> Size | None:
    """Return the sum; `None` if one of the values is unknown.

    Examples:
        >>> sum_of(1, 2), sum_of(1, None), sum_of()
        (3, None, 0)
    """
    numbers = [value for value in values if value is not None]
    total: Any = sum(numbers)
    return total if len(numbers) == len(values) else None


def product_of(*factors: Size | None) -> Size | None:
    """Return the product; `None` if one of the factors is unknown."""
    numbers = [factor for factor in factors if factor is not None]
    product: Any = prod(numbers)
    return product if len(numbers) == len(factors) else None


def repeated(each: Size | None, repeats: Size | None) -> Size | None:
    """Return `each * repeats`; 0 if one of them is 0, even if the other is unknown (`None`).

    Examples:
        >>> repeated(3, 2), repeated(3, None), repeated(None, 2), repeated(0, None), repeated(None, 0)
        (6, None, None, 0, 0)
    """
    nothing: Any = 0
    return nothing if each == 0 or repeats == 0 else product_of(each, repeats)


def bytes_sum(*specs: TensorSpec) -> Expression | None:
    """Return the bytes of several arrays together; `None` if one size is unknown."""
    return sum_of(*map(bytes_of, specs))
