"""Regressions, support vector machines and Gaussian processes, and their kernels.

References to Rasmussen and Williams (2006) are to chapter 2 of Gaussian Processes for Machine Learning.
"""

from __future__ import annotations

from math import comb, factorial, log, pi
from typing import Annotated

from mithril_nb.errors import UnknownOptionError
from mithril_nb.models.composite import Composite
from mithril_nb.models.connection import IOKey
from mithril_nb.models.library.classical.operators import Cholesky, Eigvalsh, GPRAlpha, GPRVOuter
from mithril_nb.models.library.layers import Linear
from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.library.operations import (
    Add,
    CartesianDifference,
    Divide,
    Exponential,
    Eye,
    Log,
    MatrixMultiply,
    Multiply,
    Power,
    Sigmoid,
    Sign,
    Square,
    Subtract,
    Sum,
    Transpose,
    TransposedDiagonal,
)
from mithril_nb.models.library.operations import Size as SizeOf
from mithril_nb.models.library.operations.reshaping import last_axis
from mithril_nb.models.model import Model
from mithril_nb.models.op import UNKNOWN_SHAPE, Operator, Range

__all__ = [
    "GPRLoss",
    "GaussProcessRegressionCore",
    "KernelizedSVM",
    "LinearSVM",
    "LogisticRegression",
    "PolynomialFeatures",
    "PolynomialKernel",
    "PolynomialRegression",
    "RBFKernel",
]


class PolynomialFeatures(Operator):
    """All products of 1 to `degree` items of the last axis, ordered by the number of factors.

    For two items a and b and degree 2, the products are a, b, a², a b and b². The order is that of scikit-learn.

    Args:
        degree: Maximum number of factors.
    """

    degree: Annotated[int, Range(1, 16, sample=2)] = 2

    op = "polynomial_features"
    category = "Classical"
    option_ports = ("degree",)
    formula = "y = all of Π x[k]^e[k], 1 ≤ Σ e ≤ degree"

    @classmethod
    def infer(cls, options, inputs):
        """Map `(*lead, d)` to `(*lead, C(d + degree, degree) - 1)`."""
        (lead, width), degree = last_axis(inputs), options["degree"]
        if width is None or not isinstance(degree, int):
            return UNKNOWN_SHAPE
        # The number of monomials of degree 1 to n in d variables; the constant is the bias of the `Linear`.
        if isinstance(width, int):
            return (*lead, comb(width + degree, degree) - 1)
        # The binomial coefficient as an expression of the name, which becomes a number with the first input.
        steps = "*".join(f"({width}+{step})" for step in range(1, degree + 1))
        return (*lead, f"{steps}//{factorial(degree)}-1")


class PolynomialRegression(Composite):
    """Polynomial of the items of the last axis: `PolynomialFeatures`, then `Linear` with the learned coefficients.

    Args:
        degree: Degree of the polynomial.
        dimension: Size of the last axis of the output; by default 1.

    Examples:
        >>> [node.name for node in PolynomialRegression(3).graph.nodes]
        ['polynomial_features_0', 'linear_0']
    """

    degree: Annotated[int, Range(1, 16, sample=2)]
    dimension: Size | None = None

    category = "Classical"
    formula = "y = PolynomialFeatures(x) W + b"

    def compose(self):
        self |= (features := PolynomialFeatures(self.degree))(input="input")
        # Mithril's names of the parameters, without the name of the block.
        self |= Linear(self.dimension or 1)(input=features.output, weight="weight", bias="bias", output="output")


class LogisticRegression(Composite):
    """Logistic regression (Cox, 1958).

    `output` is the logit: pass it to the loss `BinaryCrossEntropy()`. `probs_output` is the probability of the positive
    class.

    Examples:
        >>> [port.name for port in LogisticRegression().outputs]
        ['output', 'probs_output']
    """

    category = "Classical"
    formula = "output = x w + b, probs_output = sigmoid(output)"

    def compose(self):
        # Exposed: the sigmoid reads it, so it would be no output otherwise.
        output = IOKey("output", expose=True)
        self |= (linear := Linear(1))(input="input", weight="weight", bias="bias", output=output)
        self |= Sigmoid()(input=linear.output, output="probs_output")


class LinearSVM(Composite):
    """Linear support vector machine: separates classes -1 and 1 by a plane (Cortes and Vapnik, 1995).

    `output` is the score: pass it to the loss `HingeLoss()`, and pass `weight` to the regularizer `L2()`.
    `decision_output` is the sign of the score.

    Examples:
        >>> [port.name for port in LinearSVM().outputs]
        ['output', 'decision_output']
    """

    category = "Classical"
    formula = "output = x w + b, decision_output = sign(output)"

    def compose(self):
        output = IOKey("output", expose=True)
        self |= (linear := Linear(1))(input="input", weight="weight", bias="bias", output=output)
        self |= Sign()(input=linear.output, output="decision_output")


class RBFKernel(Composite):
    """Squared exponential kernel: the similarity of points (Rasmussen and Williams, 2006, eq. 2.31).

    The output contains the similarity of each point of `input1` to each point of `input2`. It is at most `sigma²`, and
    decreases with the distance of the points. `l_scale` is the length scale of the decrease.

    Examples:
        >>> sorted(port.name for port in RBFKernel().inputs)
        ['input1', 'input2', 'l_scale', 'sigma']
    """

    category = "Classical"
    formula = "y[i, j] = sigma² exp(-|input1[i] - input2[j]|² / (2 l_scale²))"

    def compose(self):
        # Differences and not |a|² - 2 a·b + |b|², which cancels for near points and can be negative.
        self |= (difference := CartesianDifference())(left="input1", right="input2")
        self |= (squares := Square())(input=difference.output)
        self |= (distance := Sum(axis=-1))(input=squares.output)
        self |= (scale := Square())(input="l_scale")
        self |= (exponent := Divide())(numerator=distance.output, denominator=-2.0 * scale.output)
        self |= (nearness := Exponential())(input=exponent.output)
        self |= (variance := Square())(input="sigma")
        self |= Multiply()(left=nearness.output, right=variance.output, output="output")


class PolynomialKernel(Composite):
    """Polynomial kernel: the dot product of points plus `poly_coef`, to the power of `degree`.

    Reference: Schölkopf and Smola (2002), eq. 2.30.

    Args:
        robust: If true, gradients are finite also where the base of the power is zero; see `Power`.

    Examples:
        >>> sorted(port.name for port in PolynomialKernel().inputs)
        ['degree', 'input1', 'input2', 'poly_coef']
    """

    robust: bool = True

    category = "Classical"
    formula = "y[i, j] = (input1[i] · input2[j] + poly_coef) ^ degree"

    def compose(self):
        self |= (turned := Transpose())(input="input2")
        self |= (products := MatrixMultiply())(left="input1", right=turned.output)
        self |= (shifted := Add())(left=products.output, right="poly_coef")
        self |= Power(self.robust)(base=shifted.output, exponent="degree", output="output")


class KernelizedSVM(Composite):
    """Support vector machine: separates two classes by a plane in the space of a kernel (Boser et al., 1992).

    `input1` contains the points to classify, and `input2` the support points. Each support point has a learned weight.
    Pass `output` to the loss `HingeLoss()`, and pass `weight` to the regularizer `QuadraticFormRegularizer()`.

    Args:
        kernel: A block that reads two sets of points, such as `RBFKernel()`. They are its inputs `input1` and `input2`,
            or its first two inputs if these names are missing. Its other inputs become inputs of this block.

    Raises:
        UnknownOptionError: `kernel` is not a block with two inputs and an output.

    Examples:
        >>> sorted(port.name for port in KernelizedSVM(RBFKernel()).inputs)
        ['bias', 'input1', 'input2', 'l_scale', 'sigma', 'weight']
    """

    category = ""
    formula = "y = kernel(input1, input2) w + b"

    def __init__(self, kernel: Model, name: str | None = None):
        # A kernel need not call its inputs input1 and input2, as with `MatrixMultiply`.
        takes = [port.name for port in kernel.inputs if port.role == "data"] if isinstance(kernel, Model) else []
        named = ["input1", "input2"] if {"input1", "input2"} <= set(takes) else takes[:2]
        if len(named) < 2 or not kernel.outputs:
            raise UnknownOptionError(
                f"KernelizedSVM cannot take kernel={kernel!r}.",
                (("needs", "a block with two inputs and an output"),),
                "KernelizedSVM(RBFKernel())",
            )
        super().__init__(name)
        feeds = {port: port for port in takes} | dict(zip(named, ("input1", "input2"), strict=True))
        self |= kernel(**feeds)
        products = getattr(kernel, kernel.outputs[0].name)
        self |= Linear(1)(input=products, weight="weight", bias="bias", output="output")


class GPRLoss(Composite):
    """Negative log marginal likelihood of the labels (Rasmussen and Williams, 2006, eq. 2.30, algorithm 2.1).

    The input `K_term` is the kernel of the points plus the noise, `L` its Cholesky factor, `mu` the prior mean of the
    labels, and `alpha` the result of `GPRAlpha`. If `L` is NaN, the loss uses the eigenvalues of `K_term`, see
    `Eigvalsh`.

    Args:
        robust: If true, the logarithm is finite at zero too; see `Log`.

    Examples:
        >>> sorted(port.name for port in GPRLoss().inputs)
        ['K_term', 'L', 'alpha', 'labels', 'mu']
    """

    robust: bool = False

    category = "Classical"
    formula = "y = ½ (labels - mu)ᵀ α + Σ log diag L + ½ n log 2π"

    def compose(self):
        self |= (difference := Subtract())(left="labels", right="mu")
        self |= (each := Multiply())(left=difference.output, right="alpha")
        self |= (fit := Sum())(input=each.output)
        # Half the log-determinant is the sum of the logarithms of the factor's diagonal.
        self |= (roots := Eigvalsh())(K_term="K_term", L="L")
        self |= (logarithms := Log(self.robust))(input=roots.output)
        self |= (determinant := Sum())(input=logarithms.output)
        # A static value: the constant is folded while shapes are inferred.
        self |= (count := SizeOf(dim=0))(input="labels")
        self |= (constant := Multiply())(left=count.output, right=log(2 * pi) / 2)
        self |= Add()(left=0.5 * fit.output + determinant.output, right=constant.output, output="output")


class GaussProcessRegressionCore(Composite):
    """Gaussian process regression: predicts the labels of m points and their variance, from n labelled points.

    The equations are 2.23 to 2.26 and 2.38, and algorithm 2.1, of Rasmussen and Williams (2006).

    | input | contents |
    |---|---|
    | `label` | the labels, `(n, 1)` |
    | `k` | the kernel of the labelled points, `(n, n)` |
    | `s` | the variance of the label noise |
    | `mu` | the prior mean, a number or `(n, 1)` |
    | `k_star` | the kernel of the points to predict, `(m, m)` |
    | `k_cross` | with `new_points`, the kernel of labelled points and points to predict, `(n, m)` |

    The output `loss` is the result of `GPRLoss`. The outputs `prediction` and `confidence` are the predicted means and
    variances, `(m, 1)`.

    Args:
        new_points: If false, the points to predict are the labelled points. If true, they are other points. `mu` must
            then broadcast to both sets of points, as a number does.

    Examples:
        >>> [port.name for port in GaussProcessRegressionCore().outputs]
        ['loss', 'prediction', 'confidence']
    """

    new_points: bool = False

    category = "Classical"
    formula = "prediction = mu + kᵀ α, confidence = diag(k_star - vᵀ v), α = (k + s I)⁻¹ (label - mu)"

    def compose(self):
        self |= (count := SizeOf(dim=0))(input="k")
        self |= (identity := Eye())(N=count.output)
        self |= (noise := Multiply())(left=identity.output, right="s")
        # The noise is on the diagonal, which also makes the matrix positive definite.
        self |= (term := Add())(left="k", right=noise.output)
        self |= (root := Cholesky())(input=term.output)
        self |= (difference := Subtract())(left="label", right="mu")
        self |= (alpha := GPRAlpha())(label_mu_diff=difference.output, L=root.output, K_term=term.output)
        self |= GPRLoss()(
            labels="label", mu="mu", L=root.output, K_term=term.output, alpha=alpha.output, output=IOKey("loss")
        )
        # For the labelled points themselves, the cross kernel is k.
        across = "k_cross" if self.new_points else "k"
        self |= (turned := Transpose())(input=across)
        self |= (learnt := MatrixMultiply())(left=turned.output, right=alpha.output)
        self |= Add()(left="mu", right=learnt.output, output=IOKey("prediction"))
        self |= (explained := GPRVOuter())(K=across, K_term=term.output, L=root.output)
        self |= (left_open := Subtract())(left="k_star", right=explained.output)
        self |= TransposedDiagonal()(input=left_open.output, output=IOKey("confidence"))
