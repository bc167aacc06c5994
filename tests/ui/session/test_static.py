"""The static output of a workbench in a saved notebook."""

from __future__ import annotations

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.display import render
from mithril_nb.models import Buffer, Linear, Model, Relu
from mithril_nb.ui.session.snapshot import shares_of


def bundle_of(model: Model, **keywords) -> dict[str, str]:
    wb = ml.workbench(model, shapes={"input": [8, 16]} if model.graph.inputs else None, **keywords)
    try:
        return render(wb.session)
    finally:
        wb.close()


def test_static_output_has_graph_stages_costs_source():
    bundle = bundle_of(Model() + Linear(12) + Relu() + Linear(4))
    assert set(bundle) == {"text/plain", "image/svg+xml", "text/html"}
    assert bundle["text/plain"] == "Workbench of 'model': linear_0, relu_0, linear_1"
    page = bundle["text/html"]
    for part in ('data-stage="jaxpr"', 'data-stage="stablehlo"', "cost by block", "mnb-diagram", "linear_1</th>"):
        assert part in page
    assert len(page) < 300_000


def test_static_output_has_curves():
    data = np.random.default_rng(0)
    x, y = data.normal(size=(64, 16)).astype("float32"), data.integers(0, 4, 64)
    wb = ml.workbench(Model() + Linear(4), shapes={"input": [8, 16]}, data=(x, y), epochs=1)
    try:
        assert "mnb-curves" not in render(wb.session)["text/html"]
        wb.session.do("train")
        wb.runs[-1].wait(60)
        page = render(wb.session)["text/html"]
    finally:
        wb.close()
    assert "mnb-curves" in page
    assert "run: done, epoch 1 of 1" in page


def test_problems_are_shown_at_their_place():
    bundle = bundle_of(Model() + Linear(12) + Linear(4, input_size=5))
    assert "Try: " in bundle["text/plain"]
    assert "ShapeError" in bundle["text/html"]
    assert "data-stage" not in bundle["text/html"]


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"><img src=x>', "a\nb"])
def test_names_are_data(name):
    page = bundle_of(Model() + Linear(12, name=name))["text/html"]
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_an_empty_canvas():
    line = "Workbench: no block yet"
    assert bundle_of(Model()) == {"text/plain": line, "text/html": f"<p>{line}</p>"}


def test_picture_always_has_cost_shares():
    wb = ml.workbench(Model() + Linear(8) + Relu(), shapes={"input": [4, 3]})
    try:
        at_once = render(wb.session)["image/svg+xml"]
        wb.session.wait()
        assert at_once == render(wb.session)["image/svg+xml"]
        assert " of FLOPs" in at_once
    finally:
        wb.close()


def test_identity_block_has_no_share():
    model = Model() + Linear(8) + Buffer() + Relu()
    assert " of FLOPs" in bundle_of(model)["image/svg+xml"]
    physical = ml.compile(model, shapes={"input": [4, 3]})
    shares = shares_of(physical.cost, ["linear_0", "buffer_0", "relu_0"])
    assert {path: round(share, 2) for path, share in shares.items()} == {
        "linear_0": 0.88, "buffer_0": 0.0, "relu_0": 0.12,
    }  # fmt: skip
