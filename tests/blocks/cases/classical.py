"""Blocks of `models/library/classical`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy import linalg, optimize, special, stats
from scipy.spatial import distance
from sklearn import preprocessing
from sklearn.manifold import _utils as manifold
from sklearn.metrics import pairwise

from mithril_nb.models import (
    KINDS,
    MDS,
    TSNE,
    Cholesky,
    DistanceMatrix,
    Eigvalsh,
    EncoderDistanceMatrix,
    GaussProcessRegressionCore,
    GPRAlpha,
    GPRVOuter,
    KernelizedSVM,
    MDSCore,
    PolynomialKernel,
    PolynomialRegression,
    RBFKernel,
    TSNECore,
    TsnePJoint,
)
from tests.blocks.case import Arrays, Case, Draw, Drawn, arrays, few, filled_shapes, on, shapes


def folded(input: np.ndarray) -> np.ndarray:
    # Computed by walking back and forth, not by a remainder.
    return np.interp(input, np.arange(-47, 50, 4), [1, 5] * 12 + [1])


def _distances(draw: Draw) -> Drawn:
    width = draw(st.integers(1, 3))
    left, right = (draw(arrays((draw(st.integers(0, 4)), width), least)) for least in (-3.0, -2.0))
    return DistanceMatrix(), {"left": left, "right": right, "norm": np.asarray(draw(st.sampled_from((1.0, 1.5, 2.0))))}


def _minkowski(left: np.ndarray, right: np.ndarray, norm: np.ndarray) -> np.ndarray:
    return distance.cdist(left, right, "minkowski", p=float(norm)) ** float(norm)


def _features(input: np.ndarray, degree: int) -> np.ndarray:
    features = preprocessing.PolynomialFeatures(degree, include_bias=False)
    return features.fit_transform(input.reshape(-1, input.shape[-1])).reshape(*input.shape[:-1], -1)


def _joint(draw: Draw) -> Drawn:
    points = draw(arrays((draw(st.integers(4, 8)), 3)))
    squares = distance.squareform(distance.pdist(points, "sqeuclidean"))
    return TsnePJoint(), {
        "squared_distances": squares,
        "target_perplexity": np.asarray(draw(st.sampled_from((1.5, 2.5)))),
    }


def _probabilities(squared_distances: np.ndarray, target_perplexity: Any) -> np.ndarray:
    """Solve by Brent's method, because scikit-learn stops at an entropy difference of 1e-5."""
    squares, perplexity = squared_distances, float(target_perplexity)
    count = len(squares)
    conditional = np.zeros((count, count))
    for row in range(count):
        others = np.arange(count) != row
        beyond = squares[row, others] - squares[row, others].min()

        def seen(exponent: float, beyond: np.ndarray = beyond) -> np.ndarray:
            return special.softmax(-np.exp(exponent) * beyond)

        root = optimize.brentq(
            lambda e, seen=seen: special.entr(seen(e)).sum() - np.log(perplexity), -20, 20, xtol=1e-14
        )
        conditional[row, others] = seen(root)
    near = manifold._binary_search_perplexity(squares.astype("float32"), perplexity, 0)
    np.testing.assert_allclose(conditional, near, atol=1e-3)
    return (conditional + conditional.T) / (2 * count)


def _definite(draw: Draw, count: int) -> np.ndarray:
    root = draw(arrays((count, count), -1.0, 1.0))
    return root @ root.T + np.eye(count)


def _cholesky(draw: Draw) -> Drawn:
    count = draw(few)
    matrix = _definite(draw, count)
    batch = draw(st.sampled_from(((), (2,))))
    return Cholesky(), {"input": matrix * np.linspace(1, 2, int(np.prod(batch))).reshape(*batch, 1, 1)[..., :, :]}


def _process(draw: Draw) -> tuple[int, Arrays]:
    count = draw(few)
    matrix = _definite(draw, count)
    return count, {"K_term": matrix, "L": np.linalg.cholesky(matrix)}


def _alpha(draw: Draw) -> Drawn:
    count, given = _process(draw)
    shape = draw(st.sampled_from(((count,), (count, 1))))
    return GPRAlpha(), {**given, "label_mu_diff": draw(arrays(shape))}


def _outer(draw: Draw) -> Drawn:
    count, given = _process(draw)
    return GPRVOuter(), {**given, "K": draw(arrays((count, draw(st.integers(1, 3)))))}


def _rows(draw: Draw, width: int, least: float = -2.0) -> np.ndarray:
    return draw(arrays((draw(few), width), least, 2.0))


def _sets(draw: Draw) -> Arrays:
    width = draw(st.integers(1, 3))
    return {"input1": _rows(draw, width), "input2": _rows(draw, width, -1.5)}


def _number(draw: Draw, *choices: float) -> np.ndarray:
    return np.asarray(draw(st.sampled_from(choices)))


def _rbf(draw: Draw) -> Drawn:
    return RBFKernel(), {**_sets(draw), "l_scale": _number(draw, 0.7, 2.0), "sigma": _number(draw, 0.5, 1.5)}


def _rbf_kernel(input1: np.ndarray, input2: np.ndarray, l_scale: Any, sigma: Any) -> np.ndarray:
    return sigma**2 * pairwise.rbf_kernel(input1, input2, 0.5 / float(l_scale) ** 2)


def _polynomial_kernel(draw: Draw) -> Drawn:
    block = PolynomialKernel(draw(st.booleans()))
    return block, {**_sets(draw), "poly_coef": _number(draw, 0.5, 1.0), "degree": _number(draw, 1.0, 2.0, 3.0)}


def _linear(kind: str) -> Callable[[Draw], Drawn]:
    return lambda draw: (KINDS[kind](), {"input": _rows(draw, draw(st.integers(1, 3)))})


def _affine(rows: np.ndarray, params: Arrays) -> np.ndarray:
    return rows @ params["weight"] + params["bias"]


def _regression(draw: Draw) -> Drawn:
    block = PolynomialRegression(draw(st.integers(1, 3)), draw(st.sampled_from((None, 2))))
    return block, {"input": _rows(draw, draw(st.integers(1, 2)))}


def _encoded(draw: Draw) -> Drawn:
    return EncoderDistanceMatrix(draw(st.booleans())), {**_sets(draw), "norm": _number(draw, 1.5, 2.0, 8.0)}


def _encoded_distances(
    input1: np.ndarray, input2: np.ndarray, norm: np.ndarray, get_final_distance: bool
) -> np.ndarray:
    p = float(folded(norm))
    distances = distance.cdist(input1, input2, "minkowski", p=p)
    return distances if get_final_distance else distances**p


def _square(draw: Draw, count: int, least: float) -> np.ndarray:
    return _between(draw(arrays((count, 3), least, 2.0)))


def _stress(draw: Draw) -> Drawn:
    count = draw(st.integers(2, 4))
    given = {"distances": _square(draw, count, -2.0), "pred_distances": _square(draw, count, -1.0)}
    return MDSCore(draw(st.booleans())), {**given, "norm": _number(draw, 1.5, 2.0)}


def _relative_error(distances: np.ndarray, pred_distances: np.ndarray, norm: np.ndarray, exact_distances: bool) -> Any:
    true, near = (one if exact_distances else one ** (1 / norm) for one in (distances, pred_distances))
    return np.linalg.norm((true - near).ravel(), float(norm)) / np.linalg.norm(true.ravel(), float(norm))


def _neighbours(draw: Draw) -> Drawn:
    count, calculates = draw(st.integers(4, 7)), draw(st.booleans())
    block = TSNECore(draw(st.booleans()), calculates, 2.0)
    given = {"pred_distances": _square(draw, count, -1.0)}
    if calculates:
        return block, {**given, "distances": _square(draw, count, -2.0)}
    joint = _square(draw, count, -2.0)
    return block, {**given, "p_joint": joint / joint.sum()}


def _divergence(inputs: Arrays, exact_distances: bool) -> Any:
    power = 2 if exact_distances else 1
    joint = inputs.get("p_joint")
    joint = _probabilities(inputs["distances"] ** power, 2.0) if joint is None else joint
    near = 1 / (1 + inputs["pred_distances"] ** power)
    np.fill_diagonal(near, 0)
    return special.rel_entr(joint, near / near.sum() + np.eye(len(near)) * 1e-300).sum()


def _scaled(draw: Draw) -> Drawn:
    input_type = draw(st.sampled_from(("distances", "powers", "points")))
    count = draw(st.integers(2, 4))
    given = draw(arrays((count, 3))) if input_type == "points" else _square(draw, count, -2.0)
    return MDS(2, input_type), {"input": given, "norm": np.asarray(2.0)}


def _between(points: np.ndarray) -> np.ndarray:
    return distance.squareform(distance.pdist(points))


def _scaled_error(input: np.ndarray, input_type: str, coords: np.ndarray) -> dict[str, Any]:
    true = {"distances": np.positive, "powers": np.sqrt, "points": _between}[input_type](input)
    error = np.linalg.norm(true - _between(coords)) / np.linalg.norm(true)
    return {"output": error, "predicted_coords": coords}


def _embedded(draw: Draw) -> Drawn:
    block = TSNE(2, perplexity=2.0, calculate_p_joint=True)
    return block, {"input": _square(draw, draw(st.integers(4, 6)), -2.0), "norm": np.asarray(2.0)}


def _embedded_divergence(input: np.ndarray, coords: np.ndarray) -> dict[str, Any]:
    inputs = {"distances": input, "pred_distances": _between(coords)}
    return {"output": _divergence(inputs, True), "predicted_coords": coords}


def _gaussian(draw: Draw) -> Drawn:
    new = draw(st.booleans())
    x, others = draw(arrays((draw(few), 2))), draw(arrays((draw(st.integers(1, 3)), 2), -2.0, 2.5))
    given = {
        "label": draw(arrays((len(x), 1))),
        "mu": np.asarray(0.3),
        "s": np.asarray(0.1),
        "k": pairwise.rbf_kernel(x, x, 0.5),
        "k_star": pairwise.rbf_kernel(others, others, 0.5) if new else pairwise.rbf_kernel(x, x, 0.5),
    }
    return GaussProcessRegressionCore(new), {
        **given,
        **({"k_cross": pairwise.rbf_kernel(x, others, 0.5)} if new else {}),
    }


def _posterior(inputs: Arrays, k: np.ndarray, s: Any, label: np.ndarray, mu: Any, k_star: np.ndarray) -> dict[str, Any]:
    count, across = len(k), inputs.get("k_cross", k)
    term = k + float(s) * np.eye(count)
    loss = -stats.multivariate_normal(np.full(count, float(mu)), term).logpdf(label[:, 0])
    inverse = np.linalg.inv(term)
    confidence = np.diagonal(k_star - across.T @ inverse @ across)
    prediction = mu + across.T @ inverse @ (label - mu)
    return {"loss": loss, "prediction": prediction, "confidence": confidence[:, None]}


CASES = [
    Case("NormModifier", on("NormModifier", shapes, -30, 30), folded),
    Case("DistanceMatrix", _distances, _minkowski),
    Case("PolynomialFeatures", on("PolynomialFeatures", filled_shapes, -1.5, 1.5, degree=(1, 2, 3)), _features),
    # In float32 the entropy is accurate to about 1e-6, which limits the accuracy of the width.
    Case("TsnePJoint", _joint, _probabilities, is_differentiable=False, tolerance=3e-5),
    Case("Cholesky", _cholesky, np.linalg.cholesky),
    Case("Eigvalsh", lambda draw: (Eigvalsh(), _process(draw)[1]), lambda L: np.diagonal(L)),
    Case("GPRAlpha", _alpha, lambda L, label_mu_diff: linalg.cho_solve((L, True), label_mu_diff)),
    Case("GPRVOuter", _outer, lambda K, L: K.T @ linalg.cho_solve((L, True), K)),
    Case("RBFKernel", _rbf, _rbf_kernel),
    Case(
        "PolynomialKernel",
        _polynomial_kernel,
        lambda input1, input2, poly_coef, degree: pairwise.polynomial_kernel(
            input1, input2, float(degree), 1.0, float(poly_coef)
        ),
    ),
    Case(
        "KernelizedSVM",
        lambda draw: (KernelizedSVM(RBFKernel()), _rbf(draw)[1]),
        lambda params, inputs: _affine(_rbf_kernel(**inputs), params),
    ),
    Case("LinearSVM", _linear("LinearSVM"), lambda params, input: _affine(input, params)),
    Case(
        "LogisticRegression",
        _linear("LogisticRegression"),
        lambda params, input: {"probs_output": special.expit(_affine(input, params))},
    ),
    Case(
        "PolynomialRegression",
        _regression,
        lambda params, input, degree: _affine(_features(input, degree), params),
    ),
    Case("EncoderDistanceMatrix", _encoded, _encoded_distances),
    # A root of zero on the diagonal has only a one-sided slope: see test_classical.py.
    Case("MDSCore", _stress, _relative_error, is_differentiable=False),
    # The output of TsnePJoint is data: finite differences would see it change.
    Case("TSNECore", _neighbours, _divergence, is_differentiable=False, tolerance=3e-5),
    Case("MDS", _scaled, _scaled_error, is_differentiable=False),
    Case("TSNE", _embedded, _embedded_divergence, is_differentiable=False, tolerance=3e-5),
    Case("GaussProcessRegressionCore", _gaussian, _posterior, tolerance=1e-4),
]
