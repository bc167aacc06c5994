"""Elementwise blocks, and blocks on pairs of items: value and slope of each, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from mithril_nb.models import KINDS
from tests.blocks.singular.point import Point, point, rounded

INF, NAN = np.inf, np.nan
X = rounded([0.0, -0.0, 1e-30, -1e-30, 0.5, -0.5, 1, -1, 3, -3, 6, 1e4, -1e4, 1e30, -1e30, INF, -INF, NAN])
ZERO, ONE = np.zeros_like, np.ones_like
TINY = float(np.finfo("float32").tiny)
Function = Callable[..., Any]


def _gelu_slope(x: np.ndarray) -> np.ndarray:
    return special.ndtr(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def _silu_slope(x: np.ndarray) -> np.ndarray:
    return special.expit(x) * (1 + x * special.expit(-x))


def _mish_slope(x: np.ndarray) -> np.ndarray:
    inner = np.tanh(np.logaddexp(x, 0))
    return inner + x * (1 - inner**2) * special.expit(x)


def _between(x: np.ndarray, low: float, high: float, at_bounds: float) -> np.ndarray:
    """Return the slope of an item that is clipped to bounds."""
    return np.where((x == low) | (x == high), at_bounds, (x > low) & (x < high))


EACH: dict[str, tuple[Function, Function]] = {
    "Absolute": (np.abs, np.sign),
    "Negate": (np.negative, lambda x: -ONE(x)),
    "Sign": (np.sign, ZERO),
    "Square": (np.square, lambda x: 2 * x),
    "Floor": (np.floor, ZERO),
    "Ceil": (np.ceil, ZERO),
    "Round": (np.round, ZERO),
    "Exponential": (np.exp, np.exp),
    "Expm1": (np.expm1, np.exp),
    "Log1p": (np.log1p, lambda x: 1 / (1 + x)),
    "Rsqrt": (lambda x: 1 / np.sqrt(x), lambda x: -0.5 / np.sqrt(x) / x),
    "Sine": (np.sin, np.cos),
    "Cosine": (np.cos, lambda x: -np.sin(x)),
    "Tan": (np.tan, lambda x: 1 + np.tan(x) ** 2),
    "Arctan": (np.arctan, lambda x: 1 / (1 + x * x)),
    "Erf": (special.erf, lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x)),
    "Buffer": (lambda x: x, ONE),
    "StopGradient": (lambda x: x, ZERO),
    "Dropout": (lambda x: x, ONE),
    "ZerosLike": (ZERO, ZERO),
    "OnesLike": (ONE, ZERO),
    "IsNan": (np.isnan, ZERO),
    "NanToNum": (lambda x: np.nan_to_num(x, posinf=np.finfo("f").max, neginf=np.finfo("f").min), np.isfinite),
    "Relu": (lambda x: np.maximum(x, 0), lambda x: x > 0),
    "Relu6": (lambda x: np.clip(x, 0, 6), lambda x: _between(x, 0, 6, 0)),
    "Gelu": (lambda x: x * special.ndtr(x), _gelu_slope),
    "SiLU": (lambda x: x * special.expit(x), _silu_slope),
    "Mish": (lambda x: x * np.tanh(np.logaddexp(x, 0)), _mish_slope),
    "Sigmoid": (special.expit, lambda x: special.expit(x) * special.expit(-x)),
    "LogSigmoid": (special.log_expit, lambda x: special.expit(-x)),
    "Softplus": (lambda x: np.logaddexp(x, 0), special.expit),
    "Softsign": (lambda x: x / (1 + np.abs(x)), lambda x: np.where(np.isinf(x), NAN, 1 / (1 + np.abs(x)) ** 2)),
    "Tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "HardTanh": (lambda x: np.clip(x, -1, 1), lambda x: ~((x < -1) | (x > 1))),
    "HardSigmoid": (lambda x: np.clip(x + 3, 0, 6) / 6, lambda x: _between(x, -3, 3, 0) / 6),
    "HardSwish": (
        lambda x: x * np.clip(x + 3, 0, 6) / 6,
        lambda x: np.clip(x + 3, 0, 6) / 6 + np.where(np.abs(x) < 3, x / 6, 0),
    ),
    "LeakyRelu": (lambda x: np.where(x >= 0, x, 0.01 * x), lambda x: np.where(x >= 0, 1, 0.01)),
    "Elu": (lambda x: np.where(x > 0, x, np.expm1(x)), lambda x: np.where(x > 0, 1, np.exp(x))),
    "Celu": (lambda x: np.where(x > 0, x, np.expm1(x)), lambda x: np.where(x > 0, 1, np.exp(x))),
    "Selu": (
        lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
        lambda x: 1.0507009873554805 * np.where(x > 0, 1, 1.6732632423543772 * np.exp(x)),
    ),
    "Sqrt": (np.sqrt, lambda x: 0.5 / np.sqrt(x)),
    "Log": (np.log, lambda x: 1 / x),
    "Clamp": (lambda x: x, ONE),
}
"""Value and slope of each kind with its default attributes."""


def _robust_sqrt(x: np.ndarray, t: float) -> np.ndarray:
    return np.where(np.abs(x) < t, x / np.sqrt(t), np.sign(x) * np.sqrt(np.abs(x)))


def _robust_log(x: np.ndarray, t: float) -> np.ndarray:
    return np.where(x < t, 2 * np.log(t) - np.log(2 * t - x), np.log(x))


def _robust_power(b: np.ndarray, e: np.ndarray, t: float) -> np.ndarray:
    b = np.where(e % 2 == 0, np.abs(b), b)
    near = np.where(e > 0, b * t ** (e - 1), np.where(b < 0, -1, 1) * t**e)
    return np.where(np.abs(b) < t, near, np.where(b < 0, -1, 1) * np.abs(b) ** e)


def _robust_power_slopes(b: np.ndarray, e: np.ndarray, t: float) -> tuple[np.ndarray, np.ndarray]:
    turn = np.where((e % 2 == 0) & (b < 0), -1, 1) * np.where((e % 2 == 0) & (b == 0), 0, 1)
    is_near = np.abs(b) < t
    far = e * np.abs(b) ** (e - 1) * np.where((e % 2 == 0) & (b < 0), -1, 1)
    base = np.where(is_near, np.where(e > 0, t ** (e - 1) * turn, 0), far)
    return base, _robust_power(b, e, t) * np.log(np.where(is_near, t, np.abs(b)))


SET: list[tuple[str, Function, Function]] = [
    ("Clamp(-1.0, 1.0)", lambda x: np.clip(x, -1, 1), lambda x: _between(x, -1, 1, 0.5)),
    ("LeakyRelu(0.3)", lambda x: np.where(x >= 0, x, 0.3 * x), lambda x: np.where(x >= 0, 1, 0.3)),
    ("Elu(2.0)", lambda x: np.where(x > 0, x, 2 * np.expm1(x)), lambda x: np.where(x > 0, 1, 2 * np.exp(x))),
    (
        "Celu(2.0)",
        lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2)),
        lambda x: np.where(x > 0, 1, np.exp(x / 2)),
    ),
    (
        "Sqrt(robust=True)",
        lambda x: _robust_sqrt(x, TINY),
        lambda x: np.where(np.abs(x) < TINY, 1 / np.sqrt(TINY), 0.5 / np.sqrt(np.abs(x))),
    ),
    (
        "Sqrt(robust=True, threshold=1.0)",
        lambda x: _robust_sqrt(x, 1.0),
        lambda x: np.where(np.abs(x) < 1, 1, 0.5 / np.sqrt(np.abs(x))),
    ),
    (
        "Log(robust=True)",
        lambda x: _robust_log(x, TINY),
        lambda x: np.where(x < TINY, 1 / (2 * TINY - x), 1 / x),
    ),
    (
        "Log(robust=True, threshold=0.75)",
        lambda x: _robust_log(x, 0.75),
        lambda x: np.where(x < 0.75, 1 / (1.5 - x), 1 / x),
    ),
    (
        "StableReciprocal()",
        lambda x: np.where(x < 0, -1, 1) / np.maximum(np.abs(x), 2.0**-23),
        lambda x: np.where(np.abs(x) < 2.0**-23, 0 * x, -1 / x**2),
    ),
    (
        "StableReciprocal(0.75)",
        lambda x: np.where(x < 0, -1, 1) / np.maximum(np.abs(x), 0.75),
        lambda x: np.where(np.abs(x) < 0.75, 0 * x, -1 / x**2),
    ),
    (
        "StableReciprocal(0.0)",
        lambda x: np.where(x < 0, -1, 1) / np.maximum(np.abs(x), 2 / np.sqrt(np.finfo("f").max)),
        lambda x: np.where(np.abs(x) < 1e-19, 0 * x, -1 / x**2),
    ),
]

A, B = (
    rounded(one.ravel()) for one in np.meshgrid(*2 * ([0.0, -0.0, 0.5, 1, -1, 2, -2, 1e4, INF, -INF, NAN],))
)  # every pair
P, T = (rounded(one.ravel()) for one in np.meshgrid([0.0, 1e-30, 0.25, 0.5, 1], [0.0, 0.25, 0.5, 1]))
LOGIT, YES = (
    rounded(one.ravel()) for one in np.meshgrid([0.0, 1, -1, 1e4, -1e4, 1e30, -1e30, INF, -INF, NAN], [0.0, 0.25, 1])
)


def _share(one: np.ndarray, other: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the slope of a selection from two items: one half each if both are equal."""
    return np.where(one == chosen, np.where(other == chosen, 0.5, 1.0), 0.0)


def _hinge(x: np.ndarray, t: np.ndarray, power: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    near = ~(x * t >= 1)  # NaN is on the wrong side, so that it is visible
    outer = np.where(near, power * (1 - x * t) ** (power - 1), 0)
    return (
        np.where(near, (1 - x * t) ** power, 0),
        np.where(near, -t * outer, 0),
        np.where(near, -x * outer, 0),
    )


def _power(b: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    value = b**e
    # The logarithm of a base of 0 counts as 0, as in JAX.
    by_exponent = value * np.where(b == 0, 0, np.log(b))
    return value, np.where(e == 0, np.where(np.isnan(b), b, 0), e * b ** (e - 1)), by_exponent


def _quantile(x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    error = t - x
    slope = np.where(error == 0, 0.25 - 0.5, np.where(error > 0, 0.25, np.where(error < 0, -0.75, 0)))
    return np.maximum(0.25 * error, -0.75 * error), -slope, slope


def _log_cosh(x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    error = np.abs(x - t)
    return error + np.log1p(np.exp(-2 * error)) - np.log(2), np.tanh(x - t), -np.tanh(x - t)


def _huber(x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    slope = np.clip(x - t, -1, 1)
    return np.where(np.abs(x - t) < 1, (x - t) ** 2 / 2, np.abs(x - t) - 0.5), slope, -slope


Pair = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
PAIRS: dict[str, Pair] = {
    "Add": lambda a, b: (a + b, ONE(a), ONE(b)),
    "Subtract": lambda a, b: (a - b, ONE(a), -ONE(b)),
    "Multiply": lambda a, b: (a * b, b, a),
    "Divide": lambda a, b: (a / b, 1 / b, -a / b**2),
    "FloorDivide": lambda a, b: (np.floor_divide(a, b), ZERO(a), ZERO(b)),
    "Minimum": lambda a, b: (np.minimum(a, b), _share(a, b, np.minimum(a, b)), _share(b, a, np.minimum(a, b))),
    "Maximum": lambda a, b: (np.maximum(a, b), _share(a, b, np.maximum(a, b)), _share(b, a, np.maximum(a, b))),
    "Power": _power,
    "SquaredError": lambda x, t: ((x - t) ** 2, 2 * (x - t), -2 * (x - t)),
    "AbsoluteError": lambda x, t: (np.abs(x - t), np.sign(x - t), -np.sign(x - t)),
    "HingeLoss": lambda x, t: _hinge(x, t, 1),
    "QuadHingeLoss": lambda x, t: _hinge(x, t, 2),
    "LogCosh": _log_cosh,
}
"""Value and both slopes of each kind that pairs items, with its default attributes."""


def _binary(p: np.ndarray, t: np.ndarray, log: Function, slope: Function) -> tuple[np.ndarray, np.ndarray]:
    """Return the binary cross entropy of probabilities, where zero times the logarithm of zero is zero."""

    def share(weight: np.ndarray, of: np.ndarray) -> np.ndarray:
        return np.where(weight == 0, 0, weight * of)

    return (
        -(share(t, log(p)) + share(1 - t, log(1 - p))),
        -share(t, slope(p)) + share(1 - t, slope(1 - p)),
    )


def _of_logits(x: np.ndarray, t: np.ndarray, least: float) -> np.ndarray:
    """Return the binary cross entropy of logits, whose logarithms are at least `least` for an infinite logit."""
    yes, no = special.log_expit(x), special.log_expit(-x)
    yes, no = (np.where(np.isneginf(one), least, one) for one in (yes, no))
    return -(np.where(t == 0, 0 * np.nan_to_num(yes), t * yes) + np.where(t == 1, 0 * np.nan_to_num(no), (1 - t) * no))


def _points() -> list[Point]:
    found = [point(f"{name}()", {"input": X}, value(X), input=slope(X)) for name, (value, slope) in EACH.items()]
    found += [point(name, {"input": X}, value(X), input=slope(X)) for name, value, slope in SET]
    orders = np.array([-7.0, -3, -2.5, 0, 0.5, 1, 2.5, 5, 6, 9, 13])
    found.append(
        point(
            "NormModifier()",
            {"input": orders},
            1 + np.abs((orders + 3) % 8 - 4),
            input=np.where((orders + 3) % 8 - 4 >= 0, 1, -1),
        )
    )
    for name, pair in PAIRS.items():
        ports = KINDS[name].input_ports
        value, *slopes = pair(A, B)
        given = dict(zip(ports, (A, B), strict=True))
        found.append(point(f"{name}()", given, value, **dict(zip(ports, slopes, strict=True))))
    finite = np.isfinite(A) & np.isfinite(B)
    a, b = A[finite], B[finite]
    for name, pair in (
        ("HuberLoss()", _huber),
        ("QuantileLoss(0.25)", _quantile),
        ("Mod()", lambda a, b: (np.mod(a, b), ONE(a), -np.floor(a / b))),
    ):
        ports = KINDS[name.partition("(")[0]].input_ports
        value, *slopes = pair(a, b)
        given = dict(zip(ports, (a, b), strict=True))
        found.append(point(name, given, value, **dict(zip(ports, slopes, strict=True))))
    base, exponent = (one.ravel() for one in np.meshgrid([0.0, -0.0, 0.1, -0.1, 2, -2], [-1.0, -0.5, 0, 0.5, 1, 2, 3]))
    slopes = _robust_power_slopes(base, exponent, 0.25)
    found.append(
        point(
            "Power(True, 0.25)",
            {"base": base, "exponent": exponent},
            _robust_power(base, exponent, 0.25),
            base=slopes[0],
        )
    )
    for robust, log, slope in (
        (False, np.log, lambda p: 1 / p),
        (True, lambda p: _robust_log(p, TINY), lambda p: np.where(p < TINY, 1 / (2 * TINY - p), 1 / p)),
    ):
        value, by_input = _binary(P, T, log, slope)
        name = f"BinaryCrossEntropy('probs', robust={robust})"
        found.append(point(name, {"input": P, "target": T}, value, input=by_input))
        value = _of_logits(LOGIT, YES, np.log(TINY) if robust else -INF)
        by_input = special.expit(LOGIT) - YES
        if robust:  # it is constant there
            by_input = np.where(np.isinf(LOGIT), 0, by_input)
        found.append(
            point(f"BinaryCrossEntropy(robust={robust})", {"input": LOGIT, "target": YES}, value, input=by_input)
        )
    return found


with np.errstate(all="ignore"):
    POINTS = _points()
