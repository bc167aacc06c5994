"""Costs of HLO instructions, counted like XLA's HloCostAnalysis: a rule for each opcode, and the bytes of collectives.

Rules use shapes and attributes only. Fusions, calls, loops and conditionals run other computations, which are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from math import ceil, log2, prod
from types import MappingProxyType
from typing import Any

import numpy as np

from mithril_nb.cost.formulas.communication import UNKNOWN, sends_no_more, sent
from mithril_nb.cost.formulas.contractions import NO_PADDING, ONE_GROUP, rounds, valid_pairs
from mithril_nb.cost.formulas.rules import NO_RULE
from mithril_nb.cost.formulas.sizes import nbytes, product_of, repeated, size, sum_of
from mithril_nb.cost.records import CostRow, Fusion, Piece, only
from mithril_nb.stages.hlo.module import Computation, HloModule, counted_rounds, rounds_of_loops
from mithril_nb.stages.jax_versions import POINTER_BYTES
from mithril_nb.stages.records import Instruction, Stage


@dataclass(frozen=True)
class Work:
    """FLOPs and calls of `exp`, `tanh`, `sqrt`, ... in one run of an instruction or computation."""

    flops: int
    transcendentals: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.transcendentals + other.transcendentals)

    def __rmul__(self, count: int) -> Work:
        return Work(count * self.flops, count * self.transcendentals)


Combiner = Callable[[str], Work]
"""A function from the name of an attribute, such as `"to_apply"`, to the work of one run of the computation in it."""
HloRule = Callable[[Instruction, Sequence[Instruction], Combiner], Work]
Sent = tuple[int | None, int | None]
"""Payload and wire bytes of one device; `None` if unknown."""

_LABELS = re.compile(r"(\w+)_(\w+)->(\w+)")  # bf01_oi01->bf01 in dim_labels=bf01_oi01->bf01
_WINDOW_PART = re.compile(r"(\w+)=([^\s{}]+)")  # pad=1_1x1_1 in window={size=3x3 pad=1_1x1_1}

# XLA's HandleElementwiseOp: an opcode counts either FLOPs or transcendentals, never both.
_ELEMENTWISE = frozenset(
    "abs add and bitcast-convert ceil clamp compare complex convert count-leading-zeros divide floor imag is-finite "
    "maximum minimum mulhi multiply negate not or popcnt real reduce-precision remainder round-nearest-afz "
    "round-nearest-even select shift-left shift-right-arithmetic shift-right-logical sign stochastic-convert subtract "
    "xor".split()
)
# XLA also counts a transcendental for each random number: HandleRngBitGenerator.
_TRANSCENDENTAL = frozenset(
    "acos acosh asin asinh atan2 atanh cbrt cosh cosine erf exponential exponential-minus-one log log-plus-one "
    "logistic power rng rng-bit-generator rsqrt sine sinh sqrt tan tanh".split()
)
NAMING = frozenset("after-all bitcast constant domain get-tuple-element opt-barrier parameter tuple".split())
"""Opcodes that compute nothing and move no data."""
_MOVING = frozenset(
    "all-gather all-gather-done all-gather-start all-reduce-done all-to-all broadcast collective-broadcast "
    "collective-permute collective-permute-done collective-permute-start concatenate copy copy-done copy-start "
    "dynamic-slice dynamic-update-slice gather infeed iota outfeed pad partition-id ragged-all-to-all recv recv-done "
    "replica-id reshape reverse send send-done slice slice-done slice-start transpose".split()
)
# Opcodes without a cost: the instructions of the computations that they run count.
FUSIONS = ("fusion", "fusion-start")
"""Opcodes of fusions. `fusion-start` begins a fusion that a GPU runs beside other kernels (JAX 0.12)."""
_BODIES = frozenset("call while conditional async-start async-update async-done call-start call-done".split())


def hlo_bytes(instruction: Instruction, body: Computation) -> int | None:
    """Return the bytes that an instruction in `body` reads and writes; `None` if the size of a dtype is unknown.

    Computations that it runs count themselves; see `fusion_bytes` for a fusion.
    """
    opcode = instruction.opcode
    if opcode in _BODIES or opcode in ("parameter", "constant", "get-tuple-element", "bitcast", "after-all", "domain"):
        return 0
    # A tuple is a table of pointers to its elements; only the table is written.
    if opcode == "tuple":
        return POINTER_BYTES * len(instruction.operands)
    if opcode.endswith("-done"):  # what started it counts
        return 0
    out, sizes = _made(instruction), [_bytes(operand) for operand in body.operands(instruction)]
    # TPUs copy a slice to another memory while they compute: its elements are read and written once.
    if opcode == "slice-start":
        return sum_of(*map(_spec_bytes, 2 * instruction.shapes[1:2]))
    # The result of a start has the operands too, and words for the hardware.
    if opcode in ("all-gather-start", "collective-permute-start", "copy-start"):
        first = 0 if opcode == "copy-start" else len(sizes)
        out = sum_of(*map(_spec_bytes, instruction.shapes[first : first + len(sizes)]))
    if opcode == "transpose" and keeps_place(instruction, body):
        return 0
    # The elements of the slice are read and written; the rest of the operand does not count.
    if opcode == "slice":
        return sum_of(out, out)
    # The indices are read too. A dynamic-slice has an operand for the index on each axis; XLA counts only the first.
    if opcode in ("dynamic-slice", "gather") and len(sizes) > 1:
        return sum_of(out, out, sizes[1])
    # The result aliases the operand, so only the update is read and written. XLA counts only the first index.
    if opcode == "dynamic-update-slice" and len(sizes) > 2:
        return sum_of(sizes[1], sizes[1], sizes[2])
    if opcode == "scatter":
        # As in XLA, the updates are read, and the elements that they replace are read and written. The operands are n
        # arrays, one array of indices, and n updates.
        count = len(sizes) // 2
        return sum_of(*sizes[count:], *(2 * [*sizes[count + 1 :]]))
    return sum_of(out, *sizes)


def fusion_bytes(body: Computation) -> int | None:
    """Return the bytes that a fusion with this body reads and writes: the used parts of operands, and the results.

    The result is `None` if the size of a dtype is unknown, or the text of the body is incomplete.
    """
    root = body.root
    if root is None:
        return None
    results = body.operands(root) if root.opcode == "tuple" else (root,)
    write_sizes = [_written(body, result) for result in results]
    read = [
        _read(body, instruction) if instruction.opcode == "parameter" else _bytes(instruction)
        for instruction in body.by_id.values()
        # A constant of one element is part of the generated code: XLA's immediate_constant_max_elements.
        if instruction.opcode == "parameter" or (instruction.opcode == "constant" and _items(instruction) > 1)
    ]
    return sum_of(*write_sizes, *read)


def _written(body: Computation, instruction: Instruction) -> int | None:
    instruction = _source(body, instruction)
    operands = body.operands(instruction)
    if instruction.opcode == "dynamic-update-slice" and len(operands) > 1:
        return _made(operands[1])
    if instruction.opcode == "scatter" and operands and _source(body, operands[0]).opcode == "parameter":
        return _at_most(_updates(body, instruction), _made(instruction))
    return _made(instruction)


def _read(body: Computation, param: Instruction) -> int | None:
    # Like XLA's FusionParameterReadBytes: a slice reads only its elements. A broadcast or reshape reads the
    # whole operand each time; all other users of the operand share one read.
    reads: list[int | None] = []
    shared: list[int | None] = []
    for user in body.users.get(param.id, ()):
        is_first = user.operands[0] == param.id
        if user.opcode == "slice" or (user.opcode == "dynamic-slice" and is_first):
            reads.append(_bytes(user))
        elif user.opcode == "dynamic-update-slice" and is_first:
            continue  # updated in place, so the rest is not read
        elif user.opcode in ("broadcast", "reshape"):
            reads.append(_bytes(param))
        else:
            shared.append(_used(body, user, param))
    return sum_of(*reads, _at_most(sum_of(*shared), _bytes(param)))


def _used(body: Computation, user: Instruction, operand: Instruction) -> int | None:
    """Return how many bytes of an operand an instruction in a fusion reads."""
    # XLA counts the whole operand. A table of embeddings would then seem to be read in each step.
    if user.opcode == "scatter" and operand.id in user.operands[: len(user.operands) // 2]:
        return _updates(body, user)
    if user.operands[0] == operand.id:
        if user.opcode in ("gather", "slice", "dynamic-slice"):
            return _bytes(user)
        if user.opcode == "dynamic-update-slice":
            return 0
        if user.opcode == "bitcast" and user is not body.root:
            return sum_of(*(_used(body, other, user) for other in body.users.get(user.id, ())))
    return _bytes(operand)


def _updates(body: Computation, scatter: Instruction) -> int | None:
    return sum_of(*map(_bytes, body.operands(scatter)[len(scatter.operands) // 2 + 1 :]))


def _source(body: Computation, instruction: Instruction) -> Instruction:
    while instruction.opcode == "bitcast" and body.operands(instruction):
        (instruction,) = body.operands(instruction)
    return instruction


def _at_most(count: int | None, most: int | None) -> int | None:
    return None if count is None or most is None else min(count, most)


def keeps_place(instruction: Instruction, body: Computation) -> bool:
    """Return whether a copy or a transpose leaves each element where it is: XLA counts 0 bytes for such a transpose."""
    operands = body.operands(instruction)
    if not operands or not operands[0].shapes:
        return False
    sizes = operands[0].shapes[0].shape
    axes = axes_of(instruction, "dimensions") or list(range(len(sizes)))
    row_by_row = tuple(range(len(axes) - 1, -1, -1))
    before = [axis for axis in body.layouts.get(operands[0].id, row_by_row) if sizes[axis] != 1]
    return before == [axes[axis] for axis in body.layouts.get(instruction.id, row_by_row) if sizes[axes[axis]] != 1]


def _dot(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    # As in XLA's GetDotFlops. The contracted axes of both operands have the same sizes.
    axes = axes_of(instruction, "lhs_contracting_dims")
    sizes = operands[0].shapes[0].shape if operands and operands[0].shapes else ()
    return Work(2 * _items(instruction) * prod(int(sizes[axis]) for axis in axes if axis < len(sizes)))


def _convolution(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    return _convolved(instruction, *operands[:2], instruction)


def _convolved(instruction: Instruction, *arrays: Instruction) -> Work:
    attributes = dict(instruction.attributes)
    labels = _LABELS.match(attributes["dim_labels"])
    assert labels is not None
    left, kernel, out = ([int(dim) for dim in array.shapes[0].shape] for array in arrays)
    of_left, of_kernel, of_out = labels.groups()
    window = _window(instruction)
    spatial = sorted(label for label in of_kernel if label.isdigit())

    def each(part: str, usual: str) -> list[str]:
        return window[part].split("x") if part in window else [usual] * len(spatial)

    valid = 1
    for label, stride, pad, base, dilation in zip(
        spatial, each("stride", "1"), each("pad", "0_0"), each("lhs_dilate", "1"), each("rhs_dilate", "1"), strict=True
    ):
        valid *= valid_pairs(
            out[of_out.index(label)],
            kernel[of_kernel.index(label)],
            left[of_left.index(label)],
            (int(stride), int(pad.split("_")[0]), int(base), int(dilation)),
        )
    batch = left[of_left.index("b")] // int(attributes.get("batch_group_count", "1"))
    channels = left[of_left.index("f")] // int(attributes.get("feature_group_count", "1"))
    return Work(2 * batch * out[of_out.index("f")] * channels * valid)


def _reduce_window(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    window, each = _window(instruction), _window_size(instruction)
    count = size(instruction.shapes[0]) * (each - 1)
    # In a softmax for a TPU, XLA writes the sum of a row, broadcast to its n elements, as a window of 2n - 1 elements.
    # Nothing is summed twice: XLA's count is of this order too.
    for n, pad in zip(map(int, instruction.shapes[0].shape), window.get("pad", "").split("x"), strict=False):
        if each == 2 * n - 1 and pad == f"{n - 1}_{n - 1}":
            count = size(instruction.shapes[0]) // n * (n - 1)
    return count * combiner("to_apply")


def _select_and_scatter(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    return size(operands[1].shapes[0]) * ((_window_size(instruction) - 1) * combiner("select") + combiner("scatter"))


def _sort(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    # XLA's HandleSort ignores the axis: the size of the whole operand counts.
    count = size(operands[0].shapes[0])
    return Work(count * ceil(log2(count)) if count > 1 else 0)


def _free(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    return Work(0)


_RULES: dict[str, tuple[str, HloRule | None]] = {
    **dict.fromkeys(_ELEMENTWISE, ("n", lambda instruction, _, __: Work(_items(instruction)))),
    **dict.fromkeys(_TRANSCENDENTAL, ("n transcendentals", lambda instruction, _, __: Work(0, _items(instruction)))),
    **dict.fromkeys(NAMING, ("0: alias", _free)),
    **dict.fromkeys(_MOVING, ("0: moves data", _free)),
    **dict.fromkeys((*_BODIES, *FUSIONS, "fusion-done"), ("its body", _free)),
    # HandleReduceScatter is empty, although HandleAllReduce counts one addition for each element.
    "reduce-scatter": ("0: XLA does not count the additions", _free),
    "topk": ("0: XLA does not count the comparisons", _free),
    "dot": ("2·B·M·N·K", _dot),
    "ragged-dot": (
        f"2·M·N·K, {ONE_GROUP}",
        lambda instruction, operands, _: Work(2 * _items(instruction) * int(operands[0].shapes[0].shape[-1])),
    ),
    "convolution": (f"2·B·F·(C/G)·valid, {NO_PADDING}", _convolution),
    # If several arrays are reduced together, one run of the combiner is for all of them, so one array is counted.
    "reduce": (
        "(in - out)·combiner",
        lambda instruction, operands, combiner: (
            (size(operands[0].shapes[0]) - size(instruction.shapes[0])) * combiner("to_apply")
        ),
    ),
    "reduce-window": (
        "n·(window - 1)·combiner, or those of `reduce` if the window covers an axis from every element",
        _reduce_window,
    ),
    "select-and-scatter": ("source·((window - 1)·select + scatter)", _select_and_scatter),
    # All updates have the same shape, and one run of the combiner is for all of them.
    "scatter": ("updates·combiner", lambda _, operands, combiner: size(operands[-1].shapes[0]) * combiner("to_apply")),
    "map": ("n·combiner", lambda instruction, _, combiner: _items(instruction) * combiner("to_apply")),
    "sort": ("n·ceil(log2 n)", _sort),
    # XLA's HandleFft: 4 multiply-adds for each complex product, times the logarithm of the length of each axis.
    "fft": (
        "8·n·floor(log2(length)), multiplied over the axes",
        lambda instruction, operands, _: Work(
            8 * size(operands[0].shapes[0]) * prod(map(rounds, axes_of(instruction, "fft_length")))
        ),
    ),
    # XLA rounds down once for the whole batch.
    "cholesky": (
        "n³/3",
        lambda _, operands, __: Work(int(operands[0].shapes[0].shape[-1]) * size(operands[0].shapes[0]) // 3),
    ),
    # Twice the count of the literature: XLA's HandleTriangularSolve counts the full matrix, not the triangle.
    "triangular-solve": (
        "2·n·m²",
        lambda _, operands, __: Work(2 * int(operands[0].shapes[0].shape[-1]) * size(operands[1].shapes[0])),
    ),
    # XLA's HandleAllReduce assumes two devices, so one addition for each element.
    **dict.fromkeys(
        ("all-reduce", "all-reduce-start"),
        ("n: as for two devices", lambda instruction, _, __: Work(_items(instruction))),
    ),
}


_OF_PRODUCT = ("2·B·M·N·K, without bias and activation", _dot)
_OF_CONVOLUTION = f"2·B·F·(C/G)·valid, {NO_PADDING}, without bias and activation"
_LIBRARIES: dict[str, tuple[str, HloRule]] = {
    **dict.fromkeys(("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8"), _OF_PRODUCT),
    **dict.fromkeys(("__cudnn$convForward", "__cudnn$convBiasActivationForward"), (_OF_CONVOLUTION, _convolution)),
    # Their windows and labels are those of the forward convolution, whose input or kernel they compute.
    "__cudnn$convBackwardInput": (
        _OF_CONVOLUTION,
        lambda call, operands, _: _convolved(call, call, operands[1], operands[0]),
    ),
    "__cudnn$convBackwardFilter": (
        _OF_CONVOLUTION,
        lambda call, operands, _: _convolved(call, operands[0], call, operands[1]),
    ),
}
"""Calls of NVIDIA's libraries, counted as XLA's GpuHloCostAnalysis does. Their first result is the product."""


def _custom_call(instruction: Instruction, body: Computation) -> tuple[Work | None, int | None, str]:
    attributes = dict(instruction.attributes)
    target = attributes.get("custom_call_target", "").strip('"')
    # XLA counts -1 for these, its code for unknown, but nothing runs for them.
    if target in MARKS:
        return Work(0), 0, "0: alias"
    if target in REARRANGING:
        return Work(0), sum_of(_made(instruction), *map(_bytes, body.operands(instruction))), "0: moves data"
    if target in _LIBRARIES:
        formula, rule = _LIBRARIES[target]
        operands = body.operands(instruction)
        call = replace(instruction, shapes=instruction.shapes[:1])  # without the library's own memory
        return rule(call, operands, lambda _: Work(1)), sum_of(_made(call), *map(_bytes, operands)), formula
    estimate = dict(_ESTIMATED.findall(attributes.get("cost_estimate", "")))
    if not estimate:
        # The name depends on the kind of callback and the platform: `xla_buffer_python_cpu_callback`.
        is_python = "python" in target and "callback" in target
        return None, None, f"{NO_RULE}: {'Python on the host' if is_python else 'a library call'}"
    work = Work(int(estimate.get("flops", 0)), int(estimate.get("transcendentals", 0)))
    return work, int(estimate.get("bytes_accessed", 0)), "its cost_estimate"


def _items(instruction: Instruction) -> int:
    return sum(size(spec) for spec in instruction.shapes)


def _made(instruction: Instruction) -> int | None:
    return sum_of(*map(_spec_bytes, instruction.shapes))


def _bytes(instruction: Instruction) -> int | None:
    # An operand that is a tuple is a table of pointers.
    return POINTER_BYTES * len(instruction.shapes) if len(instruction.shapes) > 1 else _made(instruction)


# Cached, because a program of thousands of instructions has only tens of specs.
_spec_bytes = lru_cache(maxsize=4096)(nbytes)


def _window(instruction: Instruction) -> dict[str, str]:
    return dict(_WINDOW_PART.findall(dict(instruction.attributes).get("window", "")))


def _window_size(instruction: Instruction) -> int:
    return prod(map(int, _window(instruction).get("size", "1").split("x")))


def axes_of(instruction: Instruction, attribute: str) -> list[int]:
    """Return the axes that an attribute lists."""
    return [int(number) for number in re.findall(r"\d+", dict(instruction.attributes).get(attribute, ""))]


# Collectives that may have kCrossReplicaAndPartition groups, see `_group`.
_GROUPED = frozenset({"all-reduce", "all-gather", "reduce-scatter"})
# Kinds of collectives that XLA combines: the result of the combined collective is a tuple with their results.
_COMBINED = _GROUPED | {"collective-permute", "collective-broadcast"}
_KINDS = _COMBINED | {"all-to-all", "ragged-all-to-all", "send"}
_INNER = re.compile(r"\{([\d,]*)\}")  # {0,2} in replica_groups={{0,2},{1,3}}
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")  # [2,4]<=[8], a short form of replica_groups
_MESH = re.compile(r"mesh\[([^\]]*)\](?:, device_ids=\((.*)\))?\s*\{([^}]*)\}$")  # mesh['a'=2,'b'=4] {'b'}
_AXIS = re.compile(r"([^=:,]+)(?:=(\d+)|:\((\d+)\)(\d+))?(?:,|$)")  # 'a'=2, or 'b':(1)2, a part of size 2 of an axis


REDUCE_SCATTER = "all-reduce-scatter"
"""Start of the names of computations in which the TPU compiler reduces and scatters."""


def hlo_sent(instruction: Instruction, body: Computation, module: HloModule) -> Sent:
    """Return the bytes that one device passes to a collective (payload) and sends (wire) in one run of an instruction.

    Both are 0 for other instructions, and `None` if unknown. Of an asynchronous collective, the start instruction sends
    all bytes and the done instruction 0.
    """
    kind = instruction.opcode.removesuffix("-start")
    if kind not in _KINDS:
        return 0, 0
    attributes = dict(instruction.attributes)
    if kind == "send":  # point to point, or to the host, which is not a device of the mesh
        group, kind = (1 if attributes.get("is_host_transfer") == "true" else 2), "collective-permute"
    elif kind == "collective-permute":
        pairs = [pair.split(",") for pair in _INNER.findall(attributes.get("source_target_pairs", "")) if pair]
        group = 1 if "source_target_pairs" in attributes else None
        if any(source != target for source, target in pairs):
            group = 2
    else:
        group = _group(kind, attributes, module)
    # Sizes come from the operands, because the result of a start instruction contains the operands too.
    operands = body.operands(instruction)
    is_complete = len(operands) == len(instruction.operands) > 0
    # TPUs write a reduce-scatter as an all-reduce in a fusion, whose result is the slice of a device.
    if kind == "all-reduce" and body.name.startswith(REDUCE_SCATTER):
        kind = "reduce-scatter"
    payload, wire = sent(kind, [_made(operand) for operand in operands], group) if is_complete else UNKNOWN
    return None if payload is None else int(payload), None if wire is None else int(wire)


def pieces(instruction: Instruction, body: Computation) -> tuple[Piece, ...]:
    """Return the collectives that XLA combined into an instruction, each with its size in bytes; empty if none.

    XLA copies the metadata of each original collective to the `get-tuple-element` that reads its result. The block and
    the part of a training step of each collective come from this metadata.
    """
    kind = instruction.opcode.removesuffix("-start")
    operands = body.operands(instruction)
    if kind not in _COMBINED or len(operands) < 2:
        return ()
    users = body.users.get(instruction.id, ())
    # The result of an asynchronous collective is the result of its done instruction.
    if instruction.opcode != kind:
        users = tuple(item for done in users for item in body.users.get(done.id, ()))
    items = {dict(user.attributes).get("index"): user for user in users if user.opcode == "get-tuple-element"}
    parts: list[Piece] = []
    for index, operand in enumerate(operands):
        size, item = _made(operand), items.get(str(index), operand)
        if size is None:
            return ()
        parts.append((item.id, item.shares, item.role, size))
    return tuple(parts) if any(size for *_, size in parts) else ()


def groups_of(text: str) -> list[list[int]] | None:
    """Return the groups of devices of a collective from its attribute `replica_groups` or `source_target_pairs`.

    The result is `None` if the text lists no groups or has an unknown form.

    Examples:
        >>> groups_of("{{0,1},{2,3}}"), groups_of("[2,2]<=[2,2]T(1,0)"), groups_of("{}")
        ([[0, 1], [2, 3]], [[0, 2], [1, 3]], None)
        >>> groups_of("mesh['a'=2,'b'=2] {'a'}"), groups_of("mesh['a'=1,'b'=4] {'a','b':(1)2}")
        ([[0, 2], [1, 3]], [[0, 2], [1, 3]])
    """
    if _IOTA.fullmatch(text):
        devices = _iota(text)
        return None if devices is None else devices.tolist()
    if mesh := _MESH.match(text):
        return _groups_of_mesh(*mesh.groups())
    return [[int(number) for number in group.split(",")] for group in _INNER.findall(text) if group] or None


def _iota(text: str) -> np.ndarray[Any, Any] | None:
    """Return the array that a short form such as `[4,2]<=[2,4]T(1,0)` describes; `None` if it is no such form."""
    iota = _IOTA.fullmatch(text)
    if iota is None:
        return None
    shape, sizes, order = ([int(number) for number in part.split(",")] if part else [] for part in iota.groups())
    if prod(shape) != prod(sizes):
        return None
    devices = np.arange(prod(sizes)).reshape(sizes)
    return (devices.transpose(order) if order else devices).reshape(shape)


def _groups_of_mesh(axes: str, ids: str | None, along: str) -> list[list[int]] | None:
    """Return the groups along some axes of a mesh, or along parts of axes; `ids` are its devices, if not in order."""
    sizes = {name: int(size) for name, size, *_ in _AXIS.findall(axes)}
    named = _AXIS.findall(along)
    if any(name not in sizes for name, *_ in named):
        return None
    parts = [(name, int(before or 1), int(part or sizes[name])) for name, _, before, part in named]
    # An axis is cut at the edges of its parts: 'b':(2)4 is the part of size 4 after the first 2 of axis 'b'.
    starts: list[tuple[str, int]] = []
    shape: list[int] = []
    for name, length in sizes.items():
        own = [edge for axis, before, part in parts if axis == name for edge in (before, before * part)]
        edges = sorted({1, length, *own})
        if any(larger % smaller for smaller, larger in pairwise(edges)) or edges[-1] > length:
            return None
        starts += [(name, edge) for edge in edges[:-1]]
        shape += [larger // smaller for smaller, larger in pairwise(edges)]
    if ids is None:
        devices = np.arange(prod(shape))
    elif re.fullmatch(r"[\d,]+", ids):
        devices = np.array(ids.split(","), int)
    else:  # the compiler for TPUs omits the shape before `<=`: device_ids=([2,4]T(1,0))
        devices = _iota(ids if "<=" in ids else f"[{prod(shape)}]<={ids}")
    if devices is None or devices.size != prod(shape):
        return None
    chosen = [
        starts.index((axis, edge))
        for name, before, part in parts
        for axis, edge in starts
        if axis == name and before <= edge < before * part
    ]
    last = range(len(shape) - len(chosen), len(shape))
    count = prod(shape[position] for position in chosen)
    return np.moveaxis(devices.reshape(shape), chosen, last).reshape(-1, count).tolist()


def _group(kind: str, attributes: Mapping[str, str], module: HloModule) -> int | None:
    # The comments below name the modes of XLA's `CollectiveOpGroupMode`, and what the groups list in each mode.
    groups = groups_of(attributes.get("replica_groups", ""))
    listed = None if groups is None else max(map(len, groups))
    if "channel_id" not in attributes:  # kCrossReplica: replicas
        return listed or module.replicas
    if attributes.get("use_global_device_ids") == "true":  # kFlattenedID: devices
        return listed or product_of(module.replicas, module.partitions)
    if kind in _GROUPED:  # kCrossReplicaAndPartition: replicas; all partitions of a replica are in the group
        return product_of(listed or module.replicas, module.partitions)
    return listed or module.partitions  # kCrossPartition: partitions


_ESTIMATED = re.compile(r"(\w+)=(-?\d+)")  # flops=64
# Custom calls that only pass shardings to XLA's partitioner, which removes them.
MARKS = frozenset(
    {
        *("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"),
        *("xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape", "xla.sdy.FuncResultSharding"),
        *("AllocateBuffer", "AssumeGatherIndicesInBound", "ConcatBitcast"),
        *("PrepareAsyncCallStart", "PrepareAsyncCallDone"),
    }
)
"""Custom calls for which nothing runs: shardings for XLA's partitioner, and what the TPU compiler notes for itself."""

REARRANGING = ("X64Combine", "X64SplitHigh", "X64SplitLow", "GatherScatterIndicesBitpacked")
"""Custom calls of TPUs that move bits: complex numbers and numbers of 64 bits are two arrays, indices are packed."""


def hlo_costs(
    stage: Stage,
    trips: Mapping[str, int | None] = MappingProxyType({}),
    is_divided: Callable[[Instruction, int | None], bool] | None = None,
    devices: Callable[[Instruction], int] = lambda instruction: 1,
) -> tuple[tuple[CostRow, ...], tuple[Fusion, ...]]:
    """Return the cost of each instruction of a stage, and the fusions of the stage.

    The bytes of a fusion count for the fusion; the instructions inside it have 0 bytes. Only the most expensive branch
    of a conditional counts, as in XLA.
    """
    module = HloModule.of(stage)
    return ((), ()) if module is None else _Costs(module, trips, is_divided, devices).count()


# How often a called computation counts for one run of its caller.
# There are three counts: for costs, for costs with each loop counted as one iteration, and for communication. The last
# one is `None` in a cheaper branch that may send more than the most expensive one.
_Counts = tuple[int | None, int | None, int | None]


class _Costs:
    def __init__(
        self,
        module: HloModule,
        trips: Mapping[str, int | None],
        is_divided: Callable[[Instruction, int | None], bool] | None,
        devices: Callable[[Instruction], int],
    ):
        self._module, self._is_divided, self._devices = module, is_divided, devices
        self._trips = rounds_of_loops(module, trips) if trips else {}
        self._counts: dict[str, _Counts] = dict.fromkeys(module.computations, (0, 0, 0))
        self._fused: dict[str, str] = {}  # the fusion that contains each computation
        # For each instruction in a fusion: its bytes without the fusion, and whether it computes something.
        self._alone: dict[str, list[tuple[int | None, bool]]] = {}
        # Without a cache, a computation that is called twice at each of 40 levels would be visited 2⁴⁰ times.
        self._sums = cache(self._sum_of_body)

    def count(self) -> tuple[tuple[CostRow, ...], tuple[Fusion, ...]]:
        counts = self._counts
        counts[self._module.entry.name] = 1, 1, 1
        # Callers come before callees, so the number of runs is final before it is passed to callees.
        for body in reversed(self._module.callers_last()):
            for instruction in body.by_id.values():
                for callee, each in self._run_by(instruction, body):
                    # A computation may have several callers, so the counts are summed.
                    before, outer = counts[callee.name], counts[body.name]
                    runs, once, sends = (
                        sum_of(count, repeated(times, around))
                        for count, times, around in zip(before, each, outer, strict=True)
                    )
                    counts[callee.name] = runs, once, sends
                    if instruction.opcode in FUSIONS or body.name in self._fused:
                        self._fused[callee.name] = self._fused.get(body.name, instruction.id)
        rows = tuple(
            self._row(instruction, body)
            for body in self._module.computations.values()
            for instruction in body.by_id.values()
        )
        return rows, tuple(
            Fusion(
                row.id,
                row.blocks,
                row.role,
                sum(computes for _, computes in self._alone[row.id]),
                repeated(sum_of(*(moved for moved, _ in self._alone[row.id])), row.repeats),
                row.bytes_accessed,
            )
            for row in rows
            if row.id in self._alone
        )

    def _run_by(self, instruction: Instruction, home: Computation) -> list[tuple[Computation, _Counts]]:
        module = self._module
        if instruction.opcode == "while":
            body = self._rounds(instruction, home)
            # The condition runs once more than the body.
            check = None if body is None else body + 1
            return [
                *((callee, (body, 1, body)) for callee in module.called(instruction, "body")),
                *((callee, (check, 1, check)) for callee in module.called(instruction, "condition")),
            ]
        if instruction.opcode == "conditional":
            branches = module.branches(instruction)
            sums = [self._sums(branch.name) for branch in branches]
            # The most expensive branch counts once. Others count 0 times, or `None` if their cost is unknown.
            best = max(
                range(len(sums)), key=lambda index: sums[index][0].flops + sums[index][0].transcendentals, default=0
            )
            runs: list[tuple[Computation, _Counts]] = []
            for index, (branch, (_, is_known, sent)) in enumerate(zip(branches, sums, strict=True)):
                sends = 0 if sends_no_more(sent, sums[best][2]) else None
                runs.append((branch, (1, 1, 1) if index == best else (0, 0, sends) if is_known else (None, 0, None)))
            return runs
        if instruction.opcode in (*FUSIONS, "call", "async-start", "call-start"):
            called = module.called(instruction, "calls", "to_apply", "called_computations")
            return [(callee, (1, 1, 1)) for callee in called]
        return []

    def _rounds(self, loop: Instruction, home: Computation) -> int | None:
        # From XLA's attribute, from the jaxpr, or from the condition of the loop.
        text = dict(loop.attributes).get("known_trip_count")
        trips = int(text) if text and text.isdigit() else self._trips.get(loop.id)
        return counted_rounds(loop, home, self._module) if trips is None else trips

    def _row(self, instruction: Instruction, body: Computation) -> CostRow:
        work, moved, formula = self._each(instruction, body)
        flops, transcendentals = (None, None) if work is None else (work.flops, work.transcendentals)
        payload, wire = self._sent_each(instruction, body)
        fusion = self._fused.get(body.name)
        if fusion is not None:
            if instruction.opcode not in FUSIONS:
                self._alone.setdefault(fusion, []).append((moved, instruction.opcode not in NAMING))
            moved = 0
        runs, once, sends = self._counts[body.name]
        runs = repeated(self._devices(instruction), runs)
        return CostRow(
            instruction.id,
            instruction.opcode,
            instruction.shares,
            instruction.role,
            repeated(flops, runs),
            repeated(transcendentals, runs),
            repeated(moved, runs),
            runs,
            formula,
            once=only(
                flops=repeated(flops, once),
                transcendentals=repeated(transcendentals, once),
                bytes_accessed=repeated(moved, once),
            ),
            equations=instruction.equations,
            payload_bytes=repeated(payload, sends),
            wire_bytes=repeated(wire, sends),
            pieces=pieces(instruction, body),
        )

    def _each(self, instruction: Instruction, body: Computation) -> tuple[Work | None, int | None, str]:
        if instruction.opcode == "custom-call":
            return _custom_call(instruction, body)
        operands = body.operands(instruction)

        def combiner(attribute: str) -> Work:
            called = self._module.called(instruction, attribute)
            return self._sums(called[0].name)[0] if called else Work(1)

        formula, rule = _RULES.get(instruction.opcode, (NO_RULE, None))
        if instruction.opcode in FUSIONS:
            moved = sum_of(*(fusion_bytes(callee) for callee in self._module.called(instruction, "calls")))
        else:
            moved = hlo_bytes(instruction, body)
        return None if rule is None else rule(instruction, operands, combiner), moved, formula

    def _sum_of_body(self, name: str) -> tuple[Work, bool, Sent]:
        """Return the work of one run of a computation, whether it is all known, and its payload and wire bytes."""
        body = self._module.computations[name]
        total, is_known = Work(0), True
        sizes: list[Sent] = [(0, 0)]
        for instruction in body.by_id.values():
            work, sent = self._each(instruction, body)[0], self._sent_each(instruction, body)
            parts: list[tuple[Work, bool, Sent, int | None, int | None]] = [
                (work or Work(0), work is not None, sent, 1, 1)
            ]
            parts += [
                (*self._sums(callee.name), runs, sends) for callee, (runs, _, sends) in self._run_by(instruction, body)
            ]
            for work, is_part_known, (payload, wire), runs, sends in parts:
                # Unknown work counts 0, and a loop with an unknown trip count as one iteration, as in XLA.
                total += (1 if runs is None else runs) * work
                is_known = is_known and (runs == 0 or (is_part_known and runs is not None))
                sizes.append((repeated(payload, sends), repeated(wire, sends)))
        payload, wire = (sum_of(*column) for column in zip(*sizes, strict=True))
        return total, is_known, (payload, wire)

    def _sent_each(self, instruction: Instruction, body: Computation) -> Sent:
        payload, wire = hlo_sent(instruction, body, self._module)
        is_open = self._is_divided is not None and self._is_divided(instruction, payload)
        return (None, None) if is_open else (payload, wire)
