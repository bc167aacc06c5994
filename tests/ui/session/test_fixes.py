"""Problems in the widget contain no code: each has a button that mends it, or a sentence."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.display import render
from mithril_nb.models import Add, Conv2d, Linear, Model, Relu
from mithril_nb.ui.session import Session
from mithril_nb.ui.session.design import design_of
from mithril_nb.ui.session.snapshot import palette

RNG = np.random.default_rng(0)
CLASSES = RNG.integers(0, 10, 64).astype("int32")
CLASSES[:10] = range(10)
FLAT = RNG.normal(size=(64, 64)).astype("float32")
IMAGES = RNG.normal(size=(64, 1, 8, 8)).astype("float32")
CODE = re.compile(r"\w+\(.*\)|\w+=|\bwb\b|\bml\.")


def session(model: Model, data: Any = None, shapes: Any = None, **training: Any) -> Session:
    options = {"epochs": 1, **training, **({} if data is None else {"data": data})}
    return Session(design_of(model, shapes), JaxBackend(), options, lambda design: None)


def problems_of(wb: Session) -> list[dict[str, Any]]:
    """Return the problems that the widget shows, after pressing Train if there are none."""
    if not wb.analysis.problems:
        wb.run_command("train", {})
    snapshot = wb.snapshot()
    return [*snapshot["problems"], *([snapshot["notice"]] if snapshot["notice"] else [])]


FLATTEN = "Insert Flatten before linear_0"
MSE = {"loss": "mean_squared_error"}
MISTAKES = {
    "no shape": (Model() + Linear(10), None, None, {}, "Set the shape to 32 × 64"),
    "images": (Model() + Linear(16) + Relu() + Linear(10), (IMAGES, CLASSES), None, {}, FLATTEN),
    "convolution": (Model() + Conv2d(4) + Relu() + Linear(10), (IMAGES, CLASSES), None, {}, FLATTEN),
    "too few classes": (Model() + Linear(5), (FLAT, CLASSES), None, {}, "Set dimension of linear_0 to 10"),
    "loss for numbers": (Model() + Linear(10), (FLAT, CLASSES), None, MSE, "Use cross entropy"),
    "targets of one number": (Model() + Linear(3), (FLAT, FLAT[:, :1]), None, MSE, "Set dimension of linear_0 to 1"),
    "another width": (Model() + Linear(10), (FLAT, CLASSES), {"input": [32, 63]}, {}, "Set the shape to batch × 64"),
    "rank": (Model() + Conv2d(4), None, {"input": [32, 64]}, {}, "Set the shape to 32 × 1 × 28 × 28"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_a_button_that_mends_it(name: str) -> None:
    model, data, shapes, training, label = MISTAKES[name]
    wb = session(model, data, shapes, **training)
    [problem] = problems_of(wb)
    assert problem["fix"]["label"] == label
    assert problem["advice"] == ""
    assert CODE.search(problem["summary"]) is None
    assert wb.run_command(problem["fix"]["command"], problem["fix"]["args"]) is None
    wb.run_command("train", {})
    assert [one["summary"] for one in problems_of(wb) if "no data" not in one["summary"]] == []
    wb.end()


def test_a_problem_without_a_command_shows_a_sentence() -> None:
    model = Model()
    model |= Add()(left="a", right="b", output="o")
    [problem] = problems_of(session(model, shapes={"a": [4, 3], "b": [4, 5]}))
    assert problem["fix"]["label"] == "Insert Linear (3) before add_0"
    [problem] = problems_of(session(Model() + Linear(3), (FLAT * np.nan, CLASSES)))
    assert problem["fix"] is None
    assert problem["advice"].startswith("The data comes from the notebook cell")


def test_shapes_come_from_the_data_unless_they_are_set() -> None:
    assert session(Model() + Linear(10), (FLAT, CLASSES), batch_size=16).snapshot()["shapes"] == {"input": [16, 64]}
    assert session(Model() + Linear(10), ({"input": FLAT}, CLASSES)).snapshot()["shapes"] == {"input": [32, 64]}
    own = session(Model() + Linear(10), (FLAT, CLASSES), {"input": ["n", 64]})
    assert own.snapshot()["shapes"] == {"input": ["n", 64]}
    empty = session(Model(), (FLAT, CLASSES))
    empty.do("add_block", kind="Linear")
    assert empty.analysis.problems == ()


@pytest.mark.parametrize("shape", [[0, 64], ["None", 64], ["for", 64]])
def test_a_batch_of_nothing_and_keywords_are_no_sizes(shape: list[Any]) -> None:
    wb = session(Model() + Linear(10))
    assert wb.run_command("set_shape", {"name": "input", "shape": shape}) is not None


def test_palette_lists_each_block_once_with_small_defaults() -> None:
    entries = palette()
    assert [(entry["category"], entry["kind"], entry["is_common"]) for entry in entries[:2]] == [
        ("Layers", "Linear", True),
        ("Activations", "Relu", True),
    ]
    items = {item["kind"]: item for item in entries}
    assert len({kind.lower() for kind in items}) == len(entries), "each kind is listed once"
    assert "fullyconnected" in items["Linear"]["words"].split()
    starts = {"TransformerEncoder": {"layers": 2}, "Concat": {"axis": -1}, "SwapAxes": {"axis1": -1, "axis2": -2}}
    for kind, attributes in starts.items():
        wb = session(Model())
        wb.do("place_block", kind=kind)
        [node] = wb.design.graph.nodes
        assert attributes.items() <= dict(node.block.attributes).items(), kind


def test_a_huge_model_is_announced_when_it_opens_and_once_after_edits() -> None:
    opened = session(Model() | Linear(10**6), shapes={"input": [1, 10**6]}).snapshot()["notice"]["summary"]
    assert opened == "the parameters of this model need 4000.0 GB, and training needs a multiple of it."
    wb = session(Model() + Linear(10) + Linear(10), shapes={"input": [4, 1000]})
    assert wb.snapshot()["notice"] is None
    for width, summary in (
        (10**5, None), (10**6, "the parameters of this model need 4.0 GB"), (1_040_000, None), (10, None),
    ):  # fmt: skip
        wb.do("set_attribute", path="linear_0", name="dimension", value=width)
        notice = wb.snapshot()["notice"]
        assert (notice and notice["summary"].partition(",")[0]) == summary


def test_several_outputs_have_a_button_for_one() -> None:
    model = Model()
    model |= Linear(8)(input="x", output="a")
    model |= Linear(3)(input="x", output="b")
    [problem] = problems_of(session(model, (FLAT, CLASSES % 3)))
    assert problem["fix"] == {"label": "Train on b", "command": "set_output", "args": {"output": "b"}, "hint": ""}


def test_picture_of_a_huge_model_has_no_stages() -> None:
    model = Model() + Relu()
    for _ in range(2100):
        model += Relu()
    page = render(session(model, shapes={"input": [4]}))["text/html"]
    assert "data-stage" not in page
    assert "data-stage" in render(session(Model() + Relu(), shapes={"input": [4]}))["text/html"]
