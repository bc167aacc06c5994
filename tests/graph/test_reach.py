"""Ancestors, descendants and paths: equal to those of the flat graph, along every single edge."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import models, modest

from mithril_nb.errors import UnknownBlockError
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.models import MLP, Linear, Model, Relu
from mithril_nb.models.shape_inference.flat import flat


def flat_links(graph: LogicalGraph) -> dict[str, set[str]]:
    """Return the ops that read each op, from the flat graph that the compiler runs."""
    ops = flat(graph).ops
    links: dict[str, set[str]] = {op.path: set() for op in ops}
    for op in ops:
        for source in op.sources.values():
            if source.node:
                links[source.node].add(op.path)
    return links


def reached(links: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for one in links[waiting.pop()] - found:
            found.add(one)
            waiting.append(one)
    return found


@modest
@given(models(depth=2, most=5), st.data())
def test_reachability_equals_that_of_the_flat_graph(model: Any, data: st.DataObject) -> None:
    graph: LogicalGraph = model.graph
    links = flat_links(graph)
    if not links:
        return
    path, other = (data.draw(st.sampled_from(sorted(links))) for _ in range(2))
    after = reached(links, path)
    assert set(graph.descendants(path)) == after - {path}
    assert set(graph.ancestors(path)) == {one for one in links if path in reached(links, one)} - {path}
    if path == other:
        return
    between = graph.between(path, other)
    assert (between is None) == (other not in after)
    if between is not None:
        assert set(between) == {one for one in after if other in reached(links, one)} - {path, other}


def test_a_group_is_its_blocks() -> None:
    graph = (Model() + Relu() + MLP(4, [3], 2) + Linear(2)).graph
    assert graph.ancestors("mlp_0") == ("relu_0",)
    assert graph.descendants("mlp_0") == ("linear_0",)
    assert graph.between("relu_0", "linear_0") == ("mlp_0/linear_0", "mlp_0/relu_0", "mlp_0/linear_1")


def test_data_passes_a_group_only_through_connected_ports() -> None:
    pair = Model("pair")
    pair |= Relu(name="a")(input="x", output="y")
    pair |= Relu(name="b")(input="u", output="v")
    model = Model() | Relu(name="one")(output="h") | pair(x="h", u="k", y="p", v="q")
    model |= Relu(name="two")(input="q")
    assert model.graph.descendants("one") == ("pair/a",)
    assert model.graph.ancestors("two") == ("pair/b",)
    assert model.graph.between("one", "two") is None


def test_an_unknown_block_is_reported() -> None:
    graph = (Model() + Relu() + MLP(4, [3], 2)).graph
    for path in ("relu", "mlp_0/relu", "relu_0/x", ""):
        with pytest.raises(UnknownBlockError):
            graph.ancestors(path)
