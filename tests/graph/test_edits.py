"""Edits of random graphs keep all invariants, and can be undone."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import WIDTH, leaf_blocks, models, modest, names

from mithril_nb.errors import ConnectionError, CycleError, NameTakenError
from mithril_nb.graph.boundary import infer_boundary, made_edges
from mithril_nb.graph.check import check, run_order
from mithril_nb.graph.edit import (
    add,
    alone,
    composite,
    connect,
    disconnect,
    inside,
    remove,
    rename,
    rename_inside,
    swap,
)
from mithril_nb.graph.paths import split_path
from mithril_nb.graph.records import BOUNDARY, Endpoint, LogicalGraph
from mithril_nb.models import Linear, Model, Relu, Tanh


def assert_holds(graph: LogicalGraph) -> None:
    """Assert every invariant of a graph, independently of the code that keeps it."""
    blocks = {node.name: node.block for node in graph.nodes}
    assert len(blocks) == len(graph.nodes)
    place = {name: index for index, name in enumerate(blocks)}
    sources = {Endpoint(BOUNDARY, port.name) for port in graph.inputs}
    sources |= {Endpoint(name, port.name) for name, block in blocks.items() for port in block.outputs}
    data = {Endpoint(name, p.name) for name, block in blocks.items() for p in block.inputs if p.role == "data"}
    params = {Endpoint(name, p.name) for name, block in blocks.items() for p in block.inputs if p.role == "param"}
    results = {Endpoint(BOUNDARY, port.name) for port in graph.outputs}
    targets = [edge.target for edge in graph.edges]
    assert len(set(targets)) == len(targets), "two connections into one port"
    assert data | results <= set(targets) <= data | results | params
    assert {edge.source for edge in graph.edges} <= sources
    for edge in graph.edges:
        if edge.source.node and edge.target.node:
            assert place[edge.source.node] < place[edge.target.node], "nodes are in execution order"
    read = {edge.source for edge in graph.edges if edge.target.node}
    given_out = {edge.source for edge in graph.edges if not edge.target.node}
    assert not read & given_out, "nothing reads an output of the graph"
    assert read | given_out == sources, "nothing is left open"
    assert len({port.name for port in graph.inputs}) == len(graph.inputs)
    assert len({port.name for port in graph.outputs}) == len(graph.outputs)
    labels = dict(graph.labels)
    assert len(labels) == len(graph.labels)
    assert set(labels.values()) <= sources
    assert all(name == end.port for name, end in labels.items() if not end.node)
    for node in graph.nodes:
        if node.block.graph is not None:
            assert_holds(node.block.graph)
            assert node.block.inputs == node.block.graph.inputs
            assert node.block.outputs == node.block.graph.outputs


@modest
@given(models())
def test_composing_keeps_every_invariant(model):
    assert_holds(model.graph)
    check(model.graph)
    assert run_order(model.graph) == model.graph.nodes


@modest
@given(models())
def test_a_closed_graph_closes_to_itself(model):
    graph = model.graph
    assert infer_boundary(graph.nodes, made_edges(graph), dict(graph.labels)) == graph


@modest
@given(models(), leaf_blocks(hostile=False))
def test_remove_undoes_add(model, part):
    grown, name = add(model.graph, part.block)
    assert_holds(grown)
    assert remove(grown, [name]) == model.graph


@modest
@given(models(), st.data())
def test_remove_keeps_every_invariant(model, data):
    graph = model.graph
    gone = data.draw(st.sets(st.sampled_from([node.name for node in graph.nodes])) if graph.nodes else st.just(set()))
    for bridge in (False, True):
        rest = remove(graph, gone, bridge=bridge)
        assert_holds(rest)
        assert {node.name for node in rest.nodes} == {node.name for node in graph.nodes} - gone


@modest
@given(models(), names, st.data())
def test_renaming_back_restores_the_graph(model, new, data):
    graph = model.graph
    if not graph.nodes or new in graph.by_name:
        return
    old = data.draw(st.sampled_from([node.name for node in graph.nodes]))
    renamed = rename(graph, old, new)
    assert_holds(renamed)
    assert rename(renamed, new, old) == graph


@modest
@given(models(), st.data())
def test_connect_and_disconnect_keep_every_invariant(model, data):
    graph = model.graph
    if not graph.nodes:
        return
    outputs = [Endpoint(node.name, port.name) for node in graph.nodes for port in node.block.outputs]
    outputs += [Endpoint(BOUNDARY, port.name) for port in graph.inputs]
    inputs = [Endpoint(node.name, p.name) for node in graph.nodes for p in node.block.inputs if p.role == "data"]
    source, target = data.draw(st.sampled_from(outputs)), data.draw(st.sampled_from(inputs))
    try:
        joined = connect(graph, source, target)
    except CycleError:
        return
    assert_holds(joined)
    assert joined.source_of[target] == source
    assert connect(joined, source, target) == joined
    cut = disconnect(joined, source, target)
    assert_holds(cut)
    assert source.node == BOUNDARY or cut.source_of[target].node == BOUNDARY


@modest
@given(models())
def test_swapping_a_block_for_itself_changes_nothing(model):
    graph = model.graph
    for node in graph.nodes:
        assert swap(graph, node.name, node.block) == graph


@modest
@given(models())
def test_an_inner_edit_keeps_the_rest(model):
    graph = model.graph
    for node in graph.nodes:
        if node.block.graph is None:
            continue
        edited = inside(graph, (node.name,), lambda inner: add(inner, Tanh().block, name="added inside")[0])
        assert_holds(edited)
        assert "added inside" in [inner.name for path, inner in edited.walk() if "/" in path]
        assert [n for n in edited.nodes if n.name != node.name] == [n for n in graph.nodes if n.name != node.name]
        plain = composite(node.block.graph)
        assert inside(graph, (node.name,), lambda inner: inner) == swap(graph, node.name, plain)


@modest
@given(models())
def test_graphs_are_values(model):
    graph = model.graph
    assert len(graph.by_name) == len(graph.nodes)  # cached now; pickle must not contain the cache
    for same in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph), copy.copy(graph)):
        assert same == graph
        assert hash(same) == hash(graph)
    assert copy.deepcopy(model) == model


def test_the_cached_mappings_are_read_only():
    graph = (Model() + Linear(3)).graph
    for mapping in (graph.by_name, graph.source_of, graph.targets_of, graph.nodes[0].block.options):
        with pytest.raises(TypeError):
            mapping["x"] = 1


def test_a_reused_name_is_the_same_input():
    chain = (Model() + Relu()).graph
    both, _ = add(chain, Tanh().block, connections={"input": "input"})
    assert [port.name for port in both.inputs] == ["input"]
    target = Endpoint("tanh_0", "input")
    apart, _ = add(chain, Tanh().block)
    assert connect(apart, Endpoint(BOUNDARY, "input"), target) == both


def test_an_output_named_like_an_input_replaces_it():
    graph = (Model() + Relu()(input="x")).graph
    graph, _ = add(graph, Linear(WIDTH).block, connections={"input": "z", "output": "x"})
    assert [port.name for port in graph.inputs] == ["z"]
    assert [node.name for node in graph.nodes] == ["linear_0", "relu_0"]


def test_an_output_does_not_replace_a_generated_input_name():
    graph, _ = add((Model() + Relu()).graph, Linear(WIDTH).block, connections={"input": "z", "output": "input"})
    assert [port.name for port in graph.inputs] == ["z", "relu_0_input"]


def test_two_outputs_never_share_a_name():
    inner = Model() | Relu()(output="b_output")
    model = Model()
    model |= Model.of(inner.graph, "a")
    model |= Relu(name="a_b")
    model |= Tanh()
    assert [port.name for port in model.outputs] == ["a_b_output", "a_b_output_2", "output"]


def test_an_unread_input_name_is_dropped():
    model = Model() | Relu()(input="input")
    model |= Tanh()
    joined = connect(model.graph, Endpoint("tanh_0", "output"), Endpoint("relu_0", "input"))
    assert joined.labels == ()
    assert [port.name for port in joined.inputs] == ["input"]


def test_bridging_connects_both_neighbours():
    chain = (Model() + Linear(3) + Relu() + Tanh() + Linear(2)).graph
    rest = remove(chain, ["relu_0", "tanh_0"], bridge=True)
    assert rest.source_of[Endpoint("linear_1", "input")] == Endpoint("linear_0", "output")
    assert remove(chain, ["tanh_0", "relu_0"], bridge=True) == rest
    first = remove(chain, ["linear_0"], bridge=True)
    assert first.source_of[Endpoint("relu_0", "input")] == Endpoint(BOUNDARY, "input")


def test_a_graph_of_one_block_has_its_ports():
    graph = alone(Linear(3).block)
    assert [(port.name, port.role) for port in graph.inputs] == [
        ("input", "data"), ("weight", "param"), ("bias", "param"),
    ]  # fmt: skip
    assert [port.name for port in graph.outputs] == ["output"]
    assert_holds(graph)


def test_an_inner_rename_keeps_outer_connections_and_notes():
    inner = Model()
    inner |= Relu()
    inner |= Linear(WIDTH)
    model = Model() | Tanh()
    model |= Model.of(inner.graph)(linear_0_input="tanh_0.output")
    model.set_differentiability({"model_0.linear_0.weight": False})
    renamed = rename_inside(model.graph, ("model_0", "linear_0"), "encoder")
    assert_holds(renamed)
    assert renamed.source_of[Endpoint("model_0", "encoder_input")] == Endpoint("tanh_0", "output")
    assert [end.port for end, _ in renamed.notes] == ["model_0.encoder.weight"]
    assert rename_inside(renamed, ("model_0", "encoder"), "linear_0") == model.graph


@modest
@given(models(), names, st.data())
def test_renaming_an_inner_block_back_restores_the_graph(model, new, data):
    graph = model.graph
    paths = [path for path, node in graph.walk() if "/" in path and node.name != new]
    if not paths:
        return
    path = split_path(data.draw(st.sampled_from(paths)))
    # A composite built from attributes becomes a plain model.
    plain = rename_inside(graph, path, "some other name")
    plain = rename_inside(plain, (*path[:-1], "some other name"), path[-1])
    try:
        renamed = rename_inside(plain, path, new)
    except NameTakenError:
        return
    assert_holds(renamed)
    assert len(renamed.inputs) == len(graph.inputs)
    assert rename_inside(renamed, (*path[:-1], new), path[-1]) == plain


def test_connect_by_the_name_of_an_output():
    model = Model() | Linear(WIDTH)(output="y")
    model |= Relu()
    joined = connect(model.graph, Endpoint(BOUNDARY, "y"), Endpoint("relu_0", "input"))
    assert joined.source_of[Endpoint("relu_0", "input")] == Endpoint("linear_0", "output")
    assert dict(joined.labels) == {"y": Endpoint("linear_0", "output")}


@pytest.mark.parametrize("name", ["", "a.b"])
def test_connect_rejects_an_invalid_new_input_name(name):
    with pytest.raises(ConnectionError):
        connect((Model() | Relu()).graph, Endpoint(BOUNDARY, name), Endpoint("relu_0", "input"))
