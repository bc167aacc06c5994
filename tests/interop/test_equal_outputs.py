"""Models of other libraries give the same outputs here.

By default, Flax computes a variance as `E[x²] - E[x]²`, with an error above 1e-6 in float32. The tests turn this off.
"""

from __future__ import annotations

import functools

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import mithril_nb as ml
from mithril_nb.interop.into import in_order
from mithril_nb.interop.layers import Imported, _functions
from mithril_nb.models import (
    MLP,
    BatchNorm,
    BatchNorm2d,
    Conv2d,
    Embedding,
    Flatten,
    LayerNorm,
    Linear,
    MaxPool2d,
    Model,
    Relu,
    Tanh,
)

KEY = jax.random.key(3)
IDS = jnp.arange(6).reshape(2, 3)
"""The input of an embedding."""


def x_of(*shape):
    return jnp.asarray(np.random.default_rng(1).standard_normal(shape, "float32"))


def ours(imported, x, pm=None):
    pm = pm or ml.compile(imported.model, shapes={"input": list(x.shape)})
    state = {"state": imported.state} if imported.state else {}
    return pm.evaluate(imported.params, {"input": x}, **state)["output"]


def same(mine, theirs):
    assert mine.shape == theirs.shape
    np.testing.assert_allclose(mine, theirs, atol=1e-6, rtol=1e-6)


def first(x):
    """Move the channels before height and width."""
    return jnp.moveaxis(x, -1, 1)


# Flax nnx: each entry makes a module; images are the last two


def rngs():
    return nnx.Rngs(0)


def warm(module):
    """Return a module whose scales, shifts and statistics are not zeros and ones."""
    graph, params, rest = nnx.split(module, (nnx.Param, nnx.BatchStat), ...)
    module = nnx.merge(graph, randomized(params), rest)
    module.eval()
    return module


NNX = {
    "Linear": (lambda: nnx.Linear(4, 3, rngs=rngs()), (5, 4)),
    "Linear without bias": (lambda: nnx.Linear(4, 3, use_bias=False, rngs=rngs()), (5, 4)),
    "Embed": (lambda: nnx.Embed(7, 3, rngs=rngs()), None),
    "LayerNorm": (lambda: nnx.LayerNorm(4, use_fast_variance=False, rngs=rngs()), (5, 2, 4)),
    "LayerNorm without bias": (lambda: nnx.LayerNorm(4, use_bias=False, use_fast_variance=False, rngs=rngs()), (5, 4)),
    "RMSNorm": (lambda: nnx.RMSNorm(4, rngs=rngs()), (5, 4)),
    "BatchNorm": (lambda: nnx.BatchNorm(4, rngs=rngs()), (5, 4)),
    "Sequential": (
        lambda: nnx.Sequential(
            nnx.Linear(4, 8, rngs=rngs()), nnx.relu, nnx.Dropout(0.5, rngs=rngs()), nnx.BatchNorm(8, rngs=rngs()),
            nnx.Sequential(nnx.Linear(8, 8, rngs=rngs()), functools.partial(nnx.gelu, approximate=False)),
            nnx.LayerNorm(8, use_fast_variance=False, rngs=rngs()), nnx.Linear(8, 2, rngs=rngs()), nnx.softmax,
        ),
        (5, 4),
    ),
    "Conv": (lambda: nnx.Conv(3, 8, (3, 5), rngs=rngs()), (2, 9, 8, 3)),
    "Conv of a series": (lambda: nnx.Conv(3, 8, (3,), strides=2, padding="VALID", rngs=rngs()), (2, 9, 3)),
    "Conv with all": (
        lambda: nnx.Conv(4, 8, (3, 2), strides=(2, 1), padding=((1, 2), 1), kernel_dilation=2, feature_group_count=2,
                         use_bias=False, rngs=rngs()),
        (2, 9, 8, 4),
    ),
    "images": (
        lambda: nnx.Sequential(
            nnx.BatchNorm(3, rngs=rngs()), nnx.Conv(3, 8, (3, 3), rngs=rngs()), nnx.BatchNorm(8, rngs=rngs()), nnx.relu,
            nnx.GroupNorm(8, num_groups=4, use_fast_variance=False, rngs=rngs()), nnx.Conv(8, 4, (3, 3), rngs=rngs()),
            nnx.softmax,
        ),
        (2, 9, 8, 3),
    ),
    "pools": (
        lambda: nnx.Sequential(
            nnx.Conv(3, 8, (3, 3), rngs=rngs()),
            functools.partial(nnx.max_pool, window_shape=(2, 2), strides=(2, 2)),
            functools.partial(nnx.avg_pool, window_shape=(2, 3)),
        ),
        (2, 9, 8, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NNX)
def test_nnx(name):
    make, shape = NNX[name]
    module = warm(make())
    x = x_of(*shape) if shape else IDS
    is_image = name in ("images", "pools") or name.startswith("Conv")
    theirs = module(x)
    same(ours(ml.from_flax(module), first(x) if is_image else x), first(theirs) if is_image else theirs)


LINEN = {
    "Dense": (lambda: linen.Dense(3), (5, 4)),
    "Embed": (lambda: linen.Embed(7, 3), None),
    "LayerNorm": (lambda: linen.LayerNorm(use_fast_variance=False), (5, 2, 4)),
    "BatchNorm": (lambda: linen.BatchNorm(use_running_average=True), (5, 4)),
    "GroupNorm": (lambda: linen.GroupNorm(num_groups=2, use_fast_variance=False), (5, 4)),
    "Conv": (lambda: linen.Conv(8, (3, 5), strides=2), (2, 9, 8, 3)),
    "Sequential": (
        lambda: linen.Sequential([
            linen.Dense(8), linen.tanh, linen.BatchNorm(use_running_average=True),
            linen.Sequential([linen.Dense(6), linen.silu]), linen.LayerNorm(use_fast_variance=False),
            linen.Dense(2), linen.log_softmax,
        ]),
        (5, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINEN)
def test_linen(name):
    make, shape = LINEN[name]
    module, x = make(), x_of(*shape) if shape else IDS
    variables = randomized(module.init(KEY, x))
    theirs = module.apply(variables, x)
    imported = ml.from_flax(module, variables)
    same(ours(imported, first(x) if name == "Conv" else x), first(theirs) if name == "Conv" else theirs)


def randomized(tree):
    """Return weights that keep the scale, and other arrays without zeros, ones and negative values."""
    random = np.random.default_rng(3)

    def draw(leaf):
        if leaf.ndim < 2:
            return jnp.asarray(0.5 + random.random(leaf.shape, "float32") / 2)
        return jnp.asarray(random.standard_normal(leaf.shape, "float32") / np.sqrt(leaf.size / max(leaf.shape)))

    return jax.tree.map(draw, tree)


def eqx_batch_norm(mode):
    norm, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, "batch", mode=mode)
    for step in range(3):
        x = 3 * jax.random.normal(jax.random.key(step), (8, 4)) + 1
        _, state = jax.vmap(norm, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)
    return eqx.nn.inference_mode(norm), state


EQUINOX = {
    "Linear": (lambda: eqx.nn.Linear(4, 3, key=KEY), (5, 4)),
    "Linear without bias": (lambda: eqx.nn.Linear(4, 3, use_bias=False, key=KEY), (5, 4)),
    "Embedding": (lambda: eqx.nn.Embedding(7, 3, key=KEY), None),
    "LayerNorm": (lambda: eqx.nn.LayerNorm(4), (5, 4)),
    "RMSNorm": (lambda: eqx.nn.RMSNorm(4, use_bias=False), (5, 4)),
    "GroupNorm": (lambda: eqx.nn.GroupNorm(2, 4), (5, 4, 3, 3)),
    "MLP": (lambda: eqx.nn.MLP(4, 3, 8, 2, jax.nn.tanh, jax.nn.softplus, key=KEY), (5, 4)),
    "Conv1d": (lambda: eqx.nn.Conv1d(3, 8, 3, stride=2, key=KEY), (2, 3, 9)),
    "Conv2d": (lambda: eqx.nn.Conv2d(4, 8, (3, 2), 2, ((1, 2), (0, 1)), 2, 2, key=KEY), (2, 4, 9, 8)),
    "Conv2d, same": (lambda: eqx.nn.Conv2d(4, 8, 3, padding="SAME", use_bias=False, key=KEY), (2, 4, 9, 8)),
    "softmax over the channels": (
        lambda: eqx.nn.Sequential(
            [eqx.nn.Lambda(functools.partial(jax.nn.softmax, axis=0)), eqx.nn.Conv1d(4, 4, 1, key=KEY)]
        ),
        (4, 4, 4),
    ),
    "a CNN": (
        lambda: eqx.nn.Sequential([
            eqx.nn.Conv2d(3, 8, 3, key=KEY), eqx.nn.Lambda(jax.nn.relu), eqx.nn.MaxPool2d(2, 2), eqx.nn.AvgPool2d(2),
            eqx.nn.Dropout(0.5, inference=True), eqx.nn.Identity(), eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(32, 5, key=KEY), eqx.nn.Lambda(jax.nn.softmax),
        ]),
        (2, 3, 8, 8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUINOX)
def test_equinox(name):
    make, shape = EQUINOX[name]
    module = make()
    arrays, rest = eqx.partition(module, eqx.is_inexact_array)
    module = eqx.combine(randomized(arrays), rest)
    x = jnp.arange(6) if shape is None else x_of(*shape)
    same(ours(ml.from_equinox(module), x), jax.vmap(module)(x))


@pytest.mark.parametrize("mode", ["ema", "batch"])
def test_batch_norm_of_equinox(mode):
    norm, state = eqx_batch_norm(mode)
    x = x_of(5, 4)
    theirs, _ = jax.vmap(norm, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)
    same(ours(ml.from_equinox(norm, state), x), theirs)


@pytest.mark.parametrize("function", [one for one, _, _ in _functions()], ids=lambda f: getattr(f, "__name__", "f"))
def test_every_known_function_is_equal(function):
    x = 3 * x_of(50, 4)
    module = eqx.nn.Sequential([eqx.nn.Lambda(function), eqx.nn.Lambda(jax.nn.relu)])
    same(ours(ml.from_equinox(module), x), jax.nn.relu(function(x)))


class Cnn(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.relu(linen.BatchNorm(use_running_average=True)(linen.Conv(6, (3, 3))(x)))
        x = linen.max_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
        for width in (8,) * 11:
            x = linen.tanh(linen.Dense(width)(x))
        return linen.LayerNorm(use_fast_variance=False)(x)


def cnn(batch_norm):
    model = Model()
    model |= Conv2d(6, 3)
    model += batch_norm()
    model += Relu()
    model += MaxPool2d(2)
    model += Flatten()
    for _ in range(11):
        model += Linear(8)
        model += Tanh()
    model += LayerNorm(eps=1e-6)
    return ml.compile(model, shapes={"input": [2, 3, 8, 6]})


@pytest.mark.parametrize("batch_norm", [BatchNorm, BatchNorm2d])
def test_linen_into_a_model_of_blocks(batch_norm):
    # Eleven Dense layers: they go in the order of their numbers; the first reads an image that was made flat.
    x = x_of(2, 8, 6, 3)
    variables = jax.tree.map(lambda leaf: leaf + 0.1, Cnn().init(KEY, x))
    pm = cnn(batch_norm)
    same(ours(ml.from_flax(variables, into=pm), first(x), pm), Cnn().apply(variables, x))


def test_haiku_into_a_model_of_blocks():
    def there(x, is_training):
        x = hk.Conv2D(6, 3)(x)
        x = jax.nn.relu(hk.BatchNorm(True, True, 0.9)(x, is_training))
        x = hk.Flatten()(hk.MaxPool((2, 2, 1), (2, 2, 1), "VALID")(x))
        x = hk.nets.MLP([8] * 11, activation=jnp.tanh, activate_final=True)(x)
        return hk.LayerNorm(-1, True, True, eps=1e-6)(x)

    x = x_of(2, 8, 6, 3)
    function = hk.without_apply_rng(hk.transform_with_state(there))
    params, state = function.init(KEY, x, True)
    params, state = (jax.tree.map(lambda leaf: leaf + jnp.asarray(0.1, leaf.dtype), tree) for tree in (params, state))
    pm = cnn(BatchNorm)
    same(ours(ml.from_haiku(params, state, into=pm), first(x), pm), function.apply(params, state, x, False)[0])


def test_haiku_embedding_and_mlp():
    there = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([5, 2])(hk.Embed(7, 4)(x))))
    x = IDS
    theirs = there.init(KEY, x)
    pm = ml.compile(Model() | Embedding(7, 4) + MLP(4, [5], 2), shapes={"input": [2, 3]})
    same(ours(ml.from_haiku(theirs, into=pm), x, pm), there.apply(theirs, x))


def test_names_assign_layers_to_blocks():
    class Two(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(4, name="out")(linen.tanh(linen.Dense(4, name="then_in")(x)))

    x = x_of(5, 4)
    variables = randomized(Two().init(KEY, x))
    model = Model() | Linear(4, name="a")
    model += Tanh()
    model += Linear(4, name="b")
    pm = ml.compile(model, shapes={"input": [5, 4]})
    imported = ml.from_flax(variables, into=pm, names={"then_in": "a", "out": "b"})
    same(ours(imported, x, pm), Two().apply(variables, x))


class Coder(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(4, name="decoder")(linen.tanh(linen.Dense(4, name="encoder")(x)))


class NnxCoder(nnx.Module):
    def __init__(self):
        self.encoder = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
        self.blocks = nnx.List([nnx.Linear(4, 4, rngs=nnx.Rngs(step)) for step in range(1, 12)])
        self.decoder = nnx.Linear(4, 4, rngs=nnx.Rngs(20))

    def __call__(self, x):
        for layer in (self.encoder, *self.blocks):
            x = jnp.tanh(layer(x))
        return self.decoder(x)


def coder(count=2):
    model = Model() | Linear(4)
    for _ in range(count - 1):
        model += Tanh()
        model += Linear(4)
    return ml.compile(model, shapes={"input": [5, 4]})


def test_layers_are_matched_in_creation_order():
    x, pm = x_of(5, 4), coder()
    variables = Coder().init(KEY, x)
    same(ours(ml.from_flax(variables, into=pm), x, pm), Coder().apply(variables, x))
    there = hk.without_apply_rng(
        hk.transform(lambda x: hk.Linear(4, name="decoder")(jnp.tanh(hk.Linear(4, name="encoder")(x))))
    )
    params = there.init(KEY, x)
    same(ours(ml.from_haiku(params, into=pm), x, pm), there.apply(params, x))
    module, pm = NnxCoder(), coder(13)
    same(ours(ml.from_flax(module, into=pm), x, pm), module(x))


def test_names_resolve_sorted_layers():
    x, pm = x_of(5, 4), coder()
    variables = randomized(Coder().init(KEY, x))
    imported = ml.from_flax(variables, into=pm, names={"encoder": "linear_0", "decoder": "linear_1"})
    same(ours(imported, x, pm), Coder().apply(variables, x))


def test_imported_params_train_and_save(tmp_path):
    model, params, _ = ml.from_equinox(eqx.nn.MLP(4, 2, 8, 1, key=KEY))
    ml.save(model, tmp_path / "model.json")
    ml.save_params(params, tmp_path / "params.safetensors")
    again = ml.load(tmp_path / "model.json")
    x = x_of(3, 4)
    pm = ml.compile(again, shapes={"input": [3, 4]})
    out = pm.evaluate(ml.load_params(tmp_path / "params.safetensors"), {"input": x})["output"]
    np.testing.assert_array_equal(out, ours(Imported(model, params, {}), x))


def test_only_siblings_of_one_stem_are_numbered():
    given = ["head", "block_10/b", "block_10/a", "linear", "block_9/a", "linear_2", "linear_1"]
    assert in_order(given) == ["head", "block_9/a", "linear", "block_10/b", "block_10/a", "linear_1", "linear_2"]
