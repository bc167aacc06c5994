"""LLVM IR read line by line."""

from __future__ import annotations

from mithril_nb.stages.xla.kernel_code import llvm_lines

MODULE = """; ModuleID = '__compute_module'
source_filename = "__compute_module"
target triple = "x86_64-unknown-linux-gnu"

%kernel_dim3 = type { i64, i64, i64 }

@"odd name" = private constant [2 x float] [float 1.0, float 2.0], align 4

; Function Attrs: uwtable
define noalias ptr @"wrapped tanh.1"(ptr %0) #0 {
entry:
  %x = load float, ptr %0, align 4, !invariant.load !3, !alias.scope !5
  %"odd value" = tail call float @llvm.fma.f32(float %x, float %x, float %x), !dbg !9
  %y = call fast float %0(ptr @"odd name")
  switch i32 %2, label %done [
    i32 0, label %loop
    i32 1, label %done
  ]

loop:                                             ; preds = %entry, %loop
  %z = getelementptr inbounds nuw i8, ptr %"odd value", i64 4
  store float %x, ptr %z, align 4
  br i1 %c, label %loop, label %done, !llvm.loop !7

done:
  ret ptr null
}

declare float @llvm.fma.f32(float, float, float)

define internal void @second() {
  unreachable
}

attributes #0 = { uwtable "frame-pointer"="all" }
!3 = !{}
"""


def everything() -> list[tuple[str, str, tuple[str, ...]]]:
    return [*llvm_lines(MODULE, "wrapped tanh.1"), *llvm_lines(MODULE, "second")]


def test_globals_and_functions_are_listed_and_nothing_else() -> None:
    lines = [line for line, _, _ in everything()]
    assert [line for line in lines if line.startswith(("@", "define"))] == [
        '@"odd name" = private constant [2 x float] [float 1.0, float 2.0], align 4',
        'define noalias ptr @"wrapped tanh.1"(ptr %0) #0 {',
        "define internal void @second() {",
    ]
    assert not any(line.startswith(("declare", "attributes", "!", ";", "source", "target")) for line in lines)


def test_instructions_have_opcodes_and_operands_and_the_callee_first() -> None:
    assert [(opcode, operands) for _, opcode, operands in everything() if opcode] == [
        ("load", ("%0",)),
        ("call", ("@llvm.fma.f32", "%x", "%x", "%x")),
        ("call", ("%0", '@"odd name"')),
        ("switch", ("%2", "%done")),
        ("getelementptr", ('%"odd value"',)),
        ("store", ("%x", "%z")),
        ("br", ("%c", "%loop", "%done")),
        ("ret", ()),
        ("unreachable", ()),
    ]


def test_switch_cases_are_lines_but_not_instructions() -> None:
    lines = [(line, opcode) for line, opcode, _ in everything()]
    at = lines.index(("    i32 0, label %loop", ""))
    assert lines[at + 1 : at + 3] == [("    i32 1, label %done", ""), ("  ]", "")]


def test_noise_is_left_out() -> None:
    text = "\n".join(line for line, _, _ in everything() if not line.startswith("@"))
    assert "align" not in text
    assert "!" not in text
    assert "preds" not in text
    assert "\nloop:\n" in text


def test_a_module_that_ends_early_is_read_as_far_as_it_goes() -> None:
    assert list(llvm_lines("", "f")) == []
    assert [opcode for _, opcode, _ in llvm_lines("define void @f() {\n  ret void", "f")] == ["", "ret"]
