"""Solutions of the puzzles of lesson 11, and wrong tries with the reason that the puzzle gives."""

import jax
import jax.numpy as jnp
import numpy as np


def concise(signal):
    centered = signal - signal.mean()
    return centered / jnp.sqrt((centered**2).mean())


def concise_by_rsqrt(signal):
    centered = signal - jnp.sum(signal) / len(signal)
    return centered * jax.lax.rsqrt(jnp.sum(centered * centered) / len(signal))


@jax.jit
def concise_by_dot(signal):
    centered = signal - signal.mean()
    return centered / jnp.sqrt(centered @ centered / centered.size)


def direct(signal):
    return signal * 0.5 + 1.0


def direct_with_scalars(signal):
    return jnp.float16(0.5) * signal + jnp.float16(1.0)


@jax.jit
def direct_factored(signal):
    return 0.5 * (signal + 2)


def rolled(signal):
    def body(average, sample):
        average = 0.9 * average + 0.1 * sample
        return average, average

    return jax.lax.scan(body, 0.0, signal)[1]


@jax.jit
def rolled_by_fori(signal):
    def body(index, state):
        average, averages = state
        average = 0.9 * average + 0.1 * signal[index]
        return average, averages.at[index].set(average)

    return jax.lax.fori_loop(0, len(signal), body, (jnp.float32(0), jnp.zeros_like(signal)))[1]


def rolled_by_product(signal):
    lag = np.arange(len(signal))[:, None] - np.arange(len(signal))
    weights = np.where(lag >= 0, 0.1 * 0.9 ** np.maximum(lag, 0), 0.0)
    return jnp.asarray(weights, signal.dtype) @ signal


def _long(signal):
    average, averages = 0.0, []
    for sample in signal:
        average = 0.9 * average + 0.1 * sample
        averages.append(average)
    return jnp.stack(averages)


def _of_old_average(signal):
    return jax.lax.scan(lambda average, sample: (0.9 * average + 0.1 * sample, average), 0.0, signal)[1]


RIGHT = {
    "fewer_equations": (concise, concise_by_rsqrt, concise_by_dot),
    "half_precision": (direct, direct_with_scalars, direct_factored),
    "moving_average": (rolled, rolled_by_fori, rolled_by_product),
}
WRONG = {
    "fewer_equations": (
        (lambda signal: (signal - signal.mean()) / jnp.sqrt(((signal - signal.mean()) ** 2).mean()),
         "equations, and at most"),
        (lambda signal: signal - signal.mean(), "element .* should be"),
        (lambda signal: (signal - signal.mean()) / (signal**2).mean(), "element .* should be"),
        (lambda signal: concise(signal)[None], r"should be float32\[64\]"),
        (lambda signal: concise(signal.astype("float16")), "should be float32"),
    ),
    "half_precision": (
        (lambda signal: (signal.astype("float32") * 0.5 + 1.0).astype("float16"), "bytes, and at most"),
        (lambda signal: signal * np.float32(0.5) + 1.0, "should be float16"),
        (lambda signal: (signal * np.float32(0.5) + 1.0).astype("float16"), "bytes, and at most"),
        (lambda signal: signal / 2, "element .* should be"),
        (lambda signal: jnp.ones_like(signal), "element .* should be"),
    ),
    "moving_average": (
        (_long, "equations, and at most"),
        (_of_old_average, "element .* should be"),
        (lambda signal: rolled(signal)[-1], r"should be float32\[32\]"),
        (lambda signal: jnp.cumsum(signal) / len(signal), "element .* should be"),
        (lambda signal: [rolled(signal)], "structure"),
    ),
}  # fmt: skip
