"""Layout: no overlapping boxes, wires from port to port, and deterministic results."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, pairwise

import pytest
from cost_pictures import HOSTILE
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_geometry import check_boxes, model_layout

from mithril_nb.graph.records import Block, BlockSpecs, Edge, Endpoint, LogicalGraph, Node, Port
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.viz.diagrams.nested import Scene, port_text
from mithril_nb.viz.diagrams.svg import edge_points
from mithril_nb.viz.svg import point_along


@st.composite
def graphs(draw: st.DrawFn, depth: int = 1) -> LogicalGraph:
    """Draw an acyclic graph, groups inside, names of any kind."""
    names = draw(st.lists(st.sampled_from(HOSTILE) | st.text(min_size=1, max_size=12), max_size=8, unique=True))
    inputs = tuple(
        Port(name) for name in draw(st.lists(st.sampled_from(["input", "mask", "<i>"]), max_size=2, unique=True))
    )
    sources = [Endpoint("", port.name) for port in inputs]
    nodes, edges = [], []
    for name in names:
        if depth and draw(st.integers(0, 4)) == 0:
            inner = draw(graphs(depth=depth - 1))
            block = Block("Group", (), inner.inputs, inner.outputs, graph=inner)
        else:
            ports = tuple(Port(f"in{at}") for at in range(draw(st.integers(0, 3))))
            block = Block("Op", (), ports, tuple(Port(f"out{at}") for at in range(draw(st.integers(1, 3)))), op="op")
        nodes.append(Node(name, block))
        if sources:
            for port in block.inputs:
                edges.append(Edge(draw(st.sampled_from(sources)), Endpoint(name, port.name)))
        sources.extend(Endpoint(name, port.name) for port in block.outputs)
    outputs = tuple(Port(name) for name in draw(st.sampled_from([(), ("output",), ("output", "loss")])))
    if not sources:
        return LogicalGraph(tuple(nodes), tuple(edges), inputs, ())
    edges.extend(Edge(draw(st.sampled_from(sources)), Endpoint("", port.name)) for port in outputs)
    return LogicalGraph(tuple(nodes), tuple(edges), inputs, outputs)


def check(diagram: Scene) -> None:
    """Assert the invariants of every picture."""
    check_boxes(diagram)
    boxes = [node for node in diagram.nodes if not node.expanded]
    starts, ends = {}, {}
    for node in diagram.nodes:
        for x, ports, normal, inside in ((0, node.ins, ends, starts), (node.w, node.outs, starts, ends)):
            for port, y in ports.items():
                key = port_text(node.path, port)
                place = (node.x + x, node.y + y)
                if node.path == "" and key in normal:
                    continue  # a model input and a model output may share a name
                normal.setdefault(key, []).append(place)
                if node.expanded:
                    inside.setdefault(key, []).append(place)
    for edge in diagram.edges:
        assert edge.points[0] in starts[edge.source], edge.id
        assert edge.points[-1] in ends[edge.target], edge.id
        for x, y in (point_along(edge_points(edge), at / 40) for at in range(1, 40)):
            for node in boxes:
                inside = node.x + 2 < x < node.x + node.w - 2 and node.y + 2 < y < node.y + node.h - 2
                assert not inside, f"{edge.id} crosses {node.path or node.name}"


@settings(max_examples=60, deadline=None)
@given(graphs(), st.booleans())
def test_any_graph_is_laid_out_without_overlap(drawn, opened):
    expanded = {path for path, node in drawn.walk() if node.block.graph} if opened else frozenset()
    check(model_layout(drawn, expanded=expanded))


def test_an_expanded_group_encloses_its_blocks_and_wires(nested, facts):
    diagram = model_layout(nested, {"mlp_0"}, **facts)
    check(diagram)
    frame = next(node for node in diagram.nodes if node.path == "mlp_0")
    assert frame.is_group
    assert frame.expanded
    assert "mlp_0.input -> mlp_0/linear_0.input" in {edge.id for edge in diagram.edges}
    assert [node.path for node in diagram.nodes if node.path.startswith("mlp_0/")] == [
        "mlp_0/linear_0",
        "mlp_0/relu_0",
        "mlp_0/linear_1",
    ]
    assert {node.hue for node in diagram.nodes if node.path.startswith("mlp_0")} == {1}


def test_no_wire_crosses_the_title_of_a_group(nested):
    diagram = model_layout(nested, expanded={"mlp_0"})
    frame = next(node for node in diagram.nodes if node.path == "mlp_0")
    assert min((*frame.ins.values(), *frame.outs.values())) > 22
    inner = [edge for edge in diagram.edges if "mlp_0/" in edge.id]
    assert min(y for edge in inner for _, y in edge.points) > frame.y + 22


def test_a_moved_block_stays_and_its_wires_follow(nested):
    diagram = model_layout(nested, moved={"norm": (400, 300), "mlp_0/relu_0": (10, 200)}, expanded={"mlp_0"})
    norm = next(node for node in diagram.nodes if node.path == "norm")
    assert (norm.x, norm.y) == (400, 300)
    into = next(edge for edge in diagram.edges if edge.target == "norm.input")
    assert into.points[-1] == (400, 300 + norm.ins["input"])
    assert into.is_curve
    assert diagram.width >= 400 + norm.w


def test_a_position_in_a_group_is_relative_to_its_frame(nested):
    again = model_layout(nested, expanded={"mlp_0"}, moved={"mlp_0/relu_0": (40, 90)})
    frame = next(node for node in again.nodes if node.path == "mlp_0")
    relu = next(node for node in again.nodes if node.path == "mlp_0/relu_0")
    assert (relu.x - frame.x, relu.y - frame.y) == (40, 90)


def test_diagram_data_matches_the_front_end_schema(nested, facts):
    problems = [replace(problem, edge=("skip.output", "head.input")) for problem in facts["problems"]]
    data = model_layout(nested, **{**facts, "problems": problems}).to_dict()
    head = next(node for node in data["nodes"] if node["path"] == "head")
    assert head == {
        "key": "head", "parent": "", "path": "head", "blocks": (), "name": "head", "kind": "Linear", "hue": 3,
        "x": head["x"], "y": head["y"], "w": head["w"], "h": 64,
        "label": "64 → 10", "shape": "(32, 10)", "share": 0.28, "problem": 0,
        "group": False, "expanded": False, "repeat": 1,
        "inputs": [{"name": "input", "x": 0, "y": 32}],
        "outputs": [{"name": "output", "x": head["w"], "y": 32}],
    }  # fmt: skip
    wire = next(edge for edge in data["edges"] if edge["target"] == "head.input")
    assert wire["id"] == "skip.output -> head.input"
    assert wire["problem"] == 0
    assert wire["shape"] == "(32, 64)"
    kinds = [(node["kind"], node["path"], node["name"]) for node in data["nodes"] if not node["path"]]
    assert kinds == [("input", "", "input"), ("output", "", "output")]


def chain(count: int) -> LogicalGraph:
    op = Block("Op", (), (Port("in"),), (Port("out"),), op="op")
    nodes = tuple(Node(f"op_{at}", op) for at in range(count))
    ends = [Endpoint("", "x"), *(Endpoint(node.name, "out") for node in nodes)]
    heads = [*(Endpoint(node.name, "in") for node in nodes), Endpoint("", "y")]
    return LogicalGraph(nodes, tuple(map(Edge, ends, heads)), (Port("x"),), (Port("y"),))


@pytest.mark.parametrize("count", [1, 4, 5, 9, 13, 14, 400])
def test_a_chain_is_read_like_text(count: int) -> None:
    diagram = model_layout(chain(count))
    assert [node.name for node in diagram.nodes] == ["x", *(f"op_{at}" for at in range(count)), "y"]
    assert diagram.width <= 900
    rows = [[*row] for _, row in groupby(diagram.nodes, lambda node: node.y + node.h / 2)]
    assert all(node.x < after.x for row in rows for node, after in pairwise(row))
    assert [row[0].y for row in rows] == sorted(row[0].y for row in rows)
    # Four boxes fit into a row. Rows have about equal lengths, and the output is beside the last block.
    lengths = [len(row) for row in rows]
    assert len(rows) == -(-(count + 2) // 4)
    assert max(lengths) - min(lengths) <= 1 or count > 100
    assert lengths[-1] > 1


@settings(max_examples=40, deadline=None)
@given(graphs(), st.data())
def test_shapes_costs_and_problems_move_nothing(drawn, data):
    spec = TensorSpec((data.draw(st.integers(1, 10**12)), "batch", 3))
    known = {path: node.block for path, node in drawn.walk() if data.draw(st.booleans())}
    specs = {path: BlockSpecs(outputs={port.name: spec for port in block.outputs}) for path, block in known.items()}
    expanded = {path for path, node in drawn.walk() if node.block.graph}
    before = model_layout(drawn, expanded)
    after = model_layout(
        drawn,
        expanded,
        specs=specs,
        inputs={port.name: spec for port in drawn.inputs},
        shares=dict.fromkeys(known, 0.5),
    )
    places = [[(node.key, node.x, node.y, node.w, node.h) for node in scene.nodes] for scene in (before, after)]
    assert places[0] == places[1]
    assert [edge.points for edge in before.edges] == [edge.points for edge in after.edges]
