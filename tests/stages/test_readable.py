"""Readable HLO: short, with the same operations, and each line has its block."""

from __future__ import annotations

from collections import Counter
from functools import cache

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax_programs import EVERYTHING_PARAMS, everything, programs, spec
from parsed_hlo import operations, parse

from mithril_nb.stages.hlo.readable import python_names, readable
from mithril_nb.stages.hlo.text import read_module


def _control(x):
    x = lax.cond(x.sum() > 0, jnp.sin, lambda x: x * 2, x)
    x = lax.while_loop(lambda x: x.sum() < 3, lambda x: x + 1, x)
    x = lax.switch(jnp.int32(x.sum()), [jnp.sin, jnp.cos, jnp.exp], x)
    return jnp.sort(x), jnp.argmax(x), jnp.zeros(5).at[jnp.array([0, 1])].add(x[:2])


def _lstm(params, sequence):
    def cell(carry, x):
        state, memory = carry
        gates = jnp.concatenate([x, state], -1) @ params["w"] + params["b"]
        keep, write, read, new = jnp.split(gates, 4, -1)
        memory = jax.nn.sigmoid(keep) * memory + jax.nn.sigmoid(write) * jnp.tanh(new)
        state = jax.nn.sigmoid(read) * jnp.tanh(memory)
        return (state, memory), state

    zeros = jnp.zeros((sequence.shape[1], 8))
    return lax.scan(cell, (zeros, zeros), sequence)[1].sum()


def _linear_algebra(a, b, key):
    return jnp.linalg.solve(a, b), jnp.linalg.eigh(a), jnp.fft.fft(b[:, 0]), jax.random.normal(key, (9,))


PROGRAMS = {name: made for name, made in programs().items() if "train step" in name or name == "mlp forward"} | {
    "control flow": (_control, (spec(7),)),
    "everything": (everything, (EVERYTHING_PARAMS, spec(3, 7))),
    "lstm gradient": (jax.grad(_lstm), ({"w": spec(12, 32), "b": spec(32)}, spec(10, 4, 4))),
    "linear algebra": (_linear_algebra, (spec(4, 4), spec(4, 2), spec(2, dtype="uint32"))),
}


@cache
def _module(name):
    fn, args = PROGRAMS[name]
    return jax.jit(fn).lower(*args).compile().as_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_readable_text_parses_to_the_same_operations(name):
    module = _module(name)
    short = readable(module)
    assert len(short.text) <= 0.4 * len(module)
    assert parse(short.text) == operations(module)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_operation_of_the_module_is_lost(name):
    """Compare with the operations of the module, counted independently."""
    _, computations = read_module(_module(name))
    found = Counter((one.opcode, one.results, one.is_root) for body in operations(_module(name)) for one in body)
    there = Counter((line.opcode, line.shapes, line.is_root) for body in computations for line in body.instructions)
    # Only computations shown as a word are missing: two parameters and one operation on numbers.
    left = there - found
    assert found <= there
    assert all(not sizes for _, shapes, _ in left for _, sizes in shapes)
    words = [
        word for body in operations(_module(name)) for one in body for _, word in one.runs if isinstance(word, str)
    ]
    assert sum(left.values()) <= 3 * len(words)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_instruction_is_on_its_line(name):
    module = _module(name)
    short = readable(module)
    lines = short.text.split("\n")
    opcodes = {line.name: line.opcode for body in read_module(module)[1] for line in body.instructions}
    first = {}
    for number, instruction in short.lines:
        first.setdefault(number, instruction)
        assert instruction in opcodes
    shown = Counter(instruction for _, instruction in short.lines)
    assert set(shown.values()) == {1}
    for number, instruction in first.items():
        opcode, line = opcodes[instruction], lines[number - 1]
        assert opcode in ("get-tuple-element", "parameter") or f" {opcode}(" in f" {line.strip()}"
    assert len(shown) == sum(map(len, operations(module)))


def test_python_names_and_inline_fusion_bodies():
    module = """\
HloModule jit_fn, is_scheduled=true, entry_computation_layout={(f32[4]{0}, f32[3,4]{1,0}, f32[2,3]{1,0})->f32[2]{0}}

%region_0.1 (reduce_sum.3: f32[], reduce_sum.4: f32[]) -> f32[] {
  %reduce_sum.3 = f32[] parameter(0), metadata={op_name="reduce_sum"}
  %reduce_sum.4 = f32[] parameter(1), metadata={op_name="reduce_sum"}
  ROOT %reduce_sum.5 = f32[] add(%reduce_sum.3, %reduce_sum.4), metadata={op_name="jit(fn)/reduce_sum"}
}

%fused_computation (param_0.4: f32[2,4], param_1.5: f32[4], param_2.1: f32[2,4]) -> f32[2] {
  %constant.1 = f32[] constant(0)
  %param_1.5 = f32[4]{0} parameter(1)
  %broadcast.2 = f32[2,4]{1,0} broadcast(%param_1.5), dimensions={1}
  %param_0.4 = f32[2,4]{1,0} parameter(0)
  %param_2.1 = f32[2,4]{1,0} parameter(2)
  %add.1 = f32[2,4]{1,0} add(%param_0.4, %broadcast.2), metadata={op_name="jit(fn)/add"}
  %mul.1 = f32[2,4]{1,0} multiply(%add.1, %param_2.1)
  %tanh.1 = f32[2,4]{1,0} tanh(%mul.1), metadata={op_name="jit(fn)/tanh"}
  ROOT %reduce_sum.2 = f32[2]{0} reduce(%tanh.1, %constant.1), dimensions={1}, to_apply=%region_0.1
}

ENTRY %main.1 (params__bias.1: f32[4], params__weight.1: f32[3,4], x.1: f32[2,3]) -> f32[2] {
  %x.1 = f32[2,3]{1,0} parameter(2), sharding={replicated}, metadata={op_name="x"}
  %params__weight.1 = f32[3,4]{1,0} parameter(1), metadata={op_name="params['linear_0.weight']"}
  %params__bias.1 = f32[4]{0} parameter(0), metadata={op_name="params['linear_0.bias']"}
  %dot.3 = f32[2,4]{1,0} dot(%x.1, %params__weight.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %fused = f32[2]{0} fusion(%dot.3, %params__bias.1, /*index=2*/%dot.3), kind=kLoop, calls=%fused_computation
}
"""
    short = readable(module)
    assert (
        short.text
        == """\
HloModule jit_fn
entry:
  linear_0.bias = f32[4] parameter(0)
  linear_0.weight = f32[3,4] parameter(1)
  x = f32[2,3] parameter(2)
  dot = f32[2,4] dot(x, linear_0.weight) [1]x[0]
  return f32[2] fusion(dot, linear_0.bias, dot as dot_2) loop:
    broadcast = f32[2,4] broadcast(linear_0.bias) along 1
    add = f32[2,4] add(dot, broadcast)
    mul = f32[2,4] multiply(add, dot_2)
    tanh = f32[2,4] tanh(mul)
    return reduce(tanh, 0) by add over 1"""
    )
    assert parse(short.text) == operations(module)
    assert [name for number, name in short.lines if number == 7] == ["fused", "param_0.4", "param_1.5", "param_2.1"]
    assert [name for number, name in short.lines if number == 12] == ["reduce_sum.2", "constant.1"]


def test_shared_computation_is_printed_once():
    module = """\
HloModule f

%shared.7 (a.1: f32[3]) -> f32[3] {
  %a.1 = f32[3]{0} parameter(0)
  ROOT %sine.1 = f32[3]{0} sine(%a.1)
}

ENTRY %main (x: f32[3]) -> (f32[3], f32[3]) {
  %x = f32[3]{0} parameter(0)
  %call.1 = f32[3]{0} call(%x), to_apply=%shared.7
  %call.2 = f32[3]{0} call(%call.1), to_apply=%shared.7
  ROOT %tuple = (f32[3]{0}, f32[3]{0}) tuple(%call.1, %call.2)
}
"""
    short = readable(module)
    assert short.text == (
        "HloModule f\nentry:\n  x = f32[3] parameter(0)\n  call = f32[3] call(x) to_apply=@shared\n"
        "  call_2 = f32[3] call(call) to_apply=@shared\n  return tuple(call, call_2)\n"
        "shared(a: f32[3]):\n  return f32[3] sine(a)"
    )
    assert parse(short.text) == operations(module)


def test_two_words_of_one_instruction():
    module = """\
HloModule f
%ge (a: f32[], b: f32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = pred[] compare(%a, %b), direction=GE
}
%add (a.1: f32[], b.1: f32[]) -> f32[] {
  %a.1 = f32[] parameter(0)
  %b.1 = f32[] parameter(1)
  ROOT %c.1 = f32[] add(%a.1, %b.1)
}
ENTRY %main (x: f32[4], y: f32[2]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %y = f32[2]{0} parameter(1)
  %zero = f32[] constant(0)
  ROOT %s = f32[4]{0} select-and-scatter(%x, %y, %zero), window={size=2 stride=2}, select=%ge, scatter=%add
}
"""
    short = readable(module)
    last = "  return f32[4] select-and-scatter(x, y, 0) select by ge scatter by add window={size=2 stride=2}"
    assert short.text.split("\n")[-1] == last
    assert parse(short.text) == operations(module)


def test_unreadable_lines_stay_text():
    assert readable("no module at all").text == "no module at all"
    module = "HloModule f\nENTRY %main (x: f32[2]) -> f32[2] {\n  %x = f32[2]{0} parameter(0)\n  ~~ new form ~~\n}\n"
    assert readable(module).text == "HloModule f\nentry:\n  x = f32[2] parameter(0)\n  // ~~ new form ~~"
    loop = "HloModule f\n%a (x: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
    loop += "  ROOT %c = f32[] call(%x), to_apply=%a\n}\n"
    assert readable(loop).text.endswith("a(x: f32[]):\n  return f32[] call(x) to_apply=@a")
    assert parse(readable(loop).text) == operations(loop)


def test_deep_nesting_is_printed():
    bodies = [
        f"%c{at} (p{at}: f32[]) -> f32[] {{\n  %p{at} = f32[] parameter(0)\n"
        f"  ROOT %r{at} = f32[] call(%p{at}), to_apply=%c{at + 1}\n}}"
        for at in range(3000)
    ]
    last = "%c3000 (q: f32[]) -> f32[] {\n  %q = f32[] parameter(0)\n  ROOT %r = f32[] tanh(%q)\n}"
    entry = "ENTRY %main (x: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  ROOT %y = f32[] call(%x), to_apply=%c0\n}"
    module = "\n".join(["HloModule f", *bodies, last, entry])
    assert parse(readable(module).text) == operations(module)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_text_never_raises(data):
    lines = _module("control flow").split("\n")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        start = data.draw(st.integers(0, len(lines[at])))
        end = data.draw(st.integers(start, len(lines[at])))
        lines[at] = lines[at][:start] + data.draw(st.text("(){}[]%=,:. \"'ab\\0é", max_size=4)) + lines[at][end:]
    readable("\n".join(lines))


def test_short_names_of_parameters():
    same = ["params['a.w']", "state[0].mu['a.w']", "state[0].nu['a.w']", "batch[0]", "batch[1]", "x", "x", ""]
    assert python_names(same) == ["params.a.w", "mu.a.w", "nu.a.w", "batch.0", "batch.1", "x", "x", ""]
