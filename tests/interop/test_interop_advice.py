"""The advice in errors of importing parameters works."""

from __future__ import annotations

import pytest
from advice import check, chosen

DENSE = """
        import equinox as eqx, haiku as hk, safetensors.numpy; from flax import linen, nnx
        dense, model, shapes = {"kernel": jnp.ones((4, 8)), "bias": jnp.ones(8)}, Linear(8), {"input": [2, 4]}
        key, path = jax.random.key(0), "params.safetensors"
        pm = ml.compile(Model() | Linear(8), shapes=shapes); params = pm.randomize_params()"""

IMAGES = f"""{DENSE}
        conv, dense = {{"kernel": jnp.ones((3, 3, 3, 2)), "bias": jnp.ones(2)}}, {{"kernel": jnp.ones((32, 8)), "bias": jnp.ones(8)}}
        def fill(shapes, *between):
            model = Model() | Conv2d(2, 3, in_channels=3)
            for block in (*between, Linear(8, input_size=32)): model += block
            return ml.from_flax({{"params": {{"Conv_0": conv, "Dense_0": dense}}}}, into=ml.compile(model, shapes=shapes))"""

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
    "interop/into.py:fill_model": f"""{DENSE}
        ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=Linear(8))
        """,
    "interop/into.py:fill_model#2": f"""{DENSE}
        ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=ml.compile(Linear(9), shapes=shapes))
        # Try: ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=ml.compile(Linear(8), shapes=shapes))
        """,
    "interop/into.py:fill_model#3": f"""{DENSE}
        ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=ml.compile(Linear(8, use_bias=False), shapes=shapes))
        # Try: ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=ml.compile(Linear(8), shapes=shapes))
        """,
    "interop/into.py:_match_layers": f"""{DENSE}
        ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=pm, names={{"Dense_1": "linear_0"}})
        """,
    "interop/into.py:_match_layers#2": f"""{DENSE}
        model = Model() | Linear(8); model += LSTM(3); pm = ml.compile(model, shapes={{"input": [2, 5, 4]}})
        ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=pm)
        # Try: {{}}; pm.evaluate(params, {{"input": jnp.ones((2, 5, 4))}})
        # ...: jnp.ones((8, 12))
        """,
    "interop/into.py:_match_layers#3": f"""{DENSE}
        ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=ml.compile(MLP(4, [8], 8), shapes=shapes))
        # Try: ml.from_flax({{"params": {{"Dense_0": dense}}}}, into=pm)
        """,
    "interop/into.py:_check_order": f"""{DENSE}
        square = {{"kernel": jnp.ones((4, 4)), "bias": jnp.ones(4)}}
        params = jax.tree.map(jnp.asarray, {{"encoder": square, "decoder": square}})
        ml.from_flax({{"params": params}}, into=ml.compile(MLP(4, [4], 4), shapes=shapes))
        """,
    "interop/into.py:_reordered": f"""{DENSE}
        conv, dense = {{"kernel": jnp.ones((3, 3, 3, 2)), "bias": jnp.ones(2)}}, {{"kernel": jnp.ones((4, 48)), "bias": jnp.ones(48)}}
        def fill(*between):
            model = Model() | Linear(48)
            for block in (*between, Conv2d(2, 3)): model += block
            return ml.from_flax({{"params": {{"Dense_0": dense, "Conv_0": conv}}}}, into=ml.compile(model, shapes=shapes))
        fill(Reshape((2, 3, 4, 4)))
        # Try: fill(Reshape((2, 4, 4, 3)), Transpose((0, 3, 1, 2)))
        """,
    "interop/into.py:_reordered#2": f"""{IMAGES}
        fill({{"input": [1, 3, 4, 4]}}, Transpose((0, 2, 1, 3)), Flatten())
        # Try: fill({{"input": [1, 3, 4, 4]}}, {{}}, Transpose((0, 2, 1, 3)), Flatten())
        """,
    "interop/into.py:_reordered#2 | images of unknown size": f"""{IMAGES}
        fill(None, Flatten())
        # Try: fill({{"input": [1, 3, 4, 4]}}, Flatten())
        """,
    "interop/layers.py:conversion_error": f"""{DENSE}
        ml.from_equinox(eqx.nn.GRUCell(4, 4, key=key), into=pm)
        # Try: ml.from_equinox(eqx.nn.Linear(4, 8, key=key), into=pm)
        """,
    "interop/safetensors.py:save_params": f"""{DENSE}
        ml.save_params(params, "a/b/c")
        """,
    "interop/safetensors.py:_names": f"""{DENSE}
        safetensors.numpy.save_file({{"a": np.ones(3)}}, path)
        ml.load_params(path)
        """,
    "interop/safetensors.py:_broken": f"""{DENSE}
        ml.save_params(params, path); about = {{"format": "mithril_nb.params", "version": "1", "names": "3"}}
        safetensors.numpy.save_file({{"a": np.ones(3)}}, "broken", about)
        ml.load_params("broken")
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
}


@pytest.mark.parametrize("case", chosen(CASES))
def test_advice_works(case: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(CASES, case)
