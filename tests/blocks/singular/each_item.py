"""Elementwise blocks, and blocks on pairs of items: the slope of each, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from mithril_nb.models import KINDS
from tests.blocks.case import call
from tests.blocks.cases.elementwise import COMPARISONS, TINY, robust_log
from tests.blocks.singular.point import Point, point, rounded

INF, NAN = np.inf, np.nan
X = rounded([0.0, -0.0, 1e-30, -1e-30, 0.5, -0.5, 1, -1, 3, -3, 6, 1e4, -1e4, 1e30, -1e30, INF, -INF, NAN])
ZERO, ONE = np.zeros_like, np.ones_like
Function = Callable[..., Any]


def _mish_slope(input: np.ndarray) -> np.ndarray:
    inner = np.tanh(np.logaddexp(input, 0))
    return inner + input * (1 - inner**2) * special.expit(input)


def _between(x: np.ndarray, low: float, high: float, at_bounds: float) -> np.ndarray:
    """Return the slope of an item that is clipped to bounds."""
    return np.where((x == low) | (x == high), at_bounds, (x > low) & (x < high))


def _robust_power_slope(b: np.ndarray, e: np.ndarray, t: float) -> np.ndarray:
    sign = np.where((e % 2 == 0) & (b < 0), -1, 1)
    line = t ** (e - 1) * sign * np.where((e % 2 == 0) & (b == 0), 0, 1)
    return np.where(np.abs(b) < t, np.where(e > 0, line, 0), e * np.abs(b) ** (e - 1) * sign)


EACH: dict[str, Function] = {
    "Absolute": lambda input: np.sign(input),
    "Negate": lambda input: -ONE(input),
    "Sign": ZERO,
    "Square": lambda input: 2 * input,
    "Floor": ZERO,
    "Ceil": ZERO,
    "Round": ZERO,
    "Exponential": np.exp,
    "Expm1": np.exp,
    "Log1p": lambda input: 1 / (1 + input),
    "Rsqrt": lambda input: -0.5 / np.sqrt(input) / input,
    "Sine": np.cos,
    "Cosine": lambda input: -np.sin(input),
    "Tan": lambda input: 1 + np.tan(input) ** 2,
    "Arctan": lambda input: 1 / (1 + input * input),
    "Erf": lambda input: 2 / np.sqrt(np.pi) * np.exp(-input * input),
    "Buffer": ONE,
    "StopGradient": ZERO,
    "Dropout": lambda input: ONE(input),
    "ZerosLike": ZERO,
    "OnesLike": ZERO,
    "IsNan": ZERO,
    "NanToNum": lambda input: np.isfinite(input),
    "Relu": lambda input: input > 0,
    "Relu6": lambda input: _between(input, 0, 6, 0),
    "Gelu": lambda input: special.ndtr(input) + input * np.exp(-input * input / 2) / np.sqrt(2 * np.pi),
    "SiLU": lambda input: special.expit(input) * (1 + input * special.expit(-input)),
    "Mish": _mish_slope,
    "Sigmoid": lambda input: special.expit(input) * special.expit(-input),
    "LogSigmoid": lambda input: special.expit(-input),
    "Softplus": special.expit,
    "Softsign": lambda input: np.where(np.isinf(input), NAN, 1 / (1 + np.abs(input)) ** 2),
    "Tanh": lambda input: 1 - np.tanh(input) ** 2,
    "HardTanh": lambda input: ~((input < -1) | (input > 1)),
    "HardSigmoid": lambda input: _between(input, -3, 3, 0) / 6,
    "HardSwish": lambda input: np.clip(input + 3, 0, 6) / 6 + np.where(np.abs(input) < 3, input / 6, 0),
    "LeakyRelu": lambda input, slope: np.where(input >= 0, 1, slope),
    "Elu": lambda input, alpha: np.where(input > 0, 1, alpha * np.exp(input)),
    "Celu": lambda input, alpha: np.where(input > 0, 1, np.exp(input / alpha)),
    "Selu": lambda input: 1.0507009873554805 * np.where(input > 0, 1, 1.6732632423543772 * np.exp(input)),
    "Sqrt": lambda input: 0.5 / np.sqrt(input),
    "Log": lambda input: 1 / input,
    "Clamp": lambda input: ONE(input),
}
"""Slope of each kind with its default attributes."""


def _root_slope(input: np.ndarray, threshold: float | None) -> np.ndarray:
    t = threshold or TINY
    return np.where(np.abs(input) < t, 1 / np.sqrt(t), 0.5 / np.sqrt(np.abs(input)))


def _log_slope(input: np.ndarray, threshold: float | None) -> np.ndarray:
    t = threshold or TINY
    return np.where(input < t, 1 / (2 * t - input), 1 / input)


def _reciprocal_slope(input: np.ndarray, threshold: float | None) -> np.ndarray:
    least = max(2.0**-23 if threshold is None else threshold, 1e-19)
    return np.where(np.abs(input) < least, 0 * input, -1 / input**2)


SET: dict[str, Function] = {
    "Clamp(-1.0, 1.0)": lambda input: _between(input, -1, 1, 0.5),
    "LeakyRelu(0.3)": EACH["LeakyRelu"],
    "Elu(2.0)": EACH["Elu"],
    "Celu(2.0)": EACH["Celu"],
    "Sqrt(robust=True)": _root_slope,
    "Sqrt(robust=True, threshold=1.0)": _root_slope,
    "Log(robust=True)": _log_slope,
    "Log(robust=True, threshold=0.75)": _log_slope,
    "StableReciprocal()": _reciprocal_slope,
    "StableReciprocal(0.75)": _reciprocal_slope,
    "StableReciprocal(0.0)": _reciprocal_slope,
}


def _every_pair(left: list[float], right: list[float]) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.meshgrid(left, right)
    return rounded(first.ravel()), rounded(second.ravel())


A, B = _every_pair(*2 * ([0.0, -0.0, 0.5, 1, -1, 2, -2, 1e4, INF, -INF, NAN],))
P, T = _every_pair([0.0, 1e-30, 0.25, 0.5, 1], [0.0, 0.25, 0.5, 1])
LOGIT, YES = _every_pair([0.0, 1, -1, 1e4, -1e4, 1e30, -1e30, INF, -INF, NAN], [0.0, 0.25, 1])
Pair = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _choice(choose: Function) -> Pair:
    """Return the slopes of a selection from two items: one half each if both are equal."""

    def share(x: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.where(x == choose(x, other), np.where(other == choose(x, other), 0.5, 1.0), 0.0)

    return lambda a, b: (share(a, b), share(b, a))


def _hinge(power: int) -> Pair:
    def slopes(x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        near = ~(x * t >= 1)  # NaN is on the wrong side, so that it is visible
        outer = np.where(near, power * (1 - x * t) ** (power - 1), 0)
        return np.where(near, -t * outer, 0), np.where(near, -x * outer, 0)

    return slopes


def _power(b: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # The logarithm of a base of 0 counts as 0, as in JAX.
    by_exponent = b**e * np.where(b == 0, 0, np.log(b))
    return np.where(e == 0, np.where(np.isnan(b), b, 0), e * b ** (e - 1)), by_exponent


def _of_error(slope: Function) -> Pair:
    """Return the slopes of a function of the difference, given its slope."""
    return lambda x, t: (slope(x - t), -slope(x - t))


def _quantile_slope(excess: np.ndarray) -> np.ndarray:
    return np.select([excess == 0, excess > 0, excess < 0], [0.25, 0.75, -0.25], 0)


PAIRS: dict[str, Pair] = {
    "Add()": lambda a, b: (ONE(a), ONE(b)),
    "Subtract()": lambda a, b: (ONE(a), -ONE(b)),
    "Multiply()": lambda a, b: (b, a),
    "Divide()": lambda a, b: (1 / b, -a / b**2),
    "FloorDivide()": lambda a, b: (ZERO(a), ZERO(b)),
    "Minimum()": _choice(np.minimum),
    "Maximum()": _choice(np.maximum),
    "Power()": _power,
    "SquaredError()": _of_error(lambda error: 2 * error),
    "AbsoluteError()": _of_error(np.sign),
    "HingeLoss()": _hinge(1),
    "QuadHingeLoss()": _hinge(2),
    "LogCosh()": _of_error(np.tanh),
}
"""Both slopes of each kind that pairs items."""
FINITE_PAIRS: dict[str, Pair] = {
    "HuberLoss()": _of_error(lambda error: np.clip(error, -1, 1)),
    "QuantileLoss(0.25)": _of_error(_quantile_slope),
    "Mod()": lambda a, b: (ONE(a), -np.floor(a / b)),
}
"""The same of finite numbers only."""


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
    yes, no = (np.where(np.isneginf(log), least, log) for log in (special.log_expit(x), special.log_expit(-x)))
    return -(np.where(t == 0, 0 * np.nan_to_num(yes), t * yes) + np.where(t == 1, 0 * np.nan_to_num(no), (1 - t) * no))


def _pair_points(pairs: dict[str, Pair], a: np.ndarray, b: np.ndarray) -> list[Point]:
    points = []
    for name, pair in pairs.items():
        ports = KINDS[name.partition("(")[0]].input_ports
        points.append(point(name, dict(zip(ports, (a, b), strict=True)), **dict(zip(ports, pair(a, b), strict=True))))
    return points


def _points() -> list[Point]:
    points = []
    for name, slope in {**{f"{kind}()": slope for kind, slope in EACH.items()}, **SET}.items():
        block = eval(name, dict(KINDS))
        points.append(point(name, {"input": X}, input=call(slope, block, {}, {"input": X})))
    orders = np.array([-7.0, -3, -2.5, 0, 0.5, 1, 2.5, 5, 6, 9, 13])
    points.append(point("NormModifier()", {"input": orders}, input=np.where((orders + 3) % 8 - 4 >= 0, 1, -1)))
    finite = np.isfinite(A) & np.isfinite(B)
    points += [point(f"{kind}()", {"left": A, "right": B}) for kind in COMPARISONS]
    points += _pair_points(PAIRS, A, B) + _pair_points(FINITE_PAIRS, A[finite], B[finite])
    base, exponent = _every_pair([0.0, -0.0, 0.1, -0.1, 2, -2], [-1.0, -0.5, 0, 0.5, 1, 2, 3])
    slope = _robust_power_slope(base, exponent, 0.25)
    points.append(point("Power(True, 0.25)", {"base": base, "exponent": exponent}, base=slope))
    for robust in (False, True):
        log = lambda p, robust=robust: robust_log(p, robust, None)  # noqa: E731
        slope = (lambda p: _log_slope(p, None)) if robust else lambda p: 1 / p
        value, by_input = _binary(P, T, log, slope)
        name = f"BinaryCrossEntropy('probs', robust={robust})"
        points.append(point(name, {"input": P, "target": T}, value, input=by_input))
        value = _of_logits(LOGIT, YES, np.log(TINY) if robust else -INF)
        # The robust form is constant at infinity.
        by_input = np.where(np.isinf(LOGIT) & robust, 0, special.expit(LOGIT) - YES)
        points.append(
            point(f"BinaryCrossEntropy(robust={robust})", {"input": LOGIT, "target": YES}, value, input=by_input)
        )
    return points


with np.errstate(all="ignore"):
    POINTS = _points()
