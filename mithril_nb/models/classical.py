"""Classical machine learning: a family in three modules."""

from __future__ import annotations

from mithril_nb.models.embeddings import (
    MDS,
    TSNE,
    Coordinates,
    DistanceEncoder,
    DistanceMatrix,
    EncoderDistanceMatrix,
    MDSCore,
    NormModifier,
    TSNECore,
    TsnePJoint,
)
from mithril_nb.models.gaussian_processes import (
    Cholesky,
    Eigvalsh,
    GaussProcessRegressionCore,
    GPRAlpha,
    GPRLoss,
    GPRVOuter,
)
from mithril_nb.models.kernel_machines import (
    KernelizedSVM,
    LinearSVM,
    LogisticRegression,
    PolynomialFeatures,
    PolynomialKernel,
    PolynomialRegression,
    RBFKernel,
)

__all__ = [
    "MDS", "TSNE", "Cholesky", "Coordinates", "DistanceEncoder", "DistanceMatrix", "Eigvalsh", "EncoderDistanceMatrix",
    "GPRAlpha", "GPRLoss", "GPRVOuter", "GaussProcessRegressionCore", "KernelizedSVM", "LinearSVM",
    "LogisticRegression", "MDSCore", "NormModifier", "PolynomialFeatures", "PolynomialKernel", "PolynomialRegression",
    "RBFKernel", "TSNECore", "TsnePJoint",
]  # fmt: skip
