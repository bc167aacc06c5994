"""Arithmetic on dims, some of which are only names yet."""

from __future__ import annotations

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
        >>> product((2, 3)), product(("h", 2, 3))
        (6, 'h*6')
    """
    number = prod(dim for dim in dims if isinstance(dim, int))
    names = [dim for dim in dims if isinstance(dim, str)]
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
    """Return the shape of an elementwise result of two arrays, by NumPy's rule.

    Raises:
        MismatchError: Two sizes differ and neither is 1.
    """
    if LEADING in (*left.shape[:1], *right.shape[:1]):
        longer = max(left.shape, right.shape, key=len)
        return longer if longer[:1] == (LEADING,) else (LEADING, *longer[max(0, len(longer) - 1) :])
    rank = max(len(left.shape), len(right.shape))
    one: tuple[Dim, ...] = (1,)
    padded_left = one * (rank - len(left.shape)) + left.shape
    padded_right = one * (rank - len(right.shape)) + right.shape
    result: list[Dim] = []
    for axis, (a, b) in enumerate(zip(padded_left, padded_right, strict=True)):
        if a == b or b == 1:
            result.append(a)
        elif a == 1:
            result.append(b)
        elif isinstance(a, int) and isinstance(b, int):
            raise MismatchError(
                "right",
                f"a shape that broadcasts with {left.shape}",
                "give both the same sizes, or size 1 where one is to be repeated.",
                f"axis {axis}: {a} != {b}",
            )
        else:
            result.append(a if isinstance(a, int) else b)
    return tuple(result)
