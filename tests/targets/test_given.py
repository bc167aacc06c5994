"""Inspections of lowered, compiled and exported programs, and of their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec
from stress import Stress
from transcript import message_of

import mithril_nb as ml
from benchmarks.corpus import corpus
from mithril_nb.errors import StageUnavailableError
from mithril_nb.inspection import Inspection
from mithril_nb.stages.given.jax_modules import StableHlo
from mithril_nb.stages.hlo.text import tidy_module
from mithril_nb.stages.stage_kinds import STAGE_KINDS
from tests.targets.given_programs import ARGS, at_every_step, file, hlo_proto, lowered, step

CONTENTS = {
    "python": "Python", "graph": "graph", "jaxpr": "jaxpr", "stablehlo": "StableHLO",
    "hlo_before": "HLO before optimization", "hlo": "optimized HLO", "llvm": "LLVM IR", "asm": "machine code",
}  # fmt: skip
FROM_STABLEHLO = ("stablehlo", "hlo_before", "hlo", "llvm", "asm")
SHORT = (
    "MLP, forward", "MLP with scopes, train step", "LSTM by scan, forward", "mixture of experts, forward",
    "ensemble by vmap, forward", "LeNet, forward", "remat, gradient", "cond, gradient", "switch, forward",
    "while, forward", "custom gradient", "steps in a scan", "Flax nnx, forward", "Equinox, forward",
)  # fmt: skip
"""Programs that compile in about a second."""


def lines(text: str) -> list[str]:
    return sorted(line.strip() for line in text.splitlines() if line.strip())


def instructions(text: str) -> list[str]:
    """Return the instructions of HLO; XLA prints the headers of computations in two ways."""
    return [line for line in lines(text) if " = " in line]


def available(inspection: Inspection) -> list[str]:
    return [name for name in inspection.stages if inspection.stage(name).unavailable is None]


# Stages

OBJECTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lowered": ("a jax.stages.Lowered", FROM_STABLEHLO),
    "compiled": ("a jax.stages.Compiled", ("hlo",)),
    "exported": ("an exported program", FROM_STABLEHLO),
    "StableHLO file": ("StableHLO text", FROM_STABLEHLO),
    "StableHLO text": ("StableHLO text", FROM_STABLEHLO),
    "StableHLO in .txt": ("StableHLO text", FROM_STABLEHLO),
    "HLO file": ("HLO text", ("hlo",)),
    "HLO bytes": ("HLO text", ("hlo",)),
    "HLO before": ("HLO text before XLA's passes", ("hlo_before",)),
    "HLO proto": ("a serialized HLO module before XLA's passes", ("hlo_before",)),
    "MLIR bytecode": ("MLIR bytecode", FROM_STABLEHLO),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_stages_and_the_reasons_why_others_are_unavailable(kind: str, tmp_path: Path) -> None:
    given_as, stages = OBJECTS[kind]
    found = ml.inspect(at_every_step()[kind](tmp_path))
    assert found.name == "step"
    has_locations = kind not in ("StableHLO text", "StableHLO in .txt")
    there = {*stages, *(["python"] if has_locations else [])}
    assert {name: found.stage(name).unavailable for name in found.stages} == {
        name: None if name in there else f"this program was given as {given_as}: it has no {CONTENTS[name]}"
        for name in found.stages
    }
    for source, stage in (("lowered", "hlo_before"), ("compiled", "hlo")):
        if stage in stages:
            assert found.cost(source).total.flops == ml.inspect(step, *ARGS).cost(source).total.flops
    source = "lowered" if "hlo_before" in stages else "compiled"
    assert message_of(lambda: found.cost("analytic")) == (
        "StageUnavailableError: program 'step' has no jaxpr.\n"
        f"    reason  this program was given as {given_as}: it has no jaxpr\n"
        f'    Try: inspection.cost(source="{source}")  # counts the program as it was given'
    )
    if has_locations:
        assert [one.name for one in found.inputs] == ["params['v']", "params['w']", "x"]
        assert found.cost(found.given.sources[0] if found.given else "").total.params == 56


def test_objects_above_stablehlo_have_every_stage() -> None:
    jitted = jax.jit(step)
    for found in (
        ml.inspect(jitted, *ARGS), ml.inspect(jitted.trace(*ARGS)), ml.inspect(jax.make_jaxpr(step)(*ARGS)),
    ):  # fmt: skip
        assert available(found) == [
            name for name, kind in STAGE_KINDS.items() if not (kind.is_optional or kind.platforms)
        ]
        assert found.given is None


def test_a_serialized_export_is_read() -> None:
    pytest.importorskip("flatbuffers")  # JAX does not depend on it
    exported = jax.export.export(jax.jit(step))(*ARGS)
    found = ml.inspect(bytes(exported.serialize()))
    assert available(found) == ["python", *FROM_STABLEHLO]
    assert found.stage("stablehlo").text == ml.inspect(exported).stage("stablehlo").text
    (batch,) = jax.export.symbolic_shape("batch")
    wide = jax.export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((batch, 2), "float32"))
    assert ml.inspect(bytes(wide.serialize())).stage("hlo").unavailable == (
        "XLA needs a number for each size, and has none for batch"
    )


def test_a_compiled_hlo_proto_and_an_xla_dump_are_read(tmp_path: Path) -> None:
    proto = hlo_proto(lowered())
    length = len(proto)
    size = b""
    while length:
        size += bytes([length & 0x7F | (0x80 if length > 0x7F else 0)])
        length >>= 7
    dump = ml.inspect(file(tmp_path, "module.hlo.pb", b"\x0a" + size + proto))
    assert dump.stage("hlo_before").text == ml.inspect(proto).stage("hlo_before").text


# The corpus


def test_pipeline_objects_of_the_corpus(stress: Stress, tmp_path: Path) -> None:
    """Texts equal those of the objects; compiled costs equal those of the function."""
    names = SHORT[: stress.size(short=2, long=len(SHORT))]
    objects = 0
    for name in names:
        fn, args = corpus()[name]()
        wanted = ml.inspect(fn, *args).cost("compiled")
        made = lowered(fn, args)
        jitted: Any = fn if hasattr(fn, "lower") else jax.jit(fn)
        compiled, exported = made.compile(), jax.export.export(jitted)(*args)
        plain, text = made.as_text(), compiled.as_text() or ""
        hlo = lines(tidy_module(text))
        exported_text = StableHlo(exported.mlir_module()).as_text()
        mlir = file(tmp_path, "program.mlir", made.as_text(debug_info=True))
        for target, stablehlo in (
            (jitted.trace(*args), plain), (made, plain), (mlir, plain), (plain, plain), (exported, exported_text),
        ):  # fmt: skip
            found = ml.inspect(target)
            if found.given is not None:
                assert found.stage("stablehlo").text == stablehlo, (name, target)
            if target is made or target is mlir:  # others have other names, or constants in other places
                assert lines(found.stage("hlo").text) == hlo, (name, target)
            cost = found.cost("compiled")
            assert (cost.total.flops, cost.total.transcendentals) == (wanted.total.flops, wanted.total.transcendentals)
            assert target is exported or target is plain or cost.total.bytes_accessed == wanted.total.bytes_accessed
        for target in (compiled, file(tmp_path, "program.hlo", text)):
            found = ml.inspect(target)
            assert lines(found.stage("hlo").text) == hlo, (name, target)
            total = found.cost("compiled").total
            assert (total.flops, total.bytes_accessed) == (wanted.total.flops, wanted.total.bytes_accessed)
        before = ml.inspect(file(tmp_path, "before.txt", made.as_text("hlo", debug_info=True)))
        assert before.stage("hlo_before").text == ml.inspect(made).stage("hlo_before").text
        again = ml.inspect(hlo_proto(made))
        assert instructions(again.stage("hlo_before").text) == instructions(before.stage("hlo_before").text)
        jaxpr = ml.inspect(jax.make_jaxpr(fn)(*args))
        assert jaxpr.cost("compiled").total.flops == wanted.total.flops
        products = [one for one in ml.inspect(made).stage("hlo").instructions if one.opcode in ("dot", "convolution")]
        links = ml.inspect(made).links("hlo", "stablehlo")
        assert [one.id for one in products if not links[one.id]] == []
        objects += 10
    stress.report(programs=len(names), objects=objects)


# Links and blocks


def test_op_names_link_stablehlo_with_hlo() -> None:
    found = ml.inspect(lowered().as_text(debug_info=True))
    stablehlo, hlo = found.stage("stablehlo"), found.stage("hlo")
    products = [one for one in stablehlo.instructions if one.opcode == "stablehlo.dot_general"]
    assert [(one.shares, one.origin) for one in products] == [
        ((("body", 1.0),), "inferred"),
        ((("head", 1.0),), "inferred"),
    ]
    assert {one.origin for stage in (stablehlo, hlo) for one in stage.instructions} <= {"inferred", None}
    forward, back = found.links("stablehlo", "hlo"), found.links("hlo", "stablehlo")
    dots = {one.id: one for one in hlo.instructions if one.opcode == "dot"}
    for product in products:
        (linked,) = forward[product.id] & dots.keys()
        assert dots[linked].blocks == product.blocks
        assert product.id in back[linked]
    relu = next(one for one in stablehlo.instructions if one.opcode == "stablehlo.maximum")
    assert relu.equations == ("jit(step)/body/jit(relu)/max",)
    assert {path for path in found.cost("compiled").by_block if path} == {"body", "head"}
    wanted = ml.inspect(step, *ARGS).cost("compiled")
    assert found.cost("compiled").by_block["body"].flops == wanted.by_block["body"].flops


def test_text_without_names_has_no_links() -> None:
    found = ml.inspect(lowered().as_text())
    assert {one.equations for one in found.stage("stablehlo").instructions} == {()}
    assert set(found.links("stablehlo", "hlo").values()) == {frozenset()}
    assert found.cost("compiled").unattributed_share == 1.0


def test_roles_follow_the_names_that_autodiff_gives() -> None:
    found = ml.inspect(lowered(jax.grad(step), ARGS))
    roles = {one.role for one in found.stage("hlo").instructions if one.opcode == "dot"}
    assert roles == {"forward", "backward"}


# What the device or the sizes do not allow


def test_reason_why_stablehlo_does_not_compile() -> None:
    export: Any = jax.export.export(jax.jit(jnp.sin), platforms=["tpu"])
    found = ml.inspect(export(spec(3)))
    assert found.stage("stablehlo").unavailable is None
    assert found.stage("hlo").unavailable == "LookupError: it was exported for tpu, but the device is a cpu"
    (batch,) = jax.export.symbolic_shape("batch")
    wide = ml.inspect(jax.export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((batch, 2), "float32")))
    assert wide.stage("stablehlo").unavailable is None
    assert wide.stage("hlo").unavailable == "XLA needs a number for each size, and has none for batch"
    text = lowered().as_text().replace("mhlo.num_partitions = 1", "mhlo.num_partitions = 64")
    assert ml.inspect(text).stage("hlo").unavailable == (
        f"LookupError: it needs 64 devices, but JAX has {jax.device_count()}"
    )


# HLO that a user wrote

NAMESAKES = """HloModule twice

%first (p: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  ROOT %work = f32[4] sine(%p), metadata={op_name="jit(f)/head/sin"}
}

%second (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  ROOT %work = f32[8] multiply(%p, %p), metadata={op_name="jit(f)/body/mul"}
}

ENTRY %main (a: f32[4], b: f32[8]) -> (f32[4], f32[8]) {
  %a = f32[4] parameter(0)
  %b = f32[8] parameter(1)
  %c = f32[4] call(%a), to_apply=%first
  %d = f32[8] call(%b), to_apply=%second
  ROOT %work = (f32[4], f32[8]) tuple(%c, %d)
}
"""
"""The same names in several computations: XLA accepts this, but never prints it."""


@pytest.mark.parametrize("stage", ["hlo_before", "hlo"])
@pytest.mark.parametrize("sign", ["%", ""])
def test_instructions_with_the_same_name_get_unique_ids(stage: str, sign: str, tmp_path: Path) -> None:
    text = NAMESAKES.replace("%", sign)
    text = text.replace("HloModule twice", "HloModule twice, is_scheduled=true") if stage == "hlo" else text
    found = ml.inspect(file(tmp_path, "twice.hlo", text))
    made = found.stage(stage).instructions
    ids = {one.id for one in made}
    assert len(ids) == len(made) == 9
    assert {operand for one in made for operand in one.operands} <= ids
    assert {one.opcode: dict(one.shares) for one in made if one.opcode in ("sine", "multiply")} == {
        "sine": {"head": 1.0}, "multiply": {"body": 1.0},
    }  # fmt: skip
    cost = found.cost()
    assert (cost.total.flops, cost.total.transcendentals) == (8, 4)
    assert {path: (one.flops, one.transcendentals) for path, one in cost.by_block.items()} == {
        "head": (0, 4), "body": (8, 0),
    }  # fmt: skip


# Where they are shown


def test_explore_and_reports_show_available_stages(tmp_path: Path) -> None:
    path = file(tmp_path, "step.hlo", lowered().compile().as_text() or "")
    widget = ml.explore(path)
    widget.session.start()
    assert widget.session.wait(60)
    assert widget.session.errors == []
    now = widget.session.snapshot()
    assert now["graph_stage"] == "hlo"
    assert now["stages"]["hlo"]["state"] == "ready"
    assert now["stages"]["jaxpr"]["message"] == "this program was given as HLO text: it has no jaxpr"
    assert set(now["blocks"]) == {"body", "head"}
    assert dict(widget.session.graph()).keys() >= {"graph"}
    page = ml.inspect(path).to_html()
    assert "this program was given as HLO text: it has no StableHLO" in page
    assert "no analytic costs: this program was given as HLO text: it has no jaxpr" in page


def test_json_contains_the_available_stages() -> None:
    data = ml.inspect(lowered()).to_dict("jaxpr", "hlo")
    assert [one["unavailable"] for one in data["stages"]] == [
        "this program was given as a jax.stages.Lowered: it has no jaxpr", None,
    ]  # fmt: skip
    assert [one["name"] for one in data["inputs"]] == ["params['v']", "params['w']", "x"]
    assert data["equations"] == []
    assert [one["name"] for one in data["outputs"]] == ["result"]
    assert data["passes"]
    assert data["buffers"]


def test_memory_and_passes_of_what_jax_compiles() -> None:
    found, wanted = ml.inspect(lowered().as_text()), ml.inspect(step, *ARGS)
    assert found.memory.peak_bytes == wanted.memory.peak_bytes
    assert [one.name for one in found.passes] == [one.name for one in wanted.passes]
    assert [one.size_bytes for one in found.buffers] == [one.size_bytes for one in wanted.buffers]
    assert message_of(lambda: ml.inspect(lowered().compile()).passes) == (
        "StageUnavailableError: program 'step' has no record of how XLA compiled it.\n"
        "    reason  this program was given as a jax.stages.Compiled: it has no record of how XLA compiled it\n"
        '    Try: inspection.stage("hlo")  # the first stage of this program'
    )
    with pytest.raises(StageUnavailableError) as caught:
        _ = ml.inspect(lowered().as_text(dialect="hlo")).memory
    assert str(caught.value).startswith("program 'step' has no optimized HLO.\n")
    assert 'Try: inspection.stage("hlo_before")' in str(caught.value)
