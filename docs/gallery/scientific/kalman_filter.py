"""Kalman filter by scan.

Tracking with a linear model and Gaussian noise, by scan over the measurements; the log-likelihood comes with it. The
matrices are tiny: compare the number of instructions of a step with its FLOPs.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def kalman_filter(model, mean, covariance, measurements):
    def step(belief, measurement):
        mean, covariance = belief
        with jax.named_scope("predict"):
            mean = model["motion"] @ mean
            covariance = model["motion"] @ covariance @ model["motion"].T + model["motion_noise"]
        with jax.named_scope("correct"):
            surprise = measurement - model["sensor"] @ mean
            spread = model["sensor"] @ covariance @ model["sensor"].T + model["sensor_noise"]
            gain = jnp.linalg.solve(spread, model["sensor"] @ covariance).T
            mean += gain @ surprise
            covariance -= gain @ spread @ gain.T
        with jax.named_scope("likelihood"):
            distance = surprise @ jnp.linalg.solve(spread, surprise)
            log_likelihood = -0.5 * (distance + jnp.linalg.slogdet(2 * jnp.pi * spread)[1])
        return (mean, covariance), (mean, log_likelihood)

    _, (means, log_likelihoods) = jax.lax.scan(step, (mean, covariance), measurements)
    return means, log_likelihoods.sum()


array = jax.ShapeDtypeStruct
model = {
    "motion": array((4, 4), jnp.float32),
    "motion_noise": array((4, 4), jnp.float32),
    "sensor": array((2, 4), jnp.float32),
    "sensor_noise": array((2, 2), jnp.float32),
}
belief = array((4,), jnp.float32), array((4, 4), jnp.float32)
p = ml.inspect(kalman_filter, model, *belief, array((200, 2), jnp.float32), params=())
