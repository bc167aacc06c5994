"""The advice in errors of `ml.what_if` and `ml.sweep` works."""

from __future__ import annotations

import pytest
from advice import check, chosen

MAKE = """
        def make(batch=4, width=8, remat=False):
            return jnp.matmul, (jnp.ones((batch, width)), jnp.ones((width, 3)))"""
MODEL = """
        model = Sequential(Linear(8), Linear(3))
        change = ml.what_if(model, shapes={"input": [4, 8]})"""

CASES = {
    "analysis/whatif/subjects.py:batch_of": f"""{MAKE}
        ml.what_if(lambda x, y: (x + 1, y + 1), jnp.ones((4, 3)), jnp.ones((5, 3)))(batch=8)
        """,
    "analysis/whatif/models.py:MithrilModel.with_changes": f"""{MODEL}
        ml.sweep(model, shapes={{"input": [4, 8]}}, remat=[3])
        """,
    "analysis/whatif/models.py:MithrilModel._add_attribute": f"""{MODEL}
        change({{"linear_0.dimensio": 5}})
        # Try: change({{}})
        """,
    "analysis/whatif/settings.py:checked | what a model was made with": """
        ml.what_if(MLP(8, [4], 2), shapes={"input": [4, 8]})(outputs=3)
        # Try: {}\\nmake = lambda outputs=2: ml.inspect(MLP(8, [4], outputs), shapes={"input": [4, 8]})\\nml.what_if(make)(outputs=3)
        """,
    "analysis/whatif/settings.py:checked": f"""{MAKE}
        ml.sweep(make, btch=[1, 2])
        # Try: ml.sweep(make, {{}})
        """,
    "analysis/whatif/settings.py:checked | like no other": """
        def make(batch=4):
            return jnp.sin, (jnp.ones(batch),)
        ml.what_if(make)(zzz=1)
        # Try: {}\\ndef make(batch=4, zzz=1): return jnp.sin, (jnp.ones(batch),)\\nml.what_if(make)(zzz=1)
        """,
    "analysis/whatif/settings.py:checked | not of the program": f"""{MAKE}
        ml.what_if(jnp.sin, jnp.ones(3))(width=8)
        # Try: sin, x = jnp.sin, jnp.ones(8)\\n{{}}\\nml.what_if(make)(width=8)
        """,
    "analysis/whatif/settings.py:by_name": f"""{MAKE}
        ml.sweep(make, changes=3)
        # Try: ml.sweep(make, {{}})
        """,
    "analysis/whatif/settings.py:by_name | one change": f"""{MAKE}
        ml.what_if(make)(3)
        # Try: ml.what_if(make)({{}})
        """,
    "analysis/whatif/settings.py:check_size": f"""{MAKE}
        ml.sweep(make, batch=[4, "a"])
        """,
    "analysis/whatif/settings.py:values_of": f"""{MAKE}
        ml.sweep(make, batch=[])
        """,
    "analysis/whatif/subjects.py:MadeProgram.__init__": """
        def needs(batch): return jnp.sin, (jnp.ones(batch),)
        ml.what_if(needs)
        # ...: 4
        """,
    "analysis/whatif/subjects.py:MadeProgram._inspected": """
        def make(batch=4): return 3
        ml.what_if(make)
        # Try: step = lambda x: x + 1\\ndef make(batch=4): {}\\nml.what_if(make)
        """,
    "analysis/whatif/subjects.py:FixedProgram.with_changes": f"""{MAKE}
        ml.what_if(jnp.sin, jnp.ones((4, 3)))(remat=True)
        """,
    "analysis/whatif/subjects.py:check_numerics": f"""{MAKE}
        ml.sweep(make, precision=["best"])
        """,
    "analysis/whatif/subjects.py:check_numerics#2": f"""{MODEL}
        ml.sweep(model, shapes={{"input": [4, 8]}}, dtype=["int8"])
        """,
    "analysis/whatif/subjects.py:_check_width": """
        change = ml.what_if(jnp.sin, jnp.ones((4, 3)))
        change(dtype="float64")
        # Try: {}; change(dtype="float64"); jax.config.update("jax_enable_x64", False)
        """,
    "analysis/whatif/sweeps.py:swept_over": f"""{MAKE}
        ml.sweep(make, batch=[8], source="analitic")
        """,
    "analysis/whatif/sweeps.py:swept_over#2": f"""{MAKE}
        ml.sweep(make, batch=8)
        """,
    "analysis/whatif/what_if.py:what_if": f"""{MAKE}
        ml.what_if(make, learns=3)
        """,
    "analysis/whatif/what_if.py:subject_of": """
        inspection = ml.inspect(jnp.sin, jnp.ones((4, 3)))
        ml.what_if(inspection, jnp.ones((4, 3)))
        """,
    "analysis/whatif/what_if.py:_refuse_settings": f"""{MODEL}
        ml.sweep(model, shapes={{"input": [4, 8]}}, batch=[2, 4], dtype="bfloat16")
        """,
    "analysis/whatif/what_if.py:_refuse_settings#2": """
        double, x = lambda x: 2 * x, jnp.ones((4, 3)); f = double
        ml.what_if(double, x, batch=8)
        """,
}


@pytest.mark.parametrize("case", chosen(CASES))
def test_advice_works(case: str) -> None:
    check(CASES, case)
