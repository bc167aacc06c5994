"""Concatenate, repeat, pad, split and reorder arrays."""

from __future__ import annotations

from typing import Annotated, Any

from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.fields import Range, Start
from mithril_nb.models.library.operations.reshaping import NOTHING_KNOWN, Rearranging
from mithril_nb.models.library.operations.shape_rules import KeepsShape, is_count, places_of, same_sizes
from mithril_nb.models.library.operations.statics import numbered_ports
from mithril_nb.models.op import UNKNOWN, Inferred, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, place_of, plus, product, quotient

__all__ = ["CartesianDifference", "Concat", "Flip", "Pad", "RepeatItems", "Roll", "Split", "Stack", "Tile"]

Many = Annotated[int, Range(1, 1024)]


class _Several(Rearranging):
    option_ports = ("axis",)

    @classmethod
    def data_ports(cls, options: Options) -> tuple[str, ...]:
        """Return `input1`, `input2`, ... up to `n`."""
        return numbered_ports(options["n"])


class Concat(_Several):
    """Concatenates arrays along an axis.

    Args:
        n: Number of inputs, named `input1`, `input2`, ...
        axis: The axis; `None` concatenates the flattened arrays.

    Examples:
        >>> [port.name for port in Concat(2).inputs if port.role == "data"]
        ['input1', 'input2']
    """

    op = "concat"
    formula = "y = [x1, x2, ...] along an axis"

    def __init__(self, n: Many = 2, axis: Annotated[int | None, Start(-1)] = 0, name: str | None = None):
        super().__init__(name, n=n, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Add the sizes along the axis. All other sizes must match."""
        shapes, axis = [spec.shape for spec in inputs.values()], options["axis"]
        if axis is None:
            if any(LEADING in shape[:1] for shape in shapes):
                return NOTHING_KNOWN
            return Inferred({"output": (plus(*(product(shape) for shape in shapes)),)})
        if not isinstance(axis, int) or any(LEADING in shape[:1] for shape in shapes):
            return NOTHING_KNOWN
        position = place_of("input1", axis, shapes[0])
        assert position is not None
        sizes = list(same_sizes(inputs, position))
        sizes[position] = plus(*(shape[position] for shape in shapes))
        return Inferred({"output": tuple(sizes)})


class Stack(_Several):
    """Stacks arrays of one shape along a new axis.

    Args:
        n: Number of inputs, named `input1`, `input2`, ...
        axis: Position of the new axis in the output.

    Examples:
        >>> Stack(3)
        Stack(n=3, axis=0)
    """

    op = "stack"
    formula = "y = [x1, x2, ...] along a new axis"

    def __init__(self, n: Many = 2, axis: int = 0, name: str | None = None):
        super().__init__(name, n=n, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the common shape with a new axis."""
        axis = options["axis"]
        if not isinstance(axis, int) or any(LEADING in spec.shape[:1] for spec in inputs.values()):
            return NOTHING_KNOWN
        sizes = same_sizes(inputs)
        position = place_of("input1", axis, sizes, more=1)
        return Inferred({"output": (*sizes[:position], len(inputs), *sizes[position:])})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the shape of each input: that of the output without the new axis."""
        shape, axis = outputs["output"].shape if "output" in outputs else (LEADING,), options["axis"]
        if LEADING in shape[:1] or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            return {}
        position = axis % len(shape)
        return dict.fromkeys(numbered_ports(options["n"]), (*shape[:position], *shape[position + 1 :]))


class RepeatItems(Rearranging):
    """Repeats each item of an axis several times in succession.

    Args:
        repeats: Number of times that each item occurs in the result.
        axis: The axis; `None` repeats the items of the flattened array.

    Examples:
        >>> RepeatItems(2, axis=0)
        RepeatItems(repeats=2, axis=0)
    """

    op = "repeat_items"
    option_ports = ("axis",)
    formula = "y = x[0], x[0], x[1], x[1], ..."

    def __init__(self, repeats: Annotated[int, Range(0, 2**20)] = 2, axis: int | None = None, name: str | None = None):
        super().__init__(name, repeats=repeats, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Multiply the size of the axis by `repeats`."""
        shape, axis, repeats = inputs["input"].shape, options["axis"], options["repeats"]
        assert isinstance(repeats, int)
        if axis is None:
            return NOTHING_KNOWN if LEADING in shape[:1] else Inferred({"output": (product((*shape, repeats)),)})
        position = place_of("input", axis, shape) if isinstance(axis, int) else None
        if position is None:
            return NOTHING_KNOWN
        return Inferred({"output": (*shape[:position], product((shape[position], repeats)), *shape[position + 1 :])})


class Tile(Rearranging):
    """Repeats the whole array along each axis.

    Args:
        reps: Number of copies along each axis, as in `jnp.tile`. If there are fewer numbers than axes, they belong to
            the last axes. If there are more, the result has new axes at the front.

    Examples:
        >>> Tile((2, 1))
        Tile(reps=(2, 1))
    """

    op = "tile"
    option_ports = ("reps",)
    formula = "y = x, x, ..."

    def __init__(self, reps: Any = 2, name: str | None = None):
        super().__init__(name, reps=reps)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Multiply each size by its number of copies."""
        shape, reps = inputs["input"].shape, options["reps"]
        if reps == UNKNOWN:
            return NOTHING_KNOWN
        times_ = reps if isinstance(reps, tuple) else (reps,)
        if any(isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in times_):
            raise MismatchError("input", f"reps of whole numbers, each 0 or more, not {reps!r}", "Tile((2, 1))")
        if LEADING in shape[:1]:
            return NOTHING_KNOWN
        rank = max(len(shape), len(times_))
        sizes = (*(1,) * (rank - len(shape)), *shape)
        counts = (*(1,) * (rank - len(times_)), *(count for count in times_ if isinstance(count, int)))
        return Inferred({"output": tuple(product(pair) for pair in zip(sizes, counts, strict=True))})


class Pad(Rearranging):
    """Pads an array with a constant value.

    Args:
        pad_width: Number of items to add before and after each axis: `((1, 1), (0, 2))`. One pair is used for all axes.
            One number is used before and after all axes.
        value: The value of the added items.

    Examples:
        >>> Pad(((0, 0), (1, 1)))
        Pad(pad_width=((0, 0), (1, 1)), value=0.0)
    """

    op = "pad"
    option_ports = ("pad_width",)
    formula = "y = x, with zeros around"

    def __init__(self, pad_width: Any = None, value: float = 0.0, name: str | None = None):
        super().__init__(name, pad_width=pad_width, value=value)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Add the padding to each size."""
        shape, width = inputs["input"].shape, options["pad_width"]
        if width == UNKNOWN:
            return NOTHING_KNOWN
        if LEADING in shape[:1]:
            pad_pairs(width, None)
            return NOTHING_KNOWN
        pairs = pad_pairs(width, len(shape))
        return Inferred({"output": tuple(plus(size, *pair) for size, pair in zip(shape, pairs, strict=True))})


class Split(Rearranging):
    """Splits an axis into equal parts, and stacks the parts along a new first axis: `(6,)` becomes `(3, 2)`.

    Args:
        split_size: Number of parts. It must divide the size of the axis.
        axis: The axis to split.

    Examples:
        >>> Split(3, axis=-1)
        Split(split_size=3, axis=-1)
    """

    op = "split"
    option_ports = ("split_size", "axis")
    formula = "y[i] = part i of x"

    def __init__(
        self, split_size: Annotated[Many, Start(2)], axis: Annotated[int, Start(-1)] = 0, name: str | None = None
    ):
        super().__init__(name, split_size=split_size, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Divide the size of the axis by the number of parts, and add an axis for the parts at the front."""
        shape, parts, axis = inputs["input"].shape, options["split_size"], options["axis"]
        position = place_of("input", axis, shape) if isinstance(axis, int) else None
        if position is None or not isinstance(parts, int) or LEADING in shape[:1]:
            return NOTHING_KNOWN
        size = quotient((shape[position],), (parts,)) if parts > 0 else None
        if size is None:
            raise MismatchError(
                "input",
                f"a multiple of {parts} on axis {position}",
                f"use a number of parts that divides {shape[position]}.",
                f"axis {position}: {shape[position]}",
            )
        return Inferred({"output": (parts, *shape[:position], size, *shape[position + 1 :])})


class Flip(KeepsShape, Rearranging):
    """Reverses the order of items along one or several axes.

    Args:
        axis: One axis or several; by default all.

    Examples:
        >>> Flip(0)
        Flip(axis=0)
    """

    op = "flip"
    option_ports = ("axis",)
    formula = "y[i] = x[n - 1 - i]"

    def __init__(self, axis: Any = None, name: str | None = None):
        super().__init__(name, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Keep the shape."""
        return _same_shape(options["axis"], inputs["input"])


class Roll(KeepsShape, Rearranging):
    """Shifts items along an axis. Items that leave at one end enter at the other.

    Args:
        shift: Number of positions, as one number for all axes in `axis`, or a tuple with one number for each.
        axis: One axis or several. By default, the items of the flattened array are shifted.

    Examples:
        >>> Roll(1, axis=-1)
        Roll(shift=1, axis=-1)
    """

    op = "roll"
    option_ports = ("shift", "axis")
    formula = "y[i] = x[i - shift]"

    def __init__(self, shift: Any = 1, axis: Any = None, name: str | None = None):
        super().__init__(name, shift=shift, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Keep the shape."""
        shift, axis = options["shift"], options["axis"]
        if isinstance(shift, tuple) and len(shift) != (len(axis) if isinstance(axis, tuple) else 1) and axis != UNKNOWN:
            raise MismatchError(
                "input", f"an axis for each of shift={shift!r}", "Roll((1, 2), axis=(0, 1))", f"axis={axis!r}"
            )
        return _same_shape(axis, inputs["input"])


class CartesianDifference(Rearranging):
    """Differences of each row of `left` and each row of `right`: `(n, d)` and `(m, d)` become `(n, m, d)`.

    Examples:
        >>> [port.name for port in CartesianDifference().inputs]
        ['left', 'right']
    """

    op = "cartesian_difference"
    input_ports = ("left", "right")
    category = "Arithmetic"
    formula = "y[i, j] = left[i] - right[j]"

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(n, d)` and `(m, d)` to `(n, m, d)`. An input with one column broadcasts to d columns."""
        for port in cls.input_ports:
            shape = inputs[port].shape
            if LEADING not in shape[:1] and len(shape) != 2:
                raise MismatchError(port, "(rows, features)", "x.reshape(rows, -1)", f"rank {len(shape)} != 2")
        left, right = inputs["left"].shape, inputs["right"].shape
        if LEADING in left[:1] or LEADING in right[:1]:
            return NOTHING_KNOWN
        a, b = left[1], right[1]
        if isinstance(a, int) and isinstance(b, int) and a != b and 1 not in (a, b):
            raise MismatchError(
                "right",
                f"(rows, {a}), like left {left}",
                "use the same number of columns for left and right.",
                f"axis 1: {b} != {a}",
            )
        last: Dim = b if a == 1 else a if b == 1 or isinstance(a, int) else b
        return Inferred({"output": (left[0], right[0], last)})


def pad_pairs(width: Value, rank: int | None) -> tuple[tuple[int, int], ...]:
    """Return a pair for each axis: the numbers of items to add before and after it.

    Args:
        width: A number, a pair, or a pair for each axis.
        rank: The number of axes; `None` to only check `width`.

    Raises:
        MismatchError: `width` is invalid, or the number of pairs is not `rank`.

    Examples:
        >>> pad_pairs(1, 2), pad_pairs((1, 2), 2), pad_pairs(((0, 0), (1, 2)), 2)
        (((1, 1), (1, 1)), ((1, 2), (1, 2)), ((0, 0), (1, 2)))
    """
    pad_width = width
    if isinstance(width, int) and not isinstance(width, bool):
        width = (width, width)
    if isinstance(width, tuple) and len(width) == 2 and all(isinstance(number, int) for number in width):
        width = (width,) * (rank or 0)
    pairs = width if isinstance(width, tuple) else ()
    valid = [pair for pair in pairs if isinstance(pair, tuple) and len(pair) == 2]
    if not isinstance(width, tuple) or len(valid) < len(pairs) or not all(is_count(n) for pair in valid for n in pair):
        need = f"pad_width in pairs of numbers, each 0 or more, not {pad_width!r}"
        raise MismatchError("input", need, "Pad(((0, 0), (1, 1)))")
    if rank is not None and len(valid) != rank:
        pairs = (*valid, *((0, 0),) * rank)[:rank]
        raise MismatchError("input", f"rank {len(valid)}, for pad_width={pad_width!r}", f"Pad({pairs})", f"rank {rank}")
    return tuple((int(before), int(after)) for before, after in valid)  # pyright: ignore


def _same_shape(axis: Value, spec: TensorSpec) -> Inferred:
    if axis is not None and axis != UNKNOWN:
        places_of("axis", axis, spec.shape)
    return Inferred({"output": spec.shape})
