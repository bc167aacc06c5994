"""NumPy's indexing rules, for sizes that may be names."""

from __future__ import annotations

from typing import Any, NamedTuple

from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import LEADING, Dim, StaticSpec, TensorSpec
from mithril_nb.models.shape_inference.constants import shape_of
from mithril_nb.models.shape_inference.dims import MismatchError, broadcast, sliced


class Rows(NamedTuple):
    """An array of integers in an index. `numbers` are nested tuples, or `None` if they are known only at run time."""

    shape: tuple[Dim, ...]
    numbers: Value = None


def index_items(index: Value) -> tuple[Any, ...]:
    """Convert the attribute `index` of an `Indexer` to a tuple with one item per integer, slice or array in it.

    An array of integers becomes a `Rows`. A name such as `"n"` in the index is a number that is not known yet.

    Raises:
        MismatchError: `index` is not a valid index.

    Examples:
        >>> index_items((0, ("slice", 1, None, None), "...", (0, 2)))
        (0, slice(1, None, None), Ellipsis, Rows(shape=(2,), numbers=(0, 2)))
    """
    items = index if isinstance(index, tuple) and not _is_slice(index) else (index,)
    converted: list[Any] = []
    for item in items:
        if _is_slice(item):
            _, *bounds = item  # pyright: ignore
            if not all(_is_bound(bound) for bound in bounds) or bounds[2] == 0:
                raise MismatchError("input", f"a slice with whole numbers as bounds, not {bounds}", "x[1:3]")
            converted.append(slice(*bounds))
        elif item == LEADING:
            converted.append(...)
        elif isinstance(item, tuple):
            converted += _rows(item)
        elif item is None or (isinstance(item, int | str) and not isinstance(item, bool)):
            converted.append(item)
        else:
            raise MismatchError(
                "input",
                f"an index of whole numbers, slices, None, ... and arrays of numbers, not {item!r}",
                "x[0], x[1:], x[[0, 2]]",
            )
    if converted.count(...) > 1:
        raise MismatchError("input", f"one '...' at most, not {index!r}", "x[..., 0]")
    return tuple(converted)


def indexed(shape: tuple[Dim, ...], items: tuple[Any, ...]) -> tuple[Dim, ...]:
    """Return the shape of an array of this shape after indexing it with `items`, which `index_items` returned.

    Raises:
        MismatchError: A number is out of range, there are more items than axes, or the arrays of the index do not
            broadcast.

    Examples:
        >>> indexed(("batch", 4, 6), (slice(1, None), 0)), indexed((2, 3, 4), (..., Rows((5,)), None))
        (('max(batch-1,0)', 6), (2, 3, 5, 1))
    """
    used = sum(item is not None and item is not ... for item in items)
    if LEADING in shape[:1]:
        is_tail = bool(items) and items[0] is ... and used < len(shape)
        return (LEADING, *indexed(shape[1:], items)) if is_tail else (LEADING,)
    if used > len(shape):
        raise MismatchError(
            "input",
            f"at least {used} axes, for an index of {used} items",
            f"use an index of at most {len(shape)} items.",
            f"rank {len(shape)}",
        )
    fill = (slice(None),) * (len(shape) - used)
    position = items.index(...) if ... in items else len(items)
    # As in NumPy, a number counts as an array if the index contains an array. The axis that the arrays produce replaces
    # theirs; it comes first if the arrays are not next to each other, as in x[rows, :, columns].
    is_by_array = any(isinstance(item, Rows) for item in items)
    sizes: list[Dim] = []
    arrays: list[Rows] = []
    before: int | None = None
    is_apart, last = False, -1
    axis = 0
    spread = (*items[:position], *fill, *items[position + 1 :])
    # Arrays on both sides of a '...' are not next to each other, even if the '...' covers no axis.
    gap = position if ... in items and not fill else None
    for number, item in enumerate(spread):
        if item is None:
            sizes.append(1)
            continue
        size = shape[axis]
        if isinstance(item, slice):
            sizes.append(sliced(size, item.start, item.stop, item.step))
        elif isinstance(item, Rows) or is_by_array:
            rows = item if isinstance(item, Rows) else Rows((), item)
            _check_range(rows.numbers, size, axis)
            is_apart = is_apart or (bool(arrays) and (number != last + 1 or number == gap))
            before = len(sizes) if before is None else before
            arrays.append(rows)
            last = number
        else:
            _check_range(item, size, axis)
        axis += 1
    if not arrays:
        return tuple(sizes)
    picked: tuple[Dim, ...] = ()
    for rows in arrays:
        try:
            picked = broadcast(TensorSpec(picked), TensorSpec(rows.shape))
        except MismatchError as error:
            raise MismatchError(
                "input", "arrays in the index that broadcast", "use arrays of the same shape.", error.detail
            ) from None
    front = 0 if is_apart or before is None else before
    return (*sizes[:front], *picked, *sizes[front:])


def picked_value(value: StaticSpec, items: tuple[Any, ...]) -> StaticSpec:
    """Index a static value, such as a shape, by the first item; then index the result by the next item, and so on.

    Raises:
        MismatchError: A number is out of range, an item is not a number or slice, or the value is not a tuple.

    Examples:
        >>> picked_value(StaticSpec(("batch", 3)), (0,)), picked_value(StaticSpec((2, 3, 4)), (slice(1, None),))
        (static 'batch', static (3, 4))
    """
    if not value.is_known:
        return value
    picked: Value = value.value
    for item in items:
        if item is ...:
            continue
        if isinstance(item, Rows) and item.numbers is None:
            return StaticSpec(is_known=False)
        bounds = (item.start, item.stop, item.step) if isinstance(item, slice) else (item,)
        if any(isinstance(bound, str) for bound in bounds):
            return StaticSpec(is_known=False)
        if not isinstance(picked, tuple) or not isinstance(item, int | slice):
            raise MismatchError("input", "a whole number or a slice for a tuple", "x.shape()[0]", f"{picked!r}")
        if LEADING in picked[:1]:
            is_known = isinstance(item, int) and -len(picked) < item < 0
            if not is_known:
                return StaticSpec(is_known=False)
        elif isinstance(item, int) and not -len(picked) <= item < len(picked):
            valid = f"use an index from {-len(picked)} to {len(picked) - 1}."
            advice = valid if picked else "use a tuple that is not empty."
            raise MismatchError("input", f"an item with index {item}", advice, f"{len(picked)} items")
        picked = picked[item]
    return StaticSpec(picked)


def _check_range(number: Value, size: Dim, axis: int) -> None:
    if isinstance(number, tuple):
        for entry in number:
            _check_range(entry, size, axis)
    elif isinstance(number, int) and isinstance(size, int) and not -size <= number < size:
        advice = f"use an index from {-size} to {size - 1}." if size else "use an input that is not empty."
        need = f"an item with index {number} on axis {axis}"
        raise MismatchError("input", need, advice, f"axis {axis}: {size} items")


def _is_bound(bound: Value) -> bool:
    return bound is None or (isinstance(bound, int | str) and not isinstance(bound, bool))


def _is_slice(item: Value) -> bool:
    return isinstance(item, tuple) and len(item) == 4 and item[0] == "slice"


def _rows(item: tuple[Value, ...]) -> list[Rows]:
    """Return an array in an index as `Rows`: an array of booleans as one per axis, with the places of true items."""
    kinds = {type(leaf) for leaf in _leaves(item)}
    if kinds == {bool}:
        positions = list(_true_places(item))
        shape = shape_of(item)
        return [Rows((len(positions),), tuple(position[axis] for position in positions)) for axis in range(len(shape))]
    if kinds - {int}:
        raise MismatchError("input", f"whole numbers in the index, not {item!r}", "x[[0, 2]]")
    return [Rows(shape_of(item), item)]


def _leaves(item: Value) -> list[Value]:
    return [leaf for entry in item for leaf in _leaves(entry)] if isinstance(item, tuple) else [item]


def _true_places(item: Value, position: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    if isinstance(item, tuple):
        return [index for number, entry in enumerate(item) for index in _true_places(entry, (*position, number))]
    return [position] if item else []
