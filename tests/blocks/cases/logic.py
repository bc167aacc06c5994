"""Blocks of `models/library/operations/logic.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import KINDS, IsNan, LogicalNot, Model, Where
from tests.blocks.case import Arrays, Case, arrays
from tests.blocks.cases.arithmetic import paired, sometimes_empty, truths, whole


def _binary(kind: str, reference: Callable[..., Any], draw_one: Callable[..., Any], *ports: str) -> Case:
    def drawn(draw: st.DrawFn) -> tuple[Model, Arrays]:
        return KINDS[kind](), {port: draw_one(draw, shape) for port, shape in zip(ports, paired(draw), strict=True)}

    def compute(model: Model, params: Arrays, inputs: Arrays) -> dict[str, Any]:
        return {"output": reference(*(inputs[port] for port in ports))}

    return Case(kind, drawn, compute, is_differentiable=False)


def _few(draw: st.DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    """Draw numbers with many duplicates, some of them NaN."""
    values = whole(draw, shape, -1, 2)
    if draw(st.booleans()):
        return values
    return np.where(values == 2, np.nan, values / 2)


def _is_nan(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return IsNan(), {"input": _few(draw, sometimes_empty(draw))}


def _not(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return LogicalNot(), {"input": truths(draw, sometimes_empty(draw))}


def _shift(kind: str, reference: Callable[..., Any]) -> Case:
    def drawn(draw: st.DrawFn) -> tuple[Model, Arrays]:
        one, other = paired(draw)
        return KINDS[kind](), {"input": whole(draw, one, -(2**20), 2**20), "shift": whole(draw, other, 0, 10)}

    def compute(model: Model, params: Arrays, inputs: Arrays) -> dict[str, Any]:
        return {"output": reference(inputs["input"].astype("int32"), inputs["shift"].astype("int32"))}

    return Case(kind, drawn, compute, is_differentiable=False)


def _where(draw: st.DrawFn) -> tuple[Model, Arrays]:
    cond, one, other = paired(draw, 3)
    return Where(), {
        "cond": truths(draw, cond),
        "input1": draw(arrays(one)) if draw(st.booleans()) else whole(draw, one),
        "input2": draw(arrays(other)) if draw(st.booleans()) else truths(draw, other),
    }


BOTH = ("left", "right")
CASES = [
    _binary("Greater", np.greater, _few, *BOTH),
    _binary("Less", np.less, _few, *BOTH),
    _binary("GreaterEqual", np.greater_equal, _few, *BOTH),
    _binary("LessEqual", np.less_equal, _few, *BOTH),
    _binary("Equal", np.equal, _few, *BOTH),
    _binary("NotEqual", np.not_equal, _few, *BOTH),
    _binary("LogicalAnd", np.logical_and, truths, *BOTH),
    _binary("LogicalOr", np.logical_or, truths, *BOTH),
    _binary("LogicalXOr", np.logical_xor, truths, *BOTH),
    Case("IsNan", _is_nan, lambda _, __, given: {"output": np.isnan(given["input"])}, is_differentiable=False),
    Case("LogicalNot", _not, lambda _, __, given: {"output": ~given["input"]}, is_differentiable=False),
    _shift("ShiftLeft", np.left_shift),
    _shift("ShiftRight", np.right_shift),
    Case(
        "Where",
        _where,
        lambda _, __, given: {"output": np.where(given["cond"], given["input1"], given["input2"])},
    ),
]
