"""Costs draw themselves: of a real program, on its model and on the graph of its jaxpr."""

from __future__ import annotations

import re

import jax.numpy as jnp
import pytest
from cost_pictures import check

import mithril_nb as ml
from mithril_nb.models import Linear, Model, Relu
from mithril_nb.stages import Inspection
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.escape import escaped


@pytest.fixture(scope="module")
def step() -> tuple[Model, Inspection]:
    model = Model() + Linear(16) + Relu() + Linear(4)
    return model, ml.inspect(model, shapes={"input": [8, 32]}, program="train step")


def test_a_cost_draws_itself(step) -> None:
    model, program = step
    cost = program.cost()
    for field in ("flops", "bytes_accessed", "params", "time_s", "transcendentals"):
        assert f"{cost.source}" in cost.treemap(field).text
        check(cost.treemap(field).svg)
        check(cost.overlay(model, field).svg)
        check(cost.overlay(program, field).svg)
    drawing = cost.roofline({"flops_per_s": 1e12, "bytes_per_s": 1e10, "source": "given"})
    assert isinstance(drawing, Drawing)
    assert "not measured" in drawing.text
    check(drawing.svg)
    check(program.cost().roofline().svg)


def test_the_overlay_shows_what_the_cost_says(step) -> None:
    model, program = step
    cost = program.cost()
    told = check(cost.overlay(model).svg).tooltips
    for path in ("linear_0", "relu_0", "linear_1"):
        assert any(one.split("\n")[-1].startswith(f"FLOPs: {cost.subtree(path).flops:,} FLOP") for one in told), path


def test_a_function_that_is_called_twice_has_one_cost() -> None:
    def linear(x, w):
        return jnp.tanh(x @ w)

    def twice(x, v, w):
        return linear(linear(x, v), w)

    program = ml.inspect(twice, jnp.ones((4, 8)), jnp.ones((8, 8)), jnp.ones((8, 8)))
    drawing = program.cost().overlay(program.graph())
    check(drawing.svg)
    assert program.cost().treemap().text.endswith("100 %")


def test_before_and_after_stand_side_by_side() -> None:
    program = ml.inspect(lambda x: jnp.tanh(x + 1) * 2, jnp.ones((64, 64)), name="act")
    both = program.cost("lowered").compare(program.cost("compiled"))
    drawn = check(both.beside().svg)
    before, after = both.total.before.bytes_accessed, both.total.after.bytes_accessed
    assert before > after
    assert "act: bytes accessed by block: lowered, compiled" in both.beside().text
    assert any(one.text.startswith("−") for one in drawn.texts)
    shown = both._repr_mimebundle_()
    assert shown["image/svg+xml"] == both.beside().svg
    for cell in re.split(r" {2,}|\n+", str(both)):  # the cell says all that the text does
        assert escaped(cell) in shown["text/html"]
