"""Each operation of programs for GPUs and TPUs has a help text, and so have layouts and kinds of memory."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from mithril_nb.teach.explain_help import line_help, op_help
from mithril_nb.viz.pages.listing import listing_html, stage_data

pytestmark = pytest.mark.usefixtures("compilers")


def spec(*shape, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype)


def everything(x, indices, key):
    noise = jax.random.normal(key, x.shape)
    y = jax.lax.fori_loop(0, 3, lambda _, y: jnp.sort(jnp.cumsum(y @ x, axis=0)), x + noise)
    y = y.at[indices].add(jnp.exp(y[:9]) / jnp.sqrt(y[:9])) + jax.lax.erf(x) + jnp.arctan2(x, y)
    return jnp.linalg.solve(y, x), jnp.argmax(y, axis=1), jax.lax.top_k(y, 3), jax.lax.population_count(indices) % 7


def attention(q, k, v):
    return jnp.sum(jax.nn.dot_product_attention(q, k, v).astype("float32") ** 2)


HEADS = spec(2, 128, 4, 64, dtype="bfloat16")
PROGRAMS = {
    "everything": (everything, spec(64, 64), spec(9, dtype="int32"), spec(2, dtype="uint32")),
    "attention": (jax.grad(attention, (0, 1, 2)), HEADS, HEADS, HEADS),
    "float16": (lambda x: jax.nn.softmax(x @ x), spec(256, 256, dtype="float16")),
    "float32": (lambda x: jnp.tanh(x @ x).sum(0), spec(256, 256)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("device", ["h100", "v5e"])
def test_each_operation_has_help(name, device):
    function, *args = PROGRAMS[name]
    program = ml.inspect(function, *args, device=device)
    for stage in ("hlo", "launches", "llvm", "asm") if device == "h100" else ("hlo",):
        rows = program.stage(stage)
        assert rows.unavailable is None
        assert {row.opcode for row in rows.instructions if op_help(stage, row.opcode) is None} == set(), stage


def test_layouts_and_memories_of_a_tpu_are_explained():
    program = ml.inspect(lambda x, w: jnp.tanh(x @ w).sum(0), spec(64, 64, dtype="bfloat16"),
                         spec(64, 256, dtype="bfloat16"), device="v5e")  # fmt: skip
    stage = program.stage("hlo")
    lines = stage.text.splitlines()
    for row in stage.instructions:
        text, help = lines[row.line - 1], "\n".join(line_help("hlo", lines[row.line - 1]))
        for layout in re.findall(r"T\([\d,]+\)|S\(\d\)", text):
            assert f"{layout}: " in help
        if cycles := dict(row.attributes).get("estimated_cycles"):  # fusions inside fusions have none
            assert f"The compiler estimates {cycles} cycles." in help
    assert "The compiler estimates" in "\n".join(line_help("hlo", stage.text))
    assert "(2,1): 2 rows of a tile share words" in "\n".join(line_help("hlo", stage.text))
    assert "S(1): in VMEM" in listing_html(stage)
    patterns = dict(stage_data(program, stage)["patterns"])
    assert r"S\(1\)" in patterns
    assert r"S\(5\)" not in patterns


def test_tiles_of_triton():
    stage = ml.inspect(*PROGRAMS["float16"], device="h100").stage("hlo")
    assert re.search(r"kind=kCustom.*output_tile=\{[\d,]+\}, num_warps=\d", stage.text)
    assert "computes a tile of" in "\n".join(line_help("hlo", stage.text))
