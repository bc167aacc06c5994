"""The advice in errors of `ml.compare` works."""

from __future__ import annotations

import pytest
from advice import check

PROGRAMS = """
        before, after, x = jnp.sin, jnp.cos, jnp.ones(4)
        a, b = ml.inspect(before, x), ml.inspect(after, x)"""
CASES = {
    "analysis/compare/comparison.py:compare": """
        model, other = Linear(10), ml.inspect(Linear(9), shapes={"input": [32, 784]})
        ml.compare(model, other)
        """,
    "analysis/compare/comparison.py:compare#2": """
        a, b, x = jnp.sin, jnp.cos, jnp.ones(4)
        ml.compare(ml.inspect(a, x).stage("python"), ml.inspect(b, x).stage("jaxpr"))
        """,
    "analysis/compare/comparison.py:Comparison.stage": """
        a, b = Linear(10), Linear(9)
        ml.compare(a, b).stage("jaxpr")
        # Try: {}.stage("jaxpr")
        """,
    "analysis/compare/comparison.py:Comparison.stage#2": f"""{PROGRAMS}
        comparison = ml.compare(a, b)
        comparison.stage("jaxp")
        """,
    "analysis/compare/sides.py:side_of": f"""{PROGRAMS}
        ml.compare(a, b, x)
        """,
    "analysis/compare/sides.py:side_of#2": f"""{PROGRAMS}
        ml.compare([a], [b])
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str) -> None:
    check(CASES, case)
