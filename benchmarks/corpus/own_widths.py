"""Train steps in which each block has a unique width, so that the shapes of a line identify its block.

The widths are primes that divide no other size, so they can be recognised after the compiler joins axes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

import mithril_nb as ml
from benchmarks.corpus.convolutional import batch_norm, convolution
from benchmarks.corpus.modules import Make, equinox_step, nnx_step
from benchmarks.corpus.networks import mean_square
from benchmarks.corpus.program import Program, adam_step, spec
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.models import Gelu, LayerNorm, Linear, Model, MultiHeadAttention
from mithril_nb.stages.records import Instruction

BATCH, TIME, WIDTH, HEADS = 4, 3, 8, 2
ATTENTION, INNER = (11, 13), (17, 19)
"""Widths of the heads, and inside of the other half, of each of two blocks."""

OWNERS = {
    **{width: f"blocks/{number}/attention" for number, width in enumerate(ATTENTION)},
    **{width: f"blocks/{number}" for number, width in enumerate(INNER)},
}
"""Path of the block that has a width."""

_LEFT_OUT = frozenset(
    "parameter constant tuple get-tuple-element fusion while call conditional func.func return stablehlo.return "
    "stablehlo.constant stablehlo.while jit pjit custom_jvp_call custom_vjp_call".split()
)


def own_widths() -> dict[str, Make]:
    """Return, by name, functions that inspect a train step."""
    x, optimizer = spec(BATCH, TIME, WIDTH), optax.adam(1e-3)
    ours: dict[str, Any] = {"loss": "mean_squared_error", "optimizer": optimizer}
    nnx, equinox = nnx_model(), equinox_model()
    by_nnx, held = nnx_step(nnx, optimizer, mean_square)
    by_equinox, state = equinox_step(equinox, optimizer, mean_square)
    convolve, args = convolutions()
    return {
        "mithril_nb blocks, train step": partial(ml.inspect, own_model(), shapes={"input": list(x.shape)}, **ours),
        "blocks of Flax nnx, mithril_nb train step": partial(ml.inspect, nnx, x, **ours),
        "blocks of Flax nnx, hand-written train step": partial(ml.inspect, by_nnx, nnx, held, x, x),
        "blocks of Equinox, mithril_nb train step": partial(ml.inspect, equinox, spec(TIME, WIDTH), **ours),
        "blocks of Equinox, hand-written train step": partial(ml.inspect, by_equinox, equinox, state, x, x),
        "convolutions, train step": partial(inspect, convolve, *args),
    }


def by_width(instructions: Iterable[Instruction]) -> list[tuple[Instruction, bool]]:
    """Return the instructions with a block's width in their result or operands, and whether they have that block.

    Instructions that only name data, or contain other checked instructions, are left out.
    """
    known = {one.id: one for one in instructions}
    found = []
    for one in known.values():
        specs = (*one.shapes, *(spec for id in one.operands if id in known for spec in known[id].shapes))
        sizes = {size for spec in specs for size in spec.shape if isinstance(size, int) and size}
        owners = tuple(owner for width, owner in OWNERS.items() if any(size % width == 0 for size in sizes))
        if owners and one.opcode not in _LEFT_OUT:
            found.append((one, bool(one.blocks) and all(path.startswith(owners) for path in one.blocks)))
    return found


def own_model() -> Model:
    """Return a mithril_nb model."""
    blocks = Model(name="blocks")
    for number, (head, inner) in enumerate(zip(ATTENTION, INNER, strict=True)):
        attention = Model(name="attention") + Linear(HEADS * head) + MultiHeadAttention(HEADS * head, HEADS)
        block = Model(name=str(number))
        block += attention + Linear(WIDTH)
        block += Linear(inner)
        block += LayerNorm()
        block += Gelu()
        block += Linear(WIDTH)
        blocks += block
    return Model() + blocks


def nnx_model() -> Any:
    """Return a Flax nnx module whose arrays are specs."""
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, head: int, inner: int, rngs: nnx.Rngs):
            self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, HEADS * head, decode=False, rngs=rngs)
            self.up, self.down = nnx.Linear(WIDTH, inner, rngs=rngs), nnx.Linear(inner, WIDTH, rngs=rngs)
            self.norm = nnx.LayerNorm(inner, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = x + self.attention(x)
            return x + self.down(nnx.gelu(self.norm(self.up(x))))

    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.blocks = nnx.List([Block(*widths, rngs) for widths in zip(ATTENTION, INNER, strict=True)])

        def __call__(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return x

    return nnx.eval_shape(lambda: Net(nnx.Rngs(0)))


def equinox_model() -> Any:
    """Return an Equinox module whose arrays are specs."""
    import equinox as eqx

    class Block(eqx.Module):
        attention: eqx.nn.MultiheadAttention
        up: eqx.nn.Linear
        norm: eqx.nn.LayerNorm
        down: eqx.nn.Linear

        def __init__(self, head: int, inner: int, key: Any):
            keys = jax.random.split(key, 3)
            self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, qk_size=head, vo_size=head, key=keys[0])
            self.up = eqx.nn.Linear(WIDTH, inner, key=keys[1])
            self.norm = eqx.nn.LayerNorm(inner)
            self.down = eqx.nn.Linear(inner, WIDTH, key=keys[2])

        def __call__(self, x: Any) -> Any:
            x = x + self.attention(x, x, x)
            hidden = jax.nn.gelu(jax.vmap(self.norm)(jax.vmap(self.up)(x)))
            return x + jax.vmap(self.down)(hidden)

    class Net(eqx.Module):
        blocks: list[Block]

        def __init__(self, key: Any):
            self.blocks = [Block(*widths, key) for widths in zip(ATTENTION, INNER, strict=True)]

        def __call__(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return x

    return eqx.filter_eval_shape(Net, jax.random.key(0))


def convolutions() -> Program:
    """Return a train step of residual convolution blocks, each in a named scope."""
    params = [
        {
            "up": spec(1, 1, WIDTH, inner),
            "norm": {"scale": spec(inner), "shift": spec(inner)},
            "wide": spec(3, 3, inner, inner),
            "down": spec(1, 1, inner, WIDTH),
        }
        for inner in INNER
    ]

    def forward(params: Any, x: Any) -> Any:
        for number, block in enumerate(params):
            with jax.named_scope(f"blocks/{number}"):
                hidden = jax.nn.relu(batch_norm(block["norm"], convolution(block["up"], x)))
                hidden = jnp.tanh(convolution(block["wide"], hidden))
                x = x + convolution(block["down"], hidden)
        return x

    images = spec(BATCH, 16, 16, WIDTH)
    return adam_step(forward, params, images, images, loss=mean_square)
