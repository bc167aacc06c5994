"""Mithril models as targets: their programs, and the line that builds each block."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
import pytest

import mithril_nb as ml
from mithril_nb.inspection import Inspection
from mithril_nb.models import Dropout, Embedding, Linear, Model, Relu, Scan
from mithril_nb.models.saving.formats import source_lines, to_source


def model() -> Model:
    return Model() + Linear(8) + Relu() + Linear(3)


def roles(inspection: Inspection) -> set[str | None]:
    return {one.role for one in inspection.equations if not one.is_call}


SHAPES = {"input": [4, 5]}


@pytest.mark.parametrize("target", [model(), ml.compile(model(), shapes=SHAPES)], ids=["logical", "physical"])
def test_programs_follow_from_loss_and_optimizer(target: Model | ml.PhysicalModel) -> None:
    shapes = {"shapes": SHAPES} if isinstance(target, Model) else {}
    forward = ml.inspect(target, **shapes)
    assert (forward.name, roles(forward)) == ("forward", {"forward"})
    both = ml.inspect(target, loss="cross_entropy", **shapes)
    assert (both.name, roles(both)) == ("forward+backward", {"forward", "backward"})
    step = ml.inspect(target, loss="cross_entropy", optimizer=optax.adam(1e-3), **shapes)
    assert (step.name, roles(step)) == ("train step", {"forward", "backward", "update"})
    assert ml.inspect(target, program="train step", **shapes).stage("jaxpr").text
    assert ml.inspect(target, program="forward", loss="cross_entropy", **shapes).name == "forward"
    assert {one.block for one in step.equations if one.role == "update"} >= {"linear_0", "linear_1"}


def test_inputs_by_position_name_or_shape() -> None:
    texts = {
        ml.inspect(model(), jax.ShapeDtypeStruct((4, 5), "float32")).stage("jaxpr").text,
        ml.inspect(model(), jnp.ones((4, 5))).stage("jaxpr").text,
        ml.inspect(model(), input=jnp.ones((4, 5))).stage("jaxpr").text,
        ml.inspect(model(), shapes=SHAPES).stage("jaxpr").text,
    }
    assert len(texts) == 1


def test_the_dtype_of_an_array_counts() -> None:
    inspection = ml.inspect(model(), jnp.ones((4, 5), "bfloat16"))
    assert {one.name: str(one.spec) for one in inspection.inputs}["inputs['input']"] == "(4, 5) bfloat16"
    tokens = ml.inspect(Embedding(10, 4), jnp.ones((2, 3), "int32"))
    assert str(tokens.inputs[-1].spec) == "(2, 3) int32"


def test_physical_model_accepts_other_shapes() -> None:
    pm = ml.compile(model(), shapes={"input": ["batch", 5]})
    assert str(ml.inspect(pm).inputs[-1].spec) == "(32, 5) float32"
    assert str(ml.inspect(pm, jnp.ones((7, 5))).inputs[-1].spec) == "(7, 5) float32"


def test_model_with_dropout_takes_a_key_in_training() -> None:
    inspection = ml.inspect(Model() + Linear(8) + Dropout(0.5), shapes=SHAPES, loss="mean_squared_error")
    assert "key" in {one.name for one in inspection.inputs}


def test_each_source_line_has_its_block() -> None:
    body = Model(name="body") + Linear(4) + Relu()
    made = Model() | Linear(3, name="first")
    made += body
    made += Scan(Model() + Linear(4))
    made.set_shapes(input=[2, 3])
    text, paths = source_lines(made)
    assert text == to_source(made)
    lines = text.splitlines()
    assert {lines[line - 1]: path for line, path in paths.items()} == {
        "body = Model(name='body')": "body",
        "body |= Linear(4)": "body/linear_0",
        "body += Relu()": "body/relu_0",
        "model |= Linear(3, name='first')(input='input')": "first",
        "model += body": "body",
        "body_2 = Model()": "scan_0/body",
        "body_2 |= Linear(4)": "scan_0/body/linear_0",
        "model += Scan(body_2, carry={})": "scan_0",
    }
    assert set(paths.values()) == {path for path, _ in made.graph.walk()}


def test_python_stage_builds_the_model() -> None:
    compiled = ml.compile(model(), shapes=SHAPES)
    for inspection in (ml.inspect(model(), shapes=SHAPES), compiled.inspect(), compiled.inspect("forward+backward")):
        assert inspection.stage("python").text.rstrip() == to_source(model()).rstrip()
        kinds = {one.id: one.opcode for one in inspection.stage("graph").instructions}
        assert kinds["linear_0"] == "Linear"
