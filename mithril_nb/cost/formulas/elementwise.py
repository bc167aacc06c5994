"""Rules for elementwise arithmetic, special functions, and equations that only move or alias data.

Sources: one FLOP for each element is the convention of the literature (Golub & Van Loan, Matrix Computations, §1.2.4)
and of XLA. Functions that JAX or XLA expands into simpler operations count as the expansion, measured on the lowered
module.

Special functions are series and rational approximations, with the stated number of terms or iterations. Sources:
Moshier, Cephes (the approximations in XLA and JAX); Lanczos, SIAM J. Numer. Anal. B 1 (1964) 86, for the gamma
function; Press et al., Numerical Recipes, §6.2 and §6.4, for the incomplete gamma and beta functions, whose series and
continued fractions take on the order of the square root of their arguments; Marsaglia & Tsang, ACM TOMS 26 (2000) 363,
for gamma variates. The operations of a term are those in the module that JAX 0.10 lowers in float32; some functions
have more terms in float64. Narrower dtypes are converted to float32 and back, one operation for each element.
"""

from __future__ import annotations

from mithril_nb.cost.formulas.rules import (
    Formula,
    Letters,
    all_bytes,
    elementwise,
    no_bytes,
    of_items,
    rule,
    without_arithmetic,
)
from mithril_nb.cost.formulas.sizes import count
from mithril_nb.stages.jax_versions import ASIN_FLOPS, DIGAMMA_FLOPS, LGAMMA_FLOPS
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

without_arithmetic(
    "broadcast_in_dim", "transpose", "rev", "concatenate", "pad", "split", "iota", "tile", "device_put",
    "empty2", "empty", "full", "stack",
    note="moves data",
)  # fmt: skip
without_arithmetic(
    "squeeze", "expand_dims", "copy", "stop_gradient", "name", "optimization_barrier", "random_wrap",
    "random_unwrap", "random_clone", "reshard", "sharding_constraint", "mesh_cast", "pvary", "pcast", "create_token",
    "platform_index",
    note="alias", moved=no_bytes,
)  # fmt: skip
# `lax.reshape` with `dimensions` permutes the axes first.
without_arithmetic(
    "reshape", note="alias", moved=lambda equation: all_bytes(equation) if equation.param.get("dimensions") else 0
)
without_arithmetic("debug_print", note="printed by the host")
without_arithmetic("dim_as_value", note="a size, constant in the compiled program", moved=no_bytes)


@rule("convert_element_type", flops="n", note="0 if the dtype is the same")
def convert(equation: Equation) -> Formula:
    """One conversion for each element: `n`; 0 if the dtype is the same."""
    is_same = equation.inputs[0].dtype == equation.outputs[0].dtype
    return Formula("0", note="the same dtype") if is_same else Formula("n", of_items(equation))


@rule("pow", flops="0", transcendentals="n")
def power(equation: Equation) -> Letters | Formula:
    """One power for each element: `n` transcendentals. An exponent of another dtype is converted first: `n` FLOPs."""
    if equation.inputs[0].dtype == equation.inputs[1].dtype:
        return of_items(equation)
    return Formula("n", of_items(equation), "n", note="the exponent is converted")


@rule("integer_pow", flops="k·n", note="k = floor(log2 |y|) + ones(|y|) - 1 + [y < 0]")
def integer_power(equation: Equation) -> Formula:
    """Exponentiation by squaring: `k` operations for each of the `n` elements, `k·n`.

    For the exponent `y`, these are one product for each bit of `|y|` after the first, one more for each of these bits
    that is 1, and one division if `y < 0`.
    """
    exponent = equation.param["y"]
    assert isinstance(exponent, int)
    if exponent == 0:
        return Formula("0", note="x^0 is 1")
    steps = abs(exponent).bit_length() - 1 + abs(exponent).bit_count() - 1 + (exponent < 0)
    return Formula("k·n", {"k": steps, **of_items(equation)}, note=f"k operations for x^{exponent}")


@rule("polynomial", flops="2·(k - 1)·n", note="k coefficients")
def polynomial(equation: Equation) -> Letters:
    """Horner's rule, a product and a sum for each coefficient but the first: `2·(k - 1)·n`."""
    return {"k": len(equation.inputs) - 1, **of_items(equation)}


@rule("select_n", flops="n", note="2·(cases - 1)·n if the selector is an integer")
def select(equation: Equation) -> Formula:
    """One selection for each element: `n`.

    If the selector is an integer, each case but the last takes a comparison and a selection: `2·(cases - 1)·n`.
    """
    cases = len(equation.inputs) - 1
    if cases < 2:
        return Formula("0", note="only one case")
    if equation.inputs[0].dtype == "bool":
        return Formula("n", of_items(equation))
    return Formula("2·(cases - 1)·n", {"cases": cases, **of_items(equation)})


ITERATIONS = 20
"""Iterations that count for a series or continued fraction whose length depends on the arguments."""
_CONVERGENCE = f"the number of iterations, assumed to be {ITERATIONS}"


def _conversions(equation: Equation) -> int:
    # 16-bit operands are converted to float32, the result back.
    return 0 if equation.inputs[0].dtype in ("float32", "float64") else len(equation.inputs) + 1


def _approximated(
    single: int, double: int, transcendentals: int, note: str, *primitives: str, theirs: tuple[int, int] | None = None
) -> None:
    """Register functions that are computed by an approximation.

    They take `single` FLOPs for each element in float32, `double` in float64. If XLA counts other FLOPs in float32,
    `theirs` is a pair: its FLOPs for each element, and the FLOPs that it adds once for the whole array.
    """

    @rule(*primitives, flops=f"{single}·n", transcendentals=f"{transcendentals}·n", note=note)
    def approximated(equation: Equation) -> Formula:
        """`single` or `double` FLOPs for each element; for 16-bit dtypes also the conversions to float32 and back."""
        more = _conversions(equation)
        is_double = equation.inputs[0].dtype == "float64"
        xla = None if theirs is None or is_double else f"{theirs[0] + more}·n + {theirs[1]}"
        flops = f"{double if is_double else single + more}·n"
        return Formula(flops, of_items(equation), f"{transcendentals}·n", note=note, xla=xla)


_approximated(53, 53, 4, "Lanczos, 8 terms and the reflection", "lgamma", theirs=LGAMMA_FLOPS)
_approximated(DIGAMMA_FLOPS, DIGAMMA_FLOPS, 3, "Lanczos, 8 terms and the reflection", "digamma")
_approximated(83, 173, 1, "Chebyshev, 18 and 7 terms, 30 and 25 in float64", "bessel_i0e", "bessel_i1e")
_approximated(121, 121, 11, "Euler and Maclaurin, 9 terms and 12 corrections", "zeta")
_approximated(187 + DIGAMMA_FLOPS, 187 + DIGAMMA_FLOPS, 19, "zeta and lgamma", "polygamma")
_approximated(62, 90, 1, "a polynomial", "erfc")
_approximated(37, 100, 2, "a polynomial", "erf_inv")
_approximated(3, 3, 2, "expanded", "cosh")
_approximated(10, 10, 3, "expanded", "sinh")
elementwise(1, 1, "log(x) / log(2)", "log2")
elementwise(1, 0, "", "_copysign", "reciprocal")


def _iterated(fixed: int, each: int, transcendentals: int, note: str, *primitives: str) -> None:
    """Register the rules of functions that are computed by iteration: `(fixed + each·I)·n` FLOPs for `I` iterations."""

    @rule(
        *primitives, flops=f"({fixed} + {each}·I)·n", transcendentals=f"{transcendentals}·n",
        note=note, typical=_CONVERGENCE,
    )  # fmt: skip
    def iterated(equation: Equation) -> Formula:
        """For each element, `each` operations per iteration, and `fixed` operations outside the iterations."""
        flops = f"({fixed + _conversions(equation)} + {each}·I)·n"
        letters = {**of_items(equation), "I": ITERATIONS}
        return Formula(flops, letters, f"{transcendentals}·n", note=note, typical=_CONVERGENCE)


_iterated(93, 48, 6, "series and continued fraction, I iterations", "igamma", "igammac")
_iterated(172, 86, 14, "series and continued fraction, I iterations", "igamma_grad_a")
_iterated(174, 86, 13, "series and continued fraction, I iterations", "random_gamma_grad")
_iterated(219, 76, 17, "continued fraction, I iterations", "regularized_incomplete_beta")


@rule(
    "random_gamma",
    flops="1414·n", transcendentals="8·n", once="402·n",
    note="Marsaglia and Tsang", typical="the number of rejected samples, assumed to be 0",
)  # fmt: skip
def random_gamma(equation: Equation) -> Letters:
    """Rejection sampling with one sample for each element, because more than 95 % of them are accepted: `1414·n`.

    Keys and bits take 11 blocks of Threefry with 92 operations each. The other operations compute a normal and a
    uniform variate, and test the sample. XLA counts one iteration of the loop of Threefry rounds: `402·n`.
    """
    return {"n": count(equation.outputs[0])}
