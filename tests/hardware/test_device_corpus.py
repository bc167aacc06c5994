"""Programs of many families on four devices: links, sums, products and unknown costs. All of them in `make stress`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil, prod
from typing import Any

import pytest

import mithril_nb as ml
from mithril_nb.cost import Cost
from mithril_nb.cost.formulas.contractions import valid_pairs
from mithril_nb.cost.hlo.instruction_costs import MARKS, REARRANGING
from mithril_nb.cost.predicted import PRODUCTS
from mithril_nb.inspection import Inspection
from mithril_nb.stages.records import Equation
from tests.hardware.programs import programs

pytestmark = pytest.mark.usefixtures("compilers")

SHORT = ("remat, gradient", "bf16 product, gradient", "8: shard_map of a gather")
"""Programs of `make test`, each for a GPU and a TPU."""
CONTRACTIONS = ("dot_general", "conv_general_dilated", "ragged_dot_general")


def cases(names: tuple[str, ...], devices: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        for device in devices:
            topology = ":8" if device[1].isdigit() and len(device) == 4 else ":2x4"
            yield name, device + (topology if name.startswith("8") else "")


def check_products(program: Inspection, cost: Cost, devices: int) -> Counter[str]:
    """Check that the products of an equation have its FLOPs, or those of a rewriting by XLA. Count the rewritings."""
    counted = {row.id: (row.flops or 0) // devices for row in program.cost().rows if row.opcode in CONTRACTIONS}
    block_of = {row.id: {*row.blocks} for row in program.cost().rows}
    rows = [row for row in cost.rows if row.flops]
    parts: dict[str, list[int]] = {equation.id: [] for equation in program.equations}
    # XLA's products for a Fourier transform have no equation.
    transforms = [equation.id for equation in program.equations if equation.primitive == "fft"]
    products = [row for row in rows if row.opcode in PRODUCTS]
    for row in sorted(products, key=lambda row: counted.keys().isdisjoint(row.equations)):
        # XLA may name the transpose of a product, or the `cond` around it.
        around = tuple(f"{id}." for id in row.equations)
        near = (
            id
            for id in counted
            if not parts[id] and counted[id] == row.flops and (block_of[id] & {*row.blocks} or id.startswith(around))
        )
        ids = counted.keys() & {*row.equations} or [*near][:1] or row.equations or transforms
        assert ids, row
        for id in ids:
            parts[id].append(row.flops or 0)
    alone = {id for id in counted if not parts[id]}
    found: Counter[str] = Counter()
    for equation in program.equations:
        flops, own = counted.get(equation.id, 0), parts[equation.id]
        if sum(own) == flops:
            continue
        ways = {way: {*totals} for way, totals in rewritings(equation, flops, is_gpu=cost.device.platform == "cuda")}
        sums = {row.flops for row in rows if row.opcode in ("multiply", "reduce") and equation.id in row.equations}
        if sums & {flops // 2, flops // 2 - prod(equation.outputs[0].shape)}:
            ways["multiplied and added"] = {0}
        # The instruction has one of the two equations.
        merged = {flops + counted[id] for id in alone}
        if any(sum(parts[id]) == flops + counted[id] for id in counted):
            merged.add(0)
        ways["merged with another product"] = merged
        if {*own} == {flops}:
            ways["computed again"] = {sum(own)}
        reasons = [way for way, totals in ways.items() if sum(own) in totals]
        assert reasons, (equation.id, equation.primitive, flops, own, sums)
        found[reasons[0]] += 1
    return found


def rewritings(equation: Equation, flops: int, *, is_gpu: bool) -> Iterator[tuple[str, list[Any]]]:
    """Yield ways in which XLA rewrites a product, each with the FLOPs that the products may then have."""
    operand, *others = equation.inputs
    param: Any = equation.param
    if equation.primitive == "ragged_dot_general" and is_gpu:
        yield "each group with all rows", [flops * others[1].shape[0]]
    if operand.dtype.startswith("complex"):
        # XLA counts 2 FLOPs for a multiply-add of complex numbers. TPUs compute three real products.
        yield "complex numbers", [flops // 4 if is_gpu else 3 * flops // 4]
    if equation.primitive in ("qr", "triangular_solve") and not is_gpu:
        yield "products of square matrices", [count * 2 * operand.shape[-1] ** 3 for count in (1, 4)]
    if equation.primitive == "fft" and not is_gpu:
        size, length = prod(operand.shape), prod(param["fft_lengths"])
        yield "two complex products", [3 * 2 * size * (part + length // part) for part in range(1, length)]
    if equation.primitive == "conv_general_dilated":
        left_axes, kernel_axes, out_axes = param["dimension_numbers"]
        valid, ways = 1, [1] if is_gpu else [1, param["feature_group_count"]]
        strides = zip(
            param["window_strides"], param["padding"], param["lhs_dilation"], param["rhs_dilation"], strict=True
        )
        for axis, (stride, (low, high), base, dilation) in enumerate(strides, 2):
            out, window = equation.outputs[0].shape[out_axes[axis]], others[0].shape[kernel_axes[axis]]
            size = operand.shape[left_axes[axis]]
            pairs = valid_pairs(out, window, size, (stride, low, base, dilation))
            valid *= pairs
            # Of uneven padding, the difference may be zeros in memory, or all padding and dilation; for a gradient,
            # those of the operand. TPUs cut an axis in 8 pieces, which are a part of the batch.
            even = valid_pairs(out, window, size + abs(high - low), (stride, min(low, high), base, dilation))
            pieces = [
                8 * (ceil(cut / 8) + more) * rest
                for cut, rest in ((out, window), (window, out))
                for more in (0, 1)
                if not is_gpu
            ]
            ways = [way * other for way in ways for other in (pairs, even, out * window, size * window, *pieces)]
        yield "convolution with zeros", [flops * way // valid for way in ways]


def check(name: str, program: Inspection) -> Counter[str]:
    reason = program.stage("hlo").unavailable
    if reason is not None:  # XLA's or JAX's, such as for Pallas on GPUs, whose kernels need a library of the device
        assert "RuntimeError" in reason  # JaxRuntimeError on JAX 0.10.2
        return Counter()
    cost = program.cost("compiled")
    assert [row.id for row in cost.rows if row.flops != 0 and not row.blocks and not row.equations] == []
    for figure in ("flops", "transcendentals", "bytes_accessed", "wire_bytes"):
        parts = sum(getattr(part, figure) or 0 for part in (*cost.by_block.values(), cost.unattributed))
        assert parts == sum(getattr(row, figure) or 0 for row in cost.rows) == (getattr(cost.total, figure) or 0)
    rewritten = check_products(program, cost, 8 if name.startswith("8") else 1)
    assert all(row.reason for row in program.cost().difference(cost).differing if row.opcode in CONTRACTIONS)
    for instruction in program.stage("hlo").instructions:
        target = dict(instruction.attributes).get("custom_call_target", "").strip('"')
        row = next(row for row in cost.rows if row.id == instruction.id)
        if target and row.flops == 0:
            assert target in (*MARKS, *REARRANGING), target
    return rewritten


@pytest.mark.parametrize(("name", "device"), [*cases(SHORT, ("h100", "v5e"))])
def test_some_programs(name: str, device: str) -> None:
    function, args = programs()[name]()
    check(name, ml.inspect(function, *args, device=device))


@pytest.mark.filterwarnings("ignore:Using ``pl.pallas_call`` for Mosaic GPU:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")
@pytest.mark.parametrize("device", ["h100", "a100", "v5e", "v6e"])
def test_all_programs(device: str, stress) -> None:
    names = tuple(programs())
    assert len(names) >= 60
    few = [*cases(names, (device,))][: stress.size(short=0, long=len(names))]
    rewritten: Counter[str] = Counter()
    for name, topology in few:
        function, args = programs()[name]()
        rewritten += check(name, ml.inspect(function, *args, device=topology))
    stress.report(programs=len(few), **rewritten)
