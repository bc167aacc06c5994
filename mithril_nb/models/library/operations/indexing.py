"""Blocks that select items of an array."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import LEADING, Dim, Spec, StaticSpec, TensorSpec
from mithril_nb.models.fields import Range
from mithril_nb.models.library.operations.index_rules import Rows, index_items, indexed, picked_value
from mithril_nb.models.library.operations.reshaping import NOTHING_KNOWN, Rearranging
from mithril_nb.models.library.operations.shape_rules import KeepsShape
from mithril_nb.models.library.operations.statics import dtype_name
from mithril_nb.models.op import UNKNOWN, Inferred, Options, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, broadcast, least, place_of

__all__ = ["Gather", "Indexer", "OneHot", "Take", "TransposedDiagonal", "Tril", "Triu"]


class Indexer(Rearranging):
    """Indexes an array like `x[...]` in NumPy, or a tuple as in Python.

    Args:
        index: A tuple with one item per axis: an integer, `("slice", start, stop, step)`, or nested tuples of integers.
            `None` adds an axis, and `"..."` keeps all remaining axes. The index can also be connected to an integer, an
            array of integers or a `Slice` block.

    Raises:
        UnknownOptionError: `index` is not such a tuple.

    Examples:
        >>> Indexer((0, ("slice", 1, None, None)))
        Indexer(index=(0, ('slice', 1, None, None)))
    """

    op = "indexer"
    option_ports = ("index",)
    formula = "y = x[index]"
    takes_values = True

    def __init__(self, index: Any = (), name: str | None = None):
        super().__init__(name, index=index)
        attribute = dict(self.block.attributes)["index"]
        try:
            items = index_items(attribute)
        except MismatchError as mismatch:
            raise _index_error(attribute, mismatch.need) from None
        # A name of an unknown size can come from a connection, but not from an argument.
        if any(isinstance(bound, str) for item in items for bound in _bounds(item)):
            raise _index_error(attribute, "whole numbers, slices, None, '...' and lists of numbers")

    @classmethod
    def infer(cls, options: Options, inputs: dict[str, Spec]) -> Inferred:
        """Return the shape of the indexed array, or the selected items of a static value."""
        spec, index = inputs["input"], inputs.get("index")
        if isinstance(index, TensorSpec):
            if "int" not in index.dtype:
                raise MismatchError("index", "whole numbers", "Where()  # selects by booleans", str(index.dtype))
            items = (Rows(index.shape),)
        elif options["index"] == UNKNOWN:
            items = None
        else:
            items = index_items(options["index"])
        if isinstance(spec, StaticSpec):
            return Inferred({"output": StaticSpec(is_known=False) if items is None else picked_value(spec, items)})
        if items is None or (isinstance(index, TensorSpec) and LEADING in index.shape[:1]):
            return Inferred({"output": TensorSpec((LEADING,), spec.dtype)})
        return Inferred({"output": TensorSpec(indexed(spec.shape, items), spec.dtype)})


def _bounds(item: Any) -> tuple[Any, ...]:
    return (item.start, item.stop, item.step) if isinstance(item, slice) else (item,)


def _index_error(index: Value, need: str) -> UnknownOptionError:
    return UnknownOptionError(
        f"Indexer cannot take index={short_repr(index)}.", (("needs", need),), 'Indexer((0, ("slice", 1, None, None)))'
    )


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

    op = "take"
    input_ports = ("input", "indices")
    option_ports = ("axis",)
    input_dtypes: ClassVar = {"input": "any", "indices": "int32"}
    formula = "y[i] = x[indices[i]]"

    def __init__(self, axis: int | None = None, name: str | None = None):
        super().__init__(name, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Replace the size of the axis by the shape of the indices."""
        shape, some, axis = inputs["input"].shape, inputs["indices"].shape, options["axis"]
        if axis is None:
            return Inferred({"output": some})
        position = place_of("input", axis, shape) if isinstance(axis, int) else None
        if position is None or (LEADING in some[:1] and position):
            return NOTHING_KNOWN
        return Inferred({"output": (*shape[:position], *some, *shape[position + 1 :])})


class Gather(Rearranging):
    """Selects items along an axis by an array of indices, one for each item of the result, like `take_along_axis`.

    Args:
        axis: The axis.

    Examples:
        >>> Gather(axis=1)
        Gather(axis=1)
    """

    op = "gather"
    input_ports = ("input", "indices")
    option_ports = ("axis",)
    input_dtypes: ClassVar = {"input": "any", "indices": "int32"}
    formula = "y[i, j] = x[i, indices[i, j]]"

    def __init__(self, axis: int = -1, name: str | None = None):
        super().__init__(name, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shape of the indices. On the other axes, it broadcasts with that of the input."""
        shape, some, axis = inputs["input"].shape, inputs["indices"].shape, options["axis"]
        if not isinstance(axis, int) or LEADING in shape[:1] or LEADING in some[:1]:
            return NOTHING_KNOWN
        position = place_of("input", axis, shape)
        assert position is not None
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
        return Inferred({"output": tuple(sizes)})


class OneHot(Rearranging):
    """Converts each integer to a row of zeros with a 1 at that index. An integer out of range gives only zeros.

    Args:
        num_classes: Length of a row.
        axis: Position of the new axis in the output.
        dtype: Dtype of the output; by default the model's.

    Examples:
        >>> OneHot(10)
        OneHot(num_classes=10, axis=-1, dtype=None)
    """

    op = "one_hot"
    option_ports = ("num_classes",)
    input_dtypes: ClassVar = {"input": "int32"}
    formula = "y[i, c] = 1 if x[i] = c, else 0"

    def __init__(
        self,
        num_classes: Annotated[int, Range(1, 2**20)],
        axis: int = -1,
        dtype: str | None = None,
        name: str | None = None,
    ):
        super().__init__(name, num_classes=num_classes, axis=axis, dtype=dtype_name(dtype))

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Insert `num_classes` at the position of the new axis."""
        shape, count, axis, dtype = inputs["input"].shape, options["num_classes"], options["axis"], options["dtype"]
        assert isinstance(axis, int)
        position = len(shape) if axis == -1 else place_of("input", axis, shape, more=1)
        is_known = count != UNKNOWN and position is not None and isinstance(count, int | str)
        sizes = (*shape[:position], count, *shape[position:]) if is_known else (LEADING,)
        return Inferred({"output": TensorSpec(sizes, str(dtype)) if dtype else sizes})  # pyright: ignore


class _Triangle(KeepsShape, Rearranging):
    option_ports = ("k",)

    def __init__(self, k: int = 0, name: str | None = None):
        super().__init__(name, k=k)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Keep the shape."""
        shape = inputs["input"].shape
        if LEADING not in shape[:1] and len(shape) < 2:
            raise MismatchError(
                "input", "(..., rows, columns)", "use an input with at least two axes.", f"rank {len(shape)}"
            )
        return super().infer(options, inputs)


class Triu(_Triangle):
    """Upper triangle: sets items below a diagonal of the last two axes to zero.

    Args:
        k: The diagonal: 0 is the main diagonal, 1 the diagonal above it, and -1 the one below it.

    Examples:
        >>> Triu()
        Triu(k=0)
    """

    op = "triu"
    formula = "y[i, j] = x[i, j] if j - i ≥ k, else 0"


class Tril(_Triangle):
    """Lower triangle: sets items above a diagonal of the last two axes to zero.

    Args:
        k: The diagonal: 0 is the main diagonal, 1 the diagonal above it, and -1 the one below it.

    Examples:
        >>> Tril()
        Tril(k=0)
    """

    op = "tril"
    formula = "y[i, j] = x[i, j] if j - i ≤ k, else 0"


class TransposedDiagonal(Rearranging):
    """Diagonal of a matrix, as a column.

    Examples:
        >>> TransposedDiagonal()
        TransposedDiagonal()
    """

    op = "transposed_diagonal"
    formula = "y[i, 0] = x[i, i]"

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(n, m)` to `(min(n, m), 1)`."""
        shape = inputs["input"].shape
        if LEADING in shape[:1]:
            return NOTHING_KNOWN
        if len(shape) != 2:
            raise MismatchError("input", "(rows, columns)", "x.reshape(rows, -1)", f"rank {len(shape)} != 2")
        sizes: tuple[Dim, ...] = (least(*shape), 1)
        return Inferred({"output": sizes})
