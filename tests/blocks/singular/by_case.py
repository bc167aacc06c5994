"""Kinds that are compared at special values through their case in `tests/blocks/cases`, and reasons for exceptions."""

from __future__ import annotations

import numpy as np

from mithril_nb.models import KINDS, Model
from mithril_nb.models.composite import Composite
from tests.blocks.case import Arrays, Case, all_cases, examples

SPECIAL = np.array([0.0, np.inf, 1.0, -np.inf, np.nan, -0.0, 1e30])
FINITE = np.array([0.0, 1.0, 1.0, -0.0, 2.0, -1.0, 1e4])
"""Zeros, ties and a large number."""

FINITE_ONLY = {
    "AUC": "scikit-learn refuses NaN",
    "AUCCore": "a score of NaN makes the whole curve NaN; NumPy sorts it last",
    "Embedding": "the reference multiplies by one-hot rows, which spreads NaN",
    "Eigvalsh": "LAPACK returns NaN where NumPy's sorting returns part of the diagonal",
    "MeanSquaredError": "scikit-learn refuses NaN",
    "PolynomialFeatures": "scikit-learn refuses NaN",
    "PolynomialRegression": "scikit-learn refuses NaN",
    "R2": "scikit-learn refuses NaN",
    "RotaryEmbedding": "the reference multiplies complex numbers, which makes more items NaN",
    "ScaledDotProduct": "an infinite query gives scores of ∞, of which no softmax exists",
    "TSNECore": "the reference seeks a root, which NaN does not have",
    "TopKHits": "a score of NaN counts as higher than the true one; NumPy sorts it last",
}
"""Kinds whose reference has no value at infinities and NaN."""

NOT_COMPARED = {
    "Cond": "runs blocks that are compared",
    "Scan": "runs blocks that are compared",
    "Repeat": "runs blocks that are compared",
    "Coordinates": "returns a parameter unchanged",
    "DistanceEncoder": "is what MDS and TSNE, which are compared, are made of",
    "GPRLoss": "is made of Log, Sum and MatrixMultiply, which are compared",
    "GaussProcessRegressionCore": "is made of GPRAlpha and GPRVOuter, which are compared",
    "KernelizedSVM": "is made of a kernel and Linear, which are compared",
    "MultiHeadAttention": "is made of Linear and ScaledDotProduct, which are compared",
    "TSNE": "is made of TSNECore and EncoderDistanceMatrix, which are compared",
    "TopKAccuracy": "is made of TopKHits, which is compared; scikit-learn breaks ties the other way",
    "RandInt": "draws random numbers",
    "Randn": "draws random numbers",
    "PrimitiveRandInt": "draws random numbers",
    "PrimitiveRandn": "draws random numbers",
}
"""Kinds without a comparison, and why."""


def is_network(kind: str) -> bool:
    """Return whether a kind only composes blocks from lower rooms than `networks`, which are compared separately."""
    return issubclass(KINDS[kind], Composite) and ".library.networks." in KINDS[kind].__module__


def compared_by_case(kinds: set[str]) -> dict[str, tuple[Case, Model, Arrays]]:
    """Return the cases of some kinds, each with a block and inputs of shapes that have several items."""
    return {
        case.name: (case, *examples(case)[0])
        for case in all_cases()
        if case.name.split(",")[0] in kinds and case.reference is not None
    }


def filled(inputs: Arrays, values: np.ndarray) -> Arrays:
    """Return inputs of the same shapes with these values in turn for the float items."""
    return {
        port: np.resize(values, array.shape) if array.dtype.kind == "f" else array for port, array in inputs.items()
    }
