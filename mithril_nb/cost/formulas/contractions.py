"""Rules for matrix products, convolutions and Fourier transforms."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Any

from mithril_nb.cost.formulas.rules import Formula, Letters, rule
from mithril_nb.cost.formulas.sizes import as_size, count, length, times
from mithril_nb.cost.formulas.symbols import FUNCTIONS, Expression, call
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.records import Equation

NO_PADDING = "without products with padding"
ONE_GROUP = "each row is in one group"


@rule("dot_general", flops="2·B·M·N·K", is_product=True)
def dot_general(equation: Equation) -> Letters:
    """One multiply-add for each pair of a result element and an index of the contracted axes: `2·B·M·N·K`."""
    return _product(equation, equation.param["dimension_numbers"])


def _product(equation: Equation, numbers: Any, groups: tuple[int, ...] = ()) -> Letters:
    (left_inner, right_inner), (left_batch, right_batch) = numbers
    left, right = equation.inputs[0], equation.inputs[1]

    def over(spec: TensorSpec, axes: Iterable[int]) -> Expression:
        return times(length(spec, axis) for axis in axes)

    def others(spec: TensorSpec, *axes: int) -> Expression:
        return over(spec, (axis for axis in range(len(spec.shape)) if axis not in axes))

    return {
        "B": over(left, left_batch),
        "M": others(left, *left_inner, *left_batch),
        "N": others(right, *right_inner, *right_batch, *groups),
        "K": over(left, left_inner),
    }


@rule("ragged_dot_general", "ragged_dot", flops="2·B·M·N·K", note=ONE_GROUP, is_product=True)
def ragged_dot(equation: Equation) -> Letters:
    """Like `dot_general`, `2·B·M·N·K`, because each index along the ragged axis is in exactly one group."""
    numbers: Any = equation.param.get("ragged_dot_dimension_numbers", ((((1,), (1,)), ((), ())), (0,), (0,)))
    products, _, groups = numbers
    return _product(equation, products, groups)


@rule("scaled_dot", "scaled_matmul", "scaled_matmul_wrapper", flops="2·n·K", note="scales left out", is_product=True)
def scaled_dot(equation: Equation) -> Letters:
    """One multiply-add for each pair of a result element and an index of the contracted axis: `2·n·K`."""
    return {"n": count(equation.outputs[0]), "K": length(equation.inputs[0], -1)}


@rule("wgmma", "wgmma_ref", "tcgen05_mma", "mma", flops="2·n·K", is_product=True)
def accumulated_product(equation: Equation) -> Letters:
    """A product on the matrix units of a GPU, added to the accumulator: `2·n·K`."""
    return {"n": count(equation.inputs[0]), "K": length(equation.inputs[1], -1)}


@rule("matmul_acc_lhs", "matmul_lhs_fifo", flops="2·n·K", note="a square matrix on the right", is_product=True)
def systolic_product(equation: Equation) -> Letters:
    """A product in the matrix unit of a TPU: `2·n·K`. The right operand is a matrix of `K` rows and `K` columns."""
    left = equation.inputs[0]
    return {"n": count(left), "K": length(left, -1)}


@rule(
    *(f"dot_product_attention_{kernel}{end}" for kernel in ("fwd", "fp8_fwd") for end in ("", "_wrapper")),
    flops="4·n·K", note="queries times keys, and scores times values", is_product=True,
)  # fmt: skip
def attention(equation: Equation) -> Letters:
    """Two multiply-adds for each of the `n` query elements and each of the `K` keys: `4·n·K`.

    This is cuDNN's kernel for `jax.nn.dot_product_attention`. Masked scores count too. Source: Dao, FlashAttention-2,
    §4.1.
    """
    # The number of keys is on axis 1 in cuDNN's layout BTNH (0), on axis 2 in BNTH (1).
    query, key = equation.inputs[:2]
    return {"n": count(query), "K": length(key, 2 if equation.param.get("layout") in (1, "BNTH") else 1)}


# The backward pass has five products, the forward pass two: Dao, FlashAttention-2, §4.1.
rule(
    *(f"dot_product_attention_{kernel}{end}" for kernel in ("bwd", "fp8_bwd") for end in ("", "_wrapper")),
    flops="10·n·K", note="five products", is_product=True,
)(attention)  # fmt: skip


@rule("conv_general_dilated", "conv", flops="2·B·F·(C/G)·valid", note=NO_PADDING, is_product=True)
def convolution(equation: Equation) -> Letters | Formula:
    """One multiply-add for each pair of a result element and a kernel element: `2·B·F·(C/G)·valid`.

    `B` is the batch size, `F` the number of output features, `C` of input features, `G` of groups. `valid` is the
    product of `valid_pairs` over the spatial axes: pairs that read padding do not count, nor do pairs that read a zero
    between the elements of a dilated input.
    """
    param: Any = equation.param
    left, kernel, out = equation.inputs[0], equation.inputs[1], equation.outputs[0]
    left_axes, kernel_axes, out_axes = param["dimension_numbers"]
    valid = times(
        _valid(
            length(out, out_axes[2 + index]),
            length(kernel, kernel_axes[2 + index]),
            length(left, left_axes[2 + index]),
            (as_size(stride), as_size(low), as_size(high), as_size(base), as_size(window)),
        )
        for index, (stride, (low, high), base, window) in enumerate(
            zip(param["window_strides"], param["padding"], param["lhs_dilation"], param["rhs_dilation"], strict=True)
        )
    )
    letters = {
        "B": length(left, left_axes[0]),
        "F": length(kernel, kernel_axes[0]),
        "C": length(left, left_axes[1]),
        "valid": valid,
    }
    # JAX accepts groups of features or of the batch, not both.
    if param["batch_group_count"] > 1:
        return Formula("2·(B/G)·F·C·valid", {**letters, "G": param["batch_group_count"]}, note=NO_PADDING)
    return {**letters, "G": param["feature_group_count"]}


def _valid(outputs: Expression, window: Expression, inputs: Expression, steps: tuple[Expression, ...]) -> Expression:
    stride, low, high, base, dilation = steps
    if low == high == 0 and base == 1:
        return outputs * window  # no padding, so every pair reads an element
    return call("valid", outputs, window, inputs, stride, low, base, dilation)


def valid_pairs(outputs: int, window: int, inputs: int, steps: tuple[int, int, int, int]) -> int:
    """Count the pairs of result index and kernel index along one axis of a convolution that read an input element.

    The other pairs read padding, or a zero between the elements of a dilated input.

    Examples:
        Three inputs, a kernel of three, and one element of padding on each side; the first and the last result read
        only two inputs:

        >>> valid_pairs(3, 3, 3, (1, 1, 1, 1))
        7
    """
    stride, low, base, dilation = steps
    extent = (inputs - 1) * base + 1
    if base == 1:
        # For each kernel index, the output indices o with 0 <= o * stride + offset < inputs form a range.
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


@rule("fft", flops="5·n·log2(N)", note="half if the input or the result is real", xla="8·in·rounds")
def fourier(equation: Equation) -> Formula:
    """Radix-2 butterflies: `5·n·log2(N)`, or half of this if the operand or the result is real.

    `N` is the product of the lengths of the transformed axes, `n` the number of elements of the operand, or of the
    result if it is real. Sources: Van Loan, Computational Frameworks for the FFT, §1.4; Frigo & Johnson, the convention
    of FFTW's benchFFT. XLA counts `8·in·rounds`: `in` is the number of elements of the operand, `rounds` the product of
    `floor(log2(length))` over the axes.
    """
    lengths: Any = equation.param["fft_lengths"]
    sizes = [as_size(size) for size in lengths]
    is_real = [not spec.dtype.startswith("complex") for spec in (equation.inputs[0], equation.outputs[0])]
    letters = {
        "n": count(equation.outputs[0] if is_real[1] else equation.inputs[0]),
        "N": times(sizes),
        "in": count(equation.inputs[0]),
        "rounds": times(call("rounds", size) for size in sizes),
    }
    return Formula("5·n·log2(N)/2" if any(is_real) else "5·n·log2(N)", letters, xla="8·in·rounds")


def rounds(length: int) -> int:
    """Return `floor(log2(length))`, which XLA counts as the rounds of a Fourier transform.

    Examples:
        >>> rounds(16), rounds(31), rounds(1)
        (4, 4, 0)
    """
    return max(length.bit_length() - 1, 0)


# Registered, so that formulas of symbolic sizes may contain these functions.
FUNCTIONS["valid"] = lambda outputs, window, inputs, *steps: valid_pairs(outputs, window, inputs, steps)
FUNCTIONS["rounds"] = rounds
