"""Annotations of blocks with problems."""

from __future__ import annotations

from mithril_nb.errors import Diagnostic
from mithril_nb.models import MLP, Model
from mithril_nb.viz.diagrams.labels import annotate


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
