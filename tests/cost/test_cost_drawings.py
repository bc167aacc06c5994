"""Charts of the costs of a real program, on its model and on the graph of its jaxpr."""

from __future__ import annotations

import pickle
import re

import jax
import jax.numpy as jnp
import pytest
from cost_pictures import check
from jax import lax
from jax_programs import spec

import mithril_nb as ml
from mithril_nb.inspection import Inspection
from mithril_nb.models import Linear, Model, Relu
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.costs.fields import BLOCK_FIELDS, FIELDS
from mithril_nb.viz.costs.node_values import TOGETHER
from mithril_nb.viz.costs.overlays import overlay_of
from mithril_nb.viz.text import escaped


@pytest.fixture(scope="module")
def step() -> tuple[Model, Inspection]:
    model = Model() + Linear(16) + Relu() + Linear(4)
    return model, ml.inspect(model, shapes={"input": [8, 32]}, program="train step")


def test_a_cost_draws_itself(step) -> None:
    model, program = step
    cost = program.cost()
    for field in BLOCK_FIELDS:
        assert f"{cost.source}" in cost.treemap(field).text
        check(cost.treemap(field).svg)
        check(cost.overlay(model, field).svg)
        check(cost.overlay(program, field).svg)
    drawing = cost.roofline({"flops_per_s": 1e12, "bytes_per_s": 1e10, "source": "given"})
    assert isinstance(drawing, Drawing)
    assert "not measured" in drawing.text
    check(drawing.svg)
    check(program.cost().roofline().svg)


@pytest.mark.parametrize("source", ["analytic", "lowered", "compiled"])
def test_the_roofline_is_that_of_the_program_device(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("mithril_nb.hardware.machines.known_machine", asked.append)
    (device,) = jax.devices()[:1]
    array = spec(4, 4)
    for given in (None, device):
        ml.inspect(jnp.dot, array, array, device=given).cost(source).roofline()
    assert asked == [None, device]
    assert pickle.loads(pickle.dumps(ml.inspect(jnp.dot, array, array, device=device).cost(source))).total.flops == 128


def test_the_overlay_shows_the_costs(step) -> None:
    model, program = step
    cost = program.cost()
    told = check(cost.overlay(model).svg).tooltips
    for path in ("linear_0", "relu_0", "linear_1"):
        assert any(f"FLOPs: {cost.subtree(path).flops:,} FLOP" in one for one in told), path


def test_a_function_that_is_called_twice_has_one_cost() -> None:
    def linear(x, w):
        return jnp.tanh(x @ w)

    def twice(x, v, w):
        return linear(linear(x, v), w)

    program = ml.inspect(twice, jnp.ones((4, 8)), jnp.ones((8, 8)), jnp.ones((8, 8)))
    drawing = program.cost().overlay(program.graph())
    check(drawing.svg)
    assert program.cost().treemap().text.endswith("100 %")


def test_groups_keep_their_figure_when_they_are_opened() -> None:
    def mixed(x, w):
        with jax.named_scope("mix"), jax.named_scope("rotary_embedding_of_queries"):
            return jnp.tanh(x) @ w

    def program(x, w):  # inside the loop and before it: the shares of the sum are unknown
        x = lax.scan(lambda c, _: (mixed(c, w), None), mixed(x, w), None, length=4)[0]
        with jax.named_scope("a_name_that_is_longer_than_what_is_in_it"):
            return x * 2

    found = ml.inspect(program, jnp.ones((8, 16)), jnp.ones((16, 16)), params="w")
    cost, graph = found.cost(), found.graph()
    closed = check(cost.overlay(found, expanded=[key for key in graph.nodes if graph.nodes[key].kind == "loop"]).svg)
    opened = check(cost.overlay(found, expanded=[*graph.nodes]).svg)
    once, four = (FIELDS["flops"].short(cost.subtree("mix").flops * part // 5) for part in (1, 4))
    assert once in [one.text for one in closed.texts]
    assert {once, four} <= {one.text.rpartition(" · ")[2] for one in opened.texts}, "each call has its own equations"
    assert "?" not in [one.text for one in (*closed.texts, *opened.texts)]
    assert any("128 FLOP" in one.text for one in opened.texts)
    without_rows = overlay_of(cost.to_dict(rows=False), graph)
    assert f"Σ {FIELDS['flops'].short(cost.subtree('mix').flops)}" in without_rows.text
    assert TOGETHER in without_rows.notes


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
    for cell in re.split(r" {2,}|\n+", str(both)):  # the cell contains the whole text
        assert escaped(cell) in shown["text/html"]


def test_a_comparison_of_equal_costs_has_a_note(step) -> None:
    _, program = step
    same = "nothing changes: every number here is the same before and after"
    both = program.cost().compare(program.cost())
    assert both.notes == (same,)
    assert str(both).endswith(same)
    assert f"<p>{same}</p>" in both._repr_mimebundle_()["text/html"]
    assert same not in str(program.cost("lowered").compare(program.cost("compiled")))
    unknown = ml.inspect(jnp.linalg.cholesky, jnp.eye(3), name="cholesky").cost("lowered")
    assert same not in str(unknown.compare(unknown)), "unknown costs may have changed"


def test_a_setting_without_effect_has_a_note() -> None:
    ask = ml.what_if(Model() + Linear(16) + Relu() + Linear(4), shapes={"input": [8, 32]})
    same = "nothing changes: every number here is the same before and after"
    remat = ask(remat=True)
    told = f"{same}; remat acts on the backward pass, and this program has none"
    assert told in str(remat).splitlines()
    assert told in " ".join(one.text for one in check(remat._repr_mimebundle_()["image/svg+xml"]).texts)
    assert same in str(ask(batch=8)).splitlines()
    assert "nothing changes" not in str(ask(batch=16))
    _ = remat.peak_bytes
    assert told in str(remat).splitlines(), "the peak is the same, too"


def test_remat_of_a_program_with_a_backward_pass_changes_it(step) -> None:
    model, _ = step
    ask = ml.what_if(model, shapes={"input": [8, 32]}, program="train step")
    assert "nothing changes" not in str(ask(remat=True))
