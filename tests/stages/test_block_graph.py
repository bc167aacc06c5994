"""The logical graph as an outline: every block on one line, in order, with its inputs, under any name."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax_programs import block, spec

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.graph.block_graph import outline
from mithril_nb.stages.records import Instruction


def graph(fn, *args):
    return inspect(fn, *args).stage("graph")


def feeds(stage) -> dict[str, tuple[str, ...]]:
    return {one.id: one.operands for one in stage.instructions}


def test_nested_blocks_and_a_skip_connection():
    def fn(x):
        with block("first"):
            x = x * 2.0
        with block("net/branch/deep"):
            y = jnp.tanh(x)
        with block("net/add"):
            y = x + y
        with block("last"):
            return y.sum()

    stage = graph(fn, spec(2, 3))
    assert stage.text == (
        "block     gives     equations\n"
        "first     f32[2,3]  1 forward\n"
        "net       f32[2,3]  2 forward\n"
        "  branch  f32[2,3]  1 forward\n"
        "    deep  f32[2,3]  1 forward\n"
        "  add     f32[2,3]  1 forward\n"
        "last      f32[]     1 forward\n"
    )
    assert feeds(stage) == {
        "first": (), "net": ("first",), "net/branch": (), "net/branch/deep": (), "net/add": ("net/branch",),
        "last": ("net",),
    }  # fmt: skip
    assert [one.line for one in stage.instructions] == [2, 3, 4, 5, 6, 7]


def test_a_block_in_a_scan_is_one_block():
    def fn(x, xs):
        def cell(carry, x):
            with block("cell"):
                carry = jnp.tanh(carry + x)
            return carry, carry

        with block("net"):
            return jax.lax.scan(cell, x, xs)[1].sum()

    stage = graph(fn, spec(3), spec(5, 3))
    assert [one.id for one in stage.instructions] == ["net", "net/cell"]
    cell = stage.instructions[1]
    assert len(cell.equations) == 2
    assert cell.role == "forward"


@pytest.mark.parametrize("name", ["größe 日本", "<b>&amp;'\"", "a b", "x" * 99, "{0} %s", "100%"])
def test_any_name_is_data(name):
    stage = graph(lambda x: named(name, x), spec(2))
    assert [one.id for one in stage.instructions] == [name]
    assert stage.text.splitlines()[1].startswith(name)


def named(name, x):
    with block(name):
        return jnp.sin(x)


def test_names_take_one_line_without_escape_codes():
    text, found = outline([made("0", "one\ntwo"), made("1", "\x1b[31mred")], [], {"one\ntwo": "a\nkind"})
    assert text == (
        "block        kind     equations\n"
        "one\\ntwo     a\\nkind  1 forward\n"
        "\\x1b[31mred           1 forward\n"
    )  # fmt: skip
    assert [(one.id, one.line) for one in found] == [("one\ntwo", 2), ("\x1b[31mred", 3)]


def made(id, path) -> Instruction:
    return Instruction(id, "sin", 1, (id,), ((path, 1.0),), "forward", "tagged")


def test_program_without_blocks_has_only_a_head():
    assert outline([], [], {}) == ("block  equations\n", ())


def test_roles_are_counted_separately():
    parts = [
        Instruction("0", "dot", 1, ("0",), (("net", 1.0),), "forward", "tagged"),
        Instruction("1", "dot", 2, ("1",), (("net", 1.0),), "backward", "tagged"),
        Instruction("2", "sub", 3, ("2",), (("net", 1.0),), None, "tagged"),
        Instruction("10", "call", 4, ("10",), (("net", 1.0),), "forward", "tagged"),
    ]
    text, (net,) = outline(parts, ["10"], {"net": "Linear"})
    assert text.splitlines()[1] == "net    Linear  1 forward · 1 backward · 1 other"
    assert (net.opcode, net.equations, net.role) == ("Linear", ("0", "1", "2", "10"), None)


def test_loss_result_has_no_user():
    def program(w, x):
        with jax.named_scope("hidden"):
            hidden = jnp.tanh(x @ w)
        with jax.named_scope("loss"):
            return (hidden**2).mean()

    text = inspect(jax.grad(program), spec(4, 3), spec(2, 4)).stage("graph").text
    gives = {line.split()[0]: line.split()[1] for line in text.splitlines()[1:]}
    assert gives == {"hidden": "f32[2,3]", "loss": "f32[]"}
