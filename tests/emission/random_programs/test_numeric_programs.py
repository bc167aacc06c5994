"""Random programs over all dtypes, in every format except ONNX: JAX's results, or a refusal by name."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.ggml.emitter import emit_ggml
from mithril_nb.emission.python_text import load
from mithril_nb.errors import UnsupportedPrimitiveError
from tests.emission.c_running import run_c
from tests.emission.libraries import LACKING, LIBRARIES, to_library
from tests.random_numeric_programs import NumericProgram, programs
from tests.stress import Stress

FORMATS = (*(name for name in LIBRARIES if name not in LACKING), "jax", "c", "ggml", "stablehlo")
DOCUMENTED: dict[str, Sequence[str]] = {}
"""The differences that docs/export.md describes, by format."""


def results(program: NumericProgram, to: str, folder: Path) -> list[Any]:
    """Return the results of a program, written in a format."""
    with warnings.catch_warnings(action="ignore"):  # JAX warns about the conversion of a complex number
        inspection = ml.inspect(lambda *arguments: program(*arguments), *program.arguments)
        traced = inspection.traced_program
    if to == "c":
        return run_c(inspection, *program.arguments)
    if to == "stablehlo":
        written = ml.export(inspection, folder / str(program.seed), inputs=dict(enumerate(program.arguments)), to=to)
        return jax.export.deserialize(bytearray((written / "model.jax").read_bytes())).call(*program.arguments)
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
            warnings.simplefilter("error")
            try:
                found = results(program, to, tmp_path)
            except UnsupportedPrimitiveError:
                refused += 1
                continue
            wrong += program.wrong(found, DOCUMENTED.get(to, ()))
    stress.report(programs=count, refused=refused, wrong=len(wrong))
    assert wrong == []
