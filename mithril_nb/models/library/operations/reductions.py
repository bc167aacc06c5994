"""Reductions along axes: sums, means and others."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.fields import Range
from mithril_nb.models.library.operations.elementwise import ANY, NUMBERS, check_kind, floating
from mithril_nb.models.library.operations.reducing import Axes, Axis, Reduction, axes_of, negative_axes, summed
from mithril_nb.models.library.operations.shape_rules import KeepsShape, broadcast_all
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


class Mean(Reduction):
    """Mean of all items, or along axes. The mean of an empty array is NaN.

    Args:
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.

    Examples:
        >>> Mean(axis=-1)
        Mean(axis=(-1,), keepdim=False)
    """

    op = "mean"
    formula = "y = Σ x / n"
    takes = ANY


class Sum(Reduction):
    """Sum of all items, or along axes. The sum of an empty array is 0; `True` counts as 1.

    Args:
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.

    Examples:
        >>> Sum([0, 1], keepdim=True)
        Sum(axis=(0, 1), keepdim=True)
    """

    op = "sum"
    formula = "y = Σ x"
    takes = ANY
    gives = "summed"


class Prod(Reduction):
    """Product of all items, or along axes. The product of an empty array is 1.

    Args:
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.

    Examples:
        >>> Prod()
        Prod(axis=None, keepdim=False)
    """

    op = "prod"
    formula = "y = Π x"
    takes = ANY
    gives = "summed"


class Max(Reduction):
    """Maximum of all items, or along axes; NaN if an item is NaN. Equal maxima share the gradient.

    Args:
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.

    Examples:
        >>> Max(axis=0)
        Max(axis=(0,), keepdim=False)
    """

    op = "max"
    formula = "y = max x"
    gives = "same"
    needs_items = True


class Min(Reduction):
    """Minimum of all items, or along axes; NaN if an item is NaN. Equal minima share the gradient.

    Args:
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.

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
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.
        correction: The sum of squares is divided by `n - correction` for n items. With 1, the result is the unbiased
            estimate from a sample.

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
    """Logarithm of the sum of exponentials, without overflow. The result for an empty array is -∞.

    Args:
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.

    Examples:
        >>> LogSumExp(axis=-1)
        LogSumExp(axis=(-1,), keepdim=False)
    """

    op = "log_sum_exp"
    formula = "y = log Σ exp(x)"


class Norm(Reduction):
    """Norm of all items, or of the vectors along axes. The gradient at the zero vector is zero.

    Args:
        p: Order of the norm: 2 for the Euclidean norm, 1 for the sum of absolute values, `inf` for their maximum.
        axis: One axis or several; `None` for all.
        keepdim: If true, the reduced axes stay, with size 1.

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
    """Index of the maximum along an axis, or in the flattened array. Of equal maxima, the first.

    Args:
        axis: The axis; `None` for the flattened array.
        keepdim: If true, the reduced axis stays, with size 1.

    Examples:
        >>> ArgMax(axis=-1)
        ArgMax(axis=-1, keepdim=False)
    """

    op = "arg_max"
    formula = "y = argmax x"


class ArgMin(_ArgReduction):
    """Index of the minimum along an axis, or in the flattened array. Of equal minima, the first.

    Args:
        axis: The axis; `None` for the flattened array.
        keepdim: If true, the reduced axis stays, with size 1.

    Examples:
        >>> ArgMin(axis=-1)
        ArgMin(axis=-1, keepdim=False)
    """

    op = "arg_min"
    formula = "y = argmin x"


class Cumsum(KeepsShape, Operator):
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
        negative_axes("Cumsum", spec.shape, axes_of(options["axis"]))
        return Inferred({"output": TensorSpec(spec.shape, summed(spec.dtype))})


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
    input_dtypes: ClassVar = {"*": "any"}

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shape that the leading axes of both inputs broadcast to."""
        for port, spec in inputs.items():
            check_kind(port, spec, NUMBERS)
            if not spec.shape:
                raise MismatchError(
                    port,
                    "at least one axis",
                    f"use an input {port} with at least one axis.",
                    "rank 0",
                )
        y, x = inputs["y"], inputs["x"]
        n, m = y.shape[-1], x.shape[-1]
        if isinstance(n, int) and isinstance(m, int) and n != m:
            raise MismatchError("x", f"(..., {n})", "use as many positions x as values y.", f"axis -1: {m} != {n}")
        lead = {port: TensorSpec(_lead(spec.shape)) for port, spec in inputs.items()}
        return Inferred({"output": TensorSpec(broadcast_all(lead), floating(promoted([y.dtype, x.dtype])))})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the size of the last axis of each input from the other input."""
        sizes = [spec.shape[-1] for spec in inputs.values() if spec.shape and isinstance(spec.shape[-1], int)]
        return {port: (LEADING, sizes[0]) for port in inputs} if sizes else {}


def _lead(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return shape if shape == (LEADING,) else shape[:-1]


class Unique(Operator):
    """Distinct items of an array, sorted, in a row of fixed length.

    A compiled program needs the length before it runs, when the number of distinct items is unknown.

    Args:
        size: Length of the row; required. If there are more distinct items, the smallest are kept. If there are fewer,
            `fill_value` is appended.
        fill_value: The value of the appended items; by default the smallest item.

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
