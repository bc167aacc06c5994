"""Networks with published costs, composed as mithril_nb models, and the published figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import mithril_nb as ml
from mithril_nb.cost import CostRow
from mithril_nb.inspection import Inspection
from mithril_nb.models import (
    GPT,
    Add,
    AvgPool2d,
    Concat,
    Conv2d,
    Embedding,
    Flatten,
    Indexer,
    IOKey,
    LayerNorm,
    LearnedPositions,
    Linear,
    MaxPool2d,
    Model,
    Relu,
    Reshape,
    ResNet,
    Tanh,
    TransformerEncoder,
    Transpose,
)
from mithril_nb.stages.records import Equation

TOKENS = 1024
"""Number of tokens for GPT-2: its full context."""


@dataclass(frozen=True)
class Published:
    """Published cost of a network for one input.

    Attributes:
        network: Name of the network.
        model: Composes it.
        shapes: Shapes of its inputs.
        figure: The published figure.
        unit: Its unit: `"multiply-adds"`, or `"FLOPs"`, two for each. Both count only matrix products and
            convolutions, padding included, and attention over all pairs of tokens, masked or not.
        params: The published number of parameters, exactly.
        source: Source of the figure, and how it was counted.
    """

    network: str
    model: Callable[[], Model]
    shapes: Mapping[str, Sequence[int]]
    figure: float
    unit: str
    params: int
    source: str

    def inspected(self) -> Inspection:
        """Return the forward program of one input; nothing is run and no array is allocated."""
        return ml.inspect(self.model(), shapes=self.shapes, name=self.network)

    def counted(self, inspection: Inspection) -> int:
        """Return our count in the same unit."""
        found = sum(count for _, count in padded_products(inspection))
        return 2 * found if self.unit == "FLOPs" else found


def padded_products(inspection: Inspection) -> list[tuple[CostRow, int]]:
    """Return the cost of each matrix product and convolution, and its multiply-adds as papers count: with padding."""
    by_id = {one.id: one for one in inspection.equations}
    rows = [row for row in inspection.cost().rows if row.macs]
    return [
        (
            row,
            (row.repeats or 0) * padded_pairs(by_id[row.id]) if row.opcode == "conv_general_dilated" else row.macs or 0,
        )
        for row in rows
    ]


def padded_pairs(convolution: Equation) -> int:
    """Return the multiply-adds of one run of a convolution of an undilated input or kernel, with padding."""
    param: Any = convolution.param
    (left, kernel), out = convolution.inputs, convolution.outputs[0]
    left_axes, kernel_axes, out_axes = param["dimension_numbers"]
    places = prod(
        # In a dilated input, each element is multiplied once by each element of the kernel.
        int(kernel.shape[taps]) * int(out.shape[made] if base == 1 else left.shape[given])
        for taps, made, given, base in zip(
            kernel_axes[2:], out_axes[2:], left_axes[2:], param["lhs_dilation"], strict=True
        )
    )
    batch = int(left.shape[left_axes[0]]) // param["batch_group_count"]
    channels = int(left.shape[left_axes[1]]) // param["feature_group_count"]
    return batch * channels * int(kernel.shape[kernel_axes[0]]) * places


def lenet_5() -> Model:
    """Return LeNet-5 for digits of 32 x 32; each map of its second convolution reads all maps of the first."""
    model = Model()
    for channels in (6, 16):
        model += Conv2d(channels, 5, padding=0)
        model += Tanh()
        model += AvgPool2d(2)
    model += Flatten()
    for width in (120, 84):
        model += Linear(width)
        model += Tanh()
    return model + Linear(10)


def vgg_16() -> Model:
    """Return VGG-16, configuration D."""
    model = Model()
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            model += Conv2d(channels, 3, padding=1)
            model += Relu()
        model += MaxPool2d(2)
    model += Flatten()
    for width in (4096, 4096):
        model += Linear(width)
        model += Relu()
    return model + Linear(1000)


def vit_b_16() -> Model:
    """Return ViT-B/16: patches of 16 x 16 after a class token."""
    model = Model()
    model += Conv2d(768, 16, stride=16, padding=0, name="patches")
    model += Reshape((1, 768, 196))
    model += Transpose((0, 2, 1), name="tokens")
    token = IOKey("class_token", shape=(1, 1, 768), differentiable=True)
    model |= Concat(2, axis=1, name="joined")(input1=token, input2="tokens.output")
    model += LearnedPositions(197, name="positions")
    model += TransformerEncoder(12, 768, 12, name="encoder")
    model += Indexer(("...", 0, ("slice", None, None, None)), name="class")
    return model + Linear(1000, name="head")


def bert_base() -> Model:
    """Return BERT-base with its pooler, a layer on the first token."""
    model = Model()
    model |= Embedding(30522, 768, name="words")(input="input")
    model |= Embedding(2, 768, name="kinds")(input="kinds_of_tokens")
    model |= Add(name="sum")(left="words.output", right="kinds.output")
    model += LearnedPositions(512, name="positions")
    model += LayerNorm(name="norm")
    model += TransformerEncoder(12, 768, 12, norm_first=False, name="encoder")
    model += Indexer(("...", 0, ("slice", None, None, None)), name="first")
    model += Linear(768, name="pooler")
    return model + Tanh()


def resnet(*layers: int, bottleneck: bool = False) -> Model:
    """Return a ResNet with torchvision's strides: in the 3x3 convolutions, not in the 1x1 before them."""
    return ResNet(layers, bottleneck=bottleneck)


_PHOTO = {"input": (1, 3, 224, 224)}
_TORCHVISION = "torchvision, table of its weights (it calls multiply-adds FLOPs)"
PUBLISHED = (
    Published(
        "LeNet-5", lenet_5, {"input": (1, 1, 32, 32)}, 416_520, "multiply-adds", 61_706,
        "LeCun et al., 1998, by hand: 117,600 + 240,000 + 48,000 + 10,080 + 840, if the second convolution reads all "
        "maps (theirs leaves out 36 of 96 pairs)",
    ),
    Published("VGG-16", vgg_16, _PHOTO, 15.47e9, "multiply-adds", 138_357_544, _TORCHVISION),
    Published("ResNet-18", partial(resnet, 2, 2, 2, 2), _PHOTO, 1.81e9, "multiply-adds", 11_689_512, _TORCHVISION),
    Published("ResNet-34", partial(resnet, 3, 4, 6, 3), _PHOTO, 3.66e9, "multiply-adds", 21_797_672, _TORCHVISION),
    Published(
        "ResNet-50", partial(resnet, 3, 4, 6, 3, bottleneck=True), _PHOTO, 4.09e9, "multiply-adds", 25_557_032,
        f"{_TORCHVISION}; He et al., 2016, say 3.8 of one whose 1x1 convolutions have the strides",
    ),
    Published(
        "ViT-B/16", vit_b_16, _PHOTO, 17.56e9, "multiply-adds", 86_567_656,
        f"{_TORCHVISION}; figures near 16.9 leave out the two products of attention",
    ),
    Published(
        "BERT-base, 128 tokens", bert_base, {"input": (1, 128), "kinds_of_tokens": (1, 128)}, 22.5e9, "FLOPs",
        109_482_240, "Sun et al., 2020 (MobileBERT): 22.5 B FLOPs at 128 tokens; params as in Hugging Face",
    ),
    Published(
        "GPT-2 small, 1,024 tokens", GPT, {"input": (1, TOKENS)}, 291_648_307_200, "FLOPs", 124_439_808,
        "Karpathy, nanoGPT, transformer_sizing: forward, the scores of all words included",
    ),
)  # fmt: skip
