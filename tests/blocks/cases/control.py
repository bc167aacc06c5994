"""Blocks of `models/control.py`; `tests/models/test_control.py` compares them with their bodies."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import Add, Cond, Model, Relu, Repeat, Scan, Tanh
from tests.blocks.case import Case, Draw, Drawn, arrays, few


def _scan(draw: Draw) -> Drawn:
    rows, columns = draw(few), draw(few)
    body = Model() | Add()(left="x", right="before", output="sum")
    given = {"x": draw(arrays((rows, columns))), "before": draw(arrays((columns,)))}
    return Scan(body, carry={"sum": "before"}, axis=0), given


def _repeat(draw: Draw) -> Drawn:
    return Repeat(Tanh(), draw(few), draw(st.booleans())), {"input": draw(arrays((draw(few), 3)))}


def _repeated(input: np.ndarray, count: int, is_shared: bool) -> np.ndarray:
    for _ in range(count):
        input = np.tanh(input)
    return input


def _cond(draw: Draw) -> Drawn:
    return Cond(Relu(), Tanh()), {"condition": np.asarray(draw(st.booleans())), "input": draw(arrays((2, 3)))}


CASES = [
    Case("Scan", _scan, lambda x, before: {"sum": before + x.sum(0)}),
    Case("Repeat", _repeat, _repeated),
    Case("Cond", _cond, lambda condition, input: np.maximum(input, 0) if condition else np.tanh(input)),
]
