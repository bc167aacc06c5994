"""Matrix products, convolutions and Fourier transforms: where nearly all FLOPs of a model are."""

from __future__ import annotations

from math import ceil, log2, prod
from typing import Any

from mithril_nb.cost.rules import Work, rule, size
from mithril_nb.stages.records import Equation


@rule("dot_general", formula="2·B·M·N·K")
def dot_general(equation: Equation) -> Work:
    """One multiply-add for each item of the result and each place along the contracted axes: `2·B·M·N·K`."""
    params: Any = equation.param["dimension_numbers"]
    (contracting, _), _ = params
    inner = prod(int(equation.inputs[0].shape[axis]) for axis in contracting)
    return Work(2 * size(equation.outputs[0]) * inner)


@rule("ragged_dot_general", "ragged_dot", formula="2·M·N·K, each row in one group")
def ragged_dot(equation: Equation) -> Work:
    """Each row of the left operand meets one group's matrix: `2·M·N·K`."""
    return Work(2 * size(equation.outputs[0]) * int(equation.inputs[0].shape[-1]))


@rule("conv_general_dilated", formula="2·B·F·(C/G)·valid, padding left out")
def convolution(equation: Equation) -> Work:
    """Multiply-adds with real items, not with padding: `2·B·F·(C/G)·valid`.

    `valid` is, multiplied over the spatial axes, how many pairs of output place and kernel place meet an item.
    """
    param: Any = equation.param
    left, kernel, out = equation.inputs[0], equation.inputs[1], equation.outputs[0]
    left_axes, kernel_axes, out_axes = param["dimension_numbers"]
    valid = 1
    for index, (stride, (low, _), base, window) in enumerate(
        zip(param["window_strides"], param["padding"], param["lhs_dilation"], param["rhs_dilation"], strict=True)
    ):
        valid *= valid_pairs(
            int(out.shape[out_axes[2 + index]]),
            int(kernel.shape[kernel_axes[2 + index]]),
            int(left.shape[left_axes[2 + index]]),
            (stride, low, base, window),
        )
    batch = int(left.shape[left_axes[0]]) // param["batch_group_count"]
    channels = int(left.shape[left_axes[1]]) // param["feature_group_count"]
    features = int(kernel.shape[kernel_axes[0]])
    return Work(2 * batch * features * channels * valid)


def valid_pairs(outputs: int, window: int, inputs: int, place: tuple[int, int, int, int]) -> int:
    """Count the pairs of output place and kernel place that meet an item, not padding or a hole of a dilation."""
    stride, low, base, dilation = place
    extent = (inputs - 1) * base + 1
    if base == 1:
        # For each kernel place, the output places o with 0 <= o * stride + offset < inputs form a range.
        total = 0
        for tap in range(window):
            offset = tap * dilation - low
            first = max(0, ceil(-offset / stride))
            last = min(outputs - 1, (inputs - 1 - offset) // stride)
            total += max(0, last - first + 1)
        return total
    return sum(
        1
        for tap in range(window)
        for output in range(outputs)
        for at in [output * stride + tap * dilation - low]
        if 0 <= at < extent and at % base == 0
    )


@rule("fft", formula="8·n·log2(length), over all axes")
def fourier(equation: Equation) -> Work:
    """Complex multiply-adds in `log2` rounds: `8·n·log2(length)`."""
    lengths: Any = equation.param["fft_lengths"]
    return Work(8 * size(equation.inputs[0]) * prod(round(log2(length)) if length > 1 else 0 for length in lengths))
