"""The passes of XLA: each continues from the one before, diffs are exact, and dropped op names are recovered."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax_programs import block, by_id, dump_of, spec

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.xla.passes import Histories, Pass, read_passes
from mithril_nb.stages.xla.recover_op_names import nameless

NAME = re.compile(r"^ +(?:ROOT )?%?([\w.\-]+) = ", re.MULTILINE)
HUNK = re.compile(r"^@@ -(\d+),(\d+) \+(\d+),(\d+) @@ (.+)$")


def program(x, w):
    with block("loop"):
        x = jax.lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x @ w), x)
    with block("head"):
        return jax.nn.softmax(x + 0.0)


@pytest.fixture(scope="module")
def inspection():
    return inspect(program, spec(4, 6), spec(6, 6))


def module(*computations, head="HloModule jit_f, is_scheduled=false"):
    return "\n\n".join((head, *computations)) + "\n"


def computation(name, *lines):
    return "\n".join((f"{name} (p: f32[4]) -> f32[4] {{", *(f"  {line}" for line in lines), "}"))


def written(**files) -> tuple[Pass, ...]:
    """Return the passes of files with these names; leading underscores keep them in order."""
    return read_passes(dump_of(**{f"{name}.txt": text for name, text in files.items()}))


def step(before, after) -> Pass:
    """Return a pass that turns one module into another."""
    files = {"before_optimizations": before, "0000.pipeline.after_algsimp.before_dce": after}
    (found,) = written(**files)
    return found


def sections(text) -> dict[str, list[str]]:
    """Return the lines of each computation of a module, and the heads of all."""
    found: dict[str, list[str]] = {"computations": []}
    for line in text.splitlines():
        if line.endswith("{"):
            found["computations"].append(line)
            found[name := line.removeprefix("ENTRY ").split()[0]] = []
        elif line.startswith(" "):
            found[name].append(line)
    return found


def applied(diff, before) -> dict[str, list[str]]:
    """Return a module after applying a diff, as sections."""
    old = sections(before)
    made: dict[str, list[str]] = {}
    taken: dict[str, int] = {}
    name = ""
    for line in diff.splitlines():
        if head := HUNK.match(line):
            name, start = head[5], int(head[1]) - (1 if int(head[2]) else 0)
            new = made.setdefault(name, [])
            new += old.get(name, [])[taken.get(name, 0) : start]
            taken[name] = start
            assert len(new) == int(head[3]) - (1 if int(head[4]) else 0)
            continue
        if line[0] in " -":
            assert old[name][taken[name]] == line[1:]
            taken[name] += 1
        if line[0] in " +":
            made[name].append(line[1:])
    for name, lines in old.items():
        made[name] = made.get(name, []) + lines[taken.get(name, 0) :]
    return {name: made.get(name, []) for name in ("computations", *heads(made["computations"]))}


def heads(lines):
    return [line.removeprefix("ENTRY ").split()[0] for line in lines]


def test_passes_form_a_chain(inspection):
    passes = inspection.passes
    assert [one.number for one in passes] == list(range(len(passes)))
    assert all(one.name and one.pipeline for one in passes)
    for one, following in pairwise(passes):
        assert one.after == following.before
    first = {one.id for one in inspection.stage("hlo_before").instructions}
    last = {one.id for one in inspection.stage("hlo").instructions}
    assert set(NAME.findall(passes[0].before)) == first
    assert set(NAME.findall(passes[-1].after)) == last


def test_diff_of_each_pass_reproduces_its_result(inspection):
    for one in inspection.passes:
        assert one.before != one.after
        assert one.diff
        assert applied(one.diff, one.before) == sections(one.after), one
        names = NAME.findall(one.after)
        assert set(one.changes.added) <= set(names)
        assert set(one.changes.removed) == set(NAME.findall(one.before)) - set(names)


def test_pass_that_only_adds_attributes_is_listed(inspection):
    known = [
        one for one in inspection.passes if "known_trip_count" in one.after and "known_trip_count" not in one.before
    ]
    assert len(known) == 1
    assert known[0].changes.rewritten
    assert re.search(r'^\+.*backend_config=\{.*"known_trip_count"', known[0].diff, re.MULTILINE)


def test_outcomes_of_instructions(inspection):
    before = by_id(inspection, "hlo_before")
    after = by_id(inspection, "hlo")
    (fusion, *_) = (name for name, one in after.items() if one.opcode == "fusion")
    fate = inspection.who_changed("hlo", fusion)
    assert fate.appeared is not None
    assert fusion in fate.appeared.changes.added
    assert fate.vanished is None
    exp = next(name for name, one in before.items() if one.opcode == "exponential")
    fate = inspection.who_changed("hlo_before", exp)
    assert fate.appeared is None
    assert fate.vanished is not None
    assert exp in fate.vanished.changes.removed
    (fused,) = fate.fused_into
    body = dict(after[fused].attributes)["calls"]
    text = inspection.stage("hlo").text
    assert " exponential(" in text[text.index(f"\n{body} ") :].split("\n}")[0]


def test_histories_follow_names():
    text = {name: module(computation("%f", f"%{name} = f32[4] parameter(0)")) for name in "abc"}
    both = module(computation("%f", "%a = f32[4] parameter(0)", "%b = f32[4] negate(%a)"))
    found = Histories(
        written(
            **{
                "before_optimizations": text["a"],
                "0000.p.after_one.before_two": both,
                "0001.p.after_two.before_three": text["b"],
                "0002.p.after_three.before_four": text["c"],
            }
        )
    )
    assert {name: one.name for name, one in found.appeared.items()} == {"b": "one", "c": "three"}
    assert {name: one.name for name, one in found.vanished.items()} == {"a": "two", "b": "three"}


A, B = "%a = f32[4]{0} parameter(0)", "%b = f32[4]{0} negate(%a)"
C = "ROOT %c = f32[4]{0} add(%a, %b)"


def test_a_diff_is_the_same_however_many_lines_are_tidied_at_once(monkeypatch):
    passes = inspect(lambda x: jnp.tanh(x @ x.T).sum(), jnp.zeros((8, 4))).passes
    whole = [one.diff for one in passes]
    assert any(whole)
    monkeypatch.setattr("mithril_nb.stages.xla.passes._AT_ONCE", 1)
    assert [one.diff for one in passes] == whole


def test_the_text_of_a_diff():
    before = module(computation("%g", A, B), computation("ENTRY %main", A, B, C), head="HloModule jit_f")
    after = module(
        computation("ENTRY %main", A, B.replace("negate", "abs"), C), computation("%h", A), head="HloModule jit_f"
    )
    one = step(before, after)
    assert one.diff == (
        "@@ -1,2 +1,2 @@ computations\n"
        "-%g (p: f32[4]) -> f32[4] {\n"
        " ENTRY %main (p: f32[4]) -> f32[4] {\n"
        "+%h (p: f32[4]) -> f32[4] {\n"
        "@@ -1,3 +1,3 @@ %main\n"
        "   %a = f32[4] parameter(0)\n"
        "-  %b = f32[4] negate(%a)\n"
        "+  %b = f32[4] abs(%a)\n"
        "   ROOT %c = f32[4] add(%a, %b)\n"
        "@@ -0,0 +1,1 @@ %h\n"
        "+  %a = f32[4] parameter(0)\n"
        "@@ -1,2 +0,0 @@ %g\n"
        "-  %a = f32[4] parameter(0)\n"
        "-  %b = f32[4] negate(%a)\n"
    )
    assert str(one) == "pass 0, algsimp (pipeline pipeline)"


def test_pass_that_only_reorders_is_labelled():
    one = step(
        module(computation("%f", A, B, "%d = f32[4] abs(%a)", C)),
        module(computation("%f", A, "%d = f32[4] abs(%a)", B, C)),
    )
    assert one.changes.summary == "only reordered"
    assert len(one.changes.moved) == 1
    assert one.changes.added == one.changes.removed == one.changes.rewritten == ()
    assert one.diff.count("\n+") == one.diff.count("\n-") == 1
    turned = step(
        module(computation("%f", A), computation("%g", B)), module(computation("%g", B), computation("%f", A))
    )
    assert turned.changes.summary == "only reordered"
    assert turned.diff.startswith("@@ -1,2 +1,2 @@ computations\n")


def test_hidden_changes_do_not_count():
    metadata = ', metadata={op_name="jit(f)/add" stack_frame_id=3}'
    text = module(computation("%f", A, B + metadata, C))
    other = module(computation("%f", A, B, C), head="HloModule jit_f, is_scheduled=true")
    third = other.replace("negate", "abs")
    passes = written(
        **{
            "before_optimizations": text,
            "0000.p.after_one.before_two": other,
            "0001.p.after_two.before_three": text,
            "0002.p.after_three.before_four": third,
            "0003.p.after_four.before_five": third,
        }
    )
    assert [one.name for one in passes] == ["three"]
    assert passes[0].changes.summary == "1 rewritten"


def test_pass_files_are_ordered_by_number():
    texts = [module(computation("%f", f"%x{number} = f32[4] parameter(0)")) for number in range(6)]
    passes = written(
        **{
            "before_optimizations": texts[0],
            "10000.late.after_algsimp.before_pipeline-end": texts[4],
            "9999.late.after_pipeline-start.before_algsimp": texts[3],
            "0001.first.after_cse.v2.before_dce": texts[1],
            "0002.copy-insertion.after_adding_copies": texts[2],
            "10001.written-differently": texts[5],
            "0003.no_text_of_a_module.after_a.before_b": "what a newer XLA may write\n",
            "cpu_after_optimizations": texts[5],
        }
    )
    assert [(one.name, one.pipeline) for one in passes] == [
        ("cse.v2", "first"),
        ("a", "no_text_of_a_module"),
        ("late", "late"),
        ("algsimp", "late"),
        ("written-differently", ""),
    ]
    for one, following in pairwise(passes):
        assert one.after == following.before
        assert isinstance(following.diff + following.before + following.changes.summary, str)


def test_outer_pass_owns_changes_at_pipeline_start():
    texts = [module(computation("%f", f"%x{number} = f32[4] parameter(0)")) for number in range(6)]
    passes = written(
        **{
            "before_optimizations": texts[0],
            "0000.partitioner.after_shardy.before_partitioning": texts[1],
            "0001.cleanup.after_pipeline-start.before_dce": texts[2],
            "0002.cleanup.after_dce.before_cse": texts[3],
            "0003.partitioner.after_partitioning.before_pipeline-end": texts[4],
            "0004.next.after_pipeline-start.before_dce": texts[5],
        }
    )
    assert [(one.name, one.pipeline) for one in passes] == [
        ("shardy", "partitioner"),
        ("partitioning", "partitioner"),
        ("dce", "cleanup"),
        ("partitioning", "partitioner"),
        ("next", "next"),
    ]


def test_platform_without_passes():
    with pytest.raises(LookupError) as error:
        written(before_optimizations=module())
    assert str(error.value) == "XLA wrote its files, but no passes"


names = st.lists(st.sampled_from("abcdefghij"), unique=True)


@st.composite
def modules(draw: st.DrawFn):
    """Modules with few computations and instructions, so that two of them have much in common."""
    found = []
    for name in draw(st.lists(st.sampled_from(["%f", "%g", "ENTRY %h"]), unique=True)):
        lines = [f"%{line} = f32[4]{{0}} {draw(st.sampled_from(['abs', 'negate']))}(%x)" for line in draw(names)]
        found.append(computation(name, *lines))
    return module(*found)


@settings(max_examples=40)
@given(modules(), modules())
def test_diff_turns_before_into_after(before, after):
    passes = written(**{"before_optimizations": before, "0000.p.after_one.before_two": after})
    assert len(passes) == (before != after)
    for one in passes:
        assert applied(one.diff, one.before) == sections(one.after)
        old, new = set(NAME.findall(one.before)), set(NAME.findall(one.after))
        assert new - old <= set(one.changes.added)
        assert old - new <= set(one.changes.removed)


def test_a_large_module_is_compared_quickly():
    lines = [f"%n{number} = f32[4] add(%n{number - 1}, %p)" for number in range(20_000)]
    before = module(computation("%f", *lines))
    after = module(computation("%f", *lines[10_000:], *(line.replace("add", "sub") for line in lines[:10_000])))
    one = step(before, after)
    since = time.process_time()
    assert one.diff.count("\n+") == 10_000
    assert time.process_time() - since < 3  # it takes 0.2 s; comparing lines with lines takes minutes


def one_by_one(weights, x):
    for name in ("first", "second"):
        with block(name):
            x = jax.lax.conv_general_dilated(
                x, weights[name], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
    return (x**2).sum()


def vector(weights, x):
    for name in ("first", "second"):
        with block(name):
            x = jnp.tanh(weights[name] @ x)
    return (x**2).sum()


ORDER = ("NHWC", "HWIO", "NHWC")
IMAGES = {"first": spec(1, 1, 5, 7), "second": spec(1, 1, 7, 11)}, spec(2, 8, 8, 5)
VECTORS = {"first": spec(7, 5), "second": spec(11, 7)}, spec(5)


@pytest.mark.parametrize(("fn", "args"), [(one_by_one, IMAGES), (vector, VECTORS)])
def test_recovered_products_have_one_block_role_and_equation(fn, args):
    found = inspect(jax.value_and_grad(fn), *args)
    equations = {one.id: one for one in found.equations}
    products = [one for one in found.stage("hlo").instructions if one.opcode in ("dot", "convolution")]
    assert products
    for one in products:
        (block,) = one.blocks
        sources = [equations[id] for id in one.equations]
        assert {source.block for source in sources} == {block}
        assert {source.role for source in sources} == {one.role}
        assert any(source.primitive in ("dot_general", "conv_general_dilated") for source in sources)
        widths = {"first": {5, 7}, "second": {7, 11}}[block]
        assert widths & {size for shape in one.shapes for size in shape.shape}, "a wrong link: not its widths"
    lost = set(nameless(found.compiled.as_text()))
    assert {one.origin for one in products if one.id in lost} <= {"inferred"}
    assert {one.origin for one in products if one.id not in lost} <= {"tagged"}
