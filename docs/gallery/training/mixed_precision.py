"""Mixed precision with loss scaling.

The parameters stay in float32, the products are in float16, and the loss is scaled so that small gradients do not
vanish; if one is not finite, the step is skipped. Find the conversions that the compiler adds to those of the jaxpr.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def loss(params, x, y):
    half = jax.tree.map(lambda value: value.astype(jnp.float16), params)
    hidden = jax.nn.relu(x.astype(jnp.float16) @ half["hidden"])
    output = (hidden @ half["head"]).astype(jnp.float32)
    return ((output - y) ** 2).mean()


def step(params, scale, x, y):
    scaled = jax.grad(lambda params: loss(params, x, y) * scale)(params)
    grads = jax.tree.map(lambda grad: grad / scale, scaled)
    is_finite = jnp.all(jnp.array([jnp.isfinite(grad).all() for grad in jax.tree.leaves(grads)]))
    updated = jax.tree.map(lambda param, grad: jnp.where(is_finite, param - 0.1 * grad, param), params, grads)
    return updated, jnp.where(is_finite, scale, scale / 2)


array = jax.ShapeDtypeStruct
params = {"hidden": array((256, 512), jnp.float32), "head": array((512, 16), jnp.float32)}
scale = array((), jnp.float32)
p = ml.inspect(step, params, scale, array((128, 256), jnp.float32), array((128, 16), jnp.float32))
