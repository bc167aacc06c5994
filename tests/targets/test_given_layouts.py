"""Programs in every layout that XLA and MLIR read: line breaks, comments, encodings, missing headers."""

from __future__ import annotations

import codecs
import random
import re
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_programs import spec

import mithril_nb as ml
from mithril_nb.stages.hlo.optimized import read_hlo
from mithril_nb.stages.trace.provenance.scopes import Tags
from tests.targets.given_programs import refused


def _net(w, x):
    with jax.named_scope("net"):
        return jnp.tanh(jax.nn.softmax(x @ w) @ w).sum()


def _loop(x):
    return lax.scan(lambda carry, row: (jnp.cumsum(carry + row), carry.sum()), jnp.zeros(4), x)


PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "net": (jax.grad(_net), (spec(4, 4), spec(3, 4))),
    "loop": (_loop, (spec(5, 4),)),
    "backward loop": (jax.grad(lambda x: _loop(x)[1].sum()), (spec(5, 4),)),
    "branch": (lambda x: lax.cond(x.sum() > 0, jnp.sin, lax.sort, x), (spec(5),)),
    "convolution": (lambda x, k: lax.conv(x, k, (2, 2), "SAME"), (spec(1, 3, 8, 8), spec(2, 3, 3, 3))),
    "random": (lambda seed: jax.random.normal(jax.random.key(seed), (3,)), (spec(dtype="uint32"),)),
    "constant": (lambda x: x * jnp.arange(1.0, 8.0) + jnp.array([[1.5], [2.5]]), (spec(7),)),
    "pool": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), "SAME"), (spec(4, 6),)),
    "gather": (lambda x, at: x.at[at].add(2.0)[at], (spec(9, 2), spec(3, dtype="int32"))),
    "complex": (lambda x: jnp.fft.fft(x) * 2j, (spec(8, dtype="complex64"),)),
}


@cache
def _module(name: str, kind: str) -> str:
    fn, args = PROGRAMS[name]
    lowered = jax.jit(fn).lower(*args)
    if kind == "compiled":
        return lowered.compile().as_text() or ""
    return lowered.as_text("hlo" if kind == "before" else None, debug_info=True)


@cache
def _figures(text: str | bytes) -> Any:
    """Return the instructions and costs of a program: everything except the order of the lines."""
    found = ml.inspect(text)
    assert found.given is not None
    stage, cost = found.stage(found.given.stages[0]), found.cost(source=found.given.sources[0])
    instructions = {
        (one.id, one.opcode, one.shapes, one.operands, one.attributes, one.shares, one.source)
        for one in stage.instructions
    }
    rows = {(row.id, row.formula, row.flops, row.bytes_accessed, row.transcendentals) for row in cost.rows}
    return instructions, rows, cost.total, cost.by_block, cost.by_line


SPACES = (" ", " ", "\n", "\n\n\t", "\r\n    ")
_PIECE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|\s+|/\*.*?\*/|[^\s"/]+|/')


def _reformatted(text: str, rng: random.Random, comments: tuple[str, ...]) -> str:
    """Return the text with random white space and comments between its words."""
    spaces = (*SPACES, *comments)
    words = [rng.choice(spaces) if piece.isspace() else piece for piece in _PIECE.findall(text)]
    words = [
        re.sub(r"(?<=\w)\((?=%|\w+\))|(?<=\w)\),(?=$)", lambda match: f"{match[0]}{rng.choice(spaces)}", word)
        if rng.random() < 0.5 and not word.startswith('"')
        else word
        for word in words
    ]
    return "".join(words)


@pytest.mark.parametrize("kind", ["compiled", "before", "stablehlo"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_layout_of_a_text_changes_no_row(name: str, kind: str) -> None:
    text = _module(name, kind)
    comments = (" // note\n",) if kind == "stablehlo" else (" /* note { */ ", " // note = (\n")
    for seed in range(4):
        assert _figures(_reformatted(text, random.Random(seed), comments)) == _figures(text)


@pytest.mark.parametrize("kind", ["compiled", "before", "stablehlo"])
def test_encodings_and_generic_forms(kind: str) -> None:
    text = _module("backward loop", kind)
    wanted = _figures(text)
    for data in (
        f"\ufeff{text}", text.encode("utf-8-sig"), text.encode("utf-16"), text.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + text.encode("utf-16-be"), text.encode("utf-16-be"), text.replace("\n", "\r\n"),
    ):  # fmt: skip
        assert _figures(data) == wanted
    if kind == "stablehlo":
        fn, args = PROGRAMS["backward loop"]
        module: Any = jax.jit(fn).lower(*args).compiler_ir()
        generic = module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True)
        assert "stablehlo.add %" not in generic
        assert _figures(generic) == wanted


BODY = "%x = f32[4,4] parameter(0)\n ROOT %y = f32[4,4] dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"


@pytest.mark.parametrize(
    "text",
    [
        f"ENTRY %e {{ {BODY} }}", f"HloModule m\n %e {{ {BODY} }}", f"e {{ {BODY} }}".replace("%", ""),
        f"/* a\n b */ // c\nHloModule m, is_scheduled=true ENTRY e\n{{ {BODY}\n}} // end",
        "%y = f32[4,4] dot(f32[4,4] %x, f32[4,4] %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ],
)  # fmt: skip
def test_modules_without_a_header_and_on_one_line(text: str) -> None:
    cost = ml.inspect(text).cost()
    assert (cost.total.flops, cost.unknown) == (128, ())


def test_text_that_cannot_be_read_is_refused_with_its_line() -> None:
    for old, new in (("dot(", "fancy-dot("), ("lhs_contracting_dims", "unheard_of")):
        message = refused(f"HloModule m\nENTRY %e {{ {BODY.replace(old, new)} }}")
        assert "it is not HLO that JAX" in message
        assert "was parsing 3:" in message
    line = "  %y = f32[4,4] ~~ new form ~~"
    text = f"HloModule m\n\nENTRY %e (x: f32[4,4]) -> f32[4,4] {{\n  %x = f32[4,4] parameter(0)\n{line}\n}}"
    _, instructions = read_hlo(text, Tags(set()), {}, {})
    assert [one.opcode for one in instructions] == ["parameter", "unreadable"]
