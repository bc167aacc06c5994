"""Reductions along axes: sums, means and others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.fields import Range
from mithril_nb.models.library.operations.elementwise import (
    ANY,
    NUMBERS,
    Kind,
    broadcast_all,
    check_kind,
    floating,
    kind_of,
)
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError
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

Axis = Annotated[int, Range(-32, 31)]
Axes = Annotated[int | Sequence[int], Range(-32, 31)]


def summed(dtype: str) -> str:
    """Return the dtype of a sum: integers get at least 32 bits, booleans are counted.

    Examples:
        >>> summed("bool"), summed("uint8"), summed("float16")
        ('int32', 'uint32', 'float16')
    """
    if kind_of(dtype) in ("truth", "whole") and not dtype.endswith("64"):
        return "uint32" if dtype.startswith("uint") else "int32"
    return dtype


def axes_of(axis: Value) -> tuple[int, ...] | None:
    """Return an attribute `axis` as a tuple of axes; `None` for all axes."""
    if axis is None:
        return None
    axes = axis if isinstance(axis, tuple) else (axis,)
    assert all(isinstance(one, int) for one in axes)
    return axes  # pyright: ignore[reportReturnType]


def places(kind: str, shape: tuple[Dim, ...], axes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return the positions of axes, counted from the end, without duplicates; `None` if they are unknown.

    Args:
        kind: The block's kind, for the error message.
        shape: The input's shape.
        axes: The axes; `None` for all.

    Raises:
        MismatchError: The array does not have an axis, or an axis is repeated.

    Examples:
        >>> places("Sum", (2, 3, 4), (0, -1)), places("Sum", ("...", 3), (-1,)), places("Sum", ("...", 3), (0,))
        ((-3, -1), (-1,), None)
    """
    is_open = shape[:1] == (LEADING,)
    if axes is None:
        return None if is_open else tuple(range(-len(shape), 0))
    if is_open:
        return axes if all(-len(shape) < axis < 0 for axis in axes) and len(set(axes)) == len(axes) else None
    found: list[int] = []
    for axis in axes:
        if not -len(shape) <= axis < len(shape):
            nearest = f"{kind}(axis={-1 if axis < 0 else len(shape) - 1})" if shape else f"{kind}(axis=None)"
            raise MismatchError("input", f"an array that has axis {axis}", nearest, f"rank {len(shape)}")
        place = axis - len(shape) if axis >= 0 else axis
        if place in found:
            raise MismatchError("input", "each axis once", f"{kind}(axis={place})", f"axis {place} twice in {axes}")
        found.append(place)
    return tuple(found)


def reduced(shape: tuple[Dim, ...], at: tuple[int, ...] | None, axis: Value, keepdim: bool) -> tuple[Dim, ...]:
    """Return a shape without some of its axes, or with size 1 on them."""
    if at is None:
        return () if axis is None and not keepdim else (LEADING,)
    kept = [1 if place in at else shape[place] for place in range(-len(shape), 0)]
    return tuple(kept if keepdim else [shape[place] for place in range(-len(shape), 0) if place not in at])


class Reduction(Operator):
    """An op that reduces some axes to one item.

    Attributes:
        takes: Accepted kinds of values.
        gives: Dtype of the output.
        needs_items: True if an empty array has no result.
    """

    category = "Reductions"
    input_dtypes: ClassVar = {"*": "any"}
    takes: ClassVar[tuple[Kind, ...]] = ("floating", "whole", "truth")
    gives: ClassVar[Literal["same", "floating", "summed", "place"]] = "floating"
    needs_items: ClassVar[bool] = False

    def __init__(self, axis: Axes | None = None, keepdim: bool = False, name: str | None = None):
        super().__init__(name, axis=axis, keepdim=keepdim)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Remove the axes, or keep them with size 1 if `keepdim` is set."""
        spec, axis = inputs["input"], options["axis"]
        check_kind("input", spec, cls.takes)
        at = places(cls.__name__, spec.shape, axes_of(axis))
        for place in at or ():
            if cls.needs_items and spec.shape[place] == 0:
                raise MismatchError(
                    "input",
                    f"at least one item along axis {place}",
                    "an array that is not empty.",
                    f"axis {place}: size 0",
                )
        dtype = {
            "same": spec.dtype,
            "floating": floating(spec.dtype),
            "summed": summed(spec.dtype),
            "place": "int32",
        }[cls.gives]
        return Inferred({"output": TensorSpec(reduced(spec.shape, at, axis, bool(options["keepdim"])), dtype)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return the output's axes after the last reduced axis; a connected attribute is one number."""
        return {**dict.fromkeys(cls.option_ports, ()), **_tail(options, outputs["output"].shape)}


def _tail(options: Options, output: tuple[Dim, ...]) -> Shapes:
    """Return the last axes of the input that follow from the output's."""
    axes = axes_of(options["axis"])
    if not axes:
        return {} if axes is None else {"input": output}
    rank = len(output) + (0 if options["keepdim"] else len(axes))
    if output[:1] == (LEADING,) and max(axes) >= 0:
        return {}
    after = -1 - max(axis - rank if axis >= 0 else axis for axis in axes)
    tail = output[len(output) - after :]
    return {} if not tail or LEADING in tail else {"input": (LEADING, *tail)}


class Mean(Reduction):
    """Mean of all items, or along axes. An empty array gives NaN.

    Args:
        axis: The axis, or several; `None` for all.
        keepdim: If true, keep the axes with size 1.

    Examples:
        >>> Mean(axis=-1)
        Mean(axis=(-1,), keepdim=False)
    """

    op = "mean"
    formula = "y = Σ x / n"
    takes = ANY


class Sum(Reduction):
    """Sum of all items, or along axes. An empty array gives 0. Booleans are counted.

    Args:
        axis: The axis, or several; `None` for all.
        keepdim: If true, keep the axes with size 1.

    Examples:
        >>> Sum([0, 1], keepdim=True)
        Sum(axis=(0, 1), keepdim=True)
    """

    op = "sum"
    formula = "y = Σ x"
    takes = ANY
    gives = "summed"


class Prod(Reduction):
    """Product of all items, or along axes. An empty array gives 1.

    Args:
        axis: The axis, or several; `None` for all.
        keepdim: If true, keep the axes with size 1.

    Examples:
        >>> Prod()
        Prod(axis=None, keepdim=False)
    """

    op = "prod"
    formula = "y = Π x"
    takes = ANY
    gives = "summed"


class Max(Reduction):
    """Maximum of all items, or along axes; NaN if an item is NaN. Equal items share the gradient.

    Args:
        axis: The axis, or several; `None` for all.
        keepdim: If true, keep the axes with size 1.

    Examples:
        >>> Max(axis=0)
        Max(axis=(0,), keepdim=False)
    """

    op = "max"
    formula = "y = max x"
    gives = "same"
    needs_items = True


class Min(Reduction):
    """Minimum of all items, or along axes; NaN if an item is NaN. Equal items share the gradient.

    Args:
        axis: The axis, or several; `None` for all.
        keepdim: If true, keep the axes with size 1.

    Examples:
        >>> Min(axis=0)
        Min(axis=(0,), keepdim=False)
    """

    op = "min"
    formula = "y = min x"
    gives = "same"
    needs_items = True


class Variance(Reduction):
    """Variance of all items, or along axes.

    Args:
        axis: The axis, or several; `None` for all.
        keepdim: If true, keep the axes with size 1.
        correction: Subtracted from the number of items: 1 for an unbiased estimate from a sample.

    Examples:
        >>> Variance(axis=-1, correction=1)
        Variance(axis=(-1,), keepdim=False, correction=1.0)
    """

    op = "variance"
    option_ports = ("correction",)
    formula = "y = Σ (x - mean)² / (n - correction)"

    def __init__(
        self,
        axis: Axes | None = None,
        keepdim: bool = False,
        correction: float = 0.0,
        name: str | None = None,
    ):
        Operator.__init__(self, name, axis=axis, keepdim=keepdim, correction=correction)


class LogSumExp(Reduction):
    """Logarithm of the sum of exponentials, without overflow. An empty array gives -∞.

    Args:
        axis: The axis, or several; `None` for all.
        keepdim: If true, keep the axes with size 1.

    Examples:
        >>> LogSumExp(axis=-1)
        LogSumExp(axis=(-1,), keepdim=False)
    """

    op = "log_sum_exp"
    formula = "y = log Σ exp(x)"


class Norm(Reduction):
    """Norm of vectors: along an axis, or of all items. The gradient at the zero vector is zero.

    Args:
        p: Order of the norm: 2 is Euclidean, 1 the sum of absolute items, `inf` their maximum.
        axis: The axis, or several; `None` for all.
        keepdim: If true, keep the axes with size 1.

    Examples:
        >>> Norm(axis=-1)
        Norm(p=2.0, axis=(-1,), keepdim=False)
    """

    op = "norm"
    formula = "y = (Σ |x|ᵖ)^(1/p)"
    takes = ("floating", "whole")

    def __init__(
        self,
        p: Annotated[float, Range(1.0, float("inf"))] = 2.0,
        axis: Axes | None = None,
        keepdim: bool = False,
        name: str | None = None,
    ):
        Operator.__init__(self, name, p=p, axis=axis, keepdim=keepdim)


class _ArgReduction(Reduction):
    gives = "place"
    needs_items = True

    def __init__(self, axis: Axis | None = None, keepdim: bool = False, name: str | None = None):
        Operator.__init__(self, name, axis=axis, keepdim=keepdim)


class ArgMax(_ArgReduction):
    """Index of the maximum, along an axis or of the flattened array. Among equal items, the first one.

    Args:
        axis: The axis; `None` for all items, flattened.
        keepdim: If true, keep the axis with size 1.

    Examples:
        >>> ArgMax(axis=-1)
        ArgMax(axis=-1, keepdim=False)
    """

    op = "arg_max"
    formula = "y = argmax x"


class ArgMin(_ArgReduction):
    """Index of the minimum, along an axis or of the flattened array. Among equal items, the first one.

    Args:
        axis: The axis; `None` for all items, flattened.
        keepdim: If true, keep the axis with size 1.

    Examples:
        >>> ArgMin(axis=-1)
        ArgMin(axis=-1, keepdim=False)
    """

    op = "arg_min"
    formula = "y = argmin x"


class Cumsum(Operator):
    """Cumulative sum along an axis.

    Args:
        axis: The axis.

    Examples:
        >>> Cumsum()
        Cumsum(axis=-1)
    """

    op = "cumsum"
    category = "Reductions"
    formula = "y[i] = Σ x[0..i]"
    input_dtypes: ClassVar = {"*": "any"}

    def __init__(self, axis: Axis = -1, name: str | None = None):
        super().__init__(name, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Keep the shape, after checking the axis."""
        spec = inputs["input"]
        places("Cumsum", spec.shape, axes_of(options["axis"]))
        return Inferred({"output": TensorSpec(spec.shape, summed(spec.dtype))})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return the output's shape for the input."""
        return {"input": outputs["output"].shape}


class Trapezoid(Operator):
    """Integral along the last axis, by the trapezoidal rule.

    `x` are the positions of the points, either one row for all or in the shape of `y`.

    Examples:
        >>> [port.name for port in Trapezoid().inputs]
        ['y', 'x']
    """

    op = "trapezoid"
    input_ports = ("y", "x")
    category = "Reductions"
    formula = "∫ y dx = Σ (y[i] + y[i+1]) (x[i+1] - x[i]) / 2"
    input_dtypes: ClassVar = {"*": "any"}

    def __init__(self, name: str | None = None):
        super().__init__(name)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(*lead, n)` to `lead`."""
        for port, spec in inputs.items():
            check_kind(port, spec, NUMBERS)
            if not spec.shape:
                raise MismatchError(port, "at least one axis", "give it a last axis to integrate along.", "rank 0")
        y, x = inputs["y"], inputs["x"]
        n, m = y.shape[-1], x.shape[-1]
        if isinstance(n, int) and isinstance(m, int) and n != m:
            raise MismatchError("x", f"(..., {n})", "as many positions as values.", f"axis -1: {m} != {n}")
        lead = {port: TensorSpec(_lead(spec.shape)) for port, spec in inputs.items()}
        return Inferred({"output": TensorSpec(broadcast_all(lead), floating(promoted([y.dtype, x.dtype])))})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return one number of points for both."""
        sizes = [spec.shape[-1] for spec in inputs.values() if spec.shape and isinstance(spec.shape[-1], int)]
        return {port: (LEADING, sizes[0]) for port in inputs} if sizes else {}


def _lead(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return shape if shape == (LEADING,) else shape[:-1]


class Unique(Operator):
    """Distinct items, sorted, in a row of fixed length.

    A compiled program needs static shapes, but the number of distinct items is known only at run time.

    Args:
        size: Length of the row. With more items, the smallest are kept; with fewer, `fill_value` is appended.
        fill_value: The padding; by default the smallest item.

    Examples:
        >>> Unique(size=10)
        Unique(size=10, fill_value=None)
    """

    op = "unique"
    category = "Reductions"
    formula = "y = sorted set of x"
    input_dtypes: ClassVar = {"*": "any"}

    def __init__(
        self,
        size: Annotated[int, Range(0, 2**31 - 1)] | None = None,
        fill_value: float | None = None,
        name: str | None = None,
    ):
        super().__init__(name, size=size, fill_value=fill_value)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map any shape to `(size,)`."""
        spec, size = inputs["input"], options["size"]
        if size is None:
            raise MismatchError(
                "input",
                "a size for the result: the number of distinct items is known only at run time",
                "Unique(size=10, fill_value=0)  # the 10 smallest items, padded with zeros",
            )
        if size and spec.size == 0 and options["fill_value"] is None:
            raise MismatchError("input", "at least one item", f"Unique(size={size}, fill_value=0.0)", "size 0")
        assert isinstance(size, int)
        return Inferred({"output": TensorSpec((size,), spec.dtype)})
