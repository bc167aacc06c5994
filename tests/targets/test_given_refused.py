"""Errors for missing, broken and damaged files and bytes, and for options that do not apply."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import jax
import pytest
from jax_programs import spec
from stress import Stress

import mithril_nb as ml
from mithril_nb.errors import ModelFileError, StageUnavailableError
from tests.targets.given_programs import ARGS, file, hlo_proto, lowered, refused, step


@pytest.mark.parametrize(
    ("target", "args", "options", "message"),
    [
        (lowered().as_text(), (spec(3),), {}, "'step' takes no arguments=.\n    takes  name=, params=, device=, "),
        (lowered().compile(), (), {"device": jax.devices()[0]}, "'step' takes no device=.\n    takes  name=, params="),
        (lowered(), (), {"optimizer": "adam"}, "'step' takes no optimizer=."),
        (lowered(), (), {"static_argnums": 0}, "'step' takes no static_argnums=."),
        (lowered(), (), {"params": "weights"}, "params='weights' is not an argument of program 'step'."),
    ],
)
def test_unused_arguments_and_options_are_rejected(target, args, options, message) -> None:
    assert refused(target, *args, **options).startswith(message)


def test_accepted_options_are_used() -> None:
    found = ml.inspect(lowered().as_text(debug_info=True), name="mine", params="x")
    assert found.name == "mine"
    assert found.cost("lowered").total.params == 8
    dots = ml.inspect(lowered(), compiler_options={"xla_cpu_enable_fast_math": True})
    assert dots.stage("hlo").unavailable is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("step.mlir", None, "it cannot be read.\n    because  No such file or directory\n"),
        ("empty.hlo", " \n", "it is empty.\n"),
        ("model.onnx", b"\x08\x07", "files with the suffix '.onnx' are not read.\n    suffixes  .mlir, .stablehlo, "),
        ("note.txt", "a note\nof two lines", "it contains no program.\n    begins with  'a note\\nof two lines'\n"),
        ("cut.mlir", "module @jit_f {\n  func.func public @main(", "it is not StableHLO that JAX "),
        ("other.mlir", "module @jit_f {\n}\n", "it is not StableHLO that JAX "),
        ("cut.hlo", "HloModule f\n\nENTRY %main () -> f32[] {", "it is not HLO that JAX "),
    ],
)
def test_unreadable_files_are_rejected(tmp_path: Path, name: str, content: str | bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        file(tmp_path, name, content)
    assert refused(path).startswith(f"cannot inspect {str(path)!r}: {message}")


def test_folders_large_files_and_other_bytes_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "it is not a regular file" in refused(tmp_path)
    assert refused(b"\0\1\2").startswith(
        f"cannot inspect this data: it is not a serialized program that JAX {jax.__version__} can read.\n"
        "    because  INVALID_ARGUMENT: Failed to deserialize HloModuleProto\n"
    )
    monkeypatch.setattr("mithril_nb.targets.lowered.LARGEST_BYTES", 1)
    assert "it is not a regular file of at most 1 bytes" in refused(file(tmp_path, "step.hlo", "HloModule f"))


def test_damaged_files_are_rejected_or_read(stress: Stress) -> None:
    """Damaged files never end the process, and raise only errors of mithril_nb."""
    made = lowered()
    texts = [made.as_text(debug_info=True).encode(), (made.compile().as_text() or "").encode(), hlo_proto(made)]
    chance = random.Random(7)
    read = 0
    count = stress.size(short=60, long=6000)
    for number in range(count):
        data = bytearray(texts[number % 3])
        if number % 2:
            del data[chance.randrange(len(data)) :]
        for _ in range(3 if number % 2 == 0 else 0):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(ModelFileError):
            found = ml.inspect(bytes(data))
            assert found.given is not None
            first = found.given.stages[0]
            assert found.stage(first).name == first
            read += 1
    stress.report(damaged=count, read=read)
    assert read < count / 2


def test_damaged_bytecode_cannot_end_the_process(stress: Stress) -> None:
    code = jax.export.export(jax.jit(step))(*ARGS).mlir_module_serialized
    chance = random.Random(3)
    for _ in range(stress.size(short=2, long=60)):
        data = bytearray(code)
        for _ in range(4):
            data[chance.randrange(4, len(data))] = chance.randrange(256)
        with suppress(ModelFileError):
            assert ml.inspect(bytes(data)).name


def test_functions_that_call_each_other_exponentially_are_read_in_time() -> None:
    depth = 30
    functions = "".join(
        f"func.func private @f{n}(%arg0: tensor<f32>) -> tensor<f32> {{\n"
        f'  %0 = call @f{n + 1}(%arg0) : (tensor<f32>) -> tensor<f32> loc("a")\n'
        f'  %1 = call @f{n + 1}(%0) : (tensor<f32>) -> tensor<f32> loc("b")\n'
        "  return %1 : tensor<f32>\n}\n"
        for n in range(depth)
    )
    text = (
        "module @jit_deep {\nfunc.func public @main(%arg0: tensor<f32>) -> tensor<f32> {\n"
        '  %0 = call @f0(%arg0) : (tensor<f32>) -> tensor<f32> loc("jit(deep)/top")\n  return %0 : tensor<f32>\n}\n'
        f"{functions}func.func private @f{depth}(%arg0: tensor<f32>) -> tensor<f32> {{\n"
        '  %0 = stablehlo.sine %arg0 : tensor<f32> loc("sin")\n  return %0 : tensor<f32>\n}\n}\n'
    )
    found = ml.inspect(text)
    assert [one.opcode for one in found.stage("stablehlo").instructions].count("stablehlo.sine") == 1


def test_a_serialized_export_needs_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file(tmp_path, "flatbuffers.py", "raise ImportError")  # imported by the process that reads the program
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    message = refused(b"\0\0\0\0" + jax.export.export(jax.jit(step))(*ARGS).mlir_module_serialized)
    assert "because  ImportError: Please install 'flatbuffers' in order to use Exported serialization\n" in message


def test_slow_bytecode_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mithril_nb.stages.given.program._LEAST_S", 0.001)
    with pytest.raises(
        ModelFileError, match=r"because  reading the data takes longer than 0\.001 s; the data may be damaged"
    ):
        ml.inspect(jax.export.export(jax.jit(step))(*ARGS).mlir_module_serialized)


def test_constants_of_six_bits_do_not_reach_xla() -> None:
    text = """module @jit_f {
      func.func public @main() -> tensor<f6E2M3FN> {
        %cst = stablehlo.constant dense<1.0> : tensor<f6E2M3FN>
        return %cst : tensor<f6E2M3FN>
      }
    }"""
    inspection = ml.inspect(text)
    assert "f6E2M3FN" in inspection.stage("stablehlo").text
    for source in ("lowered", "compiled"):
        with pytest.raises(StageUnavailableError, match="XLA cannot read constants of f6E2M3FN"):
            inspection.cost(source)
