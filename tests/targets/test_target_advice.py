"""The advice of errors of `ml.inspect` works."""

from __future__ import annotations

from pathlib import Path

import pytest
from advice import check, chosen

MODULE = """
        import equinox as eqx, haiku as hk, flax
        module, x = eqx.nn.Linear(5, 3, key=jax.random.key(0)), jnp.ones((4, 5))"""

CASES = {
    "targets/calls.py:check_call": """
        scaled, x = lambda scale, x: scale * x, jnp.ones(3); f = scaled
        ml.inspect(scaled, scale=2.0)
        """,
    "targets/given.py:inspect_given_program": """
        f, x = jnp.tanh, jnp.ones(3)
        lowered = jax.jit(f).lower(x)
        ml.inspect(lowered, x)
        """,
    "targets/given.py:_refused": """
        import pathlib
        f, x = jnp.tanh, jnp.ones(3)
        ml.inspect("step.mlir")
        """,
    "targets/given.py:_refused | HLO": """
        import pathlib
        f, x = jnp.tanh, jnp.ones(3)
        ml.inspect(pathlib.Path("step.hlo"))
        """,
    "targets/given.py:_refused | bytes": """
        f, x = jnp.tanh, jnp.ones(3)
        ml.inspect(b"a note")
        """,
    "targets/given.py:_refused | folder": """
        import pathlib
        f, x = jnp.tanh, jnp.ones(3)
        ml.inspect(pathlib.Path("."))
        """,
    "targets/kinds.py:training_of": """
        ml.inspect(Linear(3), jnp.ones((2, 3)), program="train_stp")
        """,
    "targets/library_modules.py:foreign": f"""{MODULE}
        module = eqx.nn.Sequential([eqx.nn.Lambda(jnp.tanh)])
        ml.inspect(module, x, variables={{}})
        """,
    "targets/library_modules.py:_check_called": f"""{MODULE}
        ml.inspect(eqx.filter_jit(eqx.filter_vmap(module)), x, optimizer="adam")
        # Try: ml.inspect({{}}, x, optimizer="adam").cost()
        """,
    "targets/unsupported.py:refuse_misspelt": """
        ml.assert_cost(Linear(3), jnp.ones((2, 3)), flop=1_000_000)
        # Try: ml.assert_cost(Linear(3), jnp.ones((2, 3)), {})
        """,
    "targets/mithril_models.py:given_specs": """
        model, left, right = Add(), jnp.ones(3), jnp.ones(3)
        ml.inspect(model, left, right, right)
        """,
    "targets/mithril_models.py:given_specs#2": """
        model, left, right = Add(), jnp.ones(3), jnp.ones(3)
        ml.inspect(model, left, left=left, right=right)
        """,
    "targets/mithril_models.py:given_specs#3": """
        model = Linear(3)
        ml.inspect(model, (4, 64))
        """,
    "targets/mithril_models.py:_refuse_name": """
        model = Linear(3)
        ml.inspect(model, shapes={"input": [4, 64]}, optimiser="adam")
        """,
    "targets/mithril_models.py:inspect_model": """
        model = Model() | Linear(3)(input="x", output="a") | Linear(2)(input="x", output="b")
        ml.inspect(model, shapes={"x": [2, 3]}, optimizer="adam")
        # Try: ml.inspect(model, shapes={"x": [2, 3]}, optimizer="adam", loss=lambda outputs, targets: outputs["a"].sum()).cost()
        """,
    "targets/mithril_models.py:_concrete": "ml.inspect(Linear(3))",
    "targets/unsupported.py:unsupported_target": """
        ml.inspect(Linear, shapes={"input": [4, 64]}, optimizer="adam")
        """,
    "targets/unsupported.py:unsupported_target#2": """
        inspection = ml.inspect(Linear(3), shapes={"input": [4, 64]})
        ml.inspect(inspection, jnp.ones(3))
        """,
    "targets/unsupported.py:unsupported_target#3": """
        model, x = Linear(3), jnp.ones((4, 64))
        inspection = ml.inspect(model, x)
        ml.inspect(inspection.cost())
        """,
    "targets/unsupported.py:unsupported_target#3 | a bound": """
        inspection = ml.inspect(Linear(3), jnp.ones((4, 5)))
        ml.assert_cost(inspection.cost(), flops=132)
        """,
    "targets/unsupported.py:unsupported_target#4": "ml.inspect(3, jnp.ones(3))",
    "targets/unsupported.py:refuse": f"""{MODULE}
        module = eqx.nn.MLP(5, 3, 4, 1, key=jax.random.key(0))
        ml.inspect(module, shapes={{"x": [5]}})
        """,
    "targets/unsupported.py:refuse_training": f"""{MODULE}
        ml.inspect(jax.vmap(module), x, optimiser="adam")
        # Try: ml.inspect(jax.vmap(module), x, {{}}).cost()
        """,
    "targets/unsupported.py:refuse_training#2": """
        scaled, x, loss = lambda x, loss: x * loss, jnp.ones(3), jnp.ones(3); f = scaled
        ml.inspect(scaled, x, loss=loss)
        """,
    "targets/unsupported.py:refuse_training#3": """
        predict, x = lambda x: jnp.tanh(x), jnp.ones(3); f = predict
        ml.inspect(predict, x, optimizer="adam")
        """,
    "targets/unsupported.py:_refuse_around_module": f"""{MODULE}
        module = eqx.nn.Linear(5, 3, key=jax.random.key(0)); x = jnp.ones((4, 5))
        ml.inspect(lambda x: jax.vmap(module)(x), x, optimizer="adam")
        """,
    "targets/unsupported.py:refuse_several": """
        import equinox as eqx, functools
        first, second = (eqx.nn.Linear(4, 4, key=jax.random.key(seed)) for seed in (0, 1)); x = jnp.ones((8, 4))
        @functools.wraps(first)
        def both(v): return second(first(v))
        function = jax.vmap(both)
        ml.inspect(function, x, optimizer="adam")
        """,
    "targets/arrays.py:checked_result": """
        function, x = lambda x: (row.sum() for row in x), jnp.ones((2, 3))
        ml.inspect(function, x).cost()
        # Try: def function(x): {}\\nml.inspect(function, x).cost()
        # ...: (row.sum() for row in x)
        """,
    "targets/arrays.py:checked_result#2": """
        ml.inspect(lambda x: "text", jnp.ones(3)).cost()
        # Try: ml.inspect(lambda x: (x, x + 1), jnp.ones(3)).cost()
        """,
    "targets/constants.py:static_arguments": """
        f, x, n = jax.jit(lambda x, n: x[:n]), jnp.ones(3), 2
        ml.inspect(f, x, n, static_argnames="n")
        # Try: {}.cost()
        """,
    "targets/constants.py:static_arguments#2": """
        def f(x, n): return x[:n]
        ml.inspect(f, jnp.ones(3), 2, static_argnames="m")
        # Try: ml.inspect(f, jnp.ones(3), 2, {}).cost()
        """,
    "targets/constants.py:static_arguments#3": """
        def f(x, sizes): return x.reshape(sizes)
        x = jnp.ones(6)
        ml.inspect(f, x, [2, 3], static_argnames="sizes")
        # Try: {}.cost()
        """,
    "targets/constants.py:NumbersNeeded._explain": """
        a = jnp.ones((3, 4))
        ml.inspect(jnp.sum, a, axis=0).cost()
        # Try: {}.cost()
        """,
    "targets/constants.py:NumbersNeeded._explain | a container": """
        def f(x, config): return x[: config["n"]] * config["scale"]
        x = jnp.ones(3)
        ml.inspect(f, x, {"n": 2, "scale": 2.0}).cost()
        # Try: {}.cost()
        """,
    "targets/constants.py:NumbersNeeded._explain | arrays and numbers": """
        def f(params, x): return sum(x @ params["w"] for _ in range(params["count"]))
        params, x = {"w": jnp.ones((3, 3)), "count": 2}, jnp.ones(3)
        ml.inspect(f, params, x).cost()
        # Try: {}.cost()
        """,
    "targets/arrays.py:check_sizes": """
        x = jax.ShapeDtypeStruct(("B", 4), "float32")
        ml.inspect(jnp.tanh, x)
        # Try: {}
        """,
    "targets/arrays.py:check_sizes | a fraction": """
        x = jax.ShapeDtypeStruct((32 / 2, 4), "float32")
        ml.inspect(jnp.tanh, x)
        # Try: ml.inspect(jnp.tanh, {}).cost()
        """,
    "targets/arrays.py:no_array": """
        ml.inspect(jnp.tanh, (4, 64)).cost()
        # Try: ml.inspect(jnp.tanh, {}).cost()
        """,
    "targets/constants.py:no_array_but_text": """
        f = lambda x: x.sum()
        ml.inspect(f, "f32[3,4]").cost()
        # Try: {}.cost()
        """,
    "targets/constants.py:no_array_but_text | no type": """
        f = lambda x: x.sum()
        ml.inspect(f, "3 by 4").cost()
        # Try: ml.inspect(f, {}).cost()
        """,
    "targets/constants.py:no_array_but_text | a module": f"""{MODULE}
        module = eqx.nn.Linear(5, 3, key=jax.random.key(0))
        ml.inspect(module, "f32[5]").cost()
        """,
    "targets/mithril_models.py:given_specs#3 | text": """
        model = Linear(3)
        ml.inspect(model, "f32[4,5]")
        """,
    "targets/entry_point.py:_refuse": "ml.inspect(jnp.sum, jnp.ones(3), kwargs=[0])",
    "targets/entry_point.py:_refuse | a name": "ml.inspect(jnp.sum, jnp.ones(3), name=3)",
    "targets/entry_point.py:_refuse | a device": 'ml.inspect(jnp.sum, jnp.ones(3), device="cpu")',
    "targets/entry_point.py:_refuse | options of XLA": "ml.inspect(jnp.sum, jnp.ones(3), compiler_options=[0])",
    "targets/symbolic.py:_explaining_failure": """
        ml.inspect(Glu(), shapes={"input": [2, "s"]}).cost()
        # Try: ml.inspect(Glu(), shapes={"input": [2, 4]}).cost()
        """,
    "targets/symbolic.py:_Dims.dim": """
        ml.inspect(Add(), shapes={"left": ["batch", 4]})
        # Try: ml.inspect(Add(), shapes={"left": ["batch", 4], "right": [4]})
        """,
    "targets/given.py:without_trace": """
        traced = jax.jit(jnp.tanh).trace(jnp.ones(3))
        ml.inspect(traced, jnp.ones(4))
        """,
    "targets/given.py:_refuse_shardings": """
        f, x, sharding = jnp.tanh, jnp.ones(8), jax.sharding.NamedSharding(jax.sharding.Mesh(jax.devices()[:1], "i"), jax.sharding.PartitionSpec("i"))
        ml.inspect(jax.jit(f, in_shardings=sharding).trace(x))
        # ...: sharding
        """,
    "targets/mithril_models.py:_concrete | several inputs": """
        model = Model() | Linear(8) | Linear(3)
        ml.inspect(model, shapes={"input": [4, 8]})
        """,
}


@pytest.mark.parametrize("case", chosen(CASES))
def test_advice_works(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(CASES, case)
