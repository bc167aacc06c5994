"""Arithmetic on dims. A dim is a number, a name, or an expression of names such as `"h*w-1"`."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

from mithril_nb.graph.spec import LEADING, UNKNOWN_SHAPE, Dim, Dims, TensorSpec

Terms = Mapping[tuple[str, ...], int]
"""A sum of products: maps the factors of each product to its coefficient. `()` is the constant term."""


Item = TypeVar("Item")


class UnknownShapeError(Exception):
    """Raised by a shape rule whose result is known only at run time. `infer` then gives the output an unknown shape."""


class MismatchError(Exception):
    """Raised by a shape rule for an input or attribute that does not fit. `infer` converts it to a `Diagnostic`.

    Attributes:
        port: The input or attribute that does not fit.
        need: The requirement: a shape, or words such as `"at least one axis"`.
        advice: The suggested fix.
        detail: What was found instead, such as `"rank 0"`; `""` to omit it.
    """

    def __init__(self, port: str, need: str, advice: str, detail: str = ""):
        super().__init__(port, need, advice, detail)
        self.port, self.need, self.advice, self.detail = port, need, advice, detail

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """The requirement of the port, and what was found instead, as facts of a message."""
        need = (self.port, f"needs {self.need}")
        return (need, ("found", self.detail)) if self.detail else (need,)


def is_open(shape: Dims) -> bool:
    """Return whether the leading axes of a shape, and so its rank, are unknown."""
    return shape[:1] == UNKNOWN_SHAPE


def closed(shape: Dims) -> Dims:
    """Return a shape. Raise an `UnknownShapeError` if its rank is unknown."""
    if is_open(shape):
        raise UnknownShapeError
    return shape


def check_axis(port: str, shape: Dims, advice: str) -> None:
    """Raise a `MismatchError` with this advice if an input is a scalar."""
    if not shape:
        raise MismatchError(port, "at least one axis", advice, "rank 0")


def differ(size: Dim | None, other: Dim | None) -> bool:
    """Return whether two sizes certainly differ: a name may be any size."""
    return isinstance(size, int) and isinstance(other, int) and size != other


def spliced(items: tuple[Item, ...], position: int, *new: Item) -> tuple[Item, ...]:
    """Return a tuple with the item at a position replaced by `new`, or removed.

    Examples:
        >>> spliced(("batch", 3), 1), spliced(("batch", 3), 1, 4, 5)
        (('batch',), ('batch', 4, 5))
    """
    return (*items[:position], *new, *items[position + 1 :])


def product(dims: Dims) -> Dim:
    """Return the product of dims: a number if all dims are numbers, else an expression such as `"h*w*3"`.

    Examples:
        >>> product((2, 3)), product(("h", 2, 3)), product(("h-2", 3))
        (6, 'h*6', '(h-2)*3')
    """
    number, factors = _factors(dims)
    return _written({tuple(factors.elements()): number})


def quotient(dims: Dims, by: Dims) -> Dim | None:
    """Return the product of `dims` divided by the product of `by`.

    Common factors are cancelled first. The result is `None` if it cannot be an integer, or if the remaining divisor is
    0. If names remain, the result may be an expression that rounds down.

    Examples:
        >>> quotient(("batch", 4, 6), (24,)), quotient((4, 6), (5,)), quotient(("batch", 3), (4,))
        ('batch', None, 'batch*3//4')
        >>> quotient((0, 3), (0,))
        3
    """
    above, below = Counter(dims), Counter(by)
    # Cancelled before the division, so that n * 0 / 0 is n.
    above, below = above - below, below - above
    number, factors = _factors(tuple(above.elements()))
    divisor, divisors = _factors(tuple(below.elements()))
    factors, divisors = factors - divisors, divisors - factors
    if divisor == 0:
        return None
    if not divisors and number % divisor == 0:
        return _written({tuple(factors.elements()): number // divisor})
    if not factors and not divisors:
        return None
    top, bottom = (_written({tuple(f.elements()): n}) for f, n in ((factors, number), (divisors, divisor)))
    return f"{top}//{bottom}" if isinstance(bottom, int) or bottom.isidentifier() else f"{top}//({bottom})"


def plus(*dims: Dim) -> Dim:
    """Return the sum of dims: a number if the names cancel, else an expression such as `"n+m+2"`.

    Examples:
        >>> plus(2, 3), plus("n", 2, "m"), plus("n", "n"), plus("n-1", 1)
        (5, 'n+m+2', 'n*2', 'n')
    """
    total: dict[tuple[str, ...], int] = {}
    for dim in dims:
        for factors, number in _terms(dim).items():
            # "n*m" and "m*n" are one term.
            key = tuple(sorted(factors))
            total[key] = total.get(key, 0) + number
    return _written(total)


def times(dim: Dim, number: int) -> Dim:
    """Return a dim multiplied by a number, term by term, so that `plus` can cancel a dim and its negative.

    Examples:
        >>> times("n+1", -1), times(3, 2)
        ('-n-1', 6)
    """
    return _written({factors: count * number for factors, count in _terms(dim).items()})


def least(a: Dim, b: Dim) -> Dim:
    """Return the smaller of two dims, or `"min(a,b)"` if their difference is not a number.

    Examples:
        >>> least(2, 3), least("n", 3), least("n", "n+2")
        (2, 'min(n,3)', 'n')
    """
    change = plus(b, times(a, -1))
    if isinstance(change, int):
        return a if change >= 0 else b
    return f"min({a},{b})"


def at_least_0(dim: Dim) -> Dim:
    """Return a dim, or 0 if it is negative; `"max(dim,0)"` if the sign is unknown.

    Examples:
        >>> at_least_0(-2), at_least_0("n"), at_least_0("n-2")
        (0, 'n', 'max(n-2,0)')
    """
    if isinstance(dim, int):
        return max(dim, 0)
    # A name is a size, so it is not negative. Only a term with a negative coefficient can be.
    return f"max({dim},0)" if any(number < 0 for number in _terms(dim).values()) else dim


def sliced(size: Dim, start: Dim | None, stop: Dim | None, step: Dim | None) -> Dim:
    """Return the size of a sliced axis.

    `start`, `stop` and `step` are those of a Python slice. If one of them is a name, the size is known only if the step
    is 1 and no bound can be negative. Otherwise the result is a name for the unknown size, such as `"?n[:m-1]"`.

    Examples:
        >>> sliced(5, 1, None, 2), sliced("n", 1, None, None), sliced("n", None, 3, None), sliced("n", None, None, -1)
        (2, 'max(n-1,0)', 'min(n,3)', 'n')
    """
    # A bound of unknown sign may count from the end.
    if isinstance(start, str) or isinstance(stop, str) or isinstance(step, str):
        near, far = (bound is None or at_least_0(bound) == bound for bound in (start, stop))
        if not (near and far and step in (None, 1)):
            text = ":".join("" if bound is None else str(bound) for bound in (start, stop, step))
            return f"?{size}[{text}]"
        first = 0 if start is None else start
        return at_least_0(plus(size if stop is None else least(size, stop), times(first, -1)))
    if isinstance(size, int):
        return len(range(*slice(start, stop, step).indices(size)))
    step = 1 if step is None else step
    if step < 0:
        # A backward slice is a forward slice of the reversed axis, in which item i has the index -1 - i.
        start, stop = (None if bound is None else -1 - bound for bound in (start, stop))
    if stop is None and start is not None and start < 0:
        length = least(size, -start)
    else:
        # Python clips both bounds to the axis. Here a bound is clipped only where this changes the length.
        first = 0 if start is None else start if start >= 0 else at_least_0(plus(size, start))
        last = size if stop is None else least(size, stop) if stop >= 0 else plus(size, stop)
        length = at_least_0(plus(last, times(first, -1)))
    if isinstance(length, int):
        return -(-length // abs(step))
    return length if step in (1, -1) else f"({plus(length, abs(step) - 1)})//{abs(step)}"


def place_of(port: str, axis: int, shape: Dims, more: int = 0) -> int | None:
    """Return the index of an axis in `shape`; `None` if it counts from the start and `shape` starts with `"..."`.

    Args:
        port: The input with the shape, for the error message.
        axis: The axis; a negative axis counts from the end.
        shape: The shape.
        more: Number of axes that the operation adds. The result is an index in the output shape, as for `jnp.stack`.

    Examples:
        >>> place_of("input", -1, ("batch", 3)), place_of("input", -1, ("...", 3)), place_of("input", 0, ("...", 3))
        (1, 1, None)
    """
    rank = len(shape) + more
    if is_open(shape):
        return rank + axis if -rank < axis < 0 else None
    if not -rank <= axis < rank:
        advice = f"use an axis from {-rank} to {rank - 1}." if rank else "use an input with at least one axis."
        raise MismatchError(port, f"an axis {axis}", advice, f"rank {len(shape)}")
    return axis % rank


def located(port: str, axis: object, shape: Dims, more: int = 0) -> int:
    """Return the index of an axis as `place_of`. Raise an `UnknownShapeError` if it is unknown."""
    # A connected axis may be known only at run time, or be a size that has only a name yet.
    position = place_of(port, axis, shape, more) if isinstance(axis, int) else None
    if position is None:
        raise UnknownShapeError
    return position


def _factors(dims: Dims) -> tuple[int, Counter[str]]:
    number, factors = 1, Counter[str]()
    for dim in dims:
        terms = _terms(dim)
        if len(terms) > 1:
            factors[str(dim)] += 1
            continue
        ((names, count),) = terms.items() or (((), 0),)
        number *= count
        factors.update(names)
    return number, factors


@lru_cache(maxsize=4096)
def _terms(dim: Dim) -> Terms:
    if isinstance(dim, int):
        return {(): dim} if dim else {}
    if dim.isidentifier():
        return {(dim,): 1}
    try:
        return _read(ast.parse(dim, mode="eval").body)
    # A name such as "?n[:m-1]" that `sliced` made. It is compared as a text.
    except SyntaxError:
        return {(dim,): 1}


def _read(node: ast.expr) -> Terms:
    match node:
        case ast.Constant(value=int(number)):
            return {(): number} if number else {}
        case ast.BinOp(left, ast.Add() | ast.Sub() as sign, right):
            total = dict(_read(left))
            for factors, number in _read(right).items():
                total[factors] = total.get(factors, 0) + (number if isinstance(sign, ast.Add) else -number)
            return {factors: number for factors, number in total.items() if number}
        case ast.UnaryOp(ast.USub(), inner):
            return {factors: -number for factors, number in _read(inner).items()}
        case ast.BinOp(left, ast.Mult(), right):
            number, factors = 1, []
            for side in (left, right):
                terms = _read(side)
                if len(terms) > 1:
                    factors.append(_text(side))
                else:
                    ((names, count),) = terms.items() or (((), 0),)
                    number *= count
                    factors += names
            return {tuple(factors): number} if number else {}
        case _:
            return {(_text(node),): 1}


def _text(node: ast.expr) -> str:
    return ast.unparse(node).replace(" ", "")


def _written(terms: Terms) -> Dim:
    terms = {factors: number for factors, number in terms.items() if number}
    if set(terms) <= {()}:
        return terms.get((), 0)
    texts: list[str] = []
    # The constant comes last, as people write it.
    for factors, number in sorted(terms.items(), key=lambda term: not term[0]):
        names = [
            name if name.isidentifier() or re.fullmatch(r"(min|max)\(.*\)", name) else f"({name})" for name in factors
        ]
        if not names:
            texts.append(f"{number:+d}")
        elif number == 1 and len(factors) == 1:
            texts.append(f"+{factors[0]}")
        else:
            sign, size = "-" if number < 0 else "+", abs(number)
            texts.append(sign + "*".join([*names, *([str(size)] if size != 1 else [])]))
    return "".join(texts).removeprefix("+")


def window_size(size: Dim, window: int, stride: int, before: int, after: int) -> Dim:
    """Return the number of windows that fit on an axis: `(size + before + after - window) // stride + 1`, at least 0.

    Examples:
        >>> window_size(28, 3, 1, 1, 1), window_size("h", 2, 2, 0, 0)
        (28, '(h-2)//2+1')
    """
    if isinstance(size, int):
        return max((size + before + after - window) // stride + 1, 0)
    change = before + after - window
    # Without a division, the expression is shorter and `plus` can cancel it.
    if stride == 1:
        return size if change == -1 else f"{size}{change + 1:+d}"
    return f"({size}{change:+d})//{stride}+1"


def same_padding(size: Dim, window: int, stride: int) -> tuple[int, int]:
    """Return the padding before and after an axis that gives `ceil(size / stride)` windows.

    If the total padding is odd, there is one more after the axis. For an unknown size, return the padding for stride 1.

    Examples:
        >>> same_padding(28, 3, 1), same_padding(7, 2, 2)
        ((1, 1), (0, 1))
    """
    if not isinstance(size, int):
        total = window - 1
    else:
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def broadcast(left: TensorSpec, right: TensorSpec) -> Dims:
    """Return the shape that two arrays broadcast to, by NumPy's rule.

    Examples:
        >>> broadcast(TensorSpec(("batch", 1, 3)), TensorSpec((4, 1)))
        ('batch', 4, 3)
        >>> broadcast(TensorSpec(("...", 3)), TensorSpec((3,)))
        ('...', 3)
    """
    result: list[Dim] = []
    for offset in range(1, max(len(left.shape), len(right.shape)) + 1):
        a, b = (shape[-offset] if offset <= len(shape) else 1 for shape in (left.shape, right.shape))
        if LEADING in (a, b):
            # The unknown axes either equal the other side's sizes or broadcast to them, so sizes above 1 are kept.
            other = right.shape if a == LEADING else left.shape
            for dim in reversed(other[: max(len(other) - offset + 1, 0)]):
                if not isinstance(dim, int) or dim == 1:
                    break
                result.append(dim)
            result.append(LEADING)
            break
        if a == b or b == 1:
            result.append(a)
        elif a == 1:
            result.append(b)
        elif differ(a, b):
            raise MismatchError(
                "right",
                f"a shape that broadcasts with {left.shape}",
                "use the same sizes, or size 1 on an axis to broadcast.",
                f"axis {-offset}: {a} != {b}",
            )
        else:
            result.append(a if isinstance(a, int) else b)
    return tuple(reversed(result))


def agree(shape: Dims, other: Dims) -> bool:
    """Return whether two shapes can be equal: a name can be any size, and `"..."` any leading axes.

    Examples:
        >>> agree(("batch", 3), (2, 3)), agree((2, 3), (2, 4)), agree(("...", 3), (2, 2, 3))
        (True, False, True)
    """
    return meet(shape, other, {}) is not None


def meet(shape: Dims, other: Dims, names: dict[str, Dim]) -> Dims | None:
    """Return the shape that fits both shapes, or `None`. A name is any one size, `"..."` any leading axes.

    Args:
        shape: A shape.
        other: Another shape.
        names: A dict to which the function adds the size, or other name, found for each name.

    Examples:
        >>> names = {}
        >>> meet(("...", "rows", 3), ("batch", 4, 3), names), names
        (('batch', 4, 3), {'rows': 4})
        >>> meet(("n", "n"), (2, 3), {}) is None
        True
    """
    if is_open(shape) or is_open(other):
        # The shape with more known axes is filled in: of two open shapes the longer one.
        is_shorter = is_open(shape) and (not is_open(other) or len(shape) < len(other))
        full, tail = (other, shape[1:]) if is_shorter else (shape, other[1:])
        split = len(full) - len(tail)
        both = None if split < 0 else meet(full[split:], tail, names)
        return None if both is None else (*full[:split], *both)
    if len(shape) != len(other):
        return None
    dims: list[Dim] = []
    sizes: dict[str, int] = {}
    for a, b in zip(shape, other, strict=True):
        if isinstance(a, int) and isinstance(b, int):
            if a != b:
                return None
            dims.append(a)
            continue
        number, name = (a, b) if isinstance(a, int) else (b, a)
        # Only plain names are recorded. An expression such as "h*w" is computed again when h and w are known.
        if isinstance(name, str) and name.isidentifier() and name != number:
            if isinstance(number, int) and sizes.setdefault(name, number) != number:
                return None
            names[name] = number
        dims.append(number if isinstance(number, int) else a)
    return tuple(dims)


def renamed(shape: Dims, names: Mapping[str, Dim]) -> Dims:
    """Return the shape with each name in `names` replaced.

    Examples:
        >>> renamed(("batch", "rows"), {"rows": 4})
        ('batch', 4)
    """
    return tuple(names.get(dim, dim) if isinstance(dim, str) else dim for dim in shape)
