"""ONNX operators of elementwise primitives."""

from __future__ import annotations

from typing import Any

import numpy as np

from mithril_nb.emission.onnx.graph import Graph, number_of, rule
from mithril_nb.emission.program import Statement

_SAME = {
    "add": "Add", "add_any": "Add", "sub": "Sub", "mul": "Mul", "max": "Max", "min": "Min", "pow": "Pow", "eq": "Equal",
    "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "exp": "Exp", "log": "Log",
    "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
    "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "sqrt": "Sqrt", "abs": "Abs",
    "neg": "Neg", "sign": "Sign", "floor": "Floor", "ceil": "Ceil", "erf": "Erf", "logistic": "Sigmoid", "div": "Div",
    "copy": "Identity",
}  # fmt: skip
_BITS = {"and": ("And", "BitwiseAnd"), "or": ("Or", "BitwiseOr"), "xor": ("Xor", "BitwiseXor")}
_FLOAT32 = frozenset("tan asin acos atan sinh cosh asinh acosh atanh erf".split())
"""Primitives that onnxruntime does not compute in float64."""
_COMPARED = frozenset("eq lt le gt ge".split())


@rule(*_SAME)
def _same(to: Graph, one: Statement) -> str:
    primitive, dtype = one.primitive, one.inputs[0].dtype
    names = [to.tensor(each) for each in one.inputs]
    if (dtype == "float64" and primitive in _FLOAT32) or (is_integer(dtype) and primitive == "pow"):
        raise to.unsupported(one, f"dtype {dtype}")
    if primitive == "pow":
        names[1] = to.cast(names[1], dtype)
    if primitive in _COMPARED:
        return to.add(_SAME[primitive], *to.widened(_SAME[primitive], dtype, names))
    if primitive == "div" and is_integer(dtype):
        return _divided(to, one, "Div", to.constant(np.asarray(-1).astype(dtype)))
    return names[0] if primitive == "copy" else to.compute(_SAME[primitive], dtype, names)


def _divided(to: Graph, one: Statement, op: str, at_zero: str, **attributes: Any) -> str:
    """Return a quotient or remainder of integers. By 0 it is the tensor `at_zero`, as in JAX.

    In onnxruntime, a division by 0, and of the smallest integer by -1, ends the process.
    """
    divided, divisor = map(to.tensor, one.inputs)
    dtype, number = one.inputs[0].dtype, number_of(one.inputs[1])
    if number is not None and number not in (0, -1):
        return to.compute(op, dtype, [divided, divisor], **attributes)
    zero, unit = to.constant(0, dtype), to.constant(1, dtype)
    is_zero = to.add("Equal", divisor, zero)
    safe = to.where(is_zero, unit, divisor, dtype)
    if np.dtype(dtype).kind == "u":
        found = to.compute(op, dtype, [divided, safe], **attributes)
    else:
        is_minus = to.add("Equal", divisor, to.constant(-1, dtype))
        negated = to.compute("Neg", dtype, [divided]) if op == "Div" else zero
        found = to.compute(op, dtype, [divided, to.where(is_minus, unit, safe, dtype)], **attributes)
        found = to.where(is_minus, negated, found, dtype)
    return to.where(is_zero, at_zero, found, dtype)


def is_integer(dtype: str) -> bool:
    """Return whether a dtype is an integer."""
    return np.dtype(dtype).kind in "iu"


@rule("and", "or", "xor")
def _bits(to: Graph, one: Statement) -> str:
    return to.add(_BITS[one.primitive][one.inputs[0].dtype != "bool"], *map(to.tensor, one.inputs))


@rule("not")
def _not(to: Graph, one: Statement) -> str:
    return to.add("Not" if one.inputs[0].dtype == "bool" else "BitwiseNot", to.tensor(one.inputs[0]))


@rule("ne")
def _different(to: Graph, one: Statement) -> str:
    return to.add("Not", to.add("Equal", *to.widened("Equal", one.inputs[0].dtype, map(to.tensor, one.inputs))))


@rule("rem")
def _remainder(to: Graph, one: Statement) -> str:
    divided, divisor = map(to.tensor, one.inputs)
    if is_integer(one.inputs[0].dtype):
        return _divided(to, one, "Mod", divided, fmod=1)
    return to.add("Mod", divided, divisor, fmod=1)


@rule("integer_pow", "square")
def _integer_pow(to: Graph, one: Statement) -> str:
    """Return a power by repeated squaring: the operator Pow rounds integers, and does not wrap around."""
    dtype, exponent = one.inputs[0].dtype, int(one.params.get("y", 2))
    power, found = to.tensor(one.inputs[0]), ""
    for place, bit in enumerate(bin(abs(exponent))[:1:-1]):
        if place:
            power = to.compute("Mul", dtype, [power, power])
        if bit == "1":
            found = to.compute("Mul", dtype, [found, power]) if found else power
    found = found or to.add("Expand", to.constant(1, dtype), to.integers(one.outputs[0].shape))
    return to.add("Reciprocal", found) if exponent < 0 else found


@rule("exp2")
def _exp2(to: Graph, one: Statement) -> str:
    return to.add("Pow", to.constant(2, one.inputs[0].dtype), to.tensor(one.inputs[0]))


@rule("rsqrt")
def _rsqrt(to: Graph, one: Statement) -> str:
    return to.add("Reciprocal", to.add("Sqrt", to.tensor(one.inputs[0])))


@rule("log1p")
def _log1p(to: Graph, one: Statement) -> str:
    """Return log(1 + x) as x log(u) / (u - 1) with u = 1 + x, which is accurate also for small x."""
    x, one_ = to.tensor(one.inputs[0]), to.constant(1, one.inputs[0].dtype)
    sum_ = to.add("Add", x, one_)
    is_small, is_far = to.add("Equal", sum_, one_), to.add("Equal", sum_, to.constant(np.inf, one.inputs[0].dtype))
    divisor = to.add("Where", is_small, one_, to.add("Sub", sum_, one_))
    scaled = to.add("Mul", to.add("Log", sum_), to.add("Div", x, divisor))
    return to.add("Where", is_small, x, to.add("Where", is_far, sum_, scaled))


@rule("expm1")
def _expm1(to: Graph, one: Statement) -> str:
    """Return exp(x) - 1; for |x| < 1 as 2 tanh(x / 2) / (1 - tanh(x / 2)), which is accurate also for small x."""
    x, dtype = to.tensor(one.inputs[0]), one.inputs[0].dtype
    half = to.add("Tanh", to.add("Mul", x, to.constant(0.5, dtype)))
    ratio = to.add("Div", to.add("Add", half, half), to.add("Sub", to.constant(1, dtype), half))
    is_small = to.add("Less", to.add("Abs", x), to.constant(1, dtype))
    return to.add("Where", is_small, ratio, to.add("Sub", to.add("Exp", x), to.constant(1, dtype)))


@rule("erfc")
def _erfc(to: Graph, one: Statement) -> str:
    if one.inputs[0].dtype == "float64":
        raise to.unsupported(one, "dtype float64")
    return to.add("Sub", to.constant(1, one.inputs[0].dtype), to.add("Erf", to.tensor(one.inputs[0])))


@rule("round")
def _round(to: Graph, one: Statement) -> str:
    x, dtype = to.tensor(one.inputs[0]), one.inputs[0].dtype
    if int(one.params["rounding_method"]) != 0:
        return to.add("Round", x)
    size = to.add("Abs", x)  # halves go away from zero
    whole = to.add("Floor", size)
    is_up = to.add("GreaterOrEqual", to.add("Sub", size, whole), to.constant(0.5, dtype))
    return to.add("Mul", to.add("Sign", x), to.add("Add", whole, to.cast(is_up, dtype)))


@rule("is_finite")
def _is_finite(to: Graph, one: Statement) -> str:
    name = to.tensor(one.inputs[0])
    return to.add("Less", to.add("Abs", name), to.constant(np.inf, one.inputs[0].dtype))


@rule("clamp")
def _clamp(to: Graph, one: Statement) -> str:
    least, array, most = map(to.tensor, one.inputs)
    dtype = one.inputs[1].dtype
    return to.compute("Min", dtype, [to.compute("Max", dtype, [array, least]), most])


@rule("select_n")
def _select(to: Graph, one: Statement) -> str:
    which, *cases = one.inputs
    names, dtype = [to.tensor(case) for case in cases], one.outputs[0].dtype
    index, found = to.tensor(which), names[-1]
    for number, name in reversed(list(enumerate(names[:-1]))):
        is_chosen = to.add("LessOrEqual", index, to.constant(number, "int32")) if which.dtype != "bool" else ""
        found = to.where(is_chosen, name, found, dtype) if is_chosen else to.where(index, found, name, dtype)
    return found


@rule("convert_element_type")
def _convert(to: Graph, one: Statement) -> str:
    """Convert an array. Floats out of the range of an integer dtype become its limits, and NaN becomes 0."""
    name, dtype, target = to.tensor(one.inputs[0]), one.inputs[0].dtype, one.outputs[0].dtype
    if np.dtype(dtype).kind != "f" or not is_integer(target):
        return to.cast(name, target)
    limits = np.iinfo(target)
    wide = "float64" if dtype != "float64" and limits.bits > 16 else "float32" if dtype == "float16" else dtype
    name = to.cast(name, wide, dtype)
    # The first float above the limits: the largest integer of 64 bits is no float.
    above, below = (to.constant(float(each), wide) for each in (limits.max + 1, limits.min))
    is_above, is_inside = to.add("GreaterOrEqual", name, above), to.add("Greater", name, below)
    found = to.cast(to.where(is_inside, name, below, wide), target)
    found = to.where(to.add("IsNaN", name), to.constant(0, target), found, target)
    return to.where(is_above, to.constant(limits.max, target), found, target)
