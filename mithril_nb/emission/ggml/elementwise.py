"""Rules for elementwise primitives."""

from __future__ import annotations

import math

from mithril_nb.emission.ggml.rules import MOST_PLACES, RULES, Context, ne, rule
from mithril_nb.emission.program import Number, Operand, Statement

_OF_ONE = {
    "neg": "neg", "exp": "exp", "log": "log", "sin": "sin", "cos": "cos", "tanh": "tanh", "sqrt": "sqrt",
    "square": "sqr", "abs": "abs", "logistic": "sigmoid", "sign": "sgn", "floor": "floor", "ceil": "ceil",
}  # fmt: skip
"""GGML's functions of one tensor, by primitive."""
WHOLE = frozenset(
    "add add_any sub mul neg max min abs sign square integer_pow eq ne lt le gt ge select_n clamp convert_element_type "
    "reshape squeeze expand_dims broadcast_in_dim transpose concatenate stack unstack tile split slice rev pad iota "
    "reduce_sum reduce_max reduce_min argmax argmin gather scatter scatter-add scatter_add dynamic_slice "
    "dynamic_update_slice copy cumsum scan cond call rem sort empty empty2".split()
)
"""Primitives that compute integers exactly up to 2**24, although the tensors contain them as float32."""


def _of_one(name: str):
    return lambda to, one: to.call(name, to.tensor(one.inputs[0]))


RULES.update({primitive: _of_one(name) for primitive, name in _OF_ONE.items()})
RULES["copy"] = lambda to, one: to.tensor(one.inputs[0])
_HELPED = ("expm1", "log1p", "sinh", "cosh", "erf", "erfc", "is_finite")
"""Primitives with a helper function of the same name."""
RULES.update({name: (lambda to, one, name=name: to.helper(name, to.tensor(one.inputs[0]))) for name in _HELPED})


def binary(to: Context, name: str, left: Operand, right: Operand, shape: tuple[int, ...]) -> str:
    """Return a call of a GGML operation on two operands. GGML only broadcasts the second operand to the first."""
    commutes = name in ("add", "mul")
    if isinstance(left, Number) and isinstance(right, Number):
        return to.call(name, to.shaped(left, shape), to.tensor(right))
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
        return to.call(name, to.tensor(right), to.tensor(left))
    return to.call(name, text, to.tensor(right))


@rule("add", "add_any", "sub", "mul")
def _arithmetic(to: Context, one: Statement) -> str:
    left, right = one.inputs
    return binary(to, one.primitive.removesuffix("_any"), left, right, one.outputs[0].shape)


@rule("div")
def _divide(to: Context, one: Statement) -> str:
    left, right = one.inputs
    if isinstance(right, Number) and _is_power_of_two(right):  # the reciprocal is exact
        return to.call("scale", to.shaped(left, one.outputs[0].shape), 1 / right.value.real)
    return binary(to, "div", left, right, one.outputs[0].shape)


def _is_power_of_two(one: Number) -> bool:
    return math.frexp(abs(one.value.real))[0] == 0.5


@rule("rem")
def _remainder(to: Context, one: Statement) -> str:
    array, divisor = one.inputs
    if not isinstance(divisor, Number) or not _is_power_of_two(divisor):
        raise to.unsupported(one, "division by a number that is not a power of two")
    return to.helper("remainder", to.shaped(array, one.outputs[0].shape), to.number(divisor))


@rule("rsqrt")
def _rsqrt(to: Context, one: Statement) -> str:
    shape = one.outputs[0].shape
    return to.call("div", to.helper("full", 1, *shape), to.call("sqrt", to.tensor(one.inputs[0])))


@rule("tan")
def _tan(to: Context, one: Statement) -> str:
    text = to.tensor(one.inputs[0])
    return to.call("div", to.call("sin", text), to.call("cos", text))


@rule("exp2")
def _exp2(to: Context, one: Statement) -> str:
    return to.call("exp", to.call("scale", to.tensor(one.inputs[0]), math.log(2)))


@rule("integer_pow")
def _integer_pow(to: Context, one: Statement) -> str:
    return to.helper("power", to.tensor(one.inputs[0]), one.params["y"])


@rule("pow")
def _power(to: Context, one: Statement) -> str:
    base, exponent = one.inputs
    shape = one.outputs[0].shape
    if isinstance(exponent, Number):
        value = exponent.value.real
        if math.isfinite(value) and value == int(value) and abs(value) < 2**10:
            return to.helper("power", to.shaped(base, shape), int(value))
        if value in (0.5, -0.5):
            root = to.call("sqrt", to.shaped(base, shape))
            return root if value > 0 else to.call("div", to.helper("full", 1, *shape), root)
        return to.call("exp", to.call("scale", to.call("log", to.shaped(base, shape)), to.number(exponent)))
    if isinstance(base, Number) and base.value.real > 0 and math.isfinite(base.value.real):
        return to.call("exp", to.call("scale", to.shaped(exponent, shape), math.log(base.value.real)))
    return to.helper("raised", to.shaped(base, shape), to.shaped(exponent, shape))


@rule("gt", "lt")
def _greater(to: Context, one: Statement) -> str:
    left, right = one.inputs if one.primitive == "gt" else one.inputs[::-1]
    return to.call("step", binary(to, "sub", left, right, one.outputs[0].shape))


@rule("ge", "le")
def _at_least(to: Context, one: Statement) -> str:
    left, right = one.inputs if one.primitive == "ge" else one.inputs[::-1]
    shape = one.outputs[0].shape
    if not left.dtype.startswith("float"):  # no NaN
        return to.helper("negation", to.call("step", binary(to, "sub", right, left, shape)))
    return to.helper("at_least", to.shaped(left, shape), to.shaped(right, shape))


@rule("eq", "ne")
def _equal(to: Context, one: Statement) -> str:
    shape = one.outputs[0].shape
    left, right = one.inputs
    if left.dtype.startswith("float"):
        found = to.helper("equal", to.shaped(left, shape), to.shaped(right, shape))
        return found if one.primitive == "eq" else to.helper("negation", found)
    differs = to.call("step", to.call("abs", binary(to, "sub", left, right, shape)))
    return differs if one.primitive == "ne" else to.helper("negation", differs)


@rule("and", "or", "not", "xor")
def _logical(to: Context, one: Statement) -> str:
    if one.outputs[0].dtype != "bool":
        raise to.unsupported(one, "bits of integers")
    if one.primitive == "not":
        return to.helper("negation", to.tensor(one.inputs[0]))
    shape = one.outputs[0].shape
    if one.primitive == "and":
        return binary(to, "mul", one.inputs[0], one.inputs[1], shape)
    left, right = [to.shaped(each, shape) for each in one.inputs]
    if one.primitive == "or":
        return to.helper("either", left, right)
    return to.call("abs", to.call("sub", left, right))


@rule("select_n")
def _select(to: Context, one: Statement) -> str:
    which, *cases = one.inputs
    shape = one.outputs[0].shape
    if which.dtype != "bool" or len(cases) != 2:
        raise to.unsupported(one, "selection by an integer")
    check_places(to, one, 2 * ne(shape)[0])
    return to.helper("where", to.shaped(which, shape), to.shaped(cases[1], shape), to.shaped(cases[0], shape))


@rule("clamp")
def _clamp(to: Context, one: Statement) -> str:
    least, array, most = one.inputs
    shape = one.outputs[0].shape
    if isinstance(least, Number) and isinstance(most, Number):
        return to.helper("clamp", to.tensor(array), to.number(least), to.number(most))
    found = to.helper("maximum", to.shaped(least, shape), to.shaped(array, shape))
    return to.helper("minimum", to.shaped(most, shape), found)


@rule("max", "min")
def _maximum(to: Context, one: Statement) -> str:
    left, right = one.inputs
    if isinstance(left, Number):
        left, right = right, left
    shape = one.outputs[0].shape
    if isinstance(right, Number):
        number = to.number(right)
        if one.primitive == "max":
            return (
                to.call("relu", to.tensor(left))
                if right.value == 0
                else to.helper("clamp", to.tensor(left), number, "math.inf")
            )
        return to.helper("clamp", to.tensor(left), "-math.inf", number)
    name = "maximum" if one.primitive == "max" else "minimum"
    return to.helper(name, to.shaped(left, shape), to.shaped(right, shape))


@rule("round")
def _nearest(to: Context, one: Statement) -> str:
    text = to.tensor(one.inputs[0])
    return to.call("round", text) if int(one.params["rounding_method"]) == 0 else to.helper("round_to_even", text)


@rule("convert_element_type")
def _convert(to: Context, one: Statement) -> str:
    (given,), (output,) = one.inputs, one.outputs
    text = to.tensor(given)
    if output.dtype == "bool" and given.dtype != "bool":
        return to.call("step", to.call("abs", text))
    if output.dtype.startswith("int") and given.dtype.startswith("float"):
        return to.call("trunc", text)
    return text


def check_places(to: Context, one: Statement, count: int) -> None:
    """Check that float32 represents all positions below `count` in an array exactly.

    Raises:
        UnsupportedPrimitiveError: There are too many positions.
    """
    if count > MOST_PLACES:
        raise to.unsupported(one, f"an array with {count} items: GGML's float32 indices are exact up to {MOST_PLACES}")
