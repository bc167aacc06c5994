"""What errors of bringing parameters over advise works."""

from __future__ import annotations

import pytest
from advice import check, chosen

DENSE = """
        import equinox as eqx, haiku as hk, safetensors.numpy; from flax import linen, nnx
        dense, model, shapes = {"kernel": jnp.ones((4, 8)), "bias": jnp.ones(8)}, Linear(8), {"input": [2, 4]}
        key, path = jax.random.key(0), "params.safetensors"
        pm = ml.compile(Model() | Linear(8), shapes=shapes); params = pm.randomize_params()"""

CASES = {
    "interop/equinox.py:from_equinox": f"""{DENSE}
        ml.from_equinox(3)
        """,
    "interop/flax.py:from_flax": f"""{DENSE}
        nnx_module = nnx.Linear(4, 8, rngs=nnx.Rngs(0))
        ml.from_flax("dense", {{}})
        """,
    "interop/flax.py:from_flax#2": f"""{DENSE}
        nnx_module = nnx.Linear(4, 8, rngs=nnx.Rngs(0))
        ml.from_flax(linen.Dense(8))
        """,
    "interop/haiku.py:from_haiku": f"""{DENSE}
        transformed, x = hk.transform(lambda x: hk.Linear(8)(x)), jnp.ones((2, 4))
        ml.from_haiku({{"w": 3}}, into=pm)
        """,
    "interop/haiku.py:from_haiku#2": f"""{DENSE}
        theirs = {{"linear": {{"w": dense["kernel"], "b": dense["bias"]}}}}
        ml.from_haiku(theirs)
        """,
    "interop/into.py:filled": f"""{DENSE}
        ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=Linear(8))
        """,
    "interop/into.py:filled#2": f"""{DENSE}
        ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=ml.compile(Linear(9), shapes=shapes))
        # Try: ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=ml.compile(Linear(8), shapes=shapes))
        """,
    "interop/into.py:filled#3": f"""{DENSE}
        ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=ml.compile(Linear(8, use_bias=False), shapes=shapes))
        # Try: ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=ml.compile(Linear(8), shapes=shapes))
        """,
    "interop/into.py:_matched": f"""{DENSE}
        ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=pm, names={{"Dense_1": "linear_0"}})
        """,
    "interop/into.py:_matched#3": f"""{DENSE}
        ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=ml.compile(MLP(4, [8], 8), shapes=shapes))
        # Try: ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=pm)
        """,
    "interop/layers.py:refused": f"""{DENSE}
        ml.from_equinox(eqx.nn.GRUCell(4, 4, key=key), into=pm)
        # Try: ml.from_equinox(eqx.nn.Linear(4, 8, key=key), into=pm)
        """,
    "interop/safetensors.py:save_params": f"""{DENSE}
        ml.save_params(params, "a/b/c")
        """,
    "interop/safetensors.py:load_params#2": f"""{DENSE}
        ml.save_params(params, path); new_path("wrong").write_text("text")
        ml.load_params("wrong")
        """,
    "interop/safetensors.py:_names": f"""{DENSE}
        safetensors.numpy.save_file({{"a": np.ones(3)}}, path)
        ml.load_params(path)
        """,
    "interop/safetensors.py:_loaded": f"""{DENSE}
        ml.save_params({{"a": np.ones(3)}}, path)
        ml.load_params(path)
        # Try: {{}}; ml.load_params(path); jax.config.update("jax_enable_x64", False)
        """,
    "interop/safetensors.py:_array": f"""{DENSE}
        ml.save_params({{"a": [[1], [2, 3]]}}, path)
        """,
    "interop/safetensors.py:_array#2": f"""{DENSE}
        ml.save_params({{"a": np.array(["x"])}}, path)
        """,
    "interop/safetensors.py:_check_path": f"""{DENSE}
        ml.save_params(params, 3)
        """,
}


@pytest.mark.parametrize("case", chosen(CASES))
def test_advice_works(case: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(CASES, case)
