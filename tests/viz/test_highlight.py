"""One definition of syntax colours, used equally in Python and in the front end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mithril_nb.inspection  # registers the stages of emitted source
import mithril_nb.viz
from mithril_nb.stages.stage_kinds import STAGE_KINDS
from mithril_nb.viz.languages import highlighted, tokens

DEFINITION = json.loads((Path(mithril_nb.viz.__file__).parent / "tokens.json").read_text(encoding="utf-8"))
LANGUAGES = ("python", "graph", "jaxpr", "mlir", "hlo", "llvm", "asm", "c")

TEXTS = {
    "python": '''\
import jax.numpy as jnp  # the array library
@jax.jit
def step(params, x: int = 0x1F, *, rate=1e-3):
    """A step,
    and 2 lines.""" + 'one'
    return Linear(10)(x) @ params["w"] if x is not None else 1_000.5j
''',
    "graph": """\
mlp_0: MLP(hidden_sizes=(256,), name='x "y"')  # repeated
  linear_0/weight -> relu_0 float32[32,10] f32[2] 1.5e-3
""",
    "jaxpr": """\
{ lambda
    a:f32[7]  # params['linear_0.bias']
    k:key<fry>[] b:bool[] c:i32[2,3]
  let
    f:f32[2,7] = dot_general[dimension_numbers=[1]x[0] precision=None] e b
    g:f32[1,7] = broadcast_in_dim[shape=(1,7) broadcast_dimensions=(1,)] a
    h:f32[2,7] = add f -1.5e-08:f32[]
    ab:f32[2] = scatter-add[mode=1 name="x y"] a b inf
  in (p) }
""",
    "mlir": """\
module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<32x10xf32> {jax.result_info = "a \\"b\\""}) -> (tensor<f32>, !stablehlo.token) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x64xf32>) loc(#loc)
    %1:2 = stablehlo.while(%iterArg = %c) : tensor<i32> cond { // a comment
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32> loc("x"("f.py":3:4))
    ^bb0(%a: tensor<f32>):
    %5 = chlo.erf %2 : tensor<2xf32> -> tensor<2xf32>
    sdy.mesh @mesh = <["x"=8]>
""",
    "hlo": """\
HloModule jit_f, is_scheduled=true
ENTRY %main.3 (x.1: f32[2]) -> f32[2] {
  %x = f32[32,10]{1,0} parameter(0), metadata={op_name="x" stack_frame_id=2}
  ROOT %dot.3 = (f32[2]{0}, /*index=1*/pred[]) dot(%x, %b), lhs_contracting_dims={1}, custom_call_target="a b"
  %c = f8e4m3fn[2] constant({-1.5, inf, 1e-05})
entry:
  linear_0.weight = f32[64,64] parameter(0)
  return reduce(x, -inf, 0.5:s32) by add over 0,1:
  call = f32[] call(x) to_apply=@region // what is this
""",
    "llvm": """\
; ModuleID = 'x'
target triple = "x86_64-unknown-linux-gnu"
@0 = private constant [4 x i8] c"\\00\\01", align 4
define ptr @"a b"(ptr noalias %0, i64 %x.1) local_unnamed_addr #0 {
loop.body:  ; preds = %entry
  %3 = fadd reassoc <8 x float> %1, <float 1.000000e+00, float 0x3F50624DE0000000>, !alias.scope !3
  %4 = tail call float @llvm.fma.f32(float %a, float undef, float -1.5)
  br i1 true, label %exit, label %"loop body"
attributes #0 = { nounwind "frame-pointer"="all" }
""",
    "asm": """\
kernel.1:
  0x1f: c5 fc 10 07  vmovups ymm0, ymmword ptr [rdi + 8*rax - 0x20]
  0x0012  vmovss xmm0, dword ptr [rip + 0x10]  ; 0.5
  vfmadd231ps %zmm1, %zmm2, $0x10  # AT&T
  jne <kernel+0x40>
  fmla v0.4s, v1.4s, v2.s[1] // ARM
  ldr q0, [x1, #16]
  add x0, x0, #-4
.visible .entry fusion(.param .u64 fusion_param_0)
  @!%p1 bra $L__BB0_2;
$L__BB0_2:
  ld.global.nc.v4.f32 {%f1, %f2}, [%rd4+16];
  fma.rn.f32 %f3, %f1, 0f3F800000, %f2;
""",
    "c": """\
#include <math.h>
// sums
static void linear_0(const float x[restrict 5][4], int32_t *n, char *arena)
{
    for (int i = 0; i < 5; i++)
        x[i][0] = expf(-1.5e-3f * INFINITY) + (n ? 0x1Fu : 2.0);
    puts("a \\"text\\"");
}
""",
}
AWKWARD = '"open\n%%%\n   \n\té ☃ 𝒳 <script> \u2028 \x85\n\'a\\\'b\' "c\\"d" x"""y\n' + "x" * 4100 + " 1\n"


def _golden(text: str, language: str) -> list[list[object]]:
    found = ([token for token in line if token[0]] for line in tokens(text, language))
    return [[line, named] for line, named in zip(text.split("\n"), found, strict=True)]


def test_golden_for_both_sides(golden) -> None:
    """The front end's tests read the same lines from this file and must find the same tokens."""
    made = {language: _golden(TEXTS[language] + AWKWARD, language) for language in LANGUAGES}
    lines = [
        f"  {json.dumps(language)}: [\n" + ",\n".join("    " + json.dumps(pair) for pair in pairs) + "\n  ]"
        for language, pairs in made.items()
    ]
    golden("tokens.json", "{\n" + ",\n".join(lines) + "\n}\n")


def test_every_stage_has_a_language_and_every_language_a_stage() -> None:
    assert {kind.language for kind in STAGE_KINDS.values()} == set(DEFINITION["languages"])


@pytest.mark.parametrize("language", DEFINITION["languages"])
def test_rules_mean_the_same_on_both_sides(language: str) -> None:
    names = {"comment", "string", "op", "type", "number", "name", "meta", "value", "punctuation", None}
    for pattern, name, *close in DEFINITION["languages"][language]:
        assert name in names
        plain = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "", pattern)
        assert "." not in plain, f"{pattern}: `.` stops at other line ends in JavaScript"
        assert not re.search(r"\\[sSAZzpPN]|\(\?P|\(\?[aiLmsux]|\(\?#|[*+?}]\+", pattern), pattern
        assert re.compile(pattern, re.ASCII).groups == 0
        for expression in close:
            re.compile(expression)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200), st.sampled_from([*LANGUAGES, "other"]))
def test_no_character_is_lost(text: str, language: str) -> None:
    lines = list(highlighted(text, language))
    assert "\n".join("".join(piece for _, piece in line) for line in lines) == text
    assert all(piece for line in lines for _, piece in line)


def test_a_long_line_does_not_take_long() -> None:
    line = "%0 = stablehlo.constant dense<" + "[1.0, " * 200_000
    assert len("".join(piece for _, piece in next(iter(highlighted(line, "mlir"))))) == len(line)
    for language in LANGUAGES:
        for text in ("a" * 100_000, '"' * 4000, "(" * 4000, "ab:" * 1500, "<" * 4000, "00 " * 1500):
            list(highlighted(text, language))
