"""Shapes of attention: checks of heads, masks and times."""

from __future__ import annotations

from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.fields import whole
from mithril_nb.models.model import Model
from mithril_nb.models.shape_inference.dims import MismatchError, broadcast

_AXES = {1: "(..., features)", 2: "(..., time, features)", 3: "(..., heads, time, size)"}


def ends(port: str, spec: TensorSpec, count: int) -> tuple[tuple[Dim, ...], tuple[Dim | None, ...]]:
    """Return the leading axes, and the last `count`; `None` for an unknown one."""
    shape = spec.shape
    if shape[:1] == (LEADING,):
        known = shape[1:]
        if len(known) < count:
            return (LEADING,), (*(None,) * (count - len(known)), *known)
    elif len(shape) < count:
        raise MismatchError(port, _AXES[count], f"an array with {count} axes or more.", f"rank {len(shape)}")
    return shape[: len(shape) - count], shape[len(shape) - count :]


def joined(lead: tuple[Dim, ...], last: tuple[Dim | None, ...]) -> tuple[Dim, ...]:
    """Return the shape of leading and last axes; the axes before an unknown one are unknown too."""
    known: list[Dim] = []
    for dim in reversed(last):
        if dim is None:
            return (LEADING, *reversed(known))
        known.append(dim)
    return (*lead, *reversed(known))


def same(port: str, other: str, size: Dim | None, wanted: Dim | None, axis: int) -> None:
    """Raise an error if two sizes that must be equal differ."""
    if isinstance(size, int) and isinstance(wanted, int) and size != wanted:
        raise MismatchError(
            port,
            f"{wanted} on axis {axis}, like the {other}",
            f"use the same size for {port} and {other}.",
            f"axis {axis}: {size} != {wanted}",
        )


def served(port: str, lead: tuple[Dim, ...], other: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the leading axes of the queries that keys or values serve, which may have fewer heads."""
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
    """Raise an error if a mask has integers or does not broadcast to the scores."""
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
    """Raise an error if there are more time steps than positions."""
    if isinstance(time, int) and isinstance(most, int) and time > most:
        raise MismatchError("input", f"at most {most} time steps", advice, f"axis -2: {time} > {most}")


def check_divides(model: Model, **numbers: int) -> None:
    """Raise an error if the first number does not divide the second."""
    (part, few), (whole, many) = numbers.items()
    if many % few:
        near = max(number for number in range(1, few + 1) if many % number == 0)
        raise UnknownOptionError(
            f"{type(model).__name__} cannot split {whole}={many} into {part}={few}.",
            (("because", f"{many} = {few} * {many // few} + {many % few}"),),
            f"{part}={near}",
        )


def numbers(value: Value) -> tuple[int, ...]:
    """Return an option that is a tuple of integers."""
    assert isinstance(value, tuple)
    return tuple(whole(number) for number in value)
