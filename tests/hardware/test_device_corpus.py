"""Programs of many families on four devices: links, sums, products and unknown costs. All of them in `make stress`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mithril_nb as ml
from mithril_nb.cost import Cost
from mithril_nb.cost.hlo.instruction_costs import MARKS, REARRANGING
from mithril_nb.inspection import Inspection
from tests.hardware.programs import programs

pytestmark = pytest.mark.usefixtures("compilers")

SHORT = ("remat, gradient", "bf16 product, gradient", "8: shard_map of a gather")
"""Programs of `make test`, each for a GPU and a TPU."""
OTHERWISE = {
    "mixture of experts": "XLA computes a narrow product by multiplying and adding",
    "matrix and vector": "XLA computes it by multiplying and adding",
    "complex product": "XLA counts 2 FLOPs for each, and TPUs compute three real products",
    "attention, gradient": "XLA for a v6e computes the scores again for the gradient",
    "ragged product": "XLA for GPUs computes each group with all rows",
    "convolution": "padding is explicit: its products with zeros count",
    "LeNet": "as above",
    "ResNet": "as above",
    "Flax linen": "as above",
    "QR": "XLA for TPUs computes it by products",
    "solve": "as above",
    "FFT": "as above",
    "Cholesky": "as above",
    "symmetric eigenvalues": "as above",
}
"""Why the products and convolutions of programs have other FLOPs than those of the equations."""


def cases(names: tuple[str, ...], devices: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        for device in devices:
            topology = ":8" if device[1].isdigit() and len(device) == 4 else ":2x4"
            yield name, device + (topology if name.startswith("8") else "")


def products(cost: Cost, *opcodes: str) -> int:
    return sum(row.flops or 0 for row in cost.rows if row.opcode in opcodes)


def check(name: str, program: Inspection) -> None:
    reason = program.stage("hlo").unavailable
    if reason is not None:  # XLA's or JAX's, such as for Pallas on GPUs, whose kernels need a library of the device
        assert "RuntimeError" in reason  # JaxRuntimeError on JAX 0.10.2
        return
    cost = program.cost("compiled")
    assert [row.id for row in cost.rows if row.flops != 0 and not row.blocks and not row.equations] == []
    for figure in ("flops", "transcendentals", "bytes_accessed", "wire_bytes"):
        parts = sum(getattr(part, figure) or 0 for part in (*cost.by_block.values(), cost.unattributed))
        assert parts == sum(getattr(row, figure) or 0 for row in cost.rows) == (getattr(cost.total, figure) or 0)
    if not any(name.startswith(other) or (len(other) > 9 and other in name) for other in OTHERWISE):
        counted = products(cost, "dot", "convolution", "custom-call", "ragged-dot")
        devices = 8 if name.startswith("8") else 1
        equations = products(program.cost(), "dot_general", "conv_general_dilated", "ragged_dot_general")
        assert counted == equations // devices
    for instruction in program.stage("hlo").instructions:
        target = dict(instruction.attributes).get("custom_call_target", "").strip('"')
        row = next(row for row in cost.rows if row.id == instruction.id)
        if target and row.flops == 0:
            assert target in (*MARKS, *REARRANGING), target


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
    for name, topology in few:
        function, args = programs()[name]()
        check(name, ml.inspect(function, *args, device=topology))
    stress.report(programs=len(few))
