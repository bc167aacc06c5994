"""Variational autoencoder.

The negative evidence lower bound and its gradients. The sample is a deterministic function of the noise, so gradients
flow through it; see how many equations the random bits add, and that their FLOPs are few.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def loss(params, key, images):
    with jax.named_scope("encoder"):
        hidden = jax.nn.relu(images @ params["encode"])
        mean, log_variance = jnp.split(hidden @ params["latent"], 2, axis=-1)
    with jax.named_scope("sample"):
        latent = mean + jnp.exp(log_variance / 2) * jax.random.normal(key, mean.shape)
    with jax.named_scope("decoder"):
        logits = jax.nn.relu(latent @ params["decode"]) @ params["pixels"]
    with jax.named_scope("bound"):
        reconstruction = (jax.nn.softplus(logits) - images * logits).sum(-1)
        divergence = 0.5 * (jnp.exp(log_variance) + mean**2 - 1 - log_variance).sum(-1)
        return (reconstruction + divergence).mean()


array = jax.ShapeDtypeStruct
params = {
    "encode": array((784, 256), jnp.float32),
    "latent": array((256, 2 * 16), jnp.float32),
    "decode": array((16, 256), jnp.float32),
    "pixels": array((256, 784), jnp.float32),
}
p = ml.inspect(jax.value_and_grad(loss), params, jax.random.key(0), array((64, 784), jnp.float32))
