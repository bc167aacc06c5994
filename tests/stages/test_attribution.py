"""Block, role and origin of equations, for every way in which JAX nests and wraps scopes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import lax
from jax_programs import block, equations_of, linear_params, mlp, spec, train_step

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages import LOSS, OPTIMIZER

X = spec(3, 3)


def found(fn, *args) -> set[tuple[str, str, str]]:
    """Return primitive, block and role of all equations that are not calls."""
    return {(one.primitive, one.block, one.role or "") for one in inspect(fn, *args).equations if not one.is_call}


def inside(x):
    with block("outer"):
        return _inner(x)


def _inner(x):
    with block("inner"):
        return jnp.sin(x)


WRAPPED = {
    "plain": inside,
    "jit": lambda x: jax.jit(inside)(x),
    "jit inside": lambda x: _under_outer(jax.jit(_inner), x),
    "vmap": jax.vmap(inside),
    "vmap inside": lambda x: _under_outer(jax.vmap(_inner), x),
    "remat": jax.checkpoint(inside),
    "remat inside": lambda x: _under_outer(jax.checkpoint(_inner), x),
    "scan": lambda x: lax.scan(lambda c, _: (inside(c), None), x, None, length=2)[0],
    "scan inside": lambda x: _under_outer(lambda x: lax.scan(lambda c, _: (_inner(c), None), x, None, length=2)[0], x),
    "cond inside": lambda x: _under_outer(lambda x: lax.cond(x.sum() > 0, _inner, _inner, x), x),
    "while inside": lambda x: _under_outer(lambda x: lax.while_loop(lambda x: x.sum() > 0, _inner, x), x),
    "jvp": lambda x: jax.jvp(inside, (x,), (x,))[0],
    "all inside": lambda x: _under_outer(jax.checkpoint(jax.jit(jax.vmap(jax.checkpoint(_inner)))), x),
}


def _under_outer(fn, x):
    with block("outer"):
        return fn(x)


@pytest.mark.parametrize("name", WRAPPED)
def test_blocks_survive_every_transform(name):
    assert ("sin", "outer/inner", "forward") in found(WRAPPED[name], X)


@pytest.mark.parametrize("name", [name for name in WRAPPED if not name.startswith(("while", "jvp"))])
def test_derivatives_belong_to_the_same_block(name):
    products = found(jax.grad(lambda x: (WRAPPED[name](x) ** 2).sum()), X)
    assert ("mul", "outer/inner", "backward") in products


def test_remat_recomputes_in_the_backward_pass():
    sines = found(jax.grad(lambda x: (jax.checkpoint(inside)(x) ** 2).sum()), X)
    assert {("sin", "outer/inner", "forward"), ("cos", "outer/inner", "backward")} <= sines


def test_a_custom_derivative_rule():
    @jax.custom_vjp
    def fn(x):
        return jnp.sin(x)

    fn.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x),))

    def loss(x):
        with block("own"):
            return fn(x).sum()

    assert found(jax.value_and_grad(loss), X) >= {("sin", "own", "forward"), ("cos", "own", "backward")}


def test_names_with_any_character_are_restored_in_paths():
    def fn(x):
        with block("a%2Fb/c%20d/блок"):
            return jnp.sin(x)

    assert found(fn, X) == {("sin", "a%2Fb/c%20d/блок", "forward")}


def test_equations_outside_every_block():
    def fn(params, x):
        with block("linear"):
            y = x @ params["linear.weight"]
        with jax.named_scope("role:loss"):
            loss = (y**2).sum()
        return loss, jnp.cos(x)

    assert found(fn, {"linear.weight": X}, X) == {
        ("dot_general", "linear", "forward"),
        ("integer_pow", LOSS, "forward"),
        ("reduce_sum", LOSS, "forward"),
        ("cos", "fn", "forward"),
    }


def test_own_equations_of_the_outermost_module_have_its_name():
    def fn(x):
        with jax.named_scope("root:Net"):
            with block("up"):
                x = jnp.sin(x)
            return jax.checkpoint(jnp.cos)(x)

    assert found(jax.value_and_grad(lambda x: fn(x).sum()), X) >= {
        ("sin", "up", "forward"),
        ("mul", "up", "backward"),
        ("cos", "Net", "forward"),
        ("sin", "Net", "backward"),
    }


@pytest.mark.parametrize("optimizer", ["adam", "hand-written SGD"])
def test_a_hand_written_step_around_named_blocks(optimizer):
    forward, params, adam = mlp((5, 7, 3)), linear_params((5, 7, 3)), optax.adam(1e-3)

    def penalized(params, x, y):
        return ((forward(params, x) - y) ** 2).mean() + 0.1 * (params["linear_0.weight"] ** 2).sum()

    def step(params, state, x, y):
        value, gradients = jax.value_and_grad(penalized)(params, x, y)
        if optimizer == "hand-written SGD":
            return jax.tree.map(lambda param, gradient: param - 0.1 * gradient, params, gradients), value
        updates, state = adam.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    args = (params, jax.eval_shape(adam.init, params), spec(2, 5), spec(2, 3))
    equations = [one for one in inspect(step, *args).equations if not one.is_call]
    assert [one for one in equations if not one.block or not one.origin] == []
    assert {one.block for one in equations if one.role == "forward"} == {"linear_0", "act_0", "linear_1", "penalized"}
    own = {(one.primitive, one.role) for one in equations if one.block == "penalized"}
    assert {("reduce_sum", "forward"), ("integer_pow", "forward"), ("mul", "backward")} <= own
    updates = [one for one in equations if one.role == "update" and len(one.outputs[0].shape) == 2]
    assert len(updates) >= 2 * 2
    for one in updates:
        assert one.block == {(5, 7): "linear_0", (7, 3): "linear_1"}[one.outputs[0].shape], one


def test_named_scopes_are_blocks_in_other_programs():
    def fn(params, x):
        with jax.named_scope("encoder"), jax.named_scope("dense"):
            x = jax.checkpoint(lambda x: jnp.sin(x @ params["encoder"]["dense"]["kernel"]))(x)
        with jax.named_scope("head/out"):
            return (x * 2).sum()

    inspection = inspect(jax.value_and_grad(fn), {"encoder": {"dense": {"kernel": X}}}, X)
    blocks = {(one.primitive, one.block, one.role) for one in inspection.equations}
    assert ("dot_general", "encoder/dense", "forward") in blocks
    assert ("dot_general", "encoder/dense", "backward") in blocks
    assert ("mul", "head/out", "forward") in blocks
    assert {one.block for one in inspection.equations} <= {"encoder/dense", "head/out"}
    assert [one.block for one in inspection.inputs] == ["encoder/dense", ""]


def test_a_call_belongs_to_the_block_around_its_whole_body():
    def step(x, _):
        with block("net/a"):
            x = jnp.sin(x)
        with block("net/b"):
            return jnp.cos(x), None

    scan = equations_of(inspect(lambda x: lax.scan(step, x, None, length=2)[0], X), "scan")[0]
    assert (scan.block, scan.origin, scan.is_call) == ("net", "inferred", True)


WIDTHS = (5, 7, 3)
OPTIMIZERS = {
    "sgd": optax.sgd(1e-2),
    "momentum": optax.sgd(1e-2, momentum=0.9),
    "adam": optax.adam(1e-3),
    "adamw": optax.adamw(1e-3),
    "clipped": optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3)),
    "scheduled": optax.adam(optax.cosine_decay_schedule(1e-3, 100)),
    "lamb": optax.lamb(1e-3),
    "in a jit": None,
}


def jitted(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    return optax.GradientTransformation(optimizer.init, jax.jit(optimizer.update))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_of_one_block_belong_to_it(name):
    optimizer = OPTIMIZERS[name] or jitted(optax.adam(1e-3))
    step, args = train_step(mlp(WIDTHS), linear_params(WIDTHS), [spec(2, 5)], spec(2, 3), optimizer=optimizer)
    updates = [one for one in inspect(step, *args).equations if one.role == "update" and not one.is_call]
    assert updates
    for one in updates:
        shape = one.outputs[0].shape
        if shape in ((5, 7), (7,)):
            assert one.block == "linear_0", one
        elif shape in ((7, 3), (3,)):
            assert one.block == "linear_1", one
        else:
            assert one.outputs[0].size == 1
            assert one.block in (OPTIMIZER, "linear_0", "linear_1")


def test_a_tied_weight_has_one_owner():
    def forward(params, x):
        with block("embed"):
            x = x @ params["embed.weight"]
        with block("head"):
            return x @ params["embed.weight"].T

    step, args = train_step(forward, {"embed.weight": spec(5, 7)}, [spec(2, 5)], spec(2, 5))
    inspection = inspect(step, *args)
    weights = [one for one in inspection.equations if one.role == "update" and one.outputs[0].shape == (5, 7)]
    assert weights
    assert {one.block for one in weights} == {"embed"}
    assert {one.block for one in inspection.equations if one.primitive == "dot_general"} == {"embed", "head"}


def test_sources_are_the_lines_that_created_the_equations():
    (equation,) = inspect(inside, X).equations
    assert equation.source.startswith("test_attribution.py:")
    relu = inspect(jax.nn.relu, X).equations[-1]
    assert relu.source.startswith("jax/_src/nn/functions.py:"), "a library's function has its own lines"


def test_numpy_axes_of_vmap_become_plain_params():
    (equation,) = inspect(jax.vmap(lambda x: x.sum(0)), spec(3, 4, 5)).equations
    assert repr(equation.param["axes"]) == "(1,)"  # NumPy's 1 equals Python's, but is not valid JSON


def attention(x):
    return jnp.tanh(x)


def scoped(x):
    with jax.named_scope("encoder"):
        x = attention(x) * 2
    with jax.named_scope("stack"):
        x = lax.scan(lambda h, _: (scoped_layer(h), None), x, None, length=3)[0]
    return attention(x)


def scoped_layer(x):
    with jax.named_scope("linear"):
        return jnp.sin(attention(x))


def test_functions_called_in_a_scope_are_blocks_inside_it():
    assert found(scoped, X) == {
        ("tanh", "encoder/attention", "forward"),
        ("mul", "encoder", "forward"),
        ("tanh", "stack/linear/attention", "forward"),
        ("sin", "stack/linear", "forward"),
        ("tanh", "attention", "forward"),
    }


@pytest.mark.parametrize("name", ["checkpoint", "remat", "rematted_computation"])
def test_a_scope_with_the_name_of_remat_is_a_block(name):
    if name == "checkpoint" and jax.__version_info__ >= (0, 11):
        name = "remat"  # JAX opens a scope with the other name

    def fn(x):
        with jax.named_scope(name):
            return jnp.sin(x)

    assert found(fn, X) == {("sin", name, "forward")}
    (equation,) = inspect(fn, X).equations
    assert equation.transforms == () or name == "rematted_computation"
    again = found(jax.grad(lambda x: jax.checkpoint(scoped)(x).sum()), X)
    assert not [block for _, block, _ in again if name in block.split("/")]
