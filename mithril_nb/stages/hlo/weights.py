"""Estimate how much work an HLO instruction does, to split the cost of a fusion or loop between its instructions."""

from __future__ import annotations

import re
from math import prod

from mithril_nb.stages.hlo.syntax import HloLine, sizes_in

_CONTRACTING = re.compile(r"(lhs|rhs)_contracting_dims=\{([\d,]*)\}")
_WINDOW = re.compile(r"window=\{[^}]*?size=([\dx]+)")

MOVING = frozenset(
    "parameter constant tuple get-tuple-element bitcast copy copy-start copy-done broadcast reshape transpose slice "
    "concatenate pad reverse iota gather dynamic-slice dynamic-update-slice after-all bitcast-convert opt-barrier "
    "partition-id replica-id all-gather infeed outfeed domain".split()
)
"""Opcodes that move or name data, and compute nothing."""

# Work per element of moved data: its block gets a share, but hardly changes the shares of blocks that compute.
_MOVED = 0.01

CALLING = frozenset("fusion call while conditional async-start async-update async-done".split())
"""Opcodes that run other computations."""

TRIVIAL = frozenset("parameter constant tuple get-tuple-element bitcast after-all opt-barrier".split())
"""Opcodes for which no code runs."""

# Opcodes for which no code runs inside a fusion.
_FREE = TRIVIAL | {"broadcast", "iota"}


def flops(line: HloLine, shapes: dict[str, HloLine]) -> float:
    """Return a rough number of operations of an instruction, to weigh it against others in the same computation."""
    if line.opcode in ("dot", "convolution", "custom-call", "ragged-dot"):
        inner = 1
        left = shapes.get(line.operands[0]) if line.operands else None
        contracting = dict(_CONTRACTING.findall(line.attributes))
        if left is not None and left.shapes and "lhs" in contracting:
            sizes = left.shapes[0][1]
            inner = prod(tuple(sizes[axis] for axis in sizes_in(contracting["lhs"]) if axis < len(sizes)))
        elif line.opcode == "convolution":
            window = _WINDOW.search(line.attributes)
            inner = prod(sizes_in(window.group(1).replace("x", ","))) if window else 1
            # The window has only the spatial sizes. The labels show which axis of the kernel has the input channels.
            kernel = shapes.get(line.operands[1]) if len(line.operands) > 1 else None
            labels = re.search(r"dim_labels=\w+_(\w+)->", line.attributes)
            if kernel is not None and kernel.shapes and labels and "i" in labels.group(1):
                inner *= kernel.shapes[0][1][labels.group(1).index("i")]
        return 2.0 * line.elements * inner
    if line.opcode in ("reduce", "reduce-window", "scatter", "select-and-scatter", "sort"):
        source = shapes.get(line.operands[0]) if line.operands else None
        return float(max(source.elements if source else 0, line.elements))
    return 0.0 if line.opcode in MOVING or line.opcode in CALLING else float(line.elements)


def work(line: HloLine, shapes: dict[str, HloLine]) -> float:
    """Return the weight of an instruction: its operations, or a little for each element that it only moves."""
    if line.opcode in MOVING and line.opcode not in _FREE:
        return _MOVED * line.elements
    return flops(line, shapes)
