"""Emitted source as stages: linked in both directions, on request only."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.emission.build import build
from mithril_nb.errors import StageUnavailableError
from mithril_nb.inspection import Inspection
from tests.jax_programs import check_links


@pytest.fixture(scope="module")
def inspection() -> Inspection:
    return ml.compile(models.MLP(4, [8, 8], 3), shapes={"input": [5, 4]}).inspect("forward+backward")


@pytest.mark.parametrize("library", ["numpy", "torch", "mlx"])
def test_lines_are_linked_to_other_stages(inspection: Inspection, library: str) -> None:
    stage = inspection.stage(library)
    assert stage.unavailable is None
    for other in ("python", "jaxpr", "stablehlo"):
        found = check_links(inspection, library, other)
        # The line that receives an argument is in the jaxpr alone.
        shown = [one for one in stage.instructions if one.opcode != "parameter" or other == "jaxpr"]
        assert all(found[one.id] for one in shown)


def test_each_line_has_its_block_and_role(inspection: Inspection) -> None:
    stage = inspection.stage("numpy")
    lines = stage.text.splitlines()
    seen = {}
    for one in stage.instructions:
        assert not one.shares or sum(one.blocks.values()) == pytest.approx(1.0)
        seen[lines[one.line - 1].split("  #")[0].strip()] = (tuple(one.blocks), one.role)
    assert seen["linear_1_bias = params['linear_1.bias']"] == (("linear_1",), None)
    assert seen["output = np.maximum(input, 0.0)"] == (("relu_0", "relu_1"), "forward")
    assert seen["d_relu_1_input = np.where(relu_1_is_greater, d_relu_1_output, 0.0)"] == (("relu_1",), "backward")


def test_it_is_computed_on_request(inspection: Inspection) -> None:
    assert "numpy" not in inspection.stages
    assert "numpy" in inspection.every_stage
    assert [stage["name"] for stage in inspection.to_dict("jaxpr", "numpy", passes=False)["stages"]] == [
        "jaxpr",
        "numpy",
    ]


def test_an_unsupported_primitive_is_shown_in_the_stage() -> None:
    def program(x: jax.Array) -> Any:
        return jax.lax.population_count(x)

    stage = ml.inspect(program, jnp.ones(3, "int32")).stage("numpy")
    assert stage.text == ""
    assert "backend 'numpy' has no source for primitive 'population_count'" in (stage.unavailable or "")


def test_a_size_without_a_number_has_no_source() -> None:
    rows = jax.ShapeDtypeStruct(jax.export.symbolic_shape("B"), "float32")
    with pytest.raises(StageUnavailableError, match="no source for program 'sin': it needs a number for each size"):
        build(ml.inspect(jnp.sin, rows)._pipeline.program.get())


@pytest.mark.parametrize("callback", [jax.debug.print, lambda _, x: jax.debug.callback(print, x)])
def test_a_debug_callback_is_refused_by_name(callback: Any) -> None:
    def program(x: Any) -> Any:
        callback("x {}", x)
        return x * 2

    stage = ml.inspect(program, jnp.ones(3)).stage("c")
    assert "expected  a function without jax.debug.print" in (stage.unavailable or "")


def test_hostile_names_are_escaped() -> None:
    name = 'a"""\nimport os\n# é/b'
    model = models.Model()
    model |= models.Linear(3, name=name)(input="input", output="output")
    inspection = ml.compile(model, shapes={"input": [2, 4]}).inspect()
    text = inspection.stage("numpy").text
    assert "\nimport os" not in text
    compile(text, "emitted", "exec")
