"""Roles of matrix products and convolutions in other programs, checked against their shapes.

The oracle uses no scopes. Batch, inputs and outputs of a product have different prime sizes. So the shape of its result
shows whether it computes activations `(batch, out)`, gradients of activations `(batch, in)`, or of weights `(in, out)`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import lax
from jax_programs import equations_of, spec

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages import jax_versions

BATCH, WIDE, NARROW = 11, 7, 5
W, X, SQUARE = spec(WIDE, NARROW), spec(BATCH, WIDE), spec(BATCH, BATCH)


def layer(w, x):
    return jnp.tanh(x @ w)


def loss(w, x):
    return (layer(w, x) ** 2).sum()


def kind(equation):
    """Return what a product computes: activations, or the gradient of either; there may be leading axes."""
    made = {
        frozenset((BATCH, NARROW)): "forward",
        frozenset((BATCH, WIDE)): "backward",
        frozenset((WIDE, NARROW)): "backward",
    }
    return made[frozenset(equation.outputs[0].shape) & {BATCH, WIDE, NARROW}]


def products(fn, *args) -> list[Any]:
    return equations_of(inspect(fn, *args), "dot_general")


@jax.custom_vjp
def with_custom_vjp(w, x):
    return jnp.tanh(x @ w)


def custom_forward(w, x):
    y = jnp.tanh(x @ w)
    return y, (w, x, y)


def custom_backward(kept, g):
    w, x, y = kept
    g = g * (1 - y * y)
    return x.T @ g, g @ w.T


with_custom_vjp.defvjp(custom_forward, custom_backward)


def sgd(w, x):
    return w - 0.1 * jax.grad(loss)(w, x)


def two_steps(w, x):
    return sgd(sgd(w, x), x)


def steps_in_a_scan(w, x):
    return lax.scan(lambda w, _: (sgd(w, x), None), w, None, length=3)[0]


def steps_in_a_while(w, x):
    return lax.fori_loop(0, 3, lambda _, w: sgd(w, x), w)


def step_in_a_jit(w, x):
    return jax.jit(sgd)(w, x) * 1.0


def step_in_a_cond(w, x):
    return lax.cond(x[0, 0] > 0, sgd, lambda w, x: w, w, x)


def vjp_twice(w, x):
    y, pull = jax.vjp(layer, w, x)
    return pull(y), pull(2 * y)


OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))


def adam(w, x, state):
    updates, state = OPTIMIZER.update(jax.grad(loss)(w, x), state, w)
    return optax.apply_updates(w, updates), state


def adam_from_the_start(w, x):
    return adam(w, x, OPTIMIZER.init(w))


KNOWN = {
    "forward": (layer, 1),
    "grad": (jax.grad(loss), 2),
    "grad of both": (jax.grad(loss, (0, 1)), 3),
    "value and grad in a jit": (lambda w, x: jax.jit(jax.value_and_grad(loss))(w, x)[1] * 2, 2),
    "custom_vjp": (jax.grad(lambda w, x: with_custom_vjp(w, x).sum(), (0, 1)), 3),
    "custom_vjp in a scan": (
        jax.grad(
            lambda w, x: lax.scan(lambda c, _: (c + with_custom_vjp(w, x), None), 0.0 * (x @ w), None, length=2)[
                0
            ].sum()
        ),
        None,
    ),
    "vmap of grad": (lambda w, x: jax.vmap(jax.grad(loss, (0, 1)), (None, 0))(w, jnp.stack([x, x])), 3),
    "grad of vmap": (jax.grad(lambda w, x: jax.vmap(loss, (None, 0))(w, jnp.stack([x, x])).sum()), 2),
    "two vjps": (vjp_twice, 5),
    "two steps": (two_steps, 4),
    "steps in a scan": (steps_in_a_scan, 2),
    "steps in a while loop": (steps_in_a_while, 2),
    "a step in a jit": (step_in_a_jit, 2),
    "a step in a cond": (step_in_a_cond, 2),
    "Adam behind a clip": (adam_from_the_start, 2),
}


@pytest.mark.parametrize("name", KNOWN)
def test_products_have_the_role_of_their_shapes(name):
    fn, count = KNOWN[name]
    found = products(fn, W, X)
    assert len(found) == count or (count is None and found)
    for one in found:
        assert one.role == kind(one), one


def test_convolutions():
    image, kernel = spec(2, 3, 13, 13), spec(5, 3, 3, 3)

    def fn(kernel, image):
        return (lax.conv_general_dilated(image, kernel, (1, 1), "VALID") ** 2).sum()

    found = equations_of(inspect(jax.grad(fn, (0, 1)), kernel, image), "conv_general_dilated")
    made = {(2, 5, 11, 11): "forward", (2, 3, 13, 13): "backward"}
    assert len(found) == 3
    for one in found:  # The gradient of the kernel has another order of axes.
        assert one.role == made.get(one.outputs[0].shape, "backward"), one


def test_recomputation_by_remat_is_backward():
    found = products(
        jax.grad(lambda w, x: (jax.checkpoint(lambda w, x: layer(w, layer(w, x) @ w.T))(w, x) ** 2).sum()), W, X
    )
    roles = Counter((kind(one), one.role, "remat" in one.transforms) for one in found)
    assert roles["forward", "forward", False] == 2
    assert roles["forward", "backward", True] >= 1
    assert not [one for one in found if one.role == "backward" and "remat" not in one.transforms]


def test_forward_mode_is_forward():
    for fn in (jax.jacfwd(layer), lambda w, x: jax.jvp(layer, (w, x), (w, x)), jax.jacfwd(jax.jacfwd(layer))):
        assert {one.role for one in inspect(fn, W, X).equations} == {"forward"}


def test_nested_reverse_mode_is_backward():
    hessian = products(jax.hessian(lambda x: loss(jnp.ones((WIDE, NARROW)), x)), X)
    assert {one.role for one in hessian} == {"forward", "backward"}

    def penalty(w, x):
        return (jax.grad(loss, 1)(w, x) ** 2).sum()

    found = inspect(jax.grad(penalty), W, X).equations
    assert {one.role for one in found} == {"forward", "backward"}
    weights = [one for one in found if one.primitive == "dot_general" and kind(one) == "backward"]
    assert weights
    assert {one.role for one in weights} == {"backward"}
    first, *_ = [one for one in found if one.primitive == "dot_general"]
    assert (kind(first), first.role) == ("forward", "forward")


def test_a_differentiated_inner_step_is_not_an_update():
    found = inspect(two_steps, W, X).equations
    assert [one.role for one in found if one.primitive == "sub" and one.outputs[0].shape == (WIDE, NARROW)] == [
        "update"
    ] * 2
    assert Counter(one.role for one in found if one.primitive == "tanh") == {"forward": 2}


def test_all_equations_of_an_optimizer_are_update():
    def first(w, x):
        return layer(w, x)

    def second(w, x):
        return layer(w, x)

    def step(params, state, x):
        grads = jax.grad(lambda params: (second(params["b"], first(params["a"], x)) ** 2).sum())(params)
        updates, state = OPTIMIZER.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = {"a": W, "b": spec(NARROW, 3)}
    found = inspect(step, params, jax.eval_shape(OPTIMIZER.init, params), X).equations
    updates = [one for one in found if one.role == "update" and not one.is_call]
    assert {one.block for one in updates if one.outputs[0].shape == (WIDE, NARROW)} == {"first/layer"}
    assert {one.block for one in updates if one.outputs[0].shape == (NARROW, 3)} == {"second/layer"}
    counts = [one for one in found if one.primitive == "add" and one.outputs[0].dtype == "int32"]
    # No gradient flows into the step count.
    assert [(one.block, one.role, one.origin) for one in counts] == [("(optimizer)", "update", "tagged")]


def test_a_call_with_several_roles_has_none():
    scan = equations_of(inspect(steps_in_a_scan, W, X), "scan")[0]
    assert scan.role is None
    calls = [
        one for one in inspect(jax.grad(lambda w, x: loss(w, x) + jax.jit(loss)(w, x)), W, X).equations if one.is_call
    ]
    assert [one.role for one in calls] == ["forward", "backward"]


def test_transforms_from_the_outside_in():
    def sine(x):
        return jnp.sin(x)

    def nested(x):
        x = lax.scan(lambda c, _: (jax.vmap(sine)(c), None), x, None, length=2)[0]
        x = lax.cond(x[0] > 0, jax.checkpoint(sine), sine, x)
        return lax.while_loop(lambda x: x[0] > 0, lambda x: jax.vmap(jax.nn.relu)(x), x)

    found = inspect(nested, spec(3)).equations
    assert {one.transforms for one in found if one.primitive == "sin"} == {
        ("scan", "vmap"),
        ("cond",),
        ("cond", "remat"),
    }
    assert ("while", "vmap", "custom_jvp") in {one.transforms for one in found if one.primitive == "max"}
    assert {one.transforms for one in found if one.primitive in ("scan", "cond", "while")} == {()}


def potential(q):
    return (jnp.sin(q) ** 2).sum()


def leapfrog(q, p, dt=0.1):
    p = p - dt / 2 * jax.grad(potential)(q)
    q = q + dt * jax.grad(lambda p: (p * p).sum() / 2)(p)
    return q, p - dt / 2 * jax.grad(potential)(q)


NO_TRAIN_STEPS = {
    "descent of a position": (lambda q: q - 0.05 * jax.grad(potential)(q), (X,)),
    "leapfrog": (leapfrog, (X, X)),
    "Langevin": (lambda q, noise, masses: q - 0.1 * jax.grad(potential)(q) / masses + noise, (X, X, X)),
    "trajectory": (lambda q, p: lax.scan(lambda s, _: (leapfrog(*s), s[0]), (q, p), None, length=4), (X, X)),
    "clipped gradients": (lambda params, x: jnp.clip(jax.grad(loss)(params, x), -1, 1), (W, X)),
    "forces of a model": (lambda params, x: x - 0.1 * jax.grad(loss, 1)(params, x), (W, X)),
}


@pytest.mark.parametrize("name", NO_TRAIN_STEPS)
def test_a_gradient_alone_is_not_an_update(name):
    fn, args = NO_TRAIN_STEPS[name]
    assert {one.role for one in inspect(fn, *args).equations if not one.is_call} == {"forward", "backward"}


def test_the_option_params_declares_what_is_trained():
    def step(q, x):
        return q - 0.1 * jax.grad(loss)(q, x)

    roles = {params: inspect(step, W, X, params=params).equations[-1].role for params in ("q", "x", ())}
    assert roles == {"q": "update", "x": "forward", (): "forward"}
    assert inspect(sgd, W, X, params=()).equations[-1].role == "forward"


@pytest.mark.parametrize("first", ["scopes", "gradient"])
def test_scopes_with_the_names_of_transforms_are_no_transforms(first):
    """JAX's scopes and transforms of one name are equal tuples: what was read first must not decide."""

    def scoped(x):
        with jax.named_scope("transpose"), jax.named_scope("jvp"):
            return jnp.sin(x)

    def of_scopes():
        return {equation.block: equation.role for equation in inspect(scoped, jnp.ones(3)).equations}

    def of_gradient():
        program = inspect(jax.vmap(jax.grad(lambda x: jnp.sin(x) * x)), jnp.ones(3))
        return {(equation.role, equation.block) for equation in program.equations}

    jax_versions._read_stack.cache_clear()
    scopes, gradient = (of_scopes, of_gradient)[:: 1 if first == "scopes" else -1]
    results = {function: function() for function in (scopes, gradient)}
    assert results[of_scopes] == {"transpose/jvp": "forward"}
    assert {role for role, _ in results[of_gradient]} == {"forward", "backward"}
    assert not any("jvp" in block for _, block in results[of_gradient])
