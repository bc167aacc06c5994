"""Rules for primitives that shape, join, reduce, create, sort and index arrays, and for random numbers."""

from __future__ import annotations

from collections.abc import Sequence

from mithril_nb.emission.arrays.rules import RULES, ArrayContext, is_float, plain, rule, sizes
from mithril_nb.emission.params import expanded_shape, fill_of
from mithril_nb.emission.program import KEEPDIMS, Number, Statement, Value
from mithril_nb.emission.sizes import number


def _joined(to: ArrayContext, name: str, op: Statement, axis: int) -> str:
    return f"{to.module}.{name}([{', '.join(to.arrays(op))}], {to.dialect.axis}={axis})"


RULES.update({
    "concatenate": lambda to, op: _joined(
        to, "cat" if to.library == "torch" else "concatenate", op, op["dimension"]
    ),
    "stack": lambda to, op: _joined(to, "stack", op, op["axis"]),
    "tile": lambda to, op: f"{to.module}.tile({to.array(op.operand)}, {sizes(op['reps'])})",
    "dim_as_value": lambda to, op: (
        f"{to.module}.{'tensor' if to.library == 'torch' else 'array'}({op['dim']}, dtype={to.dtype(op.dtype)})"
    ),
    # Zeros, because undefined items would differ from run to run.
    **dict.fromkeys(
        ("empty", "empty2"), lambda to, op: f"{to.module}.zeros({sizes(op.shape)}, dtype={to.dtype(op.dtype)})"
    ),
    "random_split": lambda to, op: to.helper("random_split", to.array(op.operand), sizes(op["shape"])),
    "pad": lambda to, op: to.helper(
        "pad", to.array(op.operand), to.operand(op.inputs[1]), plain(op["padding_config"])
    ),
    "dynamic_slice": lambda to, op: to.helper(
        "dynamic_slice", to.array(op.operand), in_tuple([*map(to.operand, op.inputs[1:])]), sizes(op["slice_sizes"])
    ),
    "dynamic_update_slice": lambda to, op: to.helper(
        "dynamic_update_slice", *map(to.array, op.inputs[:2]), in_tuple([*map(to.operand, op.inputs[2:])])
    ),
})  # fmt: skip


@rule("reshape", "squeeze", "expand_dims")
def _reshape(to: ArrayContext, op: Statement) -> str:
    operand, shape = op.operand, to.full_shape(op.output)
    text = to.array(operand)
    if not isinstance(operand, Value):
        return f"{to.module}.reshape({text}, {sizes(shape)})"
    return f"{text}[..., None]" if shape == (*operand.shape, 1) else f"{text}.reshape({sizes(shape)})"


@rule("broadcast_in_dim")
def _broadcast(to: ArrayContext, op: Statement) -> str:
    operand, shape = op.operand, to.full_shape(op.output)
    if isinstance(operand, Number):
        return filled(to, op.output, operand)
    source_shape = to.full_shape(operand)
    expanded = (*expanded_shape(op), *shape[len(op.shape) :])
    text = operand.name
    # The libraries add axes in front by themselves.
    if expanded[len(expanded) - len(source_shape) :] != source_shape:
        text = f"{text}.reshape({sizes(expanded)})"
    return f"{to.module}.broadcast_to({text}, {sizes(shape)})"


def filled(to: ArrayContext, output: Value, number: Number) -> str:
    """Return the expression of an array with the shape of `output` that is filled with a number."""
    name = {0: "zeros", 1: "ones"}.get(number.value) if output.dtype != "bool" else None  # pyright: ignore
    arguments = sizes(output.shape)
    if name is None or str(number.value).startswith("-"):  # -0.0 is no zero
        name, arguments = "full", f"{arguments}, {to.number(number)}"
    return f"{to.module}.{name}({arguments}, dtype={to.dtype(output.dtype)})"


@rule("transpose")
def _transpose(to: ArrayContext, op: Statement) -> str:
    order, text = tuple(op["permutation"]), to.array(op.operand)
    order += (len(order),) * (len(to.full_shape(op.operand)) - len(order))  # the axis of the words of a random key
    return f"{text}.T" if order == (1, 0) else to.permuted(text, order)


@rule("unstack")
def _unstack(to: ArrayContext, op: Statement) -> str:
    text, axis = to.array(op.operand), op["axis"]
    if to.library == "torch":
        text = f"torch.unbind({text}, dim={axis})"
    elif axis != 0:
        text = f"{to.module}.moveaxis({text}, {axis}, 0)"
    return f"{text}[0]" if len(op.outputs) == 1 else text


@rule("split")
def _split(to: ArrayContext, op: Statement) -> str:
    parts = [*map(number, op["sizes"])]
    if to.library != "torch":  # the others take the positions between the parts
        parts = [sum(parts[: index + 1]) for index in range(len(parts) - 1)]
    text = f"{to.module}.split({to.array(op.operand)}, {parts}, {to.dialect.axis}={op['axis']})"
    return f"({text})[0]" if len(op.outputs) == 1 else text


@rule("rev")
def _reverse(to: ArrayContext, op: Statement) -> str:
    axes, text = op["dimensions"], to.array(op.operand)
    if to.library == "torch":  # it has no slices with a negative step
        return f"torch.flip({text}, {sizes(axes)})"
    return f"{text}[{', '.join('::-1' if axis in axes else ':' for axis in range(max(axes) + 1))}]"


@rule("slice")
def _take_slice(to: ArrayContext, op: Statement) -> str:
    params, text = op.params, to.array(op.operand)
    starts, limits = params["start_indices"], params["limit_indices"]
    # As short as in hand-written code: x[1:, ::2].
    parts: list[str] = []
    for first, last, step, size in zip(
        starts, limits, params["strides"] or [1] * len(starts), op.operand.shape, strict=True
    ):
        parts.append(f"{first or ''}:{'' if last == size else last}{f':{step}' if step != 1 else ''}")
    while parts and parts[-1] == ":":
        parts.pop()
    return f"{text}[{', '.join(parts)}]" if parts else text


@rule("iota")
def _iota(to: ArrayContext, op: Statement) -> str:
    shape, axis = op.shape, op["dimension"]
    text = f"{to.module}.arange({shape[axis]}, dtype={to.dtype(op.dtype)})"
    if len(shape) == 1:
        return text
    expanded = tuple([size if index == axis else 1 for index, size in enumerate(shape)])
    if expanded == shape or axis != len(shape) - 1:
        text = f"{text}.reshape({sizes(expanded)})"
    return text if expanded == shape else f"{to.module}.broadcast_to({text}, {sizes(shape)})"


_REDUCTIONS = {
    "reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min", "reduce_prod": "prod", "reduce_and": "all",
    "reduce_or": "any",
}  # fmt: skip


@rule(*_REDUCTIONS)
def _reduce(to: ArrayContext, op: Statement) -> str:
    text, axes, dtype = to.array(op.operand), op["axes"], op.dtype
    name, is_torch = _REDUCTIONS[op.primitive], to.library == "torch"
    if name in ("all", "any") and dtype != "bool":  # JAX combines their bits
        raise to.unsupported("integers")
    if is_torch and name == "prod":  # torch.prod takes one axis
        return to.helper("reduce_prod", text, sizes(axes), repr(bool(op.params.get(KEEPDIMS))))
    options = f"{to.dialect.axis}={repr(int(axes[0])) if len(axes) == 1 else sizes(axes)}"
    if op.params.get(KEEPDIMS):
        options += f", {to.dialect.keepdims}=True"
    # The libraries return sums of narrow integers in a wider dtype by default.
    widens = name in ("sum", "prod") and not is_float(dtype)
    if widens and to.library == "mlx":  # its sums take no dtype
        return to.cast(f"{text}.{name}({options})", dtype)
    if widens:
        options += f", dtype={to.dtype(dtype)}"
    if is_torch:
        return f"torch.{ {'max': 'amax', 'min': 'amin'}.get(name, name) }({text}, {options})"
    return f"{text}.{name}({options})"


@rule("argmax", "argmin")
def _argmax(to: ArrayContext, op: Statement) -> str:
    (axis,) = op["axes"]
    # The libraries return int64, or uint32 in MLX.
    return to.cast(f"{to.module}.{op.primitive}({to.array(op.operand)}, {to.dialect.axis}={axis})", op.dtype)


_CUMULATIVE = {
    "cumsum": "np.cumsum", "cumprod": "np.cumprod", "cummax": "np.maximum.accumulate",
    "cummin": "np.minimum.accumulate", "cumlogsumexp": "np.logaddexp.accumulate",
}  # fmt: skip


@rule(*_CUMULATIVE)
def _cumulative(to: ArrayContext, op: Statement) -> str:
    text, axis, reverse = to.array(op.operand), op["axis"], op["reverse"]
    name = {"cumlogsumexp": "logcumsumexp"}.get(op.primitive, op.primitive)
    if to.library == "mlx":
        options = f"axis={axis}{', reverse=True' if reverse else ''}"
        if name in ("cummax", "cummin") and op.dtype in ("float16", "bfloat16"):  # MLX 0.32 makes NaN in them 0
            return to.cast(f"mx.{name}({text}.astype(mx.float32), {options})", op.dtype)
        return f"mx.{name}({text}, {options})"
    is_numpy = to.library == "numpy"

    def flipped(text: str) -> str:
        # Of these libraries, only MLX accumulates from the end.
        return (f"np.flip({text}, {axis})" if is_numpy else f"torch.flip({text}, ({axis},))") if reverse else text

    dtype = f", dtype={to.dtype(op.dtype)}" if not is_float(op.dtype) and name in ("cumsum", "cumprod") else ""
    options = f"{flipped(text)}, {to.dialect.axis}={axis}{dtype}"
    if is_numpy:
        return flipped(f"{_CUMULATIVE[op.primitive]}({options})")
    return flipped(f"torch.{name}({options}){'.values' if name in ('cummax', 'cummin') else ''}")


@rule("sort")
def _sort(to: ArrayContext, op: Statement) -> str:
    axis, texts = int(op["dimension"]), to.arrays(op)
    if len(texts) > 1:
        return to.helper("sort_together", f"[{', '.join(texts)}]", repr(axis), repr(int(op["num_keys"])))
    text = f"{to.module}.sort({texts[0]}, {to.dialect.axis}={axis})"
    return f"{text}.values" if to.library == "torch" else text


@rule("top_k")
def _top_k(to: ArrayContext, op: Statement) -> str:
    axis = op.params.get("axis", op.params.get("operand_axis", -1))
    if axis not in (-1, len(op.operand.shape) - 1):
        raise to.unsupported("an axis other than the last")
    return to.helper("top_k", to.array(op.operand), repr(number(op["k"])))


@rule("gather")
def _gather(to: ArrayContext, op: Statement) -> str:
    array, indices = op.inputs
    params, numbers, fill = op.params, op["dimension_numbers"], fill_of(op)
    filled = [] if fill is None else [f"fill={to.number(fill)}"]
    offsets = [axis for axis in range(len(op.shape)) if axis not in numbers.offset_dims]
    # One index picks a row: `table[indices]`. Embeddings are most of the gathers in practice.
    is_rows = (
        numbers.start_index_map == (0,)
        and numbers.collapsed_slice_dims == (0,)
        and not numbers.operand_batching_dims
        and tuple(params["slice_sizes"]) == (1, *array.shape[1:])
        and offsets == list(range(len(indices.shape) - 1))
    )
    if is_rows and fill is not None:
        return to.helper("rows", to.array(array), f"{to.array(indices)}[..., 0]", *filled)
    options = [
        f"offset_dims={plain(numbers.offset_dims)}",
        f"collapsed={plain(numbers.collapsed_slice_dims)}",
        f"start_index_map={plain(numbers.start_index_map)}",
        f"slice_sizes={plain(params['slice_sizes'])}",
        *_batching(numbers.operand_batching_dims, numbers.start_indices_batching_dims),
    ]
    return to.helper("gather", *to.arrays(op), *options, *filled)


def _batching(array_axes: Sequence[int], index_axes: Sequence[int]) -> list[str]:
    return [f"batching={plain((array_axes, index_axes))}"] if array_axes else []


_KINDS = {
    f"scatter{separator}{name}": kind
    for name, kind in {
        "add": "add", "mul": "multiply", "min": "minimum", "max": "maximum", "sub": "subtract"
    }.items()
    for separator in "-_"
} | {"scatter": "set"}  # fmt: skip


@rule(*_KINDS)
def _scatter(to: ArrayContext, op: Statement) -> str:
    if to.library == "mlx" and _KINDS[op.primitive] in ("minimum", "maximum") and is_float(op.dtype):
        raise to.unsupported("floats, because MLX drops NaN")
    numbers = op["dimension_numbers"]
    options = [
        f"kind={_KINDS[op.primitive]!r}",
        f"update_window_dims={plain(numbers.update_window_dims)}",
        f"inserted={plain(numbers.inserted_window_dims)}",
        f"to_operand={plain(numbers.scatter_dims_to_operand_dims)}",
        *_batching(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims),
    ]
    if op["mode"].name == "CLIP":  # in the other modes, XLA drops slices outside of the array
        options.append("mode='clip'")
    return to.helper("scatter", *to.arrays(op), *options)


def in_tuple(texts: Sequence[str]) -> str:
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


@rule("random_bits")
def _random_bits(to: ArrayContext, op: Statement) -> str:
    width = op["bit_width"]
    if width not in (8, 16, 32, 64) or (width == 64 and to.library != "numpy"):
        raise to.unsupported(f"{width} bits")
    widths = [str(width)] * (width != 32)
    return to.helper("random_bits", to.array(op.operand), sizes(op["shape"]), *widths)
