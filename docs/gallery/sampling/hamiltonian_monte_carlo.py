"""Hamiltonian Monte Carlo.

One transition for the posterior of a logistic regression: leapfrog steps along the gradient, then a test that accepts
or rejects. The gradient is inside the scan, so it is most of the FLOPs; the random numbers are few.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

STEP, LEAPS = 0.05, 20


def log_density(weights, x, labels):
    """Return the log posterior with labels -1 and 1 and a standard normal prior, up to a constant."""
    return -jnp.logaddexp(0.0, -labels * (x @ weights)).sum() - weights @ weights / 2


def transition(key, weights, x, labels):
    gradient = jax.grad(log_density)
    key_momentum, key_accept = jax.random.split(key)
    momentum = jax.random.normal(key_momentum, weights.shape)

    def leap(state, _):
        position, momentum, slope = state
        momentum += STEP / 2 * slope
        position += STEP * momentum
        slope = gradient(position, x, labels)
        return (position, momentum + STEP / 2 * slope, slope), None

    with jax.named_scope("leapfrog"):
        start = (weights, momentum, gradient(weights, x, labels))
        (proposal, last_momentum, _), _ = jax.lax.scan(leap, start, length=LEAPS)
    with jax.named_scope("accept"):
        before = log_density(weights, x, labels) - momentum @ momentum / 2
        after = log_density(proposal, x, labels) - last_momentum @ last_momentum / 2
        accepted = jnp.log(jax.random.uniform(key_accept)) < after - before
        return jnp.where(accepted, proposal, weights), accepted


array = jax.ShapeDtypeStruct
weights = array((32,), jnp.float32)
p = ml.inspect(
    transition, jax.random.key(0), weights, array((256, 32), jnp.float32), array((256,), jnp.float32), params=()
)
