"""Scopes of users around and inside modules, methods other than `__call__`, and modules that a function rebuilds."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import pytest
from flax import linen, nnx
from jax.flatten_util import ravel_pytree
from jax_programs import spec

import mithril_nb as ml

X = spec(2, 4)
KEY = jax.random.key(0)


def encoded(net: Any, x: Any) -> Any:
    """Compute with the parts of a module in a scope: cosine is the module's own work, in a scope inside it."""
    with jax.named_scope("inside"):
        x = jnp.cos(x)
    return jnp.sin(net.linear(x))


class OfNnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.linear = nnx.Linear(4, 4, rngs=rngs)

    def encode(self, x: Any) -> Any:
        return encoded(self, x)


class OfEquinox(eqx.Module):
    linear: eqx.nn.Linear

    def encode(self, x: Any) -> Any:
        return jax.vmap(lambda x: encoded(self, x))(x)


class Outer(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.net = OfNnx(rngs)

    def __call__(self, x: Any) -> Any:
        with jax.named_scope("around"):
            return jnp.tanh(self.net.encode(x))


class OfLinen(linen.Module):
    def setup(self) -> None:
        self.linear = linen.Dense(4)

    def __call__(self, x: Any) -> Any:
        return self.encode(x)

    def encode(self, x: Any) -> Any:
        return encoded(self, x)


class OfHaiku(hk.Module):
    def __call__(self, x: Any) -> Any:
        self.linear = hk.Linear(4)
        return encoded(self, x)


def in_a_scope(model: Any, x: Any) -> Any:
    with jax.named_scope("around"):
        return jnp.tanh(model.encode(x))


def blocks(inspection: Any) -> dict[str, str]:
    return {one.primitive: one.block for one in inspection.equations if not one.is_call}


def linen_programs() -> tuple[Any, ...]:
    module = OfLinen()
    variables = jax.eval_shape(lambda: module.init(KEY, jnp.ones((2, 4))))

    def around(variables: Any, x: Any) -> Any:
        with jax.named_scope("around"):
            return jnp.tanh(module.apply(variables, x))

    return around, (variables, X)


def haiku_programs() -> tuple[Any, ...]:
    def around(x: Any) -> Any:
        with jax.named_scope("around"):
            return jnp.tanh(OfHaiku(name="net")(x))

    return hk.without_apply_rng(hk.transform(around)), (X,)


CASES: dict[str, tuple[Any, dict[str, str]]] = {
    "nnx": (
        lambda: (in_a_scope, (OfNnx(nnx.Rngs(0)), X)),
        {"tanh": "around", "cos": "around/inside", "dot_general": "around/linear", "sin": "around"},
    ),
    "nnx, inside a module": (
        lambda: (lambda model, x: model(x), (Outer(nnx.Rngs(0)), X)),
        {"tanh": "around", "cos": "around/net/inside", "dot_general": "around/net/linear", "sin": "around/net"},
    ),
    "Equinox": (
        lambda: (in_a_scope, (OfEquinox(eqx.nn.Linear(4, 4, key=KEY)), X)),
        {"tanh": "around", "cos": "around/inside", "dot_general": "around/linear", "sin": "around"},
    ),
    "linen": (
        linen_programs,
        {"tanh": "around", "cos": "around/inside", "dot_general": "around/linear", "sin": "around"},
    ),
    "Haiku": (
        haiku_programs,
        {"tanh": "around", "cos": "around/net/inside", "dot_general": "around/net/linear", "sin": "around/net"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_scopes_around_and_inside_modules_are_blocks(name: str) -> None:
    make, expected = CASES[name]
    fn, args = make()
    inspection = ml.inspect(fn, *args)
    found = blocks(inspection)
    assert {key: found[key] for key in expected} == expected
    owners = {
        one.block for one in inspection.inputs if "weight" in one.name or "kernel" in one.name or ".w" in one.name
    }
    assert owners == {expected["dot_general"]}


def test_own_work_of_a_method_belongs_to_the_module() -> None:
    for model in (OfNnx(nnx.Rngs(0)), OfEquinox(eqx.nn.Linear(4, 4, key=KEY))):
        found = blocks(ml.inspect(lambda model, x: model.encode(x) / 2, model, X))
        assert found["sin"] == type(model).__name__
        assert found["div"] != found["sin"]
    net = OfEquinox(eqx.nn.Linear(4, 4, key=KEY))
    jitted = blocks(ml.inspect(lambda net, x: eqx.filter_jit(net.encode)(x), net, X))
    assert jitted["sin"] == "OfEquinox", "a bound method of Equinox stays a pytree"


class Stack(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.layers = nnx.List([nnx.Linear(4, 4, rngs=rngs) for _ in range(3)])

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


GRAPH, STATE = nnx.split(Stack(nnx.Rngs(0)))
ARRAYS, STATIC = eqx.partition(eqx.nn.MLP(4, 4, 4, 2, key=KEY), eqx.is_array)
FLAT, UNRAVEL = ravel_pytree(ARRAYS)


def merged(state: Any, x: Any) -> Any:
    return nnx.merge(GRAPH, state)(x)


def unraveled(flat: Any, x: Any) -> Any:
    return jax.vmap(eqx.combine(UNRAVEL(flat), STATIC))(x)


class Trainer:
    def __init__(self, apply: Any):
        self.apply = apply

    def loss(self, params: Any, x: Any) -> Any:
        return jax.jit(self.apply)(params, x).sum()


MERGING: dict[str, Any] = {
    "in the function": lambda apply: apply,
    "in a function that it calls": lambda apply: lambda params, x: apply(params, x) + 1,
    "in a jitted function": lambda apply: lambda params, x: jax.jit(apply)(params, x),
    "in an attribute": lambda apply: Trainer(apply).loss,
    "in a gradient": lambda apply: jax.grad(Trainer(apply).loss),
    "in a jitted gradient": lambda apply: jax.jit(jax.value_and_grad(Trainer(apply).loss), donate_argnums=0),
}


@pytest.mark.parametrize("name", MERGING)
def test_a_module_that_a_function_builds_keeps_its_modules(name: str) -> None:
    for apply, params in ((merged, STATE), (unraveled, FLAT)):
        inspection = ml.inspect(MERGING[name](apply), params, X)
        products = {one.block for one in inspection.equations if one.primitive == "dot_general"}
        assert {block[-len("layers/0") :] for block in products} == {f"layers/{at}" for at in range(3)}
        assert any(inspection.traced_program.trace.donated_leaves) == (name == "in a jitted gradient")


class Solver(eqx.Module):
    """A setting without arrays, like a solver of Diffrax."""

    steps: int = 2

    def solve(self, field: Any, x: Any) -> Any:
        for _ in range(self.steps):
            x = x + field(x)
        return x


def field_of(x: Any) -> Any:
    return jnp.sin(x)


def test_a_setting_without_arrays_hides_no_function() -> None:
    inspection = ml.inspect(lambda x: Solver().solve(field_of, x), X)
    assert blocks(inspection)["sin"].endswith("field_of")


def test_weight_norm_is_one_block_with_its_layer() -> None:
    class Net(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            return linen.WeightNorm(linen.Dense(3))(x)

    inspection = ml.inspect(Net(), X)
    equations = {one.block for one in inspection.equations}
    assert {one.block for one in inspection.inputs if one.is_param} <= equations
