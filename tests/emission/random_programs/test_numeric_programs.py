"""Random programs over all dtypes, in every format except ONNX: JAX's results, or a refusal by name."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import mithril_nb as ml
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.ggml.emitter import emit_ggml
from mithril_nb.emission.python_text import load
from mithril_nb.errors import DataError, UnsupportedPrimitiveError
from tests.emission.c_running import run_c
from tests.emission.libraries import LACKING, LIBRARIES, to_library
from tests.random_numeric_programs import LARGE, LARGEST_OF_NAN, OUTSIDE, NumericProgram, programs
from tests.stress import Stress

FORMATS = [*(name for name in LIBRARIES if name not in LACKING), "jax", "c", "stablehlo"]
FORMATS += ["ggml"] if importlib.util.find_spec("ggml") else []
DOCUMENTED: dict[str, Sequence[str]] = {"ggml": (LARGE, LARGEST_OF_NAN, OUTSIDE)}
"""The differences that docs/export.md describes, by format."""


def results(program: NumericProgram, to: str, folder: Path) -> list[Any]:
    """Return the results of a program, written in a format."""
    with warnings.catch_warnings(action="ignore"):  # JAX warns about the conversion of a complex number
        inspection = ml.inspect(lambda *arguments: program(*arguments), *program.arguments)
        traced = inspection.traced_program
    if to == "c":
        return run_c(inspection, *program.arguments)
    if to == "stablehlo":
        names = {f"arguments_{index}": array for index, array in enumerate(program.arguments)}
        written = ml.export(inspection, folder / str(program.seed), inputs=names, to=to)
        return list(jax.export.deserialize(bytearray((written / "model.jax").read_bytes())).call(*program.arguments))
    function = load(emit_ggml(traced) if to == "ggml" else emit_arrays(traced, to))  # pyright: ignore[reportArgumentType]
    arguments = [to_library(to, array) for array in program.arguments]
    if to == "jax":
        arguments = [jax.numpy.asarray(array) for array in arguments]
    return [numpy_array(array) for array in function(*arguments)]


def numpy_array(array: Any) -> np.ndarray:
    """Return an array of a library; bfloat16, which only JAX knows, from its bits."""
    if str(array.dtype) in ("torch.bfloat16", "mlx.core.bfloat16"):
        array = array.view(importlib.import_module(type(array).__module__).int16)
        return np.asarray(array).view(jax.numpy.bfloat16)
    return np.asarray(array)


@pytest.mark.parametrize("to", FORMATS)
def test_random_programs_equal_jax_or_are_refused(to: str, stress: Stress, tmp_path: Path) -> None:
    wrong, refused = list[str](), 0
    count = stress.size(short=12, long=300)
    for program in programs(count):
        with warnings.catch_warnings(), jax.enable_x64(program.x64):
            warnings.simplefilter("ignore" if to == "ggml" else "error")  # NumPy warns where GGML's results differ
            try:
                found = results(program, to, tmp_path)
            except (UnsupportedPrimitiveError, DataError):  # safetensors has no complex128
                refused += 1
                continue
            wrong += program.wrong(found, DOCUMENTED.get(to, ()))
    stress.report(programs=count, refused=refused, wrong=len(wrong))
    assert wrong == []


@pytest.mark.parametrize("to", [to for to in FORMATS if to not in ("ggml", "stablehlo")])
def test_sums_in_a_wider_dtype_and_divisions_without_a_result(to: str, tmp_path: Path) -> None:
    least = np.int32(-(2**31))
    operands = np.array([least, 7, -7, least], "int32"), np.array([-1, 0, 0, 0], "int32")
    floats = np.array([np.nan, 300, -1.5, 1e20, -1e20, 2.9], "float32")
    hundreds, truths = np.full(2, 100, "int8"), np.array([True, False, True])
    outside = np.array([0, 9, 1], "int32")
    calls: dict[str, tuple[Any, tuple[Any, ...], list[Any]]] = {
        "product": (lambda x: lax.dot(x, x, preferred_element_type="int32"), (hundreds,), [20000]),
        "float product": (lambda x: lax.dot(x, x, preferred_element_type="float32"), (hundreds,), [20000]),
        "quotient": (lax.div, operands, [least, -1, -1, -1]),
        "remainder": (lax.rem, operands, [0, 7, -7, least]),
        "conversion": (lambda x: x.astype("int8"), (floats,), [0, 127, -1, 127, -128, 2]),
        "set": (lambda x, at: x.at[at].set(at > 0), (truths, outside), [False, True, True]),
        "taken": (
            lambda x, at: jnp.take(x, at, mode="fill", fill_value=False),
            (truths, outside),
            [True, False, False],
        ),
        "padded": (lambda x: lax.pad(x, False, [(1, 0, 1)]), (truths,), [False, True, False, False, False, True]),
    }
    for name, (function, arguments, expected) in calls.items():
        if to == "mlx" and name == "product":
            continue  # refused
        program = NumericProgram(0, [name], list(arguments), [], False, [])
        program.steps.append((function, [("argument", index) for index in range(len(arguments))]))
        (result,) = results(program, to, tmp_path)
        np.testing.assert_array_equal(np.ravel(result), expected, name)
        assert (np.asarray(result).dtype == bool) == isinstance(expected[0], bool), name
