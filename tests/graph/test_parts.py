"""Parts of a graph: grouping and its inverse, copies, replaced blocks."""

from __future__ import annotations

from random import Random

import pytest
from random_edits import random_edit

from mithril_nb.errors import CycleError, MithrilError
from mithril_nb.graph.boundary import made_edges
from mithril_nb.graph.check import check
from mithril_nb.graph.parts import group, include, part_of, replace_block, ungroup
from mithril_nb.graph.records import Endpoint, LogicalGraph
from mithril_nb.models import MLP, Add, Linear, Model, Relu, Tanh
from mithril_nb.ui.session.commands import check_arguments
from mithril_nb.ui.session.design import EDITS, Design


def content(graph: LogicalGraph) -> tuple:
    """Return a graph without the order of independent blocks, on which generated names of outputs depend."""
    nodes, edges = {node.name: node.block for node in graph.nodes}, {*made_edges(graph)}
    return (
        nodes,
        edges,
        graph.labels,
        graph.notes,
        {graph.source_of[Endpoint("", port.name)] for port in graph.outputs},
        len(graph.inputs),
    )


def random_design(seed: int) -> tuple[Random, Design]:
    random, design = Random(seed), Design((Model() + Linear(8) + Relu() + MLP(8, [4], 2)).graph)
    for _ in range(30):
        name, args = random_edit(random, design)
        try:
            check_arguments(name, EDITS[name], args, ignored=("design",))
            design = EDITS[name](design, **args).design
        except MithrilError:
            continue
    return random, design


@pytest.mark.parametrize("seed", range(40))
def test_grouping_and_ungrouping_are_inverse(seed: int) -> None:
    random, design = random_design(seed)
    names = [node.name for node in design.graph.nodes]
    for _ in range(8):
        chosen = random.sample(names, random.randrange(1, len(names) + 1)) if names else []
        if not chosen:
            continue
        try:
            grouped = group(design.graph, chosen, "together")
        except CycleError:
            continue
        check(grouped)
        assert [node.name for node in grouped.nodes if node.name in chosen] == []
        returned, inner = ungroup(grouped, "together")
        assert {*inner} == {*chosen}
        assert content(returned) == content(design.graph)


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_has_the_blocks_and_their_wires_and_changes_nothing_else(seed: int) -> None:
    random, design = random_design(seed)
    names = [node.name for node in design.graph.nodes]
    if not names:
        return
    chosen = random.sample(names, random.randrange(1, len(names) + 1))
    part = part_of(design.graph, chosen)
    check(part)
    merged, added = include(design.graph, part)
    check(merged)
    assert not {*added} & {*names}
    assert [merged.by_name[name].block for name in added] == [node.block for node in part.nodes]
    assert {*made_edges(design.graph)} <= {*made_edges(merged)}
    copied = {node.name: name for node, name in zip(part.nodes, added, strict=True)}
    wires = [edge for edge in design.graph.edges if edge.source.node in copied and edge.target.node in copied]
    for source, target in wires:
        copy = merged.source_of[target._replace(node=copied[target.node])]
        assert copy == source._replace(node=copied[source.node])


def test_a_group_has_one_input_for_a_source_that_two_blocks_read() -> None:
    model = Model() + Linear(8)
    model += Relu()
    model |= Add()(left="relu_0.output", right="linear_0.output")
    grouped = group(model.graph, ["relu_0", "add_0"], "residual")
    block = grouped.by_name["residual"].block
    assert [port.name for port in (*block.inputs, *block.outputs)] == ["input", "output"]
    with pytest.raises(CycleError, match="'residual', 'relu_0' feed each other"):
        group(model.graph, ["linear_0", "add_0"], "residual")


def test_a_replaced_block_keeps_wires_to_equal_and_to_corresponding_ports() -> None:
    model = Model() + Linear(8) + Relu()
    model |= Add()(left="relu_0.output", right="linear_0.output", output="y")
    graph = replace_block(model.graph, "add_0", Tanh().block)
    assert [str(edge) for edge in graph.edges if edge.target.node == "add_0"] == ["relu_0.output -> add_0.input"]
    assert dict(graph.labels)["y"].node == "add_0"
    again = replace_block(graph, "add_0", Add().block)
    assert str(again.source_of[next(end for end in again.source_of if str(end) == "add_0.left")]) == "relu_0.output"
