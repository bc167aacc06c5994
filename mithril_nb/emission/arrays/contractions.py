"""Rules for matrix products, convolutions, windows and linear algebra."""

from __future__ import annotations

import math
from string import ascii_lowercase
from typing import Any

from mithril_nb.emission.arrays.elementwise import is_float
from mithril_nb.emission.arrays.rules import Context, changed, rule, sizes
from mithril_nb.emission.program import Operand, Statement


@rule("dot_general")
def _dot_general(to: Context, one: Statement) -> str:
    dtype = one.outputs[0].dtype
    if (not is_float(dtype) and to.library == "mlx") or (dtype == "bool" and to.library == "torch"):
        raise to.unsupported(one, "bool" if dtype == "bool" else "integers")
    return _matmul(to, one, *map(to.array, one.inputs))


def _matmul(to: Context, one: Statement, left: str, right: str) -> str:
    (left_over, right_over), (left_batch, right_batch) = one.params["dimension_numbers"]
    ranks = len(one.inputs[0].shape), len(one.inputs[1].shape)
    count = len(left_batch)
    is_leading = tuple(left_batch) == tuple(right_batch) == tuple(range(count))
    free = ranks[0] - count - len(left_over), ranks[1] - count - len(right_over)
    if (
        is_leading
        and len(left_over) == 1
        and free in ((1, 1), (0, 1), (1, 0), (0, 0))
        and (count == 0 or free == (1, 1))
    ):
        first = left if left_over[0] == ranks[0] - 1 else _swapped(to, left, ranks[0])
        second = right if right_over[0] == max(ranks[1] - 2, 0) else _swapped(to, right, ranks[1])
        return f"{first} @ {second}"
    if not count and len(left_over) == 1 and left_over[0] == ranks[0] - 1 and ranks[1] == 2:
        return f"{left} @ {right if right_over[0] == 0 else _swapped(to, right, 2)}"
    summed = len(left_over)
    if summed > 1 and (count, *free) == (0, 1, 1) and tuple(left_over) == tuple(right_over) == tuple(range(summed)):
        # The gradient of a weight. This form copies no arrays, unlike tensordot and einsum.
        rows = math.prod(one.inputs[0].shape[:-1])
        widths = [each.shape[-1] for each in one.inputs]
        left_rows, right_rows = (-1 if width else rows for width in widths)  # -1 is ambiguous for empty arrays
        return f"{left}.reshape({left_rows}, {widths[0]}).T @ {right}.reshape({right_rows}, {widths[1]})"
    if not count and left_over and to.library != "torch":  # torch.tensordot rejects mixed dtypes under autocast
        axes = f"({[int(axis) for axis in left_over]}, {[int(axis) for axis in right_over]})"
        return f"{to.module}.tensordot({left}, {right}, axes={axes})"
    return f"{to.module}.einsum({equation(one)!r}, {left}, {right})"


def _swapped(to: Context, text: str, rank: int) -> str:
    return f"{text}.T" if rank == 2 else f"{text}.swapaxes(-1, -2)"


def equation(one: Statement) -> str:
    """Return the equation, the first argument of `einsum`, that computes a `dot_general`.

    Examples:
        >>> from mithril_nb.emission.program import Value
        >>> arrays = Value("x", (2, 3), "float32"), Value("y", (2, 3), "float32")
        >>> equation(Statement("dot_general", arrays, (), {"dimension_numbers": (((1,), (1,)), ((0,), (0,)))}))
        'ab,ab->a'
    """
    (left_over, right_over), (left_batch, right_batch) = one.params["dimension_numbers"]
    ranks = [len(each.shape) for each in one.inputs]
    letters = iter(ascii_lowercase)
    left = [next(letters) for _ in range(ranks[0])]
    right = [""] * ranks[1]
    for mine, other in zip((*left_batch, *left_over), (*right_batch, *right_over), strict=True):
        right[other] = left[mine]
    right = [letter or next(letters) for letter in right]
    batch = [left[axis] for axis in left_batch]
    free = [letter for axis, letter in enumerate(left) if axis not in (*left_batch, *left_over)]
    free += [letter for axis, letter in enumerate(right) if axis not in (*right_batch, *right_over)]
    return f"{''.join(left)},{''.join(right)}->{''.join(batch + free)}"


@rule("conv_general_dilated")
def _conv(to: Context, one: Statement) -> str:
    params, (array, kernel) = one.params, one.inputs
    if to.library == "mlx" and not is_float(array.dtype):
        raise to.unsupported(one, "integers")
    numbers = params["dimension_numbers"]
    if params["batch_group_count"] != 1 and params["feature_group_count"] != 1:
        raise to.unsupported(one, "feature_group_count and batch_group_count that are both above 1")
    rank = len(array.shape) - 2
    options = {
        "strides": (params["window_strides"], [1] * rank),
        "padding": (params["padding"], [(0, 0)] * rank),
        "lhs_dilation": (params["lhs_dilation"], [1] * rank),
        "rhs_dilation": (params["rhs_dilation"], [1] * rank),
        "groups": (params["feature_group_count"], 1),
        "batch_groups": (params["batch_group_count"], 1),
    }
    first, second = _ordered(to, array, numbers.lhs_spec), _ordered(to, kernel, numbers.rhs_spec)
    found = to.helper("conv", first, second, *changed(options))
    back = tuple(sorted(range(rank + 2), key=lambda axis: numbers.out_spec[axis]))
    return found if back == tuple(range(rank + 2)) else _permuted(to, found, back)


def _ordered(to: Context, one: Operand, order: tuple[int, ...]) -> str:
    """Return a transposed array. The order of the axes is that of the helper function `conv`."""
    text = to.array(one)
    return text if tuple(order) == tuple(range(len(order))) else _permuted(to, text, order)


def _permuted(to: Context, text: str, order: Any) -> str:
    return f"{text}.{to.dialect.permute}({', '.join(str(int(axis)) for axis in order)})"


def _window(one: Statement) -> list[str]:
    params = one.params
    rank = len(params["window_dimensions"])
    ones = [1] * rank
    return changed(
        {
            "strides": (params["window_strides"], ones),
            "padding": (params["padding"], [(0, 0)] * rank),
            "base_dilation": (params.get("base_dilation", ones), ones),
            "window_dilation": (params.get("window_dilation", ones), ones),
        }
    )


_POOLS = {
    "reduce_window_max": "max_pool", "reduce_window_min": "min_pool", "reduce_window_sum": "sum_pool",
}  # fmt: skip
_COMBINERS = {"add": "sum_pool", "max": "max_pool", "min": "min_pool", "mul": "prod_pool"}


@rule(*_POOLS)
def _pool(to: Context, one: Statement) -> str:
    if to.library == "torch" and one.primitive == "reduce_window_max" and (text := _torch_max_pool(to, one)):
        return text
    size = sizes(one.params["window_dimensions"])
    return to.helper(_POOLS[one.primitive], to.array(one.inputs[0]), size, *_window(one))


def _torch_max_pool(to: Context, one: Statement) -> str:
    """Return a call of PyTorch's max pooling, or `""` if PyTorch does not support this window or dtype."""
    (array,), (output,), params = one.inputs, one.outputs, one.params
    size, rank = params["window_dimensions"][2:], len(array.shape) - 2
    steps, pads = params["window_strides"], params["padding"]
    gaps = params.get("window_dilation") or (1,) * (rank + 2)
    is_outside = {*params["window_dimensions"][:2], *steps[:2], *gaps[:2], *(params.get("base_dilation") or ())} - {1}
    pairs = zip(pads[2:], size, strict=True)
    are_even = all(before == after and 0 <= before <= length // 2 for (before, after), length in pairs)
    is_plain = not is_outside and not any(map(any, pads[:2])) and array.dtype.startswith("float")
    if not (is_plain and are_even and 1 <= rank <= 3 and output.size):
        return ""
    options = [f"stride={sizes(steps[2:])}"]
    options += [f"padding={sizes([before for before, _ in pads[2:]])}"] if any(map(any, pads[2:])) else []
    options += [f"dilation={sizes(gaps[2:])}"] if set(gaps[2:]) != {1} else []
    return f"torch.nn.functional.max_pool{rank}d({to.array(array)}, {sizes(size)}, {', '.join(options)})"


@rule("reduce_window")
def _reduce_window(to: Context, one: Statement) -> str:
    size = sizes(one.params["window_dimensions"])
    found = to.helper(_COMBINERS[_combiner(to, one)], to.array(one.inputs[0]), size, *_window(one))
    return _with_start(to, one, found)


@rule("reduce")
def _reduce(to: Context, one: Statement) -> str:
    axes = sizes(one.params["dimensions"])
    if to.library == "torch":
        raise to.unsupported(one)
    combiner = _combiner(to, one)
    name = {"add": "sum", "mul": "prod"}.get(combiner, combiner)
    return _with_start(to, one, f"{to.array(one.inputs[0])}.{name}(axis={axes})")


def _combiner(to: Context, one: Statement) -> str:
    if one.combiner not in _COMBINERS:
        raise to.unsupported(one, f"combining items by a function other than {', '.join(_COMBINERS)}")
    return one.combiner


def _with_start(to: Context, one: Statement, text: str) -> str:
    """Return the expression that combines a reduction with its initial value, the second operand."""
    start = to.operand(one.inputs[1])
    if one.combiner in ("add", "mul"):
        return f"{text} {'+' if one.combiner == 'add' else '*'} {to.right(start)}"
    return to.function(one.combiner, text, to.array(one.inputs[1]) if to.library == "torch" else start)


@rule("select_and_scatter_add", "select_and_gather_add")
def _unpool(to: Context, one: Statement) -> str:
    source, array = one.inputs
    if not one.selected:
        raise to.unsupported(one, "selection by a primitive other than ge and le")
    size = sizes(one.params["window_dimensions"])
    name = "unpool" if one.primitive == "select_and_scatter_add" else "pool_of_other"
    return to.helper(name, to.array(source), to.array(array), size, repr(one.selected), *_window(one))


@rule("triangular_solve")
def _triangular_solve(to: Context, one: Statement) -> str:
    names = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    shown = [f"{name}={bool(one.params[name])}" for name in names]
    return to.helper("triangular_solve", *to.arrays(one), *shown)


@rule("qr")
def _qr(to: Context, one: Statement) -> str:
    if one.params.get("pivoting"):
        raise to.unsupported(one, "QR with pivoting")
    return to.helper("qr", to.array(one.inputs[0]), repr(bool(one.params["full_matrices"])))


@rule("svd")
def _svd(to: Context, one: Statement) -> str:
    full, vectors = bool(one.params["full_matrices"]), bool(one.params["compute_uv"])
    found = to.helper("svd", to.array(one.inputs[0]), repr(full), repr(vectors))
    return found if vectors else f"({found})[0]"


@rule("eigh")
def _eigh(to: Context, one: Statement) -> str:
    return to.helper("eigh", to.array(one.inputs[0]), repr(bool(one.params["lower"])))


@rule("fft")
def _fft(to: Context, one: Statement) -> str:
    kind = one.params["fft_type"].name.lower()
    lengths = [int(size) for size in one.params["fft_lengths"]]
    axes = list(range(-len(lengths), 0))
    name = "dim" if to.library == "torch" else "axes"
    size = f", s={lengths}" if kind == "irfft" else ""
    found = f"{to.module}.fft.{kind}n({to.array(one.inputs[0])}{size}, {name}={axes})"
    return to.cast(found, one.outputs[0].dtype) if to.library == "numpy" else found
