"""Bootstrap particle filter.

Particles move at random, are weighted by each measurement, and are drawn again by their weights. The densities look
like the work, but are a small part of it: see what the random bits and the search for the drawn particles cost.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

DECAY, MOTION, SENSOR = 0.9, 0.5, 0.3


def log_normal(value, scale):
    return -0.5 * (value / scale) ** 2 - jnp.log(scale * jnp.sqrt(2 * jnp.pi))


def particle_filter(key, measurements, count=1_000):
    def step(particles, inputs):
        key, measurement = inputs
        key_move, key_draw = jax.random.split(key)
        with jax.named_scope("move"):
            particles = DECAY * particles + MOTION * jax.random.normal(key_move, (count,))
        with jax.named_scope("weigh"):
            log_weights = log_normal(measurement - particles, SENSOR)
            log_likelihood = jax.nn.logsumexp(log_weights) - jnp.log(count)
            weights = jax.nn.softmax(log_weights)
        with jax.named_scope("resample"):
            levels = (jnp.arange(count) + jax.random.uniform(key_draw)) / count
            chosen = jnp.searchsorted(jnp.cumsum(weights), levels)
            resampled = particles[jnp.minimum(chosen, count - 1)]
        return resampled, (weights @ particles, log_likelihood)

    key_start, key_steps = jax.random.split(key)
    start = jax.random.normal(key_start, (count,))
    keys = jax.random.split(key_steps, len(measurements))
    _, (means, log_likelihoods) = jax.lax.scan(step, start, (keys, measurements))
    return means, log_likelihoods.sum()


p = ml.inspect(particle_filter, jax.random.key(0), jax.ShapeDtypeStruct((50,), jnp.float32))
