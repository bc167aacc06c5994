"""Blocks of `models/library/layers`: convolutions and pools."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from mithril_nb.models import KINDS, GlobalAvgPool2d, Model
from tests.blocks.case import Arrays, Case, Draw, Drawn, Shape, arrays


def padded(x: np.ndarray, options: Any, reach: Shape, fill: float) -> tuple[np.ndarray, list[Any]]:
    """Return the padded array and its padding, given as a keyword or numbers."""
    axes, padding = len(reach), options["padding"]
    pads: list[Any] = []
    for axis in range(axes):
        if padding == "same":
            step = options["stride"][axis]
            total = max((int(np.ceil(x.shape[axis + 2] / step)) - 1) * step + reach[axis] - x.shape[axis + 2], 0)
            pads.append((total // 2, total - total // 2))
        elif padding == "valid":
            pads.append((0, 0))
        elif axes == 1 and isinstance(padding, tuple) and len(padding) == 2:
            pads.append(padding)
        else:
            one = padding if isinstance(padding, int) else padding[axis]
            pads.append((one, one) if isinstance(one, int) else one)
    return np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill), pads


def laid(x: np.ndarray, options: Any, size: Shape, fill: float) -> tuple[np.ndarray, list[Any]]:
    """Return all windows, `(batch, channels, *places, *items)`, and the padding."""
    axes = len(size)
    dilation = options.get("dilation", (1,) * axes)
    dilation = (dilation,) * axes if isinstance(dilation, int) else dilation
    reach = tuple((one - 1) * gap + 1 for one, gap in zip(size, dilation, strict=True))
    whole, pads = padded(x, options, reach, fill)
    every = sliding_window_view(whole, reach, tuple(range(2, axes + 2)))
    steps = tuple(slice(None, None, step) for step in options["stride"] or size)
    gaps = tuple(slice(None, None, gap) for gap in dilation)
    return every[(slice(None), slice(None), *steps, *gaps)], pads


def convolution(model: Model, params: Arrays, inputs: Arrays, input: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the sum over each window, group by group."""
    options = model.options
    axes, groups = weight.ndim - 2, options.get("groups", 1)
    windows, _ = laid(input, options, weight.shape[2:], 0.0)
    parts = []
    for some, part in zip(np.split(windows, groups, 1), np.split(weight, groups), strict=True):
        parts.append(np.tensordot(some, part, ([1, *range(-axes, 0)], [1, *range(2, axes + 2)])))
    out = np.moveaxis(np.concatenate(parts, -1), -1, 1)
    bias = {**params, **inputs}.get("bias")
    return out if bias is None else out + bias.reshape(-1, *(1,) * axes)


def transposed(model: Model, params: Arrays, input: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Add a window to the output for each item of the input, and cut off the padding."""
    x, options = input, model.options
    axes, groups, stride, gaps = weight.ndim - 2, options["groups"], options["stride"], options["dilation"]
    reach = [(size - 1) * gap + 1 for size, gap in zip(weight.shape[2:], gaps, strict=True)]
    full = [(n - 1) * s + r for n, s, r in zip(x.shape[2:], stride, reach, strict=True)]
    out = np.zeros((x.shape[0], weight.shape[1] * groups, *(size + 200 for size in full)))
    for place in itertools.product(*map(range, x.shape[2:])):
        for item in itertools.product(*map(range, weight.shape[2:])):
            where = tuple(p * s + i * g for p, s, i, g in zip(place, stride, item, gaps, strict=True))
            pairs = zip(np.split(x[(..., *place)], groups, 1), np.split(weight[(..., *item)], groups), strict=True)
            out[(slice(None), slice(None), *where)] += np.concatenate([a @ b for a, b in pairs], 1)
    for axis in range(axes):
        r, s, length, extra = reach[axis], stride[axis], full[axis], options["output_padding"]
        if options["padding"] == "same":
            # TensorFlow's rule: size * stride items of the full length; an odd excess is cut off after.
            before = 0 if s > r - 1 else (r - s) // 2
            size = x.shape[axis + 2] * s
        else:
            _, pads = padded(x, options, tuple(reach), 0.0)
            before, size = pads[axis][0], length - sum(pads[axis])
        out = np.take(out, np.arange(before, before + size + extra), axis + 2)
    return out + params["bias"].reshape(-1, *(1,) * axes) if "bias" in params else out


def most(model: Model, input: np.ndarray, kernel_size: Shape) -> np.ndarray:
    return laid(input, model.options, kernel_size, -np.inf)[0].max(tuple(range(-len(kernel_size), 0)))


def mean(model: Model, input: np.ndarray, kernel_size: Shape) -> np.ndarray:
    axes = tuple(range(-len(kernel_size), 0))
    sums, counts = (laid(x, model.options, kernel_size, 0.0)[0].sum(axes) for x in (input, np.ones_like(input)))
    return sums / (np.prod(kernel_size) if model.options.get("count_include_pad", True) else counts)


def adaptive(reduce: Any) -> Any:
    def reference(input: np.ndarray, output_size: Shape) -> np.ndarray:
        x, (rows, columns) = input, output_size
        out = np.zeros((*x.shape[:2], rows, columns))
        for i, j in itertools.product(range(rows), range(columns)):
            (top, bottom), (left, right) = (
                (int(np.floor(k * size / count)), int(np.ceil((k + 1) * size / count)))
                for k, size, count in ((i, x.shape[2], rows), (j, x.shape[3], columns))
            )
            out[:, :, i, j] = reduce(x[:, :, top:bottom, left:right], (2, 3))
        return out

    return reference


def padding(draw: Draw, axes: int, most_: int = 2) -> Any:
    number = st.integers(0, most_)
    pair = st.tuples(number, number)
    several = st.tuples(*[st.one_of(number, pair)] * axes) if axes > 1 else pair
    return draw(st.one_of(st.sampled_from(("same", "valid")), number, several))


def sizes(draw: Draw, axes: int, least: int, most_: int) -> Shape:
    return tuple(draw(st.integers(least, most_)) for _ in range(axes))


def image(draw: Draw, channels: int, axes: int, reach: int = 1) -> np.ndarray:
    batch = draw(st.integers(0 if axes < 3 else 1, 2))
    return draw(arrays((batch, channels, *sizes(draw, axes, reach, reach + 3))))


def drawn_convolution(kind: str, axes: int, *more: str) -> Any:
    def draw(draw: Draw) -> Drawn:
        groups = draw(st.integers(1, 3)) if "groups" in more else 1
        out, channels = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
        kernel, gaps = sizes(draw, axes, 1, 3), sizes(draw, axes, 1, 2)
        given: dict[str, Any] = {"stride": sizes(draw, axes, 1, 3), "dilation": gaps, "use_bias": draw(st.booleans())}
        if "groups" in more:
            given["groups"] = groups
        if "output_padding" in more:
            given["output_padding"] = draw(st.integers(0, 1))
        # Padding of a transposed convolution removes items, but never more than exist.
        given["padding"] = draw(st.sampled_from(("same", "valid"))) if axes == 3 else padding(draw, axes, 1)
        inputs = {"input": image(draw, channels, axes, 5)}
        if kind.startswith("Primitive"):
            inputs["weight"] = draw(arrays((out, channels // groups, *kernel)))
            inputs |= {"bias": draw(arrays((out,)))} if given["use_bias"] else {}
            return KINDS[kind](**given), inputs
        return KINDS[kind](out_channels=out, kernel_size=kernel, **given), inputs

    return draw


def drawn_pool(kind: str, axes: int, *more: str) -> Any:
    def draw(draw: Draw) -> Drawn:
        kernel = sizes(draw, axes, 2, 3)
        given: dict[str, Any] = {"stride": draw(st.one_of(st.none(), st.just(sizes(draw, axes, 1, 3))))}
        given["padding"] = padding(draw, axes, 1)
        if "dilation" in more:
            given["dilation"] = sizes(draw, axes, 1, 2)
        if "count_include_pad" in more:
            given["count_include_pad"] = draw(st.booleans())
        model = KINDS[kind](kernel_size=kernel, **given)
        if model.options["stride"] is None and given["padding"] == "same":
            model = KINDS[kind](kernel_size=kernel, **{**given, "padding": "valid"})
        return model, {"input": image(draw, 2, axes, 5)}

    return draw


def drawn_adaptive(kind: str) -> Any:
    return lambda draw: (KINDS[kind](sizes(draw, 2, 1, 6)), {"input": image(draw, 2, 2)})


CASES = [
    *(Case(f"Conv{n}d", drawn_convolution(f"Conv{n}d", n, "groups"), convolution) for n in (1, 2, 3)),
    Case("Convolution1D", drawn_convolution("Convolution1D", 1), convolution),
    Case("Convolution2D", drawn_convolution("Convolution2D", 2, "groups"), convolution),
    Case("PrimitiveConvolution1D", drawn_convolution("PrimitiveConvolution1D", 1), convolution),
    Case("PrimitiveConvolution2D", drawn_convolution("PrimitiveConvolution2D", 2, "groups"), convolution),
    *(
        Case(f"ConvTranspose{n}d", drawn_convolution(f"ConvTranspose{n}d", n, "groups", "output_padding"), transposed)
        for n in (1, 2, 3)
    ),
    *(Case(f"MaxPool{n}d", drawn_pool(f"MaxPool{n}d", n, "dilation"), most) for n in (1, 2, 3)),
    *(Case(f"AvgPool{n}d", drawn_pool(f"AvgPool{n}d", n, "count_include_pad"), mean) for n in (1, 2, 3)),
    *(
        Case(kind, drawn_pool(kind, int(kind[-2]), "dilation"), most if "Max" in kind else mean)
        for kind in (
            "MaxPool1D",
            "MaxPool2D",
            "AvgPool2D",
            "PrimitiveMaxPool1D",
            "PrimitiveMaxPool2D",
            "PrimitiveAvgPool2D",
        )
    ),
    Case("AdaptiveAvgPool2d", drawn_adaptive("AdaptiveAvgPool2d"), adaptive(np.mean)),
    Case("AdaptiveMaxPool2d", drawn_adaptive("AdaptiveMaxPool2d"), adaptive(np.max)),
    Case(
        "GlobalAvgPool2d",
        lambda draw: (GlobalAvgPool2d(), {"input": image(draw, 3, 2)}),
        lambda input: input.mean((2, 3)),
    ),
]
