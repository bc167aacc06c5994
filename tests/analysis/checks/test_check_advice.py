"""The advice in errors of `ml.assert_cost` works."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from advice import check

import mithril_nb as ml
from mithril_nb.errors import CostBoundError
from mithril_nb.models import Linear

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
        # Try: program, args = (lambda x: x @ x), (jnp.ones((4, 4)),); ml.assert_cost({}, params=16)
        """,
    "analysis/checks.py:_without_numbers": """
        ml.assert_cost(Linear(8), shapes={"input": ["batch", 4]}, flops=10_000)
        # Try: inspection = ml.inspect(Linear(8), shapes={"input": ["batch", 4]}); {}
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str) -> None:
    check(CASES, case)


def half_known(x: Any) -> Any:
    return jax.pure_callback(lambda x: x, x, x) @ x


CALLS = {
    "one bound": "flops=1",
    "several bounds": "flops=1, bytes_accessed=1, peak_bytes=1, params=1",
    "lower bounds": "flops=(10**6, None), bytes_accessed=(10**6, 10**9), params=(None, 3)",
    "a source": 'bytes_accessed=1, flops=1, source="compiled"',
    "a source, all known": 'params=1, source="lowered", unknown="fail"',
    "one bound is kept": "flops=1, params=1_000",
    "a symbolic size": 'shapes={"input": ["batch", 4]}, flops=10_000, params=1',
    "partly unknown": "half_known, x, flops=1",
    "partly unknown, ignored": 'half_known, x, flops=1, unknown="ignore"',
    "partly unknown, not accepted": 'half_known, x, flops=1, unknown="fail"',
    "another cost is unknown, not accepted": 'half_known, x, flops=1_000, bytes_accessed=1, unknown="fail"',
    "unknown parameters": "half_known, x, flops=1, params=1",
    "an inspection": 'inspection, flops=1, params=1, source="compiled"',
}


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.filterwarnings("ignore::mithril_nb.backends.backend.MithrilWarning")
def test_the_advised_call_passes(case: str) -> None:
    model, x = Linear(3), jnp.ones((4, 4))
    scope = {"model": model, "half_known": half_known, "x": x, "call": lambda *args, **options: (args, options)}
    scope["inspection"] = ml.inspect(model, shapes={"input": [2, 4]})
    call = CALLS[case]
    if not call.startswith(("half_known", "inspection")):
        call = "model, " + call if "shapes" in call else 'model, shapes={"input": [2, 4]}, ' + call
    args, options = eval(f"call({call})", scope)
    with pytest.raises(CostBoundError) as caught:
        ml.assert_cost(*args, **options)
    for one in caught.value.diagnostics:
        del options[one.facts[0][0]]
        if advised := re.match(r"(\w+)=(\S+)", one.advice):
            options[advised[1]] = eval(advised[2])
    if options.get("unknown") == "fail":  # no bound of a partly unknown cost passes
        options["unknown"] = "warn"
    ml.assert_cost(*args, **options)
