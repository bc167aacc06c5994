"""Rules for matrix products, convolutions, windows and linear algebra."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_lowercase

from mithril_nb.emission.arrays.rules import RULES, ArrayContext, changed, is_float, rule, sizes
from mithril_nb.emission.params import product_axes, windows_of
from mithril_nb.emission.program import POOLS, Statement


@rule("dot_general")
def _dot_general(to: ArrayContext, op: Statement) -> str:
    dtype = op.dtype
    # mx.matmul rejects integers, and torch.matmul bools.
    if (not is_float(dtype) and to.library == "mlx") or (dtype == "bool" and to.library == "torch"):
        raise to.unsupported("bool" if dtype == "bool" else "integers")
    left, right = to.arrays(op)
    (left_batch, left_free, left_over), (right_batch, right_free, right_over) = product_axes(op)
    ranks = [len(operand.shape) for operand in op.inputs]
    batch, free, summed = len(left_batch), (len(left_free), len(right_free)), len(left_over)
    is_leading = tuple(left_batch) == tuple(right_batch) == tuple(range(batch))

    def swapped(text: str, rank: int, swaps: bool) -> str:
        return (f"{text}.T" if rank == 2 else f"{text}.swapaxes(-1, -2)") if swaps else text

    if is_leading and summed == 1 and max(free) <= 1 and (batch == 0 or free == (1, 1)):
        first = swapped(left, ranks[0], left_over[0] != ranks[0] - 1)
        return f"{first} @ {swapped(right, ranks[1], right_over[0] != max(ranks[1] - 2, 0))}"
    if not batch and summed == 1 and left_over[0] == ranks[0] - 1 and ranks[1] == 2:
        return f"{left} @ {swapped(right, 2, right_over[0] != 0)}"
    if summed > 1 and (batch, *free) == (0, 1, 1) and tuple(left_over) == tuple(right_over) == tuple(range(summed)):
        # The gradient of a weight. This form copies no arrays, unlike tensordot and einsum.
        rows = math.prod(op.operand.shape[:-1])
        widths = [operand.shape[-1] for operand in op.inputs]
        left_rows, right_rows = (-1 if width else rows for width in widths)  # -1 is ambiguous for empty arrays
        return f"{left}.reshape({left_rows}, {widths[0]}).T @ {right}.reshape({right_rows}, {widths[1]})"
    if not batch and left_over and to.library != "torch":  # torch.tensordot rejects mixed dtypes under autocast
        axes = f"({[*map(int, left_over)]}, {[*map(int, right_over)]})"
        return f"{to.module}.tensordot({left}, {right}, axes={axes})"
    letters = iter(ascii_lowercase)
    first = "".join(next(letters) for _ in range(ranks[0]))
    shared = dict(zip((*right_batch, *right_over), (*left_batch, *left_over), strict=True))
    second = "".join(first[shared[axis]] if axis in shared else next(letters) for axis in range(ranks[1]))
    result = "".join([*(first[axis] for axis in (*left_batch, *left_free)), *(second[axis] for axis in right_free)])
    return f"{to.module}.einsum('{first},{second}->{result}', {left}, {right})"


@rule("conv_general_dilated")
def _conv(to: ArrayContext, op: Statement) -> str:
    params, (array, kernel) = op.params, op.inputs
    if to.library == "mlx" and not is_float(array.dtype):  # the helper multiplies matrices
        raise to.unsupported("integers")
    numbers = params["dimension_numbers"]
    if params["batch_group_count"] != 1 and params["feature_group_count"] != 1:
        raise to.unsupported("feature_group_count and batch_group_count that are both above 1")
    rank = len(array.shape) - 2
    options = {
        "strides": (params["window_strides"], [1] * rank),
        "padding": (params["padding"], [(0, 0)] * rank),
        "lhs_dilation": (params["lhs_dilation"], [1] * rank),
        "rhs_dilation": (params["rhs_dilation"], [1] * rank),
        "groups": (params["feature_group_count"], 1),
        "batch_groups": (params["batch_group_count"], 1),
    }

    def ordered(text: str, order: Sequence[int]) -> str:
        return text if [*order] == sorted(order) else to.permuted(text, order)

    first, second = ordered(to.array(array), numbers.lhs_spec), ordered(to.array(kernel), numbers.rhs_spec)
    back = sorted(range(rank + 2), key=lambda axis: numbers.out_spec[axis])
    return ordered(to.helper("conv", first, second, *changed(options)), back)


_COMBINERS = {"add": "sum_pool", "max": "max_pool", "min": "min_pool", "mul": "prod_pool"}


def _pooled(to: ArrayContext, op: Statement, name: str, *more: str) -> str:
    windows = windows_of(op)
    unit = [1] * len(windows.sizes)
    options = {
        "strides": (windows.strides, unit),
        "padding": (windows.padding, [(0, 0)] * len(unit)),
        "base_dilation": (windows.base_dilation, unit),
        "window_dilation": (windows.dilation, unit),
    }
    arrays = to.arrays(op) if more else [to.array(op.operand)]
    return to.helper(name, *arrays, sizes(windows.sizes), *more, *changed(options))


@rule(*POOLS)
def _pool(to: ArrayContext, op: Statement) -> str:
    if to.library == "torch" and op.primitive == "reduce_window_max" and (text := _torch_max_pool(to, op)):
        return text
    return _pooled(to, op, _COMBINERS[POOLS[op.primitive]])


def _torch_max_pool(to: ArrayContext, op: Statement) -> str:
    # PyTorch's function takes only even padding, of floats. "" if it does not fit.
    array, windows = op.operand, windows_of(op)
    size, rank = windows.sizes[2:], len(array.shape) - 2
    steps, pads, gaps = windows.strides, windows.padding, windows.dilation
    is_outside = {*windows.sizes[:2], *steps[:2], *gaps[:2], *windows.base_dilation} - {1}
    pairs = zip(pads[2:], size, strict=True)
    are_even = all(before == after and 0 <= before <= length // 2 for (before, after), length in pairs)
    is_plain = not is_outside and not any(map(any, pads[:2])) and array.dtype.startswith("float")
    if not (is_plain and are_even and 1 <= rank <= 3 and op.output.size):
        return ""
    options = [f"stride={sizes(steps[2:])}"]
    options += [f"padding={sizes([before for before, _ in pads[2:]])}"] if any(map(any, pads[2:])) else []
    options += [f"dilation={sizes(gaps[2:])}"] if set(gaps[2:]) != {1} else []
    return f"torch.nn.functional.max_pool{rank}d({to.array(array)}, {sizes(size)}, {', '.join(options)})"


@rule("reduce")
def _reduce(to: ArrayContext, op: Statement) -> str:
    if to.library == "torch":  # its reductions take one axis or none, each in another form
        raise to.unsupported()
    combiner = to.combiner(op, _COMBINERS)
    name = {"add": "sum", "mul": "prod"}.get(combiner, combiner)
    return _with_start(to, op, f"{to.array(op.operand)}.{name}(axis={sizes(op['dimensions'])})")


def _with_start(to: ArrayContext, op: Statement, text: str) -> str:
    start = op.inputs[1]
    if op.combiner in ("add", "mul"):
        return f"{text} {'+' if op.combiner == 'add' else '*'} {to.right(to.operand(start))}"
    return to.function(op.combiner, text, to.array(start) if to.library == "torch" else to.operand(start))


_SOLVING = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
RULES.update({
    "eigh": lambda to, op: to.helper("eigh", to.array(op.operand), repr(bool(op["lower"]))),
    "select_and_scatter_add": lambda to, op: _pooled(to, op, "unpool", repr(to.selected(op))),
    "select_and_gather_add": lambda to, op: _pooled(to, op, "pool_of_other", repr(to.selected(op))),
    "triangular_solve": lambda to, op: to.helper(
        "triangular_solve", *to.arrays(op), *(f"{name}={bool(op[name])}" for name in _SOLVING)
    ),
    "reduce_window": lambda to, op: _with_start(to, op, _pooled(to, op, _COMBINERS[to.combiner(op, _COMBINERS)])),
})  # fmt: skip


@rule("qr")
def _qr(to: ArrayContext, op: Statement) -> str:
    if op.params.get("pivoting"):  # no library has it
        raise to.unsupported("QR with pivoting")
    return to.helper("qr", to.array(op.operand), repr(bool(op["full_matrices"])))


@rule("svd")
def _svd(to: ArrayContext, op: Statement) -> str:
    vectors = bool(op["compute_uv"])
    text = to.helper("svd", to.array(op.operand), repr(bool(op["full_matrices"])), repr(vectors))
    return text if vectors else f"({text})[0]"


@rule("fft")
def _fft(to: ArrayContext, op: Statement) -> str:
    kind = op["fft_type"].name.lower()
    lengths = [*map(int, op["fft_lengths"])]
    name = "dim" if to.library == "torch" else "axes"
    # An even and the next odd length have equally many frequencies, so the inverse needs the length.
    size = f", s={lengths}" if kind == "irfft" else ""
    text = f"{to.module}.fft.{kind}n({to.array(op.operand)}{size}, {name}={[*range(-len(lengths), 0)]})"
    return to.cast(text, op.dtype) if to.library == "numpy" else text  # an exported file may run on NumPy 1: float64
