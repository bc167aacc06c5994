"""Matrix products and convolutions of whole networks against closed forms, exact to the FLOP."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_programs import spec

import mithril_nb as ml
from benchmarks.corpus import corpus
from benchmarks.published import padded_products
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.models import Conv2d, Linear, Model, MultiHeadAttention

CORPUS = corpus(full=True)
BATCH, TIME, LAYERS, WIDTH, VOCABULARY = 2, 128, 12, 768, 50257
IMAGES = 32
STEM = 2 * 112 * 112 * 64 * 7 * 7 * 3
"""FLOPs of the first convolution of a ResNet-50, whose input needs no gradient."""


def of_corpus(name: str) -> Inspection:
    fn, args = CORPUS[name]()
    return inspect(fn, *args, name=name)


def products(inspection: Inspection, role: str | None = None) -> int:
    """The FLOPs of rows that are matrix products or convolutions."""
    found = ("dot_general", "conv_general_dilated")
    rows = [row for row in inspection.cost().rows if row.opcode in found and role in (None, row.role)]
    assert None not in {row.flops for row in rows}
    return sum(row.flops or 0 for row in rows)


def gpt2_forward() -> int:
    """Return the FLOPs of the projections in each layer, attention scores and values, and the logits."""
    tokens = BATCH * TIME
    maps = 2 * tokens * WIDTH * (3 * WIDTH + WIDTH + 4 * WIDTH + 4 * WIDTH)
    attention = 2 * 2 * BATCH * TIME * TIME * WIDTH
    return LAYERS * (maps + attention) + 2 * tokens * WIDTH * VOCABULARY


def resnet50_forward() -> int:
    """Of one image of 224 x 224, padding counted: `2 * height * width * kernel * channels in * channels out`."""
    total, channels = STEM + 2 * 2048 * 1000, 64
    for size, inner, blocks in ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3)):
        for number in range(blocks):
            first = 2 * size if number == 0 and size < 56 else size  # the 3x3 convolution makes the image smaller
            total += 2 * first * first * channels * inner
            total += 2 * size * size * inner * (9 * inner + 4 * inner)
            total += 2 * size * size * channels * 4 * inner if number == 0 else 0
            channels = 4 * inner
    return total


@pytest.mark.parametrize("name", ["GPT-2 small", "GPT-2 small by scan", "mithril_nb GPT"])
def test_gpt_2_small(name: str) -> None:
    assert products(of_corpus(f"{name}, forward")) == gpt2_forward() == 64_456_359_936
    if name != "mithril_nb GPT":
        # In the backward pass, each product needs two more: the gradient of each operand.
        step = of_corpus(f"{name}, train step")
        assert products(step) == 3 * gpt2_forward() == 193_369_079_808
        assert products(step, "forward") == gpt2_forward()


def test_remat_recomputes_all_but_the_head() -> None:
    head = 2 * BATCH * TIME * WIDTH * VOCABULARY
    # The last product of a layer is an input of the next one, so it is not recomputed.
    last = LAYERS * 2 * BATCH * TIME * WIDTH * 4 * WIDTH
    step = of_corpus("GPT-2 small by scan and remat, train step")
    assert products(step) == 4 * gpt2_forward() - head - last


def test_resnet_50_with_padding_counted() -> None:
    forward = of_corpus("ResNet-50, forward")
    found = padded_products(forward)
    assert 2 * sum(count for _, count in found) == IMAGES * resnet50_forward() == IMAGES * 8_178_368_512
    # The products with padding, which XLA and our FLOPs leave out, by convolution.
    assert products(forward) == IMAGES * (8_178_368_512 - 281_864_704)
    assert forward.cost().macs == products(forward) // 2
    assert [row.opcode for row, _ in found] == ["conv_general_dilated"] * 53 + ["dot_general"]
    padded = [count - (row.macs or 0) for row, count in found if count != row.macs]
    assert len(padded) == 1 + 16  # the first one, and the 3x3 of each block
    assert 2 * sum(padded) == IMAGES * 281_864_704


def test_padding_of_the_convolutions_of_resnet_50() -> None:
    """A window of 3 over `n` elements reads padding at both ends, or at one end if the stride is 2."""
    total = 0
    for size, inner, blocks in ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3)):
        for number in range(blocks):
            ends = 1 if number == 0 and size < 56 else 2
            total += 2 * inner * inner * ((3 * size) ** 2 - (3 * size - ends) ** 2)
    side = 7 * 112
    ends = 2 + 0 + 1 + 3  # "SAME" pads 2 before and 3 after: outputs 0, 1 and 109 to 111 read 2, 0, 0, 1 and 3 of it
    total += 2 * 3 * 64 * (side**2 - (side - ends) ** 2)
    assert total == 281_864_704


def test_the_train_step_of_resnet_50() -> None:
    step = of_corpus("ResNet-50, train step")
    found = padded_products(step)
    assert 2 * sum(count for _, count in found) == IMAGES * (3 * resnet50_forward() - STEM)
    forward = 2 * sum(count for row, count in found if row.role == "forward")
    assert forward == IMAGES * resnet50_forward()


def test_an_lstm_and_lenet() -> None:
    batch, time, embed, hidden = 128, 64, 256, 512
    forward = of_corpus("LSTM by scan, forward")
    assert products(forward) == 2 * batch * (time * (embed + hidden) * 4 * hidden + hidden * 3)
    lenet = 28 * 28 * 25 * 6 + 10 * 10 * 25 * 6 * 16 + 400 * 120 + 120 * 84 + 84 * 10
    assert products(of_corpus("LeNet, forward")) == 2 * 64 * lenet


def dense() -> tuple[Model, list[int], int]:
    return Linear(10), [32, 784], 32 * 784 * 10


def convolution() -> tuple[Model, list[int], int]:
    return Conv2d(16, 3, stride=2, padding=1), [4, 8, 32, 32], 4 * 16 * 8 * (3 * 16 - 1) ** 2  # one row of padding


def attention() -> tuple[Model, list[int], int]:
    projections, pairs = 4 * 4 * 16 * 64 * 64, 2 * 4 * 16 * 16 * 64
    return MultiHeadAttention(64, heads=8), [4, 16, 64], projections + pairs


@pytest.mark.parametrize("make", [dense, convolution, attention])
def test_the_macs_of_a_block_match_its_formula(make: Callable[[], tuple[Model, list[int], int]]) -> None:
    model, shape, macs = make()
    assert ml.inspect(model, shapes={"input": shape}).cost().macs == macs


def test_macs_of_loops_and_of_named_sizes() -> None:
    square = spec(8, 8)
    twice = inspect(
        lambda x, w: lax.scan(lambda c, _: (jnp.tanh(c @ w) + 1, None), x, None, length=2)[0], square, square
    )
    assert twice.cost().macs == 2 * 8**3
    assert twice.cost("compiled").macs is None
    named = jax.ShapeDtypeStruct((*jax.export.symbolic_shape("N"), 3, 8, 8), "float32")
    cost = inspect(lambda x, w: lax.conv(x, w, (1, 1), "SAME"), named, spec(4, 3, 3, 3)).cost()
    assert (cost.macs, cost.at(N=2).macs) == (None, 2 * 4 * 3 * (3 * 8 - 2) ** 2)
