"""DOT text: readable, and names are labels."""

from __future__ import annotations

from typing import Any

import graphviz
import pygraphviz
import pytest

from mithril_nb.display import draw
from mithril_nb.graph.records import Block, LogicalGraph, Node
from mithril_nb.models import Linear, Model
from mithril_nb.viz.diagrams.dot import to_dot
from mithril_nb.viz.diagrams.logical import model_graph


def test_golden(golden, nested, facts):
    golden("nested.dot", to_dot(nested, model_graph(nested, **facts)).source)


def test_a_model_is_drawn_as_dot() -> None:
    dot = draw(Model() + Linear(8), "dot")
    assert isinstance(dot, graphviz.Digraph)
    assert "linear_0" in dot.source


@pytest.mark.parametrize("name", ['"', "\\", "\\N", "<b>bold</b>", "a\nb", "x" * 200, "é漢字", "\\l", "{a|b}", "&lt;"])
def test_graphviz_reads_any_name_back_as_a_label(name):
    graph = LogicalGraph((Node(name, Block("Op", (), (), (), op="op")),))
    read = pygraphviz.AGraph(string=to_dot(graph, model_graph(graph)).source)
    assert read.number_of_nodes() == 1
    node: Any = read.nodes()[0]
    label = node.attr["label"]
    assert label.replace("\\\\", "\\") == f"{name}\\nOp".replace("\n", "⏎")
