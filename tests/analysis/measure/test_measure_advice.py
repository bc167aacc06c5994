"""The advice of errors of `ml.profile` works."""

from __future__ import annotations

import pytest
from advice import check, chosen

INSPECTION = """
        inspection = ml.inspect(jnp.sin, jnp.ones(3))"""
CASES = {
    "analysis/measure/machines.py:_check#2": 'ml.machine(device="cpu")',
    "analysis/measure/machines.py:_check": "ml.machine(3)",
    "analysis/measure/profiling.py:_check": f"""{INSPECTION}
        ml.profile(inspection, runs=0)
        """,
    "analysis/measure/profiling.py:_check#2": f"""{INSPECTION}
        ml.profile(inspection, peaks=3)
        """,
    "analysis/measure/backends.py:time_backends": """
        from mithril_nb.analysis.measure import time_backends
        time_backends(lambda x: x + 1, jnp.ones(2), backends=["numpi"], runs=1)
        """,
    "analysis/measure/profiling.py:inspected": f"""{INSPECTION}
        ml.profile(inspection, optimizer="adam")
        # Try: ml.profile(inspection)
        """,
    "analysis/measure/runs.py:_fitting": f"""{INSPECTION}
        ml.profile(inspection, jnp.ones((3, 2)))
        """,
}


@pytest.mark.parametrize("case", chosen(CASES))
def test_advice_works(case: str) -> None:
    check(CASES, case)
