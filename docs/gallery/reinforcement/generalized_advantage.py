"""Generalized advantage estimation.

Advantages of all environments by a scan that runs backwards in time, and stops at the ends of episodes. The temporal
differences are outside the loop, in one elementwise block; only a short recurrence is inside.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

DISCOUNT, DECAY = 0.99, 0.95


def advantages(rewards, values, is_last):
    """Return advantages and returns by time and environment; `values` has one time more than `rewards`."""
    is_running = 1.0 - is_last
    with jax.named_scope("differences"):
        differences = rewards + DISCOUNT * values[1:] * is_running - values[:-1]

    def back(later, inputs):
        difference, is_running = inputs
        advantage = difference + DISCOUNT * DECAY * is_running * later
        return advantage, advantage

    with jax.named_scope("recurrence"):
        _, result = jax.lax.scan(back, jnp.zeros(rewards.shape[1]), (differences, is_running), reverse=True)
    return result, result + values[:-1]


array = jax.ShapeDtypeStruct
rewards = array((128, 64), jnp.float32)
p = ml.inspect(advantages, rewards, array((129, 64), jnp.float32), rewards)
