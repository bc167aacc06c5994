"""Static values: shapes, lengths, dtypes and tuples of them, known before the program runs."""

from __future__ import annotations

from typing import Annotated, Any

from mithril_nb.graph.records import Value as Plain
from mithril_nb.graph.spec import as_dtype
from mithril_nb.models.library.operations.reshaping import Rearranging, numbered_ports
from mithril_nb.models.op import (
    LEADING,
    UNKNOWN,
    UNKNOWN_SHAPE,
    MismatchError,
    Operator,
    Options,
    PortNames,
    Range,
    Spec,
    StaticSpec,
    TensorSpec,
)
from mithril_nb.models.shape_inference.dims import check_axis, is_open, place_of, product
from mithril_nb.models.shape_inference.folding import as_array, dtype_of, shape_of

__all__ = [
    "Cast",
    "Dtype",
    "Item",
    "Length",
    "Shape",
    "Size",
    "Slice",
    "TensorToList",
    "ToList",
    "ToTensor",
    "ToTuple",
    "Value",
]

Specs = dict[str, Spec]
_NOT_KNOWN = StaticSpec(is_known=False)


class Typed(Operator):
    """Base of the ops with an attribute `dtype`."""

    def __init__(self, name: str | None = None, **attributes: Any):
        dtype = attributes["dtype"]
        super().__init__(name, **attributes | {"dtype": None if dtype is None else str(as_dtype(dtype))})


class _Static(Rearranging):
    # A shape or a length has no scale for an initializer to keep.
    keeps_scale = False
    takes_values = True


class Shape(_Static):
    """Shape of an array as a static value: a tuple that is known before the program runs.

    A size that is not known yet is a name.

    Examples:
        >>> from mithril_nb.models import Model
        >>> from mithril_nb.models.shape_inference.infer import infer
        >>> infer(Shape().graph, {"input": TensorSpec(("batch", 3))}).outputs["output"]
        static ('batch', 3)
    """

    op = "shape"
    formula = "y = the sizes of x"

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape as a static value."""
        shape = as_array("input", inputs["input"], "float32").shape
        return _NOT_KNOWN if shape == UNKNOWN_SHAPE else StaticSpec(shape)


class Length(_Static):
    """Size of the first axis of an array, or number of items of a tuple, known before the program runs."""

    op = "length"
    formula = "y = len(x)"

    @classmethod
    def infer(cls, options, inputs):
        """Return the size of the first axis of an array, or the number of items of a tuple."""
        shape = as_array("input", inputs["input"], "float32").shape
        check_axis("input", shape, "Size()  # counts the items of any array")
        return _NOT_KNOWN if shape[0] == LEADING else StaticSpec(shape[0])


class Size(_Static):
    """Number of items of an array, or sizes of some axes, known before the program runs.

    Args:
        dim: One axis, or several for a tuple of sizes; `None` for the number of items.
    """

    dim: Any = None

    op = "size"
    option_ports = ("dim",)
    formula = "y = the number of items of x"

    @classmethod
    def infer(cls, options, inputs):
        """Return the product of all sizes, or the sizes of the axes in `dim`, as a static value."""
        shape, dim = as_array("input", inputs["input"], "float32").shape, options["dim"]
        if dim is None:
            return _NOT_KNOWN if is_open(shape) else StaticSpec(product(shape))
        if dim == UNKNOWN:
            return _NOT_KNOWN
        axes = dim if isinstance(dim, tuple) else (dim,)
        if not all(isinstance(axis, int) and not isinstance(axis, bool) for axis in axes):
            raise MismatchError("input", f"a whole number as dim, not {dim!r}", "Size(dim=0)")
        positions = [place_of("input", axis, shape) for axis in axes if isinstance(axis, int)]
        sizes = tuple(shape[position] for position in positions if position is not None)
        if len(sizes) < len(axes):
            return _NOT_KNOWN
        return StaticSpec(sizes if isinstance(dim, tuple) else sizes[0])


class Item(_Static):
    """The only item of an array or a tuple, as a scalar."""

    op = "item"
    formula = "y = the one item of x"

    @classmethod
    def infer(cls, options, inputs):
        """Return the spec of a scalar array, or the only item of a tuple as a static value."""
        spec = inputs["input"]
        if isinstance(spec, StaticSpec):
            value = spec.value
            # As `item()` of NumPy, which unpacks all axes of size 1. A "..." may represent any number of items.
            while isinstance(value, tuple) and len(value) == 1 and value != UNKNOWN_SHAPE:
                value = value[0]
            if not isinstance(value, tuple):
                return StaticSpec(value, spec.is_known)
            raise MismatchError("input", "one item", "Indexer(0)  # the first item", f"{len(value)} != 1")
        # A named size may be 1.
        count = None if is_open(spec.shape) else product(spec.shape)
        if isinstance(count, int) and count != 1:
            axis = next((axis for axis, size in enumerate(spec.shape) if size != 1), 0)
            raise MismatchError(
                "input", "one item", "Indexer(0)  # the first item", f"axis {axis}: {spec.shape[axis]} != 1"
            )
        return TensorSpec((), spec.dtype)


class Cast(Typed, _Static):
    """Casts the items to another dtype.

    Args:
        dtype: The dtype, such as `"float32"` or `ml.int32`; required unless connected.
    """

    dtype: Any = None

    op = "cast"
    option_ports = ("dtype",)
    formula = "y = x as dtype"

    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape."""
        shape = as_array("input", inputs["input"], "float32").shape
        return TensorSpec(shape, dtype_option("dtype", options["dtype"]))


class Dtype(_Static):
    """Name of the dtype of an array or a number, as a static value."""

    op = "dtype"
    formula = "y = the dtype of x"

    @classmethod
    def infer(cls, options, inputs):
        """Return the name as a static value."""
        spec = inputs["input"]
        if isinstance(spec, StaticSpec):
            return StaticSpec(dtype_of(spec.value)) if spec.is_known else _NOT_KNOWN
        return StaticSpec(str(spec.dtype))


class ToTensor(Typed, _Static):
    """Converts a number, or nested tuples of numbers, to an array.

    Args:
        dtype: Dtype of the array; by default the model's dtype for floats, `"int32"` for integers, `"bool"` for
            booleans.
    """

    dtype: Any = None

    op = "to_tensor"
    option_ports = ("dtype",)
    category = "Values"
    formula = "y = x as an array"

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape of the nested tuples."""
        spec, dtype = inputs["input"], options["dtype"]
        # NumPy refuses ragged lists as well; an array has one size per axis.
        if isinstance(spec, StaticSpec) and spec.is_known and not _is_even(spec.value):
            raise MismatchError(
                "input",
                "tuples of the same length at each depth",
                "use tuples of the same length, such as ((1, 2), (3, 4)).",
                "lengths differ",
            )
        array = as_array("input", spec, "")
        name = array.dtype if dtype is None else dtype_option("dtype", dtype)
        # Without a dtype, floats have the model's dtype.
        return TensorSpec(array.shape, name) if name else array.shape


class TensorToList(_Static):
    """Converts an array to nested tuples of numbers. The numbers are known only at run time."""

    op = "tensor_to_list"
    category = "Values"
    formula = "y = x as nested tuples"

    @classmethod
    def infer(cls, options, inputs):
        """Return the spec of a static input, which is unchanged. An array becomes an unknown static value."""
        spec = inputs["input"]
        # The numbers of an array are no part of its spec.
        return spec if isinstance(spec, StaticSpec) else _NOT_KNOWN


class ToTuple(_Static):
    """Collects values in a tuple, such as the sizes of a shape.

    Args:
        n: Number of inputs, named `input1`, `input2`, ... By default, the only input `input` must be a tuple already.

    Examples:
        >>> [port.name for port in ToTuple(2).inputs], [port.name for port in ToTuple().inputs]
        (['input1', 'input2'], ['input'])
    """

    n: Annotated[int, Range(1, 1024)] | None = None

    op = "to_tuple"
    category = "Values"
    formula = "y = (x1, x2, ...)"

    @classmethod
    def ports(cls, options: Options) -> PortNames:
        """Return the inputs `input1`, `input2`, ... up to `n`; `input` without `n`."""
        return PortNames(numbered_ports(options["n"]) or ("input",))

    @classmethod
    def infer(cls, options, inputs):
        """Return the tuple of values as a static value, which is unknown if one of the values is unknown."""
        if "input" in inputs:
            spec = inputs["input"]
            return spec if isinstance(spec, StaticSpec) else _NOT_KNOWN
        specs = [inputs[port] for port in numbered_ports(options["n"])]
        values = [spec.value for spec in specs if isinstance(spec, StaticSpec) and spec.is_known]
        return StaticSpec(tuple(values)) if len(values) == len(specs) else _NOT_KNOWN


class ToList(ToTuple):
    """Collects values in a tuple, like `ToTuple`. The result is not a list, because static values are immutable.

    Args:
        n: Number of inputs, named `input1`, `input2`, ... By default, the only input `input` must be a tuple already.

    Examples:
        >>> [port.name for port in ToList(2).inputs]
        ['input1', 'input2']
    """

    op = "to_list"


class Slice(_Static):
    """A slice to index with: `Indexer()(input="x", index=slice_block.output)`.

    Args:
        start: Index of the first item; `None` as in Python.
        stop: Index after the last item; `None` as in Python.
        step: Difference between the indices of two items; `None` for 1.
    """

    start: int | None = None
    stop: int | None = None
    step: int | None = None

    op = "slice"
    input_ports = ()
    option_ports = ("start", "stop", "step")
    category = "Values"
    formula = "y = start:stop:step"

    @classmethod
    def infer(cls, options, inputs):
        """Return start, stop and step as a static value."""
        # The same form in which `Indexer` stores a slice.
        bounds = tuple(options[port] for port in cls.option_ports)
        return _NOT_KNOWN if UNKNOWN in bounds else StaticSpec(("slice", *bounds))


class Value(_Static):
    """A constant that is known before the program runs, such as a size, an axis or a shape.

    Args:
        value: A number, a string, or tuples of them.
    """

    value: Any = None

    op = "value"
    input_ports = ()
    category = "Values"
    formula = "y = value"

    @classmethod
    def infer(cls, options, inputs):
        """Return the value as a static value."""
        return StaticSpec(options["value"])


def dtype_option(port: str, dtype: Plain) -> str:
    """Return the name of a dtype: `dtype` is the value of the attribute `port` of a block."""
    # The dtype of an array is part of the compiled program, so it cannot be computed by it.
    if dtype is None or dtype == UNKNOWN or not isinstance(dtype, str):
        raise MismatchError(port, "a dtype that is known before the program runs", 'dtype="float32"')
    return str(as_dtype(dtype))


def _is_even(value: Plain) -> bool:
    if not isinstance(value, tuple):
        return True
    # `shape_of` reads the first entry at each depth, so each entry is compared with the next.
    return len({shape_of(entry) for entry in value}) <= 1 and all(_is_even(entry) for entry in value)
