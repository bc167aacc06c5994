"""Blocks that select items of an array."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.records import Value
from mithril_nb.models.library.operations.reshaping import KeepsShape, Rearranging
from mithril_nb.models.library.operations.statics import Typed
from mithril_nb.models.op import (
    LEADING,
    UNKNOWN,
    UNKNOWN_SHAPE,
    Dim,
    Dims,
    MismatchError,
    Operator,
    Range,
    Spec,
    StaticSpec,
    TensorSpec,
    jnp,
)
from mithril_nb.models.shape_inference.dims import broadcast, is_open, least, place_of, sliced, spliced
from mithril_nb.models.shape_inference.folding import shape_of

__all__ = [
    "Gather",
    "Indexer",
    "OneHot",
    "Take",
    "TransposedDiagonal",
    "Tril",
    "Triu",
]


class IndexArray(NamedTuple):
    """An array of integers in an index. `numbers` are nested tuples, or `None` if they are known only at run time."""

    shape: Dims
    numbers: Value = None


def index_items(index: Value) -> tuple[Any, ...]:
    """Convert the attribute `index` of an `Indexer` to a tuple with one item per integer, slice or array in it.

    An array of integers becomes an `IndexArray`. A name such as `"n"` in the index is a number that is not known yet.

    Examples:
        >>> index_items((0, ("slice", 1, None, None), "...", (0, 2)))
        (0, slice(1, None, None), Ellipsis, IndexArray(shape=(2,), numbers=(0, 2)))
    """
    # A slice is stored as a tuple, so it looks like an index of four items.
    items = index if isinstance(index, tuple) and not _is_slice(index) else (index,)
    converted: list[Any] = []
    for item in items:
        if _is_slice(item):
            _, *bounds = item  # pyright: ignore
            wrong = [bound for bound in bounds if isinstance(bound, bool) or not isinstance(bound, int | str | None)]
            if wrong or bounds[2] == 0:
                raise MismatchError("input", f"a slice with whole numbers as bounds, not {bounds}", "x[1:3]")
            converted.append(slice(*bounds))
        # JSON has no Ellipsis. The text "..." also starts open shapes, and no axis can have this name.
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
    # As in NumPy: two of them would not say which axes each covers.
    if converted.count(...) > 1:
        raise MismatchError("input", f"one '...' at most, not {index!r}", "x[..., 0]")
    return tuple(converted)


def indexed(shape: Dims, items: tuple[Any, ...]) -> Dims:
    """Return the shape of an array of this shape after indexing it with `items`, which `index_items` returned.

    Examples:
        >>> indexed(("batch", 4, 6), (slice(1, None), 0)), indexed((2, 3, 4), (..., IndexArray((5,)), None))
        (('max(batch-1,0)', 6), (2, 3, 5, 1))
    """
    # `None` adds an axis and "..." covers any number, so neither uses one of the input.
    used = sum(item is not None and item is not ... for item in items)
    if is_open(shape):
        # x[..., 0] reads known axes from the end. Any other index may read an unknown axis.
        is_tail = bool(items) and items[0] is ... and used < len(shape)
        return (LEADING, *indexed(shape[1:], items)) if is_tail else UNKNOWN_SHAPE
    if used > len(shape):
        raise MismatchError(
            "input",
            f"at least {used} axes, for an index of {used} items",
            f"use an index of at most {len(shape)} items.",
            f"rank {len(shape)}",
        )
    # Axes that the index leaves out are kept: at the "...", else at the end.
    fill = (slice(None),) * (len(shape) - used)
    position = items.index(...) if ... in items else len(items)
    # As in NumPy, a number counts as an array if the index contains an array. The axis that the arrays produce replaces
    # theirs; it comes first if the arrays are not next to each other, as in x[rows, :, columns].
    is_by_array = any(isinstance(item, IndexArray) for item in items)
    sizes: list[Dim] = []
    arrays: list[IndexArray] = []
    before: int | None = None
    is_apart, last = False, -1
    axis = 0
    spread = spliced(items, position, *fill)
    # Arrays on both sides of a '...' are not next to each other, even if the '...' covers no axis.
    gap = position if ... in items and not fill else None
    for number, item in enumerate(spread):
        if item is None:
            sizes.append(1)
            continue
        size = shape[axis]
        if isinstance(item, slice):
            sizes.append(sliced(size, item.start, item.stop, item.step))
        elif isinstance(item, IndexArray) or is_by_array:
            rows = item if isinstance(item, IndexArray) else IndexArray((), item)
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
    # Index arrays broadcast with each other, not with the input.
    picked: Dims = ()
    for rows in arrays:
        try:
            picked = broadcast(TensorSpec(picked), TensorSpec(rows.shape))
        except MismatchError as error:
            raise MismatchError(
                "input", "arrays in the index that broadcast", "use arrays of the same shape.", error.detail
            ) from None
    # NumPy's rule for arrays with a slice between them, which JAX and PyTorch share.
    front = 0 if is_apart or before is None else before
    return (*sizes[:front], *picked, *sizes[front:])


def picked_value(value: StaticSpec, items: tuple[Any, ...]) -> StaticSpec:
    """Index a static value, such as a shape, by the first item; then index the result by the next item, and so on.

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
        if isinstance(item, IndexArray) and item.numbers is None:
            return StaticSpec(is_known=False)
        # A name as a bound: the item is unknown until the size is.
        if any(isinstance(bound, str) for bound in _bounds(item)):
            return StaticSpec(is_known=False)
        if not isinstance(picked, tuple) or not isinstance(item, int | slice):
            raise MismatchError("input", "a whole number or a slice for a tuple", "x.shape()[0]", f"{picked!r}")
        if LEADING in picked[:1]:
            # Of a shape such as ("...", 3), the last sizes are known.
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
    # JAX clips an index out of range without an error. Here it is refused wherever the size is known.
    elif isinstance(number, int) and isinstance(size, int) and not -size <= number < size:
        advice = f"use an index from {-size} to {size - 1}." if size else "use an input that is not empty."
        need = f"an item with index {number} on axis {axis}"
        raise MismatchError("input", need, advice, f"axis {axis}: {size} items")


def _is_slice(item: Value) -> bool:
    # A row of four indices cannot be a slice: its first entry is no text.
    return isinstance(item, tuple) and len(item) == 4 and item[0] == "slice"


def _rows(item: tuple[Value, ...]) -> list[IndexArray]:
    # NumPy replaces an array of booleans by one array per axis, with the indices of true items.
    kinds = {type(leaf) for leaf in _leaves(item)}
    if kinds == {bool}:
        positions = list(_true_places(item))
        shape = shape_of(item)
        return [
            IndexArray((len(positions),), tuple(position[axis] for position in positions)) for axis in range(len(shape))
        ]
    # NumPy would read mixed booleans and integers as integers. Here they are refused, like floats.
    if kinds - {int}:
        raise MismatchError("input", f"whole numbers in the index, not {item!r}", "x[[0, 2]]")
    return [IndexArray(shape_of(item), item)]


def _leaves(item: Value) -> list[Value]:
    return [leaf for entry in item for leaf in _leaves(entry)] if isinstance(item, tuple) else [item]


def _true_places(item: Value, position: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    if isinstance(item, tuple):
        return [index for number, entry in enumerate(item) for index in _true_places(entry, (*position, number))]
    return [position] if item else []


class Indexer(Rearranging):
    """Indexes an array like `x[...]` in NumPy, or a tuple as in Python.

    Args:
        index: A tuple with one item per axis: an integer, `("slice", start, stop, step)`, or nested tuples of integers.
            `None` adds an axis, and `"..."` keeps all remaining axes. The index can also be connected to an integer, an
            array of integers or a `Slice` block.

    Raises:
        UnknownOptionError: `index` is not such a tuple.
    """

    op = "indexer"
    option_ports = ("index",)
    formula = "y = x[index]"
    takes_values = True

    def __init__(self, index: Any = (), name: str | None = None):
        # Not annotated fields: the index is also checked as a whole, which `Range` cannot express.
        Operator.__init__(self, name, index=index)
        attribute = dict(self.block.attributes)["index"]
        try:
            items = index_items(attribute)
        except MismatchError as mismatch:
            raise _index_error(attribute, mismatch.need) from None
        # A name of an unknown size can come from a connection, but not from an argument.
        if any(isinstance(bound, str) for item in items for bound in _bounds(item)):
            raise _index_error(attribute, "whole numbers, slices, None, '...' and lists of numbers")

    @classmethod
    def infer(cls, options, inputs: dict[str, Spec]):
        """Return the shape of the indexed array, or the selected items of a static value."""
        spec, index = inputs["input"], inputs.get("index")
        if isinstance(index, TensorSpec):
            # A connected array of booleans would select an unknown number of items, which XLA cannot compile.
            if "int" not in index.dtype:
                raise MismatchError("index", "whole numbers", "Where()  # selects by booleans", str(index.dtype))
            items = (IndexArray(index.shape),)
        # The index comes from a block whose value is not known yet, for example a `Slice` with a connected bound.
        elif options["index"] == UNKNOWN:
            items = None
        else:
            items = index_items(options["index"])
        if isinstance(spec, StaticSpec):
            return StaticSpec(is_known=False) if items is None else picked_value(spec, items)
        if items is None or (isinstance(index, TensorSpec) and is_open(index.shape)):
            return TensorSpec(UNKNOWN_SHAPE, spec.dtype)
        return TensorSpec(indexed(spec.shape, items), spec.dtype)


def _bounds(item: Any) -> tuple[Any, ...]:
    return (item.start, item.stop, item.step) if isinstance(item, slice) else (item,)


def _index_error(index: Value, need: str) -> UnknownOptionError:
    return UnknownOptionError(
        f"Indexer cannot take index={short_repr(index)}.", (("needs", need),), 'Indexer((0, ("slice", 1, None, None)))'
    )


# JAX fills with NaN, because an error cannot be raised in a compiled program. NumPy raises IndexError.
class Take(Rearranging):
    """Selects items along an axis by an array of indices, like `jnp.take`.

    For an index out of range, the result is NaN. Dtypes without NaN have instead: the minimum of signed integers, the
    maximum of unsigned integers, and true.

    Args:
        axis: The axis; `None` indexes the flattened array.

    Examples:
        >>> [port.name for port in Take(axis=0).inputs]
        ['input', 'indices', 'axis']
    """

    axis: int | None = None

    op = "take"
    input_ports = ("input", "indices")
    option_ports = ("axis",)
    input_dtypes = {"indices": "int32", **Rearranging.input_dtypes}
    formula = "y[i] = x[indices[i]]"

    @classmethod
    def infer(cls, options, inputs):
        """Replace the size of the axis by the shape of the indices."""
        shape, some, axis = inputs["input"].shape, inputs["indices"].shape, options["axis"]
        if axis is None:
            return some
        # An open shape of indices may only come first: behind other axes, its rank would shift them.
        position = place_of("input", axis, shape) if isinstance(axis, int) else None
        if position is None or (is_open(some) and position):
            return UNKNOWN_SHAPE
        return spliced(shape, position, *some)


class Gather(Rearranging):
    """Selects items along an axis by an array of indices, one for each item of the result, like `take_along_axis`.

    Args:
        axis: The axis.
    """

    axis: int = -1

    op = "gather"
    input_ports = ("input", "indices")
    option_ports = ("axis",)
    input_dtypes = {"indices": "int32", **Rearranging.input_dtypes}
    formula = "y[i, j] = x[i, indices[i, j]]"

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape of the indices. On the other axes, it broadcasts with that of the input."""
        shape, some, axis = inputs["input"].shape, inputs["indices"].shape, options["axis"]
        if not isinstance(axis, int) or is_open(shape) or is_open(some):
            return UNKNOWN_SHAPE
        position = place_of("input", axis, shape)
        assert position is not None
        # The other axes broadcast, as in `jnp.take_along_axis`. `torch.gather` takes the first items of a longer axis.
        if len(some) != len(shape):
            raise MismatchError(
                "indices",
                f"as many axes as the input {shape}",
                "ExpandDims(-1)  # adds an axis to the indices",
                f"rank {len(some)} != {len(shape)}",
            )
        source, other = (
            tuple(1 if at == position else size for at, size in enumerate(sizes)) for sizes in (shape, some)
        )
        try:
            sizes = list(broadcast(TensorSpec(source), TensorSpec(other)))
        except MismatchError as error:
            raise MismatchError(
                "indices",
                f"a shape that broadcasts with {shape} on all axes except {position}",
                error.advice,
                error.detail,
            ) from None
        sizes[position] = some[position]
        return tuple(sizes)


class OneHot(Typed, Rearranging):
    """Converts each integer to a row of zeros with a 1 at that index. An integer out of range gives only zeros.

    Args:
        num_classes: Length of a row.
        axis: Position of the new axis in the output.
        dtype: Dtype of the output; by default the model's.
    """

    num_classes: Annotated[int, Range(1, 2**20)]
    axis: int = -1
    dtype: str | None = None

    op = "one_hot"
    option_ports = ("num_classes",)
    input_dtypes = {"*": "int32"}
    formula = "y[i, c] = 1 if x[i] = c, else 0"

    @classmethod
    def infer(cls, options, inputs):
        """Insert `num_classes` at the position of the new axis."""
        shape, count, axis, dtype = inputs["input"].shape, options["num_classes"], options["axis"], options["dtype"]
        # The last axis is located without a rank, which may be unknown.
        position = len(shape) if axis == -1 else place_of("input", axis, shape, more=1)
        is_known = count != UNKNOWN and position is not None and isinstance(count, int | str)
        sizes = (*shape[:position], count, *shape[position:]) if is_known else UNKNOWN_SHAPE
        return TensorSpec(sizes, str(dtype)) if dtype else sizes  # pyright: ignore


class _Triangle(KeepsShape, Rearranging):
    k: int = 0
    option_ports = ("k",)

    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape."""
        shape = inputs["input"].shape
        # NumPy would repeat a vector to a matrix; JAX refuses it while it traces, without the name of the block.
        if not is_open(shape) and len(shape) < 2:
            raise MismatchError(
                "input", "(..., rows, columns)", "use an input with at least two axes.", f"rank {len(shape)}"
            )
        return super().infer(options, inputs)


class Triu(_Triangle):
    """Upper triangle: sets items below a diagonal of the last two axes to zero.

    Args:
        k: The diagonal: 0 is the main diagonal, 1 the diagonal above it, and -1 the one below it.
    """

    op = "triu"
    formula = "y[i, j] = x[i, j] if j - i ≥ k, else 0"
    kernel = jnp.triu


class Tril(_Triangle):
    """Lower triangle: sets items above a diagonal of the last two axes to zero.

    Args:
        k: The diagonal: 0 is the main diagonal, 1 the diagonal above it, and -1 the one below it.
    """

    op = "tril"
    formula = "y[i, j] = x[i, j] if j - i ≤ k, else 0"
    kernel = jnp.tril


def _transposed_diagonal(x: Any) -> Any:
    return jnp.diagonal(x)[:, None]


class TransposedDiagonal(Rearranging):
    """Diagonal of a matrix, as a column."""

    op = "transposed_diagonal"
    formula = "y[i, 0] = x[i, i]"
    kernel = _transposed_diagonal

    @classmethod
    def infer(cls, options, inputs):
        """Map `(n, m)` to `(min(n, m), 1)`."""
        shape = inputs["input"].shape
        if is_open(shape):
            return UNKNOWN_SHAPE
        if len(shape) != 2:
            raise MismatchError("input", "(rows, columns)", "x.reshape(rows, -1)", f"rank {len(shape)} != 2")
        # A diagonal ends at the shorter side.
        sizes: Dims = (least(*shape), 1)
        return sizes
