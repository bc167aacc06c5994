"""Rules for complex numbers, in real operations: a sum takes 2, a product 6, a quotient 11.

Source: LAPACK Working Note 41, "Operation Counts for the LAPACK Routines": 6 for a product and 2 for a sum, so 8 for a
multiply-add. Functions that JAX expands into simpler operations count as the expansion. XLA counts each complex
operation as one.
"""

from __future__ import annotations

from mithril_nb.cost.formulas.contractions import NO_PADDING, ONE_GROUP, convolution, dot_general, ragged_dot
from mithril_nb.cost.formulas.elementwise import convert
from mithril_nb.cost.formulas.reductions import (
    reduction,
    running,
    scatter_combine,
    select_and_scatter_add,
    window_reduction,
)
from mithril_nb.cost.formulas.rules import OF_COMPLEX, Formula, Letters, complex_rule, elementwise, of_items, rule
from mithril_nb.cost.formulas.sizes import count
from mithril_nb.cost.formulas.structure import all_reduce, reduce_scatter, update
from mithril_nb.stages.jax_versions import COMPLEX_ABS_FLOPS
from mithril_nb.stages.records import Equation

_REAL, _EXPANDED = "complex, in real operations", "complex, expanded"
_PRODUCT, _QUOTIENT = 6, 11


def _expanded(flops: int, transcendentals: int, *primitives: str) -> None:
    elementwise(flops, transcendentals, _EXPANDED, *(f"{primitive}{OF_COMPLEX}" for primitive in primitives))


def _in_real_operations(each: int, *primitives: str) -> None:
    complex_rule(*primitives, flops=f"{each}·n" if each else "0", note=_REAL, xla="n")(of_items)


_in_real_operations(2, "add", "add_any", "sub", "neg")
_in_real_operations(_PRODUCT, "mul")
_in_real_operations(_QUOTIENT, "div")
_in_real_operations(2, "eq", "ne")
complex_rule("clamp", flops="18·n", note="max and min, expanded", xla="n")(of_items)
complex_rule("one_minus_square", flops="10·n", note=f"(1 - z)·(1 + z), {_REAL}", xla="3·n")(of_items)
rule("complex", "real", "imag", flops="0", note="moves data", xla="n")(of_items)
complex_rule("sign", flops="5·n", transcendentals="n", note="z / |z|", xla="n")(of_items)
# Counted in the lowered module; the counts are the same from JAX 0.10 to 0.12.
_expanded(9, 0, "max", "min")
_expanded(14, 0, "square")
_expanded(15, 4, "exp")
_expanded(16, 4, "exp2")
_expanded(62, 4, "log")
_expanded(64, 4, "log2")
_expanded(79, 5, "log1p")
_expanded(18, 4, "logistic")
_expanded(14, 4, "sin")
_expanded(15, 4, "cos")
_expanded(86, 7, "sqrt")
_expanded(95, 12, "sinh", "cosh")
_expanded(105, 9, "asin", "acos", "acosh")
_expanded(104, 9, "asinh")
_expanded(47, 2, "atan")
_expanded(45, 2, "atanh")
complex_rule("abs",
    flops="3·n", transcendentals="n", note="sqrt(re² + im²)",
    xla=f"{COMPLEX_ABS_FLOPS}·n" if COMPLEX_ABS_FLOPS > 1 else "n",
)(of_items)  # fmt: skip


def _by_identity(flops: int, transcendentals: int, note: str, *primitives: str) -> None:
    """Register functions of complex numbers z = a + bi, which are computed by the identity in `note`.

    `flops` and `transcendentals` are those of each element. XLA counts one transcendental for each element instead.
    Source: Abramowitz & Stegun, Handbook of Mathematical Functions, §4.2 (powers), §4.3.57 and §4.5.51 (tangents).
    """
    texts = f"{flops}·n", f"{transcendentals}·n"
    complex_rule(*primitives, flops=texts[0], transcendentals=texts[1], note=f"{note}; XLA: 1 transcendental", xla="0")(
        of_items
    )


# sinh 2a and cosh 2a take 5 operations, from one exponential and its reciprocal. Two products, two quotients and a sum
# follow.
_by_identity(10, 3, "(sinh 2a + i·sin 2b) / (cosh 2a + cos 2b)", "tanh")
_by_identity(10, 3, "(sin 2a + i·sinh 2b) / (cos 2a + cosh 2b)", "tan")
_by_identity(7, 4, "expm1(a)·cos b - 2·sin²(b/2) + i·exp(a)·sin b", "expm1")
_by_identity(6, 4, "|z|^(-1/2) at half the angle", "rsqrt")
# Two squares (6 each), two sums (2 each), sqrt (86 and 7 transcendentals), `i·z` (1), a quotient (11), log (62 and 4
# transcendentals), and `-i` (1).
_by_identity(177, 11, "-i·log((x + i·y) / sqrt(x² + y²))", "atan2")


@complex_rule("pow", flops="13·n", transcendentals="6·n", note="z^(c + di); XLA: 1 transcendental", xla="0")
def power(equation: Equation) -> Letters | Formula:
    """`z^(c + di) = |z|^c·exp(-d·θ)·(cos q + i·sin q)` with `q = c·θ + d·log |z|`, where θ is the angle of z.

    - Operations: 3 for `|z|² = a² + b²`, 1 for the exponent `c/2`, 2 for `-d·θ`, 4 for `q`, 3 for the products. If the
      exponent `c + di` has another dtype than z, 1 for its conversion.
    - Transcendentals: `pow`, `exp`, `atan2`, `log`, `cos` and `sin`.

    Source: Abramowitz & Stegun, §4.2.
    """
    if equation.inputs[0].dtype == equation.inputs[1].dtype:
        return of_items(equation)
    return Formula("14·n", of_items(equation), "6·n", note="the exponent is converted", xla="n")


@rule("conj", "conj of complex", flops="n", note="the sign of the imaginary part", xla="4·n")
def conjugate(equation: Equation) -> Letters | Formula:
    """One change of sign for each element: `n`; 0 for a real operand."""
    if equation.inputs[0].dtype.startswith("complex"):
        return of_items(equation)
    return Formula("0", of_items(equation), note="a real number", xla="2·n")


@complex_rule("convert_element_type", flops="2·n", note="0 if the dtype is the same", xla="n")
def conversion(equation: Equation) -> Formula:
    """Conversions of the real and the imaginary part of each element: `2·n`; 0 if the dtype is the same."""
    real = convert(equation)
    return real if real.flops == "0" else Formula("2·n", real.letters, note=_REAL, xla="n")


# The argmax of real numbers takes 9 operations, three of them comparisons. For complex numbers, `>` takes 5 operations
# instead of 1, and `==` and `!=` take 2: 9 + 4 + 1 + 1. JAX traces argmax of complex numbers but cannot lower it.
complex_rule("argmax", "argmin", flops="15·(in - out)", note=_REAL)(reduction)
# A complex multiply-add takes 8 operations where a real one takes 2.
complex_rule("dot_general", flops="8·B·M·N·K", note=_REAL, xla="2·B·M·N·K", is_product=True)(dot_general)
complex_rule("ragged_dot_general", "ragged_dot", flops="8·B·M·N·K", note=f"{_REAL}; {ONE_GROUP}", is_product=True)(
    ragged_dot
)
_THREE_CONVOLUTIONS = f"three real convolutions, {NO_PADDING}"


@complex_rule("conv_general_dilated",
    flops="3·2·B·F·(C/G)·valid + 3·left + 4·kernel + 3·out", note=_THREE_CONVOLUTIONS, is_product=True,
)  # fmt: skip
def complex_convolution(equation: Equation) -> Formula:
    """Three real convolutions, with sums of the operands before and of the results after, as JAX lowers it."""
    (left, kernel), out = map(count, equation.inputs), count(equation.outputs[0])
    real = convolution(equation)
    flops, letters = (real.flops, real.letters) if isinstance(real, Formula) else ("2·B·F·(C/G)·valid", real)
    return Formula(
        f"3·{flops} + 3·left + 4·kernel + 3·out",
        {**letters, "left": left, "kernel": kernel, "out": out},
        note=_THREE_CONVOLUTIONS,
    )


@complex_rule("integer_pow", flops="k·n", note=_REAL, xla="j·n")
def integer_power(equation: Equation) -> Formula:
    """The products of `integer_power` for real numbers with 6 operations each, and the quotient with 11: `k·n`."""
    exponent = equation.param["y"]
    assert isinstance(exponent, int)
    if exponent == 0:
        return Formula("0", note="x^0 is 1")
    products = abs(exponent).bit_length() - 1 + abs(exponent).bit_count() - 1
    each = _PRODUCT * products + _QUOTIENT * (exponent < 0)
    letters = {"k": each, "j": products + (exponent < 0), **of_items(equation)}
    return Formula("k·n", letters, note=f"{each} real operations for x^{exponent}", xla="j·n")


# Like the rules for real numbers, but a sum takes 2 operations, a product 6, and a maximum 9.
complex_rule("reduce_sum", flops="2·(in - out)", note=_REAL, xla="in - out")(reduction)
complex_rule("reduce_prod", flops="6·(in - out)", note=_REAL, xla="in - out")(reduction)
complex_rule("reduce_max", "reduce_min", flops="9·(in - out)", note=_EXPANDED)(reduction)
complex_rule("cummax", "cummin", flops="9·(n - rows)", note=_EXPANDED, xla="9·n·(N - 1)")(running)
complex_rule("cumsum", flops="2·(n - rows)", note=_REAL, xla="n·(N - 1)")(running)
complex_rule("cumprod", flops="6·(n - rows)", note=_REAL, xla="n·(N - 1)")(running)
# A maximum (9), `exp` (15), `log1p` (79) and a sum (2) for each element but the first of a row.
complex_rule("cumlogsumexp", flops="(9 + 15 + 79 + 2)·(n - rows)", transcendentals="9·(n - rows)", note=_REAL
)(running)  # fmt: skip
complex_rule("reduce_window_sum", flops="2·n·(window - 1)", note=_REAL, xla="n·(window - 1)")(window_reduction)
complex_rule("reduce_window_max", "reduce_window_min", flops="9·n·(window - 1)", note=_EXPANDED)(window_reduction)
# For each element of the source, `window - 1` comparisons of 9 operations and one sum of 2: `9·window - 7`.
complex_rule("select_and_scatter_add", flops="(9·window - 7)·source", note=_EXPANDED)(select_and_scatter_add)
complex_rule("reduce_scatter", "unreduced_reduce_scatter", flops="2·(in - out)", note=_REAL, xla="0")(reduce_scatter)
complex_rule("addupdate", "accum_grad_in_ref", flops="2·updates", note=_REAL, xla="updates")(update)


@complex_rule("psum", "psum_invariant", "unreduced_psum", flops="2·n", note=_REAL, xla="n")
def collective_sum(equation: Equation) -> Formula:
    """The sums of `all_reduce` for real numbers, with 2 operations each."""
    sums = all_reduce(equation)
    real = sums if isinstance(sums, Formula) else Formula("n", sums)
    return Formula(f"2·({real.flops})" if " " in real.flops else f"2·{real.flops}", real.letters, xla=real.flops)


def _scatter(each: int, *primitives: str, note: str, xla: str | None) -> None:
    @complex_rule(*primitives, flops=f"{each}·updates", note=f"{note}; + indices if clipped", xla=xla)
    def scatter(equation: Equation) -> Formula:
        """`each` operations for each element of the updates, and one for each index if indices are clipped."""
        real = scatter_combine(equation)
        clipped = " + indices" if "indices" in real.letters else ""
        theirs = f"updates{clipped}" if xla else None
        return Formula(f"{each}·updates{clipped}", real.letters, note=note, xla=theirs)


_scatter(2, "scatter-add", "scatter-sub", "scatter_add", note=_REAL, xla="updates")
_scatter(_PRODUCT, "scatter-mul", "scatter_mul", note=_REAL, xla="updates")
_scatter(9, "scatter-max", "scatter-min", note=_EXPANDED, xla=None)
