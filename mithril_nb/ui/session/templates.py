"""The models that a workbench offers for a start, each with generated data on which it trains in seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TypedDict

import numpy as np

from mithril_nb.models.library import (
    GPT,
    LSTM,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Flatten,
    LearnedPositions,
    Linear,
    MaxPool2d,
    Mean,
    Multiply,
    Relu,
    Reshape,
    ResNet,
    Softmax,
    Sum,
    TransformerEncoder,
    Transpose,
)
from mithril_nb.models.model import Model
from mithril_nb.ui.session.design import Design, design_of

Data = tuple[np.ndarray, np.ndarray]
BATCH = 32
_COUNT, _CLASSES = 1024, 3


class TemplateData(TypedDict):
    """A template in the menu of a workbench."""

    name: str
    title: str
    summary: str
    blocks: list[tuple[str, int, int]]  # of its picture: kind, column and row
    wires: list[tuple[int, int]]  # by index of the blocks


@dataclass(frozen=True)
class Template:
    """A model with data."""

    title: str
    summary: str  # one sentence on the model and its data
    build: Callable[[], Model]
    data: Callable[[], Data]  # samples and targets, always the same
    loss: str = "cross_entropy"


def _bars(side: int, form: str) -> Data:
    """Return noisy images of a horizontal, vertical or diagonal bar, with targets by form."""
    rng = np.random.default_rng(0)
    classes, offsets = rng.integers(0, _CLASSES, _COUNT), rng.integers(0, side, _COUNT)
    bars = np.zeros((_COUNT, side, side), "float32")
    for image, kind, at in zip(bars, classes, offsets, strict=True):
        if kind == 2:
            image[:] = np.roll(np.eye(side), at, axis=1)
        else:
            (image if kind == 0 else image.T)[at] = 1
    noisy = (bars + rng.normal(scale=0.3, size=bars.shape)).astype("float32")
    pixels, images = noisy.reshape(_COUNT, -1), noisy[:, None]
    match form:
        case "pixels":
            return pixels, classes.astype("int32")
        case "images":
            return images, classes.astype("int32")
        case "clean":
            return pixels, bars.reshape(_COUNT, -1)
        case _:
            return images, bars[:, None]


def _waves() -> Data:
    """Return noisy waves of three frequencies."""
    rng = np.random.default_rng(0)
    classes, phases = rng.integers(0, _CLASSES, _COUNT), rng.uniform(0, 2 * np.pi, _COUNT)
    times = np.linspace(0, 2 * np.pi, 24)
    waves = np.sin((classes[:, None] + 1) * times + phases[:, None])
    waves += rng.normal(scale=0.2, size=waves.shape)
    return waves[..., None].astype("float32"), classes.astype("int32")


_TOKENS, _CONTEXT = 16, 16


def _countings() -> Data:
    """Return tokens that count in steps of 1 to 3, with the next token as the target of each."""
    rng = np.random.default_rng(0)
    starts, steps = rng.integers(0, _TOKENS, (_COUNT, 1)), rng.integers(1, 4, (_COUNT, 1))
    tokens = (starts + steps * np.arange(_CONTEXT + 1)) % _TOKENS
    return tokens[:, :-1].astype("int32"), tokens[:, 1:].astype("int32")


def _chain(*blocks: Model) -> Model:
    model = Model()
    for block in blocks:
        model += block
    return model


def _vit() -> Model:
    # An image of 16 × 16 pixels becomes 16 patches.
    patches = (Conv2d(32, kernel_size=4, stride=4, padding="valid"), Reshape((-1, 32, 16)), Transpose((0, 2, 1)))
    return _chain(*patches, LearnedPositions(16), TransformerEncoder(2, 32, heads=4), Mean(axis=1), Linear(_CLASSES))


def _u_net() -> Model:
    model = Model()
    fine, coarse, up = Conv2d(8), Conv2d(16), ConvTranspose2d(8, kernel_size=2, stride=2)
    model += fine
    model += (skip := Relu())
    model += MaxPool2d(2)
    model += coarse
    model += Relu()
    model += up
    model |= (joined := Concat(2, axis=1))(input1=skip.output, input2=up.output)
    model |= (mixed := Conv2d(8))(input=joined.output)
    model |= (active := Relu())(input=mixed.output)
    model |= Conv2d(1, kernel_size=1)(input=active.output, output="output")
    return model


def _experts() -> Model:
    model, count, width = Model(), 4, 16
    model += Linear(32)
    model += (hidden := Relu())
    model |= (gate := Linear(count))(input=hidden.output)
    model |= (shares := Softmax())(input=gate.output)
    model |= (weights := Reshape((-1, count, 1)))(input=shares.output)
    model |= (experts := Linear(count * width))(input=hidden.output)
    model |= (active := Relu())(input=experts.output)
    model |= (outputs := Reshape((-1, count, width)))(input=active.output)
    model |= (weighted := Multiply())(left=outputs.output, right=weights.output)
    model |= (mixed := Sum(axis=1))(input=weighted.output)
    model |= Linear(_CLASSES)(input=mixed.output, output="output")
    return model


TEMPLATES = {
    "mlp": Template(
        "MLP",
        "Two layers tell a horizontal, vertical or diagonal bar in 64 pixels.",
        lambda: _chain(Linear(32), Relu(), Linear(_CLASSES)),
        partial(_bars, 8, "pixels"),
    ),
    "lenet": Template(
        "LeNet",
        "Convolutions and pooling classify the bars in images of 16 × 16 pixels.",
        lambda: _chain(
            Conv2d(6, kernel_size=5), Relu(), MaxPool2d(2), Conv2d(16, kernel_size=5), Relu(), MaxPool2d(2),
            Flatten(), Linear(64), Relu(), Linear(_CLASSES),
        ),
        partial(_bars, 16, "images"),
    ),
    "resnet": Template(
        "ResNet",
        "Convolutions with skip connections classify images of 16 × 16 pixels.",
        lambda: _chain(ResNet((1, 1), dimension=_CLASSES, width=8, small=True)),
        partial(_bars, 16, "images"),
    ),
    "autoencoder": Template(
        "Autoencoder",
        "Four numbers describe a noisy image, from which the clean one is drawn.",
        lambda: _chain(Linear(32), Relu(), Linear(4), Linear(32), Relu(), Linear(64)),
        partial(_bars, 8, "clean"),
        "mean_squared_error",
    ),
    "lstm": Template(
        "LSTM",
        "A recurrent cell reads a wave step by step and names its frequency.",
        lambda: _chain(LSTM(16, return_sequence=False), Linear(_CLASSES)),
        _waves,
    ),
    "gpt": Template(
        "GPT",
        "Two transformer blocks continue sequences that count in steps of 1 to 3.",
        lambda: _chain(GPT(_TOKENS, _CONTEXT, layers=2, heads=2, width=32)),
        _countings,
    ),
    "vit": Template(
        "ViT",
        "An image becomes 16 patches, which attend to each other.",
        _vit,
        partial(_bars, 16, "images"),
    ),
    "u_net": Template(
        "U-Net",
        "A way down and up with a skip connection finds the pixels of the bar.",
        _u_net,
        partial(_bars, 16, "masks"),
        "binary_cross_entropy",
    ),
    "experts": Template(
        "Mixture of experts",
        "A gate weighs four experts for each image.",
        _experts,
        partial(_bars, 8, "pixels"),
    ),
}  # fmt: skip


FIRST = "mlp"


def template_design(name: str, *, has_data: bool) -> Design:
    """Return the design of a template; with data of the user, it does not train on the template's."""
    template = TEMPLATES[name]
    samples, _ = template.data()
    design = design_of(template.build(), {"input": [BATCH, *samples.shape[1:]]})
    return replace(design, name=template.title, loss=template.loss, template="" if has_data else name)


@cache
def template_menu() -> list[TemplateData]:
    """Return the templates as data for a front end."""
    return [_menu_entry(name, template) for name, template in TEMPLATES.items()]


def _menu_entry(name: str, template: Template) -> TemplateData:
    graph = template.build().graph
    while len(graph.nodes) == 1 and (inner := graph.nodes[0].block.graph):
        graph = inner
    blocks: list[tuple[str, int, int]] = []
    wires: list[tuple[int, int]] = []
    index = {node.name: at for at, node in enumerate(graph.nodes)}
    rows: Counter[int] = Counter()
    for at, node in enumerate(graph.nodes):
        sources = [
            index[edge.source.node]
            for edge in graph.edges
            if edge.target.node == node.name and edge.source.node in index
        ]
        column = max((blocks[source][1] + 1 for source in sources), default=0)
        blocks.append((node.block.kind, column, rows[column]))
        rows[column] += 1
        wires += [(source, at) for source in sources]
    return TemplateData(name=name, title=template.title, summary=template.summary, blocks=blocks, wires=wires)
