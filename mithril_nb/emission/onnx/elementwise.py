"""ONNX operators of elementwise primitives."""

from __future__ import annotations

from typing import Any

import numpy as np

from mithril_nb.emission.onnx.graph import Graph, rule
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
_WIDER = {"int8": "int32", "int16": "int32", "uint8": "int32", "uint16": "int32", "uint32": "int64"}
"""Integer dtypes that onnxruntime does not support in arithmetic, and the wider dtype that is used instead."""


@rule(*_SAME)
def _same(to: Graph, one: Statement) -> str:
    dtypes = {each.dtype for each in one.inputs}
    names = [to.tensor(each) for each in one.inputs]
    (dtype, *_) = dtypes
    if one.primitive == "pow" and len(dtypes) > 1:
        names[1] = to.cast(names[1], one.outputs[0].dtype)
    if dtype == "bool" and one.primitive in ("lt", "le", "gt", "ge", "max", "min"):
        names, dtype = [to.cast(name, "int32") for name in names], "int32"
        found = to.add(_SAME[one.primitive], *names)
        return to.cast(found, "bool") if one.outputs[0].dtype == "bool" and one.primitive in ("max", "min") else found
    if dtype in _WIDER:
        found = to.add(_SAME[one.primitive], *[to.cast(name, _WIDER[dtype]) for name in names])
        return found if one.outputs[0].dtype == "bool" else to.cast(found, one.outputs[0].dtype)
    return to.add(_SAME[one.primitive], *names)


@rule("and", "or", "xor")
def _bits(to: Graph, one: Statement) -> str:
    return to.add(_BITS[one.primitive][one.inputs[0].dtype != "bool"], *map(to.tensor, one.inputs))


@rule("not")
def _not(to: Graph, one: Statement) -> str:
    return to.add("Not" if one.inputs[0].dtype == "bool" else "BitwiseNot", to.tensor(one.inputs[0]))


@rule("ne")
def _different(to: Graph, one: Statement) -> str:
    return to.add("Not", to.add("Equal", *map(to.tensor, one.inputs)))


@rule("rem")
def _remainder(to: Graph, one: Statement) -> str:
    return to.add("Mod", *map(to.tensor, one.inputs), fmod=1)


@rule("square")
def _square(to: Graph, one: Statement) -> str:
    name = to.tensor(one.inputs[0])
    return to.add("Mul", name, name)


@rule("integer_pow")
def _integer_pow(to: Graph, one: Statement) -> str:
    return to.add("Pow", to.tensor(one.inputs[0]), to.constant(one.params["y"], one.inputs[0].dtype))


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
    is_small, is_far = to.add("Equal", sum_, one_), to.add("IsInf", sum_, detect_negative=0)
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
    return to.add("Not", to.add("Or", to.add("IsInf", name), to.add("IsNaN", name)))


@rule("clamp")
def _clamp(to: Graph, one: Statement) -> str:
    least, array, most = map(to.tensor, one.inputs)
    return to.add("Min", to.add("Max", array, least), most)


@rule("select_n")
def _select(to: Graph, one: Statement) -> str:
    which, *cases = one.inputs
    return select(to, to.tensor(which), which.dtype, [to.tensor(case) for case in cases])


def select(to: Graph, which: str, dtype: str, cases: list[str]) -> str:
    """Return `cases[which]` for each item of the tensor `which`; a false item selects case 0, a true item case 1."""
    if dtype == "bool":
        return to.add("Where", which, cases[1], cases[0])
    found = cases[-1]
    for place in range(len(cases) - 2, -1, -1):
        chosen = to.add("LessOrEqual", which, to.constant(place, dtype))
        found = to.add("Where", chosen, cases[place], found)
    return found


@rule("convert_element_type")
def _convert(to: Graph, one: Statement) -> str:
    return to.cast(to.tensor(one.inputs[0]), one.outputs[0].dtype)


def lowest(dtype: str) -> Any:
    """Return the smallest number of a dtype."""
    return -np.inf if np.dtype(dtype).kind == "f" else np.iinfo(dtype).min
