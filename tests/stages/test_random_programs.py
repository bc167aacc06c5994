"""Random small networks: whatever is composed, the links and shares are sound and the blocks are the right ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax_programs import arrays, block, spec, train_step

from mithril_nb.cost import report
from mithril_nb.stages import STAGES, inspect

PRIMES = (3, 5, 7, 11, 13, 17, 19, 23)
ACTIVATIONS = (jax.nn.relu, jnp.tanh, jax.nn.gelu, jax.nn.softmax, jnp.sin)
WRAPPERS = (lambda fn: fn, jax.jit, jax.checkpoint, lambda fn: jax.vmap(fn, in_axes=(None, 0)))


@st.composite
def networks(draw: st.DrawFn):
    """A chain of layers, each with a width of its own, an activation, a transform around it and perhaps a group."""
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
def test_a_random_network(network, trains: bool) -> None:
    forward, params, x, y, owners = network
    fn, args = train_step(forward, params, [x], y) if trains else (forward, (params, x))
    inspection = inspect(fn, *args)

    products = [one for one in inspection.equations if one.primitive == "dot_general"]
    assert len(products) >= len(params)
    for one in products:
        sizes = frozenset(int(size) for spec in (*one.inputs, *one.outputs) for size in spec.shape) - {2}
        assert one.block == owners[sizes], one

    for source, target in (("jaxpr", "stablehlo"), ("jaxpr", "hlo"), ("stablehlo", "hlo")):
        there, back = inspection.links(source, target), inspection.links(target, source)
        assert {(a, b) for a in there for b in there[a]} == {(a, b) for b in back for a in back[b]}
    for name in STAGES:
        for one in inspection.stage(name).instructions:
            assert not one.shares or sum(one.blocks.values()) == pytest.approx(1.0, abs=1e-9)

    found = report(inspection)
    assert sum(row.flops for row in found.rows) == found.total.flops
    assert found.total.flops == pytest.approx(jax.jit(fn).lower(*args).cost_analysis()["flops"], rel=0.005)

    given_arrays = arrays(args)
    ours, plain = inspection.compiled(*given_arrays), jax.jit(fn)(*given_arrays)
    for left, right in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))
