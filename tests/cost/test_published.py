"""Published costs of networks against our counts by the same convention; `benchmarks.published` has both.

Papers count only the multiply-adds of matrix products and convolutions, including those with padding, and attention
over all pairs of tokens. Some count one FLOP for each, some two; each entry states which.
"""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks.published import PUBLISHED, TOKENS, Published, padded_products
from mithril_nb.inspection import Inspection

EXACT = {
    "LeNet-5": 416_520,
    "VGG-16": 15_470_264_320,
    "ResNet-18": 1_814_073_344,
    "ResNet-34": 3_663_761_408,
    "ResNet-50": 4_089_184_256,
    "ViT-B/16": 17_563_828_224,
    "BERT-base, 128 tokens": 22_348_431_360,
    "GPT-2 small, 1,024 tokens": 291_648_307_200,
}
"""Exact counts, by the formulas below."""


@cache
def named(network: str) -> Inspection:
    """Trace a network once for all tests."""
    return next(one for one in PUBLISHED if one.network == network).inspected()


def products(inspection: Inspection, *parts: str) -> int:
    """FLOPs of the products of the blocks that have one of these in their paths."""
    every = [(row.blocks[0][0], count) for row, count in padded_products(inspection)]
    return 2 * sum(count for block, count in every if not parts or any(part in block for part in parts))


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.network)
def test_costs_are_within_one_percent_of_published_figures(one: Published) -> None:
    found = named(one.network)
    assert one.counted(found) == pytest.approx(one.figure, rel=0.01)
    assert one.counted(found) == EXACT[one.network]
    assert found.cost().total.params == one.params
    assert not found.is_lowered


def test_vgg_16() -> None:
    """Each 3x3 convolution reads 9 pixels of all input channels, at each pixel of its image."""
    total, before = 0, 3
    for size, channels, count in ((224, 64, 2), (112, 128, 2), (56, 256, 3), (28, 512, 3), (14, 512, 3)):
        for _ in range(count):
            total += size * size * 9 * before * channels
            before = channels
    assert total + 7 * 7 * 512 * 4096 + 4096 * 4096 + 4096 * 1000 == EXACT["VGG-16"]


@pytest.mark.parametrize(("network", "layers"), [("ResNet-18", (2, 2, 2, 2)), ("ResNet-34", (3, 4, 6, 3))])
def test_small_resnets(network: str, layers: tuple[int, ...]) -> None:
    """Each block has two 3x3 convolutions; the first in each stage after the first has half as many input channels."""
    total = 112 * 112 * 64 * 7 * 7 * 3 + 512 * 1000
    for stage, count in enumerate(layers):
        size, channels = 56 >> stage, 64 << stage
        total += 2 * count * size * size * 9 * channels * channels
        if stage:  # and the shortcut has a 1x1 convolution
            total += size * size * channels * (channels // 2) * (1 - 9)
    assert total == EXACT[network]


def transformer(tokens: int, layers: int = 12, width: int = 768) -> tuple[int, int]:
    """Return the multiply-adds of a transformer: of 12 * width * width weights in each layer, and of attention."""
    return layers * tokens * 12 * width**2, layers * 2 * tokens**2 * width


def test_vit_b_16() -> None:
    maps, attention = transformer(197)
    whole = 196 * 16 * 16 * 3 * 768 + maps + attention + 768 * 1000
    assert whole == EXACT["ViT-B/16"]
    assert whole - attention == pytest.approx(16.87e9, rel=0.01)  # the figure of papers that leave attention out
    assert products(named("ViT-B/16"), "attention/attention") == 2 * attention


def test_bert_base() -> None:
    pooler = 768 * 768
    assert 2 * (sum(transformer(128)) + pooler) == EXACT["BERT-base, 128 tokens"]
    # With all other arithmetic, which most papers leave out, it also reaches the published figure.
    assert named("BERT-base, 128 tokens").cost().total.flops == pytest.approx(22.5e9, rel=0.01)


def test_gpt_2_and_two_rules_of_thumb() -> None:
    gpt = named("GPT-2 small, 1,024 tokens")
    maps, attention = transformer(TOKENS)
    head = TOKENS * 768 * 50257
    assert 2 * (maps + attention + head) == EXACT["GPT-2 small, 1,024 tokens"]
    assert products(gpt, "head") == 2 * head
    assert products(gpt, "attention/attention") == 2 * attention
    # PaLM (Chowdhery et al., 2022, appendix B), forward a third of it: 2 N + 4 L T D for each token. N is without the
    # positions, which nothing is multiplied with; the words' embedding is in it, as the scores are made with it.
    n = 124_439_808 - 1024 * 768
    assert products(gpt) == pytest.approx(TOKENS * (2 * n + 4 * 12 * TOKENS * 768), rel=0.01)
    # Kaplan et al., 2020: 2 N + 2 L T D, N without all embeddings. They leave out the scores of the words, and the half
    # of attention that the mask hides.
    n = 12 * 12 * 768**2
    assert products(gpt) - 2 * head - attention == TOKENS * (2 * n + 2 * 12 * TOKENS * 768)


def test_lenet_5_layer_by_layer() -> None:
    """LeCun et al., 1998, count connections: a multiply-add each, and one for each bias that is added."""
    found = named("LeNet-5")
    count = {row.blocks[0][0]: count for row, count in padded_products(found)}
    assert count["conv2d_0"] + 6 * 28 * 28 == 122_304
    assert count["conv2d_1"] * 60 // 96 + 16 * 10 * 10 == 151_600  # they connect 60 of the 96 pairs of maps
    assert count["linear_0"] + 120 == 48_120
    assert count["linear_1"] + 84 == 10_164
    assert {path: figures.params for path, figures in found.cost().by_block.items() if figures.params} == {
        "conv2d_0": 156, "conv2d_1": 2_416, "linear_0": 48_120, "linear_1": 10_164, "linear_2": 850,
    }  # fmt: skip
