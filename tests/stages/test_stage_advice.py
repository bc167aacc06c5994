"""The advice in errors of stages works."""

from __future__ import annotations

import pytest
from advice import check

SYMBOLIC = 'ml.inspect(jnp.matmul, *(jax.ShapeDtypeStruct(jax.export.symbolic_shape("B, B"), "float32"),) * 2)'
CASES = {
    "stages/given/program.py:Given.error": """
        inspection = ml.inspect(jax.jit(jnp.tanh).lower(jnp.ones(3)))
        inspection.cost("analytic")
        """,
    "stages/failure.py:not_traced": """
        inspection = ml.inspect(lambda x: x @ x, jnp.ones((2, 3)))
        inspection.cost()
        """,
    "stages/failure.py:not_compiled": """
        def fails(x): raise ValueError("on the host")
        inspection = ml.inspect(lambda x: jax.lax.platform_dependent(x, cuda=jnp.sin), jnp.ones(3))
        inspection.passes
        """,
    "stages/given/program.py:Given.error | a stage": """
        inspection = ml.inspect(jax.jit(jnp.tanh).lower(jnp.ones(3)).compile())
        inspection.passes
        """,
    "stages/failure.py:unknown_name": """
        inspection = ml.inspect(jnp.sin, jnp.ones(3))
        inspection.stage("mlir")
        """,
    "stages/failure.py:unknown_name#2": """
        inspection = ml.inspect(jnp.sin, jnp.ones(3))
        inspection.analysis("x")
        """,
    "stages/instruction_history.py:find_instruction": """
        inspection = ml.inspect(lambda x: jnp.sin(x) + 1, jnp.ones(3))
        inspection.who_changed("hlo", "none")
        """,
    "stages/param_names.py:names_of_params": """
        ml.inspect(lambda w, x: x @ w, jnp.ones((3, 3)), jnp.ones(3), params=0.5)
        """,
    "stages/param_names.py:check_params": """
        ml.inspect(lambda w, x: x @ w, jnp.ones((3, 3)), jnp.ones(3), params="v")
        """,
    "stages/pipeline.py:Pipeline._in_numbers": f"""
        inspection = {SYMBOLIC}
        inspection.compiled
        """,
    "stages/transforms/stepping.py:step_through": """
        ml.step_through(lambda x: x.sum(), jnp.ones(3), through=("grd",))
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case):
    check(CASES, case)
