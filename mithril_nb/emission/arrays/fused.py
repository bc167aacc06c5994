"""Replace statements by PyTorch functions that compute the same: norms, `softmax`, `gelu`, `linear`, attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from mithril_nb.emission.arrays.rules import ArrayContext, rule, sizes
from mithril_nb.emission.program import Function, Number, Statement, Value
from mithril_nb.emission.sizes import NamedSize
from mithril_nb.stages.patterns import FUNCTIONS, Made, Match, Pattern, axes_of, functions, is_rounded, softmax_of


def _swapped(x: str) -> list[Any]:
    return [("transpose", x), x]


def _widened(*patterns: Any) -> list[Any]:
    # An operand may be converted before a product: float16 to float32.
    return [*patterns, *(("convert_element_type", pattern) for pattern in patterns)]


_SCORES = ("dot_general", _widened("query"), _widened(*_swapped("key")))
_SCALED = [("mul", _SCORES, "scale"), ("div", _SCORES, "divisor"), _SCORES]
_CAUSAL = ("select_n", ("ge", ("iota",), ("iota",)), "hidden", _SCALED)
_WEIGHTS = softmax_of({"x": [_CAUSAL, *_SCALED]})


def _linear(result: Match) -> Made | None:
    x, weight, bias = (result.bound[name] for name in ("x", "weight", "bias"))
    (product,) = result.with_primitive("dot_general")
    # torch.nn.functional.linear multiplies the last axis of x by the last axis of a weight (outputs, inputs).
    (over, (axis, *more)), (batch, _) = product["dimension_numbers"]
    if len(weight.shape) != 2 or batch or more or tuple(over) != (len(x.shape) - 1,):
        return None
    is_transposed = (axis == 0) != bool(result.with_primitive("transpose"))
    is_plain = bias.shape == (weight.shape[is_transposed],) and product.output.size
    return ((x, weight, bias), {"is_transposed": is_transposed}) if is_plain else None


def _attention(result: Match) -> Made | None:
    query, key, value = (result.bound[name] for name in ("query", "key", "value"))
    rank = len(query.shape)
    batch = tuple(range(rank - 2))
    last, scores = result.with_primitive("dot_general")
    swaps = result.with_primitive("transpose")
    if not len(key.shape) == len(value.shape) == rank:
        return None
    if any(tuple(swap["permutation"]) != (*batch, rank - 1, rank - 2) for swap in swaps):
        return None
    for product, axis in ((scores, rank - 1 - len(swaps)), (last, rank - 2)):
        over, batches = product["dimension_numbers"]
        if [tuple(each) for each in (*over, *batches)] != [(rank - 1,), (axis,), batch, batch]:
            return None
    scale, divisor = (result.bound.get(name, Number(1.0, query.dtype)) for name in ("scale", "divisor"))
    is_causal = "hidden" in result.bound
    if not (isinstance(scale, Number) and isinstance(divisor, Number) and divisor.value):  # PyTorch takes a number
        return None
    if not (query.size and last.output.size) or axes_of(result) != (rank - 1,):
        return None
    if is_causal and not _is_causal(result, scores.output):
        return None
    params = {"scale": Number(scale.value / divisor.value, scores.dtype), "is_causal": is_causal}
    return (query, key, value), params


def _is_causal(result: Match, scores: Value) -> bool:
    hidden, (queries, keys) = result.bound["hidden"], scores.shape[-2:]
    iotas = [(iota["dimension"], iota.shape) for iota in result.with_primitive("iota")]
    are_places = [(axis - len(shape), shape[axis]) for axis, shape in iotas] == [(-2, queries), (-1, keys)]
    # PyTorch hides by -inf, from which other large negative numbers do not differ after exp.
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
    done: dict[Statement, Statement | None] = {}
    # From the end, so that the largest pattern wins: attention before the softmax in it.
    for last in reversed(function.statements):
        if last in done or len(last.outputs) != 1:
            continue
        for primitive, result, (inputs, params) in functions(last, _PATTERNS, function.producers):
            inner = {*result.statements} - {last}
            if all(user in inner or user is last for each in inner for user in users[each.output]):
                ids = dict.fromkeys(id for each in reversed(result.statements) for id in each.equations)
                new = replace(last, primitive=primitive, inputs=tuple(inputs), params=params, equations=tuple(ids))
                done |= {**dict.fromkeys(inner), last: new}
                break
    statements = [done.get(op, op) for op in function.statements]
    return replace(function, statements=tuple([op for op in statements if op is not None]))


rule("softmax", "log_softmax")(lambda to, op: f"torch.{op.primitive}({to.array(op.operand)}, dim={op['axis']})")


@rule("layer_norm", "rms_norm")
def _write_norm(to: ArrayContext, op: Statement) -> str:
    x, *affine = to.arrays(op)
    arguments = [x, sizes(op["shape"]), *affine, f"eps={to.operand(op['eps'])}"]
    return f"torch.nn.functional.{op.primitive}({', '.join(arguments)})"


@rule("gelu", "gelu_tanh", "silu")
def _write_activation(to: ArrayContext, op: Statement) -> str:
    name = op.primitive.removesuffix("_tanh")
    options = "" if name == op.primitive else ", approximate='tanh'"
    return f"torch.nn.functional.{name}({to.array(op.operand)}{options})"


@rule("linear")
def _write_linear(to: ArrayContext, op: Statement) -> str:
    x, weight, bias = to.arrays(op)
    if op["is_transposed"] and len(op.operand.shape) == 2:
        return f"torch.addmm({bias}, {x}, {weight})"  # `linear` transposes the weight again, which takes longer
    return f"torch.nn.functional.linear({x}, {weight}{'.T' if op['is_transposed'] else ''}, {bias})"


@rule("attention")
def _write_attention(to: ArrayContext, op: Statement) -> str:
    arguments, scale = to.arrays(op), op["scale"]
    if op["is_causal"]:
        arguments.append("is_causal=True")
    width = op.operand.shape[-1]
    # 1/sqrt(width) is PyTorch's default.
    if isinstance(width, NamedSize) or not is_rounded(scale, width**-0.5):
        arguments.append(f"scale={scale.text}")
    return f"torch.nn.functional.scaled_dot_product_attention({', '.join(arguments)})"
