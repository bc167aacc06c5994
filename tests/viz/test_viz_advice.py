"""The advice in errors of pictures works."""

from __future__ import annotations

import pytest
from advice import check

COST = """
        inspection = ml.inspect(Model() | (Model(name="head") | Linear(3)) | Relu(), shapes={"input": [2, 3], "relu_0_input": [3]}); cost = inspection.cost(); drawing = cost.treemap()"""
CASES = {
    "viz/html_parts.py:write_page | of a drawing": f"""{COST}
        drawing.save("a/b/c.svg")
        """,
    "viz/costs/fields.py:field_of": f"""{COST}
        cost.treemap("joules")
        """,
    "viz/costs/drawing.py:option_error": f"""{COST}
        cost.treemap(width="wide")
        """,
    "viz/costs/overlay.py:_check_blocks": f"""{COST}
        other = ml.inspect(Model() | Tanh(name="t"), shapes={{"input": [2, 3]}})
        cost.overlay(other)
        """,
    "viz/costs/overlay.py:graph_of": f"""{COST}
        cost.overlay(3)
        """,
    "viz/costs/overlay.py:validate_opened": f"""{COST}
        cost.overlay(inspection, expanded=["haed"])
        """,
    "viz/costs/graph_overlays.py:costs_of": f"""{COST}
        inspection.overlay(3)
        """,
    "viz/costs/graph_overlays.py:overlay_by_name": f"""{COST}
        inspection.overlay("role", Model() + Linear(3))
        """,
    "viz/costs/graph_overlays.py:overlay_by_name#2": f"""{COST}
        inspection.overlay("flop")
        """,
    "viz/costs/node_values.py:user_values": f"""{COST}
        inspection.overlay({{"haed": 1}})
        """,
    "viz/costs/node_values.py:user_values#2": f"""{COST}
        inspection.overlay({{"head": 1, "relu_0": "x"}})
        """,
    "viz/costs/node_values.py:_plain": f"""{COST}
        inspection.overlay({{"head": []}})
        """,
    "viz/pages/inspection.py:_overlays": f"""{COST}
        inspection.to_html(stages=["jaxpr"], overlay="flop")
        """,
    "viz/html_parts.py:write_page": f"""{COST}
        inspection.to_html("a/b/c.html")
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(CASES, case)
