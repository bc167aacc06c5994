"""Mithril models as targets: programs, the line that builds each block, and sizes that the model rejects."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from transcript import without_advice

import mithril_nb as ml
from mithril_nb.errors import CostBoundError, ShapeError, StageUnavailableError, UnknownOptionError
from mithril_nb.inspection import Inspection
from mithril_nb.models import GPT, Add, Dropout, Embedding, IOKey, Linear, MatrixMultiply, Model, Relu, Scan
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


def test_a_loss_for_several_outputs_is_advised() -> None:
    two = Model()
    two |= Linear(3)(input="x", output=IOKey("a"))
    two |= Linear(2)(input="x", output=IOKey("b"))
    with pytest.raises(ShapeError) as caught:
        ml.inspect(two, shapes={"x": [4, 5]}, program="train step")
    assert without_advice(str(caught.value)) == (
        "the loss 'cross_entropy' takes one output, but the model has 2.\n"
        "    outputs  'a' (4, 3) float32, 'b' (4, 2) float32"
    )
    loss = eval(str(caught.value).partition("loss=")[2])
    step = ml.inspect(two, shapes={"x": [4, 5]}, program="train step", loss=loss)
    assert roles(step) == {"forward", "backward", "update"}


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


def gpt(context: int = 64, layers: int = 2) -> GPT:
    return GPT(vocabulary=64, layers=layers, width=16, heads=4, context=context)


@pytest.mark.parametrize("options", [{}, {"optimizer": "adam"}])
def test_more_time_steps_than_positions_are_rejected(options: dict[str, Any]) -> None:
    cost = ml.inspect(gpt(), shapes={"input": ["B", "T"]}, **options).cost()
    with pytest.raises(ShapeError) as error:
        cost.at(B=3, T=100)
    assert without_advice(str(error.value)) == (
        "cannot connect 'tokens.output' to 'positions.input'.\n"
        "    output  (3, 100, 16) float32\n"
        "    input   needs at most 64 time steps\n"
        "    found   axis -2: 100 > 64"
    )
    with pytest.raises(ShapeError) as numbers:
        ml.inspect(gpt(), shapes={"input": [3, 100]}, **options)
    assert str(numbers.value) == str(error.value)
    # All positions are read without a slice, which is cheaper than slicing a larger table.
    assert cost.at(B=3, T=64).total.flops == ml.inspect(gpt(), shapes={"input": [3, 64]}, **options).cost().total.flops


@pytest.mark.parametrize(
    ("model", "shapes", "sizes"),
    [
        (Linear(3, input_size=5), {"input": ["B", 5]}, {"B": 1}),
        (MatrixMultiply(), {"left": ["B", "I"], "right": ["I", "O"]}, {"B": 2, "I": 3, "O": 1}),
        (Add(), {"left": ["B", 4], "right": [1, 4]}, {"B": 3}),
        (gpt(), {"input": [2, "T"]}, {"T": 64}),
    ],
)
def test_sizes_that_fit_are_accepted(model: Model, shapes: dict[str, list[Any]], sizes: dict[str, int]) -> None:
    numbers = {name: [sizes.get(str(dim), dim) for dim in shape] for name, shape in shapes.items()}
    found = ml.inspect(model, shapes=shapes).cost().at(**sizes)
    assert found.total.flops == ml.inspect(model, shapes=numbers).cost().total.flops


def test_advised_numbers_fit_the_model() -> None:
    cost = ml.inspect(gpt(context=8), shapes={"input": ["B", "T"]}).cost()
    assert cost.notes[0] == "costs that depend on B, T have no number: use cost.at(B=8, T=8) or cost.formula()"
    assert eval(cost.notes[0].partition("use ")[2].partition(" or cost.formula")[0], {"cost": cost}).total.flops


def test_a_slider_traces_nothing() -> None:
    cost = ml.inspect(gpt(layers=12), shapes={"input": ["B", "T"]}).cost()
    with ml.watch() as watch:
        found = [cost.at(B=2, T=tokens).total.flops for tokens in (16, 32, 64)]
    report = watch.report()
    assert (report.traces, report.compilations) == (0, 0)
    assert found == sorted(set(found))


def test_a_program_with_other_arguments_is_checked_by_itself() -> None:
    found = ml.inspect(gpt(), shapes={"input": ["B", "T"]})
    (rows,) = jax.export.symbolic_shape("rows")
    other = found.altered(
        lambda args: jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((rows, 8), leaf.dtype) if leaf.dtype == "int32" else leaf, args
        )
    )
    assert other.cost().at(rows=3).total.flops == found.cost().at(B=3, T=8).total.flops


def test_advice_uses_sizes_that_fit() -> None:
    with pytest.raises(CostBoundError) as bound:
        ml.assert_cost(gpt(context=8), shapes={"input": ["B", "T"]}, flops=1_000_000)
    assert bound.value.diagnostics[0].advice == "inspection.cost().at(B=8, T=8).total.flops"
    found = ml.inspect(gpt(context=4), shapes={"input": ["B", "T"]})
    with pytest.raises(StageUnavailableError) as stage:
        found.cost("compiled")
    advice = stage.value.diagnostics[0].advice
    assert advice == "inspection.cost().at(B=4, T=4)  # or inspect the program with arrays of known sizes"
    assert eval(advice, {"inspection": found}).total.flops
    with pytest.raises(UnknownOptionError) as missing:
        found.cost().at(B=2)
    assert missing.value.diagnostics[0].advice == "cost.at(B=4, T=4)"
