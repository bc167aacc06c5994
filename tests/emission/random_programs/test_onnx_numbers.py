"""Random programs over all dtypes in onnxruntime: the results of JAX, or refused by name."""

from __future__ import annotations

import collections
import warnings

import jax

from mithril_nb.errors import UnsupportedPrimitiveError
from tests.emission.test_onnx import run_onnx
from tests.random_numeric_programs import programs
from tests.stress import Stress


def test_random_numbers_are_those_of_jax(stress: Stress) -> None:
    count, problems = stress.size(short=25, long=300), list[str]()
    outcomes: collections.Counter[str] = collections.Counter()
    for program in programs(count):
        with jax.enable_x64(program.x64), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of NumPy, for numbers that a dtype cannot hold
            try:
                wrong = program.wrong(run_onnx(program, *program.arguments))
            except UnsupportedPrimitiveError:
                outcomes["refused"] += 1
                continue
        outcomes["wrong" if wrong else "equal"] += 1
        problems += wrong
    stress.report(equal=outcomes["equal"], refused=outcomes["refused"], wrong=outcomes["wrong"])
    assert not problems, "\n".join(problems)
    assert outcomes["equal"] > count / 3
