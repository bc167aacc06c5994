"""The advice in errors of `ml.export` works."""

from __future__ import annotations

import pytest
from advice import check

MODEL = """
        model = ml.models.MLP(4, [3], 2); shapes = {"input": [8, 4]}
        pm = ml.compile(model, shapes=shapes)"""
CASES = {
    "interop/exporting/formats.py:format_of": f"""{MODEL}
        ml.export(model, "a", to="numpi", shapes=shapes)
        """,
    "interop/exporting/folder.py:check_folder": f"""{MODEL}
        ml.export(pm, "a", to="c", overwrite=True)
        ml.export(model, "a", to="numpy", shapes=shapes)
        """,
    "emission/ggml/gguf.py:_checked": f"""{MODEL}
        from mithril_nb.emission.ggml.gguf import gguf_bytes
        gguf_bytes({{"weight": np.zeros((0, 2), "float32")}}, {{}})
        # Try: model = pm; {{}}
        """,
    "interop/exporting/folder.py:_cannot_export": f"""{MODEL}
        model = pm
        ml.export(model, "a/b", to="numpy")
        """,
    "interop/exporting/stored.py:_typed": f"""{MODEL}
        ml.export(pm, "a", to="numpy", inputs={{"input": np.ones((2, 4))}})
        # Try: ml.export(pm, "a", to="numpy", inputs={{"input": np.ones((8, 4))}})
        """,
    "interop/exporting/stored.py:fill": f"""{MODEL}
        ml.export(pm, "a", to="numpy", inputs={{"inptu": np.ones((8, 4)), "x": 3}})
        # ...: np.ones((8, 4))
        """,
    "interop/exporting/stored.py:fill#2": f"""{MODEL}
        ml.export(pm, "a", to="numpy", params={{}})
        # Try: ml.export(pm, "a", to="numpy", params=pm.randomize_params())
        """,
    "interop/exporting/export.py:_values_of_module": """
        import equinox as eqx, functools
        module = eqx.nn.Linear(4, 3, key=jax.random.key(0)); f = jax.vmap(functools.partial(module)); x = jnp.ones((8, 4))
        ml.export(f, "a", x, to="numpy")
        # Try: ml.export(f, "a", x, to="numpy", params=module)
        """,
    "interop/exporting/export.py:_traced": """
        ml.export(ml.inspect(jax.jit(jnp.sin).lower(jnp.ones(3))), "a", to="numpy")
        # Try: ml.export(jnp.sin, "a", jnp.ones(3), to="numpy")
        """,
    "interop/exporting/export.py:_refuse_options": f"""{MODEL}
        model = pm.inspect()
        ml.export(model, "a", to="numpy", program="forward")
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(CASES, case)
