"""Arithmetic on dims, some of which are only names yet."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mithril_nb.graph.spec import LEADING, Dim, TensorSpec


class MismatchError(Exception):
    """A rule cannot take what a port was given. Inference turns it into a `Diagnostic` that names the places.

    Attributes:
        port: The input that does not fit.
        need: What it needs, in words or as a shape.
        advice: What to try.
        detail: The axis and the sizes that differ, or `""`.
    """

    def __init__(self, port: str, need: str, advice: str, detail: str = ""):
        super().__init__(port, need, advice, detail)
        self.port, self.need, self.advice, self.detail = port, need, advice, detail


def product(dims: tuple[Dim, ...]) -> Dim:
    """Return the product of dims: a number, or `"h*w*3"` while some are names.

    Examples:
        >>> product((2, 3)), product(("h", 2, 3)), product(("h-2", 3))
        (6, 'h*6', '(h-2)*3')
    """
    number = prod(dim for dim in dims if isinstance(dim, int))
    if number == 0:
        return 0
    names = [dim if dim.isidentifier() else f"({dim})" for dim in dims if isinstance(dim, str)]
    if len(names) == 1 and number == 1:
        return next(dim for dim in dims if isinstance(dim, str))
    return "*".join([*names, *([str(number)] if number != 1 else [])]) if names else number


def window_size(size: Dim, window: int, stride: int, before: int, after: int) -> Dim:
    """Return how many windows fit on an axis: `(size + before + after - window) // stride + 1`.

    Examples:
        >>> window_size(28, 3, 1, 1, 1), window_size("h", 2, 2, 0, 0)
        (28, '(h-2)//2+1')
    """
    if isinstance(size, int):
        return max((size + before + after - window) // stride + 1, 0)
    change = before + after - window
    if stride == 1:
        return size if change == -1 else f"{size}{change + 1:+d}"
    return f"({size}{change:+d})//{stride}+1"


def same_padding(size: Dim, window: int, stride: int) -> tuple[int, int]:
    """Return the padding before and after with which `ceil(size / stride)` windows fit; the odd one goes after.

    For a size that is not known yet, the padding of stride 1.

    Examples:
        >>> same_padding(28, 3, 1), same_padding(7, 2, 2)
        ((1, 1), (0, 1))
    """
    if not isinstance(size, int):
        total = window - 1
    else:
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def broadcast(left: TensorSpec, right: TensorSpec) -> tuple[Dim, ...]:
    """Return the shape of an elementwise result of two arrays, by NumPy's rule; axes are counted from the last one.

    Examples:
        >>> broadcast(TensorSpec(("batch", 1, 3)), TensorSpec((4, 1)))
        ('batch', 4, 3)
        >>> broadcast(TensorSpec(("...", 3)), TensorSpec((3,)))
        ('...', 3)

    Raises:
        MismatchError: Two sizes differ and neither is 1.
    """
    result: list[Dim] = []
    for place in range(1, max(len(left.shape), len(right.shape)) + 1):
        a, b = (shape[-place] if place <= len(shape) else 1 for shape in (left.shape, right.shape))
        if LEADING in (a, b):
            # The unknown axes either repeat along those of the other side or equal them, so sizes above 1 stay.
            other = right.shape if a == LEADING else left.shape
            for dim in reversed(other[: max(len(other) - place + 1, 0)]):
                if not isinstance(dim, int) or dim == 1:
                    break
                result.append(dim)
            result.append(LEADING)
            break
        if a == b or b == 1:
            result.append(a)
        elif a == 1:
            result.append(b)
        elif isinstance(a, int) and isinstance(b, int):
            raise MismatchError(
                "right",
                f"a shape that broadcasts with {left.shape}",
                "give both the same sizes, or size 1 where one is to be repeated.",
                f"axis {-place}: {a} != {b}",
            )
        else:
            result.append(a if isinstance(a, int) else b)
    return tuple(reversed(result))


def agree(one: tuple[Dim, ...], other: tuple[Dim, ...]) -> bool:
    """Return whether two shapes may be the same, as far as they are known.

    Examples:
        >>> agree(("batch", 3), (2, 3)), agree((2, 3), (2, 4)), agree(("...", 3), (2, 2, 3))
        (True, False, True)
    """
    return meet(one, other, {}) is not None


def meet(one: tuple[Dim, ...], other: tuple[Dim, ...], names: dict[str, Dim]) -> tuple[Dim, ...] | None:
    """Return the shape that is both, as far as they are known; `None` if there is none.

    Args:
        one: A shape.
        other: Another.
        names: Gets what a name turns out to stand for.

    Examples:
        >>> names = {}
        >>> meet(("...", "rows", 3), ("batch", 4, 3), names), names
        (('batch', 4, 3), {'rows': 4})
    """
    if LEADING in one[:1] and LEADING in other[:1]:
        longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
        tail = meet(longer[len(longer) - len(shorter) + 1 :], shorter[1:], names)
        return None if tail is None else (*longer[: len(longer) - len(shorter) + 1], *tail)
    if LEADING in one[:1] or LEADING in other[:1]:
        known, tail = (other, one[1:]) if one[0] == LEADING else (one, other[1:])
        if len(known) < len(tail):
            return None
        split = len(known) - len(tail)
        both = meet(known[split:], tail, names)
        return None if both is None else (*known[:split], *both)
    if len(one) != len(other):
        return None
    found: list[Dim] = []
    for a, b in zip(one, other, strict=True):
        if isinstance(a, int) and isinstance(b, int):
            if a != b:
                return None
            found.append(a)
            continue
        number, name = (a, b) if isinstance(a, int) else (b, a)
        # What is computed from names, as "h*w", is computed anew when they are known.
        if isinstance(name, str) and name.isidentifier() and name != number:
            names[name] = number
        found.append(number if isinstance(number, int) else a)
    return tuple(found)


def renamed(shape: tuple[Dim, ...], names: Mapping[str, Dim]) -> tuple[Dim, ...]:
    """Return the shape with the sizes that its names turned out to stand for.

    Examples:
        >>> renamed(("batch", "rows"), {"rows": 4})
        ('batch', 4)
    """
    return tuple(names.get(dim, dim) if isinstance(dim, str) else dim for dim in shape)
