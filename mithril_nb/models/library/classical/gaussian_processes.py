"""Gaussian process regression.

The equations are those of Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, chapter 2.
"""

from __future__ import annotations

from math import log, pi
from typing import Annotated

from mithril_nb.graph.spec import LEADING, Dim
from mithril_nb.models.composite import Composite
from mithril_nb.models.connection import IOKey
from mithril_nb.models.fields import Range
from mithril_nb.models.library.operations.arithmetic import Add, Log, MatrixMultiply, Multiply, Subtract
from mithril_nb.models.library.operations.generators import Eye
from mithril_nb.models.library.operations.indexing import TransposedDiagonal
from mithril_nb.models.library.operations.reductions import Sum
from mithril_nb.models.library.operations.reshaping import Transpose
from mithril_nb.models.library.operations.statics import Size
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, meet

__all__ = [
    "Cholesky",
    "Eigvalsh",
    "GPRAlpha",
    "GPRLoss",
    "GPRVOuter",
    "GaussProcessRegressionCore",
]

Threshold = Annotated[float, Range(0.0, 1.0)]


class Cholesky(Operator):
    """Cholesky factor: the lower triangular L with `L Lᵀ = x`. NaN if x is not positive definite.

    Axes before the last two are batches. The input is replaced by its symmetric part.

    Examples:
        >>> Cholesky()
        Cholesky()
    """

    op = "cholesky"
    category = "Classical"
    formula = "L Lᵀ = x"

    def __init__(self, name: str | None = None):
        super().__init__(name)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(*batch, n, n)` to the same."""
        shape = inputs["input"].shape
        if shape == (LEADING,):
            return Inferred({"output": shape})
        rows, columns = shape[-2:] if len(shape) > 1 else (LEADING, LEADING)
        if len(shape) < 2 or (isinstance(rows, int) and isinstance(columns, int) and rows != columns):
            raise MismatchError("input", "a square matrix", "x.T @ x, or a kernel of points with themselves.")
        return Inferred({"output": shape})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return the output's shape for the input."""
        return {"input": outputs["output"].shape}


class Eigvalsh(Operator):
    """n positive numbers whose logarithms sum to half the log-determinant of a symmetric matrix.

    These are the diagonal of the matrix's Cholesky factor L. If L is NaN because of rounding, these are the square
    roots of the eigenvalues instead, each clipped to at least the threshold.

    Args:
        threshold: Lower bound of an eigenvalue; by default the dtype's epsilon.

    Examples:
        >>> [port.name for port in Eigvalsh().inputs]
        ['K_term', 'L', 'threshold']
    """

    op = "eigvalsh"
    category = "Classical"
    input_ports = ("K_term", "L")
    option_ports = ("threshold",)
    formula = "y = diag L, or √λ(K_term)"

    def __init__(self, threshold: Threshold | None = None, name: str | None = None):
        super().__init__(name, threshold=threshold)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map two of `(n, n)` to `(n,)`."""
        return Inferred({"output": _same_square(inputs, "K_term", "L")[:1]})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return one shape for the matrix and its factor."""
        return {"K_term": inputs["L"].shape, "L": inputs["K_term"].shape}


class GPRAlpha(Operator):
    """Solves `K_term α = label_mu_diff` with the Cholesky factor L.

    This is line 3 of algorithm 2.1 of Rasmussen and Williams (2006), Gaussian Processes for Machine Learning. If L is
    NaN, it solves with K_term itself, after adding the possible rounding error to the diagonal.

    Examples:
        >>> [port.name for port in GPRAlpha().inputs]
        ['label_mu_diff', 'L', 'K_term']
    """

    op = "gpr_alpha"
    category = "Classical"
    input_ports = ("label_mu_diff", "L", "K_term")
    formula = "L Lᵀ α = label_mu_diff"

    def __init__(self, name: str | None = None):
        super().__init__(name)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(n,)` or a column `(n, 1)`, and two of `(n, n)`, to the shape of the first."""
        size = _same_square(inputs, "K_term", "L")[0]
        shape = inputs["label_mu_diff"].shape
        if shape[:1] == (LEADING,):
            return Inferred({"output": shape})
        if not 1 <= len(shape) <= 2 or meet((size, 1)[: len(shape)], shape, {}) is None:
            raise MismatchError("label_mu_diff", f"({size}, 1)", f"labels and a mean of shape ({size}, 1).")
        return Inferred({"output": shape})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return the output's shape for the labels, and one shape for the matrix and its factor."""
        return {
            "label_mu_diff": outputs["output"].shape,
            "K_term": inputs["L"].shape,
            "L": inputs["K_term"].shape,
        }


class GPRVOuter(Operator):
    """Reduction of the variance of new points by the labelled points.

    `Kᵀ K_term⁻¹ K`, computed as `vᵀ v` with `L v = K` (Rasmussen and Williams, 2006, algorithm 2.1, line 5). If L is
    NaN, K_term itself is used, as in `GPRAlpha`.

    Examples:
        >>> [port.name for port in GPRVOuter().inputs]
        ['K', 'K_term', 'L']
    """

    op = "gpr_v_outer"
    category = "Classical"
    input_ports = ("K", "K_term", "L")
    formula = "y = vᵀ v, L v = K"

    def __init__(self, name: str | None = None):
        super().__init__(name)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(n, m)` and two of `(n, n)` to `(m, m)`."""
        size = _same_square(inputs, "K_term", "L")[0]
        shape = inputs["K"].shape
        if shape[:1] == (LEADING,):
            return Inferred({"output": (LEADING,)})
        if len(shape) != 2 or meet((size,), shape[:1], {}) is None:
            raise MismatchError("K", f"({size}, new points)", "the kernel of labelled points and new ones.")
        return Inferred({"output": (shape[1], shape[1])})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return one shape for the matrix and its factor."""
        return {"K_term": inputs["L"].shape, "L": inputs["K_term"].shape}


class GPRLoss(Composite):
    """Negative log marginal likelihood of the labels (eq. 2.30, algorithm 2.1).

    `½ (labels - mu)ᵀ α + Σ log L[i, i] + ½ n log 2π`; without a Cholesky factor L, by `Eigvalsh`.

    Args:
        robust: If true, the logarithm is finite at zero too; see `Log`.

    Examples:
        >>> sorted(port.name for port in GPRLoss().inputs)
        ['K_term', 'L', 'alpha', 'labels', 'mu']
    """

    category = "Classical"
    formula = "y = ½ (labels - mu)ᵀ α + Σ log diag L + ½ n log 2π"

    def __init__(self, robust: bool = False, name: str | None = None):
        super().__init__(name, robust=robust)
        self |= (difference := Subtract())(left="labels", right="mu")
        self |= (each := Multiply())(left=difference.output, right="alpha")
        self |= (fit := Sum())(input=each.output)
        self |= (roots := Eigvalsh())(K_term="K_term", L="L")
        self |= (logarithms := Log(robust))(input=roots.output)
        self |= (determinant := Sum())(input=logarithms.output)
        self |= (count := Size(dim=0))(input="labels")
        self |= (constant := Multiply())(left=count.output, right=log(2 * pi) / 2)
        self |= Add()(left=0.5 * fit.output + determinant.output, right=constant.output, output="output")


class GaussProcessRegressionCore(Composite):
    """Predicts labels and their variance from kernels of points (eq. 2.23 to 2.26 and 2.38, algorithm 2.1).

    `k` is the kernel of the n labelled points with themselves, `s` the variance of the label noise, `mu` the prior
    mean, `k_star` the kernel of the points to predict with themselves. By default, these are the labelled points. With
    `new_points`, they are other points, and `k_cross` is the kernel of the labelled points with them, `(n, m)`. `loss`
    is that of `GPRLoss`, `prediction` the mean and `confidence` the variance of each point, as a column.

    Args:
        new_points: If true, predict other points than the labelled ones. `mu` must then broadcast to both.

    Examples:
        >>> [port.name for port in GaussProcessRegressionCore().outputs]
        ['loss', 'prediction', 'confidence']
    """

    category = "Classical"
    formula = "prediction = mu + kᵀ α, confidence = diag(k_star - vᵀ v), α = (k + s I)⁻¹ (label - mu)"

    def __init__(self, new_points: bool = False, name: str | None = None):
        super().__init__(name, new_points=new_points)
        self |= (count := Size(dim=0))(input="k")
        self |= (identity := Eye())(N=count.output)
        self |= (noise := Multiply())(left=identity.output, right="s")
        self |= (term := Add())(left="k", right=noise.output)
        self |= (root := Cholesky())(input=term.output)
        self |= (difference := Subtract())(left="label", right="mu")
        self |= (alpha := GPRAlpha())(label_mu_diff=difference.output, L=root.output, K_term=term.output)
        self |= GPRLoss()(
            labels="label", mu="mu", L=root.output, K_term=term.output, alpha=alpha.output, output=IOKey("loss")
        )
        across = "k_cross" if new_points else "k"
        self |= (turned := Transpose())(input=across)
        self |= (learnt := MatrixMultiply())(left=turned.output, right=alpha.output)
        self |= Add()(left="mu", right=learnt.output, output=IOKey("prediction"))
        self |= (known := GPRVOuter())(K=across, K_term=term.output, L=root.output)
        self |= (left_open := Subtract())(left="k_star", right=known.output)
        self |= TransposedDiagonal()(input=left_open.output, output=IOKey("confidence"))


def square(inputs: Specs, port: str) -> tuple[Dim, ...]:
    """Return the shape of a square matrix.

    Raises:
        MismatchError: The shape is not a square matrix.
    """
    shape = inputs[port].shape
    if shape == (LEADING,):
        return shape
    if LEADING in shape[:1]:
        return (shape[-1], shape[-1])
    numbers = {dim for dim in shape if isinstance(dim, int)}
    if len(shape) != 2 or len(numbers) > 1:
        raise MismatchError(port, "a square matrix", "one row and one column for each point.")
    return (next(iter(numbers)),) * 2 if numbers else shape


def _same_square(inputs: Specs, one: str, other: str) -> tuple[Dim, ...]:
    """Return the common shape of two square matrices."""
    left, right = square(inputs, one), square(inputs, other)
    both = meet(left, right, {})
    if both is None:
        raise MismatchError(other, str(left), f"the Cholesky factor of {one}.")
    return both
