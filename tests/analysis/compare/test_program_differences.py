"""Differences of programs: lines by provenance, renumbered variables, costs that add up, saved files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import models
from transcript import message_of

import mithril_nb as ml
from mithril_nb.analysis.compare import Comparison
from mithril_nb.analysis.compare.stages import Renaming, compare_stages, lines_without_names
from mithril_nb.errors import MithrilError
from mithril_nb.figures import LOCAL
from mithril_nb.inspection.saved import PAGE_VERSION, saved_inspection
from mithril_nb.models import Gelu, Linear, Model, Relu
from mithril_nb.stages.records import Stage

few = settings(max_examples=8, deadline=None)


def net(*blocks: Model) -> Model:
    model = Model()
    for block in blocks:
        model += block
    return model


@pytest.fixture(scope="module")
def found() -> Comparison:
    before = net(Linear(8), Relu(), Linear(3))
    after = net(Linear(8), Gelu(), Linear(4), Relu(), Linear(3))
    return ml.compare(before, after, shapes={"input": [4, 5]}, optimizer="sgd")


def test_lines_match_by_block_and_renumbered_variables_are_equal(found: Comparison):
    stage = found.stage("jaxpr")
    blocks = {path for one in stage.added for path in one.blocks}
    assert {"gelu_0", "linear_1"} <= blocks
    assert "linear_0" not in blocks
    assert stage.counts["removed"] == 0
    left, right = stage.before.text.split("\n"), stage.after.text.split("\n")
    same = [row for row in stage.rows if row.mark == "same"]
    assert any(left[(row.before or 0) - 1] != right[(row.after or 0) - 1] for row in same)  # other letters


def test_rows_cover_each_line_once_and_in_order(found: Comparison):
    for name in ("jaxpr", "stablehlo", "hlo_before", "hlo"):
        stage = found.stage(name)
        for side, text in (("before", stage.before.text), ("after", stage.after.text)):
            numbers = [number for row in stage.rows if (number := getattr(row, side)) is not None]
            assert numbers == list(range(1, len(text.removesuffix("\n").split("\n")) + 1))


def test_costs_add_up_by_block(found: Comparison):
    cost = found.cost
    assert cost is not None
    for figure in LOCAL:
        parts = [getattr(one.delta, figure) for one in (*cost.by_block.values(), cost.unattributed)]
        assert sum(parts) == getattr(cost.total.delta, figure)
    assert cost.by_block["gelu_0"].before.flops == 0
    assert cost.by_block["linear_2"].before.flops  # it was linear_1
    before = {path: figures.flops for path, figures in found.before.cost("analytic").by_block.items()}
    assert sum(one.before.flops for one in cost.by_block.values()) == sum(before.values())


def test_functions_with_different_names_correspond():
    def one(x: Any) -> Any:
        return jnp.tanh(x) * 2

    def other(x: Any) -> Any:
        return jnp.tanh(x) * 2 + 1

    found = ml.compare(one, other, jnp.ones(4))
    assert [(block.mark, block.before, block.after) for block in found.blocks] == [("renamed", "one", "other")]
    assert found.stage("jaxpr").counts == {"added": 1, "removed": 0, "changed": 1}  # it returns another value


def test_unknown_costs_stay_unknown():
    def callback(x: Any) -> Any:
        return jax.pure_callback(lambda x: x, x, x)

    cost = ml.compare(jnp.sin, callback, jnp.ones(4)).cost
    assert cost is not None
    assert cost.total.delta.flops is None


@few
@given(models(depth=1, most=3, hostile=False))
def test_a_program_equals_itself(model: Model):
    shapes = {port.name: [2, 4] for port in model.graph.inputs}
    try:
        found = ml.compare(model, model, shapes=shapes)
    except MithrilError:
        return
    assert found.is_same
    assert found.to_dict()["blocks"] == []
    if found.cost is not None:
        assert all(one.before == one.after for one in found.cost.by_block.values())


@few
@given(models(depth=1, most=3, hostile=False))
def test_one_more_block_is_the_only_difference_of_the_program(model: Model):
    more = ml.models.from_dict(model.to_dict())
    more += Relu(name="last")
    try:
        found = ml.compare(model, more, shapes={port.name: [2, 4] for port in model.graph.inputs})
    except MithrilError:
        return
    assert [(one.mark, one.path) for one in found.blocks] == [("added", "last")]


@few
@given(models(depth=1, most=3, hostile=False), models(depth=1, most=3, hostile=False))
def test_the_other_way_mirrors(a: Model, b: Model):
    names = dict.fromkeys(port.name for model in (a, b) for port in model.graph.inputs)
    if {port.name for port in a.graph.inputs} != {port.name for port in b.graph.inputs} or not names:
        return
    try:
        found = ml.compare(a, b, shapes={key: [2, 4] for key in names})
    except MithrilError:
        return
    mirror = ml.compare(b, a, shapes={key: [2, 4] for key in names})
    flipped = {"added": "removed", "removed": "added"}
    for name in found.quick_stages:
        rows = {(flipped.get(row.mark, row.mark), row.after, row.before) for row in found.stage(name).rows}
        assert rows == set(mirror.stage(name).rows)
        assert [one.id for one in found.stage(name).added] == [one.id for one in mirror.stage(name).removed]


TEXT = "{ lambda\n    a:f32[3]  # x\n  let\n    b:f32[3] = sin a\n    c:f32[3] = add a b\n  in (c) }\n"


@pytest.mark.parametrize(
    ("other", "marks"),
    [
        (TEXT.replace("b", "q").replace("lamqda", "lambda"), []),
        (TEXT.replace("add a b", "add b b"), ["changed"]),
        (TEXT.replace("sin a", "cos a"), ["changed"]),
        (TEXT.replace("    c:", "    z:f32[3] = neg b\n    c:"), ["added"]),
        (TEXT.replace("    b:f32[3] = sin a\n", "").replace("add a b", "add a a"), ["removed", "changed"]),
    ],
)
def test_names_of_variables_matter_only_as_operands(other: str, marks: list[str]):
    rows = compare_stages(Stage("jaxpr", TEXT), Stage("jaxpr", other), {}).rows
    found = [row.mark for row in rows if row.mark != "same"]
    if marks == ["changed"] and found == ["removed", "added"]:
        found = marks  # without instructions, nothing pairs the two lines
    assert found == marks


def test_each_function_of_stablehlo_has_its_own_names():
    text = "func.func @a(%arg0: f) {\n  %0 = x %arg0 : f\n}\nfunc.func @b(%arg0: f) {\n  %0 = y %arg0 : f\n}\n"
    other = text.replace("%0", "%7").replace("%arg0", "%in")
    assert compare_stages(Stage("stablehlo", text), Stage("stablehlo", other), {}).is_same


@given(st.text("ab:[]=%@ .0#\n", max_size=40), st.sampled_from(("jaxpr", "stablehlo", "hlo", "llvm", "python")))
def test_lines_without_names_lose_nothing(text: str, stage: str):
    for line, found in zip(text.removesuffix("\n").split("\n"), lines_without_names(text, stage), strict=False):
        assert len(found.names) == len(found.defines) == found.text.count("\0")
        assert len(found.text) <= len(line)
        assert Renaming().agrees(found, found)


def test_saved_files_compare_like_their_programs(tmp_path: Path):
    model = net(Linear(8), Relu(), Linear(3))
    before, after = (ml.inspect(model, shapes={"input": [rows, 5]}) for rows in (4, 8))
    before.save(tmp_path / "before.json")
    after.save(tmp_path / "after.json")
    saved, live = ml.compare(tmp_path / "before.json", str(tmp_path / "after.json")), ml.compare(before, after)
    assert saved.stages == live.stages
    assert saved.blocks == live.blocks
    assert saved.cost is not None
    assert live.cost is not None
    assert saved.cost.to_dict() == live.cost.to_dict()
    assert {name: saved.stage(name).to_dict() for name in saved.quick_stages} == {
        name: live.stage(name).to_dict() for name in saved.quick_stages
    }
    assert (saved.before.name, saved.after.name, saved.before.jax) == ("before.json", "after.json", jax.__version__)
    ml.save(model, tmp_path / "model.json")
    assert ml.compare(tmp_path / "model.json", model).is_same


def test_a_side_that_cannot_be_traced_states_its_reason():
    def broken(x: Any) -> Any:
        raise ValueError("not today")

    found = ml.compare(jnp.sin, broken, jnp.ones(4))
    assert found.summary == "no stage is available on both sides"
    assert "ValueError: not today" in (found.stage("jaxpr").unavailable or "")
    assert found.cost is None
    assert found.cost_unavailable.startswith("costs are not available: ")
    assert "not today" in found.to_html()
    assert str(found)


def test_the_steps_of_a_transform_can_be_compared():
    step = ml.step_through(jnp.sin, jnp.ones(3), through=("vmap",))[1]
    stage = ml.compare(step.before, step.after).stage("jaxpr")
    assert not stage.is_same


def test_errors_of_values_that_cannot_be_compared(tmp_path: Path):
    x = jnp.ones(3)
    assert message_of(lambda: ml.compare(3, jnp.sin)) == (
        "UnknownOptionError: cannot compare 3.\n"
        "    needs  a model, an inspection, a stage, the path of a saved file, or anything that ml.inspect accepts\n"
        "    given  int\n"
        "    Try: ml.compare(ml.inspect(before, x), ml.inspect(after, x))"
    )
    assert message_of(lambda: ml.compare(ml.inspect(jnp.sin, x), jnp.sin, x)) == (
        "UnknownOptionError: Inspection 'sin' takes no arguments or options: its shapes are known.\n"
        "    given  1 arguments\n"
        "    Try: ml.compare(a, b)"
    )
    assert message_of(lambda: ml.compare(Linear(3), ml.inspect(jnp.sin, x).stage("jaxpr"))) == (
        "UnknownOptionError: cannot compare a model without shapes with a program.\n"
        "    before  'Linear': a model without shapes\n"
        "    after   'jaxpr': stages jaxpr\n"
        '    Try: ml.compare(ml.inspect(model, shapes={"input": [32, 784]}), other)'
    )
    assert message_of(lambda: ml.compare(Linear(3), Linear(4)).stage("hlo")) == (
        "UnknownOptionError: models without shapes have no stage 'hlo'.\n"
        '    Try: ml.compare(a, b, shapes={"input": [32, 784]})'
    )
    broken = tmp_path / "broken.json"
    broken.write_text('{"format": "mithril_nb.inspection", "version": 1, "name": 3}')
    assert message_of(lambda: ml.compare(broken, broken)) == (
        "ModelFileError: this inspection is broken.\n"
        f"    file     {broken}\n"
        "    because  expected a text, found 3\n"
        '    Try: inspection.save("inspection.json")  # writes the file again'
    )
    assert message_of(lambda: saved_inspection({"version": 99})) == (
        "ModelFileError: this inspection was written in version 99 of the format.\n"
        "    supported  versions 1 to 1\n"
        "    Try: pip install --upgrade mithril-nb"
    )
    broken.write_text('{"format": "mithril_nb.page", "version": 1, "name": "sin"}')
    assert message_of(lambda: ml.compare(broken, broken)) == (
        "ModelFileError: this page is broken.\n"
        f"    file     {broken}\n"
        "    because  'stages' is missing\n"
        '    Try: inspection.to_html("page.html")  # its export menu writes the JSON again'
    )
    assert message_of(lambda: saved_inspection({"format": "mithril_nb.page", "version": PAGE_VERSION + 1})) == (
        f"ModelFileError: this page was written in version {PAGE_VERSION + 1} of the format.\n"
        f"    supported  versions 1 to {PAGE_VERSION}\n"
        "    Try: pip install --upgrade mithril-nb"
    )
