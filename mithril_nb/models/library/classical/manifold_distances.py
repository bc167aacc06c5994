"""Distances, joint probabilities and coordinates: the operators of the models of manifolds."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mithril_nb.graph.spec import LEADING, Dim
from mithril_nb.models.fields import Range
from mithril_nb.models.library.classical.gaussian_processes import square
from mithril_nb.models.library.layers.windows import Size as Width
from mithril_nb.models.op import Inferred, Initializer, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError

Threshold = Annotated[float, Range(0.0, 1.0)]


class NormModifier(Operator):
    """Maps any number to the orders of norms from 1 to 5, so that training cannot leave this range.

    Numbers from 1 to 5 are unchanged. Beyond, it is a triangle wave of period 8 between 1 and 5. At a turning point,
    the gradient is the slope to its right.

    Examples:
        >>> NormModifier()
        NormModifier()
    """

    op = "norm_modifier"
    category = "Classical"
    formula = "y = 1 + |(x + 3) mod 8 - 4|"

    def __init__(self, name: str | None = None):
        super().__init__(name)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Keep the shape."""
        return Inferred({"output": inputs["input"].shape})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return the output's shape for the input."""
        return {"input": outputs["output"].shape}


class DistanceMatrix(Operator):
    """Minkowski distances between two sets of points, to the power of the norm's order.

    For the distance itself, use `EncoderDistanceMatrix`, or raise the result to `1 / norm`. Equal coordinates
    contribute 0 to the gradient.

    Examples:
        >>> [port.name for port in DistanceMatrix().inputs]
        ['left', 'right', 'norm']
    """

    op = "distance_matrix"
    category = "Classical"
    input_ports = ("left", "right", "norm")
    formula = "y[i, j] = Σ_k |left[i, k] - right[j, k]| ^ norm"

    def __init__(self, name: str | None = None):
        super().__init__(name)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(n, features)`, `(m, features)` and a number to `(n, m)`."""
        scalar(inputs, "norm", "one order for all distances.")
        (rows, width), (columns, other) = points(inputs, "left"), points(inputs, "right")
        if isinstance(width, int) and isinstance(other, int) and width != other:
            detail = f"axis 1: {other} != {width}"
            raise MismatchError("right", f"(points, {width})", "points of the same space.", detail)
        return Inferred({"output": (LEADING,) if rows is None or columns is None else (rows, columns)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return one space for the points of both sides; the output's rows and columns are their numbers."""
        found: dict[str, tuple[Dim, ...]] = {"norm": ()}
        sizes = outputs["output"].shape
        for place, (port, other) in enumerate((("left", "right"), ("right", "left"))):
            size, width = points(inputs, port)[0], points(inputs, other)[1]
            if len(sizes) == 2 and LEADING not in sizes:
                size = sizes[place]
            if size is not None and width is not None:
                found[port] = (size, width)
        return found


class TsnePJoint(Operator):
    """Converts squared distances between points to the joint probabilities of t-SNE (van der Maaten, 2008).

    Each point sees the others through a normal distribution. Bisection finds the width that gives the requested
    perplexity. The two views of each pair are then averaged. The result is data: no gradient flows through.

    Args:
        threshold: Lower bound of the normaliser of probabilities; by default the dtype's epsilon.

    Examples:
        >>> [port.name for port in TsnePJoint().inputs]
        ['squared_distances', 'target_perplexity', 'threshold']
    """

    op = "tsne_p_joint"
    category = "Classical"
    input_ports = ("squared_distances", "target_perplexity")
    option_ports = ("threshold",)
    formula = "y[i, j] = (p[j | i] + p[i | j]) / 2n, p[j | i] ∝ exp(-β[i] d²[i, j])"

    def __init__(self, threshold: Threshold | None = None, name: str | None = None):
        super().__init__(name, threshold=threshold)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(n, n)` and a number to `(n, n)`."""
        scalar(inputs, "target_perplexity", "one perplexity for all points.")
        return Inferred({"output": square(inputs, "squared_distances")})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return the output's shape for the distances."""
        return {"squared_distances": outputs["output"].shape, "target_perplexity": ()}


class Coordinates(Operator):
    """A learned point for each row of the input; only the number of rows is used.

    Args:
        dimension: Number of coordinates of a point.

    Examples:
        >>> Coordinates(2).inputs
        (Port(name='input', role='data'), Port(name='coords', role='param'))
    """

    op = "coordinates"
    category = "Classical"
    formula = "y = coords"
    initializers: ClassVar = {"coords": Initializer("normal", scale=0.01)}
    input_dtypes: ClassVar = {"*": "any"}

    def __init__(self, dimension: Width | None = None, name: str | None = None):
        super().__init__(name, dimension=dimension)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(n, ...)` to `(n, dimension)`."""
        shape, dimension = inputs["input"].shape, options["dimension"]
        if not shape:
            raise MismatchError("input", "at least one axis", "one row for each point.", "rank 0")
        points: Dim = "points" if shape[0] == LEADING else shape[0]
        width: Dim = dimension if isinstance(dimension, int) else "prediction_dim"
        return Inferred({"output": (points, width)}, {"coords": (points, width)})


def points(inputs: Specs, port: str) -> tuple[Dim | None, Dim | None]:
    """Return the number of points of an input, and their number of features; `None` if unknown.

    Raises:
        MismatchError: The input is not a matrix.
    """
    shape = inputs[port].shape
    if LEADING in shape[:1]:
        return None, (shape[-1] if len(shape) > 1 else None)
    if len(shape) != 2:
        raise MismatchError(port, "(points, features)", "one row for each point.", f"rank {len(shape)} != 2")
    return shape[0], shape[1]


def scalar(inputs: Specs, port: str, advice: str) -> None:
    """Raise if an input is not a single number.

    Raises:
        MismatchError: The input has axes.
    """
    shape = inputs[port].shape
    if shape != (LEADING,) and shape != ():
        raise MismatchError(port, "one number, of shape ()", advice)
