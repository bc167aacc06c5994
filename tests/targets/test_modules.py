"""Modules of Flax, Equinox and Haiku as targets: module paths are blocks, arrays are params by path."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError
from mithril_nb.inspection import Inspection


def spec(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def blocks(inspection: Inspection, role: str | None = None) -> set[str]:
    """Return the blocks of the equations, without the root."""
    found = {one.block for one in inspection.equations if not one.is_call and role in (None, one.role)}
    return {block for block in found if block and "/" + block != "/" + inspection.name}


def owners(inspection: Inspection) -> dict[str, str]:
    return {one.name: one.block for one in inspection.inputs}


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.linear, self.norm = nnx.Linear(4, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.dropout(self.norm(self.linear(x)))


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.blocks = nnx.List([Block(rngs) for _ in range(2)])
        self.head = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def encode(self, x: Any) -> Any:
        return self.blocks[0](x)


NET_BLOCKS = {f"blocks/{k}/{part}" for k in (0, 1) for part in ("linear", "norm", "dropout")} | {"head"}


@pytest.fixture(scope="module")
def net() -> Net:
    return Net(nnx.Rngs(0))


def test_an_nnx_module_has_its_paths_and_keeps_its_state(net: Net) -> None:
    before = jax.tree.map(np.asarray, nnx.state(net, nnx.BatchStat))
    inspection = ml.inspect(net, spec(2, 4))
    assert blocks(inspection) == NET_BLOCKS
    assert owners(inspection)["params['blocks.1.linear.kernel']"] == "blocks/1/linear"
    assert owners(inspection)["state['blocks.1.norm.mean']"] == "blocks/1/norm"
    assert "result[1]['blocks.0.norm.mean']" in {one.name for one in inspection.outputs}
    assert jax.tree.all(jax.tree.map(np.array_equal, before, nnx.state(net, nnx.BatchStat)))
    assert type(net).__call__ is Net.__call__
    assert "mithril" not in Net.__call__.__module__


def test_abstract_modules_are_inspected() -> None:
    inspection = ml.inspect(nnx.eval_shape(lambda: Net(nnx.Rngs(0))), spec(2, 4))
    assert blocks(inspection) == NET_BLOCKS
    shapes = eqx.filter_eval_shape(eqx.nn.MLP, 4, 2, 8, 1, key=jax.random.key(0))
    assert blocks(ml.inspect(shapes, spec(4))) == {"layers/0", "layers/1"}


def test_the_train_step_of_an_nnx_module(net: Net) -> None:
    inspection = ml.inspect(net, spec(2, 4), loss="cross_entropy", optimizer=optax.adam(1e-3))
    assert inspection.name == "train step"
    trained = {f"blocks/{k}/{part}" for k in (0, 1) for part in ("linear", "norm")} | {"head"}
    assert blocks(inspection, "update") == trained | {"(optimizer)"}
    assert blocks(inspection, "forward") >= NET_BLOCKS | {"(loss)"}
    assert blocks(inspection, "backward") >= trained | {"(loss)"}
    assert owners(inspection)["opt_state.opt_state[0].mu['head.bias']"] == "head"
    both = ml.inspect(net, spec(2, 4), loss="cross_entropy")
    assert both.name == "forward+backward"
    assert blocks(both, "update") == set()


def test_program_of_a_module_computes_the_same_result() -> None:
    module = eqx.nn.MLP(4, 2, 8, 2, key=jax.random.key(0))
    x = jnp.arange(12.0).reshape(3, 4)
    inspection = ml.inspect(jax.vmap(module), x)
    arrays = {one.name.split("'")[1]: None for one in inspection.inputs if "'" in one.name}
    for place, layer in enumerate(module.layers):
        arrays |= {f"layers.{place}.weight": layer.weight, f"layers.{place}.bias": layer.bias}
    np.testing.assert_array_equal(inspection.compiled(arrays, x), jax.jit(jax.vmap(module))(x))


def test_function_around_several_modules_is_rejected() -> None:
    first, second = (eqx.nn.Linear(4, 4, key=jax.random.key(seed)) for seed in (0, 1))
    relu, x = eqx.nn.Lambda(jax.nn.relu), spec(8, 4)

    @functools.wraps(first)
    def both(v: Any) -> Any:
        return second(first(v))

    @functools.wraps(first)
    def with_relu(v: Any) -> Any:
        return relu(first(v))

    for target in (jax.vmap(both), jax.jit(jax.vmap(both))):
        with pytest.raises(UnknownOptionError, match=r"'both' can only be trained .*\n.*\n.* second \(Linear\)"):
            ml.inspect(target, x, loss="mean_squared_error", optimizer="adam")
    assert ml.inspect(jax.vmap(both), x).cost().total.params == 2 * (4 * 4 + 4)
    assert ml.inspect(jax.vmap(with_relu), x, optimizer="adam").cost().total.params == 4 * 4 + 4

    class Both(eqx.Module):
        first: eqx.nn.Linear
        second: eqx.nn.Linear

        def __call__(self, v: Any) -> Any:
            return self.second(self.first(v))

    held = jax.vmap(Both(first, second))
    assert ml.inspect(held, x, optimizer="adam").cost().total.params == 2 * (4 * 4 + 4)


@pytest.mark.parametrize(
    "mapped", [jax.vmap, eqx.filter_vmap, lambda module: jax.jit(jax.vmap(module))], ids=["vmap", "filter", "jit"]
)
def test_wrapped_equinox_module_is_trained_as_the_module(mapped: Any) -> None:
    module = eqx.nn.MLP(4, 3, 8, 1, key=jax.random.key(0))
    x, y = jax.random.normal(jax.random.key(1), (5, 4)), jax.random.normal(jax.random.key(2), (5, 3))

    class Batch(eqx.Module):
        module: eqx.nn.MLP

        def __call__(self, x: Any) -> Any:
            return jax.vmap(self.module)(x)

    options: dict[str, Any] = {"loss": "mean_squared_error", "optimizer": "adam"}
    found, same = ml.inspect(mapped(module), x, **options).cost(), ml.inspect(Batch(module), x, **options).cost()
    assert found.total == same.total
    assert found.by_block["layers/0"] == same.by_block["module/layers/0"]
    assert found.total.params == 4 * 8 + 8 + 8 * 3 + 3

    program = ml.inspect(mapped(module), x, loss="mean_squared_error")
    assert program.name == "forward+backward"
    arrays = {
        f"layers.{place}.{name}": getattr(layer, name)
        for place, layer in enumerate(module.layers)
        for name in ("weight", "bias")
    }
    value, grads = program.compiled(arrays, {"inputs": {"x": x}, "targets": y})
    wanted, by_hand = eqx.filter_value_and_grad(lambda module: ((jax.vmap(module)(x) - y) ** 2).mean())(module)
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    np.testing.assert_allclose(grads["layers.0.weight"], by_hand.layers[0].weight, rtol=1e-4, atol=1e-6)
    assert np.abs(grads["layers.1.bias"]).min() > 0


def test_hand_written_nnx_train_step(net: Net) -> None:
    @nnx.jit
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        def loss(model: Any) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value

    optimizer = nnx.Optimizer(net, optax.adam(1e-3), wrt=nnx.Param)
    args = net, optimizer, spec(2, 4), spec(2, dtype="int32")
    inspection = ml.inspect(step, *args)
    assert blocks(inspection) >= NET_BLOCKS
    assert owners(inspection)["modules['model']['head.bias']"] == "head"
    assert owners(inspection)["modules['optimizer.opt_state.0.mu']['blocks.0.linear.kernel']"] == "blocks/0/linear"
    named, alone = ml.inspect(step, *args, params="model"), ml.inspect(net, spec(2, 4))
    assert [one.cost().total.params for one in (inspection, named, alone)] == [71] * 3
    no_param = ml.inspect(lambda rngs, w: w + jax.random.normal(rngs.params(), w.shape), nnx.Rngs(0), spec(3))
    assert no_param.cost().total.params is None
    results = {one.name for one in inspection.outputs}
    assert "result[1]['model']['head.bias']" in results
    assert "result[0]" in results


def test_hand_written_equinox_train_step() -> None:
    module, optimizer = eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(0)), optax.adam(1e-3)

    @eqx.filter_jit
    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(model: Any) -> Any:
            return jnp.mean((jax.vmap(model)(x) - y) ** 2)

        value, grads = eqx.filter_value_and_grad(loss)(model)
        updates, state = optimizer.update(grads, state)
        return eqx.apply_updates(model, updates), state, value

    state = optimizer.init(eqx.filter(module, eqx.is_array))
    inspection = ml.inspect(step, module, state, spec(3, 4), spec(3, 2))
    assert inspection.stage("jaxpr").unavailable is None
    assert blocks(inspection) == {"layers/0", "layers/1", "MLP", "loss", "(optimizer)"}
    assert blocks(inspection, "update") == {"layers/0", "layers/1", "(optimizer)"}
    assert owners(inspection)["model.layers[0].weight"] == "layers/0"
    assert owners(inspection)["state[0].mu.layers[1].bias"] == "layers/1"
    assert inspection.cost().total.params is None  # for Equinox, the optimizer's state consists of modules, too
    named = ml.inspect(step, module, state, spec(3, 4), spec(3, 2), params="model")
    assert named.cost().total.params == 4 * 8 + 8 + 8 * 2 + 2


def test_arrays_of_closed_over_modules_are_inputs(net: Net) -> None:
    module = eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(0))

    def loss(x: Any) -> Any:
        return jax.vmap(module)(x).sum()

    for target in (loss, jax.vmap(module), eqx.filter_vmap(module), eqx.filter_jit(loss)):
        inspection = ml.inspect(target, spec(3, 4))
        assert blocks(inspection) - {"MLP"} == {"layers/0", "layers/1"}, target
        assert "layers/1" in owners(inspection).values()
        assert inspection.cost().total.params == 4 * 8 + 8 + 8 * 2 + 2
    assert blocks(ml.inspect(lambda x: net(x), spec(2, 4))) == NET_BLOCKS
    assert blocks(ml.inspect(net.encode, spec(2, 4))) >= {f"blocks/0/{one}" for one in ("linear", "norm", "dropout")}


def test_blocks_of_two_modules_start_with_their_names() -> None:
    first, second = (eqx.nn.MLP(4, 4, 8, 1, key=jax.random.key(seed)) for seed in (0, 1))

    def both(encoder: Any, decoder: Any, x: Any) -> Any:
        return decoder(encoder(x))

    inspection = ml.inspect(both, first, second, spec(4))
    want = {"encoder/layers/0", "encoder/layers/1", "decoder/layers/0", "decoder/layers/1"}
    assert blocks(inspection) >= want
    assert owners(inspection)["decoder.layers[1].weight"] == "decoder/layers/1"

    def in_a_dict(models: Any, x: Any) -> Any:
        return models["decoder"](models["encoder"](x))

    inspection = ml.inspect(in_a_dict, {"encoder": first, "decoder": second}, spec(4))
    assert blocks(inspection) >= {f"models/{path}" for path in want}
    assert owners(inspection)["models['encoder'].layers[0].bias"] == "models/encoder/layers/0"


def test_modules_rebuilt_by_a_transform_are_found_by_class() -> None:
    class Pair(eqx.Module):
        first: eqx.nn.Linear
        second: eqx.nn.Linear
        norm: eqx.nn.LayerNorm

        def __call__(self, x: Any) -> Any:
            x = eqx.filter_vmap(eqx.filter_checkpoint(self.first))(x)
            return eqx.filter_vmap(eqx.filter_checkpoint(self.norm))(x)

    layers = [eqx.nn.Linear(4, 4, key=jax.random.key(seed)) for seed in (0, 1)]
    inspection = ml.inspect(Pair(*layers, eqx.nn.LayerNorm(4)), spec(3, 4))
    assert blocks(inspection) == {"Linear", "norm"}


def test_function_that_ran_before_is_traced_again_with_scopes(net: Net) -> None:
    module = eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(0))
    run = jax.jit(lambda x: jax.vmap(module)(x))
    plain = run(jnp.ones((3, 4)))
    assert blocks(ml.inspect(lambda x: run(x) + 1, spec(3, 4))) >= {"layers/0", "layers/1"}
    np.testing.assert_array_equal(run(jnp.ones((3, 4))), plain)


class Inner(linen.Module):
    @linen.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        x = linen.Dense(4)(linen.relu(linen.Dense(8, name="up")(x)))
        return linen.Dropout(0.5, deterministic=not train)(x)


class Outer(linen.Module):
    def setup(self) -> None:
        self.parts = [Inner() for _ in range(2)]
        self.norm = linen.BatchNorm(use_running_average=False)

    def __call__(self, x: Any, train: bool = False) -> Any:
        for part in self.parts:
            x = part(x, train)
        return self.norm(x)


def test_a_linen_module_with_and_without_variables() -> None:
    module, x = Outer(), jnp.ones((2, 4))
    want = {f"parts_{k}/{part}" for k in (0, 1) for part in ("up", "Dense_0")} | {"norm"}
    inspection = ml.inspect(module, spec(2, 4))
    assert blocks(inspection) - {"parts_0", "parts_1"} == want
    assert owners(inspection)["params['parts_0.up.kernel']"] == "parts_0/up"
    assert owners(inspection)["state['batch_stats']['norm.mean']"] == "norm"
    variables = module.init(jax.random.key(0), x)
    given = ml.inspect(module, x, variables=variables)
    assert given.stage("jaxpr").text == inspection.stage("jaxpr").text
    keys = {"rngs": {"dropout": jax.random.key(0)}}
    training = ml.inspect(module, spec(2, 4), kwargs=keys, train=True)
    assert {"parts_0/Dropout_0", "parts_1/Dropout_0"} <= blocks(training)
    applied = ml.inspect(module.apply, variables, x)
    assert applied.stage("jaxpr").text == given.stage("jaxpr").text
    assert applied.cost().total.params == given.cost().total.params > 0
    step = ml.inspect(module, spec(2, 4), loss="mean_squared_error", optimizer="adam")
    assert blocks(step, "update") == want | {"(optimizer)"}


def test_a_step_that_applies_a_linen_module() -> None:
    module = Inner()
    variables = jax.eval_shape(module.init, jax.random.key(0), spec(2, 4))

    def loss(variables: Any, x: Any) -> Any:
        return module.apply(variables, x).sum()  # pyright: ignore[reportAttributeAccessIssue]

    inspection = ml.inspect(jax.grad(loss), variables, spec(2, 4))
    assert blocks(inspection) >= {"up", "Dense_0"}


def test_haiku_transforms() -> None:
    def network(x: Any) -> Any:
        return hk.Linear(2, name="head")(hk.nets.MLP([5, 4])(x))

    def with_state(x: Any) -> Any:
        return hk.BatchNorm(True, True, 0.9)(x, is_training=True)

    want = {"mlp/linear_0", "mlp/linear_1", "head"}
    for transform in (hk.transform(network), hk.without_apply_rng(hk.transform(network))):
        inspection = ml.inspect(transform, spec(3, 4))
        assert blocks(inspection) - {"mlp"} == want
        assert owners(inspection)["params['mlp.linear_0.w']"] == "mlp/linear_0"
    variables = hk.transform(network).init(jax.random.key(0), jnp.ones((3, 4)))
    assert blocks(ml.inspect(hk.transform(network), spec(3, 4), variables=variables)) - {"mlp"} == want
    assert "batch_norm" in blocks(ml.inspect(hk.transform_with_state(with_state), spec(3, 4)))
    step = ml.inspect(
        hk.without_apply_rng(hk.transform(network)), spec(3, 4), loss="mean_squared_error", optimizer="adam"
    )
    assert blocks(step, "update") == want | {"(optimizer)"}


def test_classes_are_restored_after_a_failed_trace() -> None:
    module = eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(0))
    calls = {cls: cls.__dict__["__call__"] for cls in (eqx.nn.MLP, eqx.nn.Linear, nnx.Linear)}
    assert "dot_general" in str(ml.inspect(module, spec(9)).stage("jaxpr").unavailable)
    assert {cls: cls.__dict__["__call__"] for cls in calls} == calls


def test_equinox_modules_that_take_a_key() -> None:
    inspection = ml.inspect(eqx.nn.Dropout(0.5), spec(9), key=jax.random.key(0))
    assert {one.block for one in inspection.equations if not one.is_call} == {"Dropout"}
    assert [one.name for one in inspection.inputs] == ["x", "key"]


class Recurrent(linen.Module):
    """Two recurrent layers, whose cells linen copies without their path, and a head."""

    @linen.compact
    def __call__(self, x: Any) -> Any:
        for number in range(2):
            x = linen.RNN(linen.OptimizedLSTMCell(4), name=f"lstm_{number}")(x)
        return linen.Dense(2, name="head")(x)


def test_cells_of_linen_are_in_their_layer() -> None:
    inspection = ml.inspect(Recurrent(), spec(2, 3, 5))
    cells = {f"lstm_{number}/OptimizedLSTMCell_{number}" for number in range(2)}
    found = {block for block in blocks(inspection) if not any(block.startswith(f"{cell}/") for cell in cells)}
    assert found == {"lstm_0", "lstm_1", "head", *cells}
    assert owners(inspection)["params['head.kernel']"] == "head"


def test_linen_module_without_a_key_names_rngs():
    module = linen.Dropout(0.5, deterministic=False)
    text = str(ml.inspect(module, jnp.ones((8, 4))).stage("jaxpr"))
    assert 'ml.inspect(module, x, rngs={"dropout": jax.random.key(0)})' in text
