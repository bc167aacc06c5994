"""Product of a Hessian and a vector.

Forward mode over reverse mode gives the product without the Hessian, for a few times the FLOPs of the loss. See that no
array has the size of the parameters squared.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def loss(weights, x, labels):
    """Return the regularized loss of a logistic regression with labels -1 and 1."""
    margins = labels * (x @ weights)
    return jnp.logaddexp(0.0, -margins).mean() + 0.005 * weights @ weights


def hessian_vector_product(weights, vector, x, labels):
    gradient = jax.grad(lambda weights: loss(weights, x, labels))
    return jax.jvp(gradient, (weights,), (vector,))[1]


array = jax.ShapeDtypeStruct
weights = array((2_000,), jnp.float32)
p = ml.inspect(hessian_vector_product, weights, weights, array((512, 2_000), jnp.float32), array((512,), jnp.float32))
