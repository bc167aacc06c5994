"""Pictures of models: runs of equal blocks drawn as one, and blocks with problems."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from picture_geometry import model_layout

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import Diagnostic
from mithril_nb.graph.records import Node
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import GPT, MLP, Add, Linear, Model, Relu
from mithril_nb.models.saving.serialization import data_in
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.stages.graph.stage_graph import MOST
from mithril_nb.ui.session.design import design_of
from mithril_nb.ui.session.session import Session
from mithril_nb.viz.diagrams.layout import layout
from mithril_nb.viz.diagrams.logical import model_graph, repeated_runs
from mithril_nb.viz.diagrams.picture import marked_scene, picture
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.renderers.graphs import share_link


def tower(height: int) -> Model:
    model = Model() + Linear(64)
    for _ in range(height):
        model += MLP(64, (256,), 64)
    return model + Relu() + Linear(10)


def test_a_chain_of_equal_blocks_is_one_box_with_a_count():
    scene = picture(tower(12).graph).diagram
    assert [node.name for node in scene.nodes if not node.is_pill] == ["linear_0", "mlp_0", "relu_0", "linear_1"]
    box = next(node for node in scene.nodes if node.name == "mlp_0")
    assert (box.key, box.kind, box.repeat, box.is_group) == ("repeat:mlp_0", "MLP", 12, True)
    assert box.blocks == tuple(f"mlp_{at}" for at in range(12))
    assert [edge.id for edge in scene.edges if edge.source == box.key] == ["repeat:mlp_0 -> relu_0.input"]


def test_rounds_of_several_blocks_fold_and_open_again():
    model = Model()
    for _ in range(100):
        model += Linear(8)
        model += Relu()
    closed = picture((model + Linear(2)).graph).diagram
    assert [(node.name, node.repeat) for node in closed.nodes if not node.is_pill] == [
        ("linear_0 … relu_0", 100),
        ("linear_100", 1),
    ]
    opened = picture((model + Linear(2)).graph, expanded={"repeat:linear_0"}).diagram
    assert len([node for node in opened.nodes if node.parent == "repeat:linear_0"]) == 200
    assert "relu_4.output -> linear_5.input" in {edge.id for edge in opened.edges}


def test_a_residual_chain_is_folded():
    model = Model()
    model |= Relu()(input="input", output="h_0")
    for at in range(12):
        model |= Linear(8, name=f"dense_{at}")(input=f"h_{at}", output=f"d_{at}")
        model |= Add(name=f"sum_{at}")(left=f"h_{at}", right=f"d_{at}", output=f"h_{at + 1}")
    scene = picture(model.graph).diagram
    assert ("dense_0 … sum_0", 12) in [(node.name, node.repeat) for node in scene.nodes]


def test_blocks_that_differ_are_not_folded():
    assert repeated_runs((Model() + Linear(4) + Linear(5) + Relu()).graph.nodes) == ()
    few = (Model() + Relu() + Relu() + Relu() + Linear(3)).graph
    assert repeated_runs(few.nodes) == ()


@given(st.lists(st.sampled_from("abcd"), max_size=90))
def test_runs_are_rounds_of_equal_blocks_and_do_not_overlap(kinds):
    ops = {"a": Relu(), "b": Linear(4), "c": Linear(5), "d": MLP(8, (4,), 8)}
    nodes = [Node(f"n{at}", ops[kind].block) for at, kind in enumerate(kinds)]
    end = 0
    for run in repeated_runs(nodes):
        assert run.start >= end
        assert run.count >= 3
        end = run.end
        rounds = [kinds[at : at + run.period] for at in range(run.start, run.end, run.period)]
        assert all(one == rounds[0] for one in rounds)


def test_shares_add_up_and_the_picture_shows_the_count():
    graph = tower(30).graph
    shares = {f"mlp_{at}/linear_{part}": 0.01 for at, part in itertools.product(range(30), range(2))} | {
        "linear_0": 0.4
    }
    made = picture(graph, shares=shares)
    box = next(node for node in made.diagram.nodes if node.key == "repeat:mlp_0")
    assert box.repeat == 30
    assert abs((box.share or 0) - 0.6) < 1e-9
    assert len(made.diagram.nodes) == 6
    assert "MLP ×30" in scene_svg(made.diagram)
    assert model_layout(graph).nodes != made.diagram.nodes


def test_a_first_view_folds_repeats_and_opens_groups_that_fit():
    nodes = picture(tower(3).graph).diagram.nodes
    assert [(node.name, node.repeat) for node in nodes if node.path or node.blocks] == [
        ("linear_0", 1),
        ("mlp_0", 3),
        ("relu_0", 1),
        ("linear_1", 1),
    ]
    opened = [node.key for node in picture((Model() + MLP(8, (4,), 8)).graph).diagram.nodes]
    assert opened == ["input:input", "mlp_0", "mlp_0/linear_0", "mlp_0/relu_0", "mlp_0/linear_1", "output:output"]
    assert picture(tower(3).graph, expanded={"mlp_1"}).diagram.nodes[3].key == "mlp_0"  # a part of mlp_0 ×3


@given(st.lists(st.sampled_from("abcd"), max_size=40), st.integers(1, 30))
def test_a_first_view_is_small_and_fits(kinds, depth):
    made = {"a": Relu(), "b": Linear(4), "c": MLP(8, (4,) * depth, 8), "d": MLP(8, (4,), 8)}
    model = Model()
    for kind in kinds:
        model += made[kind] if kind in "ab" else Model() + made[kind]
    scene = picture(model.graph).diagram
    opened = [node for node in scene.nodes if node.expanded]
    assert not opened or (len(scene.nodes) <= MOST and scene.width <= 900 and scene.height <= 520)
    assert all(node.repeat == 1 for node in opened)


def test_every_first_view_of_a_model_opens_the_same_groups():
    model = Model() + MLP(8, (4,), 8) + tower(12)
    expected = {node.key for node in picture(model.graph).diagram.nodes if node.expanded}
    assert expected
    session = Session(design_of(model, None), JaxBackend())
    assert set(session.snapshot()["graph"]["opened"]) == expected
    assert {node.key for node in session.diagram.nodes if node.expanded} == expected
    session.set_design(replace(session.design, graph=(Model() + MLP(8, (2,), 8, name="other")).graph))
    assert session.snapshot()["graph"]["opened"] == ["other"]
    session.undo()
    assert set(session.snapshot()["graph"]["opened"]) == expected
    session.end()
    assert {node.key for node in picture(model.graph).diagram.nodes if node.expanded} == expected
    assert {node.key for node in marked_scene(model.graph, {}, {}).nodes if node.expanded} == expected
    assert set(data_in(share_link(model))["graph"]["opened"]) == expected


def test_a_closed_group_shows_the_problem_of_a_block_inside() -> None:
    graph = (Model() + MLP(8, [4], 2)).graph
    problems = (Diagnostic("elsewhere"), Diagnostic("inside", block="mlp_0/linear_1", port="input"))
    boxes = model_graph(graph, problems=problems).boxes
    assert {box.path: box.problem for box in boxes if box.path} == {
        "mlp_0": 1,
        "mlp_0/linear_0": None,
        "mlp_0/relu_0": None,
        "mlp_0/linear_1": 1,
    }


def test_a_wire_of_a_shared_parameter_in_a_group_has_its_name() -> None:
    model = Model() + GPT(16, 8, layers=1, heads=2, width=32)
    specs = infer(model.graph, {"input": TensorSpec((2, 8), "int32")}).blocks
    scene = layout(model_graph(model.graph, specs), ["gpt_0"])
    shapes = {edge.shape for edge in scene.edges if edge.source == "gpt_0.embedding"}
    assert shapes == {"embedding (16, 32)"}
    scene = layout(model_graph(model.graph), ["gpt_0"])  # without specs
    assert {edge.shape for edge in scene.edges if edge.source == "gpt_0.embedding"} == {"embedding"}
