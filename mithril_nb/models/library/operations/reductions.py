"""Reductions along axes: sums, means and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from mithril_nb.graph.records import Value
from mithril_nb.models.library.operations.elementwise import ANY, NUMBERS, Kind, check_kind, floating, kind_of
from mithril_nb.models.library.operations.reshaping import KeepsShape, broadcast_all
from mithril_nb.models.op import (
    LEADING,
    UNKNOWN_SHAPE,
    Dims,
    MismatchError,
    Operator,
    Options,
    Range,
    Shapes,
    TensorSpec,
    jax,
    jnp,
)
from mithril_nb.models.shape_inference.dims import check_axis, differ, is_open
from mithril_nb.models.shape_inference.dtypes import promoted

__all__ = [
    "ArgMax",
    "ArgMin",
    "Cumsum",
    "LogSumExp",
    "Max",
    "Mean",
    "Min",
    "Norm",
    "Prod",
    "Sum",
    "Trapezoid",
    "Unique",
    "Variance",
]

# The range only feeds the slider of the inspector; the shape rule checks against the real rank.
Axis = Annotated[int, Range(-32, 31)]
Axes = Annotated[int | Sequence[int], Range(-32, 31)]


def summed(dtype: str) -> str:
    """Return the dtype of a sum. The sum of integers or booleans is an integer of at least 32 bits.

    Examples:
        >>> summed("bool"), summed("uint8"), summed("float16")
        ('int32', 'uint32', 'float16')
    """
    # JAX sums narrow integers in 32 bits, as NumPy does in its default integer. Floats keep their width, also 16 bits.
    if kind_of(dtype) in ("truth", "whole") and not dtype.endswith("64"):
        return "uint32" if dtype.startswith("uint") else "int32"
    return dtype


def axes_of(axis: Value) -> tuple[int, ...] | None:
    """Return the attribute `axis` as a tuple of axes, or `None` for all axes."""
    if axis is None:
        return None
    axes = axis if isinstance(axis, tuple) else (axis,)
    # `axis` of a reduction is no port, so it is never UNKNOWN.
    assert all(isinstance(number, int) for number in axes)
    return axes  # pyright: ignore[reportReturnType]


def negative_axes(kind: str, shape: Dims, axes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return axes as negative numbers; `None` if their position is unknown.

    Negative axes count from the end, so the last axis is -1. A shape that starts with `"..."` has unknown leading axes.

    Args:
        kind: The block's kind, for the error message.
        shape: The input's shape.
        axes: The axes; `None` for all.

    Examples:
        >>> negative_axes("Sum", (2, 3, 4), (0, -1)), negative_axes("Sum", (2, 3), None)
        ((-3, -1), (-2, -1))
        >>> negative_axes("Sum", ("...", 3), (-1,)), negative_axes("Sum", ("...", 3), (0,))
        ((-1,), None)
    """
    if axes is None:
        return None if is_open(shape) else tuple(range(-len(shape), 0))
    if is_open(shape):
        # A negative axis can be located in an open shape, unless it may be one of the unknown axes.
        return axes if all(-len(shape) < axis < 0 for axis in axes) and len(set(axes)) == len(axes) else None
    positions: list[int] = []
    for axis in axes:
        if not -len(shape) <= axis < len(shape):
            nearest = f"{kind}(axis={-1 if axis < 0 else len(shape) - 1})"
            advice = nearest if shape else "use an input with at least one axis."
            raise MismatchError("input", f"an array that has axis {axis}", advice, f"rank {len(shape)}")
        # Negative positions hold for open and closed shapes alike, so all callers count from the end.
        position = axis - len(shape) if axis >= 0 else axis
        if position in positions:
            raise MismatchError(
                "input", "each axis once", f"{kind}(axis={position})", f"axis {position} twice in {axes}"
            )
        positions.append(position)
    return tuple(positions)


def reduced(shape: Dims, at: tuple[int, ...] | None, axis: Value, keepdim: bool) -> Dims:
    """Return the shape after a reduction of the axes `at`, which `negative_axes` found from the attribute `axis`."""
    if at is None:
        # Without axes the rank of the result is 0, whatever the rank of the input.
        return () if axis is None and not keepdim else UNKNOWN_SHAPE
    sizes = [1 if position in at else shape[position] for position in range(-len(shape), 0)]
    return tuple(sizes if keepdim else [shape[position] for position in range(-len(shape), 0) if position not in at])


def sizes_before_reduction(options: Options, output: Dims) -> Shapes:
    """Infer the input's shape from the output's: the sizes after the last reduced axis are equal.

    The result is empty if the output determines no size of the input.

    Examples:
        >>> sizes_before_reduction({"axis": (-2,), "keepdim": False}, ("batch", 5))
        {'input': ('...', 5)}
    """
    # Nothing is known about sizes that are summed away.
    axes = axes_of(options["axis"])
    if not axes:
        return {} if axes is None else {"input": output}
    # An axis that counts from the start is one of the input, which also has the removed axes.
    rank = len(output) + (0 if options["keepdim"] else len(axes))
    if is_open(output) and max(axes) >= 0:
        return {}
    after = -1 - max(axis - rank if axis >= 0 else axis for axis in axes)
    tail = output[len(output) - after :]
    return {} if not tail or LEADING in tail else {"input": (LEADING, *tail)}


class Reduction(Operator):
    """Base of the ops that reduce some axes to one item.

    Attributes:
        takes: The kinds of dtypes that the input may have, see `kind_of`.
        gives: The dtype of the output: `"same"` for the dtype of the input, `"floating"` for its floating-point dtype,
            `"summed"` for the dtype of a sum, `"place"` for an index, which is an int32.
        needs_items: True if the op is not defined for an axis of size 0.
    """

    axis: Axes | None = None
    keepdim: bool = False

    category = "Reductions"
    input_dtypes = {"*": "any"}
    takes: ClassVar[tuple[Kind, ...]] = ("floating", "whole", "truth")
    gives: ClassVar[Literal["same", "floating", "summed", "place"]] = "floating"
    # JAX raises while it traces the maximum of no items, without the name of the block.
    needs_items: ClassVar[bool] = False

    @classmethod
    def infer(cls, options, inputs):
        """Remove the axes, or keep them with size 1 if `keepdim` is set."""
        spec, axis = inputs["input"], options["axis"]
        check_kind("input", spec, cls.takes)
        at = negative_axes(cls.__name__, spec.shape, axes_of(axis))
        for position in at or ():
            if cls.needs_items and spec.shape[position] == 0:
                raise MismatchError(
                    "input",
                    f"at least one item along axis {position}",
                    f"use an array with at least one item along axis {position}.",
                    f"axis {position}: size 0",
                )
        dtype = {
            "same": spec.dtype,
            "floating": floating(spec.dtype),
            "summed": summed(spec.dtype),
            "place": "int32",
        }[cls.gives]
        return TensorSpec(reduced(spec.shape, at, axis, bool(options["keepdim"])), dtype)

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the input's sizes after the last reduced axis from the output. A connected attribute is a scalar."""
        return {**dict.fromkeys(cls.option_ports, ()), **sizes_before_reduction(options, outputs["output"].shape)}


def reduction(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    """Return the kernel of a reduction by a function of `jax.numpy`."""
    return lambda x, axis, keepdim: function(x, axis=axis, keepdims=keepdim, **settings)


def _summing(function: Callable[..., Any]) -> Callable[..., Any]:
    # In x64 mode, JAX would return 64-bit integers.
    return lambda x, *where: reduction(function, promote_integers=False)(x.astype(summed(str(x.dtype))), *where)


def _indexing(function: Callable[..., Any]) -> Callable[..., Any]:
    # In x64 mode, JAX returns int64.
    return lambda x, *where: reduction(function)(x, *where).astype("int32")


class Mean(Reduction):
    """Mean of all items, or along axes. The mean of an empty array is NaN.

    Args:
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.
    """

    op = "mean"
    formula = "y = Σ x / n"
    kernel = reduction(jnp.mean)
    takes = ANY


class Sum(Reduction):
    """Sum of all items, or along axes. The sum of an empty array is 0; `True` counts as 1.

    Args:
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.
    """

    op = "sum"
    formula = "y = Σ x"
    kernel = _summing(jnp.sum)
    takes = ANY
    gives = "summed"


class Prod(Reduction):
    """Product of all items, or along axes. The product of an empty array is 1.

    Args:
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.
    """

    op = "prod"
    formula = "y = Π x"
    kernel = _summing(jnp.prod)
    takes = ANY
    gives = "summed"


class Max(Reduction):
    """Maximum of all items, or along axes; NaN if an item is NaN. Equal maxima share the gradient.

    Args:
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.
    """

    op = "max"
    formula = "y = max x"
    kernel = reduction(jnp.max)
    gives = "same"
    needs_items = True


class Min(Reduction):
    """Minimum of all items, or along axes; NaN if an item is NaN. Equal minima share the gradient.

    Args:
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.
    """

    op = "min"
    formula = "y = min x"
    kernel = reduction(jnp.min)
    gives = "same"
    needs_items = True


def _variance(x: Any, axis: Any, keepdim: bool, correction: Any) -> Any:
    return reduction(jnp.var, correction=correction)(x.astype(floating(str(x.dtype))), axis, keepdim)


class Variance(Reduction):
    """Variance of all items, or along axes.

    Args:
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.
        correction: The sum of squares is divided by `n - correction` for n items. With 1, the result is the unbiased
            estimate from a sample.
    """

    axis: Axes | None = None
    keepdim: bool = False
    # As in NumPy and JAX; PyTorch's default is 1, the unbiased estimate.
    correction: float = 0.0

    op = "variance"
    option_ports = ("correction",)
    formula = "y = Σ (x - mean)² / (n - correction)"
    kernel = _variance


class LogSumExp(Reduction):
    """Logarithm of the sum of exponentials, without overflow. The result for an empty array is -∞.

    Args:
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.
    """

    op = "log_sum_exp"
    formula = "y = log Σ exp(x)"
    kernel = reduction(jax.nn.logsumexp)


class Norm(Reduction):
    """Norm of all items, or of the vectors along axes. The gradient at the zero vector is zero.

    Args:
        p: Order of the norm: 2 for the Euclidean norm, 1 for the sum of absolute values, `inf` for their maximum.
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.
    """

    p: Annotated[float, Range(1.0, float("inf"))] = 2.0
    axis: Axes | None = None
    keepdim: bool = False

    op = "norm"
    formula = "y = (Σ |x|ᵖ)^(1/p)"
    takes = ("floating", "whole")


# One axis, or all: JAX has no index along several axes.
class _ArgReduction(Reduction):
    axis: Axis | None = None
    keepdim: bool = False
    gives = "place"
    needs_items = True


class ArgMax(_ArgReduction):
    """Index of the maximum along an axis, or in the flattened array. Of equal maxima, the first.

    Args:
        axis: The axis; `None` for the flattened array.
        keepdim: If true, the reduced axis stays, with size 1.
    """

    op = "arg_max"
    formula = "y = argmax x"
    kernel = _indexing(jnp.argmax)


class ArgMin(_ArgReduction):
    """Index of the minimum along an axis, or in the flattened array. Of equal minima, the first.

    Args:
        axis: The axis; `None` for the flattened array.
        keepdim: If true, the reduced axis stays, with size 1.
    """

    op = "arg_min"
    formula = "y = argmin x"
    kernel = _indexing(jnp.argmin)


def _cumsum(x: Any, axis: int) -> Any:
    dtype = summed(str(x.dtype))
    # Accumulate 16-bit items in float32, because each of the many steps rounds.
    # `jnp.cumsum` has no argument `promote_integers`, so the items are converted before it.
    wide = "float32" if x.dtype in ("float16", "bfloat16") else dtype
    return jnp.cumsum(x.astype(wide), axis).astype(dtype)


class Cumsum(KeepsShape, Operator):
    """Cumulative sum along an axis.

    Args:
        axis: The axis.
    """

    axis: Axis = -1

    op = "cumsum"
    category = "Reductions"
    formula = "y[i] = Σ x[0..i]"
    kernel = _cumsum
    input_dtypes = {"*": "any"}

    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape, after checking the axis."""
        spec = inputs["input"]
        negative_axes("Cumsum", spec.shape, axes_of(options["axis"]))
        return TensorSpec(spec.shape, summed(spec.dtype))


class Trapezoid(Operator):
    """Integral of `y` along the last axis, by the trapezoidal rule.

    `x` contains the position of each value, and broadcasts to the shape of `y`.

    Examples:
        >>> [port.name for port in Trapezoid().inputs]
        ['y', 'x']
    """

    op = "trapezoid"
    input_ports = ("y", "x")
    category = "Reductions"
    formula = "∫ y dx = Σ (y[i] + y[i+1]) (x[i+1] - x[i]) / 2"
    kernel = jnp.trapezoid
    input_dtypes = {"*": "any"}

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape that the leading axes of both inputs broadcast to."""
        for port, spec in inputs.items():
            check_kind(port, spec, NUMBERS)
            check_axis(port, spec.shape, f"use an input {port} with at least one axis.")
        y, x = inputs["y"], inputs["x"]
        # The rule uses the differences of neighbours, so a single position does not broadcast.
        n, m = y.shape[-1], x.shape[-1]
        if differ(n, m):
            raise MismatchError("x", f"(..., {n})", "use as many positions x as values y.", f"axis -1: {m} != {n}")
        lead = {
            port: TensorSpec(spec.shape if spec.shape == UNKNOWN_SHAPE else spec.shape[:-1])
            for port, spec in inputs.items()
        }
        return TensorSpec(broadcast_all(lead), floating(promoted([y.dtype, x.dtype])))

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the size of the last axis of each input from the other input."""
        # From a name, no size of the other input follows.
        sizes = [spec.shape[-1] for spec in inputs.values() if spec.shape and isinstance(spec.shape[-1], int)]
        return {port: (LEADING, sizes[0]) for port in inputs} if sizes else {}


class Unique(Operator):
    """Distinct items of an array, sorted, in a row of fixed length.

    A compiled program needs the length before it runs, when the number of distinct items is unknown.

    Args:
        size: Length of the row; required. If there are more distinct items, the smallest are kept. If there are fewer,
            `fill_value` is appended.
        fill_value: The value of the appended items; by default the smallest item.
    """

    size: Annotated[int, Range(0, 2**31 - 1)] | None = None
    fill_value: float | None = None

    op = "unique"
    category = "Reductions"
    formula = "y = sorted set of x"
    input_dtypes = {"*": "any"}

    @classmethod
    def infer(cls, options, inputs):
        """Map any shape to `(size,)`."""
        spec, size = inputs["input"], options["size"]
        # `None` is the default all the same, so that the palette can add the block without a size.
        if size is None:
            raise MismatchError(
                "input",
                "a size for the result: the number of distinct items is known only at run time",
                "Unique(size=10, fill_value=0)  # the 10 smallest items, padded with zeros",
            )
        # JAX pads with the smallest item, and there is none.
        if size and spec.size == 0 and options["fill_value"] is None:
            raise MismatchError("input", "at least one item", f"Unique(size={size}, fill_value=0.0)", "size 0")
        return TensorSpec((size,), spec.dtype)
