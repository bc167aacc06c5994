"""Modules of other libraries train as in a hand-written loop of the library with optax."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx

from mithril_nb.errors import UnknownOptionError
from mithril_nb.train import fit

STEPS, SIZE = 20, 16
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(SIZE * STEPS, 4)).astype(np.float32), RNG.integers(0, 3, SIZE * STEPS).astype(np.int32)
BATCHES = [(X[i : i + SIZE], Y[i : i + SIZE]) for i in range(0, len(X), SIZE)]
OPTIONS: dict[str, Any] = {"epochs": 1, "batch_size": SIZE, "shuffle": False, "seed": 3}
KEYS = [jax.random.fold_in(jax.random.key(3), step) for step in range(STEPS)]


def ce(logits: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def hand_written(loss: Any, params: Any, state: Any = None) -> tuple[Any, Any]:
    """Train with optax; `loss` is a function of (params, state, x, y, key) that returns the loss and the state."""
    adam = optax.adam(0.01)
    opt_state = adam.init(params)

    @jax.jit
    def step(params: Any, state: Any, opt_state: Any, x: Any, y: Any, key: Any) -> Any:
        grads, state = jax.grad(loss, has_aux=True)(params, state, x, y, key)
        updates, opt_state = adam.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), state, opt_state

    for (x, y), key in zip(BATCHES, KEYS, strict=True):
        params, state, opt_state = step(params, state, opt_state, x, y, key)
    return params, state


def trained(model: Any, **options: Any) -> Any:
    return fit(model, (X, Y), optimizer=optax.adam(0.01), **OPTIONS, **options).wait()


def assert_close(ours: Any, theirs: Any) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    arrays = [leaf for leaf in jax.tree.leaves(ours) if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)]
    others = [leaf for leaf in jax.tree.leaves(theirs) if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)]
    for own, other in zip(arrays, others, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-6)


class Nnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first, self.norm = nnx.Linear(4, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
        self.dropout, self.last = nnx.Dropout(0.3, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.last(self.dropout(nnx.relu(self.norm(self.first(x)))))


def test_nnx_with_batch_norm_and_dropout() -> None:
    own, module = Nnx(nnx.Rngs(0)), Nnx(nnx.Rngs(0))
    run = trained(own)
    optimizer = nnx.Optimizer(module, optax.adam(0.01), wrt=nnx.Param)
    module.train()

    @nnx.jit
    def step(module: Any, optimizer: Any, x: Any, y: Any) -> None:
        grads = nnx.grad(lambda module: ce(module(x), y))(module)
        optimizer.update(module, grads)

    for x, y in BATCHES:
        step(module, optimizer, x, y)
    assert_close(nnx.state(run.module), nnx.state(module))
    module.eval()
    ours = run.module
    ours.eval()
    np.testing.assert_allclose(ours(X), module(X), atol=1e-5)
    score = run.evaluate((X, Y))
    assert score["loss"] == pytest.approx(float(ce(module(X), Y)), abs=1e-5)
    assert bool((own.first.kernel[...] == Nnx(nnx.Rngs(0)).first.kernel[...]).all())  # the user's module is unchanged


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Dense(8)(x)))
        return nn.Dense(3)(nn.Dropout(0.3, deterministic=not train)(x))


@pytest.mark.parametrize("is_given", [True, False])
def test_linen_with_batch_norm_and_dropout(is_given: bool) -> None:
    module = Linen()
    variables = module.init(jax.random.key(3), X[:1])

    def loss(params: Any, state: Any, x: Any, y: Any, key: Any) -> Any:
        tree = {"params": params, "batch_stats": state}
        out, after = module.apply(tree, x, train=True, rngs={"dropout": key}, mutable=["batch_stats"])
        return ce(out, y), after["batch_stats"]

    run = trained(module, params=variables if is_given else None)
    params, state = hand_written(loss, variables["params"], variables["batch_stats"])
    assert_close(run.module, {"params": params, "batch_stats": state})
    assert module.apply(run.module, X).shape == (len(X), 3)


class Eqx(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self, key: Any):
        one, two = jax.random.split(key)
        self.first, self.last = eqx.nn.Linear(4, 8, key=one), eqx.nn.Linear(8, 3, key=two)
        self.norm, self.dropout = eqx.nn.BatchNorm(8, axis_name="rows", mode="ema"), eqx.nn.Dropout(0.3)

    def __call__(self, x: Any, state: Any, key: Any = None) -> Any:
        x, state = self.norm(self.first(x), state)
        return self.last(self.dropout(jax.nn.relu(x), key=key)), state


def test_equinox_with_batch_norm_and_dropout() -> None:
    module, state = eqx.nn.make_with_state(Eqx)(jax.random.key(0))
    params, static = eqx.partition(module, eqx.is_inexact_array)

    def loss(params: Any, state: Any, x: Any, y: Any, key: Any) -> Any:
        call = jax.vmap(eqx.combine(params, static), in_axes=(0, None, 0), out_axes=(0, None), axis_name="rows")
        out, state = call(x, state, jax.random.split(key, len(x)))
        return ce(out, y), state

    run = trained(module, model_state=state)
    params, state = hand_written(loss, params, state)
    own, own_state = run.module
    assert_close(eqx.filter(own, eqx.is_array), eqx.filter(eqx.combine(params, static), eqx.is_array))
    assert_close(own_state, state)
    with pytest.raises(UnknownOptionError, match="takes a state"):
        trained(module)


def test_equinox_without_state() -> None:
    module = eqx.nn.MLP(4, 3, 8, 2, key=jax.random.key(0))
    params, static = eqx.partition(module, eqx.is_inexact_array)
    run = trained(module)
    params, _ = hand_written(lambda p, s, x, y, key: (ce(jax.vmap(eqx.combine(p, static))(x), y), s), params)
    assert_close(run.params, params)
    assert jax.vmap(run.module)(X).shape == (len(X), 3)


def haiku_net(x: Any, is_training: bool) -> Any:
    x = hk.BatchNorm(True, True, 0.9)(hk.Linear(8)(x), is_training)
    x = hk.dropout(hk.next_rng_key(), 0.3, x) if is_training else x
    return hk.Linear(3)(jax.nn.relu(x))


def test_haiku_with_batch_norm_and_dropout() -> None:
    transform = hk.transform_with_state(haiku_net)
    params, state = transform.init(jax.random.key(3), X[:1], is_training=True)

    def loss(params: Any, state: Any, x: Any, y: Any, key: Any) -> Any:
        out, state = transform.apply(params, state, key, x, is_training=True)
        return ce(out, y), state

    run = trained(transform)
    params, state = hand_written(loss, params, state)
    assert_close(run.module, (params, dict(state)))
    assert transform.apply(*run.module, None, X, is_training=False)[0].shape == (len(X), 3)


def test_haiku_without_state() -> None:
    transform = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([8, 3])(x)))
    params = transform.init(jax.random.key(1), X[:1])
    run = trained(transform, params=params)
    params, _ = hand_written(lambda p, s, x, y, key: (ce(transform.apply(p, x), y), s), params)
    assert_close(run.module, params)


def test_function_of_a_list_of_params() -> None:
    layers = [(0.1 * RNG.normal(size=shape), np.zeros(shape[1])) for shape in ((4, 8), (8, 3))]

    def net(params: Any, x: Any, key: Any = None) -> Any:
        (first, bias), (last, _) = params
        x = jax.nn.relu(x @ first + bias)
        return (x if key is None else x * jax.random.bernoulli(key, 0.7, x.shape)) @ last

    layers = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), layers)
    run = trained(lambda params, x: net(params, x), params=layers)
    params, _ = hand_written(lambda p, s, x, y, key: (ce(net(p, x), y), s), layers)
    assert_close(run.params, params)
    with pytest.raises(UnknownOptionError, match="needs its params"):
        trained(net)


def test_inputs_by_name_and_several_results() -> None:
    def net(params: Any, left: Any, right: Any) -> Any:
        return params["a"] * left, params["b"] * right

    def loss(prediction: Any, targets: Any) -> Any:
        left, right = prediction
        return jnp.square(left + right - targets[:, None]).mean(1)

    x = X[:32, :1]
    data, params = ({"left": x, "right": 2 * x}, x[:, 0]), {"a": 0.0, "b": 0.0}
    run = fit(net, data, loss=loss, params=params, optimizer="sgd").wait()
    assert float(run.params["b"]) == pytest.approx(2 * float(run.params["a"]))
    with pytest.raises(Exception, match="one output"):
        fit(net, ({"left": x, "right": 2 * x}, x), loss="mean_squared_error", params={"a": 0.0, "b": 0.0})


def test_runs_of_modules_resume_exactly(tmp_path: Any) -> None:
    def run(folder: str, epochs: int, **options: Any) -> Any:
        options |= {"optimizer": optax.adam(0.01), "batch_size": 32, "checkpoint": tmp_path / folder}
        return fit(Nnx(nnx.Rngs(0)), (X, Y), epochs=epochs, **options).wait()

    whole, _ = run("whole", 4), run("parts", 2)
    assert_close(nnx.state(run("parts", 4, resume=True).module), nnx.state(whole.module))
