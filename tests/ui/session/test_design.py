"""Edits of a design: pure, undoable, and never leaving the design half changed."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_edits import random_edit
from sessions import session_of

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import (
    ConnectionError,
    CycleError,
    MithrilError,
    UnexpectedInputError,
    UnknownBlockError,
    UnknownOptionError,
)
from mithril_nb.graph.paths import component, name_of
from mithril_nb.graph.records import Endpoint, LogicalGraph
from mithril_nb.models import KINDS, MLP, Add, Conv2d, Linear, Model, Relu
from mithril_nb.models.saving.formats import to_source
from mithril_nb.ui.session.analysis import Analysis
from mithril_nb.ui.session.commands import check_arguments
from mithril_nb.ui.session.design import (
    EDITS,
    Design,
    DesignChange,
    add_block,
    connect,
    design_of,
    remove,
    set_attribute,
)
from mithril_nb.ui.session.editor import EditHistory


@pytest.fixture
def design() -> Design:
    model = Model() + Linear(64) + Relu() + Linear(10)
    return design_of(model, {"input": [32, 64]})


def edges(design: Design) -> set[str]:
    return {str(edge) for edge in design.graph.edges}


def test_a_block_added_after_another_takes_over_its_readers(design):
    change = add_block(design, "Gelu", after="relu_0")
    assert change.selection == ("gelu_0",)
    assert edges(change.design) == {
        "input -> linear_0.input",
        "linear_0.output -> relu_0.input",
        "relu_0.output -> gelu_0.input",
        "gelu_0.output -> linear_1.input",
        "linear_1.output -> output",
    }


def test_block_added_to_an_empty_design():
    change = add_block(Design(LogicalGraph()), "Linear")
    assert edges(change.design) == {"input -> linear_0.input", "linear_0.output -> output"}


def test_a_removed_block_is_bridged(design):
    assert edges(remove(design, ["relu_0"]).design) == {
        "input -> linear_0.input",
        "linear_0.output -> linear_1.input",
        "linear_1.output -> output",
    }


def test_edits_reach_inside_a_composite():
    design = design_of(Model() + MLP(8, [4], 2), {"input": [3, 8]})
    changed = set_attribute(design, "mlp_0/linear_0", "dimension", 6).design
    inner = changed.graph.by_name["mlp_0"].block
    assert inner.graph is not None
    assert inner.graph.by_name["linear_0"].block.options["dimension"] == 6
    # The sizes that the MLP was built from would no longer be true.
    assert (inner.kind, inner.attributes) == ("Model", ())


def test_connecting_across_levels_is_rejected_with_advice():
    design = design_of(Model() + Linear(8) + MLP(8, [4], 2), None)
    with pytest.raises(ConnectionError) as caught:
        connect(design, "linear_0.output", "mlp_0/linear_1.input")
    assert str(caught.value) == (
        "cannot connect 'linear_0.output' to 'mlp_0/linear_1.input': they are in different models.\n"
        "    source in  the model\n"
        "    target in  mlp_0\n"
        '    Try: source="linear_0.output", target="mlp_0.input"'
    )
    with pytest.raises(ConnectionError, match=r'Try: source="mlp_0.output", target="linear_0.input"$'):
        connect(design, "mlp_0/linear_1.output", "linear_0.input")


def test_a_cycle_is_refused(design):
    with pytest.raises(CycleError) as caught:
        connect(design, "linear_1.output", "linear_0.input")
    assert str(caught.value) == (
        "connecting 'linear_1.output' to 'linear_0.input' closes a cycle.\n"
        "    cycle  linear_0 -> relu_0 -> linear_1 -> linear_0\n"
        "    Try: connect 'linear_0.input' to a model input, or to a block before it."
    )


@pytest.mark.parametrize(
    ("name", "args", "error"),
    [
        ("add_block", {"kind": "Lineer"}, UnknownBlockError),
        ("remove", {"paths": ["nope"]}, UnknownBlockError),
        ("set_attribute", {"path": "linear_0", "name": "dimension", "value": -1}, UnknownOptionError),
        ("set_attribute", {"path": "linear_0", "name": "colour", "value": 1}, UnknownOptionError),
        ("set_shape", {"name": "input", "shape": ["2*x"]}, UnknownOptionError),
        ("set_program", {"program": "backward"}, UnknownOptionError),
        ("rename", {"path": "linear_0", "name": "relu_0"}, MithrilError),
        ("disconnect", {"source": "input", "target": "relu_0.input"}, ConnectionError),
    ],
)
def test_invalid_edits_are_rejected(design, name, args, error):
    with pytest.raises(error):
        EDITS[name](design, **args)


def test_a_shape_of_an_unknown_input_is_rejected(design):
    with pytest.raises(UnexpectedInputError) as caught:
        EDITS["set_shape"](design, "inpt", [4, 8])
    assert str(caught.value) == (
        "the model has no input 'inpt'.\n    inputs  'input'\n    Try: name='input', shape=[4, 8]"
    )
    empty = EDITS["set_shape"](Design(LogicalGraph()), "input", [4, 8]).design
    assert add_block(empty, "Relu").design.shapes == (("input", (4, 8)),)


_STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "set", "rename", "cut", "shape", "program"]), st.integers(0, 99)),
    max_size=15,
)


def _step(design: Design, what: str, number: int) -> Design:
    names = [node.name for node in design.graph.nodes]
    some = component(names[number % len(names)]) if names else None
    kinds = ("Linear", "Relu", "Add", "MLP", "Softmax")
    match what:
        case "remove" if some:
            return EDITS["remove"](design, [some]).design
        case "set" if some and "dimension" in design.graph.by_name[name_of(some)].block.options:
            return EDITS["set_attribute"](design, some, "dimension", number + 1).design
        case "rename" if some:
            return EDITS["rename"](design, some, f"<b>{number}/.").design if f"<b>{number}/." not in names else design
        case "cut" if design.graph.edges:
            edge = design.graph.edges[number % len(design.graph.edges)]
            inner = edge.source.node and edge.target.node
            return EDITS["disconnect"](design, str(edge.source), str(edge.target)).design if inner else design
        case "shape":
            inputs = [port.name for port in design.graph.inputs if port.role == "data"] or ["input"]
            return EDITS["set_shape"](design, inputs[0], [number + 1, 8]).design
        case "program":
            return EDITS["set_program"](design, ("forward", "train step")[number % 2]).design
        case _:
            return add_block(design, kinds[number % len(kinds)]).design


@settings(deadline=None, max_examples=60)
@given(_STEPS)
def test_undo_restores_every_design(steps):
    history, seen = EditHistory(Design(LogicalGraph())), [Design(LogicalGraph())]
    for time, (what, number) in enumerate(steps):
        changed = _step(history.present, what, number)
        history = history.with_change(DesignChange(changed, what), 10.0 * time)
        if changed != seen[-1]:
            seen.append(changed)
        built: dict = {}
        exec(to_source(changed.graph), built)
        assert built["model"].graph == changed.graph
    for before in reversed(seen[:-1]):
        history = history.undone()
        assert history.present == before
    assert history.undone() == history
    for after in seen[1:]:
        history = history.redone()
        assert history.present == after


def test_slider_moves_are_one_undo_step():
    def slid(name: str) -> DesignChange:
        return DesignChange(Design(LogicalGraph(), name=name), "dimension of a", is_gesture=True)

    history = EditHistory(Design(LogicalGraph(), name="0"))
    for index in range(1, 6):
        history = history.with_change(slid(str(index)), 0.1 * index)
    history = history.with_change(slid("late"), 60.0)
    assert history.undone().present.name == "5"
    assert history.undone().undone().present.name == "0"


@pytest.mark.parametrize(
    ("typed", "value"), [("same", "same"), ("1", 1), ("((2, 1), 2)", ((2, 1), 2)), ("[1, 2]", (1, 2)), (2, 2)]
)
def test_typed_values_are_parsed(typed, value):
    design = design_of(Model() | Conv2d(4, 5), {})
    changed = set_attribute(design, "conv2d_0", "padding", typed).design
    assert changed.graph.nodes[0].block.options["padding"] == value


def test_an_edit_of_the_model_itself_names_its_blocks(design):
    for name, args in (("rename", ("", "x")), ("remove", ([""],)), ("set_attribute", ("", "dimension", 3))):
        with pytest.raises(UnknownBlockError) as caught:
            EDITS[name](design, *args)
        assert str(caught.value).splitlines()[1:] == [
            "    path    ''",
            "    blocks  'linear_0', 'relu_0', 'linear_1'",
            "    Try: path='linear_0'",
        ]
    assert str(caught.value).startswith("cannot set 'dimension' of the whole model: choose a block.")


@pytest.mark.parametrize("after", [None, "mlp_0"])
def test_a_block_can_be_added_after_an_emptied_composite(after):
    design = remove(
        design_of(Model() + MLP(8, [4], 2), None), [f"mlp_0/{name}" for name in ("linear_0", "relu_0", "linear_1")]
    ).design
    change = add_block(design, "Relu", after)
    assert edges(change.design) == {"input -> relu_0.input", "relu_0.output -> output"}
    backend = JaxBackend()
    (problem,) = Analysis(change.design, 1, backend, {}).problems
    assert problem.block == "relu_0"


def test_renaming_inside_a_composite_keeps_shapes_and_connections():
    inner = Model()
    inner |= Linear(4)
    inner |= Linear(4)
    design = design_of(Model() | Model.of(inner.graph), {"model_0_linear_1_input": [2, 3], "input": [2, 5]})
    design = EDITS["rename"](design, "model_0/linear_1", "encoder").design
    assert dict(design.shapes) == {"model_0_encoder_input": (2, 3), "input": (2, 5)}
    assert [port.name for port in design.graph.inputs] == ["input", "model_0_encoder_input"]


def test_history_keeps_ten_thousand_steps():
    history = EditHistory(Design(LogicalGraph(), name="0"))
    for number in range(1, 10_001):
        history = history.with_change(DesignChange(Design(LogicalGraph(), name=str(number)), "rename"), 10.0 * number)
    assert history.undo is not None
    assert history.undo.count == 10_000
    while history.undo:
        history = history.undone()
    assert history.present.name == "0"
    while history.redo:
        history = history.redone()
    assert history.present.name == "10000"


def test_first_input_without_shape_gets_shape_advice():
    session = session_of(MLP(8, [4], 2))
    (problem,) = session.analysis.problems
    assert str(problem) == (
        "input 'input' of the model has no shape.\n"
        "    known  ('...', 8)\n"
        '    Try: wb.do("set_shape", name="input", shape=[32, 8])'
    )
    exec(problem.advice, {"wb": session})
    assert session.analysis.problems == ()


def test_advised_shape_matches_the_other_input():
    session = session_of(Model() | Linear(10), {"input": [32, 64]})
    session.do("add_block", kind="Add")
    (problem,) = session.analysis.problems
    assert problem.advice == (
        'wb.do("connect", source="linear_0.output", target="add_0.right")'
        '  # or wb.do("set_shape", name="add_0_right", shape=[32, 10])'
    )
    exec(problem.advice.split("  # or ")[1], {"wb": session})
    assert session.analysis.problems == ()


def names_by_end(graph: LogicalGraph) -> tuple[dict[Endpoint, str], dict[Endpoint, str]]:
    """Return the names of the inputs by the end that reads them, and of the outputs by the end that gives them."""
    inputs = {edge.target: edge.source.port for edge in graph.edges if not edge.source.node}
    return inputs, {edge.source: edge.target.port for edge in graph.edges if not edge.target.node}


def test_a_new_block_of_any_kind_leaves_the_output_its_name():
    design = design_of(Model() + Linear(8) + MLP(8, [4], 2), {"input": [4, 3]})
    for kind in KINDS:
        with suppress(MithrilError):  # kinds that take blocks
            _, outputs = names_by_end(EDITS["place_block"](design, kind).design.graph)
            assert outputs[Endpoint("mlp_0", "output")] == "output", kind


@settings(deadline=None, max_examples=60)
@given(st.randoms(use_true_random=False))
def test_no_port_takes_the_name_of_another(random):
    design = design_of(Model() + Linear(8) + MLP(8, [4], 2), {"input": [4, 3]})
    for _ in range(12):
        name, args = random_edit(random, design)
        if name not in ("add_block", "place_block", "remove", "connect", "disconnect", "set_attribute"):
            continue
        try:
            check_arguments(name, EDITS[name], args, ignored=("design",))
            after = EDITS[name](design, **args).design
        except MithrilError:
            continue
        levels = [(design.graph, after.graph)]
        for path, node in design.graph.walk():
            now = dict(after.graph.walk()).get(path)
            if node.block.graph is not None and now is not None and now.block.graph is not None:
                levels.append((node.block.graph, now.block.graph))
        for before, changed in levels if name != "set_attribute" else levels[:1]:
            for was, has in zip(names_by_end(before), names_by_end(changed), strict=True):
                owners = {port: end for end, port in was.items()}
                for end, port in has.items():
                    old = owners.get(port, end)
                    assert old == end or old not in has or was[old] == has[old], (name, args, port)
        built: dict = {}
        exec(to_source(after.graph), built)
        assert built["model"].graph == after.graph
        design = after


@pytest.mark.parametrize("model", [Model() | Linear(3), Linear(3) + Relu()])
def test_a_dropped_block_takes_no_names_until_it_is_connected(model):
    before = design_of(model, {"input": [2, 5]})
    last = before.graph.nodes[-1].name
    dropped = EDITS["place_block"](before, "Gelu").design
    assert edges(dropped) - edges(before) == {"gelu_0_input -> gelu_0.input", "gelu_0.output -> gelu_0_output"}
    after = EDITS["connect"](dropped, f"{last}.output", "gelu_0.input").design
    assert [port.name for port in after.graph.outputs] == ["output"]
    first = EDITS["connect"](dropped, "gelu_0.output", "linear_0.input").design
    assert [port.name for port in first.graph.inputs] == ["input"]
    assert "input -> gelu_0.input" in edges(first)


def test_the_name_output_goes_to_the_block_behind_its_owner():
    design = design_of(Model() | Linear(3) | Linear(4), None)
    design = EDITS["place_block"](design, "Gelu").design
    design = EDITS["connect"](design, "linear_1.output", "gelu_0.input").design
    assert {"linear_0.output -> linear_0_output", "gelu_0.output -> output"} <= edges(design)
    design = EDITS["remove"](design, ["gelu_0", "linear_1"]).design
    assert [port.name for port in design.graph.outputs] == ["output"]


def test_a_freed_name_is_not_given_to_another_input():
    design = design_of(Model() | Add(), {"input": [2, 5], "add_0_right": [1]})
    design = EDITS["place_block"](design, "Relu").design
    design = EDITS["connect"](design, "relu_0.output", "add_0.left").design
    assert {"input -> relu_0.input", "add_0_right -> add_0.right"} <= edges(design)
    assert dict(design.shapes)["add_0_right"] == (1,)
