"""Blocks of `models/library/operations/generators.py`, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import KINDS, Arange
from tests.blocks.case import Case, Draw, Drawn, on

_shape = st.lists(st.integers(0, 4), max_size=4).map(tuple)
_dtype = st.sampled_from((None, "int32", "float32", "float16"))


def _of_shape(kind: str, *more: st.SearchStrategy[Any]) -> Callable[[Draw], Drawn]:
    return lambda draw: (KINDS[kind](draw(_shape), *map(draw, more), dtype=draw(_dtype)), {})


def _random(kind: str, *more: Any) -> Case:
    return Case(kind, lambda draw: (KINDS[kind](draw(_shape), *more, key=draw(st.sampled_from((None, 7)))), {}), None)


def _matrix(kind: str) -> Callable[[Draw], Drawn]:
    size = st.integers(0, 4)
    return lambda draw: (KINDS[kind](draw(size), draw(st.none() | size), draw(_dtype)), {})


def _arange(draw: Draw) -> Drawn:
    # Integers and halves, which every dtype represents exactly.
    number = st.integers(-6, 6) | st.integers(-12, 12).map(lambda n: n / 2)
    step = draw(number.filter(bool))
    return Arange(draw(number), draw(number), step), {}


CASES = [
    Case("Ones", _of_shape("Ones"), np.ones),
    Case("Zeros", _of_shape("Zeros"), np.zeros),
    Case("Full", _of_shape("Full", st.sampled_from((2.0, -1.0))), np.full),
    Case("ZerosLike", on("ZerosLike"), np.zeros_like),
    Case("OnesLike", on("OnesLike"), np.ones_like),
    Case("Eye", _matrix("Eye"), lambda N, M: np.eye(N, M)),
    Case("EyeComplement", _matrix("EyeComplement"), lambda N, M: 1 - np.eye(N, M)),
    Case("Arange", _arange, np.arange),
    _random("Randn"),
    _random("PrimitiveRandn"),
    _random("RandInt", 0, 5),
    _random("PrimitiveRandInt", -3, 5),
]
