"""The advice in errors of `ml.assert_cost` works."""

from __future__ import annotations

import pytest
from advice import check

PROGRAM = """
        program, args = (lambda x: x @ x), (jnp.ones((4, 4)),); inspection = ml.inspect(program, *args)"""
CASES = {
    "analysis/checks.py:assert_cost": f"""{PROGRAM}
        ml.assert_cost(program, *args)
        """,
    "analysis/checks.py:assert_cost#2": f"""{PROGRAM}
        ml.assert_cost(program, *args, flops=1000, source="compile")
        """,
    "analysis/checks.py:assert_cost#3": f"""{PROGRAM}
        ml.assert_cost(program, *args, flops=1000, unknown="warning")
        """,
    "analysis/checks.py:assert_cost#4": f"""{PROGRAM}
        ml.assert_cost(inspection, *args, flops=1000)
        """,
    "analysis/checks.py:_pair": f"""{PROGRAM}
        ml.assert_cost(program, *args, flops=-1)
        """,
    "analysis/checks.py:_problem": f"""{PROGRAM}
        ml.assert_cost(inspection, flops=1)
        """,
    "analysis/checks.py:_problem | a callback": """
        program = lambda x: jax.pure_callback(lambda x: x, x, x)
        ml.assert_cost(program, jnp.ones(4), flops=10, unknown="fail")
        """,
    "analysis/checks.py:_problem | unknown": """
        ml.assert_cost(lambda x: x @ x, jnp.ones((4, 4)), params=10)
        # Try: ml.assert_cost(ml.inspect(lambda x: x @ x, jnp.ones((4, 4)), params="x"), params=16)
        """,
    "analysis/checks.py:_without_numbers": """
        ml.assert_cost(Linear(8), shapes={"input": ["batch", 4]}, flops=10_000)
        # Try: model = Linear(8); {}
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str) -> None:
    check(CASES, case)
