"""Pictures as SVG: well-formed, escaped, the same each time."""

from __future__ import annotations

import threading
from dataclasses import replace
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_geometry import model_layout

from mithril_nb.errors import Diagnostic
from mithril_nb.graph.records import Block, BlockSpecs, LogicalGraph, Node, Port
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.viz.diagrams.nested import SceneEdge
from mithril_nb.viz.diagrams.stages import stage_layout
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.text import text_width

SVG = "{http://www.w3.org/2000/svg}"
TAGS = {"svg", "title", "style", "rect", "g", "path", "text", "circle"}


def test_golden_closed_and_open(golden, nested, facts):
    golden("nested.svg", scene_svg(model_layout(nested, **facts)))
    problems = [replace(problem, edge=("skip.output", "head.input")) for problem in facts["problems"]]
    golden("nested_open.svg", scene_svg(model_layout(nested, {"mlp_0"}, **{**facts, "problems": problems}), problems))


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_escaped(name, kind, shape):
    block = Block(kind, (), (Port("input"),), (Port(shape or "out"),), op="x")
    graph = LogicalGraph((Node(name or "n", block),), (), (Port(name),), ())
    ((path, _),) = graph.walk()
    problems = [Diagnostic(shape, ((name, kind),), kind, block=path)]
    specs = {path: BlockSpecs(outputs={port.name: TensorSpec((name,)) for port in block.outputs})}
    scene = model_layout(graph, specs=specs, shares={path: 0.5}, problems=problems)
    text = scene_svg(scene, problems, title=name)
    root = ElementTree.fromstring(text)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= TAGS
    for element in root.iter():
        assert not any(key.startswith("on") or key.endswith("href") for key in element.attrib)


def test_the_picture_is_accessible_to_screen_readers(nested, facts):
    root = ElementTree.fromstring(scene_svg(model_layout(nested, **facts)))
    assert root.attrib["role"] == "img"
    assert root.findtext(f"{SVG}title") == "logical graph: 4 blocks"
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert "Linear head, 64 → 10, output (32, 10), 28.0 % of FLOPs\nproblem" in titles
    assert "skip.output → head.input, (32, 64)" in titles


def test_pictures_can_be_drawn_from_many_threads(nested):
    texts: list[str] = []
    graphs = [
        LogicalGraph(nested.nodes[: 1 + at % 4], tuple(edge for edge in nested.edges if not edge.target.node == "x"))
        for at in range(8)
    ]
    graphs = [LogicalGraph(graph.nodes) for graph in graphs]
    threads = [threading.Thread(target=lambda g=g: texts.append(scene_svg(model_layout(g)))) for g in graphs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 8
    assert len(set(texts)) == 4


def test_an_empty_graph_is_drawn():
    root = ElementTree.fromstring(scene_svg(model_layout(LogicalGraph())))
    assert root.findtext(f"{SVG}title") == "logical graph: 0 blocks"


def test_the_legend_of_a_narrow_picture_is_complete():
    def loss(w, x):
        return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ w), None), x, None, length=5)[0].sum()

    args = jnp.ones((4, 4)), jnp.ones(4)
    scene = stage_layout(inspect(lambda w, x: w - 0.1 * jax.grad(loss)(w, x), *args).graph("jaxpr"))
    edge = SceneEdge("", "", ((0, 0), (9, 9)))
    scene = replace(scene, width=100, edges=(replace(edge, returns=True), replace(edge, is_carried=True)))
    root = ElementTree.fromstring(scene_svg(scene))
    texts = [one for one in root.iter(f"{SVG}text") if one.get("y") == str(scene.height + 14).removesuffix(".0")]
    assert [one.text for one in texts][-1] == "for the next round"
    assert len(texts) > 3
    assert all(float(one.attrib["x"]) + text_width(one.text or "", 11) < float(root.attrib["width"]) for one in texts)
