"""Deep Q-learning with a target network.

Double Q-learning: the trained network picks the next action, and the slow target network rates it. `stop_gradient` cuts
the target off: of three forward passes, only one has a backward pass.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

DISCOUNT, RATE, SLOWNESS = 0.99, 1e-3, 0.995


def q_values(params, observations):
    return jax.nn.relu(observations @ params["hidden"]) @ params["head"]


def loss(params, slow, batch):
    with jax.named_scope("target"):
        best = q_values(params, batch["next"]).argmax(1)
        future = jnp.take_along_axis(q_values(slow, batch["next"]), best[:, None], axis=1)[:, 0]
        target = jax.lax.stop_gradient(batch["rewards"] + DISCOUNT * (1 - batch["is_last"]) * future)
    with jax.named_scope("online"):
        values = q_values(params, batch["observations"])
        errors = jnp.take_along_axis(values, batch["actions"][:, None], axis=1)[:, 0] - target
    with jax.named_scope("huber"):
        return jnp.where(jnp.abs(errors) < 1, errors**2 / 2, jnp.abs(errors) - 0.5).mean()


def step(params, slow, batch):
    value, grads = jax.value_and_grad(loss)(params, slow, batch)
    params = jax.tree.map(lambda param, grad: param - RATE * grad, params, grads)
    slow = jax.tree.map(lambda old, new: SLOWNESS * old + (1 - SLOWNESS) * new, slow, params)
    return value, params, slow


array = jax.ShapeDtypeStruct
params = {"hidden": array((8, 128), jnp.float32), "head": array((128, 4), jnp.float32)}
numbers, observations = array((128,), jnp.float32), array((128, 8), jnp.float32)
batch = {"observations": observations, "next": observations, "actions": array((128,), jnp.int32)}
p = ml.inspect(step, params, params, batch | {"rewards": numbers, "is_last": numbers})
