"""`ml.find_nan` names the equation or argument that a NaN was planted in."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import mithril_nb as ml
from mithril_nb.errors import StageUnavailableError, UnexpectedInputError

X = jnp.linspace(-1.0, 1.0, 6).reshape(3, 2)
W = jnp.eye(2)
Case = tuple[Callable[..., Any], tuple[Any, ...], str, str, str | None]


def scoped(fn: Callable[..., Any], *args: Any) -> Any:
    """Run the planted operation in a named block."""
    with jax.named_scope("bad"):
        return fn(*args)


def trained(loss: Callable[..., Any], optimizer: Any, w: Any, *batch: Any) -> Any:
    value, grads = jax.value_and_grad(loss)(w, *batch)
    updates, state = optimizer.update(grads, optimizer.init(w), w)
    return optax.apply_updates(w, updates), state, value


def backward(fn: Callable[[Any], Any], at: float) -> Case:
    def step(x: Any) -> Any:
        return jax.grad(lambda x: jnp.sum(scoped(fn, x) * 2.0))(x)

    return step, (jnp.full(3, at),), "mul", "bad", "backward"


def scan(is_reversed: bool) -> Case:
    def body(carry: Any, x: Any) -> Any:
        return carry + 1, scoped(jnp.log, x)

    xs = jnp.array([1.0, 2.0, -1.0, 3.0])
    return lambda xs: jax.lax.scan(body, 0.0, xs, reverse=is_reversed), (xs,), "log", "bad", "forward"


def loop(x: Any) -> Any:
    return jax.lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, scoped(jnp.sqrt, s[1] - 1.0)), (0, x))


def branch(index: Any, x: Any) -> Any:
    return jax.lax.switch(index, [jnp.sin, lambda x: scoped(jnp.log, x), jnp.cos], x)


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return jnp.sum(x)


clipped.defvjp(lambda x: (jnp.sum(x), x), lambda x, g: (scoped(lambda: g * jnp.log(x)),))


class Net(eqx.Module):
    layer: eqx.nn.Linear

    def __call__(self, x: Any) -> Any:
        return jnp.sum(jax.vmap(self.layer)(x)) + jnp.sum(scoped(jnp.log, x))


NET = Net(eqx.nn.Linear(2, 2, key=jax.random.key(0)))


class Flax(nnx.Module):
    def __init__(self):
        self.layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))

    def __call__(self, x: Any) -> Any:
        return scoped(jnp.log, self.layer(x) * 0 - 1)


@nnx.jit
def nnx_step(model: Flax, x: Any) -> Any:
    return nnx.value_and_grad(lambda model: jnp.sum(model(x)))(model)


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return scoped(jnp.log, nn.Dense(2)(x) * 0 - 1)


LINEN = Linen().init(jax.random.key(0), X)
HALF = jnp.full(3, 300.0, jnp.float16)
BAD_X = X.at[1, 0].set(jnp.nan)


def attention(mask: Any, x: Any) -> Any:
    scores = jnp.where(mask, x @ x.T, -jnp.inf)  # the masks of the other rows are no cause
    return scoped(jax.nn.softmax, scores) @ x


def masked(x: Any) -> Any:
    jnp.log(x)
    safe = jnp.where(x > 0, jnp.log(x), 0.0)  # a NaN that reaches no result
    return (
        jnp.sum(safe)
        + jnp.maximum(jnp.max(x, initial=-jnp.inf, where=x > 5), 0)
        + scoped(lambda: jnp.sum(x) / jnp.sum(x) * 0)
    )


def nested(x: Any) -> Any:
    def scanned(_: Any, x: Any) -> Any:
        return jax.lax.scan(lambda carry, y: (scoped(jnp.sqrt, carry - y), carry), x, jnp.ones(2))[0]

    return jax.lax.cond(x > 0, lambda x: jax.lax.fori_loop(0, jnp.int32(x), scanned, x), jnp.sin, x)


MASK = jnp.array([[True, False, True], [False, False, False], [True, True, True]])

CASES: dict[str, Case] = {
    "log of negative": (lambda x: scoped(jnp.log, x), (X,), "log", "bad", "forward"),
    "0/0": (lambda x: scoped(jnp.divide, x, x) + 1, (jnp.zeros(3),), "div", "bad", "forward"),
    "sqrt' at 0": backward(lambda x: jnp.sqrt(x * 0.0), 1.0),
    "norm' at 0": backward(lambda x: jnp.sqrt(jnp.sum(x**2)), 0.0),
    "exp overflow": (lambda x: scoped(lambda x: jnp.exp(x) - jnp.exp(x), x), (jnp.full(2, 99.0),), "sub", "bad", None),
    "normalisation": (lambda x: scoped(lambda x: (x - x.mean()) / x.std(), x), (jnp.ones(4),), "div", "bad", "forward"),
    "softmax of a masked row": (attention, (MASK, X), "sub", "bad", "forward"),
    "data": (lambda w, x: jnp.sum(jnp.log(x @ w)), (W, BAD_X), "", "x", None),
    "params": (lambda params, x: x @ params["a"]["w"], ({"a": {"w": W.at[0, 1].set(jnp.nan)}}, X), "", "params", None),
    "Adam without eps": (
        partial(trained, lambda w, x: jnp.sum(w[0] * x), optax.adam(1e-3, eps=0.0)),
        (W, X), "div", "", "update",
    ),
    "scan": scan(False),
    "reversed scan": scan(True),
    "while": (loop, (jnp.float32(2.5),), "sqrt", "bad", "forward"),
    "switch": (branch, (1, X[0, 0]), "log", "bad", "forward"),
    "vmap": (jax.vmap(lambda x: scoped(jnp.log, x).sum()), (X,), "log", "bad", "forward"),
    "custom_vjp": (jax.grad(lambda x: clipped(x - 2.0)), (X,), "log", "bad", "backward"),
    "Equinox": (eqx.filter_value_and_grad(lambda net, x: net(x)), (NET, X), "log", "bad", None),
    "nnx": (nnx_step, (Flax(), X), "log", "bad", "forward"),
    "linen": (lambda params, x: jnp.sum(Linen().apply(params, x)), (LINEN, X), "log", "bad", "forward"),
    "float16 overflow": (lambda x: scoped(lambda x: x * x, x) / 2, (HALF,), "mul", "bad", "forward"),
    "nested jit": (
        jax.jit(lambda x: jax.jit(lambda y: scoped(jnp.arccos, y))(x * 3) + 1), (X,), "acos", "bad", "forward",
    ),
    "remat": (
        jax.grad(lambda x: jnp.sum(jax.checkpoint(lambda x: scoped(jnp.log, x) ** 2)(x))),
        (-jnp.ones(2),), "log", "bad", None,
    ),
    "masked NaN elsewhere": (masked, (jnp.zeros(3),), "div", "bad", "forward"),
    "scan in while in cond": (nested, (jnp.float32(4.5),), "sqrt", "bad", "forward"),
}  # fmt: skip


def test_table(capsys: pytest.CaptureFixture[str]):
    rows: list[str] = []
    wrong: list[str] = []
    for name, (fn, args, primitive, block, role) in CASES.items():
        began = time.perf_counter()
        first = ml.find_nan(fn, *args)
        seconds = time.perf_counter() - began
        assert first is not None, name
        equation = first.equation
        if equation is None:
            is_right = not primitive and first.argument.startswith(block)
            text = f"argument {first.argument} rows {first.rows}"
        else:
            is_right = (
                equation.primitive == primitive
                and (not block or block in equation.block.split("/"))
                and (role is None or equation.role == role)
                and (name == "Adam without eps" or equation.source.startswith("test_first_nan.py"))
            )
            text = f"{equation.primitive} {equation.block} {equation.role} {equation.source} {first.iterations}"
        rows.append(f"{'ok   ' if is_right else 'WRONG'} {seconds:5.2f} s  {name:24} {first.kind:3}  {text}")
        if not is_right or seconds > 10:
            wrong.append(name)
    with capsys.disabled():
        print("", *rows, sep="\n")
    assert len(rows) == 24
    assert not wrong


def test_the_iteration_is_that_of_the_loop():
    fn, args, *_ = CASES["reversed scan"]
    first = ml.find_nan(fn, *args)
    assert first is not None
    assert [at for _, at in first.iterations] == [2]
    first = ml.find_nan(loop, jnp.float32(2.5))
    assert first is not None
    assert [at for _, at in first.iterations] == [2]  # 2.5, 1.22, 0.47, NaN


def test_the_rows_of_the_data_and_the_leaf_of_the_params_are_named():
    first = ml.find_nan(lambda w, x: x @ w, W, np.asarray(BAD_X))
    assert first is not None
    assert (first.argument, first.rows, first.inputs[0].nan) == ("x", (1,), 1)
    fn, args, *_ = CASES["params"]
    first = ml.find_nan(fn, *args)
    assert first is not None
    assert first.argument == "params['a']['w']"
    assert "argument \"params['a']['w']\" has NaN." in str(first)


def test_the_source_of_the_infinity_behind_a_nan_is_named():
    fn, args, *_ = CASES["exp overflow"]
    first = ml.find_nan(fn, *args)
    assert first is not None
    assert first.overflow is not None
    assert first.overflow.primitive == "exp"


def test_finite_steps_and_infinite_constants_have_no_cause():
    assert ml.find_nan(jnp.sin, X) is None
    assert ml.find_nan(lambda x: jnp.where(x > 0, x, -jnp.inf), X) is None


def test_an_inspection_takes_its_arguments():
    program = ml.inspect(lambda x: jnp.log(x), X)
    first = ml.find_nan(program, X)
    assert first is not None
    assert first.equation is not None
    assert first.equation.primitive == "log"
    with pytest.raises(UnexpectedInputError, match="does not take these arguments"):
        ml.find_nan(program, X[0])


def test_a_module_is_refused_by_name():
    with pytest.raises(StageUnavailableError, match="is no function"):
        ml.find_nan(Linen(), X)
