"""Rules for primitives that shape, join, reduce and create arrays."""

from __future__ import annotations

from mithril_nb.emission.arrays.elementwise import is_float
from mithril_nb.emission.arrays.rules import Context, rule, sizes
from mithril_nb.emission.program import KEEPDIMS, Number, Statement, Value
from mithril_nb.emission.sizes import number


@rule("reshape", "squeeze", "expand_dims")
def _reshape(to: Context, one: Statement) -> str:
    given, shape = one.inputs[0], to.full_shape(one.outputs[0])
    text = to.array(given)
    if isinstance(given, Value) and shape == (*given.shape, 1):
        return f"{text}[..., None]"
    if not isinstance(given, Value):
        return f"{to.module}.reshape({text}, {sizes(shape)})"
    return f"{text}.reshape({sizes(shape)})"


@rule("broadcast_in_dim")
def _broadcast(to: Context, one: Statement) -> str:
    given, (output,) = one.inputs[0], one.outputs
    shape = sizes(to.full_shape(output))
    if isinstance(given, Number):
        return filled(to, output, given)
    expanded = [1] * len(to.full_shape(output))
    for axis, size in zip(one.params["broadcast_dimensions"], given.shape, strict=True):
        expanded[axis] = size
    if len(expanded) > len(output.shape):
        expanded[-1] = 2
    text = given.name
    if expanded[len(expanded) - len(to.full_shape(given)) :] != list(to.full_shape(given)):
        text = f"{text}.reshape({sizes(expanded)})"
    return f"{to.module}.broadcast_to({text}, {shape})"


def filled(to: Context, output: Value, number: Number) -> str:
    """Return the expression of an array with the shape of `output` that is filled with a number."""
    dtype = to.dtype(output.dtype)
    shape = sizes(output.shape)
    name = {0: "zeros", 1: "ones"}.get(number.value) if output.dtype != "bool" else None  # pyright: ignore
    if name is not None and not str(number.value).startswith("-"):
        return f"{to.module}.{name}({shape}, dtype={dtype})"
    return f"{to.module}.full({shape}, {to.dialect.number(number)}, dtype={dtype})"


@rule("transpose")
def _transpose(to: Context, one: Statement) -> str:
    (given,) = one.inputs
    order = one.params["permutation"]
    if len(to.full_shape(given)) > len(given.shape):
        order = (*order, len(order))
    if tuple(order) == (1, 0):
        return f"{to.array(given)}.T"
    return f"{to.array(given)}.{to.dialect.permute}({', '.join(str(int(axis)) for axis in order)})"


@rule("concatenate")
def _concatenate(to: Context, one: Statement) -> str:
    name = "cat" if to.library == "torch" else "concatenate"
    return f"{to.module}.{name}([{', '.join(to.arrays(one))}], {to.dialect.axis}={one.params['dimension']})"


@rule("stack")
def _stack(to: Context, one: Statement) -> str:
    return f"{to.module}.stack([{', '.join(to.arrays(one))}], {to.dialect.axis}={one.params['axis']})"


@rule("unstack")
def _unstack(to: Context, one: Statement) -> str:
    axis = one.params["axis"]
    text = to.array(one.inputs[0])
    if to.library == "torch":
        found = f"torch.unbind({text}, dim={axis})"
    else:
        found = text if axis == 0 else f"{to.module}.moveaxis({text}, {axis}, 0)"
    return f"{found}[0]" if len(one.outputs) == 1 else found


@rule("tile")
def _tile(to: Context, one: Statement) -> str:
    return f"{to.module}.tile({to.array(one.inputs[0])}, {sizes(one.params['reps'])})"


@rule("split")
def _split(to: Context, one: Statement) -> str:
    parts, axis = [*map(number, one.params["sizes"])], one.params["axis"]
    if to.library != "torch":
        parts = [sum(parts[: place + 1]) for place in range(len(parts) - 1)]
    found = f"{to.module}.split({to.array(one.inputs[0])}, {parts}, {to.dialect.axis}={axis})"
    return f"({found})[0]" if len(one.outputs) == 1 else found


@rule("rev")
def _reverse(to: Context, one: Statement) -> str:
    axes = one.params["dimensions"]
    text = to.array(one.inputs[0])
    if to.library == "torch":
        return f"torch.flip({text}, {sizes(axes)})"
    slices = ["::-1" if axis in axes else ":" for axis in range(max(axes) + 1)]
    return f"{text}[{', '.join(slices)}]"


@rule("slice")
def _take_slice(to: Context, one: Statement) -> str:
    params = one.params
    strides = params["strides"] or [1] * len(params["start_indices"])
    parts: list[str] = []
    for first, last, step, size in zip(
        params["start_indices"], params["limit_indices"], strides, one.inputs[0].shape, strict=True
    ):
        end = "" if last == size else str(last)
        parts.append(f"{first or ''}:{end}{f':{step}' if step != 1 else ''}")
    while parts and parts[-1] == ":":
        parts.pop()
    text = to.array(one.inputs[0])
    return f"{text}[{', '.join(parts)}]" if parts else text


@rule("pad")
def _pad(to: Context, one: Statement) -> str:
    array, value = one.inputs
    config = "(" + ", ".join(sizes(each) for each in one.params["padding_config"])
    config += ",)" if len(one.params["padding_config"]) == 1 else ")"
    return to.helper("pad", to.array(array), to.operand(value), config)


@rule("dim_as_value")
def _size_as_array(to: Context, one: Statement) -> str:
    dtype, size = to.dtype(one.outputs[0].dtype), one.params["dim"]
    return f"{to.module}.{'tensor' if to.library == 'torch' else 'array'}({size}, dtype={dtype})"


@rule("iota")
def _iota(to: Context, one: Statement) -> str:
    shape, axis = one.outputs[0].shape, one.params["dimension"]
    text = f"{to.module}.arange({shape[axis]}, dtype={to.dtype(one.outputs[0].dtype)})"
    if len(shape) == 1:
        return text
    expanded = [size if place == axis else 1 for place, size in enumerate(shape)]
    is_whole = tuple(expanded) == shape
    if is_whole or axis != len(shape) - 1:
        text = f"{text}.reshape({sizes(expanded)})"
    return text if is_whole else f"{to.module}.broadcast_to({text}, {sizes(shape)})"


@rule("empty", "empty2")
def _empty(to: Context, one: Statement) -> str:
    return f"{to.module}.zeros({sizes(one.outputs[0].shape)}, dtype={to.dtype(one.outputs[0].dtype)})"


_REDUCTIONS = {
    "reduce_sum": ("sum", "sum", "sum"),
    "reduce_max": ("max", "amax", "max"),
    "reduce_min": ("min", "amin", "min"),
    "reduce_prod": ("prod", "prod", "prod"),
    "reduce_and": ("all", "all", "all"),
    "reduce_or": ("any", "any", "any"),
}
"""Names of the reductions in NumPy and JAX, PyTorch, and MLX."""


@rule(*_REDUCTIONS)
def _reduce(to: Context, one: Statement) -> str:
    (given,) = one.inputs
    axes = [int(axis) for axis in one.params["axes"]]
    output = one.outputs[0]
    name = _REDUCTIONS[one.primitive][{"torch": 1, "mlx": 2}.get(to.library, 0)]
    if name in ("all", "any") and output.dtype != "bool":
        raise to.unsupported(one, "integers")
    if to.library == "torch" and name == "prod":
        return to.helper(f"reduce_{name}", to.array(given), sizes(axes), repr(bool(one.params.get(KEEPDIMS))))
    keep = f", {to.dialect.keepdims}=True" if one.params.get(KEEPDIMS) else ""
    where = repr(axes[0]) if len(axes) == 1 else sizes(axes)
    # The libraries return sums of narrow integers in a wider dtype by default.
    widens = name in ("sum", "prod") and not is_float(output.dtype)
    if widens and to.library == "mlx":
        return to.cast(f"{to.array(given)}.{name}(axis={where}{keep})", output.dtype)
    dtype = f", dtype={to.dtype(output.dtype)}" if widens else ""
    text = to.array(given)
    if to.library == "torch":
        return f"torch.{name}({text}, {to.dialect.axis}={where}{keep}{dtype})"
    return f"{text}.{name}({to.dialect.axis}={where}{keep}{dtype})"


@rule("argmax", "argmin")
def _argmax(to: Context, one: Statement) -> str:
    (axis,) = one.params["axes"]
    text = to.array(one.inputs[0])
    found = f"{to.module}.{one.primitive}({text}, {to.dialect.axis}={axis})"
    return to.cast(found, one.outputs[0].dtype)


_CUMULATIVE = {
    "cumsum": ("np.cumsum", "torch.cumsum"),
    "cumprod": ("np.cumprod", "torch.cumprod"),
    "cummax": ("np.maximum.accumulate", ""),
    "cummin": ("np.minimum.accumulate", ""),
    "cumlogsumexp": ("np.logaddexp.accumulate", "torch.logcumsumexp"),
}


@rule(*_CUMULATIVE)
def _cumulative(to: Context, one: Statement) -> str:
    text, axis, reverse = to.array(one.inputs[0]), one.params["axis"], one.params["reverse"]
    if to.library == "mlx":
        name = {"cumlogsumexp": "logcumsumexp"}.get(one.primitive, one.primitive)
        return f"mx.{name}({text}, axis={axis}{', reverse=True' if reverse else ''})"
    numpy, torch = _CUMULATIVE[one.primitive]
    flipped = f"np.flip({text}, {axis})" if to.library == "numpy" else f"torch.flip({text}, ({axis},))"
    given = flipped if reverse else text
    output = one.outputs[0].dtype
    dtype = f", dtype={to.dtype(output)}" if not is_float(output) and one.primitive in ("cumsum", "cumprod") else ""
    if to.library == "numpy":
        found = f"{numpy}({given}, axis={axis}{dtype})"
        return f"np.flip({found}, {axis})" if reverse else found
    found = f"{torch}({given}, dim={axis}{dtype})" if torch else f"torch.{one.primitive}({given}, dim={axis}).values"
    return f"torch.flip({found}, ({axis},))" if reverse else found


@rule("sort")
def _sort(to: Context, one: Statement) -> str:
    axis, keys = one.params["dimension"], one.params["num_keys"]
    texts = to.arrays(one)
    if len(texts) == 1:
        if to.library == "torch":
            return f"torch.sort({texts[0]}, dim={axis}).values"
        return f"{to.module}.sort({texts[0]}, axis={axis})"
    return to.helper("sort_together", f"[{', '.join(texts)}]", repr(int(axis)), repr(int(keys)))


@rule("top_k")
def _top_k(to: Context, one: Statement) -> str:
    axis = one.params.get("axis", one.params.get("operand_axis", -1))
    if axis not in (-1, len(one.inputs[0].shape) - 1):
        raise to.unsupported(one, "an axis other than the last")
    return to.helper("top_k", to.array(one.inputs[0]), repr(number(one.params["k"])))
