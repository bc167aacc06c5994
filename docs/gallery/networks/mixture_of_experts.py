"""Mixture of experts, two of eight.

A router picks two experts for each token. This dense form computes all experts for all tokens and multiplies most
results by zero: see how the FLOPs of the experts grow with their number, not with the number that is used.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

EXPERTS, USED = 8, 2


def mixture(params, tokens):
    with jax.named_scope("router"):
        scores, chosen = jax.lax.top_k(tokens @ params["router"], USED)
        weights = jax.nn.softmax(scores)
        gates = (jax.nn.one_hot(chosen, params["router"].shape[1]) * weights[..., None]).sum(-2)
    with jax.named_scope("experts"):
        hidden = jax.nn.silu(jnp.einsum("td,edh->teh", tokens, params["up"]))
        outputs = jnp.einsum("teh,ehd->ted", hidden, params["down"])
    with jax.named_scope("combine"):
        return jnp.einsum("ted,te->td", outputs, gates)


array = jax.ShapeDtypeStruct
params = {
    "router": array((128, EXPERTS), jnp.float32),
    "up": array((EXPERTS, 128, 256), jnp.float32),
    "down": array((EXPERTS, 256, 128), jnp.float32),
}
p = ml.inspect(mixture, params, array((512, 128), jnp.float32))
