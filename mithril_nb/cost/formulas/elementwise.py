"""Rules for elementwise arithmetic, and for equations that only move or alias data.

Sources: one FLOP for each element is the convention of the literature (Golub & Van Loan, Matrix Computations, §1.2.4)
and of XLA. Functions that JAX or XLA expands into simpler operations count as the expansion, measured on the lowered
module.
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
# JAX or XLA expands these into simpler ops; measured on the lowered module.
elementwise(3, 1, "1 / (1 + exp(-x))", "logistic")
elementwise(1, 1, "exp(x log 2)", "exp2")
elementwise(3, 2, "expanded", "acos")
elementwise(ASIN_FLOPS, 2, "expanded", "asin")
elementwise(11, 3, "expanded", "asinh")
elementwise(7, 4, "expanded", "acosh")
elementwise(6, 2, "expanded", "atanh")
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
    flops="0", note="alias", moved=no_bytes,
)  # fmt: skip
def renaming(equation: Equation) -> Letters:
    """An alias of the same bytes costs nothing: `0`."""
    return {}


@rule("debug_print", flops="0", note="printed by the host")
def printing(equation: Equation) -> Letters:
    """Printing passes values to the host: `0`."""
    return {}


@rule("dim_as_value", flops="0", note="a size, constant in the compiled program", moved=no_bytes)
def size_as_value(equation: Equation) -> Letters:
    """A symbolic size is a constant in the compiled program: `0`."""
    return {}


@rule("convert_element_type", flops="n", note="0 if the dtype is the same")
def convert(equation: Equation) -> Formula:
    """One conversion for each element: `n`."""
    is_same = equation.inputs[0].dtype == equation.outputs[0].dtype
    return Formula("0", note="the same dtype") if is_same else Formula("n", of_items(equation))


@rule("pow", flops="0", transcendentals="n")
def power(equation: Equation) -> Letters | Formula:
    """One power for each element; an integer exponent is converted first: `n` transcendentals."""
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
    """Horner's rule: a product and a sum for each coefficient but the first. JAX 0.12 uses it for exp and erf."""
    return {"k": len(equation.inputs) - 1, **of_items(equation)}


@rule("select_n", flops="n", note="2·(cases - 1)·n if integers select")
def select(equation: Equation) -> Formula:
    """One selection for each element; an integer selector takes a comparison and a selection for each case but one."""
    cases = len(equation.inputs) - 1
    if cases < 2:
        return Formula("0", note="only one case")
    if equation.inputs[0].dtype == "bool":
        return Formula("n", of_items(equation))
    return Formula("2·(cases - 1)·n", {"cases": cases, **of_items(equation)})
