"""Kernels of a compiled program: all are found, each with its instructions, and missing code states the reason."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax_programs import block, by_id, dump_of, equations_of, ops_of, spec

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.inspection.exports import stage_data
from mithril_nb.stages.records import Instruction, shared_by_kernel
from mithril_nb.stages.xla.kernel_code import llvm_lines
from mithril_nb.stages.xla.kernels import Owners, listing, read_kernels


def program(x, w, v):
    with block("one"):
        first = x @ w
        left = jnp.tanh(first)
    with block("two"):
        second = left @ w
        right = jnp.tanh(second)
    with block("sorted"):
        ordered = jax.lax.sort(jnp.sin(second), dimension=0)
    with block("head"):
        return first, second, left, right, ordered @ v


@pytest.fixture(scope="module")
def inspection():
    return inspect(program, spec(4, 6), spec(6, 6), spec(6))


@pytest.fixture
def dump():
    """Return a dump as a GPU writes it: one file of each kind for all kernels."""
    ptx = {"sort": "\tbar.sync \t0;\n\tret;", "add_fusion_1": "\tret;"}
    files = {
        "before_optimizations.txt": "HloModule jit_f",
        "ir-with-opt.ll": "".join(f"define void @{name}(ptr %0) {{\n  ret void\n}}\n" for name in sorted(ptx)),
        "ptx": "".join(f".visible .entry {name}(\n)\n{{\n{body}\n}}\n" for name, body in ptx.items()),
    }
    return dump_of(**files)


HLO = """HloModule jit_f

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  %add.fusion.1 = f32[4] fusion(%x), kind=kLoop, calls=%body
  ROOT %add.fusion.2 = f32[4] fusion(%add.fusion.1), kind=kLoop, calls=%body.1
}

%body (p: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  %one = f32[] constant(1)
  %wide = f32[4] broadcast(%one), dimensions={}
  ROOT %sum = f32[4] add(%p, %wide)
}

%body.1 (p.1: f32[4]) -> f32[4] {
  %one.1 = f32[] constant(1)
  %wide.1 = f32[4] broadcast(%one.1), dimensions={}
  %p.1 = f32[4] parameter(0)
  ROOT %sum.1 = f32[4] add(%p.1, %wide.1)
}
"""


def owners(text=HLO) -> Owners:
    """Return the owners for an HLO text in which each fusion has a separate equation and block."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r" +(?:ROOT )?%([\w.]+) = \S+ ([\w-]+)\(.*?\)(?:, .*calls=(%[\w.]+))?", line):
            name, opcode, calls = match.groups()
            known = ((f"{number}",), ((f"block_{name}", 1.0),), "forward", "tagged") if calls else ()
            found.append(Instruction(name, opcode, number, *known, attributes=(("calls", calls),) if calls else ()))
    return Owners(text, found)


def test_every_fusion_has_its_kernel_in_the_order_of_the_hlo(inspection):
    hlo = inspection.stage("hlo").instructions
    loops = [one for one in hlo if one.opcode == "fusion" and ("kind", "kLoop") in one.attributes]
    linked = inspection.links("hlo", "asm")
    assert len(loops) >= 3
    assert all(linked[one.id] for one in loops)
    order = [one.id for one in hlo]
    names = [name.removesuffix("_kernel") for name in inspection.kernels]
    places = [order.index(name) for name in names if name in order]
    assert places == sorted(places)
    assert len(places) == len(names) - 1  # the comparison of the sort has the name of its computation


def test_kernel_has_the_provenance_of_its_instruction(inspection):
    hlo = by_id(inspection, "hlo")
    for stage in ("llvm", "asm"):
        heads = ops_of(inspection, stage, "kernel")
        assert [one.id for one in heads] == list(inspection.kernels)
        for head in heads:
            runs = hlo.get(head.id.removesuffix("_kernel"))
            if runs is not None and len(head.equations) == len(runs.equations):
                assert (head.equations, head.shares, head.role) == (runs.equations, runs.shares, runs.role)
            assert head.shares


def test_lines_of_kernels_are_linked_at_kernel_level(inspection):
    for stage in ("llvm", "asm"):
        lines = inspection.stage(stage).instructions
        assert {one.origin for one in lines} == {"kernel"}
        assert {one["origin"] for one in stage_data(inspection.stage(stage))["instructions"]} == {"kernel"}
    assert "kernel" not in {one.origin for one in inspection.stage("hlo").instructions}


def test_a_kernel_that_two_fusions_run_belongs_to_both(inspection):
    tanh = equations_of(inspection, "tanh")
    heads = [one for one in inspection.stage("asm").instructions if {two.id for two in tanh} & set(one.equations)]
    (head,) = [one for one in heads if one.opcode == "kernel"]
    assert head.blocks == {"one": 0.5, "two": 0.5}
    assert set(head.equations) == {one.id for one in tanh}


def test_the_lines_of_kernels_fill_the_text(inspection):
    for stage in map(inspection.stage, ("llvm", "asm")):
        lines = stage.text.splitlines()
        heads = [one for one in stage.instructions if one.opcode == "kernel"]
        assert sum(one.lines for one in heads) == len(lines) - (len(heads) - 1)  # an empty line between two
        for one in stage.instructions:
            assert one.opcode in lines[one.line - 1] or one.opcode == "kernel"
        for head in heads:
            inside = [one for one in stage.instructions if head.line < one.line < head.line + head.lines]
            assert lines[head.line - 1].endswith(f" {len(inside)} instructions")
            assert all(one.id.startswith(f"{head.id}:") for one in inside)


def test_each_kernel_has_llvm_ir_and_object_code(inspection):
    for kernel in inspection.kernels.values():
        assert re.search(f'@"?{re.escape(kernel.name)}"?\\(', kernel.llvm)
        assert kernel.object_code.startswith(b"\x7fELF")


def test_gpu_file_with_all_kernels(dump):
    kernels = read_kernels(dump, ["add.fusion.1", "add.fusion.2"])
    assert [one.name for one in kernels] == ["add_fusion_1", "sort"]
    text, found = listing(kernels, owners(), lambda kernel: kernel.asm, "{}: {}")
    assert text.splitlines() == ["add_fusion_1: 1", "    ret;", "", "sort: 2", "    bar.sync    0;", "    ret;"]
    assert [one.opcode for one in found] == ["kernel", "ret", "kernel", "bar.sync", "ret"]
    assert found[1].blocks == {"block_add.fusion.1": 0.5, "block_add.fusion.2": 0.5}
    assert (found[2].blocks, found[2].origin) == ({}, None)


def test_missing_code_states_the_reason(dump):
    reason = "XLA writes no machine code for this platform; see the stage 'llvm' for the LLVM IR"
    with pytest.raises(LookupError, match=re.escape(reason)):
        _ = read_kernels(dump, [])[0].object_code


def test_fusions_are_alike_only_if_they_compute_the_same():
    def others(text):
        return owners(text).of(["add_fusion_1"])["add_fusion_1"].equations

    assert others(HLO) == ("5", "6")
    for old, new in (("constant(1)", "constant(2)"), ("add(%p.1, %wide.1)", "add(%wide.1, %p.1)"), ("add", "sub")):
        before, mark, after = HLO.partition("%body.1 (")
        assert others(before + mark + after.replace(old, new)) == ("5",), new


def test_ambiguous_kernel_is_not_attributed():
    third = HLO.replace("ROOT %add.fusion.2", "%add.fusion.2").replace(
        "calls=%body.1\n", "calls=%body.1\n  ROOT %add.fusion.3 = f32[4] fusion(%x), kind=kLoop, calls=%body\n"
    )
    known = owners(third).of(["add_fusion_1", "add_fusion_2"])
    assert [known[name].equations for name in known] == [("5",), ("6",)]
    assert owners(third).of(["add_fusion_1"])["add_fusion_1"].equations == ("5", "6", "7")


def test_long_chain_in_a_fusion_needs_no_recursion():
    chain = "".join(f"  %s{k} = f32[4] add(%{f's{k - 1}' if k else 'p'}, %p)\n" for k in range(3000))
    text = HLO.replace("  ROOT %sum = f32[4] add(%p, %wide)\n", f"{chain}  ROOT %sum = f32[4] add(%s2999, %p)\n")
    assert owners(text).of(["add_fusion_2"])["add_fusion_2"].equations == ("6",)


def test_instructions_have_their_fusion():
    assert owners().fusions == {
        **dict.fromkeys(("one", "wide", "sum"), "add.fusion.1"),
        **dict.fromkeys(("one.1", "wide.1", "sum.1"), "add.fusion.2"),
    }


def test_llvm_ir_of_the_whole_listing_is_read(inspection):
    opcodes = {
        opcode for kernel in inspection.kernels.values() for _, opcode, _ in llvm_lines(kernel.llvm, kernel.name)
    }
    assert {"load", "store", "ret", "getelementptr"} <= opcodes
    assert opcodes <= LLVM | {""}


LLVM = set(
    "ret br switch indirectbr unreachable fneg add fadd sub fsub mul fmul udiv sdiv fdiv urem srem frem shl lshr ashr "
    "and or xor extractelement insertelement shufflevector extractvalue insertvalue alloca load store fence cmpxchg "
    "atomicrmw getelementptr trunc zext sext fptrunc fpext fptoui fptosi uitofp sitofp ptrtoint inttoptr bitcast "
    "addrspacecast icmp fcmp phi select freeze call".split()
)
"""The instructions of LLVM that XLA has a use for."""


def test_lines_of_kernels_are_made_on_first_use():
    inspection = inspect(lambda x: jnp.tanh(x * 2.0) + jnp.sin(x), jnp.zeros(16))
    for stage in ("llvm", "asm"):
        lines = inspection.stage(stage).instructions
        if inspection.stage(stage).unavailable is not None:
            continue
        plain = [*lines.without_operands()]
        columns = {
            name: lines.column(name) for name in ("id", "opcode", "line", "lines", "equations", "shares", "role")
        }
        shared = {name: shared_by_kernel(lines, name) for name in columns}
        assert "_instructions" not in vars(lines)
        assert [name for name in columns if shared[name]] == ["equations", "shares", "role"]
        for name, pairs in shared.items():
            assert pairs is None or [value for value, count in pairs for _ in range(count)] == columns[name]
        assert [replace(one, operands=()) for one in lines] == plain
        assert columns == {name: [getattr(one, name) for one in lines] for name in columns}
        assert any(one.operands for one in lines)
        assert (len(lines), lines[1:3], lines) == (len(plain), tuple(lines)[1:3], tuple(lines))
        assert pickle.loads(pickle.dumps(lines)) == tuple(lines)
