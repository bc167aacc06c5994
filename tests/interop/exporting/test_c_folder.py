"""A folder with a C program: it checks its own results, and is clean under the sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import mithril_nb as ml
from tests.emission import test_c
from tests.emission.test_program import PROGRAMS


def make(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *options], cwd=folder, capture_output=True, text=True, timeout=300)


SANITIZED = "CFLAGS=-O1 -g -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
CASES = {
    **{name: lambda name=name: (PROGRAMS[name](),) for name in ("cnn", "transformer", "loops")},
    **{
        name: lambda name=name: test_c.PARTS[name]
        for name in ("indexing", "integers", "orders", "control", "windows", "convolutions")
    },
}


@pytest.mark.parametrize("name", CASES)
def test_sanitizers_find_nothing(name: str, tmp_path: Path) -> None:
    target, *arguments = CASES[name]()
    ml.export(target, tmp_path, *arguments, to="c")
    done = make(tmp_path, "test", SANITIZED)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_result_fails(tmp_path: Path) -> None:
    ml.export(PROGRAMS["mlp"](), tmp_path, to="c")
    assert make(tmp_path, "test", "CFLAGS=-O0 -Wall -Wextra -Werror").returncode == 0
    content = bytearray((tmp_path / "expected.bin").read_bytes())
    content[-1] ^= 0x40
    (tmp_path / "expected.bin").write_bytes(content)
    done = make(tmp_path, "test")
    assert done.returncode != 0
    assert "differs" in done.stdout
    (tmp_path / "weights.bin").write_bytes(b"nothing")
    assert "weights.bin is missing, or not a file of arrays" in make(tmp_path, "test").stderr
    assert (tmp_path / "model.h").exists()
