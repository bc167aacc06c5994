"""The advice of errors in `mithril_nb/inspection`."""

from __future__ import annotations

import pytest
from advice import check

PROGRAM = """
        inspection = ml.inspect(jnp.sin, jnp.zeros(3))"""
CASES = {
    "inspection/exports.py:exporter": """
        from mithril_nb.inspection import exporter
        exporter("csv")
        """,
    "inspection/exports.py:save": f"""{PROGRAM}
        inspection.save("sin.jsn")
        """,
    "inspection/exports.py:save#2": f"""{PROGRAM}
        inspection.save("no-such-folder/sin.json")
        """,
    "inspection/saved.py:saved_inspection#2": f"""{PROGRAM}
        with open("inspection.json", "w") as file: file.write('{{"format": "mithril_nb.inspection", "version": 1}}')
        ml.compare("inspection.json", "inspection.json")
        """,
    "inspection/saved.py:read_json": f"""{PROGRAM}
        inspection.save("before.json"); inspection.save("after.json")
        ml.compare("before.json", "afther.json")
        """,
    "inspection/saved.py:read_json#2": f"""{PROGRAM}
        with open("inspection.json", "w") as file: file.write("no JSON")
        ml.compare("inspection.json", "inspection.json")
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(CASES, case)
