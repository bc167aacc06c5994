"""The machine code of NVIDIA GPUs, by NVIDIA's own tools."""

from __future__ import annotations

import os
import re

import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from mithril_nb.hardware import compiler_of
from mithril_nb.teach.explain_help import op_help

pytestmark = pytest.mark.usefixtures("compilers")


def step(x, w):
    with jax.named_scope("product"):
        y = x @ w
    with jax.named_scope("norm"):
        y = y / jnp.sqrt(jnp.sum(y * y, axis=1, keepdims=True))
    return jnp.sort(jax.nn.gelu(y), axis=0)


@pytest.fixture(scope="module")
def program(compilers):
    spec = jax.ShapeDtypeStruct((256, 256), "bfloat16")
    return ml.inspect(step, spec, spec, device="h100")


def test_instructions_are_those_of_the_kernels(program):
    sass, asm = program.stage("sass"), program.stage("asm")
    assert sass.unavailable is None
    heads = {row.id: row for row in asm.instructions if row.opcode == "kernel"}
    rows = {row.id: row for row in sass.instructions if row.opcode == "kernel"}
    assert rows.keys() == heads.keys() == program.kernels.keys()
    for name, row in rows.items():
        assert (row.equations, row.shares, row.source) == (
            heads[name].equations,
            heads[name].shares,
            heads[name].source,
        )
    opcodes = {row.opcode.partition(".")[0] for row in sass.instructions}
    assert {"LDG", "STG", "EXIT", "HMMA"} <= opcodes
    assert {row.opcode for row in sass.instructions if op_help("sass", row.opcode) is None} == set()


def test_each_line_has_its_ptx(program):
    text = program.stage("sass").text
    pairs = re.findall(r"^  [\da-f]{4,}  (?:@!?\w+ )?([A-Z]\w*).*  // (.+)$", text, re.MULTILINE)
    ptx = program.stage("asm").text
    assert all(opcode in ptx for _, origin in pairs for opcode in origin.split(", "))
    assert {origin.rpartition(", ")[2].partition(".")[0] for opcode, origin in pairs if opcode == "LDG"} == {"ld"}
    assert {origin.partition(".")[0] for opcode, origin in pairs if opcode == "HMMA"} == {"mma"}
    assert {origin.partition(".")[0] for opcode, origin in pairs if opcode == "EXIT"} <= {"ret", "bra", "st"}
    assert len(re.findall(r"  // \d+ registers, \d+ bytes of spills", text)) == len(program.kernels)


def test_without_tools(monkeypatch, tmp_path, program):
    kernel = next(iter(program.kernels.values()))
    monkeypatch.setenv("MITHRIL_NB_COMPILERS", str(tmp_path))
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setattr("pathlib.Path.glob", lambda self, pattern: iter(()))
    compiler_of.cache_clear()
    try:
        with pytest.raises(ml.errors.UnavailableBackendError, match="Try: mithril-nb devices install sass"):
            _ = kernel.sass
    finally:
        monkeypatch.undo()
        compiler_of.cache_clear()


def test_tools_that_are_too_old(monkeypatch, tmp_path, program):
    kernel = next(iter(program.kernels.values()))
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\necho 'ptxas fatal: Unsupported .version 8.8; current version is 7.0' >&2\nexit 255\n")
    tool.chmod(0o755)
    monkeypatch.setattr("mithril_nb.stages.xla.sass.cuda_tool", lambda name: str(tool))
    with pytest.raises(ml.errors.StageUnavailableError, match=r"Unsupported \.version"):
        _ = kernel.sass


def test_only_on_request_and_only_for_nvidia(program):
    assert "sass" in program.every_stage
    assert "sass" not in program.stages
    assert "have no SASS" in ml.inspect(jnp.tanh, 1.0).stage("sass").unavailable
