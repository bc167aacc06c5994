"""Blocks of `models/library/operations/generators.py`, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import (
    Arange,
    Eye,
    EyeComplement,
    Full,
    Model,
    Ones,
    OnesLike,
    PrimitiveRandInt,
    PrimitiveRandn,
    RandInt,
    Randn,
    Zeros,
    ZerosLike,
)
from tests.blocks.case import Arrays, Case, arrays, shapes

Drawn = tuple[Model, Arrays]
_shape = st.lists(st.integers(0, 4), max_size=4).map(tuple)
_dtype = st.sampled_from((None, "int32", "float32", "float16"))


def _of_shape(block: type[Model], *more: st.SearchStrategy[Any]) -> Callable[[st.DrawFn], Drawn]:
    return lambda draw: (block(draw(_shape), *(draw(one) for one in more), dtype=draw(_dtype)), {})


def _random(block: type[Model], *more: Any) -> Callable[[st.DrawFn], Drawn]:
    return lambda draw: (block(draw(_shape), *more, key=draw(st.sampled_from((None, 7)))), {})


def _matrix(block: type[Model]) -> Callable[[st.DrawFn], Drawn]:
    size = st.integers(0, 4)
    return lambda draw: (block(draw(size), draw(st.none() | size), draw(_dtype)), {})


def _arange(draw: st.DrawFn) -> Drawn:
    # Integers and halves, which every dtype represents exactly.
    number = st.integers(-6, 6) | st.integers(-12, 12).map(lambda n: n / 2)
    step = draw(number.filter(bool))
    return Arange(draw(number), draw(number), step), {}


def _row(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    return {"output": np.arange(*(model.options[bound] for bound in ("start", "stop", "step")))}


def _like(block: type[Model]) -> Callable[[st.DrawFn], Drawn]:
    return lambda draw: (block(), {"input": draw(arrays(draw(shapes)))})


def _eye(model: Model) -> np.ndarray:
    return np.eye(model.options["N"], model.options["M"])


CASES = [
    Case("Ones", _of_shape(Ones), lambda model, _, __: {"output": np.ones(model.options["shape"])}),
    Case("Zeros", _of_shape(Zeros), lambda model, _, __: {"output": np.zeros(model.options["shape"])}),
    Case(
        "Full",
        _of_shape(Full, st.sampled_from((2.0, -1.0))),
        lambda model, _, __: {"output": np.full(model.options["shape"], model.options["value"])},
    ),
    Case("ZerosLike", _like(ZerosLike), lambda _, __, given: {"output": np.zeros(given["input"].shape)}),
    Case("OnesLike", _like(OnesLike), lambda _, __, given: {"output": np.ones(given["input"].shape)}),
    Case("Eye", _matrix(Eye), lambda model, _, __: {"output": _eye(model)}),
    Case("EyeComplement", _matrix(EyeComplement), lambda model, _, __: {"output": 1 - _eye(model)}),
    Case("Arange", _arange, _row),
    Case("Randn", _random(Randn), None),
    Case("PrimitiveRandn", _random(PrimitiveRandn), None),
    Case("RandInt", _random(RandInt, 0, 5), None),
    Case("PrimitiveRandInt", _random(PrimitiveRandInt, -3, 5), None),
]
