"""Shape rules of attention: for leading axes, heads, masks and the number of time steps."""

from __future__ import annotations

from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.fields import as_int
from mithril_nb.models.model import Model
from mithril_nb.models.shape_inference.dims import MismatchError, broadcast

_AXES = {1: "(..., features)", 2: "(..., time, features)", 3: "(..., heads, time, size)"}


def ends(port: str, spec: TensorSpec, count: int) -> tuple[tuple[Dim, ...], tuple[Dim | None, ...]]:
    """Return the leading sizes of an array, and its last `count` sizes; `None` for an unknown size.

    Raises:
        MismatchError: The array has fewer than `count` axes.

    Examples:
        >>> ends("query", TensorSpec(("batch", 8, 10, 64)), 2), ends("query", TensorSpec(("...", 64)), 2)
        ((('batch', 8), (10, 64)), (('...',), (None, 64)))
    """
    shape = spec.shape
    if shape[:1] == (LEADING,):
        tail = shape[1:]
        if len(tail) < count:
            return (LEADING,), (*(None,) * (count - len(tail)), *tail)
    elif len(shape) < count:
        raise MismatchError(port, _AXES[count], f"use an array with at least {count} axes.", f"rank {len(shape)}")
    return shape[: len(shape) - count], shape[len(shape) - count :]


def joined(lead: tuple[Dim, ...], last: tuple[Dim | None, ...]) -> tuple[Dim, ...]:
    """Return the shape `(*lead, *last)`, the inverse of `ends`. `"..."` replaces the sizes up to the last `None`.

    Examples:
        >>> joined(("batch", 8), (None, 64))
        ('...', 64)
    """
    dims: list[Dim] = []
    for dim in reversed(last):
        if dim is None:
            return (LEADING, *reversed(dims))
        dims.append(dim)
    return (*lead, *reversed(dims))


def check_equal(port: str, other: str, size: Dim | None, expected: Dim | None, axis: int) -> None:
    """Raise a `MismatchError` if the size of `port` on an axis certainly differs from the wanted size, that of `other`.

    Unknown sizes are accepted: `None` and names.
    """
    if isinstance(size, int) and isinstance(expected, int) and size != expected:
        raise MismatchError(
            port,
            f"size {expected} on axis {axis}, like the {other}",
            f"use the same size for {port} and {other}.",
            f"axis {axis}: {size} != {expected}",
        )


def broadcast_heads(port: str, lead: tuple[Dim, ...], other: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Broadcast the leading sizes of queries with those of keys or values, which may have fewer heads.

    The last leading size is the number of heads.

    Args:
        port: `"key"` or `"value"`, for the error message.
        lead: The leading sizes of the queries.
        other: The leading sizes of the keys or values.

    Raises:
        MismatchError: Sizes other than the numbers of heads do not broadcast, or the number of heads of the keys or
            values does not divide that of the queries.

    Examples:
        >>> broadcast_heads("key", ("batch", 8), ("batch", 2))
        ('batch', 8)
    """
    if lead[-1:] and other[-1:] and other[-1] != LEADING:
        heads, fewer = lead[-1], other[-1]
        divides = isinstance(heads, int) and isinstance(fewer, int) and 0 < fewer < heads and heads % fewer == 0
        if heads == LEADING or divides:
            other = (*other[:-1], 1)
    try:
        return broadcast(TensorSpec(lead), TensorSpec(other))
    except MismatchError as error:
        raise MismatchError(
            port,
            f"leading axes that match {lead} of the query",
            f"use the same sizes, or fewer heads of {port} whose number divides that of the query.",
            str(other),
        ) from error


def check_mask(mask: TensorSpec, scores: tuple[Dim | None, ...]) -> None:
    """Raise a `MismatchError` if a mask has integers, or does not broadcast to the shape `scores`."""
    if "int" in mask.dtype:
        need = "booleans, or floating-point numbers that are added to the scores"
        raise MismatchError("attn_mask", need, 'array.astype("bool")', str(mask.dtype))
    unknown = LEADING in scores or LEADING in mask.shape
    pairs = list(zip(reversed(mask.shape), reversed(scores), strict=False))
    fits = all(
        size in (1, expected) or not isinstance(size, int) or not isinstance(expected, int) for size, expected in pairs
    )
    if not fits or (len(mask.shape) > len(scores) and not unknown):
        raise MismatchError(
            "attn_mask",
            f"a shape that broadcasts to {scores}, the shape of the scores",
            "use a mask with the axes (..., query time, key time).",
            str(mask.shape),
        )


def check_time(time: Dim | None, most: Value, advice: str) -> None:
    """Raise a `MismatchError` with this advice if there are certainly more than `most` time steps."""
    if isinstance(time, int) and isinstance(most, int) and time > most:
        raise MismatchError("input", f"at most {most} time steps", advice, f"axis -2: {time} > {most}")


def check_divides(model: Model, **numbers: int) -> None:
    """Raise an `UnknownOptionError` if the first of two arguments, `heads=8, width=64`, does not divide the second."""
    (part, few), (total, many) = numbers.items()
    if many % few:
        near = max(number for number in range(1, few + 1) if many % number == 0)
        raise UnknownOptionError(
            f"{type(model).__name__} cannot split {total}={many} into {part}={few}.",
            (("because", f"{many} = {few} * {many // few} + {many % few}"),),
            f"{part}={near}",
        )


def numbers(value: Value) -> tuple[int, ...]:
    """Return a value that is a tuple of integers, with this type for the type checker."""
    assert isinstance(value, tuple)
    return tuple(as_int(number) for number in value)
