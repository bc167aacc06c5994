"""What a diagram says about blocks at fault."""

from __future__ import annotations

from mithril_nb.errors import Diagnostic
from mithril_nb.models import MLP, Model
from mithril_nb.viz.annotate import annotate


def test_a_closed_group_is_at_fault_with_what_is_inside_it() -> None:
    graph = (Model() + MLP(8, [4], 2)).graph
    problems = (Diagnostic("elsewhere"), Diagnostic("inside", block="mlp_0/linear_1", port="input"))
    found = annotate(graph, problems=problems).nodes
    assert {path: note.problem for path, note in found.items()} == {
        "mlp_0": 1,
        "mlp_0/linear_0": None,
        "mlp_0/relu_0": None,
        "mlp_0/linear_1": 1,
    }
