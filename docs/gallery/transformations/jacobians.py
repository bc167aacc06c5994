"""Jacobian in forward and in reverse mode.

A function from few inputs to many outputs, whose Jacobian is computed column by column with `jvp` and row by row with
`vjp`. Both are equal, but the FLOPs of the two blocks differ: forward mode pays per input, reverse mode per output.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def network(params, x):
    return jnp.tanh(x @ params["hidden"]) @ params["head"]


def jacobians(params, x):
    with jax.named_scope("forward_mode"):
        push = jax.vmap(lambda tangent: jax.jvp(lambda x: network(params, x), (x,), (tangent,))[1], out_axes=1)
        columns = push(jnp.eye(x.size))
    with jax.named_scope("reverse_mode"):
        output, pull = jax.vjp(lambda x: network(params, x), x)
        (rows,) = jax.vmap(pull)(jnp.eye(output.size))
    return columns, rows


array = jax.ShapeDtypeStruct
params = {"hidden": array((8, 64), jnp.float32), "head": array((64, 256), jnp.float32)}
p = ml.inspect(jacobians, params, array((8,), jnp.float32))
