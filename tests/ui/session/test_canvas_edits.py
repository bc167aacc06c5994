"""Edits of the canvas in a session: one undo step each, with shapes, positions and selection."""

from __future__ import annotations

from typing import Any

import pytest
from sessions import session_of

from mithril_nb.cost import memory_of
from mithril_nb.errors import MithrilError
from mithril_nb.models import MLP, Add, Linear, Model, Relu
from mithril_nb.models.saving.formats import from_dict, to_dict
from mithril_nb.models.saving.reading import from_source
from mithril_nb.ui.session import Session
from mithril_nb.ui.session.commands import Client
from mithril_nb.ui.session.graphs.fits import FitRequests, Preview, fits
from mithril_nb.viz.diagrams.logical import shape_text


@pytest.fixture
def session() -> Session:
    model = Model() + Linear(8) + Relu() + MLP(8, [4], 2)
    return session_of(model, {"input": [4, 3]})


EDITS: dict[str, tuple[dict[str, Any], tuple[str, ...] | None]] = {
    "duplicate": ({"paths": ["linear_0", "relu_0"]}, ("linear_1", "relu_1")),
    "paste": ({"text": "model = Model()\nmodel |= Linear(3)\nmodel += Relu()"}, ("linear_1", "relu_1")),
    "group": ({"paths": ["linear_0", "relu_0"], "name": "stem"}, ("stem",)),
    "ungroup": ({"path": "mlp_0"}, ("linear_1", "relu_1", "linear_2")),
    "repeat": ({"path": "relu_0", "count": 3}, ("relu_0",)),
    "replace_block": ({"path": "relu_0", "kind": "Gelu"}, ("gelu_0",)),
    "place_block": ({"kind": "Tanh", "source": "linear_0.output", "target": "relu_0.input"}, ("tanh_0",)),
    "reconnect": ({"source": "linear_0.output", "target": "relu_0.input", "to": "mlp_0.input"}, None),
    "rename_input": ({"input": "input", "name": "x"}, None),
    "rename_output": ({"output": "output", "name": "y"}, None),
    "expose": ({"source": "linear_0.output"}, None),
    "set_dtype": ({"name": "input", "dtype": "bfloat16"}, None),
    "set_trainable": ({"names": ["mlp_0", "linear_0.bias"], "is_trainable": False}, None),
    "share": ({"source": "linear_0.weight", "target": "mlp_0/linear_1.weight"}, None),
    "set_initializer": ({"parameter": "mlp_0/linear_1.weight", "initializer": "he_normal"}, None),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_one_step_and_selects_its_blocks(session: Session, name: str) -> None:
    args, selection = EDITS[name]
    before = session.design
    session.do(name, **args)
    after = session.design
    assert after != before
    assert session.selection == (selection or ())
    session.do("undo")
    assert session.design == before
    session.do("redo")
    assert session.design == after
    session.end()


def test_an_output_that_a_block_reads_is_added_and_removed(session: Session) -> None:
    before = session.design.graph
    session.do("expose", source="linear_0.output")
    (added,) = {port.name for port in session.model.outputs} - {port.name for port in before.outputs}
    session.do("hide_output", output=added)
    assert session.design.graph == before
    with pytest.raises(MithrilError, match="no block reads it"):
        session.do("hide_output", output="output")
    session.end()


def outputs(session: Session) -> list[Any]:
    return [*session.analysis.inference.outputs.values()]


def test_grouping_renaming_and_ungrouping_keep_shapes(session: Session) -> None:
    before = outputs(session)
    session.do("rename_input", input="input", name="x")
    for name, args in (
        ("group", {"paths": ["linear_0", "relu_0"], "name": "stem"}),
        ("group", {"paths": ["stem", "mlp_0"]}),
        ("ungroup", {"path": "group_0"}),
        ("ungroup", {"path": "stem"}),
    ):
        session.do(name, **args)
        assert session.analysis.problems == ()
        assert (outputs(session), dict(session.design.shapes)) == (before, {"x": (4, 3)})
    session.end()


def test_repeats_share_their_parameters_or_not() -> None:
    session = session_of(Model() + MLP(8, [4], 8), {"input": [4, 8]})

    def shapes() -> set[tuple[Any, ...]]:
        return {array.spec.shape for array in session.analysis.inference.parameters if "mlp_0" in array.name}

    once = shapes()
    session.do("repeat", path="mlp_0", count=3, is_shared=True)
    assert shapes() == once
    assert from_source(session.snapshot()["source"]).graph == session.design.graph
    session.do("set_attribute", path="mlp_0", name="is_shared", value=False)
    assert shapes() == {(3, *shape) for shape in once}
    session.do("repeat", path="mlp_0", count=2, is_shared=True)
    assert (shapes(), session.design.graph.by_name["mlp_0"].block.options["count"]) == (once, 2)


def test_inputs_and_outputs_have_the_order_that_the_user_gives_them() -> None:
    model = Model() | Linear(3)(input="x", output="first")
    model |= Linear(3)(input="y", output="second")
    model |= Linear(3)(input="z", output="third")
    session = session_of(model, {"x": [2, 4], "y": [2, 5], "z": [2, 6]})
    before = session.design

    def ports() -> list[list[str]]:
        design = session.design
        for graph in (
            design.graph,
            from_source(session.snapshot()["source"]).graph,
            from_dict(to_dict(design.graph)).graph,
        ):
            assert graph == design.graph
        return [[port.name for port in side] for side in (design.graph.inputs, design.graph.outputs)]

    session.do("set_order", names=["y", "x", "z"])
    session.do("set_order", names=["third", "first", "second"])
    assert ports() == [["y", "x", "z"], ["third", "first", "second"]]
    assert list(session.analysis.inference.inputs) == ["y", "x", "z"]
    session.do("rename_input", input="y", name="a")
    session.do("add_block", kind="Relu", after="linear_2")
    session.do("set_order", names=["z"])
    assert ports() == [["z", "a", "x"], ["first", "second", "output"]]
    for _ in range(5):
        session.do("undo")
    assert session.design == before


def test_edits_act_inside_of_a_group(session: Session) -> None:
    session.do("group", paths=["mlp_0/linear_0", "mlp_0/relu_0"], name="first")
    assert session.selection == ("mlp_0/first",)
    session.do("place_block", kind="Tanh", source="mlp_0/first.output", x=30, y=40)
    assert session._view.moved == {"mlp_0/tanh_0": (30, 40)}
    session.do("duplicate", paths=["mlp_0/first"])
    assert session.selection == ("mlp_0/first_1",)
    with pytest.raises(MithrilError, match="different groups"):
        session.do("group", paths=["relu_0", "mlp_0/first"])
    session.end()


def test_a_placed_block_is_inserted_where_it_is_dropped(session: Session) -> None:
    session.do("add_block", kind="Tanh", x=10, y=10)
    session.do("insert", path="tanh_0", source="linear_0.output", target="relu_0.input", x=300, y=20)
    edges = [*map(str, session.model.graph.edges)]
    assert {"linear_0.output -> tanh_0.input", "tanh_0.output -> relu_0.input"} <= {*edges}
    assert session._view.moved == {"tanh_0": (300, 20)}
    assert [port.name for port in session.model.outputs] == ["output"]
    session.end()


def test_the_blocks_that_fit_are_those_that_make_no_problem(session: Session) -> None:
    shapes = fits(session.analysis.inference, "linear_0.output")
    assert (shapes["Relu"], shapes["Linear"][:3], "Conv2d" in shapes) == ("(4, 8)", "(4,", False)
    for kind in ("Relu", "Conv2d", "LayerNorm", "MultiHeadAttention", "Flatten", "GlobalAvgPool2d"):
        session.do("place_block", kind=kind, source="linear_0.output")
        (added,) = session.selection
        assert (kind in shapes) == all(not problem.block.startswith(added) for problem in session.analysis.problems)
        session.do("undo")
    assert {"Conv2d", "Relu"} <= {*fits(session_of(Model() + Linear(8)).analysis.inference, "input")}
    session.end()


def test_a_group_through_which_data_returns_is_refused_by_name(session: Session) -> None:
    residual = Model() + Linear(8) + Relu()
    residual |= Add()(left="linear_0.output", right="relu_0.output")
    session = session_of(residual, {"input": [4, 3]})
    with pytest.raises(MithrilError, match="'relu_0'"):
        session.do("group", paths=["linear_0", "add_0"])
    session.end()


def previews(session: Session, edit: str, **args: Any) -> list[Preview]:
    """Return the messages with the preview of an edit."""
    sent: list[Any] = []
    requests = FitRequests(
        lambda: session.analysis, Client(lambda _, reply: sent.append(reply.data), lambda: None, raised)
    )
    requests.request_preview("key", edit, args)
    requests._quick.wait()
    requests.wait()
    requests.end()
    return sent


def raised(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("edit", "args"),
    [
        ("add_block", {"kind": "LayerNorm", "after": "linear_0"}),
        ("place_block", {"kind": "Tanh", "source": "linear_0.output", "target": "relu_0.input"}),
        ("replace_block", {"path": "relu_0", "kind": "Gelu"}),
    ],
)
def test_a_preview_is_the_difference_that_the_edit_makes(session: Session, edit: str, args: dict[str, Any]) -> None:
    def figures() -> list[Any]:
        found, memory = session.analysis.inference, memory_of(session.analysis.local, "analytic")
        return [
            sum(each.spec.size or 0 for each in found.parameters),
            session.analysis.cost.total.flops,
            memory.peak_bytes,
        ]

    design, before = session.design, figures()
    first, last = previews(session, edit, **args)
    assert session.design is design, "it was tried on a copy"
    assert (first["is_counted"], first["flops"], first["shape"]) == (False, None, last["shape"])
    session.do(edit, **args)
    assert [last["params"], last["flops"], last["peak_bytes"]] == [
        now - was for was, now in zip(before, figures(), strict=True)
    ]
    [path] = session.selection
    assert last["shape"] == shape_text(session.analysis.inference.blocks[path].outputs["output"])


def test_a_preview_of_shared_parameters_has_no_shape_of_a_new_block() -> None:
    session = session_of(Model() + Linear(8) + Linear(8), {"input": [4, 8]})
    _, last = previews(session, "share", source="linear_0.weight", target="linear_1.weight")
    assert (last["shape"], last["problem"], last["params"]) == (None, "", -64)


def test_a_preview_that_does_not_fit_has_the_problem_and_no_numbers(session: Session) -> None:
    for edit, args, words in (
        ("add_block", {"kind": "Conv2d"}, "cannot connect"),
        ("connect", {"source": "relu_0.output", "target": "linear_0.input"}, "cycle"),
        ("place_block", {"kind": "Linear"}, "not connected"),
    ):
        [preview] = previews(session, edit, **args)
        assert words in preview["problem"]
        assert (preview["params"], preview["flops"], preview["peak_bytes"]) == (None, None, None)
    [named, counted] = previews(session_of(Model() | Linear(8), {"input": ["batch", 3]}), "add_block", kind="Linear")
    assert (named["params"], counted["flops"]) == (8 * 64 + 64, None), "FLOPs with a name of a size are no number"
    [preview] = previews(session_of(), "add_block", kind="Linear")
    assert preview["params"] is None, "the input has no shape"
    with pytest.raises(MithrilError, match="nope"):
        previews(session, "add_block", kind="Relu", nope=1)
