"""Blocks of `models/classical.py`."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from scipy import linalg, optimize, special
from scipy.spatial import distance
from sklearn import preprocessing
from sklearn.manifold import _utils as manifold

from mithril_nb.models import (
    Cholesky,
    DistanceMatrix,
    Eigvalsh,
    GPRAlpha,
    GPRVOuter,
    Model,
    NormModifier,
    PolynomialFeatures,
    TsnePJoint,
)
from tests.blocks.case import Arrays, Case, arrays, filled_shapes, shapes


def _folded(model: Model, params: Arrays, given: Arrays) -> Arrays:
    # By walking back and forth, not by a remainder.
    return {"output": np.interp(given["input"], np.arange(-47, 50, 4), [1, 5] * 12 + [1])}


def _distances(draw: st.DrawFn) -> tuple[Model, Arrays]:
    width = draw(st.integers(1, 3))
    left, right = (draw(arrays((draw(st.integers(0, 4)), width), least)) for least in (-3.0, -2.0))
    return DistanceMatrix(), {"left": left, "right": right, "norm": np.float64(draw(st.sampled_from((1.0, 1.5, 2.0))))}


def _minkowski(model: Model, params: Arrays, given: Arrays) -> Arrays:
    norm = float(given["norm"])
    return {"output": distance.cdist(given["left"], given["right"], "minkowski", p=norm) ** norm}


def _polynomial(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return PolynomialFeatures(draw(st.integers(1, 3))), {"input": draw(arrays(draw(filled_shapes), -1.5, 1.5))}


def _features(model: Model, params: Arrays, given: Arrays) -> Arrays:
    x = given["input"]
    made = preprocessing.PolynomialFeatures(model.options["degree"], include_bias=False)
    rows = made.fit_transform(x.reshape(-1, x.shape[-1]))
    return {"output": rows.reshape(*x.shape[:-1], -1)}


def _joint(draw: st.DrawFn) -> tuple[Model, Arrays]:
    points = draw(arrays((draw(st.integers(4, 8)), 3)))
    squares = distance.squareform(distance.pdist(points, "sqeuclidean"))
    return TsnePJoint(), {
        "squared_distances": squares,
        "target_perplexity": np.float64(draw(st.sampled_from((1.5, 2.5)))),
    }


def _joint_expected(model: Model, params: Arrays, given: Arrays) -> Arrays:
    """By Brent's method, beside scikit-learn, which stops at a difference of 1e-5 in the entropy."""
    squares, wanted = given["squared_distances"], float(given["target_perplexity"])
    count = len(squares)
    conditional = np.zeros((count, count))
    for row in range(count):
        others = np.arange(count) != row
        beyond = squares[row, others] - squares[row, others].min()

        def seen(exponent: float, beyond: np.ndarray = beyond) -> np.ndarray:
            return special.softmax(-np.exp(exponent) * beyond)

        found = optimize.brentq(lambda e, seen=seen: special.entr(seen(e)).sum() - np.log(wanted), -20, 20, xtol=1e-14)
        conditional[row, others] = seen(found)
    near = manifold._binary_search_perplexity(squares.astype("float32"), wanted, 0)
    np.testing.assert_allclose(conditional, near, atol=1e-3)
    return {"output": (conditional + conditional.T) / (2 * count)}


def _definite(draw: st.DrawFn, count: int) -> np.ndarray:
    root = draw(arrays((count, count), -1.0, 1.0))
    return root @ root.T + np.eye(count)


def _cholesky(draw: st.DrawFn) -> tuple[Model, Arrays]:
    count = draw(st.integers(1, 4))
    matrix = _definite(draw, count)
    batch = draw(st.sampled_from(((), (2,))))
    return Cholesky(), {"input": matrix * np.linspace(1, 2, int(np.prod(batch))).reshape(*batch, 1, 1)[..., :, :]}


def _process(draw: st.DrawFn) -> tuple[int, Arrays]:
    count = draw(st.integers(1, 4))
    matrix = _definite(draw, count)
    return count, {"K_term": matrix, "L": np.linalg.cholesky(matrix)}


def _alpha(draw: st.DrawFn) -> tuple[Model, Arrays]:
    count, given = _process(draw)
    shape = draw(st.sampled_from(((count,), (count, 1))))
    return GPRAlpha(), {**given, "label_mu_diff": draw(arrays(shape))}


def _outer(draw: st.DrawFn) -> tuple[Model, Arrays]:
    count, given = _process(draw)
    return GPRVOuter(), {**given, "K": draw(arrays((count, draw(st.integers(1, 3)))))}


CASES = [
    Case("NormModifier", lambda draw: (NormModifier(), {"input": draw(arrays(draw(shapes), -30, 30))}), _folded),
    Case("DistanceMatrix", _distances, _minkowski),
    Case("PolynomialFeatures", _polynomial, _features),
    # In float32 the entropy is known to some 1e-6 only, and the width to what that leaves.
    Case("TsnePJoint", _joint, _joint_expected, is_differentiable=False, tolerance=3e-5),
    Case("Cholesky", _cholesky, lambda _, __, given: {"output": np.linalg.cholesky(given["input"])}),
    Case(
        "Eigvalsh",
        lambda draw: (Eigvalsh(), _process(draw)[1]),
        lambda _, __, given: {"output": np.diagonal(given["L"])},
    ),
    Case(
        "GPRAlpha",
        _alpha,
        lambda _, __, given: {"output": linalg.cho_solve((given["L"], True), given["label_mu_diff"])},
    ),
    Case(
        "GPRVOuter",
        _outer,
        lambda _, __, given: {"output": given["K"].T @ linalg.cho_solve((given["L"], True), given["K"])},
    ),
]
