"""Graph convolution over a list of edges.

Two layers of a graph network: each node receives the messages of its neighbours by a gather and a segment sum. These
have few FLOPs or none, and move many bytes: compare the roofline of the messages with that of the products.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def graph_convolution(nodes, senders, receivers, weight):
    with jax.named_scope("transform"):
        messages = nodes @ weight
    with jax.named_scope("messages"):
        ones = jnp.ones(len(senders), nodes.dtype)
        out_degree = jax.ops.segment_sum(ones, senders, len(nodes)) + 1  # each node also sends to itself
        in_degree = jax.ops.segment_sum(ones, receivers, len(nodes)) + 1
        messages /= jnp.sqrt(out_degree)[:, None]
        received = messages + jax.ops.segment_sum(messages[senders], receivers, len(nodes))
        return received / jnp.sqrt(in_degree)[:, None]


def network(params, nodes, senders, receivers):
    x = jax.nn.relu(graph_convolution(nodes, senders, receivers, params["hidden"]))
    return jax.nn.log_softmax(graph_convolution(x, senders, receivers, params["head"]))


array = jax.ShapeDtypeStruct
params = {"hidden": array((256, 64), jnp.float32), "head": array((64, 7), jnp.float32)}
edges = array((10_000,), jnp.int32)
p = ml.inspect(network, params, array((2_000, 256), jnp.float32), edges, edges)
