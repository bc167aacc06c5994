"""How arguments change their structure, in sentences."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

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
    assert [again.reason for again in seen.retraces] == [reason]
