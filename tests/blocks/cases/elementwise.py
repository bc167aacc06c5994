"""Elementwise blocks, and blocks on pairs of items: arithmetic, activations, comparisons and logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy import special

from mithril_nb.models import KINDS, Constant, Glu, MatrixMultiply, NanToNum, StableReciprocal
from tests.blocks.case import (
    Case,
    Draw,
    Drawn,
    Shape,
    arrays,
    axis,
    call,
    filled_shapes,
    on,
    paired,
    shapes,
    sometimes_empty,
    truths,
    whole,
)

Values = Callable[[Draw, Shape], np.ndarray]
TINY, MOST = float(np.finfo("float32").tiny), float(np.finfo("float32").max)
BOOLS = (False, True)


def of(kind: str, reference: Any, *values: Values, is_differentiable: bool = True, **options: Any) -> Case:
    """Return the case of a block whose inputs broadcast, given a function that draws each of them."""

    def draw_block(draw: Draw) -> Drawn:
        block, given = KINDS[kind], {}
        drawn_shapes = paired(draw, len(values)) if len(values) > 1 else [draw(sometimes_empty)]
        for port, drawn, shape in zip(block.input_ports, values, drawn_shapes, strict=True):
            given[port] = drawn(draw, shape)
        return block(**{name: draw(st.sampled_from(choices)) for name, choices in options.items()}), given

    return Case(kind, draw_block, reference, is_differentiable)


def floats(least: float = -3.0, most: float = 3.0) -> Values:
    return lambda draw, shape: draw(arrays(shape, least, most))


def numbers(least: float = -3.0, whole_least: int = -9, whole_most: int = 9) -> Values:
    """Return a function that draws floats or integers."""
    return lambda draw, shape: (
        whole(draw, shape, whole_least, whole_most) if draw(st.booleans()) else draw(arrays(shape, least))
    )


def repeated(draw: Draw, shape: Shape) -> np.ndarray:
    """Draw numbers with many duplicates, some of them NaN."""
    values = whole(draw, shape, -1, 2)
    return values if draw(st.booleans()) else np.where(values == 2, np.nan, values / 2)


EITHER: tuple[Values, Values] = (floats(), truths)


def robust_log(input: np.ndarray, robust: bool, threshold: float | None) -> np.ndarray:
    t = threshold or TINY
    return np.where(robust & (input < t), 2 * np.log(t) - np.log(2 * t - input), np.log(input))


def robust_sqrt(input: np.ndarray, robust: bool, threshold: float | None) -> np.ndarray:
    t = threshold or TINY
    line = np.where(np.abs(input) < t, input / np.sqrt(t), np.sign(input) * np.sqrt(np.abs(input)))
    return line if robust else np.sqrt(input)


def robust_power(base: np.ndarray, exponent: np.ndarray, robust: bool, threshold: float | None) -> np.ndarray:
    if not robust:
        return np.power(base * 1.0, exponent)
    t = threshold or TINY
    b = np.where(exponent % 2 == 0, np.abs(base), base)
    near = np.where(exponent > 0, b * t ** (exponent - 1), np.where(b < 0, -1, 1) * t**exponent)
    return np.where(np.abs(b) < t, near, np.where(b < 0, -1, 1) * np.abs(b) ** exponent)


def reciprocal(input: np.ndarray, threshold: float | None) -> np.ndarray:
    t = max(2.0**-23 if threshold is None else threshold, 2 / MOST**0.5)
    return np.where(input < 0, -1, 1) / np.maximum(np.abs(input), t)


def _reciprocal(draw: Draw) -> Drawn:
    x = draw(arrays(draw(sometimes_empty), 0.1)) * draw(st.sampled_from((-1.0, 1.0)))
    return StableReciprocal(draw(st.sampled_from((None, 0.01)))), {"input": x}


def _clamp(draw: Draw) -> Drawn:
    bounds = draw(st.sampled_from((None, -1.5, 0.0))), draw(st.sampled_from((None, 0.5, 2.25)))
    return KINDS["Clamp"](*bounds), {"input": numbers()(draw, draw(sometimes_empty))}


def _clamped(input: np.ndarray, min_val: float | None, max_val: float | None) -> np.ndarray:
    if input.dtype.kind == "i":
        min_val, max_val = min_val and np.ceil(min_val), max_val and np.floor(max_val)
    return np.clip(input, min_val, max_val)


def _nan_to_num(draw: Draw) -> Drawn:
    x = draw(arrays(draw(sometimes_empty)))
    special_items = np.random.default_rng(draw(st.integers(0, 99))).choice([1.0, np.nan, np.inf, -np.inf], x.shape)
    return NanToNum(draw(st.sampled_from((0.0, -1.0))), 10.0, draw(st.sampled_from((-5.0, -7.0)))), {
        "input": np.where(special_items == 1.0, x, special_items)
    }


def _matrix_multiply(draw: Draw) -> Drawn:
    n, k, m = (draw(st.integers(0, 4)) for _ in range(3))
    left, right = ((*shape, *matrix) for shape, matrix in zip(paired(draw), ((n, k), (k, m)), strict=True))
    kind = draw(st.sampled_from(("both", "row", "column", "dot")))
    left = (k,) if kind in ("row", "dot") else left
    right = (k,) if kind in ("column", "dot") else right
    ints = draw(st.booleans())
    return MatrixMultiply(), {
        "left": whole(draw, left) if ints else draw(arrays(left)),
        "right": whole(draw, right) if ints and draw(st.booleans()) else draw(arrays(right)),
    }


def gelu(x: np.ndarray) -> np.ndarray:
    return x * special.ndtr(x)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """Return GPT-2's approximation of GELU."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def silu(x: np.ndarray) -> np.ndarray:
    return x * special.expit(x)


GATES = {"sigmoid": special.expit, "silu": silu, "gelu": gelu, "relu": relu, "tanh": np.tanh}


def _glu(draw: Draw) -> Drawn:
    shape = list(draw(filled_shapes))
    at = draw(axis(tuple(shape)))
    shape[at] *= 2
    return Glu(draw(st.sampled_from(list(GATES))), at), {"input": draw(arrays(tuple(shape)))}


def _gated(input: np.ndarray, activation: str, axis: int) -> np.ndarray:
    value, gate = np.split(input, 2, axis)
    return value * GATES[activation](gate)


ON_WHOLE = {"Absolute": np.abs, "Negate": np.negative, "Square": np.square, "Sign": np.sign, "Buffer": np.positive}
"""Blocks that keep integers."""
STEPS = {"Floor": np.floor, "Ceil": np.ceil, "Round": np.round, "StopGradient": np.positive}
"""The same with another gradient than a finite difference: `tests/blocks/singular` has it."""
FLOATING: dict[str, tuple[Any, float, float]] = {
    "Exponential": (np.exp, -3.0, 3.0),
    "Expm1": (np.expm1, -3.0, 3.0),
    "Log1p": (np.log1p, -0.9, 3.0),
    "Rsqrt": (lambda input: 1 / np.sqrt(input), 0.1, 3.0),
    "Sine": (np.sin, -3.0, 3.0),
    "Cosine": (np.cos, -3.0, 3.0),
    "Tan": (np.tan, -1.4, 1.4),
    "Arctan": (np.arctan, -3.0, 3.0),
    "Erf": (special.erf, -3.0, 3.0),
    "Log": (robust_log, 1.0, 3.0),
    "Sqrt": (robust_sqrt, 0.0, 3.0),
    "StableReciprocal": (reciprocal, 1.0, 3.0),
}
"""Blocks whose result cannot be whole numbers, with least and most input."""
WITH_ATTRIBUTES = ("Log", "Sqrt", "StableReciprocal")


def _of_whole(draw: Draw) -> Drawn:
    kind = draw(st.sampled_from([*FLOATING, "Divide"]))
    if kind == "Divide":
        one, other = paired(draw)
        return KINDS["Divide"](), {"numerator": whole(draw, one), "denominator": whole(draw, other, 1)}
    _, least, most = FLOATING[kind]
    return KINDS[kind](), {"input": whole(draw, draw(sometimes_empty), int(np.ceil(least)), int(most))}


def _of_whole_expected(model: Any, params: Any, inputs: Any) -> Any:
    reference = np.divide if model.kind == "Divide" else FLOATING[model.kind][0]
    return call(reference, model, params, inputs)


ACTIVATIONS: dict[str, Any] = {
    "Relu": lambda input: relu(input),
    "Relu6": lambda input: np.clip(input, 0, 6),
    "Sigmoid": special.expit,
    "LogSigmoid": special.log_expit,
    "Tanh": np.tanh,
    "Softplus": lambda input: np.logaddexp(input, 0),
    "Softsign": lambda input: input / (1 + np.abs(input)),
    "SiLU": lambda input: silu(input),
    "Mish": lambda input: input * np.tanh(np.logaddexp(input, 0)),
    # The paper's two constants, in full precision.
    "Selu": lambda input: 1.0507009873554805 * np.where(input > 0, input, 1.6732632423543772 * np.expm1(input)),
    "HardSigmoid": lambda input: np.clip(input + 3, 0, 6) / 6,
    "HardTanh": lambda input: np.clip(input, -1, 1),
    "HardSwish": lambda input: input * np.clip(input + 3, 0, 6) / 6,
}
ON_NUMBERS = {
    "Add": np.add,
    "Subtract": np.subtract,
    "Multiply": np.multiply,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
}
COMPARISONS = {
    "Greater": np.greater,
    "Less": np.less,
    "GreaterEqual": np.greater_equal,
    "LessEqual": np.less_equal,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
}
ON_TRUTHS = {"LogicalAnd": np.logical_and, "LogicalOr": np.logical_or, "LogicalXOr": np.logical_xor}
SHIFTS = {"ShiftLeft": np.left_shift, "ShiftRight": np.right_shift}
NUMBERS = (0.1, 0.5, 1.75)
CASES = [
    *(of(kind, function, numbers()) for kind, function in ON_WHOLE.items()),
    *(of(kind, function, numbers(), is_differentiable=False) for kind, function in STEPS.items()),
    *(of(kind, row[0], floats(*row[1:])) for kind, row in FLOATING.items() if kind not in WITH_ATTRIBUTES),
    *(of(kind, function, floats()) for kind, function in ACTIVATIONS.items()),
    *(of(kind, function, numbers(), numbers()) for kind, function in ON_NUMBERS.items()),
    *(of(kind, function, repeated, repeated, is_differentiable=False) for kind, function in COMPARISONS.items()),
    *(of(kind, function, truths, truths, is_differentiable=False) for kind, function in ON_TRUTHS.items()),
    *(
        of(
            kind,
            lambda model, input, shift: SHIFTS[model.kind](input.astype("int32"), shift.astype("int32")),
            lambda draw, shape: whole(draw, shape, -(2**20), 2**20),
            lambda draw, shape: whole(draw, shape, 0, 10),
            is_differentiable=False,
        )
        for kind in SHIFTS
    ),
    of("LogicalNot", np.logical_not, truths, is_differentiable=False),
    of("IsNan", np.isnan, repeated, is_differentiable=False),
    of("Divide", np.divide, floats(), floats(0.3)),
    of("FloorDivide", np.floor_divide, numbers(), numbers(0.3, 1), is_differentiable=False),
    of("Mod", np.mod, numbers(), numbers(0.3, 1), is_differentiable=False),
    of(
        "Power",
        robust_power,
        lambda draw, shape: draw(arrays(shape, 0.2)) if draw(st.booleans()) else whole(draw, shape, 1, 4),
        lambda draw, shape: draw(arrays(shape)) if draw(st.booleans()) else whole(draw, shape, 0, 3),
        robust=BOOLS,
    ),
    of("Where", np.where, truths, numbers(), lambda draw, shape: draw(st.sampled_from(EITHER))(draw, shape)),
    Case("Log", on("Log", sometimes_empty, 0.1, robust=BOOLS), robust_log),
    Case("Sqrt", on("Sqrt", sometimes_empty, 0.1, robust=BOOLS), robust_sqrt),
    Case("StableReciprocal", _reciprocal, reciprocal),
    Case("Clamp", _clamp, _clamped),
    Case(
        "NanToNum",
        _nan_to_num,
        lambda input, nan, posinf, neginf: np.nan_to_num(input, True, nan, posinf or MOST, neginf or -MOST),
        is_differentiable=False,
    ),
    Case("MatrixMultiply", _matrix_multiply, np.matmul),
    # JAX computes with 32-bit integers in float32, in x64 mode too.
    Case("floating results of whole numbers", _of_whole, _of_whole_expected, tolerance64=1e-6),
    Case("Gelu", on("Gelu", approximate=BOOLS), lambda input, approximate: (gelu_tanh if approximate else gelu)(input)),
    Case("Dropout", on("Dropout", p=(0.0, 0.5)), lambda input: input),
    Case("Softmax", on("Softmax", filled_shapes, axis=axis), special.softmax),
    Case("LogSoftmax", on("LogSoftmax", filled_shapes, axis=axis), special.log_softmax),
    Case("Glu", _glu, _gated),
    Case(
        "LeakyRelu",
        on("LeakyRelu", slope=NUMBERS),
        lambda input, slope: np.where(input >= 0, input, slope * input),
    ),
    Case("Elu", on("Elu", alpha=NUMBERS), lambda input, alpha: np.where(input > 0, input, alpha * np.expm1(input))),
    Case(
        "Celu",
        on("Celu", alpha=NUMBERS),
        lambda input, alpha: np.where(input > 0, input, alpha * np.expm1(input / alpha)),
    ),
    Case("Constant", lambda draw: (Constant(draw(arrays(draw(shapes)))), {}), lambda value: np.asarray(value)),
]
