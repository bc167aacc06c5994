"""Solutions of the puzzles of lesson 18, and wrong tries with the reason that the puzzle gives, on eight devices."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

line = jax.make_mesh((8,), ("line",), axis_types=(AxisType.Auto,))
_ROWS = NamedSharding(line, P("line"))


def on_each_device(body):
    return jax.jit(jax.shard_map(body, mesh=line, in_specs=P("line"), out_specs=P("line")))


def divided(a, b):
    return jax.lax.with_sharding_constraint(a[:, None] * b, _ROWS)


divided_outside = jax.jit(jnp.outer, out_shardings=NamedSharding(line, P(None, "line")))


@jax.jit
def divided_by_device(a, b):
    return jax.shard_map(jnp.outer, mesh=line, in_specs=(P("line"), P()), out_specs=P("line"))(a, b)


@on_each_device
def softmax_of_slice(part):
    powers = jnp.exp(part - jax.lax.pmax(part.max(), "line"))
    return powers / jax.lax.psum(powers.sum(), "line")


@on_each_device
def softmax_by_log(part):
    most = jax.lax.pmax(jnp.max(part), "line")
    return jnp.exp(part - most - jnp.log(jax.lax.psum(jnp.exp(part - most).sum(), "line")))


@on_each_device
def softmax_of_sums(part):
    most = part.max()
    sums, tops = jax.lax.all_gather(jnp.exp(part - most).sum(), "line"), jax.lax.all_gather(most, "line")
    highest = tops.max()
    return jnp.exp(part - highest) / (sums * jnp.exp(tops - highest)).sum()


def _with_own_maximum(part):
    powers = jnp.exp(part - part.max())
    return powers / jax.lax.psum(powers.sum(), "line")


def _with_neighbours(part):
    forward = [(device, (device + 1) % 8) for device in range(8)]
    before = jax.lax.ppermute(part[-1:], "line", forward)
    after = jax.lax.ppermute(part[:1], "line", [(target, source) for source, target in forward])
    return jnp.concatenate([before, part, after])


@on_each_device
def smoothed_slice(part):
    wide = _with_neighbours(part)
    return (wide[:-2] + wide[1:-1] + wide[2:]) / 3


@on_each_device
def smoothed_by_convolution(part):
    return jnp.convolve(_with_neighbours(part), jnp.full(3, 1 / 3), mode="valid")


@on_each_device
def smoothed_by_edges(part):
    edges = jax.lax.all_gather(jnp.stack([part[0], part[-1]]), "line")
    device = jax.lax.axis_index("line")
    wide = jnp.concatenate([edges[device - 1, 1][None], part, edges[(device + 1) % 8, 0][None]])
    return (wide[:-2] + wide[1:-1] + wide[2:]) / 3


def _own_slice(whole, part):
    start = jax.lax.axis_index("line") * len(part)
    return jax.lax.dynamic_slice(whole, (start,), (len(part),))


def _gathered(function):
    return on_each_device(lambda part: _own_slice(function(jax.lax.all_gather(part, "line", tiled=True)), part))


def _smoothed(x):
    return (jnp.roll(x, 1) + x + jnp.roll(x, -1)) / 3


RIGHT = {
    "divided_table": (divided, divided_outside, divided_by_device),
    "split_softmax": (softmax_of_slice, softmax_by_log, softmax_of_sums),
    "neighbours": (smoothed_slice, smoothed_by_convolution, smoothed_by_edges),
}
WRONG = {
    "divided_table": (
        (lambda a, b: b * a[:, None], "bytes at its peak, and at most"),
        (jax.jit(jnp.outer, out_shardings=NamedSharding(line, P())), "bytes at its peak, and at most"),
        (lambda a, b: divided(b, a), "element .* should be"),
        (lambda a, b: divided(a, b)[:128], r"should be float32\[1024, 1024\]"),
    ),
    "split_softmax": (
        (on_each_device(jax.nn.softmax), "element .* should be"),
        (_gathered(jax.nn.softmax), "FLOPs, and at most"),
        (on_each_device(lambda part: jnp.exp(part) / jnp.exp(part).sum()), "element .* should be"),
        (on_each_device(_with_own_maximum), "element .* should be"),
        (on_each_device(lambda part: jax.nn.softmax(part)[:8]), r"should be float32\[512\]"),
    ),
    "neighbours": (
        (on_each_device(_smoothed), "element .* should be"),
        (_gathered(_smoothed), "bytes, and at most"),
        (on_each_device(lambda part: _with_neighbours(part)[1:-1]), "element .* should be"),
        (on_each_device(lambda part: _smoothed(_with_neighbours(part))), r"should be float32\[512\]"),
    ),
}  # fmt: skip
