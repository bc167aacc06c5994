"""Multiply-accumulate operations (MACs) of matrix products and convolutions, including those with padding.

The convention follows papers and torchvision, where a ResNet-50 has "4.1 GMACs". One MAC is a multiplication and an
addition, so 2 FLOPs. Only matrix products and convolutions count, with the two products of attention; biases,
activations, norms, pooling and embeddings count 0. All roles count: a training step has about three times the MACs of
its forward pass.

fvcore calls one MAC a flop. fvcore and thop add operations for norms; ptflops adds biases and activations too.
XLA, and so our FLOPs, leave out products with padding and count all other arithmetic: `multiply_adds` itemises the
difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from mithril_nb.cost.records import CostRow
from mithril_nb.stages.records import Equation, Role

PRODUCTS = ("dot_general", "conv_general_dilated", "ragged_dot_general", "ragged_dot")
"""Primitives that consist of multiply-adds."""


@dataclass(frozen=True)
class MultiplyAdds:
    """The multiply-adds of one equation; its FLOPs are exactly `2 * (count - padding)`.

    Attributes:
        id: Its id.
        primitive: Its primitive.
        block: Path of its block; `""` if not attributed.
        role: The part of a training step that it belongs to.
        count: Multiply-adds in all its runs, including those with padding; `None` if unknown.
        padding: How many of them multiply padding; `None` if unknown.
    """

    id: str
    primitive: str
    block: str
    role: Role | None
    count: int | None
    padding: int | None


def macs_of(rows: Iterable[CostRow], equations: Iterable[Equation]) -> int | None:
    """Return the sum of `count` over all matrix products and convolutions; `None` if one is unknown."""
    counts = [one.count for one in all_counted(rows, equations)]
    return None if None in counts else sum(count or 0 for count in counts)


def all_counted(rows: Iterable[CostRow], equations: Iterable[Equation]) -> tuple[MultiplyAdds, ...]:
    """Return the multiply-adds of each matrix product and convolution, from the rows of an analytic cost."""
    products = {one.id: one for one in equations if one.primitive in PRODUCTS}
    return tuple(_counted(products[row.id], row) for row in rows if row.id in products)


def _counted(equation: Equation, row: CostRow) -> MultiplyAdds:
    count: int | None = None
    if row.flops is not None and row.repeats is not None:
        is_convolution = equation.primitive == "conv_general_dilated"
        # Only convolutions have padding; for products all FLOPs are multiply-adds.
        count = row.repeats * _pairs(equation) if is_convolution else row.flops // 2
    padding = None if count is None or row.flops is None else count - row.flops // 2
    return MultiplyAdds(equation.id, equation.primitive, equation.block, equation.role, count, padding)


def _pairs(convolution: Equation) -> int:
    """Return the number of multiply-adds in one run of a convolution, including those with padding."""
    param: Any = convolution.param
    left, kernel, out = convolution.inputs[0], convolution.inputs[1], convolution.outputs[0]
    left_axes, kernel_axes, out_axes = param["dimension_numbers"]
    places = prod(
        # A dilated input has holes: each element is multiplied once by each element of the kernel.
        int(kernel.shape[taps]) * int(out.shape[made] if base == 1 else left.shape[given])
        for taps, made, given, base in zip(
            kernel_axes[2:], out_axes[2:], left_axes[2:], param["lhs_dilation"], strict=True
        )
    )
    batch = int(left.shape[left_axes[0]]) // param["batch_group_count"]
    channels = int(left.shape[left_axes[1]]) // param["feature_group_count"]
    return batch * channels * int(kernel.shape[kernel_axes[0]]) * places
