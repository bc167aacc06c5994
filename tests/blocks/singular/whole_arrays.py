"""Blocks on rows, windows and sets of points: ties, zeros, coincident points, infinite and empty arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from mithril_nb.models import LeakyRelu, Model
from tests.blocks.singular.point import Point, point

INF, NAN = np.inf, np.nan
TINY = float(np.finfo("float32").tiny)
ROWS = np.array(
    [[0, 0, 0], [2, 2, 1], [1e4, -1e4, 0], [-INF, 0, 1], [3, 3, 3], [INF, 1, INF], [-INF, -INF, -INF], [NAN, 1, 2]]
)
FINITE = np.array([[0, 0, 0], [2, 2, 1], [-1, 0, 1], [1e4, -1e4, 0], [3, 3, 3], [0, 5, 0]], float)
WEIGHTS = np.array([1.0, 2.0, 4.0])


def _ties(x: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    same = x == chosen[:, None]
    return np.where(same, 1 / np.maximum(same.sum(1, keepdims=True), 1), 0)  # no item is equal to NaN


def _others(x: np.ndarray) -> np.ndarray:
    """Return the product of the other items of a row, for each item."""
    return np.stack([np.delete(x, at, 1).prod(1) for at in range(x.shape[1])], 1)


def _norm_slope(x: np.ndarray, p: float) -> np.ndarray:
    length = np.linalg.norm(x, p, 1)[:, None]
    return np.where(length == 0, 0, np.sign(x) * np.abs(x / np.where(length == 0, 1, length)) ** (p - 1))


def _reductions() -> list[Point]:
    found = []
    for kind, chosen in (("Max", ROWS.max(1)), ("Min", ROWS.min(1))):
        found.append(point(f"{kind}(-1)", {"input": ROWS}, input=_ties(ROWS, chosen)))
    empty = {"input": np.zeros((2, 0))}
    found += [
        point("ArgMax(-1)", {"input": ROWS}),
        point("ArgMin(-1)", {"input": ROWS}),
        point("Sum(-1)", {"input": ROWS}, input=np.ones_like(ROWS)),
        point("Sum(-1); empty", empty, [0, 0], **empty),
        point("Mean(-1)", {"input": ROWS}, input=np.full_like(ROWS, 1 / 3)),
        point("Mean(-1); empty", empty, [NAN, NAN]),
        point("Prod(-1)", {"input": FINITE}, input=_others(FINITE)),
        point("Prod(-1); empty", empty, [1, 1]),
        point("Cumsum()", {"input": ROWS}, input=np.broadcast_to([3.0, 2, 1], ROWS.shape)),
        point("Variance(-1)", {"input": FINITE}, input=2 / 3 * (FINITE - FINITE.mean(1, keepdims=True))),
        point("Variance(-1); empty", empty, [NAN, NAN]),
        point("Variance(-1, correction=1); one item", {"input": np.ones((2, 1))}, [NAN, NAN]),
        point("Norm(axis=-1); empty", empty, [0, 0]),
        point("Norm(); large", {"input": [3e30, 4e30]}, 5e30),
        point("Norm(); infinite", {"input": [INF, 1.0]}, INF),
        point("Norm(); NaN", {"input": [NAN, 1.0]}, NAN),
        point("Max(0); no columns", {"input": np.zeros((2, 0))}),
        point("Trapezoid(); empty", {"y": np.zeros((2, 0)), "x": np.zeros(0)}, [0, 0]),
        point("ArgMax()", {"input": [[1.0, 3.0], [4.0, 2.0]]}),
        point(
            "LogSumExp(-1)",
            {"input": ROWS[:5]},
            special.logsumexp(ROWS[:5], 1),
            input=special.softmax(ROWS[:5], 1),
        ),
        point("LogSumExp(-1); infinite", {"input": ROWS[5:]}, special.logsumexp(ROWS[5:], 1)),
        point("LogSumExp(-1); empty", empty, [-INF, -INF]),
        point("Trapezoid()", {"y": [[1, 2, 4], [0, 0, 0]], "x": [1, 1, 1]}, y=np.zeros((2, 3)), x=[-1.5, -1.5, 3.0]),
        point("Unique(3, 9.0); empty", {"input": np.zeros(0)}, [9, 9, 9]),
        point("Unique(size=3)", {"input": [2.0, 0.0, -0.0, 2.0, INF]}, [0, 2, INF]),
    ]
    for p in (1.0, 2.0, 3.0):
        found.append(point(f"Norm({p}, -1)", {"input": FINITE}, input=_norm_slope(FINITE, p)))
    rows, slopes = [[0.0, 0, 0], [2, -2, 1]], [[0, 0, 0], [0.5, -0.5, 0]]
    found.append(point("Norm(float('inf'), -1); ∞", {"input": rows}, input=slopes, tolerance=1e-5))
    return found


def _softmaxes() -> list[Point]:
    with np.errstate(all="ignore"):
        shares = np.exp(ROWS - ROWS.max(1, keepdims=True))
        shares = shares / shares.sum(1, keepdims=True)
        logs = ROWS - ROWS.max(1, keepdims=True)
        logs = logs - np.log(np.exp(logs).sum(1, keepdims=True))
    mean = (shares * WEIGHTS).sum(1, keepdims=True)
    by_log = WEIGHTS - shares * WEIGHTS.sum()
    return [
        point("Softmax()", {"input": ROWS}, shares, weights=WEIGHTS, input=shares * (WEIGHTS - mean)),
        point("LogSoftmax()", {"input": ROWS}, logs, weights=WEIGHTS, input=by_log),
        point("Softmax(); empty", {"input": np.zeros((0, 3))}, input=np.zeros((0, 3))),
    ]


def _entropies() -> list[Point]:
    """Return cross entropies where a class is certain, impossible, or out of range."""
    number = np.array([0, 0, 0, 1, 0, 3], "int32")
    probs = np.array([[1, 0], [0, 1], [0.5, 0.5], [0.25, 0.75], [1e-30, 1], [1, 0]])
    picked = np.array([1, 0, 0.5, 0.75, 1e-30, NAN])
    given = {"input": probs, "target": number}
    chosen = np.eye(2)[[0, 0, 0, 1, 0, 0]] * np.array([1, 1, 1, 1, 1, 0])[:, None]
    robust = np.where(picked < TINY, np.log(TINY / 2), np.log(np.maximum(picked, TINY)))
    steep = np.where(picked < TINY, 1 / (2 * TINY), 1 / np.nan_to_num(picked, nan=INF))[:, None]
    with np.errstate(all="ignore"):
        plain = [-np.log(picked), np.where(chosen == 1, -1 / picked[:, None], 0)]
        logs = np.log(probs)
    logits = np.array([[1e4, -1e4], [-1e4, 1e4], [0, 0], [-INF, 0], [0, -INF], [0, 0]])
    expected = -special.log_softmax(logits, 1)[np.arange(6), [0, 0, 0, 1, 0, 0]]
    expected[-1] = NAN
    by_logit = special.softmax(logits, 1) - chosen
    by_logit[-1] = 0
    soft = np.array([[1, 0], [0.5, 0.5], [0, 1]])
    likely = np.array([[1, 0], [1, 0], [1e-30, 1]])
    return [
        point("CrossEntropy('probs'); probs", given, plain[0], input=plain[1]),
        point("CrossEntropy('probs', robust=True); robust", given, -robust, input=-chosen * steep),
        point("CrossEntropy(); logits", {"input": logits, "target": number}, expected, input=by_logit),
        point(
            "CrossEntropy('log_probs'); log_probs",
            {"input": logs, "target": number},
            -np.append(logs[np.arange(5), number[:5]], NAN),
            input=-chosen,
        ),
        point(
            "CrossEntropy('log_probs', robust=True); log_probs, robust",
            {"input": logs[:5], "target": number[:5]},
            -np.maximum(logs[np.arange(5), number[:5]], np.log(TINY)),
            input=np.where(np.isneginf(logs[:5]), 0, -chosen[:5]),
        ),
        point(
            "CrossEntropy('probs', weights=[0.0, 2.0]); a class that does not count",
            {"input": [[0.0, 1.0], [0.5, 0.5]], "target": np.array([0, 1], "int32")},
            [0, 2 * np.log(2)],
            input=[[0, 0], [0, -4]],
        ),
        point(
            "CrossEntropy('probs', categorical=False); SoftCrossEntropy",
            {"input": likely, "target": soft},
            [0, INF, 0],
            input=[[-1, 0], [-0.5, -INF], [0, -1]],
        ),
        point(
            "SoftCrossEntropy('log_probs'); log_probs",
            {"input": [[0, -INF], [-1, -2]], "target": [[1, 0], [0.5, 0.5]]},
            [0, 1.5],
            input=[[-1, 0], [-0.5, -0.5]],
        ),
        point(
            "KLDivergence()",
            {"input": [0.0, 0.0, 1.0, 0.5], "target": [0.0, 1.0, 0.0, 0.5]},
            [0, np.log(2 / TINY), 0, 0],
            input=[0, -1 / (2 * TINY), 0, -1],
        ),
        point(
            "FocalLoss(2.0, None)",
            {"input": [0.0, 1e4, -1e4, 1e4, -1e4], "target": [1.0, 1, 1, 0, 0]},
            [np.log(2) / 4, 0, 1e4, 1e4, 0],
            input=[-0.25 * np.log(2) - 0.125, 0, -1, 1, 0],
        ),
        point(
            "CosineSimilarity()",
            {"left": [[0.0, 0], [1, 0], [3, 4]], "right": [[0.0, 0], [0, 1], [3, 4]]},
            [0, 0, 1],
            left=[[0, 0], [0, 1], [0, 0]],
        ),
        point(
            "InfoNCE(1.0)",
            dict.fromkeys(("input", "target"), np.zeros((2, 2))),
            [np.log(2)] * 2,
            input=np.zeros((2, 2)),
        ),
    ]


def _windows() -> list[Point]:
    line = np.array([[1.0, 1, 2, 2, INF, INF, -INF, -INF]])
    missing = np.array([[NAN, 1.0, 2, NAN]])
    first = np.array([[1.0, 0, 1, 0, 1, 0, 1, 0]])
    image = np.zeros((2, 4, 4))
    corner = np.tile([[1.0, 0], [0, 0]], (2, 2, 2))
    found = [
        point("MaxPool1d(2)", {"input": line[None]}, input=first[None]),
        point("MaxPool1d(2); NaN", {"input": missing}, [[NAN, NAN]]),
        point("MaxPool1d(2); no batch", {"input": line}, [[1, 2, INF, -INF]], input=first),
        point("MaxPool2d(2)", {"input": image[None]}, input=corner[None]),
        point("AvgPool2d(2); no batch", {"input": image}, np.zeros((2, 2, 2)), input=0.25 * np.ones((2, 4, 4))),
    ]
    for kind in ("MaxPool1D", "PrimitiveMaxPool1D"):
        found.append(point(f"{kind}(2); no batch", {"input": line}, [[1, 2, INF, -INF]], input=first))
    for kind in ("MaxPool2d", "MaxPool2D", "PrimitiveMaxPool2D"):
        found.append(point(f"{kind}(2); no batch", {"input": image}, np.zeros((2, 2, 2)), input=corner))
    for kind in ("AvgPool2D", "PrimitiveAvgPool2D"):
        ones = np.ones((2, 4, 4))
        found.append(point(f"{kind}(2); no batch", {"input": ones}, np.ones((2, 2, 2)), input=0.25 * ones))
    found.append(point("AdaptiveMaxPool2d(2)", {"input": image[None, :1]}, input=np.full((1, 1, 4, 4), 0.25)))
    return found


def _norms() -> list[Point]:
    """Return arrays without variance: the output is the bias, here 0, and no gradient reaches the input."""
    flat = np.full((2, 2, 2, 2), 3.0)
    affine = {"weight": np.ones(2), "bias": np.zeros(2)}
    same = (("GroupNorm(2)", flat), ("InstanceNorm()", flat), ("LayerNorm()", flat[0, 0]))
    zeros = {"input": np.zeros((2, 2)), "weight": np.ones(2)}
    return [
        *(point(name, {"input": x, **affine}, np.zeros_like(x), input=np.zeros_like(x)) for name, x in same),
        point("RMSNorm(eps=1e-6)", zeros, np.zeros((2, 2)), input=np.full((2, 2), 1e3), tolerance=1e-5),
    ]


def _others_points() -> list[Point]:
    x = np.array([0.0, -1, -3, 1, INF])
    chosen = np.array([True, False, True, False])
    values = np.array([1.0, INF, 0, NAN])
    return [
        point(
            "LeakyRelu(); slope as an input",
            {"input": x, "slope": 0.25},
            np.where(x >= 0, x, 0.25 * x),
            input=np.where(x >= 0, 1, 0.25),
            slope=-4.0,
            block=Model() | LeakyRelu()(input="input", slope="slope", output="output"),
        ),
        point(
            "Where()",
            {"cond": chosen, "input1": values, "input2": values[::-1].copy()},
            input1=chosen,
            input2=~chosen,
        ),
        point("L1()", {"input": [0.0, -0.0, 2, -3]}, input=[0, 0, 1, -1]),
        point("L2()", {"input": [0.0, -0.0, 2, -3]}, input=[0, 0, 2, -3]),
    ]


def _matrices() -> list[Point]:
    """Return matrices without a Cholesky factor, kernels of zeros, and coinciding neighbours."""
    ones, none = np.ones((2, 2)), np.full((2, 2), NAN)
    others, far = 1 - np.eye(3), np.array([[0, 1, 4], [1, 0, 9], [4, 9, 0]])
    nothing = np.zeros((2, 2))
    return [
        point("Cholesky()", {"input": [[1, 2], [2, 1]]}, [[NAN, 0], [NAN, NAN]], input=nothing),
        point(
            "GPRAlpha()",
            {"label_mu_diff": [1, 1], "K_term": ones, "L": none},
            [0.5, 0.5],
            K_term=-0.25 * ones,
            L=nothing,
            tolerance=1e-4,
        ),
        point("GPRVOuter()", {"K": [[1], [1]], "K_term": ones, "L": none}, 1, tolerance=1e-4),
        point(
            "PolynomialKernel()",
            {"input1": nothing, "input2": nothing, "poly_coef": 0, "degree": 2.0},
            input1=nothing,
        ),
        point("TsnePJoint()", {"squared_distances": 0 * others, "target_perplexity": 2}, others / 6),
        point("TsnePJoint(); impossible", {"squared_distances": far, "target_perplexity": 50}, others / 6),
        point(
            "PolynomialKernel(); negative",
            {"input1": [[1.0, -1.0]], "input2": [[-2.0, 1.0]], "poly_coef": 1.0, "degree": 3.0},
            [[-8]],
        ),
    ]


def _distances() -> list[Point]:
    """Return points that coincide."""
    same = np.zeros((3, 2))
    found = []
    for norm in (0.5, 1.0, 2.5):
        given: dict[str, Any] = {"left": same, "right": same, "norm": norm}
        found.append(point(f"DistanceMatrix(); {norm:g}", given, left=same, norm=0))
        if norm < 1:
            continue
        given = {"input1": same, "input2": same, "norm": norm}
        found.append(point(f"EncoderDistanceMatrix(); {norm:g}", given, input1=same))
        wanted = 1 - np.eye(3)
        for exact in (True,) if norm == 1 else (True, False):
            name = f"MDSCore(exact_distances={exact}); {norm:g}"
            none = np.zeros((3, 3))
            given = {"distances": wanted, "pred_distances": wanted, "norm": norm}
            found.append(point(f"{name}, found", given, 0, pred_distances=none, distances=none))
            given = {"distances": none, "pred_distances": none, "norm": norm}
            found.append(point(f"{name}, all zero", given, 0, pred_distances=none, distances=none))
        coordinates = np.array([[0.0, 0], [0, 0], [3, 4]])
        inputs = {"distances": none} if norm == 1 else {"powers": none, "points": np.zeros((3, 4))}
        for kind, wanted in inputs.items():
            given = {"input": wanted, "coords": same, "norm": norm}
            found.append(point(f"MDS(2, {kind!r}); {norm:g}, all coincide", given, 0, coords=same))
        ends = np.abs(coordinates[:, None] - coordinates[None])
        lengths = (ends**norm).sum(-1) ** (1 / norm)
        slope = 2 * _mds_slope(coordinates, norm)
        given = {"input": none, "coords": coordinates, "norm": norm}
        value = (lengths**norm).sum() ** (1 / norm)
        found.append(point(f"MDS(2); {norm:g}, two coincide", given, value, coords=slope, tolerance=1e-5))
    given = {"input1": same, "input2": same, "l_scale": 1.0, "sigma": 2.0}
    return [*found, point("RBFKernel()", given, input1=same)]


def _mds_slope(points: np.ndarray, p: float) -> np.ndarray:
    """Return half the gradient of the p-norm of all Minkowski distances: the matrix has each pair twice."""
    ends = points[:, None] - points[None]
    whole = (np.abs(ends) ** p).sum()
    powers = np.where(ends == 0, 0, np.sign(ends) * np.abs(ends) ** (p - 1))
    return whole ** (1 / p - 1) * powers.sum(1)


with np.errstate(all="ignore"):
    POINTS = [
        *_reductions(),
        *_softmaxes(),
        *_entropies(),
        *_windows(),
        *_norms(),
        *_others_points(),
        *_matrices(),
        *_distances(),
    ]
