"""Shape rules of attention: for leading axes, heads, masks and the number of time steps."""

from __future__ import annotations

from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.fields import whole
from mithril_nb.models.model import Model
from mithril_nb.models.shape_inference.dims import MismatchError, broadcast

_AXES = {1: "(..., features)", 2: "(..., time, features)", 3: "(..., heads, time, size)"}


def ends(port: str, spec: TensorSpec, count: int) -> tuple[tuple[Dim, ...], tuple[Dim | None, ...]]:
    """Return the leading axes of an array, and its last `count` axes; `None` for an unknown size.

    Raises:
        MismatchError: The array has fewer than `count` axes.
    """
    shape = spec.shape
    if shape[:1] == (LEADING,):
        known = shape[1:]
        if len(known) < count:
            return (LEADING,), (*(None,) * (count - len(known)), *known)
    elif len(shape) < count:
        raise MismatchError(port, _AXES[count], f"an array with {count} axes or more.", f"rank {len(shape)}")
    return shape[: len(shape) - count], shape[len(shape) - count :]


def joined(lead: tuple[Dim, ...], last: tuple[Dim | None, ...]) -> tuple[Dim, ...]:
    """Return the shape `(*lead, *last)`. If a size in `last` is `None`, the shape is open up to that axis."""
    known: list[Dim] = []
    for dim in reversed(last):
        if dim is None:
            return (LEADING, *reversed(known))
        known.append(dim)
    return (*lead, *reversed(known))


def same(port: str, other: str, size: Dim | None, wanted: Dim | None, axis: int) -> None:
    """Raise if two sizes that must be equal differ.

    Args:
        port: The input with the first size.
        other: The input with the second size.
        size: The first size.
        wanted: The second size.
        axis: The axis of `port`, for the error message.

    Raises:
        MismatchError: Both sizes are numbers, and differ.
    """
    if isinstance(size, int) and isinstance(wanted, int) and size != wanted:
        raise MismatchError(
            port,
            f"{wanted} on axis {axis}, like the {other}",
            f"use the same size for {port} and {other}.",
            f"axis {axis}: {size} != {wanted}",
        )


def served(port: str, lead: tuple[Dim, ...], other: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the leading axes of queries, broadcast with those of keys or values.

    Keys and values may have fewer heads than the queries: their number of heads divides that of the queries.

    Args:
        port: `"key"` or `"value"`, for the error message.
        lead: The leading axes of the queries; the last of them may be the heads.
        other: The leading axes of the keys or values.

    Raises:
        MismatchError: The leading axes do not fit.
    """
    if lead[-1:] and other[-1:] and other[-1] != LEADING:
        heads, fewer = lead[-1], other[-1]
        divides = isinstance(heads, int) and isinstance(fewer, int) and 0 < fewer < heads and heads % fewer == 0
        if heads == LEADING or divides:
            other = (*other[:-1], 1)
    try:
        return broadcast(TensorSpec(lead), TensorSpec(other))
    except MismatchError as found:
        raise MismatchError(
            port,
            f"leading axes that match {lead} of the query",
            "the same sizes, or a number of heads that divides the query's.",
            str(other),
        ) from found


def check_mask(mask: TensorSpec, scores: tuple[Dim | None, ...]) -> None:
    """Raise if a mask has integers, or does not broadcast to the scores.

    Args:
        mask: Spec of the mask.
        scores: The shape of the scores; `None` for an unknown size.

    Raises:
        MismatchError: The mask does not fit.
    """
    if "int" in mask.dtype:
        need = "booleans, or floating-point numbers to add"
        raise MismatchError("attn_mask", need, 'array.astype("bool")', f"got {mask.dtype}")
    unknown = LEADING in scores or LEADING in mask.shape
    pairs = list(zip(reversed(mask.shape), reversed(scores), strict=False))
    fits = all(
        size in (1, wanted) or not isinstance(size, int) or not isinstance(wanted, int) for size, wanted in pairs
    )
    if not fits or (len(mask.shape) > len(scores) and not unknown):
        raise MismatchError(
            "attn_mask",
            f"a shape that broadcasts to the scores' {scores}",
            "axes (..., query time, key time).",
            str(mask.shape),
        )


def check_time(time: Dim | None, most: Value, advice: str) -> None:
    """Raise if there are more than `most` time steps.

    Raises:
        MismatchError: Both numbers are known, and `time` is larger.
    """
    if isinstance(time, int) and isinstance(most, int) and time > most:
        raise MismatchError("input", f"at most {most} time steps", advice, f"axis -2: {time} > {most}")


def check_divides(model: Model, **numbers: int) -> None:
    """Raise if the first of two named numbers, such as `heads=8` and `width=64`, does not divide the second.

    Raises:
        UnknownOptionError: The division leaves a remainder.
    """
    (part, few), (whole, many) = numbers.items()
    if many % few:
        near = max(number for number in range(1, few + 1) if many % number == 0)
        raise UnknownOptionError(
            f"{type(model).__name__} cannot split {whole}={many} into {part}={few}.",
            (("because", f"{many} = {few} * {many // few} + {many % few}"),),
            f"{part}={near}",
        )


def numbers(value: Value) -> tuple[int, ...]:
    """Return an attribute that is a tuple of integers, with the static type of one."""
    assert isinstance(value, tuple)
    return tuple(whole(number) for number in value)
