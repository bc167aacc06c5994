"""Clipped loss of PPO.

The loss of proximal policy optimization: a clipped ratio of probabilities, the error of the value, and an entropy
bonus. Policy and value share a hidden layer: find the equation that adds their gradients.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

CLIP, VALUE, ENTROPY = 0.2, 0.5, 0.01


def loss(params, batch):
    with jax.named_scope("shared"):
        hidden = jnp.tanh(batch["observations"] @ params["hidden"])
    with jax.named_scope("policy"):
        log_probabilities = jax.nn.log_softmax(hidden @ params["policy"])
        chosen = jnp.take_along_axis(log_probabilities, batch["actions"][:, None], axis=1)[:, 0]
        ratios = jnp.exp(chosen - batch["log_probabilities"])
        advantages = (batch["advantages"] - batch["advantages"].mean()) / (batch["advantages"].std() + 1e-8)
        gain = jnp.minimum(ratios * advantages, jnp.clip(ratios, 1 - CLIP, 1 + CLIP) * advantages).mean()
        entropy = -(jnp.exp(log_probabilities) * log_probabilities).sum(1).mean()
    with jax.named_scope("value"):
        error = ((hidden @ params["value"] - batch["returns"]) ** 2).mean()
    return VALUE * error - gain - ENTROPY * entropy


array = jax.ShapeDtypeStruct
params = {
    "hidden": array((8, 64), jnp.float32),
    "policy": array((64, 4), jnp.float32),
    "value": array((64,), jnp.float32),
}
numbers = array((256,), jnp.float32)
batch = {"observations": array((256, 8), jnp.float32), "actions": array((256,), jnp.int32)}
batch |= {"log_probabilities": numbers, "advantages": numbers, "returns": numbers}
p = ml.inspect(jax.value_and_grad(loss), params, batch)
