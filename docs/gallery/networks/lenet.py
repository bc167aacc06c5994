"""LeNet-5 with Flax.

A small convolutional network for digits. Compare the blocks by FLOPs with the blocks by parameters: the convolutions
have most of the work, and the dense layers most of the weights.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

import mithril_nb as ml


class LeNet(nn.Module):
    @nn.compact
    def __call__(self, images):
        x = nn.tanh(nn.Conv(6, (5, 5), padding="SAME", name="conv_0")(images))
        x = nn.avg_pool(x, (2, 2), (2, 2))
        x = nn.tanh(nn.Conv(16, (5, 5), padding="VALID", name="conv_1")(x))
        x = nn.avg_pool(x, (2, 2), (2, 2))
        x = x.reshape(len(x), -1)
        x = nn.tanh(nn.Dense(120, name="dense_0")(x))
        x = nn.tanh(nn.Dense(84, name="dense_1")(x))
        return nn.Dense(10, name="head")(x)


model = LeNet()
images = jax.ShapeDtypeStruct((32, 28, 28, 1), jnp.float32)
variables = jax.eval_shape(model.init, jax.random.key(0), images)
p = ml.inspect(model.apply, variables, images)
