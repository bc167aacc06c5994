"""Texts of stages: readable, complete, and read without an exception."""

from __future__ import annotations

import random
import re

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax_programs import block, by_id, equations_of, linear_params, mlp, ops_of, spec

import mithril_nb as ml
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages import Equation
from mithril_nb.stages.hlo import syntax
from mithril_nb.stages.hlo.optimized import read_hlo
from mithril_nb.stages.hlo.stablehlo import read_stablehlo
from mithril_nb.stages.hlo.syntax import read_line
from mithril_nb.stages.trace.provenance.scopes import Tags

WIDTHS = (5, 7, 3)
SMALL = inspect(mlp(WIDTHS), linear_params(WIDTHS), spec(2, 5))


def _loops(x):
    def step(carry, x):
        carry = lax.cond(x[0] > 0, jnp.tanh, jax.nn.silu, carry + x)
        return carry, jnp.cumsum(carry)

    return lax.scan(step, jnp.zeros(4), x)[1].sum()


LOOPS = inspect(jax.grad(_loops), spec(3, 4))


def test_jaxpr_text_has_the_format_of_jax():
    assert (
        SMALL.stage("jaxpr").text
        == """\
{ lambda
    a:f32[7]  # params['linear_0.bias']
    b:f32[5,7]  # params['linear_0.weight']
    c:f32[3]  # params['linear_1.bias']
    d:f32[7,3]  # params['linear_1.weight']
    e:f32[2,5]  # x
  let
    f:f32[2,7] = dot_general[dimension_numbers=[1]x[0] preferred_element_type=float32] e b
    g:f32[1,7] = broadcast_in_dim[shape=(1,7) broadcast_dimensions=(1,)] a
    h:f32[2,7] = add f g
    i:f32[2,7] = custom_jvp_call h { lambda j:f32[2,7] let
        k:f32[2,7] = jit[name=relu] j { lambda l:f32[2,7] let
            m:f32[2,7] = max l 0.0:f32[]
          in (m) }
      in (k) }
    n:f32[2,3] = dot_general[dimension_numbers=[1]x[0] preferred_element_type=float32] i d
    o:f32[1,3] = broadcast_in_dim[shape=(1,3) broadcast_dimensions=(1,)] c
    p:f32[2,3] = add n o
  in (p) }
""".replace("custom_jvp_call h", _custom_jvp(SMALL.stage("jaxpr").text))
    )


def _custom_jvp(text):
    """Return the call, which JAX 0.12 names, but 0.10 not on every path."""
    return "custom_jvp_call[name=relu] h" if "custom_jvp_call[name=relu]" in text else "custom_jvp_call h"


def test_branches_and_loops_in_a_jaxpr_have_labels():
    def fn(x):
        x = lax.while_loop(lambda x: x.sum() < 3, lambda x: x + 1, x)
        return lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)

    lines = [line.strip() for line in inspect(fn, spec(2)).stage("jaxpr").text.splitlines()]
    labels = [line.split(":")[0] for line in lines if ": lambda" in line]
    assert labels == ["while", "do", "branch 0", "branch 1"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64"])
def test_large_constants_are_not_printed(dtype, tmp_path):
    def fn(size):
        table = jnp.arange(size).astype(dtype)
        return inspect(lambda x: jnp.where(table[::-1] != 0, x, jnp.full(size, 2.0)), spec(size))

    large, small = fn(100_000), fn(100)
    for stage in ("jaxpr", "stablehlo", "hlo_before", "hlo"):
        texts = [found.stage(stage) for found in (large, small)]
        assert len(texts[0].text) < 2500
        first, second = ([(one.id, one.opcode, one.line) for one in text.instructions] for text in texts)
        assert stage.startswith("hlo") or first == second  # XLA folds the small one
    assert "# constant" in large.stage("jaxpr").text
    assert len(large.lowered.as_text()) > 25_000  # shown on demand
    if dtype == "float32":
        large.save(tmp_path / "page.html")
        assert (tmp_path / "page.html").stat().st_size < 400_000
    given = ml.inspect(large.lowered)
    assert given.stage("stablehlo").text == large.stage("stablehlo").text
    assert given.stage("hlo_before").text == large.stage("hlo_before").text


def test_every_line_of_stablehlo_with_an_op_is_an_instruction():
    def fn(x):
        x = lax.cond(x.sum() > 0, jnp.sin, lambda x: x * 2, x)
        x = lax.while_loop(lambda x: x.sum() < 3, lambda x: x + 1, x)
        y = lax.reduce(x, 0.0, lambda a, b: a * b + a, (0,))
        return y, jnp.sort(x), jnp.zeros(5).at[jnp.array([0, 1])].add(1.0), jnp.argmax(x)

    stage = inspect(fn, spec(4)).stage("stablehlo")
    lines = stage.text.splitlines()
    with_op = {
        number
        for number, line in enumerate(lines, 1)
        if (" = " in line and line.lstrip().startswith("%")) or "return " in line or "func.func private" in line
    }
    assert {one.line for one in stage.instructions} == with_op
    regions = {one.opcode: one for one in stage.instructions if one.lines > 1}
    assert {"stablehlo.while", "stablehlo.case", "stablehlo.reduce", "stablehlo.sort", "stablehlo.scatter"} <= set(
        regions
    )
    for one in regions.values():
        assert lines[one.line + one.lines - 2].lstrip().startswith("}")
        assert one.equations


def test_a_function_called_twice_is_linked_to_both_calls():
    def fn(x):
        with block("a"):
            x = jax.nn.silu(x)
        with block("b"):
            return jax.nn.silu(x)

    stage = inspect(fn, spec(2, 2)).stage("stablehlo")
    assert stage.text.count("func.func private @silu") == 1
    (divide,) = (one for one in stage.instructions if one.opcode == "stablehlo.divide")
    assert divide.equations == ("0.0", "1.0")
    assert divide.blocks == {"a": 0.5, "b": 0.5}
    hlo = inspect(fn, spec(2, 2)).stage("hlo")  # XLA inlines the calls, so each has one block
    divides = [one for one in hlo.instructions if one.opcode == "divide"]
    assert sorted(tuple(one.blocks) for one in divides) == [("a",), ("b",)]


def test_hlo_is_shown_without_noise_and_with_the_entry_first():
    stage = SMALL.stage("hlo")
    lines = stage.text.splitlines()
    assert lines[0] == "HloModule jit_forward"
    assert lines[2].startswith("ENTRY %main")
    for noise in ("metadata=", "backend_config=", "/*index=", "FileNames", "stack_frame_id"):
        assert noise not in stage.text
    raw = SMALL.compiled.as_text()
    assert len(stage.text) < 0.5 * len(raw)
    for one in stage.instructions:
        assert f"%{one.id} = " in lines[one.line - 1]
        assert f"%{one.id} = " in raw


def test_a_fusion_is_split_by_the_work_inside_it():
    def fn(x):
        with block("a"):
            x = x * x + x
        with block("b"):
            return jnp.maximum(x, 0.5) - jnp.abs(x)

    stage = inspect(fn, spec(64, 64)).stage("hlo")
    fusions = [one for one in stage.instructions if one.opcode == "fusion" and len(one.blocks) == 2]
    assert fusions
    (fusion,) = fusions
    assert fusion.equations == ("0", "1", "2", "3", "4")
    assert fusion.blocks == {"b": pytest.approx(0.6), "a": pytest.approx(0.4)}  # three and two operations per element


TAGS = Tags(set())
EQUATIONS = {
    "0": Equation("0", "dot_general", "a", "forward", (), ()),
    "1": Equation("1", "add", "b", "forward", (), ()),
}
MODULE = """\
HloModule m, is_scheduled=true

%body (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  this line is of a newer XLA
  ROOT %add.1 = f32[2]{0} add(%p, %p), metadata={op_name="jit(f)/mnb#1~/add" source_file="a \\"}{, metadata={b"}
}

ENTRY %main (x: f32[2,3]) -> f32[2] {
  %x = f32[2,3]{1,0} parameter(0), metadata={op_name="x"}
  %t = (f32[2]{0}, /*index=1*/f32[2]{0:T(256)}) custom-call(%x), custom_call_target="a(b", api_version=API, backend_config="{\\"k\\": \\"}\\"}"
  %g = f32[2]{0} get-tuple-element(%t), index=1
  %dot.1 = f32[2]{0} dot(%g, %x), lhs_contracting_dims={0}, metadata={op_name="jit(f)/jvp(mnb#0~)/dot"}, backend_config={"a":{"b":"}"}}
  %copy.1 = f32[2]{0} copy(%dot.1)
  ROOT %f = f32[2]{0} fusion(%copy.1), kind=kLoop, calls=%body
}
"""  # noqa: E501


def test_data_movement_has_a_small_share_in_a_fusion():
    def fn(x, y):
        with block("computes"):
            x = x * y + 1.0
        with block("moves"):
            return x[:, ::2].T

    found = inspect(fn, spec(8, 8), spec(8, 8))
    (fusion,) = ops_of(found, "hlo", "fusion")
    assert fusion.blocks.keys() == {"computes", "moves"}
    assert 0 < fusion.blocks["moves"] < 0.05
    assert sum(fusion.blocks.values()) == pytest.approx(1.0, abs=1e-9)


def test_a_hand_written_module():
    text, instructions = read_hlo(MODULE, TAGS, EQUATIONS, {"x": (0, "a")})
    assert (
        text
        == """\
HloModule m

ENTRY %main (x: f32[2,3]) -> f32[2] {
  %x = f32[2,3] parameter(0)
  %t = (f32[2], f32[2]{0:T(256)}) custom-call(%x), custom_call_target="a(b", api_version=API
  %g = f32[2] get-tuple-element(%t), index=1
  %dot.1 = f32[2] dot(%g, %x), lhs_contracting_dims={0}
  %copy.1 = f32[2] copy(%dot.1)
  ROOT %f = f32[2] fusion(%copy.1), kind=kLoop, calls=%body
}

%body (p: f32[2]) -> f32[2] {
  %p = f32[2] parameter(0)
  this line is of a newer XLA
  ROOT %add.1 = f32[2] add(%p, %p)
}
"""
    )
    found = {one.id: (one.equations, dict(one.blocks), one.origin) for one in instructions}
    assert found == {
        "x": (("arg0",), {"a": 1.0}, "inferred"),
        "t": (("arg0",), {"a": 1.0}, "inferred"),
        "g": (("0",), {"a": 1.0}, "inferred"),
        "dot.1": (("0",), {"a": 1.0}, "tagged"),
        "copy.1": (("0",), {"a": 1.0}, "inferred"),
        "f": (("1",), {"b": 1.0}, "tagged"),
        "p": (("0",), {"a": 1.0}, "inferred"),
        "line 14": ((), {}, None),  # costs count it as unknown
        "add.1": (("1",), {"b": 1.0}, "tagged"),
    }


def _is_read_the_same_twice(line):
    usual = syntax._usual_line(line)
    return usual is None or usual == syntax._any_line(line)


@pytest.mark.parametrize("made", [SMALL, LOOPS], ids=["small", "loops"])
def test_the_fast_reader_equals_the_general_one(made):
    texts = (made.optimized.as_text() or "", made.lowered.as_text(dialect="hlo", debug_info=True))
    for text in texts:
        lines = [line for line in text.splitlines() if isinstance(read_line(line), syntax.HloLine)]
        assert all(map(_is_read_the_same_twice, lines))
        assert sum(syntax._usual_line(line) is not None for line in lines) > len(lines) / 2


def test_a_scope_that_looks_like_a_place_is_not_one():
    line = '  %a = f32[4]{0} add(%b, %c), metadata={op_name="jit(f)/stack_frame_id=6/add"}'
    assert _is_read_the_same_twice(line)
    found = read_line(line)
    assert isinstance(found, syntax.HloLine)
    assert (found.op_name, found.location) == ("jit(f)/stack_frame_id=6/add", "")


@given(st.randoms(use_true_random=False))
def test_both_readers_agree_on_a_damaged_line(rng):
    lines = [line for line in (LOOPS.optimized.as_text() or "").splitlines() if line.startswith("  ")]
    parts = [", to_apply=%f", ", branch_computations={a, b}", ", sharding={x}", *'{}"\\%= ', ", "]
    for line in rng.sample(lines, 5):
        damaged = list(line)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.choice(["", *parts])
        assert _is_read_the_same_twice("".join(damaged))


@given(st.text())
def test_readers_accept_any_text(text):
    read_line(text)
    read_hlo(text, TAGS, EQUATIONS, {})
    read_stablehlo(text, TAGS, EQUATIONS)


def _damaged(text, rng: random.Random):
    damaged = list(text)
    for _ in range(rng.randrange(1, 30)):
        damaged[rng.randrange(len(damaged))] = rng.choice(["", *'{}()"\\\n%# x'])
    return "".join(damaged)


def _with_exchanged_names(text, rng: random.Random):
    pieces = re.split(r"(%[\w.\-]+)", text)
    for _ in range(rng.randrange(1, 30)):
        place, other = (rng.randrange(len(pieces) // 2) * 2 + 1 for _ in range(2))
        pieces[place] = pieces[other]
    return "".join(pieces)


def test_an_item_of_no_tuple_is_read():
    """As in a text whose characters were lost: `get-tuple-element()` without an operand."""
    tagged = 'metadata={op_name="jit(f)/mnb#0~/add"}'
    text = f"HloModule m\n\nENTRY %m () -> f32[2] {{\n  ROOT %g = f32[2] get-tuple-element(), index=0, {tagged}\n}}\n"
    _, (line,) = read_hlo(text, TAGS, EQUATIONS, {})
    assert line.opcode == "get-tuple-element"


@pytest.mark.parametrize("damage", [_damaged, _with_exchanged_names])
@given(rng=st.randoms(use_true_random=False))
def test_readers_accept_damaged_text(damage, rng):
    for made in (SMALL, LOOPS):
        program = made._pipeline.program.get()
        _, hlo = read_hlo(damage(made.compiled.as_text() or "", rng), program.tags, program.by_id, {})
        _, ops = read_stablehlo(damage(made.lowered.as_text(debug_info=True), rng), program.tags, program.by_id)
        for one in (*hlo, *ops):
            assert not one.shares or sum(one.blocks.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("%p = f32[2] parameter(0)\n  ROOT %c = f32[2] call(%p), to_apply=%f", "ROOT %d = f32[2] negate(%p)"),
        ("ROOT %c = f32[2] call(), to_apply=%g", "ROOT %d = f32[2] call(), to_apply=%f"),
        ("ROOT %c = f32[2] call(), to_apply=%g", "ROOT %c = f32[2] call(), to_apply=%h"),
        ("ROOT %c = f32[2] call(%c), to_apply=%gone", "ROOT %d = f32[2] copy(%d)"),
    ],
)
def test_recursive_computations_end(first, second):
    """XLA never writes them, but an edited or broken file may contain them."""
    named = 'ROOT %e = f32[2] add(%x, %x), metadata={op_name="jit(f)/mnb#0~/add"}'
    text = f"""\
HloModule m

%f (p: f32[2]) -> f32[2] {{
  {first}
}}

%g (q: f32[2]) -> f32[2] {{
  {second}
}}

%h (r: f32[2]) -> f32[2] {{
  %i = f32[2] call(), to_apply=%g
  {named}
}}

ENTRY %main (x: f32[2]) -> f32[2] {{
  %x = f32[2] parameter(0)
  ROOT %y = f32[2] call(%x), to_apply=%f
}}
"""
    _, instructions = read_hlo(text, TAGS, EQUATIONS, {})
    assert {"e", "x", "y"} <= {one.id for one in instructions}


def test_cyclic_locations_end():
    program = SMALL._pipeline.program.get()
    text = "module @m {\n  func.func public @main() {\n    return loc(#loc1)\n  } loc(#loc)\n} loc(#loc)\n"
    text += '#loc = loc(unknown)\n#loc1 = loc("a"(#loc2))\n#loc2 = loc("b"(#loc1))\n'
    _, instructions = read_stablehlo(text, program.tags, program.by_id)
    assert [one.opcode for one in instructions] == ["return"]


@pytest.mark.parametrize(
    "name", ["relu", "gelu", "softmax", "silu", "elu", "celu", "glu", "log_softmax", "standardize", "hard_tanh"]
)
def test_jax_nn_functions(name):
    def fn(x):
        with block("it"):
            return getattr(jax.nn, name)(x)

    inspection = inspect(jax.value_and_grad(lambda x: fn(x).sum()), spec(4, 6))
    for stage in inspection.stages:
        assert inspection.stage(stage).unavailable is None
    assert {one.block for one in inspection.equations} <= {"it", "<lambda>"}, "the sum is the lambda's"
    assert sum(one.block == "it" for one in inspection.equations) >= 2


def test_instructions_have_operands_and_shapes():
    def fn(w, x):
        x = lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x @ w), x)
        return lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)

    found = inspect(fn, spec(5, 5), spec(2, 5))
    jaxpr = by_id(found, "jaxpr")
    loop = next(one for one in jaxpr.values() if one.opcode == "scan")
    (inner,) = (one for one in jaxpr.values() if one.opcode == "dot_general")
    assert loop.operands == ("arg0", "0:i32[]", "arg1")
    assert inner.operands == ("arg1", "arg0"), "what goes into a loop is followed from outside"
    assert [spec.shape for spec in inner.shapes] == [(2, 5)]
    assert dict(inner.attributes)["dimension_numbers"] == "(((1,),(0,)),((),()))"
    assert inner.transforms == ("scan",)
    assert inner.source == (jaxpr[loop.id].source)

    stablehlo = by_id(found, "stablehlo")
    (dot,) = (one for one in stablehlo.values() if one.opcode == "stablehlo.dot_general")
    assert dict(dot.attributes)["contracting_dims"] == "[1] x [0]"
    assert dot.equations == inner.equations
    (case,) = (one for one in stablehlo.values() if one.opcode == "stablehlo.case")
    assert [spec.shape for spec in case.shapes] == [(2, 5)]
    (while_,) = (one for one in stablehlo.values() if one.opcode == "stablehlo.while")
    assert "%arg0" in while_.operands
    assert not any("iterArg" in one for one in while_.operands)

    for name in ("hlo_before", "hlo"):
        hlo = by_id(found, name)
        (dot,) = (one for one in hlo.values() if one.opcode == "dot")
        assert dot.equations == inner.equations
        assert all(operand in hlo for one in hlo.values() for operand in one.operands)
        assert dict(dot.attributes)["lhs_contracting_dims"] == "{1}"


def test_the_bodies_of_reductions_and_callbacks_have_blocks():
    def fn(x):
        with block("best"):
            best = x.argmax()
        with block("called"):
            return best + jax.pure_callback(lambda x: x.sum(), spec(), x).astype(int)

    found = inspect(fn, spec(5))
    for name in ("stablehlo", "hlo_before", "hlo"):
        real = [one for one in found.stage(name).instructions if one.opcode not in ("parameter", "constant", "tuple")]
        assert all(one.shares for one in real), [one for one in real if not one.shares]
    (call,) = ops_of(found, "stablehlo", "stablehlo.custom_call")
    assert call.blocks == {"called": 1.0}
    assert call.origin == "tagged"


def test_tags_in_a_called_function_are_relative_to_the_call():
    def fn(x):
        with block("before"):
            x = jnp.sin(x)
        with block("sorted"):
            return jnp.sort(x)  # a jitted function: the tags of its comparator are relative to it

    found = inspect(fn, spec(5))
    (sort,) = equations_of(found, "sort")
    for name in ("hlo_before", "hlo"):
        compared = ops_of(found, name, "compare")
        assert compared
        for one in compared:
            assert set(one.equations) <= {sort.id}
            assert one.blocks == {"sorted": 1.0}
