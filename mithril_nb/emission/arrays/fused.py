"""Replace statements by PyTorch functions that compute the same: `layer_norm`, `softmax`, `gelu`, `linear`, attention.

A pattern describes statements by their structure:
- A string is the name of an operand. Everywhere in a pattern, the same name is the same operand.
- A dict is an operand with a name, and the pattern that it must match.
- A float is a number.
- A tuple is a statement: its primitive, and the patterns of its operands.
- A list contains alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from mithril_nb.emission.arrays.rules import Context, rule, sizes
from mithril_nb.emission.program import DETACH, Function, Number, Operand, Statement, Value

_COMMUTATIVE = frozenset({"add", "mul", "max"})
_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
Made = tuple[Sequence[Operand], dict[str, Any]]
"""The inputs and params of a fused statement."""


@dataclass(frozen=True)
class Match:
    """Operands and statements that match a pattern.

    Attributes:
        bound: The operands, by their name in the pattern.
        statements: The statements. The first computes the result.
    """

    bound: dict[str, Operand] = field(default_factory=dict[str, Operand])
    statements: tuple[Statement, ...] = ()

    def every(self, *primitives: str) -> list[Statement]:
        """Return the statements with one of these primitives."""
        return [one for one in self.statements if one.primitive in primitives]


# Patterns


def _square(x: Any) -> Any:
    return [("square", x), ("mul", x, x)]


def _mean(x: Any) -> Any:
    return ("div", ("reduce_sum", x), "count")


def _kept(x: Any) -> Any:
    """Return the pattern of a reduction `x`, which a reshape with the reduced axes of size 1 may follow."""
    return [x, ("reshape", x)]


def _normalized(x: Any, variance: Any) -> list[Any]:
    total = ("add", _kept([variance, ("max", 0.0, variance)]), "eps")
    inverse = _kept([("rsqrt", total), ("div", 1.0, ("sqrt", total))])
    unit = [("mul", x, inverse), ("div", x, _kept(("sqrt", total)))]
    scaled = [("mul", unit, "weight"), ("mul", x, ("mul", inverse, "weight"))]
    return [("add", scaled, "bias"), *scaled, *unit]


def _shifted(x: Any) -> Any:
    # Neither the result nor its gradients depend on the maximum. So the pattern allows a `detach` of the maximum.
    return ("sub", x, _kept([("reduce_max", "x"), (DETACH, ("reduce_max", "x"))]))


def _softmax_of(x: Any) -> Any:
    return ("div", {"exp": ("exp", _shifted(x))}, _kept(("reduce_sum", "exp")))


def _swapped(x: str) -> list[Any]:
    return [("transpose", x), x]


def _widened(*patterns: Any) -> list[Any]:
    """Return the pattern of an operand that may be converted before a product: float16 to float32."""
    return [*patterns, *(("convert_element_type", pattern) for pattern in patterns)]


def _half_of(y: Any) -> list[Any]:
    return [("mul", ("mul", 0.5, "x"), y), ("mul", "x", ("mul", 0.5, y)), ("mul", 0.5, ("mul", "x", y))]


_CENTERED = ("sub", "x", _kept(_mean("x")))
_VARIANCE = [_mean(_square(_CENTERED)), ("sub", _mean(_square("x")), _square(_mean("x")))]
_ERFC = [("mul", "x", -(2**-0.5)), ("div", "x", -(2**0.5))]
_ERF = [("mul", "x", 2**-0.5), ("div", "x", 2**0.5)]
_CUBE = [("integer_pow", "x"), ("mul", "x", _square("x"))]
_TANH = ("tanh", ("mul", (2 / math.pi) ** 0.5, ("add", "x", ("mul", 0.044715, _CUBE))))
_SCORES = ("dot_general", _widened("query"), _widened(*_swapped("key")))
_SCALED = [("mul", _SCORES, "scale"), ("div", _SCORES, "divisor"), _SCORES]
_CAUSAL = ("select_n", ("ge", ("iota",), ("iota",)), "hidden", _SCALED)
_WEIGHTS = _softmax_of({"x": [_CAUSAL, *_SCALED]})


# Conditions that the structure does not show


def _axes(found: Match) -> tuple[int, ...] | None:
    """Return the axes of all reductions of the operand `x` in a match.

    Return `None` if the reductions have different axes, or `x` is empty. Also return `None` if an elementwise statement
    reads an array, other than the weight and the bias, that has another shape and is not constant along these axes.
    """
    x, others = found.bound["x"], [found.bound.get("weight"), found.bound.get("bias")]
    reductions = found.every("reduce_sum", "reduce_max")
    axes = {tuple(sorted(one.params["axes"])) for one in reductions}
    if len(axes) != 1 or not x.size:
        return None
    (own,) = axes
    kept = tuple([1 if axis in own else size for axis, size in enumerate(x.shape)])
    for one in found.statements:
        is_row_wise = one not in reductions and one.primitive not in ("dot_general", "ge", "select_n")
        is_whole = is_row_wise and one.outputs[0].shape == x.shape
        if is_whole and any(each.shape not in (x.shape, kept, ()) for each in one.inputs if each not in others):
            return None
        if one.primitive == "reshape" and one.outputs[0].shape != kept:
            return None
    return own


def _softmax(found: Match) -> Made | None:
    axes = _axes(found)
    return ((found.bound["x"],), {"axis": axes[0]}) if axes and len(axes) == 1 else None


def _norm(found: Match) -> Made | None:
    x, count, eps = (found.bound[name] for name in ("x", "count", "eps"))
    affine = [found.bound[name] for name in ("weight", "bias") if name in found.bound]
    axes = _axes(found)
    if not axes or axes != tuple(range(len(x.shape) - len(axes), len(x.shape))):
        return None
    shape = tuple([x.shape[axis] for axis in axes])
    if not (isinstance(count, Number) and isinstance(eps, Number) and count.value == math.prod(shape)):
        return None
    return ((x, *affine), {"shape": shape, "eps": eps}) if all(one.shape == shape for one in affine) else None


def _elementwise(found: Match) -> Made | None:
    x = found.bound["x"]
    is_cube = all(one.params["y"] == 3 for one in found.every("integer_pow"))
    return ((x,), {}) if isinstance(x, Value) and is_cube else None


def _linear(found: Match) -> Made | None:
    x, weight, bias = (found.bound[name] for name in ("x", "weight", "bias"))
    (product,) = found.every("dot_general")
    (over, (axis, *more)), (batch, _) = product.params["dimension_numbers"]
    if len(weight.shape) != 2 or batch or more or tuple(over) != (len(x.shape) - 1,):
        return None
    is_transposed = (axis == 0) != bool(found.every("transpose"))
    is_plain = bias.shape == (weight.shape[is_transposed],) and product.outputs[0].size
    return ((x, weight, bias), {"is_transposed": is_transposed}) if is_plain else None


def _attention(found: Match) -> Made | None:
    query, key, value = (found.bound[name] for name in ("query", "key", "value"))
    rank = len(query.shape)
    batch = tuple(range(rank - 2))
    last, scores = found.every("dot_general")
    swaps = found.every("transpose")
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
    if not (query.size and last.outputs[0].size) or _axes(found) != (rank - 1,):
        return None
    if is_causal and not _is_causal(found, scores.outputs[0]):
        return None
    params = {"scale": Number(scale.value / divisor.value, scores.outputs[0].dtype), "is_causal": is_causal}
    return (query, key, value), params


def _is_causal(found: Match, scores: Value) -> bool:
    """Return whether the mask hides the keys after each query, as `is_causal=True` does in PyTorch."""
    hidden, (queries, keys) = found.bound["hidden"], scores.shape[-2:]
    iotas = [(one.params["dimension"], one.outputs[0].shape) for one in found.every("iota")]
    are_places = [(axis - len(shape), shape[axis]) for axis, shape in iotas] == [(-2, queries), (-1, keys)]
    is_hidden = isinstance(hidden, Number) and hidden.value.real <= float(jax.numpy.finfo(hidden.dtype).min) / 2
    return is_hidden and are_places and queries == keys


_PATTERNS: tuple[tuple[str, Any, Callable[[Match], Made | None]], ...] = (
    ("attention", ("dot_general", [_WEIGHTS, ("convert_element_type", _WEIGHTS)], "value"), _attention),
    ("layer_norm", _normalized(_CENTERED, _VARIANCE), _norm),
    ("rms_norm", _normalized("x", _mean(_square("x")))[1:], _norm),
    ("softmax", _softmax_of("x"), _softmax),
    (
        "log_softmax",
        ("sub", {"shifted": _shifted("x")}, _kept(("log", ("reduce_sum", ("exp", "shifted"))))),
        _softmax,
    ),
    ("gelu", [*_half_of(("erfc", _ERFC)), *_half_of(("add", 1.0, ("erf", _ERF)))], _elementwise),
    ("gelu_tanh", _half_of(("add", 1.0, _TANH)), _elementwise),
    ("silu", ("mul", "x", ("logistic", "x")), _elementwise),
    ("linear", ("add", ("dot_general", "x", _swapped("weight")), "bias"), _linear),
)
"""For each fused statement: its primitive, its pattern, and a function that returns its operands and params.

The function returns `None` if the statements do not compute the same as PyTorch's function.
"""


# Matching


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
        for inner, new in _candidates(one, producers):
            if all(user in inner or user is one for each in inner for user in users[each.outputs[0]]):
                done.update({**dict.fromkeys(inner), one: new})
                break
    statements = [done.get(one, one) for one in function.statements]
    return replace(function, statements=tuple([one for one in statements if one is not None]))


def _candidates(root: Statement, producers: dict[Value, Statement]) -> Iterator[tuple[set[Statement], Statement]]:
    """Yield pairs: the statements besides `root` that a fused statement replaces, and the fused statement."""
    for primitive, pattern, condition in _PATTERNS:
        for found in _matches(pattern, root.outputs[0], Match(), producers):
            made = condition(found)
            dtypes = {one.dtype for one in (*made[0], *root.outputs)} if made is not None else set[str]()
            if made is not None and len(dtypes) == 1 and dtypes <= _FLOATS:
                ids = dict.fromkeys(id for one in reversed(found.statements) for id in one.equations)
                new = replace(root, primitive=primitive, inputs=tuple(made[0]), params=made[1], equations=tuple(ids))
                yield {*found.statements} - {root}, new


def _matches(pattern: Any, operand: Operand, found: Match, producers: dict[Value, Statement]) -> Iterator[Match]:
    if isinstance(pattern, list):
        for one in pattern:
            yield from _matches(one, operand, found, producers)
    elif isinstance(pattern, dict):
        ((name, inner),) = pattern.items()
        yield from _matches(inner, operand, replace(found, bound={**found.bound, name: operand}), producers)
    elif isinstance(pattern, str):
        if found.bound.get(pattern, operand) == operand:
            yield replace(found, bound={**found.bound, pattern: operand})
    elif isinstance(pattern, float):
        if isinstance(operand, Number) and _is_rounded(operand, pattern):
            yield found
    elif isinstance(operand, Value) and (one := producers.get(operand)) is not None:
        name, *inner = pattern
        first = found.statements[0] if found.statements else one
        if (one.primitive, one.block, one.role) == (name, first.block, first.role):
            found = replace(found, statements=(*found.statements, one))
            yield from _all_match(inner, one.inputs, found, producers)
            if name in _COMMUTATIVE:
                yield from _all_match(inner, one.inputs[::-1], found, producers)


def _all_match(
    patterns: Sequence[Any], operands: Sequence[Operand], found: Match, producers: dict[Value, Statement]
) -> Iterator[Match]:
    if not patterns:
        yield found
        return
    for one in _matches(patterns[0], operands[0], found, producers):
        yield from _all_match(patterns[1:], operands[1:], one, producers)


def _is_rounded(number: Number, exact: float) -> bool:
    is_float = number.dtype in _FLOATS
    return is_float and math.isclose(number.value.real, exact, rel_tol=float(jax.numpy.finfo(number.dtype).eps))


# Rules


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
    if not _is_rounded(scale, one.inputs[0].shape[-1] ** -0.5):
        given.append(f"scale={scale.text}")
    return f"torch.nn.functional.scaled_dot_product_attention({', '.join(given)})"
