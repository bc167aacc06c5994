"""Random small programs: links and shares are consistent, blocks and roles are correct."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import lax
from jax_programs import arrays, block, check_links, equations_of, spec, train_step

from mithril_nb.cost import cost_of
from mithril_nb.inspection import inspect_function as inspect

PRIMES = (3, 5, 7, 11, 13, 17, 19, 23)
ACTIVATIONS = (jax.nn.relu, jnp.tanh, jax.nn.gelu, jax.nn.softmax, jnp.sin)
WRAPPERS = (lambda fn: fn, jax.jit, jax.checkpoint, lambda fn: jax.vmap(fn, in_axes=(None, 0)))


@st.composite
def networks(draw: st.DrawFn):
    """Draw a chain of layers, each with its own width, an activation, a transform and possibly a group."""
    depth = draw(st.integers(1, 4))
    widths = draw(st.permutations(PRIMES))[: depth + 1]
    layers = []
    for index in range(depth):
        group = draw(st.sampled_from(("", "net/", "net/deep/")))
        layers.append((f"{group}linear_{index}", draw(st.sampled_from(ACTIVATIONS)), draw(st.sampled_from(WRAPPERS))))
    params = {
        f"{path.replace('/', '.')}.weight": spec(left, right)
        for (path, _, _), left, right in zip(layers, widths, widths[1:], strict=False)
    }

    def forward(params, x):
        for path, activation, wrap in layers:

            def layer(weight, x, activation=activation):
                return activation(x @ weight)

            with block(path):
                x = wrap(layer)(params[f"{path.replace('/', '.')}.weight"], x)
        return x

    owners = {
        frozenset((left, right)): path for (path, _, _), left, right in zip(layers, widths, widths[1:], strict=False)
    }
    return forward, params, spec(2, widths[0]), spec(2, widths[-1]), owners


@pytest.mark.slow
@given(networks(), st.booleans())
@settings(max_examples=8)
def test_a_random_network(network, trains):
    forward, params, x, y, owners = network
    fn, args = train_step(forward, params, [x], y) if trains else (forward, (params, x))
    inspection = inspect(fn, *args)

    products = equations_of(inspection, "dot_general")
    assert len(products) >= len(params)
    for one in products:
        sizes = frozenset(int(size) for spec in (*one.inputs, *one.outputs) for size in spec.shape) - {2}
        assert one.block == owners[sizes], one

    for source, target in (("jaxpr", "stablehlo"), ("jaxpr", "hlo"), ("stablehlo", "hlo")):
        check_links(inspection, source, target)
    for name in inspection.every_stage:
        for one in inspection.stage(name).instructions:
            assert not one.shares or sum(one.blocks.values()) == pytest.approx(1.0, abs=1e-9)

    found = cost_of(inspection)
    assert sum(one.flops for one in (*found.by_block.values(), found.unattributed)) == found.total.flops
    assert found.total.flops == pytest.approx(jax.jit(fn).lower(*args).cost_analysis()["flops"], rel=0.005)

    given_arrays = arrays(args)
    ours, plain = inspection.compiled(*given_arrays), jax.jit(fn)(*given_arrays)
    for left, right in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


BATCH = 2


def first(w, x):
    return jnp.sin(x @ w)


def second(w, x):
    return jax.nn.gelu(x @ w)


def third(w, x):
    return jax.nn.relu(x @ w)


LAYERS = (first, second, third)
WIDTHS = (5, 7, 11, 13)
OWNERS = {frozenset(WIDTHS[index : index + 2]): layer.__name__ for index, layer in enumerate(LAYERS)}


def scanned(layer):
    return lambda w, x: lax.scan(lambda c, _: (c + layer(w, x), None), layer(w, x), None, length=3)[0]


def branched(layer):
    return lambda w, x: lax.cond(x[(0,) * x.ndim] > 0, layer, lambda w, x: -layer(w, x), w, x)


AROUND_A_LAYER = {
    "nothing": lambda layer: layer,
    "jit": jax.jit,
    "remat": jax.checkpoint,
    "vmap": lambda layer: jax.vmap(layer, (None, 0)),
    "scan": scanned,
    "cond": branched,
}
AROUND_THE_LOSS = {
    "jit": jax.jit,
    "remat": jax.checkpoint,
    "vmap": lambda loss: lambda ws, x: jax.vmap(loss, (None, 0))(ws, jnp.stack([x, x])).sum(),
    "scan": lambda loss: lambda ws, x: lax.scan(lambda c, x: (c + loss(ws, x), None), 0.0, jnp.stack([x, x]))[0],
}
AROUND_THE_STEP = {
    "jit": jax.jit,
    "vmap": lambda step: lambda ws, x: [w.mean(0) for w in jax.vmap(step, (None, 0))(ws, jnp.stack([x, x]))],
    "scan": lambda step: lambda ws, x: lax.scan(lambda ws, _: (step(ws, x), None), ws, None, length=2)[0],
    "again": lambda step: lambda ws, x: step(step(ws, x), x),
}


def chains(around, longest) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(sorted(around)), max_size=longest)


def wrapped(fn, around, names):
    for name in names:
        fn = around[name](fn)
    return fn


def expected_role(equation):
    """Return the role of a product from its shape: activations of (batch, out), or a gradient."""
    (layer,) = [index for index in range(3) if set(WIDTHS[index : index + 2]) <= _sizes(equation)]
    made = {int(size) for size in equation.outputs[0].shape} & set(WIDTHS)
    return "forward" if made == {WIDTHS[layer + 1]} else "backward"


def _sizes(equation) -> set[int]:
    return {int(size) for each in (*equation.inputs, *equation.outputs) for size in each.shape}


@given(
    st.lists(chains(AROUND_A_LAYER, 2), min_size=3, max_size=3),
    chains(AROUND_THE_LOSS, 2),
    chains(AROUND_THE_STEP, 2),
)
@example([[], [], ["scan"]], [], ["again"])
@example([[], [], ["cond", "scan"]], [], ["again"])
@settings(max_examples=25)
def test_a_random_composition_of_transforms(layers, losses, steps):
    made = [wrapped(layer, AROUND_A_LAYER, names) for layer, names in zip(LAYERS, layers, strict=True)]
    lead = max(names.count("vmap") for names in layers)  # Each vmap in a layer removes a leading axis.

    def loss(ws, x):
        for layer, w in zip(made, ws, strict=True):
            x = layer(w, x)
        return (x**2).sum()

    whole = wrapped(loss, AROUND_THE_LOSS, losses)

    def step(ws, x):
        return [w - 0.1 * g for w, g in zip(ws, jax.grad(whole)(ws, x), strict=True)]

    ws = [spec(*WIDTHS[index : index + 2]) for index in range(3)]
    fn = wrapped(step, AROUND_THE_STEP, steps)
    inspection = inspect(fn, ws, spec(*(BATCH,) * (lead + 1), WIDTHS[0]))

    assert [one.id for one in inspection.equations if not one.block or one.origin is None] == []
    assert {one.role for one in inspection.equations if not one.is_call} == {"forward", "backward", "update"}
    products = equations_of(inspection, "dot_general")
    assert len(products) >= 3 + 3 + 2
    for one in products:
        assert one.block.rpartition("/")[2] == OWNERS[frozenset(_sizes(one) & set(WIDTHS))], one
        again = "remat" in one.transforms  # Recomputed equations have the shapes of the forward pass.
        assert one.role == expected_role(one) or (again and one.role == "backward"), one
    assert inspection.stage("stablehlo").unavailable is None
