"""The ops of classical models: Cholesky factors, distances, joint probabilities and coordinates.

Numbers of algorithms refer to Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, chapter 2.
"""

from __future__ import annotations

from typing import Any

from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.library.operations.elementwise import Threshold
from mithril_nb.models.library.operations.reshaping import KeepsShape
from mithril_nb.models.op import (
    LEADING,
    UNKNOWN_SHAPE,
    Dim,
    Dims,
    Inferred,
    Initializer,
    MismatchError,
    Operator,
    Specs,
)
from mithril_nb.models.shape_inference.dims import check_axis, differ, is_open, meet

__all__ = [
    "Cholesky",
    "Coordinates",
    "DistanceMatrix",
    "Eigvalsh",
    "GPRAlpha",
    "GPRVOuter",
    "NormModifier",
    "TsnePJoint",
]


class Cholesky(KeepsShape, Operator):
    """Cholesky factor of a symmetric matrix x: the lower triangular L with `L Lᵀ = x`.

    The result is NaN if x is not positive definite. Axes before the last two are batch axes. A matrix that is not
    symmetric is replaced by its symmetric part.
    """

    op = "cholesky"
    category = "Classical"
    formula = "L Lᵀ = x"

    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape `(*batch, n, n)`."""
        shape = inputs["input"].shape
        if shape == UNKNOWN_SHAPE:
            return shape
        # Of ("...", n), the number of rows is unknown.
        rows, columns = shape[-2:] if len(shape) > 1 else (LEADING, LEADING)
        if len(shape) < 2 or (differ(rows, columns)):
            raise MismatchError("input", "a square matrix", "x.T @ x  # or another square matrix")
        return shape


# `K_term` is an input too, for the case that its factor is NaN.
class _Factored(Operator):
    category = "Classical"

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer that `L` and `K_term` have the same shape."""
        return {"K_term": inputs["L"].shape, "L": inputs["K_term"].shape}


class Eigvalsh(_Factored):
    """Diagonal of the Cholesky factor `L` of `K_term`, or the square roots of the eigenvalues of `K_term` if L is NaN.

    L is NaN if rounding makes the matrix indefinite. In both cases, the sum of the logarithms of the result is half the
    log-determinant of the matrix.

    Args:
        threshold: Lower bound of the eigenvalues; by default the dtype's epsilon.

    Examples:
        >>> [port.name for port in Eigvalsh().inputs]
        ['K_term', 'L', 'threshold']
    """

    threshold: Threshold | None = None

    op = "eigvalsh"
    input_ports = ("K_term", "L")
    option_ports = ("threshold",)
    formula = "y = diag L, or √λ(K_term)"

    @classmethod
    def infer(cls, options, inputs):
        """Map the matrices `(n, n)` to `(n,)`."""
        return _same_square(inputs, "K_term", "L")[:1]


class GPRAlpha(_Factored):
    """Solves `K_term α = label_mu_diff` for α with the Cholesky factor `L` of `K_term`.

    This is line 3 of algorithm 2.1 of Rasmussen and Williams (2006), Gaussian Processes for Machine Learning. If L is
    NaN, the op adds a bound of the rounding error to the diagonal of `K_term`, and solves the equation without L.

    Examples:
        >>> [port.name for port in GPRAlpha().inputs]
        ['label_mu_diff', 'L', 'K_term']
    """

    op = "gpr_alpha"
    input_ports = ("label_mu_diff", "L", "K_term")
    formula = "L Lᵀ α = label_mu_diff"

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape of `label_mu_diff`, `(n,)` or `(n, 1)`. The matrices `K_term` and `L` are `(n, n)`."""
        size = _same_square(inputs, "K_term", "L")[0]
        shape = inputs["label_mu_diff"].shape
        if is_open(shape):
            return shape
        # Labels of shape (n, n) would give n solutions, whose meaning is undefined here.
        if not 1 <= len(shape) <= 2 or meet((size, 1)[: len(shape)], shape, {}) is None:
            raise MismatchError("label_mu_diff", f"({size}, 1)", f"use labels and a mean of shape ({size}, 1).")
        return shape

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer that `label_mu_diff` has the output's shape, and that `L` and `K_term` have the same shape."""
        return {"label_mu_diff": outputs["output"].shape, **super().refine(options, inputs, outputs)}


class GPRVOuter(_Factored):
    """Reduction of the covariance of new points by the labelled points: `Kᵀ K_term⁻¹ K`.

    `K` is the kernel of labelled points and new points, `(n, m)`. `K_term` is the kernel of the labelled points plus
    the noise, `(n, n)`, and `L` is its Cholesky factor. The op computes `vᵀ v` with `L v = K` (Rasmussen and Williams,
    2006, algorithm 2.1, line 5). If L is NaN, it uses `K_term` instead, as in `GPRAlpha`.

    Examples:
        >>> [port.name for port in GPRVOuter().inputs]
        ['K', 'K_term', 'L']
    """

    op = "gpr_v_outer"
    input_ports = ("K", "K_term", "L")
    formula = "y = vᵀ v, L v = K"

    @classmethod
    def infer(cls, options, inputs):
        """Map `K` of shape `(n, m)` to `(m, m)`. The matrices `K_term` and `L` are `(n, n)`."""
        size = _same_square(inputs, "K_term", "L")[0]
        shape = inputs["K"].shape
        if is_open(shape):
            return UNKNOWN_SHAPE
        if len(shape) != 2 or meet((size,), shape[:1], {}) is None:
            raise MismatchError("K", f"({size}, new points)", "use the kernel of labelled points and new points as K.")
        # The covariance of the new points with each other.
        return (shape[1], shape[1])


def _triangle_wave(x: Any) -> Any:
    # Mithril's function. Clipping instead would stop the gradient at the bounds.
    return 1 + abs((x + 3) % 8 - 4)


class NormModifier(KeepsShape, Operator):
    """Maps any number to a number from 1 to 5, so that training keeps the order of a norm in this range.

    Numbers from 1 to 5 are unchanged. Outside, the function is a triangle wave of period 8. At its minima and maxima,
    the gradient is the slope on the right.
    """

    op = "norm_modifier"
    category = "Classical"
    formula = "y = 1 + |(x + 3) mod 8 - 4|"
    kernel = _triangle_wave


class DistanceMatrix(Operator):
    """Minkowski distances between the points of `left` and those of `right`, to the power of `norm`.

    `norm` is the order of the norm. For the distances without the power, use `EncoderDistanceMatrix`. A coordinate in
    which two points are equal contributes 0 to the gradient.

    Examples:
        >>> [port.name for port in DistanceMatrix().inputs]
        ['left', 'right', 'norm']
    """

    op = "distance_matrix"
    category = "Classical"
    input_ports = ("left", "right", "norm")
    formula = "y[i, j] = Σ_k |left[i, k] - right[j, k]| ^ norm"

    @classmethod
    def infer(cls, options, inputs):
        """Map `(n, features)`, `(m, features)` and a number to `(n, m)`."""
        # One order for all distances: a vector would broadcast over points.
        scalar(inputs, "norm", "use one order for all distances.")
        (rows, width), (columns, other) = points(inputs, "left"), points(inputs, "right")
        if differ(width, other):
            detail = f"axis 1: {other} != {width}"
            raise MismatchError("right", f"(points, {width})", f"use points with {width} features.", detail)
        return UNKNOWN_SHAPE if rows is None or columns is None else (rows, columns)

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the number of points of each input from the output, and the number of features from the other input."""
        shapes: dict[str, Dims] = {"norm": ()}
        sizes = outputs["output"].shape
        # The features of both sets are the same; each number of points is an axis of the result.
        for axis, (port, other) in enumerate((("left", "right"), ("right", "left"))):
            size, width = points(inputs, port)[0], points(inputs, other)[1]
            if len(sizes) == 2 and LEADING not in sizes:
                size = sizes[axis]
            if size is not None and width is not None:
                shapes[port] = (size, width)
        return shapes


class TsnePJoint(Operator):
    """Converts squared distances between points to the joint probabilities of t-SNE (van der Maaten and Hinton, 2008).

    A normal distribution around point i gives the conditional probability of each other point j. Bisection finds the
    width of the distribution that gives the target perplexity. The joint probability is the mean of both conditional
    probabilities of a pair, divided by the number of points. The gradient is 0.

    Args:
        threshold: Lower bound of the divisor that makes the conditional probabilities sum to 1; by default the dtype's
            epsilon.

    Examples:
        >>> [port.name for port in TsnePJoint().inputs]
        ['squared_distances', 'target_perplexity', 'threshold']
    """

    threshold: Threshold | None = None

    op = "tsne_p_joint"
    category = "Classical"
    input_ports = ("squared_distances", "target_perplexity")
    option_ports = ("threshold",)
    formula = "y[i, j] = (p[j | i] + p[i | j]) / 2n, p[j | i] ∝ exp(-β[i] d²[i, j])"

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape of the distances, `(n, n)`."""
        scalar(inputs, "target_perplexity", "use one perplexity for all points.")
        return square(inputs, "squared_distances")

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the shape of the distances: it is the output's."""
        # The perplexity is one number.
        return {"squared_distances": outputs["output"].shape, "target_perplexity": ()}


class Coordinates(Operator):
    """A learned point for each row of the input. The values of the input are ignored.

    Args:
        dimension: Number of coordinates of a point; by default taken from the array connected to `coords`.

    Examples:
        >>> Coordinates(2).inputs
        (Port(name='input', role='data'), Port(name='coords', role='param'))
    """

    dimension: Size | None = None

    op = "coordinates"
    category = "Classical"
    formula = "y = coords"
    initializers = {"coords": Initializer("normal", scale=0.01)}
    input_dtypes = {"*": "any"}

    @classmethod
    def infer(cls, options, inputs):
        """Map `(n, ...)` to `(n, dimension)`."""
        shape, dimension = inputs["input"].shape, options["dimension"]
        check_axis("input", shape, "use an input with one row for each point.")
        # A placeholder name: the parameter exists before the number of points is known.
        points: Dim = "points" if shape[0] == LEADING else shape[0]
        width: Dim = dimension if isinstance(dimension, int) else "prediction_dim"
        return Inferred({"output": (points, width)}, {"coords": (points, width)})


def square(inputs: Specs, port: str) -> Dims:
    """Return the shape of a square matrix: `(3, 3)` for an input `("n", 3)`, because both sizes are equal."""
    shape = inputs[port].shape
    if shape == UNKNOWN_SHAPE:
        return shape
    if is_open(shape):
        # The "..." contains the rows, as many as columns.
        return (shape[-1], shape[-1])
    numbers = {dim for dim in shape if isinstance(dim, int)}
    if len(shape) != 2 or len(numbers) > 1:
        raise MismatchError(port, "a square matrix", "use a matrix with one row and one column for each point.")
    # A number on one axis is also that of the other.
    return (next(iter(numbers)),) * 2 if numbers else shape


def _same_square(inputs: Specs, port: str, other: str) -> Dims:
    left, right = square(inputs, port), square(inputs, other)
    both = meet(left, right, {})
    if both is None:
        raise MismatchError(other, str(left), f"use the Cholesky factor of {port} as {other}.")
    return both


def points(inputs: Specs, port: str) -> tuple[Dim | None, Dim | None]:
    """Return the numbers of points and features of an input `(points, features)`; `None` for an unknown number."""
    shape = inputs[port].shape
    if is_open(shape):
        return None, (shape[-1] if len(shape) > 1 else None)
    if len(shape) != 2:
        raise MismatchError(
            port, "(points, features)", "use a matrix with one row for each point.", f"rank {len(shape)} != 2"
        )
    return shape[0], shape[1]


def scalar(inputs: Specs, port: str, advice: str) -> None:
    """Raise a `MismatchError` with this advice if an input is not a single number."""
    shape = inputs[port].shape
    if shape != UNKNOWN_SHAPE and shape != ():
        raise MismatchError(port, "one number, of shape ()", advice)
