"""Replace statements by PyTorch functions that compute the same: norms, `softmax`, `gelu`, `linear`, attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from mithril_nb.emission.arrays.rules import Context, rule, sizes
from mithril_nb.emission.program import Function, Number, Statement, Value
from mithril_nb.emission.sizes import Size
from mithril_nb.stages.patterns import FUNCTIONS, Made, Match, Pattern, axes_of, functions, is_rounded, softmax_of


def _swapped(x: str) -> list[Any]:
    return [("transpose", x), x]


def _widened(*patterns: Any) -> list[Any]:
    """Return the pattern of an operand that may be converted before a product: float16 to float32."""
    return [*patterns, *(("convert_element_type", pattern) for pattern in patterns)]


_SCORES = ("dot_general", _widened("query"), _widened(*_swapped("key")))
_SCALED = [("mul", _SCORES, "scale"), ("div", _SCORES, "divisor"), _SCORES]
_CAUSAL = ("select_n", ("ge", ("iota",), ("iota",)), "hidden", _SCALED)
_WEIGHTS = softmax_of({"x": [_CAUSAL, *_SCALED]})


def _linear(found: Match) -> Made | None:
    x, weight, bias = (found.bound[name] for name in ("x", "weight", "bias"))
    (product,) = found.with_primitive("dot_general")
    (over, (axis, *more)), (batch, _) = product.params["dimension_numbers"]
    if len(weight.shape) != 2 or batch or more or tuple(over) != (len(x.shape) - 1,):
        return None
    is_transposed = (axis == 0) != bool(found.with_primitive("transpose"))
    is_plain = bias.shape == (weight.shape[is_transposed],) and product.outputs[0].size
    return ((x, weight, bias), {"is_transposed": is_transposed}) if is_plain else None


def _attention(found: Match) -> Made | None:
    query, key, value = (found.bound[name] for name in ("query", "key", "value"))
    rank = len(query.shape)
    batch = tuple(range(rank - 2))
    last, scores = found.with_primitive("dot_general")
    swaps = found.with_primitive("transpose")
    if not len(key.shape) == len(value.shape) == rank:
        return None
    if any(tuple(one.params["permutation"]) != (*batch, rank - 1, rank - 2) for one in swaps):
        return None
    for one, axis in ((scores, rank - 1 - len(swaps)), (last, rank - 2)):
        over, batches = one.params["dimension_numbers"]
        if [tuple(each) for each in (*over, *batches)] != [(rank - 1,), (axis,), batch, batch]:
            return None
    scale, divisor = (found.bound.get(name, Number(1.0, query.dtype)) for name in ("scale", "divisor"))
    is_causal = "hidden" in found.bound
    if not (isinstance(scale, Number) and isinstance(divisor, Number) and divisor.value):
        return None
    if not (query.size and last.outputs[0].size) or axes_of(found) != (rank - 1,):
        return None
    if is_causal and not _is_causal(found, scores.outputs[0]):
        return None
    params = {"scale": Number(scale.value / divisor.value, scores.outputs[0].dtype), "is_causal": is_causal}
    return (query, key, value), params


def _is_causal(found: Match, scores: Value) -> bool:
    """Return whether the mask hides the keys after each query, as `is_causal=True` does in PyTorch."""
    hidden, (queries, keys) = found.bound["hidden"], scores.shape[-2:]
    iotas = [(one.params["dimension"], one.outputs[0].shape) for one in found.with_primitive("iota")]
    are_places = [(axis - len(shape), shape[axis]) for axis, shape in iotas] == [(-2, queries), (-1, keys)]
    is_hidden = isinstance(hidden, Number) and hidden.value.real <= float(jax.numpy.finfo(hidden.dtype).min) / 2
    return is_hidden and are_places and queries == keys


_PATTERNS: tuple[Pattern, ...] = (
    ("attention", ("dot_general", [_WEIGHTS, ("convert_element_type", _WEIGHTS)], "value"), _attention),
    *FUNCTIONS,
    ("linear", ("add", ("dot_general", "x", _swapped("weight")), "bias"), _linear),
)


def fuse(function: Function) -> Function:
    """Return a function in which one fused statement replaces each group of statements that matches `_PATTERNS`.

    The statements of a group belong to one block and one part of a training step. No other statement uses their
    intermediate results.
    """
    users = function.uses()
    producers = {value: one for one in function.statements for value in one.outputs}
    done: dict[Statement, Statement | None] = {}
    for one in reversed(function.statements):
        if one in done or len(one.outputs) != 1:
            continue
        for primitive, found, (inputs, params) in functions(one, _PATTERNS, producers):
            inner = {*found.statements} - {one}
            if all(user in inner or user is one for each in inner for user in users[each.outputs[0]]):
                ids = dict.fromkeys(id for each in reversed(found.statements) for id in each.equations)
                new = replace(one, primitive=primitive, inputs=tuple(inputs), params=params, equations=tuple(ids))
                done.update({**dict.fromkeys(inner), one: new})
                break
    statements = [done.get(one, one) for one in function.statements]
    return replace(function, statements=tuple([one for one in statements if one is not None]))


@rule("softmax", "log_softmax")
def _write_softmax(to: Context, one: Statement) -> str:
    return f"torch.{one.primitive}({to.array(one.inputs[0])}, dim={one.params['axis']})"


@rule("layer_norm", "rms_norm")
def _write_norm(to: Context, one: Statement) -> str:
    x, *affine = to.arrays(one)
    given = [x, sizes(one.params["shape"]), *affine, f"eps={to.operand(one.params['eps'])}"]
    return f"torch.nn.functional.{one.primitive}({', '.join(given)})"


@rule("gelu", "gelu_tanh", "silu")
def _write_activation(to: Context, one: Statement) -> str:
    name = one.primitive.removesuffix("_tanh")
    options = "" if name == one.primitive else ", approximate='tanh'"
    return f"torch.nn.functional.{name}({to.array(one.inputs[0])}{options})"


@rule("linear")
def _write_linear(to: Context, one: Statement) -> str:
    x, weight, bias = to.arrays(one)
    if one.params["is_transposed"] and len(one.inputs[0].shape) == 2:
        return f"torch.addmm({bias}, {x}, {weight})"  # `linear` transposes the weight again, which takes longer
    return f"torch.nn.functional.linear({x}, {weight}{'.T' if one.params['is_transposed'] else ''}, {bias})"


@rule("attention")
def _write_attention(to: Context, one: Statement) -> str:
    given, scale = to.arrays(one), one.params["scale"]
    if one.params["is_causal"]:
        given.append("is_causal=True")
    width = one.inputs[0].shape[-1]
    if isinstance(width, Size) or not is_rounded(scale, width**-0.5):
        given.append(f"scale={scale.text}")
    return f"torch.nn.functional.scaled_dot_product_attention({', '.join(given)})"
