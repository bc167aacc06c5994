"""The report: one self-contained file."""

from __future__ import annotations

import re

import pytest
from picture_geometry import model_layout

from mithril_nb.errors import Diagnostic
from mithril_nb.stages.records import Instruction, Stage
from mithril_nb.viz.pages.report import fragment_html, report_html

STAGE = Stage(
    "jaxpr",
    "{ lambda a:f32[2,3] let\n    b:f32[2,4] = max a 0.0\n  in (b,) }",
    (Instruction("0", "max", 2, ("0",), (("mlp_0/relu_0", 1.0),), "forward", "tagged"),),
)
FIGURES = {"flops": 10, "transcendentals": 0, "bytes_accessed": 8, "params": 0}
COST = {
    "source": "analytic",
    "by_block": {"mlp_0/relu_0": {**FIGURES, "share": 1.0}},
    "total": FIGURES,
    "unattributed": {**dict.fromkeys(FIGURES, 0), "share": 0.0},
}
RUN = {"state": "done", "epoch": 1, "epochs": 1, "step": 2, "steps": 2, "loss": 0.5}
PROBLEM = Diagnostic("cannot connect <a>.", (("got", "(2, 3)"),), "Linear(3)", block="head")


@pytest.fixture
def page(nested, facts) -> str:
    diagram = model_layout(nested, {"mlp_0"}, **facts)
    columns = {"step": [1.0, 2.0], "loss": [1.0, 0.5]}
    return report_html("my <model>", diagram, [STAGE], COST, RUN, "model = Model()\n", [PROBLEM], columns=columns)


def test_the_report_has_every_part_and_is_well_formed(page, parsed):
    found = parsed(page)
    text = "".join(found.texts)
    assert "<title>my &lt;model&gt;</title>" in page
    for part in ("Stages", "Cost", "Training", "Source", "run: done, epoch 1 of 1, step 2 of 2", "cannot connect <a>."):
        assert part in text
    assert {tag for tag, _ in found.elements} >= {"svg", "table", "pre", "section", "h1", "h2"}


def test_parts_are_linked_and_reachable_by_keyboard(page, parsed):
    links = [attributes for _, attributes in parsed(page).elements if "data-block" in attributes]
    assert {link["data-block"] for link in links} == {
        "norm", "mlp_0", "mlp_0/linear_0", "mlp_0/relu_0", "mlp_0/linear_1", "skip", "head",
    }  # fmt: skip
    assert all(link["tabindex"] == "0" for link in links)
    assert 'data-of="mlp_0/relu_0"' in page


def test_nothing_comes_from_the_network(page):
    assert "default-src 'none'" in page
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not addresses


def test_missing_parts_are_left_out(parsed):
    page = report_html("bare")
    parsed(page)
    assert "<h2>" not in page


def test_reports_are_deterministic_and_have_a_fragment_for_cells(page, nested, facts, parsed):
    diagram = model_layout(nested, {"mlp_0"}, **facts)
    columns = {"step": [1.0, 2.0], "loss": [1.0, 0.5]}
    arguments = ("my <model>", diagram, [STAGE], COST, RUN, "model = Model()\n", [PROBLEM])
    assert page == report_html(*arguments, columns=columns)
    fragment = fragment_html(*arguments, columns=columns)
    parsed(fragment)
    assert "<html" not in fragment
    assert "body" not in re.sub(r"tbody", "", fragment).replace("data-jp", "")
