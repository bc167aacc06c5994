"""Descriptions of changes in the structure of arguments."""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import pytest
from analysis.retraces.reasons import reasons
from flax import nnx

import mithril_nb as ml


class Pair(NamedTuple):
    a: Any
    b: Any


X = jnp.ones((32, 10))
STRUCTURES: dict[str, tuple[Any, Any, str]] = {
    "array to None": ({"a": X, "b": X}, {"a": X, "b": None}, "argument 1 `tree['b']` changed from f32[32,10] to None"),
    "None to array": ({"a": X, "b": None}, {"a": X, "b": X}, "argument 1 `tree['b']` changed from None to f32[32,10]"),
    "dict to tuple": ({"a": X, "b": X}, (X, X), "argument 1 `tree` changed from dict to tuple"),
    "tuple to named tuple": ((X, X), Pair(X, X), "argument 1 `tree` changed from tuple to Pair"),
    "a container inside": (
        {"w": [X, X], "b": X}, {"w": (X,), "b": X}, "argument 1 `tree['w']` changed from list to tuple"
    ),
    "array to container": (
        {"w": X, "b": X}, {"w": {"v": X}, "b": X}, "argument 1 `tree['w']` changed from f32[32,10] to dict"
    ),
    "the only array to None": ({"b": X}, {"b": None}, "argument 1 `tree['b']` changed from f32[32,10] to None"),
    "empty container to array": (
        {"w": {}, "b": X}, {"w": X, "b": X}, "argument 1 `tree` changed its structure: new `['w']`"
    ),
    "several": (
        {"a": X, "b": X, "c": [X]}, {"a": X, "b": None, "c": (X,), "d": X},
        "argument 1 `tree` changed its structure: `['b']` from f32[32,10] to None, `['c']` from list to tuple, "
        "new `['d']`",
    ),
    "deep in a large tree": (
        {"a": [X] * 50, "b": {"c": [X]}}, {"a": [X] * 50, "b": {"c": (X,)}},
        "argument 1 `tree['b']['c']` changed from list to tuple",
    ),
    "many": (
        [X] * 5, [None] * 5,
        "argument 1 `tree` changed its structure: `[0]` from f32[32,10] to None, `[1]` from f32[32,10] to None, "
        "`[2]` from f32[32,10] to None, and 2 more",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STRUCTURES)
def test_change_of_structure(name: str) -> None:
    earlier, later, reason = STRUCTURES[name]
    seen = ml.watch(jax.jit(lambda tree: jax.tree.map(jnp.sin, tree)))
    seen(earlier)
    seen(later)
    assert reasons(seen) == [reason]


def test_a_call_with_the_same_structure_is_more_similar() -> None:
    seen = ml.watch(jax.jit(lambda tree: jax.tree.map(jnp.sin, tree)))
    for value in (jnp.ones(3), None, jnp.ones(3, "bfloat16"), 1):
        seen({"a": value})
    assert reasons(seen)[1:] == [
        "argument 1 `tree['a']` changed from f32[3] to bf16[3]",
        "argument 1 `tree['a']` changed from bf16[3] to weak i32[]",
    ]


class Table:
    """A static value whose comparison returns an array, as with a data frame."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> Any:
        return jnp.ones(2) == 1

    def __repr__(self) -> str:
        return "Table"


def test_static_values_that_cannot_be_compared() -> None:
    seen = ml.watch(jax.jit(lambda x, table: x, static_argnums=1))
    seen(jnp.ones(3), Table())
    seen(jnp.ones(4), Table())
    assert reasons(seen) == ["argument 1 `x` changed from f32[3] to f32[4]"]


def test_bound_arguments_of_a_partial() -> None:
    seen = ml.watch(jax.jit(lambda fn, x: fn(x), static_argnums=0))
    for low in (0.0, 1.0):
        seen(functools.partial(jnp.clip, min=low), jnp.ones(3))
    (retrace,) = seen.retraces
    assert "with min=0.0 to functools.partial of `clip`" in retrace.reason
    assert retrace.reason.endswith("with min=1.0")


def _registered() -> Any:
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class State:
        x: Any

    return State


@pytest.mark.parametrize("define", [_registered, lambda: collections.namedtuple("State", "x")])
def test_redefined_class(define: Any) -> None:
    for _ in range(9):
        seen = ml.watch(jax.jit(lambda tree: jax.tree.map(jnp.sin, tree)))
        earlier, later = define(), define()
        for tree in (earlier(X), later(X), [earlier(X)], [later(X)]):
            seen(tree)
        # JAX considers the structures of a redefined dataclass equal, but hashes them differently. So it reuses the
        # earlier trace in 3 % of the cases.
        if seen.report().traces == 4:
            break
    found = reasons(seen)
    assert found[0] == "argument 1 `tree` is of a class State that was defined again"
    assert found[2] == "argument 1 `tree[0]` is of a class State that was defined again"


def test_most_similar_call_has_the_same_containers() -> None:
    seen = ml.watch(jax.jit(lambda tree: jax.tree.map(jnp.sin, tree)))
    for count, container in ((2, list), (2, tuple), (3, list)):
        seen({f"l{number}": container([X]) for number in range(count)})
    assert seen.retraces[-1].reason == "argument 1 `tree` changed its structure: new `['l2'][0]`"


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.linear, self.act, self.scale = nnx.Linear(4, 4, rngs=rngs), jax.nn.relu, 1

    def __call__(self, x: Any) -> Any:
        return self.act(self.linear(x)) * self.scale


def test_a_changed_attribute_of_an_nnx_module_is_named() -> None:
    def step(optimizer: Any, net: Any, x: Any) -> None:
        optimizer.update(net, nnx.grad(lambda net: net(x).sum())(net))

    net, x = Net(nnx.Rngs(0)), jnp.ones((2, 4))
    with ml.watch() as seen:
        call, train = nnx.jit(lambda net, x: net(x)), nnx.jit(step)
        call(net, x)
        net.scale = 3
        call(net, x)
        net.linear.precision, net.act = "highest", jnp.tanh
        call(net, x)
        for optimizer in (optax.adam(1e-3), optax.sgd(0.1)):
            train(nnx.Optimizer(net, optimizer, wrt=nnx.Param), net, x)
        merged = jax.jit(lambda graph, state, x: nnx.merge(graph, state)(x), static_argnums=0)
        for scale in (5, 7):
            net.scale = scale
            merged(*nnx.split(net), x)
    found = " ".join(reasons(seen))
    assert "`net.scale` changed from 1 to 3" in found
    assert "`net.act` changed from `relu`" in found
    assert "`net.linear.precision` changed from None to 'highest'" in found
    assert "`optimizer.tx`" in found
    assert "static argument `graph.scale` changed from 5 to 7" in found
    assert "GraphDef" not in found
