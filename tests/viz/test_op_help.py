"""Help: a line for every operation that can occur, in plain words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.extend.core.primitives
import jax.lax
import jax.numpy as jnp
import pytest
from jax_programs import EVERYTHING_PARAMS, everything, linear_params, mlp, spec, train_step
from jaxlib.mlir.dialects import chlo, func, sdy, stablehlo

import mithril_nb.teach
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.teach.explain_help import op_help

FILE = Path(mithril_nb.teach.__file__).parent / "op_help.json"
TABLES = json.loads(FILE.read_text(encoding="utf-8"))

HLO = """
abs acos acosh add add-dependency after-all all-gather all-gather-done all-gather-start all-reduce
all-reduce-done all-reduce-start all-to-all and asin asinh async-done async-start async-update atan2 atanh
batch-norm-grad batch-norm-inference batch-norm-training bitcast bitcast-convert broadcast call cbrt ceil
cholesky clamp collective-broadcast collective-permute collective-permute-done collective-permute-start
compare complex concatenate conditional constant convert convolution copy copy-done copy-start cosine cosh
count-leading-zeros custom-call divide domain dot dynamic-reshape dynamic-slice dynamic-update-slice erf
exponential exponential-minus-one fft floor fusion gather get-dimension-size get-tuple-element imag infeed
iota is-finite log log-plus-one logistic map maximum minimum multiply negate not opt-barrier or outfeed pad
parameter partition-id popcnt power ragged-all-to-all ragged-dot real recv recv-done reduce reduce-precision
reduce-scatter reduce-window remainder replica-id reshape reverse rng rng-bit-generator
rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scaled-dot scan scatter select
select-and-scatter send send-done set-dimension-size shift-left shift-right-arithmetic shift-right-logical
sign sine sinh slice sort sqrt stochastic-convert subtract tan tanh topk transpose triangular-solve tuple
while xor
""".split()

LLVM = """
add addrspacecast alloca and ashr atomicrmw bitcast br call cmpxchg extractelement extractvalue fadd fcmp fdiv
fence fmul fneg fpext fptosi fptoui fptrunc freeze frem fsub getelementptr icmp insertelement insertvalue
inttoptr load lshr mul or phi ptrtoint ret sdiv select sext shl shufflevector sitofp srem store sub switch
trunc udiv uitofp unreachable urem xor zext
""".split()

ASM = {
    "Multiplies and adds in one step": "vfmadd231ps vfnmadd213ss vfmsub132pd vfmaddsub231ps fmla fmadd fma.rn.f32",
    "Copies a value between registers or memory": "mov movq vmovd movabs movsxd movzx movl movslq movzbl movsx",
    "Copies floats or a whole vector": "vmovups movaps vmovdqu vmovdqu64 vmovss vmovsd vmovlps movlhps",
    "Puts one value into all lanes": "vbroadcastss vpbroadcastd",
    "Copies only the lanes": "vmaskmovps vpmaskmovd",
    "Reads the lanes": "vgatherdps vpgatherqd",
    "Adds; with": "add vaddps addss vpaddd paddq addq fadd add.f32 add.s64 vaddsubps",
    "Adds or subtracts lanes": "vhaddps haddpd",
    "Subtracts": "sub vsubps subsd vpsubd subq fsub sub.f32",
    "Multiplies; with": "mul imul imulq vmulps mulss vpmulld pmuludq fmul mul.rn.f32 mulx",
    "Multiplies lanes and sums": "vpmaddwd vpdpbusd vdpbf16ps sdot",
    "Divides": "div idiv divq vdivps divss fdiv sdiv div.rn.f32",
    "Square root": "sqrtss vsqrtps vrsqrtps rsqrtss frsqrte fsqrt rsqrt.approx.f32",
    "One over each element": "vrcpps rcpss frecpe rcp.approx.f32",
    "The larger": "vmaxps maxss vpmaxsd fmaxnm max.f32",
    "The smaller": "vminps minsd vpminud fminnm min.s32",
    "Rounds": "vroundps roundss vrndscaleps frintm",
    "Turns numbers into another type": "vcvttps2dq cvtsi2ss vcvtps2pd cltq cdqe cqo scvtf fcvtzs",
    "And, bit by bit": "and vandps vpand vandnps pandn andn and.b32 ands andq",
    "Works on masks": "kmovw kortestw",
    "Exclusive or": "xor xorl xorps vxorps vpxor vpxord eor xor.b32",
    "Or, bit by bit": "or por orps orr or.b32 vpord orl",
    "Any logical function": "vpternlogd lop3.b32",
    "Negates, inverts": "neg not negq vpabsd fneg fabs neg.f32 abs.f32",
    "Moves bits to the left.": "shl shlq vpslld shlx lsl shl.b32 vpsllvd",
    "Moves bits to the right.": "shr sar sarl psrlq vpsrad sarx vpsrlvd shr.u32",
    "Moves bits to the left or": "rol rorx shf.l.wrap.b32",
    "Compares": "cmp cmpl test testb vcmpps vcmpltps cmpeqss vucomiss comisd vpcmpeqd fcmp vptest tst",
    "Selects one of two values": "vblendvps vpblendd cmovl cmovae csel fcsel bsl",
    "Writes 1 if a condition holds, and 0 if not.": "sete setne setb cset",
    "Moves lanes inside": "vshufps vpermilps vpermd vunpcklps vextractf128 vinsertf128 vpshufd zip1 ext",
    "Computes an address": "lea leaq adrp",
    "Pushes values": "push pop pushq popq stp ldp leave",
    "Reads memory": "ldr ldur ld1 ldrb",
    "Writes memory": "str stur st1",
    "Prefetches memory": "prefetcht0 prfm",
    "Calls a function": "call callq bl blr call.uni",
    "Returns": "ret retq exit",
    "Jumps if": "jne je jb jae jle jg js jnp b.ne cbz tbnz",
    "Jumps.": "jmp jmpq b br",
    "Clears the upper": "vzeroupper vzeroall",
    "Adds or subtracts one": "inc dec incq",
    "Does nothing": "nop nopw nopl endbr64",
    "Stops the program": "int3 ud2",
    "Keeps threads": "lock xchg mfence dmb",
    "Waits until": "bar.sync",
    "Counts": "tzcnt lzcnt popcnt bsr bt clz bextr",
    "Copies a value into": "fmov movi movk mov.u32 mov.b64",
    "Reads global memory": "ld.global.f32 ld.global.v4.b32 ld.relaxed.sys.global.b32",
    "Reads global memory through a cache": "ld.global.nc.v4.b32",
    "Reads shared memory": "ld.shared.v2.b32",
    "Writes global memory": "st.global.v4.f32",
    "Writes shared memory": "st.shared.b16",
    "Reads an argument": "ld.param.b64 ld.param::entry.b64",
    "Reads a register of another thread": "shfl.sync.b32",
    "Tensor cores": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 wgmma.mma_async.sync.aligned.m64n8k16",
    "Orders the products of wgmma": "wgmma.wait_group.sync.aligned",
    "Copies between global and shared": "cp.async.cg.shared.global cp.async.bulk.tensor.2d.shared",
    "Groups copies": "cp.async.wait_group cp.async.commit_group cp.async.bulk.wait_group.read",
    "Turns a number into another type": "cvt.f32.f16 cvt.rn.bf16x2.f32",
    "Compares two values, and writes": "setp.lt.f32",
    "Selects one of two values by a predicate": "selp.f32",
    "Reads and changes": "atom.global.add.f32 red.global.add.f32",
    "Makes writes of this thread": "membar.gl fence.proxy.async",
    "Multiplies whole numbers": "mul.wide.u32 mul.hi.s32",
    "Jumps to a label": "bra bra.uni",
    "Approximate special": "ex2.approx.f32 tanh.approx.f32 lg2.approx.f32",
}  # fmt: skip


_LOWERED = """
import json, jax, jax.extend.core.primitives
public = {
    vars(module)[name].name
    for module in (jax.lax, jax.extend.core.primitives)
    for name in vars(module)
    if name.endswith("_p")
}
try:  # JAX has no public list of what it lowers; where this one is gone, the public names are enough.
    from jax._src.interpreters import mlir
    tables = [mlir._lowerings, *mlir._platform_specific_lowerings.values()]
except ImportError:
    tables = []
print(json.dumps(sorted(public | {primitive.name for table in tables for primitive in table})))
"""


def _primitives() -> set[str]:
    """Every primitive that JAX lowers to StableHLO, with those of its public modules.

    Runs in a separate process, because libraries imported by other tests add primitives.
    """
    found = subprocess.run([sys.executable, "-c", _LOWERED], stdout=subprocess.PIPE, check=True, text=True)
    return set(json.loads(found.stdout))


def test_every_primitive_of_jax_has_help() -> None:
    names = _primitives()
    assert len(names) > 250
    assert {name for name in names if op_help("jaxpr", name) is None} == set()


def test_every_op_of_stablehlo_and_its_neighbours_has_help() -> None:
    names = {
        made.OPERATION_NAME
        for dialect in (stablehlo, chlo, func, sdy)
        for made in vars(dialect).values()
        if isinstance(made, type) and isinstance(getattr(made, "OPERATION_NAME", None), str)
    }
    assert len(names) > 180
    assert {name for name in names if op_help("stablehlo", name) is None} == set()


@pytest.mark.parametrize(("stage", "opcodes"), [("hlo", HLO), ("hlo_before", HLO), ("llvm", LLVM)])
def test_every_opcode_has_help(stage: str, opcodes: list[str]) -> None:
    assert {opcode for opcode in opcodes if op_help(stage, opcode) is None} == set()


def test_families_of_mnemonics() -> None:
    wrong = {
        mnemonic: op_help("asm", mnemonic)
        for start, mnemonics in ASM.items()
        for mnemonic in mnemonics.split()
        if not (op_help("asm", mnemonic) or "").startswith(start)
    }
    assert wrong == {}


def test_everything_in_whole_programs_has_help() -> None:
    widths = (5, 7, 3)
    step = train_step(mlp(widths), linear_params(widths), (spec(2, 5),), spec(2, 3))

    def rest(x, key):
        x = x.at[jnp.array([0, 1])].add(jnp.sort(x)[:2])
        return jnp.linalg.solve(jnp.outer(x, x), x), jnp.fft.rfft(x), jax.random.normal(key, (3,)), jnp.argmax(x)

    for fn, args in (step, (everything, (EVERYTHING_PARAMS, spec(3, 7))), (rest, (spec(4), spec(2, dtype="uint32")))):
        made = inspect(fn, *args)
        for stage in ("jaxpr", "stablehlo", "hlo"):
            opcodes = {one.opcode for one in made.stage(stage).instructions}
            assert {opcode for opcode in opcodes if op_help(stage, opcode) is None} == set(), stage


def test_the_words_are_plain_and_short() -> None:
    """One sentence each, and no entry of a dialect that repeats the entry for all dialects."""
    texts = [text for name, table in TABLES.items() if name not in ("same", "asm", "lines") for text in table.values()]
    for text in [*texts, *(text for _, text in TABLES["asm"])]:
        assert len(text) <= 120, text
        assert text.endswith("."), text
        assert text[0].isupper() or text[0] in "-e", text
    assert len(FILE.read_bytes()) < 70_000
    for dialect in ("jaxpr", "stablehlo", "hlo"):
        assert [name for name, text in TABLES[dialect].items() if TABLES["all"].get(name) == text] == []


def test_golden_for_both_sides(golden) -> None:
    """The front end's tests read the same file."""
    queries = [
        ("jaxpr", "scatter-add"), ("jaxpr", "exp"), ("jaxpr", "pjit"), ("stablehlo", "stablehlo.exponential"),
        ("stablehlo", "chlo.broadcast_add"), ("stablehlo", "func.func"), ("stablehlo", "stablehlo.broadcast_in_dim"),
        ("hlo", "get-tuple-element"), ("hlo_before", "topk"), ("hlo", "fusion"), ("hlo", "no-such"), ("llvm", "phi"),
        ("asm", "VFMADD231PS"), ("asm", "ld.global.f32"), ("asm", "wxyz"), ("python", "x"), ("graph", "add"),
        ("jaxpr", "constructor"), ("llvm", "toString"),
    ]  # fmt: skip
    rows = [json.dumps([stage, opcode, op_help(stage, opcode)]) for stage, opcode in queries]
    golden("op_help.json", "[\n  " + ",\n  ".join(rows) + "\n]\n")
