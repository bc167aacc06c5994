"""Solutions of the puzzles of the capstone, and wrong tries with the reason that the puzzle gives."""

from functools import partial

import jax
import jax.numpy as jnp

_SCALE = (128 * 16) ** 0.5


def cheap_block(x, down, up):
    hidden = x @ down
    return x + jnp.tanh(hidden @ up / _SCALE)


def cheap_block_by_shapes(x, down, up):
    return x + jnp.tanh(jnp.linalg.multi_dot([x, down, up]) / _SCALE)


@jax.jit
def cheap_block_by_einsum(x, down, up):
    return jnp.tanh(jnp.einsum("nr,ri->ni", jnp.einsum("ni,ir->nr", x, down), up) / _SCALE) + x


def _costly_block(x, down, up):
    return x + jnp.tanh(x @ (down @ up) / _SCALE)


def _network(block, params, x):
    return jax.lax.scan(lambda x, layer: (block(x, **layer), None), x, params)[0]


def short_network(params, x):
    return _network(cheap_block, params, x)


@jax.jit
def short_network_by_shapes(params, x):
    return _network(cheap_block_by_shapes, params, x)


def short_network_by_pairs(params, x):
    def body(x, weights):
        return cheap_block_by_einsum(x, *weights), None

    return jax.lax.scan(body, x, (params["down"], params["up"]))[0]


def _unrolled(params, x):
    for down, up in zip(params["down"], params["up"], strict=True):
        x = cheap_block(x, down, up)
    return x


def _step(network, state, x, y):
    gradients = jax.grad(lambda params: ((network(params, x) - y) ** 2).mean())(state["params"])
    norm = jnp.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(gradients)))
    scale = 1.0 / jnp.maximum(norm, 1.0)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + scale * g, state["momentum"], gradients)
    params = jax.tree.map(lambda p, m: p - 0.1 * m, state["params"], momentum)
    average = jax.tree.map(lambda a, p: 0.9 * a + 0.1 * p, state["average"], params)
    return {"params": params, "momentum": momentum, "average": average}, norm


@partial(jax.jit, donate_argnums=0)
def good_step(state, x, y):
    return _step(short_network, state, x, y)


@partial(jax.jit, donate_argnames="state")
def good_step_by_shapes(state, x, y):
    return _step(short_network_by_shapes, state, x, y)


@partial(jax.jit, donate_argnums=0)
def good_step_by_einsum(state, x, y):
    return _step(short_network_by_pairs, state, x, y)


def _jitted_in_each_step(state, x, y):
    return jax.jit(lambda *arguments: _step(short_network, *arguments), donate_argnums=0)(state, x, y)


@partial(jax.jit, donate_argnums=0)
def _weights_first(state, x, y):
    return _step(partial(_network, _costly_block), state, x, y)


@partial(jax.jit, donate_argnums=0)
def _with_python_loop(state, x, y):
    return _step(_unrolled, state, x, y)


@jax.jit
def _not_donated(state, x, y):
    return _step(short_network, state, x, y)


@partial(jax.jit, donate_argnums=0)
def _not_clipped(state, x, y):
    new, norm = _step(short_network, state, x, y)
    return new, jnp.minimum(norm, 0.0)


RIGHT = {
    "first": (cheap_block, cheap_block_by_shapes, cheap_block_by_einsum),
    "second": (short_network, short_network_by_shapes, short_network_by_pairs),
    "third": (good_step, good_step_by_shapes, good_step_by_einsum),
}
WRONG = {
    "first": (
        (_costly_block, "FLOPs, and at most"),
        (lambda x, down, up: x + jnp.tanh(x @ down @ up), "element .* should be"),
        (lambda x, down, up: jnp.tanh(x @ down @ up / _SCALE), "element .* should be"),
        (lambda x, down, up: x @ down / _SCALE, r"should be float32\[8, 128\]"),
    ),
    "second": (
        (_unrolled, "equations, and at most"),
        (partial(_network, _costly_block), "FLOPs, and at most"),
        (lambda params, x: cheap_block(x, params["down"][0], params["up"][0]), "element .* should be"),
        (lambda params, x: _network(cheap_block, jax.tree.map(lambda leaf: leaf[::-1], params), x),
         "element .* should be"),
    ),
    "third": (
        (_jitted_in_each_step, "a new function object"),
        (_weights_first, "FLOPs, and at most"),
        (_with_python_loop, "equations, and at most"),
        (_not_donated, "bytes .*at (its|the) peak, and at most"),
        (_not_clipped, "should be"),
    ),
}  # fmt: skip
