"""The advice in error messages of costs works."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from advice import check, chosen

from mithril_nb.cost.formulas.rules import USER_RULES

STEP = """
        inspection = ml.inspect(Model() | Linear(4, name="up"), shapes={"input": [2, 3]}); cost = inspection.cost()"""

CASES = {
    "cost/by_name.py:ByBlock.__missing__": """
        body = Model(name="net") | Linear(4, name="up")
        cost = ml.inspect(Model() | body, shapes={"input": [2, 3]}).cost()
        cost.by_block["net"]
        """,
    "cost/by_name.py:no_block": f"""{STEP}
        cost.by_block["upp"]
        """,
    "cost/costs.py:Cost.formula": """
        inspection = ml.inspect(jnp.sin, jnp.ones(3))
        inspection.cost("lowered").formula()
        """,
    "cost/costs.py:Cost.difference": f"""{STEP}
        inspection.cost("lowered").difference(of="time")
        """,
    "cost/costs.py:Cost.difference#2": f"""{STEP}
        inspection.cost("lowered").difference(inspection.cost("compiled"))
        """,
    "cost/costs.py:Cost.difference#3": f"""{STEP}
        inspection.cost().difference()
        """,
    "cost/costs.py:Cost._comparable": f"""{STEP}
        cost.compare(3)
        # Try: {{}}
        """,
    "cost/counting.py:_check_source": f"""{STEP}
        inspection.cost("guessed")
        """,
    "cost/counting.py:_check_source | measured": f"""{STEP}
        inspection.cost("measured")
        """,
    "cost/registration.py:register_cost": """
        ml.register_cost(3, lambda equation: 1)
        """,
    "cost/registration.py:register_cost#2": """
        ml.register_cost("scan", lambda equation: 1)
        """,
    "cost/registration.py:register_cost#3": """
        ml.register_cost("ffi_call", 3)
        """,
    "cost/registration.py:_figures": """
        ml.register_cost("ffi_call", lambda equation: 1 / 0)
        ml.inspect(jax.ffi.ffi_call("any", jax.ShapeDtypeStruct((4,), "float32")), jnp.ones(4)).cost()
        """,
    "cost/registration.py:_figures#2": """
        ml.register_cost("ffi_call", lambda equation: {"flop": 1})
        ml.inspect(jax.ffi.ffi_call("any", jax.ShapeDtypeStruct((4,), "float32")), jnp.ones(4)).cost()
        """,
    "cost/registration.py:_figures#3": """
        ml.register_cost("ffi_call", lambda equation: -1)
        ml.inspect(jax.ffi.ffi_call("any", jax.ShapeDtypeStruct((4,), "float32")), jnp.ones(4)).cost()
        """,
    "cost/counting.py:_counted": """
        inspection = ml.inspect(jnp.matmul, *(jax.ShapeDtypeStruct(jax.export.symbolic_shape("B, B"), "float32"),) * 2)
        inspection.cost("compiled")
        """,
    "cost/counting.py:_counted | of a given program": """
        exported = jax.export.export(jax.jit(jnp.sin))(
            jax.ShapeDtypeStruct(jax.export.symbolic_shape("B"), "float32")
        )
        arrays = (jnp.ones(3),)
        ml.inspect(exported).cost()
        # Try: assert {}.cost("compiled").total.transcendentals == 3
        """,
    "cost/lines.py:ByLine.__missing__": f"""{STEP}
        cost.by_line["model:44"]
        """,
    "cost/memory/use.py:memory_of": """
        from mithril_nb.cost.memory.use import memory_of
        inspection = ml.inspect(jnp.sin, jnp.ones(3))
        memory_of(inspection, "guess")
        """,
    "cost/memory/use.py:_compiled": """
        from mithril_nb.cost.memory.use import memory_of
        call = jax.ffi.ffi_call("no_such_target", jax.ShapeDtypeStruct((3,), "float32"))
        inspection = ml.inspect(lambda x: jnp.sin(call(x)), jnp.ones(3))
        memory_of(inspection)
        # Try: assert {}.peak_bytes > 0
        """,
    "cost/memory/use.py:_compiled | sizes without numbers": """
        from mithril_nb.cost.memory.use import memory_of
        x, = jax.export.symbolic_args_specs((jnp.ones((2, 2)),), "B, B")
        fn, arrays = jnp.matmul, (jnp.ones((2, 2)), jnp.ones((2, 2)))
        memory_of(ml.inspect(fn, x, x))
        # Try: assert memory_of({}).peak_bytes > 0
        """,
    "cost/by_name.py:ByRole.__missing__": f"""{STEP}
        cost.by_role["forwar"]
        """,
    "cost/counting.py:Costs.__getitem__": """
        inspection = ml.inspect(jnp.matmul, *(jax.ShapeDtypeStruct(jax.export.symbolic_shape("B, B"), "float32"),) * 2)
        costs = inspection.costs()
        costs["compiled"]
        """,
    "cost/counting.py:Costs.__getitem__#2": f"""{STEP}
        costs = inspection.costs("analytic")
        costs["compiled"]
        """,
    "cost/symbolic.py:SymbolicProgram._check": """
        cost = ml.inspect(jnp.matmul, *(jax.ShapeDtypeStruct(jax.export.symbolic_shape("B, B"), "float32"),) * 2).cost()
        cost.at(C=3)
        """,
    "cost/symbolic.py:SymbolicProgram._check | no sizes": f"""{STEP}
        cost.at(C=3)
        """,
    "cost/tables.py:data_frame": f"""{STEP}
        cost.to_pandas(by="layer")
        """,
}


@pytest.fixture(autouse=True)
def no_rules_are_left() -> Iterator[None]:
    yield
    USER_RULES.clear()


@pytest.mark.parametrize("case", chosen(CASES))
def test_advice_works(case: str) -> None:
    check(CASES, case)
