"""Pictures of a stage's graph: no overlaps, deterministic, and accessible to screen readers."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from picture_geometry import check_boxes, check_texts

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.graph.tree import stage_graph
from mithril_nb.stages.records import Instruction, Stage
from mithril_nb.viz.diagrams.layout import arrange_lines
from mithril_nb.viz.diagrams.nested import Box, Scene, SceneEdge
from mithril_nb.viz.diagrams.stages import stage_graph_text, stage_layout
from mithril_nb.viz.diagrams.svg import scene_svg

ROW = TensorSpec((4, 8))
Row = tuple[str, str, tuple[int, ...], str]


def stage_of(rows: list[Row]) -> Stage:
    """Return a stage of `(opcode, block, operands, role)`."""
    found = [
        Instruction(
            str(at), opcode, at + 1, (str(at),), ((block, 1.0),) if block else (), role or None, "tagged", 1,
            tuple(map(str, operands)), (ROW,),
        )
        for at, (opcode, block, operands, role) in enumerate(rows)
    ]  # fmt: skip
    return Stage("jaxpr", "\n" * len(rows), tuple(found))


def transformer(layers: int = 12, *, wide: bool = False) -> Stage:
    """Return the forward and backward of a chain of residual layers, no two of them equal if `wide`."""
    rows: list[Row] = [("gather", "embedding", (), "forward")]
    for at in range(layers):
        start = len(rows)
        op = f"dot{at}" if wide else "dot"
        rows += [
            ("norm", f"layer_{at}/norm", (start - 1,), "forward"),
            (op, f"layer_{at}/attention/qkv", (start,), "forward"),
            ("exp", f"layer_{at}/attention/scores", (start + 1,), "forward"),
            ("dot", f"layer_{at}/attention/out", (start + 2,), "forward"),
            ("add", f"layer_{at}/sum", (start - 1, start + 3), "forward"),
        ]
    rows.append(("dot", "head", (len(rows) - 1,), "forward"))
    gradient = len(rows)
    rows.append(("dot", "head", (gradient - 1,), "backward"))
    for at in reversed(range(layers)):
        rows.append(("dot", f"layer_{at}/attention/out", (len(rows) - 1,), "backward"))
        rows.append(("sub", f"layer_{at}/attention/out", (len(rows) - 1,), "update"))
    return stage_of(rows)


def check(diagram: Scene) -> None:
    """Check that boxes do not overlap, content stays in its frame, and no wire crosses a box or a title."""
    check_boxes(diagram)
    walls = [
        (box.x + 10, box.y, box.x + min(box.w - 10, 60), box.y + 22) if box.expanded
        else (box.x, box.y, box.x + box.w, box.y + box.h)
        for box in diagram.nodes
    ]  # fmt: skip
    for wire in diagram.edges:
        for (x0, y0), (x1, y1) in itertools.pairwise(wire.points):
            assert x0 == x1 or y0 == y1, "wires run level or upright"
            for left, top, right, bottom in walls:
                over = max(x0, x1) > left and min(x0, x1) < right and max(y0, y1) > top and min(y0, y1) < bottom
                assert not over, (wire.source, wire.target)


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    """Draw a program: instructions in nested blocks that read any earlier instruction."""
    count = draw(st.integers(1, 40))
    rows: list[Row] = []
    for at in range(count):
        block = draw(st.sampled_from(["", "a", "a/x", "a/x/p", "a/y", "b", "b/x", "c", "d/e/f", "(loss)"]))
        operands = draw(st.lists(st.integers(0, at - 1), max_size=3, unique=True)) if at else []
        role = draw(st.sampled_from(["forward", "forward", "backward", "update", ""]))
        rows.append((draw(st.sampled_from(["add", "dot", "exp"])), block, tuple(operands), role))
    return stage_of(rows)


def wide_border() -> Stage:
    """Return an example that Hypothesis found: more wires leave block `a` than fit beside its last row."""
    rows: list[Row] = [
        ("add", "a/x/p", (), ""), ("add", "", (0,), ""), ("add", "a", (), ""), ("add", "a", (), ""),
        ("add", "", (), ""), ("add", "a/x/p", (), ""), ("add", "a", (), ""), ("add", "", (), ""),
        ("add", "", (6,), ""), ("add", "", (), ""), ("add", "a/x", (), ""), ("add", "a/x/p", (1,), ""),
        ("add", "", (11, 10), ""), ("add", "a", (), ""), ("add", "", (2,), ""), ("add", "", (13,), ""),
        ("add", "", (), ""), ("add", "a", (), ""), ("add", "", (5, 3), ""),
    ]  # fmt: skip
    return stage_of(rows)


@settings(max_examples=40, deadline=None)
@example(wide_border(), 3)
@given(stages(), st.integers(0, 3))
def test_any_program_is_drawn_without_overlap(stage: Stage, depth: int) -> None:
    graph = stage_graph(stage)
    opened = {key for key, node in graph.nodes.items() if key and node.children and key.count("/") < depth}
    for scene in (stage_layout(graph, opened=opened), stage_layout(graph)):
        check(scene)
        check_texts(scene_svg(scene))


@pytest.mark.parametrize("layers", [2, 12, 60])
@pytest.mark.parametrize("wide", [False, True])
def test_a_first_view_is_small_and_uses_the_whole_width(layers: int, wide: bool) -> None:
    diagram = stage_layout(stage_graph(transformer(layers, wide=wide)))
    check(diagram)
    assert len(diagram.nodes) <= 25
    assert diagram.width >= 700
    assert diagram.height <= 820


@pytest.mark.parametrize("count", [1, 5, 6, 7, 40])
def test_every_pin_is_beside_the_line_it_belongs_to(count: int) -> None:
    names = [f"n{at}" for at in range(count)]
    nets = {("", name): [("a", name)] for name in names} | {("a", f"{name}'"): [("", f"{name}'")] for name in names}
    placed = arrange_lines({"a": Box("a", "a", "block", 100, 34)}, nets)
    for pins in (placed.ins, placed.outs):
        assert len(set(pins.values())) == count
        assert 0 < min(pins.values()) <= max(pins.values()) < placed.h


def test_an_open_level_of_200_blocks_is_drawn_in_time() -> None:
    rows: list[Row] = [(f"op{at}", f"block_{at}/inner", (at - 1,) if at else (), "forward") for at in range(200)]
    graph = stage_graph(stage_of(rows))
    opened = {node.key for node in graph.level()}
    diagram = stage_layout(graph, opened=opened)
    check(diagram)
    assert len(diagram.nodes) >= 200


def test_a_changed_block_moves_no_other() -> None:
    before = stage_layout(stage_graph(transformer(12, wide=True)), opened=())
    rows = transformer(12, wide=True)
    edited = [*rows.instructions]
    at = next(at for at, one in enumerate(edited) if one.opcode == "dot5")
    one = edited[at]
    edited[at] = Instruction(
        one.id, "conv", one.line, one.equations, one.shares, one.role, operands=one.operands, shapes=(ROW,)
    )
    after = stage_layout(stage_graph(Stage("jaxpr", rows.text, tuple(edited))), opened=())
    places = {box.key: (box.x, box.y, box.w) for box in before.nodes}
    assert {box.key: (box.x, box.y, box.w) for box in after.nodes} == places


def test_a_wire_that_skips_runs_around_what_it_skips() -> None:
    boxes = {name: Box(name, name, "block", 100, 200) for name in "abc"}
    placed = arrange_lines(boxes, {("a", "a"): [("b", "a"), ("c", "a")], ("b", "b"): [("c", "b")]})
    (_, top), (right, _) = placed.corners["b"], placed.corners["c"]
    route = placed.routes[("a", "a"), ("c", "a")]
    assert min(y for _, y in route) < top
    assert route[-1] == (right, top + 100)


def test_a_picture_is_accessible_to_screen_readers(parsed) -> None:
    diagram = stage_layout(stage_graph(transformer()), shares={"layer_0": 0.96})
    page = parsed(scene_svg(diagram, title="train <step>", embedded=True))
    assert "train <step>: " in "".join(page.texts)
    assert "In the order of the program: embedding, layer_0 ×12, head." in page.texts
    labels = [attributes["aria-label"] for _, attributes in page.elements if "aria-label" in attributes]
    counts = "60 forward, 12 backward, 12 update"
    assert f"block layer_0 ×12, output 4×8, {counts}, 96.0 % of FLOPs, with inner blocks" in labels
    nodes = [attributes for tag, attributes in page.elements if attributes.get("class") == "node"]
    assert all(one["tabindex"] == "0" and one["role"] == "button" for one in nodes)
    assert {one.get("data-block") for one in nodes} >= {"embedding", "layer_0", "head"}
    assert "forward" in page.texts
    assert "update" in page.texts


def test_the_frame_of_an_open_node_has_room_for_its_share(parsed) -> None:
    graph = stage_graph(stage_of([("dot", "query_key_value/a", (), "forward")]))
    (key,) = (node.key for node in graph.level())
    for share, share_text in ((0.104, "10.4 %"), (0.00001, "< 0.1 %"), (1.0, "100 %")):
        svg = scene_svg(stage_layout(graph, opened={key}, shares={"query_key_value": share}))
        found = next(text for text in parsed(svg).texts if text.endswith(share_text) and "cost" not in text)
        assert "…" not in found
        assert found.endswith(f" · {share_text}")


@pytest.mark.parametrize(
    ("label", "entering", "is_shown"), [("2 rounds", "8", True), ("", "8", False), ("a", "4", False)]
)
def test_a_program_shows_shapes_where_they_change(label: str, entering: str, is_shown: bool) -> None:
    boxes = [Box(key, key, "block", 100, 60, path=key, x=200 * at, y=40) for at, key in enumerate("abc")]
    boxes[1] = replace(boxes[1], label=label, shape="4")
    edges = [
        SceneEdge("a", "b", ((100, 70), (200, 70)), shape=entering),
        SceneEdge("b", "c", ((300, 70), (400, 70)), shape="4"),
    ]
    text = scene_svg(Scene("program", 500, 120, boxes, edges, is_model=False))
    assert len(re.findall(r'class="muted halo"[^>]*>4<', text)) == is_shown + (entering == "4")


def test_instructions_are_linked_by_their_equations(parsed) -> None:
    graph = stage_graph(stage_of([("add", "", (), "forward"), ("exp", "", (0,), "forward")]))
    page = parsed(scene_svg(stage_layout(graph), embedded=True))
    assert [one["data-e"] for _, one in page.elements if "data-e" in one] == ["0", "1"]


def test_names_are_escaped(parsed) -> None:
    graph = stage_graph(stage_of([("<script>alert(1)</script>", 'a"><b>/c', (), "forward")]))
    page = parsed(scene_svg(stage_layout(graph, opened=set(graph.nodes)), embedded=True))
    assert not {"script", "b"} & {tag for tag, _ in page.elements}


def test_the_text_has_the_content_of_the_picture() -> None:
    graph = stage_graph(transformer())
    assert stage_graph_text(graph, (), {"layer_0": 0.6}) == (
        "embedding    4×8  1 forward\n"
        "layer_0 ×12  4×8  60 forward, 12 backward, 12 update  60.0 %\n"
        "head         4×8  1 forward, 1 backward"
    )
    inside = stage_graph_text(graph, {"layer_0"}, {"layer_0/attention": 0.48})
    assert next(line for line in inside.split("\n") if "attention" in line).split()[-2:] == ["48.0", "%"]
    assert stage_graph_text(stage_graph(Stage("asm", "", unavailable="why"))) == "asm: nothing to draw"


def test_layouts_are_the_same_under_every_hash_seed() -> None:
    code = (
        "from test_stage_diagram import *\n"
        "from mithril_nb.models import MLP, Model\n"
        "from mithril_nb.viz.diagrams.picture import picture\n"
        "import hashlib\n"
        "drawn = [stage_layout(stage_graph(transformer(wide=wide))) for wide in (False, True)]\n"
        "model = Model()\n"
        "for _ in range(3): model += MLP(hidden_sizes=(8, 4))\n"
        "drawn.append(picture(model.graph, expanded={'mlp_0', 'mlp_2'}).diagram)\n"
        "print(hashlib.sha256(''.join(map(scene_svg, drawn)).encode()).hexdigest())\n"
    )
    path = ":".join((str(Path(__file__).parent), *sys.path))
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        for seed in ("0", "12345")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout) == 65
    assert [run.stderr for run in runs] == ["", ""], "Graphviz or Fontconfig wrote to the page"
