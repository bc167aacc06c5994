"""The C expression of each elementwise primitive."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mithril_nb.emission.c.helper_functions import Helpers
from mithril_nb.emission.c.types import C_TYPES, bits, is_float, literal
from mithril_nb.emission.program import Statement
from mithril_nb.emission.unsupported import unsupported

_INFIX = {
    "add": "+", "add_any": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
_LIBRARY = {
    "exp": "exp", "log": "log", "sin": "sin", "cos": "cos", "tan": "tan", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "sqrt": "sqrt", "abs": "fabs", "floor": "floor", "ceil": "ceil", "expm1": "expm1",
    "log1p": "log1p", "asin": "asin", "acos": "acos", "atan": "atan", "asinh": "asinh", "acosh": "acosh",
    "atanh": "atanh", "atan2": "atan2", "cbrt": "cbrt", "exp2": "exp2", "erf": "erf", "erfc": "erfc",
    "nextafter": "nextafter", "rem": "fmod", "pow": "pow",
}  # fmt: skip
"""The function of `double` numbers in `math.h`, by primitive. The function of `float` numbers ends with `f`."""
_HELPERS = {"max": "maximum", "min": "minimum", "sign": "sign_of"}
_ON_INTEGERS = {
    "div": "quotient", "rem": "remainder_of", "abs": "magnitude", "shift_left": "shift_left",
    "shift_right_logical": "shift_right", "shift_right_arithmetic": "shift_right_signed",
}  # fmt: skip
_TOTAL_ORDER = {"eq_to": "==", "lt_to": "<", "le_to": "<="}
"""Comparisons by IEEE 754's total order, in which -0 is below 0."""
_OTHERS = "div neg square rsqrt logistic integer_pow not select_n clamp convert_element_type is_finite round "
_OTHERS += "erf_inv reduce_precision population_count"
SUPPORTED = frozenset({*_INFIX, *_LIBRARY, *_HELPERS, *_ON_INTEGERS, *_TOTAL_ORDER, *_OTHERS.split()})
"""The elementwise primitives that have a C expression."""
_ATOM = re.compile(r"\*?\w+(\.\w+)?(\[[^\[\]]*\])*|\w+\([^()]*\)|\([^()]*\)")


def expression(one: Statement, operands: Sequence[str], helpers: Helpers) -> str:
    """Return the C expression for an item of the result of an elementwise statement.

    Args:
        one: The statement.
        operands: Expressions for the items of the operands.
        helpers: Helper functions of the file. Those that the expression calls are added.

    Raises:
        UnsupportedPrimitiveError: C has no expression for the primitive with these dtypes or params.
    """
    name, dtype = one.primitive, one.outputs[0].dtype
    for each in (*one.inputs, *one.outputs):
        if each.dtype not in C_TYPES or each.dtype.startswith("key"):
            raise unsupported(one, "c", f"dtype {each.dtype}")
    given = one.inputs[0].dtype
    items = [text if _ATOM.fullmatch(text) else f"({text})" for text in operands]
    is_short = not is_float(dtype) and dtype not in ("bool", "float0") and bits(dtype) < 32
    short = f"({C_TYPES[dtype]})" if is_short else ""  # C computes with short integers as `int`
    end = "f" if dtype == "float32" else ""
    if name == "select_n":
        return _select(items, given)
    if name == "convert_element_type":
        return _convert(items[0], given, dtype, helpers)
    if given == "bool":
        name = {"max": "or", "min": "and", "add": "or", "mul": "and"}.get(name, name)
    if name in _TOTAL_ORDER:
        rank = helpers.use("total_order", given) if is_float(given) else ""
        return f" {_TOTAL_ORDER[name]} ".join(f"{rank}({text})" if rank else text for text in items)
    if name in _INFIX:
        text = f"{items[0]} {_INFIX[name]} {items[1]}"
        return f"{short}({text})" if short else text
    if name in _ON_INTEGERS and not is_float(dtype):
        return f"{helpers.use(_ON_INTEGERS[name], dtype)}({', '.join(operands)})"
    if name in _HELPERS:
        return f"{helpers.use(_HELPERS[name], dtype)}({', '.join(operands)})"
    if name == "pow" and not is_float(one.inputs[1].dtype):
        return f"{helpers.use('integer_power', dtype)}({operands[0]}, (int){items[1]})"
    if name in _LIBRARY and is_float(dtype):
        return f"{_LIBRARY[name]}{end}({', '.join(operands)})"
    number = lambda value: literal(value, dtype)  # noqa: E731
    first = items[0]
    if name == "div":
        return f"{first} / {items[1]}"
    if name == "neg":
        return f"{short}-{first}"
    if name == "not":
        return f"!{first}" if dtype == "bool" else f"({C_TYPES[dtype]})~{first}"
    if name == "square":
        return f"{short}({first} * {first})" if short else f"{first} * {first}"
    if name == "rsqrt":
        return f"{number(1)} / sqrt{end}({operands[0]})"
    if name == "logistic":
        return f"{number(1)} / ({number(1)} + exp{end}(-{first}))"
    if name == "integer_pow":
        return f"{helpers.use('integer_power', dtype)}({operands[0]}, {int(one.params['y'])})"
    if name == "is_finite":
        return f"(bool)isfinite({operands[0]})"
    if name == "round":
        is_even = int(one.params["rounding_method"]) == 1
        return f"{'nearbyint' if is_even else 'round'}{end}({operands[0]})"
    if name == "clamp":
        least, largest = helpers.use("maximum", dtype), helpers.use("minimum", dtype)
        return f"{largest}({least}({operands[0]}, {operands[1]}), {operands[2]})"
    if name == "erf_inv":
        return f"{helpers.use('erf_inverse', dtype)}({operands[0]})"
    if name == "population_count":
        unsigned = f"uint{bits(dtype)}_t"
        return f"({C_TYPES[dtype]})__builtin_popcountll(({unsigned}){first})"
    if name == "reduce_precision":
        return _reduce_precision(one, first)
    raise unsupported(one, "c")


def _select(items: list[str], which: str) -> str:
    test, *cases = items
    if which == "bool":
        return f"{test} ? {cases[1]} : {cases[0]}"
    text = cases[-1]
    for place in range(len(cases) - 2, -1, -1):
        text = f"{test} <= {place} ? {cases[place]} : {text}"
    return text


def _convert(item: str, source: str, target: str, helpers: Helpers) -> str:
    if target == source:
        return item
    if target == "bool":
        return f"{item} != 0"
    if is_float(source) and not is_float(target):
        return f"{helpers.use(f'from_{source}', target)}({item})"
    return f"({C_TYPES[target]}){item}"


def _reduce_precision(one: Statement, item: str) -> str:
    wanted = one.params["exponent_bits"], one.params["mantissa_bits"]
    dtype = one.outputs[0].dtype
    if wanted == {"float32": (8, 23), "float64": (11, 52)}.get(dtype):
        return item
    if dtype == "float64" and wanted == (8, 23):
        return f"(double)(float){item}"
    raise unsupported(one, "c", f"{wanted[0]} bits of exponent and {wanted[1]} bits of mantissa")
