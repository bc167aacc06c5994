"""Rules for elementwise primitives."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mithril_nb.emission.ggml.rules import RULES, GgmlContext, check_indices, ne, rule
from mithril_nb.emission.program import Number, Operand, Statement

WHOLE = frozenset(
    "add add_any sub mul neg max min abs sign square integer_pow eq ne lt le gt ge select_n clamp convert_element_type "
    "reshape squeeze expand_dims broadcast_in_dim transpose concatenate stack unstack tile split slice rev pad iota "
    "reduce_sum reduce_max reduce_min argmax argmin gather scatter scatter-add scatter_add dynamic_slice "
    "dynamic_update_slice copy cumsum scan cond call rem sort empty empty2".split()
)
"""Primitives that compute integers exactly up to 2**24, although the tensors contain them as float32."""


_UNARY = {name: name for name in "neg exp log sin cos tanh sqrt abs floor ceil".split()}
_UNARY |= {"square": "sqr", "logistic": "sigmoid", "sign": "sgn"}
"""GGML's functions of one tensor, by primitive."""
rule(*_UNARY)(lambda to, op: to.call(_UNARY[op.primitive], to.array(op.operand)))
rule("expm1", "log1p", "sinh", "cosh", "erf", "erfc", "is_finite")(
    lambda to, op: to.helper(op.primitive, to.array(op.operand))
)
RULES.update({
    "copy": lambda to, op: to.array(op.operand),
    "rsqrt": lambda to, op: to.call("div", to.helper("full", 1, *op.shape), to.call("sqrt", to.array(op.operand))),
    "exp2": lambda to, op: to.call("exp", to.call("scale", to.array(op.operand), math.log(2))),
    "integer_pow": lambda to, op: to.helper("power", to.array(op.operand), op["y"]),
    # GGML has no tangent, and the quotient is exact enough where the cosine is not 0.
    "tan": lambda to, op: to.call("div", to.call("sin", to.array(op.operand)), to.call("cos", to.array(op.operand))),
    "gt": lambda to, op: to.call("step", _binary(to, "sub", op.inputs, op.shape)),
    "lt": lambda to, op: to.call("step", _binary(to, "sub", op.inputs[::-1], op.shape)),
    **dict.fromkeys(
        ("add", "add_any", "sub", "mul"),
        lambda to, op: _binary(to, op.primitive.removesuffix("_any"), op.inputs, op.shape),
    ),
})  # fmt: skip


def _binary(to: GgmlContext, name: str, operands: Sequence[Operand], shape: tuple[int, ...]) -> str:
    # GGML broadcasts only the second operand to the first.
    (left, right), commutes = operands, name in ("add", "mul")
    if isinstance(left, Number) and isinstance(right, Number):
        return to.call(name, to.shaped(left, shape), to.array(right))
    if isinstance(left, Number) and commutes:
        left, right = right, left
    text = to.shaped(left, shape)
    if isinstance(right, Number) and name in ("add", "sub", "mul") and math.isfinite(right.value.real):
        number = to.number(right)
        if right.value == 0 and name != "mul":
            return text
        if name == "mul":
            return to.call("scale", text, number)
        opposite = number[1:] if number.startswith("-") else f"-{number}"
        return to.call("scale_bias", text, 1, number if name == "add" else opposite)
    if isinstance(left, Number) and name == "sub" and math.isfinite(left.value.real):
        return to.call("scale_bias", to.shaped(right, shape), -1, to.number(left))
    if commutes and ne(left.shape) != ne(shape) and ne(right.shape) == ne(shape):
        return to.call(name, to.array(right), to.array(left))
    return to.call(name, text, to.array(right))


@rule("div")
def _divide(to: GgmlContext, op: Statement) -> str:
    left, right = op.inputs
    if isinstance(right, Number) and _is_power_of_two(right):  # the reciprocal is exact
        return to.call("scale", to.shaped(left, op.shape), 1 / right.value.real)
    return _binary(to, "div", op.inputs, op.shape)


def _is_power_of_two(number: Number) -> bool:
    return math.frexp(abs(number.value.real))[0] == 0.5


@rule("rem")
def _remainder(to: GgmlContext, op: Statement) -> str:
    # The helper divides, rounds and multiplies, which is exact only for powers of two.
    array, divisor = op.inputs
    if not isinstance(divisor, Number) or not _is_power_of_two(divisor):
        raise to.unsupported("division by a number that is not a power of two")
    return to.helper("remainder", to.shaped(array, op.shape), to.number(divisor))


@rule("pow")
def _power(to: GgmlContext, op: Statement) -> str:
    base, exponent = op.inputs
    shape = op.shape
    if isinstance(exponent, Number):
        value = exponent.value.real
        # Multiplications are exact for negative bases, of which GGML has no logarithm.
        if math.isfinite(value) and value == int(value) and abs(value) < 2**10:
            return to.helper("power", to.shaped(base, shape), int(value))
        if value in (0.5, -0.5):
            root = to.call("sqrt", to.shaped(base, shape))
            return root if value > 0 else to.call("div", to.helper("full", 1, *shape), root)
        return to.call("exp", to.call("scale", to.call("log", to.shaped(base, shape)), to.number(exponent)))
    if isinstance(base, Number) and base.value.real > 0 and math.isfinite(base.value.real):
        return to.call("exp", to.call("scale", to.shaped(exponent, shape), math.log(base.value.real)))
    return to.helper("raised", *to.all_shaped(op))


@rule("ge", "le")
def _at_least(to: GgmlContext, op: Statement) -> str:
    order = 1 if op.primitive == "ge" else -1
    if op.operand.dtype.startswith("float"):
        return to.helper("at_least", *to.all_shaped(op)[::order])
    return to.helper("negation", to.call("step", _binary(to, "sub", op.inputs[::-order], op.shape)))  # no NaN


@rule("eq", "ne")
def _equal(to: GgmlContext, op: Statement) -> str:
    is_float = op.operand.dtype.startswith("float")
    if is_float:  # NaN differs from itself, and the difference of infinities is NaN
        text = to.helper("equal", *to.all_shaped(op))
    else:
        text = to.call("step", to.call("abs", _binary(to, "sub", op.inputs, op.shape)))
    return text if (op.primitive == "eq") == is_float else to.helper("negation", text)


@rule("and", "or", "not", "xor")
def _logical(to: GgmlContext, op: Statement) -> str:
    if op.dtype != "bool":
        raise to.unsupported("bits of integers")
    if op.primitive == "not":
        return to.helper("negation", to.array(op.operand))
    if op.primitive == "and":
        return _binary(to, "mul", op.inputs, op.shape)
    texts = to.all_shaped(op)
    return to.helper("either", *texts) if op.primitive == "or" else to.call("abs", to.call("sub", *texts))


@rule("select_n")
def _select(to: GgmlContext, op: Statement) -> str:
    if op.operand.dtype != "bool" or len(op.inputs) != 3:
        raise to.unsupported("selection by an integer")
    check_indices(to, 2 * ne(op.shape)[0])  # the helper reads items by their index in two joined rows
    mask, no, yes = to.all_shaped(op)
    return to.helper("where", mask, yes, no)


@rule("clamp")
def _clamp(to: GgmlContext, op: Statement) -> str:
    least, array, most = op.inputs
    if isinstance(least, Number) and isinstance(most, Number):
        return to.helper("clamp", to.array(array), to.number(least), to.number(most))
    low, text, high = to.all_shaped(op)
    return to.helper("minimum", high, to.helper("maximum", low, text))


@rule("max", "min")
def _maximum(to: GgmlContext, op: Statement) -> str:
    array, bound = op.inputs[:: -1 if isinstance(op.operand, Number) else 1]
    if not isinstance(bound, Number):  # GGML clamps by numbers only
        return to.helper("maximum" if op.primitive == "max" else "minimum", *to.all_shaped(op))
    if op.primitive == "min":
        return to.helper("clamp", to.array(array), "-math.inf", to.number(bound))
    if bound.value == 0:
        return to.call("relu", to.array(array))
    return to.helper("clamp", to.array(array), to.number(bound), "math.inf")


@rule("round")
def _nearest(to: GgmlContext, op: Statement) -> str:
    text = to.array(op.operand)
    # ggml_round rounds halves away from 0.
    return to.call("round", text) if int(op["rounding_method"]) == 0 else to.helper("round_to_even", text)


@rule("convert_element_type")
def _convert(to: GgmlContext, op: Statement) -> str:
    text, source = to.array(op.operand), op.operand.dtype
    # Tensors are float32, so all other conversions keep the number.
    if op.dtype == "bool" != source:
        return to.call("step", to.call("abs", text))
    return to.call("trunc", text) if op.dtype.startswith("int") and source.startswith("float") else text
