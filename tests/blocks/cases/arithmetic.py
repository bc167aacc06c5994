"""Blocks of `models/library/operations/arithmetic.py` and `models/library/operations/elementwise.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy import special

from mithril_nb.models import KINDS, Clamp, Log, MatrixMultiply, Model, NanToNum, Power, Sqrt, StableReciprocal
from tests.blocks.case import Arrays, Case, arrays, shapes

Reference = Callable[..., Any]


def whole(draw: st.DrawFn, shape: tuple[int, ...], least: int = -9, most: int = 9) -> np.ndarray:
    """Draw integers."""
    return np.random.default_rng(draw(st.integers(0, 2**16))).integers(least, most + 1, shape)


def truths(draw: st.DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    """Draw booleans."""
    return np.random.default_rng(draw(st.integers(0, 2**16))).random(shape) < 0.5


def sometimes_empty(draw: st.DrawFn) -> tuple[int, ...]:
    """Draw a shape, sometimes with a 0 in it."""
    shape = draw(shapes)
    return (0, *shape[1:]) if draw(st.integers(0, 5)) == 0 else shape


def paired(draw: st.DrawFn, count: int = 2) -> list[tuple[int, ...]]:
    """Draw shapes that broadcast: each lacks some leading axes of a common shape, and has some sizes of 1."""
    shape = sometimes_empty(draw)
    return [
        tuple(size if draw(st.booleans()) else 1 for size in shape[draw(st.integers(0, len(shape))) :])
        for _ in range(count)
    ]


def unary(kind: str, reference: Reference, least: float = -3.0, most: float = 3.0, takes_whole: bool = True, **more):
    """Return the case of an elementwise block."""

    def drawn(draw: st.DrawFn) -> tuple[Model, Arrays]:
        shape = sometimes_empty(draw)
        if takes_whole and draw(st.integers(0, 3)) == 0:
            return KINDS[kind](), {"input": whole(draw, shape, int(np.ceil(least)), int(most))}
        return KINDS[kind](), {"input": draw(arrays(shape, least, most))}

    return Case(kind, drawn, lambda _, __, given: {"output": reference(given["input"])}, **more)


def binary(
    kind: str,
    reference: Reference,
    least: float = -3.0,
    ports: tuple[str, str] = ("left", "right"),
    takes_whole: bool = True,
    **more: Any,
):
    """Return the case of a block on pairs of items; the second items are at least `least`."""

    def drawn(draw: st.DrawFn) -> tuple[Model, Arrays]:
        one, other = paired(draw)
        given = {ports[0]: draw(arrays(one)), ports[1]: draw(arrays(other, least))}
        if takes_whole and draw(st.booleans()):
            given[ports[0]] = whole(draw, one)
        if takes_whole and draw(st.booleans()):
            given[ports[1]] = whole(draw, other, int(np.ceil(least)))
        return KINDS[kind](), given

    return Case(kind, drawn, lambda _, __, given: {"output": reference(*(given[port] for port in ports))}, **more)


QUOTIENT = ("numerator", "denominator")


def _power(draw: st.DrawFn) -> tuple[Model, Arrays]:
    one, other = paired(draw)
    base = draw(arrays(one, 0.2)) if draw(st.booleans()) else whole(draw, one, 1, 4)
    exponent = draw(arrays(other)) if draw(st.booleans()) else whole(draw, other, 0, 3)
    return Power(draw(st.booleans())), {"base": base, "exponent": exponent}


def _log(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return Log(draw(st.booleans())), {"input": draw(arrays(sometimes_empty(draw), 0.1))}


def _sqrt(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return Sqrt(draw(st.booleans())), {"input": draw(arrays(sometimes_empty(draw), 0.1))}


def _reciprocal(draw: st.DrawFn) -> tuple[Model, Arrays]:
    x = draw(arrays(sometimes_empty(draw), 0.1)) * draw(st.sampled_from((-1.0, 1.0)))
    return StableReciprocal(draw(st.sampled_from((None, 0.01)))), {"input": x}


def _clamp(draw: st.DrawFn) -> tuple[Model, Arrays]:
    low, high = draw(st.sampled_from((None, -1.5, 0.0))), draw(st.sampled_from((None, 0.5, 2.25)))
    shape = sometimes_empty(draw)
    return Clamp(low, high), {"input": whole(draw, shape) if draw(st.booleans()) else draw(arrays(shape))}


def _clamp_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    x, low, high = inputs["input"], model.options["min_val"], model.options["max_val"]
    if x.dtype.kind == "i":
        low, high = None if low is None else np.ceil(low), None if high is None else np.floor(high)
    return {"output": np.clip(x, low, high)}


def _nan_to_num(draw: st.DrawFn) -> tuple[Model, Arrays]:
    x = draw(arrays(sometimes_empty(draw)))
    special_ones = np.random.default_rng(draw(st.integers(0, 99))).choice([1.0, np.nan, np.inf, -np.inf], x.shape)
    return NanToNum(draw(st.sampled_from((0.0, -1.0))), 10.0, draw(st.sampled_from((-5.0, -7.0)))), {
        "input": np.where(special_ones == 1.0, x, special_ones)
    }


def _nan_to_num_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    return {"output": np.nan_to_num(inputs["input"], **model.options)}


def _matrix_multiply(draw: st.DrawFn) -> tuple[Model, Arrays]:
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


FLOATING: dict[str, tuple[Reference, float, float]] = {
    "Exponential": (np.exp, -3.0, 3.0),
    "Expm1": (np.expm1, -3.0, 3.0),
    "Log1p": (np.log1p, -0.9, 3.0),
    "Rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 3.0),
    "Sine": (np.sin, -3.0, 3.0),
    "Cosine": (np.cos, -3.0, 3.0),
    "Tan": (np.tan, -1.4, 1.4),
    "Arctan": (np.arctan, -3.0, 3.0),
    "Erf": (special.erf, -3.0, 3.0),
    "Log": (np.log, 1.0, 3.0),
    "Sqrt": (np.sqrt, 0.0, 3.0),
    "StableReciprocal": (lambda x: 1 / x, 1.0, 3.0),
}
"""Blocks whose result cannot be whole numbers, with least and most input."""


def _of_whole(draw: st.DrawFn) -> tuple[Model, Arrays]:
    kind = draw(st.sampled_from([*FLOATING, "Divide"]))
    if kind == "Divide":
        one, other = paired(draw)
        return KINDS["Divide"](), {"numerator": whole(draw, one), "denominator": whole(draw, other, 1)}
    _, least, most = FLOATING[kind]
    return KINDS[kind](), {"input": whole(draw, sometimes_empty(draw), int(np.ceil(least)), int(most))}


def _of_whole_reference(model: Model, params: Arrays, inputs: Arrays) -> dict[str, Any]:
    if model.kind == "Divide":
        return {"output": inputs["numerator"] / inputs["denominator"]}
    return {"output": FLOATING[model.kind][0](inputs["input"])}


CASES = [
    unary("Buffer", lambda x: x),
    # Its gradient differs from the function's: see tests/blocks/test_arithmetic.py.
    unary("StopGradient", lambda x: x, is_differentiable=False),
    unary("Absolute", np.abs),
    unary("Negate", np.negative),
    unary("Square", np.square),
    unary("Sign", np.sign),
    # These are discontinuous: a finite difference across a jump is not a gradient.
    unary("Floor", np.floor, is_differentiable=False),
    unary("Ceil", np.ceil, is_differentiable=False),
    unary("Round", np.round, is_differentiable=False),
    *(
        unary(kind, reference, least, most, takes_whole=False)
        for kind, (reference, least, most) in FLOATING.items()
        if kind not in ("Log", "Sqrt", "StableReciprocal")
    ),
    binary("Add", np.add),
    binary("Subtract", np.subtract),
    binary("Multiply", np.multiply),
    binary("Divide", np.divide, least=0.3, ports=QUOTIENT, takes_whole=False),
    binary("FloorDivide", np.floor_divide, least=0.3, ports=QUOTIENT, is_differentiable=False),
    binary("Mod", np.mod, least=0.3, ports=QUOTIENT, is_differentiable=False),
    binary("Minimum", np.minimum),
    binary("Maximum", np.maximum),
    Case("Power", _power, lambda _, __, given: {"output": np.power(given["base"] + 0.0, given["exponent"])}),
    Case("Log", _log, lambda _, __, given: {"output": np.log(given["input"])}),
    Case("Sqrt", _sqrt, lambda _, __, given: {"output": np.sqrt(given["input"])}),
    Case("StableReciprocal", _reciprocal, lambda _, __, given: {"output": 1 / given["input"]}),
    Case("Clamp", _clamp, _clamp_reference),
    Case("NanToNum", _nan_to_num, _nan_to_num_reference, is_differentiable=False),
    Case(
        "MatrixMultiply",
        _matrix_multiply,
        lambda _, __, given: {"output": np.matmul(given["left"], given["right"])},
    ),
    # JAX computes with 32-bit integers in float32, in x64 mode too.
    Case("floating results of whole numbers", _of_whole, _of_whole_reference, tolerance64=1e-6),
]
