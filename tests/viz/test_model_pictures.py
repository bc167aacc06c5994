"""Pictures of models: runs of equal blocks drawn as one, and blocks with problems."""

from __future__ import annotations

import itertools
from dataclasses import replace

from mithril_nb.errors import Diagnostic
from mithril_nb.graph.records import Edge, Endpoint
from mithril_nb.models import MLP, Linear, Model, Relu
from mithril_nb.viz.diagrams.labels import annotate
from mithril_nb.viz.diagrams.picture import fold_chains, picture
from mithril_nb.viz.diagrams.svg import scene_svg


def tower(height: int) -> Model:
    model = Model() + Linear(64)
    for _ in range(height):
        model += MLP(64, (256,), 64)
    return model + Relu() + Linear(10)


def test_a_chain_of_equal_blocks_is_one_box_with_a_count():
    graph = tower(12).graph
    smaller, chains = fold_chains(graph)
    assert [node.name for node in smaller.nodes] == ["linear_0", "mlp_0", "relu_0", "linear_1"]
    assert chains == {"mlp_0": tuple(f"mlp_{at}" for at in range(12))}
    assert [str(edge) for edge in smaller.edges if edge.source.node == "mlp_0"] == ["mlp_0.output -> relu_0.input"]


def test_blocks_that_differ_or_are_read_elsewhere_are_not_folded():
    assert fold_chains((Model() + Linear(4) + Linear(5) + Relu()).graph)[1] == {}
    graph = (Model() + Relu(name="a") + Relu(name="b") + Relu(name="c") + Linear(3, name="tap")).graph
    assert fold_chains(graph)[1] == {"a": ("a", "b", "c")}
    skip = Edge(Endpoint("a", "output"), Endpoint("tap", "weight"))
    assert fold_chains(replace(graph, edges=(*graph.edges, skip)))[1] == {"b": ("b", "c")}


def test_shares_add_up_and_the_picture_shows_the_count():
    graph = tower(30).graph
    shares = {f"mlp_{at}/linear_{part}": 0.01 for at, part in itertools.product(range(30), range(2))} | {
        "linear_0": 0.4
    }
    made = picture(graph, shares=shares)
    box = next(node for node in made.diagram.nodes if node.path == "mlp_0")
    assert box.repeat == 30
    assert abs((box.share or 0) - 0.6) < 1e-9
    assert len(made.diagram.nodes) == 6
    assert "MLP ×30" in scene_svg(made.diagram)
    assert picture(graph, fold=False).diagram.nodes != made.diagram.nodes


def test_a_small_model_is_not_folded():
    assert len(picture(tower(3).graph).diagram.nodes) == 8


def test_a_closed_group_shows_the_problem_of_a_block_inside() -> None:
    graph = (Model() + MLP(8, [4], 2)).graph
    problems = (Diagnostic("elsewhere"), Diagnostic("inside", block="mlp_0/linear_1", port="input"))
    found = annotate(graph, problems=problems).nodes
    assert {path: note.problem for path, note in found.items()} == {
        "mlp_0": 1,
        "mlp_0/linear_0": None,
        "mlp_0/relu_0": None,
        "mlp_0/linear_1": 1,
    }
