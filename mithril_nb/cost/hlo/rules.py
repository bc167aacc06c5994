"""Cost of one HLO instruction, counted like XLA's HloCostAnalysis: a rule for each opcode.

Rules use shapes and attributes only. Instructions that run other computations (fusions, calls, loops and conditionals)
have no rule: `hlo_costs` counts these computations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log2, prod

from mithril_nb.cost.formulas.contractions import NO_PADDING, ONE_GROUP, rounds, valid_pairs
from mithril_nb.cost.formulas.sizes import nbytes, size, sum_of
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.hlo.module import Computation
from mithril_nb.stages.jax_versions import POINTER_BYTES
from mithril_nb.stages.records import Instruction


@dataclass(frozen=True)
class Work:
    """FLOPs and calls of `exp`, `tanh`, `sqrt`, ... in one run of an instruction or computation."""

    flops: int
    transcendentals: int = 0


Combiner = Callable[[str], Work]
"""A function from the name of an attribute, such as `"to_apply"`, to the work of one run of the computation in it."""
HloRule = Callable[[Instruction, Sequence[Instruction], Combiner], Work]

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
    "replica-id reshape reverse send send-done slice transpose".split()
)
_FREE = {
    **dict.fromkeys(NAMING, "0: alias"),
    **dict.fromkeys(_MOVING, "0: moves data"),
    # HandleReduceScatter is empty, although HandleAllReduce counts one addition for each element.
    "reduce-scatter": "0: XLA does not count the additions",
    "topk": "0: XLA does not count the comparisons",
}
"""A dict from an opcode for which XLA counts 0 operations to the formula that we show."""
_RULES: dict[str, tuple[str, HloRule]] = {}


def hlo_work(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> tuple[Work | None, str]:
    """Return the FLOPs and transcendentals (`Work`) of one run of an instruction, and the formula for the FLOPs.

    If the opcode has no rule, return `None` and `"no rule"`. The instruction must not run other computations, as a
    `fusion`, `call`, `while` or `conditional` does.
    """
    opcode = instruction.opcode
    if opcode in _ELEMENTWISE:
        return Work(_items(instruction)), "n"
    if opcode in _TRANSCENDENTAL:
        return Work(0, _items(instruction)), "n transcendentals"
    if opcode in _FREE:
        return Work(0), _FREE[opcode]
    formula, rule = _RULES.get(opcode, ("no rule", None))
    return (None if rule is None else rule(instruction, operands, combiner)), formula


def hlo_bytes(instruction: Instruction, body: Computation) -> int | None:
    """Return the bytes that an instruction in `body` reads and writes; `None` if the size of a dtype is unknown.

    The instruction must not run other computations; see `fusion_bytes` for a fusion.
    """
    opcode = instruction.opcode
    if opcode in ("parameter", "constant", "get-tuple-element", "bitcast", "after-all", "domain"):
        return 0
    # A tuple is a table of pointers to its elements; only the table is written.
    if opcode == "tuple":
        return POINTER_BYTES * len(instruction.operands)
    out, sizes = _made(instruction), [_bytes(operand) for operand in body.operands(instruction)]
    if opcode == "transpose" and _keeps_place(instruction, body):
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
    operands = body.operands(instruction)
    return _made(operands[1] if instruction.opcode == "dynamic-update-slice" and len(operands) > 1 else instruction)


def _read(body: Computation, param: Instruction) -> int | None:
    """Return the bytes that a fusion reads of an operand, by XLA's FusionParameterReadBytes.

    A slice reads only its elements. A broadcast or reshape reads the whole operand each time; all other users of the
    operand share one read.
    """
    reads: list[int | None] = []
    is_shared = False
    for user in body.users.get(param.id, ()):
        is_first = user.operands[0] == param.id
        if user.opcode == "slice" or (user.opcode == "dynamic-slice" and is_first):
            reads.append(_bytes(user))
        elif user.opcode == "dynamic-update-slice" and is_first:
            continue  # updated in place, so the rest is not read
        elif user.opcode in ("broadcast", "reshape"):
            reads.append(_bytes(param))
        elif not is_shared:
            is_shared = True
            reads.append(_bytes(param))
    return sum_of(*reads)


def _keeps_place(instruction: Instruction, body: Computation) -> bool:
    """Return whether a transpose moves no element in memory, in which case XLA counts 0 bytes."""
    operands = body.operands(instruction)
    if not operands or not operands[0].shapes:
        return False
    sizes = operands[0].shapes[0].shape
    axes = _numbers(dict(instruction.attributes).get("dimensions", ""))
    row_by_row = tuple(range(len(axes) - 1, -1, -1))
    before = [axis for axis in body.layouts.get(operands[0].id, row_by_row) if sizes[axis] != 1]
    return before == [axes[axis] for axis in body.layouts.get(instruction.id, row_by_row) if sizes[axes[axis]] != 1]


def _rule(*opcodes: str, formula: str) -> Callable[[HloRule], HloRule]:
    def register(work: HloRule) -> HloRule:
        for opcode in opcodes:
            _RULES[opcode] = formula, work
        return work

    return register


@_rule("dot", formula="2·B·M·N·K")
def _dot(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    # As in XLA's GetDotFlops. The contracted axes of both operands have the same sizes.
    axes = _numbers(dict(instruction.attributes).get("lhs_contracting_dims", ""))
    sizes = operands[0].shapes[0].shape if operands and operands[0].shapes else ()
    return Work(2 * _items(instruction) * prod(int(sizes[axis]) for axis in axes if axis < len(sizes)))


@_rule("ragged-dot", formula=f"2·M·N·K, {ONE_GROUP}")
def _ragged_dot(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    return Work(2 * _items(instruction) * int(operands[0].shapes[0].shape[-1]))


@_rule("convolution", formula=f"2·B·F·(C/G)·valid, {NO_PADDING}")
def _convolution(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    attributes = dict(instruction.attributes)
    labels = _LABELS.match(attributes["dim_labels"])
    assert labels is not None
    left, kernel, out = ([int(dim) for dim in spec.shape] for spec in _first_specs(*operands[:2], instruction))
    of_left, of_kernel, of_out = labels.groups()
    window = dict(_WINDOW_PART.findall(attributes.get("window", "")))
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


@_rule("reduce", formula="(in - out)·combiner")
def _reduce(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    # If several arrays are reduced together, one run of the combiner is for all of them, so one array is counted.
    operand, result = _first_specs(operands[0], instruction)
    return _times(size(operand) - size(result), combiner("to_apply"))


@_rule("reduce-window", formula="n·(window - 1)·combiner")
def _reduce_window(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    return _times(size(instruction.shapes[0]) * (_window(instruction) - 1), combiner("to_apply"))


@_rule("select-and-scatter", formula="source·((window - 1)·select + scatter)")
def _select_and_scatter(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    source = size(operands[1].shapes[0])
    chosen, added = _times(source * (_window(instruction) - 1), combiner("select")), _times(source, combiner("scatter"))
    return Work(chosen.flops + added.flops, chosen.transcendentals + added.transcendentals)


@_rule("scatter", formula="updates·combiner")
def _scatter(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    # All updates have the same shape, and one run of the combiner is for all of them.
    return _times(size(operands[-1].shapes[0]), combiner("to_apply"))


@_rule("map", formula="n·combiner")
def _map(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    return _times(_items(instruction), combiner("to_apply"))


@_rule("sort", formula="n·ceil(log2 n)")
def _sort(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    # XLA's HandleSort ignores the axis: n is the size of the whole operand.
    count = size(operands[0].shapes[0])
    return Work(count * ceil(log2(count)) if count > 1 else 0)


@_rule("fft", formula="8·n·floor(log2(length)), multiplied over the axes")
def _fourier(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    lengths = _numbers(dict(instruction.attributes).get("fft_length", ""))
    # XLA's HandleFft: 4 multiply-adds for each complex product, times the logarithm of the length of each axis.
    return Work(8 * size(operands[0].shapes[0]) * prod(map(rounds, lengths)))


@_rule("cholesky", formula="n³/3")
def _cholesky(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    spec = operands[0].shapes[0]
    # XLA rounds down once for the whole batch.
    return Work(int(spec.shape[-1]) * size(spec) // 3)


@_rule("triangular-solve", formula="2·n·m²")
def _triangular_solve(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    left, right = _first_specs(*operands[:2])
    # Twice the count of the literature: XLA's HandleTriangularSolve counts the full matrix, not the triangle.
    return Work(2 * int(left.shape[-1]) * size(right))


@_rule("all-reduce", "all-reduce-start", formula="n: as for two devices")
def _all_reduce(instruction: Instruction, operands: Sequence[Instruction], combiner: Combiner) -> Work:
    # XLA's HandleAllReduce assumes two devices, so one addition for each element.
    return Work(_items(instruction))


def _times(count: int, work: Work) -> Work:
    return Work(count * work.flops, count * work.transcendentals)


def _items(instruction: Instruction) -> int:
    return sum(size(spec) for spec in instruction.shapes)


def _first_specs(*instructions: Instruction) -> tuple[TensorSpec, ...]:
    return tuple(instruction.shapes[0] for instruction in instructions)


def _made(instruction: Instruction) -> int | None:
    """Return the bytes of a result; for a tuple, those of all its arrays."""
    return (
        _spec_bytes(instruction.shapes[0])
        if len(instruction.shapes) == 1
        else sum_of(*map(_spec_bytes, instruction.shapes))
    )


def _bytes(instruction: Instruction) -> int | None:
    """Return the bytes of an operand; for a tuple, those of its table of pointers."""
    return POINTER_BYTES * len(instruction.shapes) if len(instruction.shapes) > 1 else _made(instruction)


@lru_cache(maxsize=4096)
def _spec_bytes(spec: TensorSpec) -> int | None:
    return nbytes(spec)  # cached: a program of thousands of instructions has only tens of specs


def _window(instruction: Instruction) -> int:
    window: Mapping[str, str] = dict(_WINDOW_PART.findall(dict(instruction.attributes).get("window", "")))
    return prod(int(part) for part in window.get("size", "1").split("x"))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]
