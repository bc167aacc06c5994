"""Training step with Adam from Optax.

Adam keeps two moving averages per parameter. Its work is elementwise, and moves far more bytes per FLOP than the
products do: look at the bytes of the optimizer, and at how few of them are left after fusion.
"""

import jax
import jax.numpy as jnp
import optax

import mithril_nb as ml

optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, weight_decay=0.01))


def loss(params, x, y):
    for weight, bias in params[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = params[-1]
    return ((x @ weight + bias - y) ** 2).mean()


def step(params, state, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    with jax.named_scope("optimizer"):
        updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return value, params, state


array = jax.ShapeDtypeStruct
params = [(array((a, b), jnp.float32), array((b,), jnp.float32)) for a, b in [(64, 256), (256, 8)]]
state = jax.eval_shape(optimizer.init, params)
p = ml.inspect(step, params, state, array((128, 64), jnp.float32), array((128, 8), jnp.float32))
