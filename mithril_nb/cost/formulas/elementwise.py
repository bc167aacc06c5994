"""Arithmetic item by item, and equations that only move or rename data.

Sources: one FLOP for each item is the convention of the literature (Golub & Van Loan, Matrix Computations, §1.2.4) and
of XLA. A function that JAX or XLA writes out in simpler operations counts as these, measured on the lowered module.
"""

from __future__ import annotations

from mithril_nb.cost.formulas.rules import Formula, Letters, elementwise, no_bytes, of_items, rule
from mithril_nb.stages.jax_versions import ASIN_FLOPS
from mithril_nb.stages.records import Equation

elementwise(
    1, 0, "",
    "add", "add_any", "sub", "mul", "div", "rem", "max", "min", "neg", "sign", "abs", "floor", "ceil", "round",
    "is_finite", "square", "eq", "ne", "lt", "le", "gt", "ge", "eq_to", "lt_to", "le_to", "and", "or", "xor", "not",
    "shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count", "clz", "clamp",
    "bitcast_convert_type", "reduce_precision", "mulhi",
)  # fmt: skip
elementwise(
    0, 1, "",
    "exp", "log", "expm1", "log1p", "tanh", "sin", "cos", "tan", "atan", "atan2", "sqrt", "rsqrt", "cbrt", "erf",
)  # fmt: skip
# What JAX or XLA writes out in simpler ops; measured on the lowered module.
elementwise(3, 1, "1 / (1 + exp(-x))", "logistic")
elementwise(1, 1, "exp(x log 2)", "exp2")
elementwise(3, 2, "written out", "acos")
elementwise(ASIN_FLOPS, 2, "written out", "asin")
elementwise(11, 3, "written out", "asinh")
elementwise(7, 4, "written out", "acosh")
elementwise(6, 2, "written out", "atanh")
elementwise(24, 0, "bit by bit", "nextafter")
elementwise(3, 0, "(1 - x)·(1 + x)", "one_minus_square")  # a primitive since JAX 0.12


@rule(
    "broadcast_in_dim", "transpose", "rev", "concatenate", "pad", "slice", "split", "iota", "tile", "device_put",
    "empty2", "empty", "full", "stack",
    flops="0", note="moves data",
)  # fmt: skip
def movement(equation: Equation) -> Letters:
    """Moving data takes no arithmetic: `0`."""
    return {}


@rule(
    "reshape", "squeeze", "expand_dims", "copy", "stop_gradient", "name", "optimization_barrier", "random_wrap",
    "random_unwrap", "random_clone", "reshard", "sharding_constraint", "mesh_cast", "pvary", "pcast", "create_token",
    "platform_index",
    flops="0", note="another name", moved=no_bytes,
)  # fmt: skip
def renaming(equation: Equation) -> Letters:
    """What gives the same bytes another name takes nothing: `0`."""
    return {}


@rule("debug_print", flops="0", note="the host prints it")
def printing(equation: Equation) -> Letters:
    """Printing passes values to the host: `0`."""
    return {}


@rule("dim_as_value", flops="0", note="a size, known when it is compiled", moved=no_bytes)
def size_as_value(equation: Equation) -> Letters:
    """A size that has a name is a number by the time anything runs: `0`."""
    return {}


@rule("convert_element_type", flops="n", note="0 if the dtype stays")
def convert(equation: Equation) -> Formula:
    """One conversion for each item: `n`."""
    stays = equation.inputs[0].dtype == equation.outputs[0].dtype
    return Formula("0", note="the dtype stays") if stays else Formula("n", of_items(equation))


@rule("pow", flops="0", transcendentals="n")
def power(equation: Equation) -> Letters | Formula:
    """One power for each item; an integer exponent is converted first: `n` transcendentals."""
    if equation.inputs[0].dtype == equation.inputs[1].dtype:
        return of_items(equation)
    return Formula("n", of_items(equation), "n", note="the exponent is converted")


@rule("integer_pow", flops="k·n", note="k = floor(log2 |y|) + ones(|y|) - 1 + [y < 0]")
def integer_power(equation: Equation) -> Formula:
    """Squaring and multiplying along the bits of `y`; one division if it is negative."""
    exponent = equation.param["y"]
    assert isinstance(exponent, int)
    if exponent == 0:
        return Formula("0", note="x^0 is 1")
    steps = abs(exponent).bit_length() - 1 + abs(exponent).bit_count() - 1 + (exponent < 0)
    return Formula("k·n", {"k": steps, **of_items(equation)}, note=f"k operations for x^{exponent}")


@rule("polynomial", flops="2·(k - 1)·n", note="k coefficients")
def polynomial(equation: Equation) -> Letters:
    """Horner's rule: a product and a sum for each coefficient but the first. JAX 0.12's exp and erf are made of it."""
    return {"k": len(equation.inputs) - 1, **of_items(equation)}


@rule("select_n", flops="n", note="2·(cases - 1)·n if numbers select")
def select(equation: Equation) -> Formula:
    """One selection for each item; where numbers select, cases are chosen one by one, each with a comparison."""
    cases = len(equation.inputs) - 1
    if cases < 2:
        return Formula("0", note="there is no choice")
    if equation.inputs[0].dtype == "bool":
        return Formula("n", of_items(equation))
    return Formula("2·(cases - 1)·n", {"cases": cases, **of_items(equation)})
