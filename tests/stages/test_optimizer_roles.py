"""Roles in train steps with hand-written and optax optimizers.

The oracle is the same step without its optimizer: its equations are the forward and the backward pass for any
optimizer, and all other equations are the update.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import lax
from jax_programs import spec

from mithril_nb.inspection import inspect_function as inspect

PARAMS = {"w1": spec(5, 7), "b1": spec(7), "w2": spec(7, 3), "b2": spec(3)}
BATCH = {"x": spec(11, 5), "label": spec(11, dtype="int32")}
COUNT = spec(dtype="int32")
tree = jax.tree.map


def logits_of(params, x):
    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def loss_of(params, batch):
    logits = logits_of(params, batch["x"] / 255)
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean(), logits


def gradients(params, batch):
    """Compute the parts of a step other than the update: loss, gradients, and a metric of the forward pass."""
    (loss, logits), grads = jax.value_and_grad(loss_of, has_aux=True)(params, batch)
    return grads, {"loss": loss, "accuracy": (logits.argmax(-1) == batch["label"]).mean()}


def sgd(params, state, grads):
    return tree(lambda p, g: p - 0.1 * g, params, grads), state


def momentum(params, state, grads):
    state = tree(lambda m, g: 0.9 * m + g, state, grads)
    return tree(lambda p, m: p - 0.1 * m, params, state), state


def nesterov(params, state, grads):
    state = tree(lambda m, g: 0.9 * m + g, state, grads)
    return tree(lambda p, m, g: p - 0.1 * (0.9 * m + g), params, state, grads), state


def adagrad(params, state, grads):
    state = tree(lambda s, g: s + g**2, state, grads)
    return tree(lambda p, s, g: p - 0.1 * g / (jnp.sqrt(s) + 1e-8), params, state, grads), state


def rmsprop(params, state, grads):
    state = tree(lambda s, g: 0.9 * s + 0.1 * g**2, state, grads)
    return tree(lambda p, s, g: p - 0.1 * g / jnp.sqrt(s + 1e-8), params, state, grads), state


def adam(params, state, grads):
    b1, b2 = 0.9, 0.999
    t = state["t"] + 1
    m = tree(lambda m, g: b1 * m + (1 - b1) * g, state["m"], grads)
    v = tree(lambda v, g: b2 * v + (1 - b2) * g**2, state["v"], grads)
    scale = jnp.sqrt(1 - b2**t) / (1 - b1**t)
    new = tree(lambda p, m, v: p - 0.001 * scale * m / (jnp.sqrt(v) + 1e-8), params, m, v)
    return new, {"m": m, "v": v, "t": t}


MOMENTS = {"m": PARAMS, "v": PARAMS, "t": COUNT}
HAND_WRITTEN: dict[str, tuple[Any, Any]] = {
    "SGD": (sgd, ()),
    "momentum": (momentum, PARAMS),
    "Nesterov": (nesterov, PARAMS),
    "Adagrad": (adagrad, PARAMS),
    "RMSProp": (rmsprop, PARAMS),
    "Adam": (adam, MOMENTS),
}


def adamw_with_a_schedule(params, state, grads):
    """Hand-written AdamW with clipping, a schedule, weight decay and an average of the parameters."""
    norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(grads)))
    grads = tree(lambda g: g * jnp.minimum(1.0, 1.0 / norm), grads)
    step = state["t"] + 1
    rate = 0.001 * jnp.minimum(1.0, step / 100) * 0.5 * (1 + jnp.cos(jnp.pi * step / 1000))
    m = tree(lambda m, g: 0.9 * m + 0.1 * g, state["m"], grads)
    v = tree(lambda v, g: 0.99 * v + 0.01 * g * g, state["v"], grads)
    decayed = tree(lambda p: p * (1 - rate * 0.01), params)
    params = tree(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), decayed, m, v)
    mean = tree(lambda e, p: 0.999 * e + 0.001 * p, state["mean"], params)
    return params, {"m": m, "v": v, "t": step, "mean": mean, "rate": rate}


def accumulated(params, state, grads):
    """Accumulate the gradients of four batches before one step."""
    total = tree(lambda a, g: a + g / 4, state["total"], grads)
    is_last = (state["t"] + 1) % 4 == 0
    params = lax.cond(is_last, lambda p, a: tree(lambda p, a: p - 0.1 * a, p, a), lambda p, a: p, params, total)
    total = tree(lambda a: jnp.where(is_last, jnp.zeros_like(a), a), total)
    return params, {"total": total, "t": state["t"] + 1}


def unless_it_failed(params, state, grads):
    """Skip the step, and do not count it, if a gradient is NaN or infinite."""
    is_finite = jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(grads)]).all()
    new, after = adam(params, state, grads)
    keep = lambda new, old: jnp.where(is_finite, new, old)  # noqa: E731
    return tree(keep, new, params), tree(keep, after, state)


def lazily(params, state, grads):
    """Take the learning rate from the state and add noise to the gradients."""
    key, own = jax.random.split(state["key"])
    noise = 0.01 * jax.random.normal(own, PARAMS["w2"].shape)
    rate = state["rate"] * 0.99
    return tree(lambda p, g: p - rate * g, params, grads | {"w2": grads["w2"] + noise}), {"rate": rate, "key": key}


HAND_WRITTEN |= {
    "AdamW with a schedule": (adamw_with_a_schedule, MOMENTS | {"mean": PARAMS, "rate": spec()}),
    "accumulation": (accumulated, {"total": PARAMS, "t": COUNT}),
    "skipped steps": (unless_it_failed, MOMENTS),
    "a rate that decays": (lazily, {"rate": spec(), "key": spec(2, dtype="uint32")}),
}

SCHEDULE = optax.warmup_cosine_decay_schedule(0.0, 0.1, 10, 100)
OPTAX: dict[str, Any] = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": optax.adam(1e-3),
    "adamw": optax.adamw(SCHEDULE, weight_decay=0.01),
    "adagrad": optax.adagrad(0.1),
    "rmsprop": optax.rmsprop(0.1),
    "lion": optax.lion(1e-4),
    "lamb": optax.lamb(1e-3),
    "lars": optax.lars(0.1),
    "adafactor": optax.adafactor(1e-3),
    "nadam": optax.nadam(1e-3),
    "adamax": optax.adamax(1e-3),
    "radam": optax.radam(1e-3),
    "adabelief": optax.adabelief(1e-3),
    "clipping": optax.chain(optax.clip_by_global_norm(1.0), optax.add_decayed_weights(0.01), optax.adam(SCHEDULE)),
    "MultiSteps": optax.MultiSteps(optax.adam(1e-3), every_k_schedule=4),
    "skipped": optax.apply_if_finite(optax.adam(1e-3), 3),
}


def hand_written(name):
    return HAND_WRITTEN[name]


def of_optax(name):
    optimizer = OPTAX[name]

    def update(params, state, grads):
        updates, after = optimizer.update(grads, state["inner"], params)
        new = optax.apply_updates(params, updates)
        return new, {"inner": after, "mean": optax.incremental_update(new, state["mean"], 0.001)}

    return update, {"inner": jax.eval_shape(optimizer.init, PARAMS), "mean": PARAMS}


Step = tuple[Callable[..., Any], tuple[Any, ...]]


def plain(update, state):
    def step(params, state, batch):
        grads, metrics = gradients(params, batch)
        return (*update(params, state, grads), metrics)

    return step, (PARAMS, state, BATCH)


def jitted(update, state):
    step, args = plain(update, state)
    return lambda *args: jax.jit(step)(*args), args


class TrainState(NamedTuple):
    params: Any
    state: Any
    step: Any


def in_one_state(update, state):
    def step(state, batch):
        grads, metrics = gradients(state.params, batch)
        params, inner = update(state.params, state.state, grads)
        return TrainState(params, inner, state.step + 1), metrics

    return step, (TrainState(PARAMS, state, COUNT), BATCH)


def many_steps(update, state):
    def steps(params, state, batch):
        def one(carry, _):
            params, state = carry
            grads, metrics = gradients(params, batch)
            return update(params, state, grads), metrics

        return lax.scan(one, (params, state), None, length=3)

    return steps, (PARAMS, state, BATCH)


def in_a_while(update, state):
    def steps(params, state, batch):
        def one(_, carry):
            grads, _ = gradients(carry[0], batch)
            return update(*carry, grads)

        return lax.fori_loop(0, 3, one, (params, state))

    return steps, (PARAMS, state, BATCH)


FORMS = {"plain": plain, "jitted": jitted, "in one state": in_one_state, "many steps": many_steps, "while": in_a_while}


def counted(fn, args) -> Counter[Any]:
    found = inspect(fn, *args).equations
    assert [one.id for one in found if not one.is_call and one.role is None] == []
    return Counter((one.role, one.primitive, one.outputs) for one in found if not one.is_call and one.is_used)


def check(update, state, form, stress):
    alone = counted(*FORMS[form](lambda params, state, grads: (tree(jnp.subtract, params, grads), state), ()))
    expected = Counter({key: count for key, count in alone.items() if key[0] != "update"})
    found = counted(*FORMS[form](update, state))
    others = Counter({key: count for key, count in found.items() if key[0] != "update"})
    assert others == expected, (others - expected, expected - others)
    roles: Counter[str] = Counter()
    for (role, _, _), count in found.items():
        roles[role] += count
    assert roles["update"] >= 4
    stress.report(**roles)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_hand_written_optimizers(name, form, stress):
    check(*hand_written(name), form, stress)


@pytest.mark.parametrize("form", ["plain", "many steps"])
@pytest.mark.parametrize("name", OPTAX)
def test_optimizers_of_optax(name, form, stress):
    check(*of_optax(name), form, stress)


def roles_by_primitive(fn, *args) -> dict[str, set[str | None]]:
    roles: dict[str, set[str | None]] = {}
    for one in inspect(fn, *args).equations:
        roles.setdefault(one.primitive, set()).add(one.role)
    return roles


def test_running_metrics_are_forward_and_the_rate_is_update():
    def step(params, state, batch):
        grads, metrics = gradients(params, batch)
        rate = 0.1 / jnp.cosh(state["t"] / 10.0)
        params = tree(lambda p, g: p - rate * g, params, grads)
        mean = 0.9 * state["mean"] + jnp.sinh(metrics["loss"])
        jax.debug.print("{}", jnp.arctan(metrics["accuracy"]))
        metrics |= {"rate": jnp.arcsinh(rate), "norm": jnp.cbrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(grads)))}
        return params, {"t": state["t"] + 1, "mean": jnp.arctanh(mean)}, metrics

    found = roles_by_primitive(step, PARAMS, {"t": COUNT, "mean": spec()}, BATCH)
    assert found["sinh"] == found["atan"] == found["atanh"] == {"forward"}
    assert found["cosh"] == found["asinh"] == found["cbrt"] == {"update"}


def test_selecting_an_update_is_update_and_batching_is_forward():
    def step(params, batch):
        batch = batch | {"x": jnp.sinh(batch["x"])}
        grads, metrics = gradients(params, batch)
        is_fine = jnp.isfinite(jnp.cosh(metrics["loss"]))
        return lax.cond(is_fine, lambda: tree(lambda p, g: p - jnp.arctan(p) * g, params, grads), lambda: params)

    found = roles_by_primitive(step, PARAMS, BATCH)
    assert (found["sinh"], found["cosh"], found["atan"]) == ({"forward"}, {"update"}, {"update"})


def test_a_cell_that_returns_its_state_has_no_update():
    def cell(state, x):
        count = state["t"] + 1
        return {"h": jnp.tanh(state["h"] + x), "t": count}, 0.9 * state["h"] / count

    state = {"h": spec(3), "t": COUNT}
    assert {one.role for one in inspect(cell, state, spec(3)).equations} == {"forward"}
    loss = jax.value_and_grad(lambda h, x: (cell({"h": h, "t": 1.0}, x)[0]["h"] ** 2).sum())
    assert {one.role for one in inspect(loss, spec(3), spec(3)).equations} == {"forward", "backward"}
