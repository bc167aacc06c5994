"""Numbers in calls of modules, of functions of modules, and of functions jitted by other libraries."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import mithril_nb as ml
from mithril_nb.errors import StageUnavailableError, UnknownOptionError

X = jax.ShapeDtypeStruct((4, 5), "float32")
ROW = jax.ShapeDtypeStruct((5,), "float32")


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x: Any, train: bool = False, scale: float = 1.0) -> Any:
        return nn.Dropout(0.5, deterministic=not train)(nn.Dense(3)(x)) * scale


class Nnx(nnx.Module):
    def __init__(self) -> None:
        self.linear = nnx.Linear(5, 5, rngs=nnx.Rngs(0))

    def __call__(self, x: Any, count: int = 1) -> Any:
        for _ in range(count):
            x = jnp.sin(self.linear(x))
        return x


class Equinox(eqx.Module):
    linear: eqx.nn.Linear
    count: int
    scale: float

    def __call__(self, x: Any, more: int = 0) -> Any:
        for _ in range(self.count + more):
            x = jnp.sin(x)
        return self.linear(x) * self.scale


EQUINOX = Equinox(eqx.nn.Linear(5, 3, key=jax.random.key(0)), 1, 2.0)


def step(model: Any, x: Any, rate: float, count: int) -> Any:
    return model(x, count).sum() * rate


def named(*args: Any, **how: Any) -> tuple[list[str], int]:
    """Return the inputs that are not parameters, and the number of sines."""
    found = ml.inspect(*args, **how)
    sines = sum(one.primitive == "sin" for one in found.equations)
    return [one.name for one in found.inputs if one.argument in ("x", "rate", "count", "more", "n")], sines


def test_numbers_that_a_module_receives_are_static() -> None:
    keys = {"rngs": {"dropout": jax.random.key(0)}}
    training = ml.inspect(Linen(), X, train=True, scale=2.0, kwargs=keys)
    assert "random_bits" in {one.primitive for one in training.equations}
    assert "scale" not in [one.name for one in training.inputs]
    assert named(Nnx(), X, count=2) == (["x"], 2)
    assert named(EQUINOX, ROW, 2) == (["x"], 3)
    assert named(functools.partial(EQUINOX, more=2), ROW) == (["x"], 3)
    transform = hk.transform(lambda x, n: hk.Linear(3)(jnp.sin(x)) if n else x)
    assert named(transform, X, n=1) == (["x"], 1)


def test_numbers_in_modules_are_static_and_others_traced() -> None:
    assert named(step, Nnx(), X, 0.1, 2, static_argnames="count") == (["x", "rate"], 2)
    assert named(step, EQUINOX, ROW, 0.1, 2, static_argnums=3) == (["x", "rate"], 3)
    assert named(functools.partial(step, Nnx(), count=2), X, 0.1) == (["x", "rate"], 2)
    model = Nnx()
    with pytest.raises(StageUnavailableError) as caught:
        ml.inspect(lambda x, n: model(x, n), X, 2).cost()
    assert str(caught.value).endswith('Try: static_argnames="n"')
    with pytest.raises(StageUnavailableError) as caught:
        ml.inspect(step, model, X, 0.1, 2).cost()
    assert str(caught.value).endswith('Try: static_argnames="count"')


def test_jits_of_other_libraries_keep_static_arguments() -> None:
    for static in ({"static_argnames": "count"}, {"static_argnums": 3}):
        assert named(nnx.jit(step, **static), Nnx(), X, 0.1, 2) == (["x", "rate"], 2)
    assert named(nnx.jit(lambda x, n: jnp.sin(x) * n), X, 2) == (["x", "n"], 1)
    assert named(eqx.filter_jit(step), EQUINOX, ROW, 0.1, 2) == (["x"], 3)


def test_container_of_arrays_and_numbers_is_no_static_argument() -> None:
    def repeated(params: Any, x: Any) -> Any:
        return sum(x @ params["w"] for _ in range(params["count"]))

    with pytest.raises(StageUnavailableError, match="'repeated' needs the value of a number"):
        ml.inspect(repeated, {"w": jnp.ones((5, 5)), "count": 2}, X).cost()


@pytest.mark.parametrize(
    ("target", "args", "static", "message"),
    [
        (Nnx(), (X, 2), {"static_argnames": "count"}, "'Nnx' takes no static_argnames="),
        (ml.models.Linear(3), (X,), {"static_argnums": 0}, "'Linear' takes no static_argnums="),
        (jax.jit(lambda x, n: x[:n]), (ROW, 2), {"static_argnames": "n"}, "'<lambda>' is jitted"),
        (lambda x, n: x[:n], (ROW, 2), {"static_argnames": "m"}, "Function does not take these args"),
        (lambda x, sizes: x.reshape(sizes), (ROW, [5, 1]), {"static_argnames": "sizes"}, "unhashable type: 'list'"),
    ],
)
def test_unknown_static_arguments_are_rejected(target: Any, args: tuple, static: dict, message: str) -> None:
    with pytest.raises(UnknownOptionError, match=message):
        ml.inspect(target, *args, **static)


def test_functions_that_forward_options_accept_static_arguments() -> None:
    def power(x: Any, n: int, scale: float) -> Any:
        return jnp.sin(x) ** n * scale if n > 1 else x

    given = {"n": 2, "scale": 3.0, "static_argnames": "n"}
    assert ml.explore(power, ROW, **given)
    ml.assert_cost(power, ROW, **given, flops=1_000)
    assert (
        ml.what_if(power, ROW, **given)(batch=10).after.total.flops
        == 2 * ml.inspect(power, ROW, **given).cost().total.flops
    )
