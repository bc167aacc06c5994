"""Blocks of `models/library/classical`."""

from __future__ import annotations

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
    Model,
    NormModifier,
    PolynomialFeatures,
    PolynomialKernel,
    PolynomialRegression,
    RBFKernel,
    TSNECore,
    TsnePJoint,
)
from tests.blocks.case import Arrays, Case, arrays, filled_shapes, shapes


def _folded(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    # Computed by walking back and forth, not by a remainder.
    return {"output": np.interp(given["input"], np.arange(-47, 50, 4), [1, 5] * 12 + [1])}


def _distances(draw: st.DrawFn) -> tuple[Model, Arrays]:
    width = draw(st.integers(1, 3))
    left, right = (draw(arrays((draw(st.integers(0, 4)), width), least)) for least in (-3.0, -2.0))
    return DistanceMatrix(), {"left": left, "right": right, "norm": np.asarray(draw(st.sampled_from((1.0, 1.5, 2.0))))}


def _minkowski(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    norm = float(given["norm"])
    return {"output": distance.cdist(given["left"], given["right"], "minkowski", p=norm) ** norm}


def _polynomial(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return PolynomialFeatures(draw(st.integers(1, 3))), {"input": draw(arrays(draw(filled_shapes), -1.5, 1.5))}


def _features(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    x = given["input"]
    made = preprocessing.PolynomialFeatures(model.options["degree"], include_bias=False)
    rows = made.fit_transform(x.reshape(-1, x.shape[-1]))
    return {"output": rows.reshape(*x.shape[:-1], -1)}


def _joint(draw: st.DrawFn) -> tuple[Model, Arrays]:
    points = draw(arrays((draw(st.integers(4, 8)), 3)))
    squares = distance.squareform(distance.pdist(points, "sqeuclidean"))
    return TsnePJoint(), {
        "squared_distances": squares,
        "target_perplexity": np.asarray(draw(st.sampled_from((1.5, 2.5)))),
    }


def _joint_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    """Solve by Brent's method, because scikit-learn stops at an entropy difference of 1e-5."""
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


def _rows(draw: st.DrawFn, width: int, least: float = -2.0) -> np.ndarray:
    return draw(arrays((draw(st.integers(1, 4)), width), least, 2.0))


def _sets(draw: st.DrawFn) -> Arrays:
    width = draw(st.integers(1, 3))
    return {"input1": _rows(draw, width), "input2": _rows(draw, width, -1.5)}


def _number(draw: st.DrawFn, *choices: float) -> np.ndarray:
    return np.asarray(draw(st.sampled_from(choices)))


def _rbf(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return RBFKernel(), {**_sets(draw), "l_scale": _number(draw, 0.7, 2.0), "sigma": _number(draw, 0.5, 1.5)}


def _rbf_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    made = pairwise.rbf_kernel(given["input1"], given["input2"], 0.5 / float(given["l_scale"]) ** 2)
    return {"output": given["sigma"] ** 2 * made}


def _polynomial_kernel(draw: st.DrawFn) -> tuple[Model, Arrays]:
    block = PolynomialKernel(draw(st.booleans()))
    return block, {**_sets(draw), "poly_coef": _number(draw, 0.5, 1.0), "degree": _number(draw, 1.0, 2.0, 3.0)}


def _polynomial_kernel_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    degree, shift = float(given["degree"]), float(given["poly_coef"])
    return {"output": pairwise.polynomial_kernel(given["input1"], given["input2"], degree, 1.0, shift)}


def _svm(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return KernelizedSVM(RBFKernel()), _rbf(draw)[1]


def _svm_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    kernel = _rbf_expected(model, params, given)["output"]
    return {"output": kernel @ params["weight"] + params["bias"]}


def _linear(kind: str):
    return lambda draw: (KINDS[kind](), {"input": _rows(draw, draw(st.integers(1, 3)))})


def _regression(draw: st.DrawFn) -> tuple[Model, Arrays]:
    block = PolynomialRegression(draw(st.integers(1, 3)), draw(st.sampled_from((None, 2))))
    return block, {"input": _rows(draw, draw(st.integers(1, 2)))}


def _regression_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    return {"output": _features(model, params, given)["output"] @ params["weight"] + params["bias"]}


def _encoded(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return EncoderDistanceMatrix(draw(st.booleans())), {**_sets(draw), "norm": _number(draw, 1.5, 2.0, 8.0)}


def _encoded_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    norm = float(_folded(model, params, {"input": given["norm"]})["output"])
    found = distance.cdist(given["input1"], given["input2"], "minkowski", p=norm)
    return {"output": found if model.options["get_final_distance"] else found**norm}


def _square(draw: st.DrawFn, count: int, least: float) -> np.ndarray:
    return distance.squareform(distance.pdist(draw(arrays((count, 3), least, 2.0))))


def _stress(draw: st.DrawFn) -> tuple[Model, Arrays]:
    count = draw(st.integers(2, 4))
    given = {"distances": _square(draw, count, -2.0), "pred_distances": _square(draw, count, -1.0)}
    return MDSCore(draw(st.booleans())), {**given, "norm": _number(draw, 1.5, 2.0)}


def _stress_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    norm = float(given["norm"])
    wanted, found = given["distances"], given["pred_distances"]
    if not model.options["exact_distances"]:
        wanted, found = wanted ** (1 / norm), found ** (1 / norm)
    return {"output": np.linalg.norm((wanted - found).ravel(), norm) / np.linalg.norm(wanted.ravel(), norm)}


def _neighbours(draw: st.DrawFn) -> tuple[Model, Arrays]:
    count, calculates = draw(st.integers(4, 7)), draw(st.booleans())
    block = TSNECore(draw(st.booleans()), calculates, 2.0)
    given = {"pred_distances": _square(draw, count, -1.0)}
    if calculates:
        return block, {**given, "distances": _square(draw, count, -2.0)}
    joint = _square(draw, count, -2.0)
    return block, {**given, "p_joint": joint / joint.sum()}


def _neighbours_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    power = 2 if model.options["exact_distances"] else 1
    joint = given.get("p_joint")
    if joint is None:
        squares = {"squared_distances": given["distances"] ** power, "target_perplexity": np.asarray(2.0)}
        joint = _joint_expected(model, params, squares)["output"]
    near = 1 / (1 + given["pred_distances"] ** power)
    np.fill_diagonal(near, 0)
    return {"output": special.rel_entr(joint, near / near.sum() + np.eye(len(near)) * 1e-300).sum()}


def _scaled(draw: st.DrawFn) -> tuple[Model, Arrays]:
    input_type = draw(st.sampled_from(("distances", "powers", "points")))
    count = draw(st.integers(2, 4))
    given = draw(arrays((count, 3))) if input_type == "points" else _square(draw, count, -2.0)
    return MDS(2, input_type), {"input": given, "norm": np.asarray(2.0)}


def _scaled_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    wanted = given["input"]
    if model.options["input_type"] == "powers":
        wanted = np.sqrt(wanted)
    elif model.options["input_type"] == "points":
        wanted = distance.squareform(distance.pdist(wanted))
    error = wanted - distance.squareform(distance.pdist(params["coords"]))
    return {"output": np.linalg.norm(error) / np.linalg.norm(wanted), "predicted_coords": params["coords"]}


def _embedded(draw: st.DrawFn) -> tuple[Model, Arrays]:
    block = TSNE(2, perplexity=2.0, calculate_p_joint=True)
    return block, {"input": _square(draw, draw(st.integers(4, 6)), -2.0), "norm": np.asarray(2.0)}


def _embedded_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    found = distance.squareform(distance.pdist(params["coords"]))
    core = _neighbours_expected(
        TSNECore(True, True, 2.0), params, {"distances": given["input"], "pred_distances": found}
    )
    return {**core, "predicted_coords": params["coords"]}


def _gaussian(draw: st.DrawFn) -> tuple[Model, Arrays]:
    new = draw(st.booleans())
    x, others = draw(arrays((draw(st.integers(1, 4)), 2))), draw(arrays((draw(st.integers(1, 3)), 2), -2.0, 2.5))
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


def _gaussian_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    count, across = len(given["k"]), given.get("k_cross", given["k"])
    term = given["k"] + float(given["s"]) * np.eye(count)
    label = given["label"][:, 0]
    loss = -stats.multivariate_normal(np.full(count, float(given["mu"])), term).logpdf(label)
    inverse = np.linalg.inv(term)
    left = np.diagonal(given["k_star"] - across.T @ inverse @ across)
    prediction = given["mu"] + across.T @ inverse @ (given["label"] - given["mu"])
    return {"loss": loss, "prediction": prediction, "confidence": left[:, None]}


CASES = [
    Case("NormModifier", lambda draw: (NormModifier(), {"input": draw(arrays(draw(shapes), -30, 30))}), _folded),
    Case("DistanceMatrix", _distances, _minkowski),
    Case("PolynomialFeatures", _polynomial, _features),
    # In float32 the entropy is accurate to about 1e-6, which limits the accuracy of the width.
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
    Case("RBFKernel", _rbf, _rbf_expected),
    Case("PolynomialKernel", _polynomial_kernel, _polynomial_kernel_expected),
    Case("KernelizedSVM", _svm, _svm_expected),
    Case(
        "LinearSVM",
        _linear("LinearSVM"),
        lambda _, params, given: {"output": given["input"] @ params["weight"] + params["bias"]},
    ),
    Case(
        "LogisticRegression",
        _linear("LogisticRegression"),
        lambda _, params, given: {"probs_output": special.expit(given["input"] @ params["weight"] + params["bias"])},
    ),
    Case("PolynomialRegression", _regression, _regression_expected),
    Case("EncoderDistanceMatrix", _encoded, _encoded_expected),
    # A root of zero on the diagonal has only a one-sided slope: see test_classical.py.
    Case("MDSCore", _stress, _stress_expected, is_differentiable=False),
    # The output of TsnePJoint is data: finite differences would see it change.
    Case("TSNECore", _neighbours, _neighbours_expected, is_differentiable=False, tolerance=3e-5),
    Case("MDS", _scaled, _scaled_expected, is_differentiable=False),
    Case("TSNE", _embedded, _embedded_expected, is_differentiable=False, tolerance=3e-5),
    Case("GaussProcessRegressionCore", _gaussian, _gaussian_expected, tolerance=1e-4),
]
