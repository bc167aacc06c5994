"""Linear recurrence by parallel scan.

The recurrence `h[t] = a[t] h[t-1] + x[t]` of state-space models. `associative_scan` computes it in few steps that work
on many times at once, and unrolls them into the program: count the equations, and the FLOPs beside those of a loop.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def combine(earlier, later):
    """Compose two steps of the form `h -> a h + x`."""
    a_0, x_0 = earlier
    a_1, x_1 = later
    return a_1 * a_0, a_1 * x_0 + x_1


def recurrence(a, x):
    with jax.named_scope("parallel"):
        return jax.lax.associative_scan(combine, (a, x))[1]


x = jax.ShapeDtypeStruct((64, 256), jnp.float32)
p = ml.inspect(recurrence, x, x)
