"""The graphs that are drawn in many tests, and strictly parsed pages."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from mithril_nb.errors import Diagnostic
from mithril_nb.graph.records import Block, BlockSpecs, Edge, Endpoint, LogicalGraph, Node, Port
from mithril_nb.graph.spec import TensorSpec


def op(kind: str, inputs: tuple[str, ...] = ("input",), params: tuple[str, ...] = (), **attributes) -> Block:
    """Return an op block with one output."""
    ports = (*map(Port, inputs), *(Port(name, "param") for name in params))
    return Block(kind, tuple(attributes.items()), ports, (Port("output"),), op=kind.lower())


def graph(nodes: dict[str, Block], *edges: tuple[str, str]) -> LogicalGraph:
    """Return a graph from `("node port", "node port")` pairs; a port alone belongs to the graph."""

    def end(text: str) -> Endpoint:
        node, _, port = text.rpartition(" ")
        return Endpoint(node, port)

    made = tuple(Edge(end(source), end(target)) for source, target in edges)
    inputs = dict.fromkeys(edge.source.port for edge in made if not edge.source.node)
    outputs = dict.fromkeys(edge.target.port for edge in made if not edge.target.node)
    placed = tuple(Node(name, block) for name, block in nodes.items())
    return LogicalGraph(placed, made, tuple(map(Port, inputs)), tuple(map(Port, outputs)))


@pytest.fixture
def nested() -> LogicalGraph:
    """A residual block with a group in it."""
    linear = op("Linear", params=("weight", "bias"), dimension=64)
    inner = graph(
        {"linear_0": linear, "relu_0": op("Relu"), "linear_1": linear},
        ("input", "linear_0 input"),
        ("linear_0 output", "relu_0 input"),
        ("relu_0 output", "linear_1 input"),
        ("linear_1 output", "output"),
    )
    mlp = Block("MLP", (("hidden_sizes", (256,)),), (Port("input"),), (Port("output"),), graph=inner)
    return graph(
        {"norm": op("LayerNorm"), "mlp_0": mlp, "skip": op("Add", ("left", "right")), "head": linear},
        ("input", "norm input"),
        ("norm output", "mlp_0 input"),
        ("mlp_0 output", "skip left"),
        ("input", "skip right"),
        ("skip output", "head input"),
        ("head output", "output"),
    )


@pytest.fixture
def facts() -> dict[str, Any]:
    """What is known of `nested`, as arguments of `model_graph`: sizes, shares, and a problem."""
    known = {
        "norm": (64, 64, 0.02), "mlp_0": (64, 64, 0.7), "mlp_0/linear_0": (64, 256, 0.43),
        "mlp_0/relu_0": (256, 256, 0.01), "mlp_0/linear_1": (256, 64, 0.26), "skip": (64, 64, 0.0),
        "head": (64, 10, 0.28),
    }  # fmt: skip
    specs = {
        path: BlockSpecs({"input": TensorSpec((32, before))}, outputs={"output": TensorSpec((32, after))})
        for path, (before, after, _) in known.items()
    }
    shares = {path: share for path, (*_, share) in known.items()}
    problem = Diagnostic(
        "cannot connect 'skip.output' to 'head.input'.", (("output", "(32, 64)"),), "Linear(64)", block="head"
    )
    return {"specs": specs, "inputs": {"input": TensorSpec((32, 64))}, "shares": shares, "problems": [problem]}


VOID = {"meta", "br", "img", "input", "link", "hr", "path", "rect", "circle"}


class Page(HTMLParser):
    """A strict HTML parser: elements close in order; no event handlers; no addresses outside the page."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        names = [key for key, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice"
        for key, value in attrs:
            assert not key.startswith("on"), key
            assert key not in ("href", "src", "xlink:href") or (value or "").startswith(
                ("#", "data:image/svg+xml;base64,")
            ), value
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="session")
def parsed():
    """Return a function that parses HTML strictly and returns the parser."""

    def parse(html: str) -> Page:
        page = Page()
        page.feed(html)
        page.close()
        assert page.open == []
        return page

    return parse
