"""Fine-tuning with low-rank adapters (LoRA).

Large weights stay frozen, and only a narrow correction of each is trained. The backward pass still goes through the
frozen weights, but has no product for their gradients: count the products of each role.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

SCALE = 2.0


def forward(adapters, frozen, x):
    for number, (weight, (down, up)) in enumerate(zip(frozen, adapters, strict=True)):
        with jax.named_scope(f"layer_{number}"):
            x = jnp.tanh(x @ weight + SCALE * (x @ down) @ up)
    return x


def step(adapters, frozen, x, y):
    def loss(adapters):
        return ((forward(adapters, frozen, x) - y) ** 2).mean()

    grads = jax.grad(loss)(adapters)
    return jax.tree.map(lambda param, grad: param - 0.01 * grad, adapters, grads)


array = jax.ShapeDtypeStruct
frozen = [array((512, 512), jnp.float32)] * 3
adapters = [(array((512, 8), jnp.float32), array((8, 512), jnp.float32))] * 3
x = array((64, 512), jnp.float32)
p = ml.inspect(step, adapters, frozen, x, x, params=("adapters", "frozen"))
