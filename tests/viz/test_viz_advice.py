"""The advice in errors of pictures works."""

from __future__ import annotations

import pytest
from advice import check

COST = """
        inspection = ml.inspect(Model() | (Model(name="head") | Linear(3)) | Relu(), shapes={"input": [2, 3], "relu_0_input": [3]}); cost = inspection.cost(); drawing = cost.treemap()"""
CASES = {
    "viz/costs/drawing.py:Drawing.save": f"""{COST}
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
    "viz/html_parts.py:write_page": f"""{COST}
        inspection.to_html("a/b/c.html")
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(CASES, case)
