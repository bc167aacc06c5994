"""Loss and gradients of a small GPT.

A language model whose equal layers run in one `jax.lax.scan` over stacked parameters, so the program is as long for two
layers as for a hundred. Follow the residual stream: the backward pass is a second scan in the other direction.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

WIDTH, HEADS, LAYERS, VOCABULARY, LENGTH = 128, 4, 6, 512, 64


def normalize(x):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def layer(x, params):
    length = x.shape[-2]
    with jax.named_scope("attention"):
        qkv = jnp.einsum("btc,cnhd->nbhtd", normalize(x), params["qkv"])
        scores = qkv[0] @ qkv[1].mT / jnp.sqrt(qkv.shape[-1])
        weights = jax.nn.softmax(jnp.where(jnp.tri(length, dtype=bool), scores, -jnp.inf))
        x += jnp.swapaxes(weights @ qkv[2], 1, 2).reshape(x.shape) @ params["out"]
    with jax.named_scope("mlp"):
        x += jax.nn.gelu(normalize(x) @ params["up"]) @ params["down"]
    return x, None


def loss(params, tokens):
    x = params["embed"][tokens[:, :-1]] + params["positions"]
    x, _ = jax.lax.scan(layer, x, params["layers"])
    with jax.named_scope("head"):
        scores = jax.nn.log_softmax(normalize(x) @ params["embed"].T)
        return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1).mean()


def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


params = {
    "embed": array(VOCABULARY, WIDTH),
    "positions": array(LENGTH, WIDTH),
    "layers": {
        "qkv": array(LAYERS, WIDTH, 3, HEADS, WIDTH // HEADS),
        "out": array(LAYERS, WIDTH, WIDTH),
        "up": array(LAYERS, WIDTH, 4 * WIDTH),
        "down": array(LAYERS, 4 * WIDTH, WIDTH),
    },
}
p = ml.inspect(jax.value_and_grad(loss), params, jax.ShapeDtypeStruct((8, LENGTH + 1), jnp.int32))
