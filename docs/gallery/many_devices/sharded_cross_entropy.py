"""Cross-entropy over a vocabulary on many devices.

Each device has the scores of a part of the vocabulary. In `shard_map` the program states the communication itself: a
maximum and two sums of one number per token, instead of gathering the scores of all words.
"""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

import mithril_nb as ml

mesh = Mesh(jax.devices(), ("model",))


def loss_of_part(hidden, weights, labels):
    """Compute the loss on one device, from its columns of the weights."""
    with jax.named_scope("scores"):
        scores = hidden @ weights
    with jax.named_scope("normalizer"):
        maximum = jax.lax.pmax(scores.max(1), "model")
        total = jax.lax.psum(jnp.exp(scores - maximum[:, None]).sum(1), "model")
    with jax.named_scope("label"):
        columns = jax.lax.axis_index("model") * scores.shape[1] + jnp.arange(scores.shape[1])
        own = jnp.where(labels[:, None] == columns, scores, 0).sum(1)
        score = jax.lax.psum(own, "model")
    return (maximum + jnp.log(total) - score).mean()


split = PartitionSpec(None, "model")
loss = jax.shard_map(
    loss_of_part, mesh=mesh, in_specs=(PartitionSpec(), split, PartitionSpec()), out_specs=PartitionSpec()
)

array = jax.ShapeDtypeStruct
weights = array((128, 1_024 * mesh.size), jnp.float32)
p = ml.inspect(loss, array((64, 128), jnp.float32), weights, array((64,), jnp.int32))
