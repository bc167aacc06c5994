"""ONNX operators of elementwise primitives."""

from __future__ import annotations

from typing import Any

import numpy as np

from mithril_nb.emission.onnx.graph import RULES, OnnxGraph, number_of, rule
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
def _same(to: OnnxGraph, op: Statement) -> str:
    primitive, dtype = op.primitive, op.operand.dtype
    names = to.operands(op)
    if (dtype == "float64" and primitive in _FLOAT32) or (is_integer(dtype) and primitive == "pow"):
        raise to.unsupported(f"dtype {dtype}")
    if primitive == "pow":
        names[1] = to.cast(names[1], dtype)  # JAX has integer exponents of floats
    if primitive in _COMPARED:
        return to.add(_SAME[primitive], *to.widened(_SAME[primitive], dtype, names))
    if primitive == "div" and is_integer(dtype):
        return _divided(to, op, "Div", to.constant(np.asarray(-1).astype(dtype)))
    return names[0] if primitive == "copy" else to.compute(_SAME[primitive], dtype, names)


def _divided(to: OnnxGraph, op: Statement, operator: str, at_zero: str, **attributes: Any) -> str:
    # onnxruntime ends the process where it divides by 0, or the smallest integer by -1.
    (divided, divisor), dtype, number = to.operands(op), op.operand.dtype, number_of(op.inputs[1])
    if number is not None and number not in (0, -1):
        return to.compute(operator, dtype, [divided, divisor], **attributes)
    zero, unit = to.constant(0, dtype), to.constant(1, dtype)
    is_zero = to.Equal(divisor, zero)
    safe = to.where(is_zero, unit, divisor, dtype)
    if np.dtype(dtype).kind == "u":
        result = to.compute(operator, dtype, [divided, safe], **attributes)
    else:
        is_minus = to.Equal(divisor, to.constant(-1, dtype))
        negated = to.compute("Neg", dtype, [divided]) if operator == "Div" else zero
        result = to.compute(operator, dtype, [divided, to.where(is_minus, unit, safe, dtype)], **attributes)
        result = to.where(is_minus, negated, result, dtype)
    return to.where(is_zero, at_zero, result, dtype)


def is_integer(dtype: str) -> bool:
    return np.dtype(dtype).kind in "iu"


rule(*_BITS)(lambda to, op: to.add(_BITS[op.primitive][op.operand.dtype != "bool"], *to.operands(op)))
RULES.update({
    "not": lambda to, op: to.add("Not" if op.operand.dtype == "bool" else "BitwiseNot", to.tensor(op.operand)),
    "ne": lambda to, op: to.Not(to.Equal(*to.widened("Equal", op.operand.dtype, to.operands(op)))),
    "exp2": lambda to, op: to.Pow(to.constant(2, op.operand.dtype), to.tensor(op.operand)),
    "rsqrt": lambda to, op: to.Reciprocal(to.Sqrt(to.tensor(op.operand))),
    "is_finite": lambda to, op: to.Less(to.Abs(to.tensor(op.operand)), to.constant(np.inf, op.operand.dtype)),
})  # fmt: skip


@rule("rem")
def _remainder(to: OnnxGraph, op: Statement) -> str:
    # Without `fmod`, the result of Mod has the sign of the divisor.
    divided, divisor = to.operands(op)
    if is_integer(op.operand.dtype):
        return _divided(to, op, "Mod", divided, fmod=1)
    return to.Mod(divided, divisor, fmod=1)


@rule("integer_pow", "square")
def _integer_pow(to: OnnxGraph, op: Statement) -> str:
    # The operator Pow rounds integers and does not wrap around, so multiply repeatedly.
    dtype, exponent = op.operand.dtype, int(op.params.get("y", 2))
    power, result = to.tensor(op.operand), ""
    for index, bit in enumerate(bin(abs(exponent))[:1:-1]):
        if index:
            power = to.compute("Mul", dtype, [power, power])
        if bit == "1":
            result = to.compute("Mul", dtype, [result, power]) if result else power
    result = result or to.Expand(to.constant(1, dtype), to.integers(op.shape))
    return to.Reciprocal(result) if exponent < 0 else result


@rule("log1p")
def _log1p(to: OnnxGraph, op: Statement) -> str:
    # ONNX has no operator for it, nor for expm1, exp2 and rsqrt.
    # With u = 1 + x, x log(u) / (u - 1) is accurate also for small x.
    x, one_ = to.tensor(op.operand), to.constant(1, op.operand.dtype)
    sum_ = to.Add(x, one_)
    is_small, is_far = to.Equal(sum_, one_), to.Equal(sum_, to.constant(np.inf, op.operand.dtype))
    divisor = to.Where(is_small, one_, to.Sub(sum_, one_))
    scaled = to.Mul(to.Log(sum_), to.Div(x, divisor))
    return to.Where(is_small, x, to.Where(is_far, sum_, scaled))


@rule("expm1")
def _expm1(to: OnnxGraph, op: Statement) -> str:
    # For |x| < 1, 2 tanh(x / 2) / (1 - tanh(x / 2)) is accurate also for small x.
    x, dtype = to.tensor(op.operand), op.operand.dtype
    half = to.Tanh(to.Mul(x, to.constant(0.5, dtype)))
    ratio = to.Div(to.Add(half, half), to.Sub(to.constant(1, dtype), half))
    is_small = to.Less(to.Abs(x), to.constant(1, dtype))
    return to.Where(is_small, ratio, to.Sub(to.Exp(x), to.constant(1, dtype)))


@rule("erfc")
def _erfc(to: OnnxGraph, op: Statement) -> str:
    if op.operand.dtype == "float64":  # as for erf
        raise to.unsupported("dtype float64")
    return to.Sub(to.constant(1, op.operand.dtype), to.Erf(to.tensor(op.operand)))


@rule("round")
def _round(to: OnnxGraph, op: Statement) -> str:
    x, dtype = to.tensor(op.operand), op.operand.dtype
    if int(op["rounding_method"]) != 0:  # halves to even, as the operator does
        return to.Round(x)
    size = to.Abs(x)  # halves go away from zero
    floor = to.Floor(size)
    is_up = to.GreaterOrEqual(to.Sub(size, floor), to.constant(0.5, dtype))
    return to.Mul(to.Sign(x), to.Add(floor, to.cast(is_up, dtype)))


@rule("clamp")
def _clamp(to: OnnxGraph, op: Statement) -> str:
    least, array, most = to.operands(op)
    dtype = op.inputs[1].dtype
    return to.compute("Min", dtype, [to.compute("Max", dtype, [array, least]), most])


@rule("select_n")
def _select(to: OnnxGraph, op: Statement) -> str:
    names = [to.tensor(case) for case in op.inputs[1:]]
    index, result = to.tensor(op.operand), names[-1]
    if op.operand.dtype == "bool":
        return to.where(index, result, names[0], op.dtype)
    for number, name in reversed(list(enumerate(names[:-1]))):  # XLA clamps the index
        result = to.where(to.LessOrEqual(index, to.constant(number, "int32")), name, result, op.dtype)
    return result


@rule("convert_element_type")
def _convert(to: OnnxGraph, op: Statement) -> str:
    # As in XLA, floats out of the range of an integer dtype become its limits, and NaN becomes 0.
    name, dtype, target = to.tensor(op.operand), op.operand.dtype, op.dtype
    if np.dtype(dtype).kind != "f" or not is_integer(target):
        return to.cast(name, target)
    limits = np.iinfo(target)
    wide = "float64" if dtype != "float64" and limits.bits > 16 else "float32" if dtype == "float16" else dtype
    name = to.cast(name, wide, dtype)
    # The first float above the limits: the largest integer of 64 bits is no float.
    above, below = (to.constant(float(each), wide) for each in (limits.max + 1, limits.min))
    is_above, is_inside = to.GreaterOrEqual(name, above), to.Greater(name, below)
    result = to.cast(to.where(is_inside, name, below, wide), target)
    result = to.where(to.IsNaN(name), to.constant(0, target), result, target)
    return to.where(is_above, to.constant(limits.max, target), result, target)
