"""The code of Pallas kernels for TPUs, with the equation of each line."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import mithril_nb as ml
from mithril_nb.teach.explain_help import op_help

pytestmark = pytest.mark.usefixtures("compilers")


def spec(*shape, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype)


def summed(x_ref, scale_ref, out_ref, sum_ref):
    sum_ref[...] = jnp.zeros_like(sum_ref)

    def add(index, _):
        with jax.named_scope("adds"):
            sum_ref[...] += x_ref[index] * scale_ref[0]
        return 0

    jax.lax.fori_loop(0, 8, add, 0)
    out_ref[...] = jnp.tanh(sum_ref[...])

    @pl.when(pl.program_id(0) == 1)
    def _():
        out_ref[0] = out_ref[0] - 1


def program(x, scale, w):
    def step(total, scale):
        with jax.named_scope("kernel"):
            y = pl.pallas_call(
                summed,
                grid=(2,),
                in_specs=[pl.BlockSpec((8, 128, 128), lambda i: (0, i, 0)), pl.BlockSpec(memory_space=pltpu.SMEM)],
                out_specs=pl.BlockSpec((128, 128), lambda i: (i, 0)),
                out_shape=jax.ShapeDtypeStruct((256, 128), "float32"),
                scratch_shapes=[pltpu.VMEM((128, 128), "float32")],
            )(x, scale)
        with jax.named_scope("product"):
            return total + y @ w, None

    return jax.lax.scan(step, jnp.zeros((256, 64)), scale)[0]


@pytest.fixture(scope="module")
def inspection(compilers):
    return ml.inspect(program, spec(8, 256, 128), spec(3, 1), spec(128, 64), device="v5e")


def test_each_line_of_a_kernel_has_its_equation(inspection):
    stage = inspection.stage("mosaic")
    equations = {row.id: row for row in inspection.equations}
    of = {opcode: {equations[id].primitive for row in stage.instructions if row.opcode == opcode
                   for id in row.equations} for opcode in {row.opcode for row in stage.instructions}}  # fmt: skip
    assert of["math.tanh"] == {"tanh"}
    assert of["arith.mulf"] == {"mul"}
    assert of["arith.subf"] == {"sub"}
    assert of["tpu.vector_store"] == {"swap"}
    assert of["scf.if"] == {"cond"}
    assert of["kernel"] == of["func.func"] == {"pallas_call"}
    inside = {id for id, row in equations.items() if "pallas" in row.transforms}
    assert {id for row in stage.instructions for id in row.equations if id in inside} >= {
        id for id in inside if equations[id].primitive in ("tanh", "mul", "swap", "get", "sub")
    }
    assert {path.partition("/")[0] for row in stage.instructions for path, _ in row.shares} == {"kernel"}
    assert all(row.shares for row in stage.instructions)


def test_lines_of_python(inspection):
    stage, source = inspection.stage("mosaic"), inspection.stage("python").text.splitlines()
    (tanh,) = (row for row in stage.instructions if row.opcode == "math.tanh")
    line = int(tanh.source[0].rpartition(":")[2])
    assert "jnp.tanh" in Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1]
    assert any("jnp.tanh" in text for text in source)
    assert tanh.id in inspection.links("python", "mosaic")[next(
        row.id for row in inspection.stage("python").instructions if "jnp.tanh" in source[row.line - 1]
    )]  # fmt: skip


def test_text(inspection):
    stage = inspection.stage("mosaic")
    lines = stage.text.splitlines()
    assert stage.text.count("func.func @summed") == 1
    assert inspection.traced_program.tags.marker not in stage.text
    assert 'message = "adds"' in stage.text
    for row in stage.instructions[1:]:
        assert row.opcode in lines[row.line - 1]
    assert {row.opcode for row in stage.instructions if op_help("mosaic", row.opcode) is None} == set()
    assert "S(6)" in inspection.stage("hlo").text  # where the operand in SMEM is


def test_programs_without_kernels():
    assert "no Pallas kernel" in ml.inspect(jnp.tanh, spec(3), device="v5e").stage("mosaic").unavailable
    assert "have no Pallas kernels" in ml.inspect(jnp.tanh, spec(3)).stage("mosaic").unavailable
