"""Blocks of `models/control.py`; `tests/models/test_control.py` compares them with their bodies."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import Add, Cond, Model, Relu, Repeat, Scan, Tanh
from tests.blocks.case import Arrays, Case, arrays


def _total() -> Model:
    return Model() | Add()(left="x", right="before", output="sum")


def _scan(draw: st.DrawFn) -> tuple[Model, Arrays]:
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    given = {"x": draw(arrays((rows, columns))), "before": draw(arrays((columns,)))}
    return Scan(_total(), carry={"sum": "before"}, axis=0), given


def _repeat(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return Repeat(Tanh(), draw(st.integers(1, 4))), {"input": draw(arrays((draw(st.integers(1, 4)), 3)))}


def _repeat_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    x = inputs["input"]
    for _ in range(model.options["count"]):
        x = np.tanh(x)
    return {"output": x}


def _cond(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return Cond(Relu(), Tanh()), {"condition": np.asarray(draw(st.booleans())), "input": draw(arrays((2, 3)))}


def _cond_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    x = inputs["input"]
    return {"output": np.maximum(x, 0) if inputs["condition"] else np.tanh(x)}


CASES = [
    Case("Scan", _scan, lambda _, __, given: {"sum": given["before"] + given["x"].sum(0)}),
    Case("Repeat", _repeat, _repeat_reference),
    Case("Cond", _cond, _cond_reference),
]
