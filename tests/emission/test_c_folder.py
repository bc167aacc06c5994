"""A folder with a C program: it checks its own results, and is clean under the sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.emission.c.folder import folder_files
from mithril_nb.inspection import Inspection
from tests.emission import test_c
from tests.emission.c_running import emitted
from tests.emission.evaluating import random_arrays, traced_program
from tests.emission.test_program import PROGRAMS
from tests.references import run_quickly


def write(folder: Path, inspection: Inspection, arrays: Any) -> str:
    """Write the folder of a program and return its name."""
    program = traced_program(inspection)
    expected = run_quickly(program.trace.call(program.trace.closed), *arrays)
    file = emitted(inspection)
    leaves = [np.asarray(one) for one in jax.tree.leaves(arrays)]
    results = [np.asarray(one) for one in jax.tree.leaves(expected)]
    params = [bool(one.is_param) for one in program.inputs]
    for name, content in folder_files(file, leaves, results, params).items():
        (folder / name).write_bytes(content)
    return file.name


def make(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *options], cwd=folder, capture_output=True, text=True, timeout=300)


SANITIZED = "CFLAGS=-O1 -g -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
CASES = {
    **{name: PROGRAMS[name] for name in ("cnn", "transformer", "loops")},
    **{
        name: lambda name=name: ml.inspect(*test_c.PARTS[name])
        for name in ("indexing", "integers", "orders", "control", "windows", "convolutions")
    },
}


@pytest.mark.parametrize("name", CASES)
def test_sanitizers_find_nothing(name: str, tmp_path: Path) -> None:
    inspection = CASES[name]()
    arrays = (test_c.PARTS[name][1],) if name in test_c.PARTS else random_arrays(inspection.arguments)
    write(tmp_path, inspection, arrays)
    done = make(tmp_path, "test", SANITIZED)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_result_fails(tmp_path: Path) -> None:
    inspection = PROGRAMS["mlp"]()
    name = write(tmp_path, inspection, random_arrays(inspection.arguments))
    assert make(tmp_path, "test", "CFLAGS=-O0 -Wall -Wextra -Werror").returncode == 0
    content = bytearray((tmp_path / "expected.bin").read_bytes())
    content[-1] ^= 0x40
    (tmp_path / "expected.bin").write_bytes(content)
    done = make(tmp_path, "test")
    assert done.returncode != 0
    assert "differs" in done.stdout
    (tmp_path / "weights.bin").write_bytes(b"nothing")
    assert "weights.bin is missing, or not a file of arrays" in make(tmp_path, "test").stderr
    assert (tmp_path / f"{name}.h").exists()
