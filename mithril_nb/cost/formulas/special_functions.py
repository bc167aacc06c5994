"""Rules for special functions: series and rational approximations, with the stated number of terms or iterations.

Sources: Moshier, Cephes (the approximations in XLA and JAX); Lanczos, SIAM J. Numer. Anal. B 1 (1964) 86,
for the gamma function; Press et al., Numerical Recipes, §6.2 and §6.4, for the incomplete gamma and beta functions,
whose series and continued fractions take on the order of the square root of their arguments; Marsaglia & Tsang, ACM
TOMS 26 (2000) 363, for gamma variates. The operations of a term are those in the module that JAX 0.10 lowers in
float32; some functions have more terms in float64. Narrower dtypes are converted to float32 and back, one operation for
each element.
"""

from __future__ import annotations

from mithril_nb.cost.formulas.rules import Formula, Letters, elementwise, of_items, rule
from mithril_nb.cost.formulas.sizes import count
from mithril_nb.stages.jax_versions import DIGAMMA_FLOPS, LGAMMA_FLOPS
from mithril_nb.stages.records import Equation

ITERATIONS = 20
"""Iterations to count for a series or continued fraction whose length depends on the arguments."""
_CONVERGENCE = f"convergence; {ITERATIONS} iterations"


def _conversions(equation: Equation) -> int:
    """Return the conversions of each element: all operands to float32 and the result back, for dtypes below 32 bits."""
    return 0 if equation.inputs[0].dtype in ("float32", "float64") else len(equation.inputs) + 1


def _approximated(
    single: int, double: int, transcendentals: int, note: str, *primitives: str, theirs: tuple[int, int] | None = None
) -> None:
    """Register rules with a number of operations for each element, in float32 and in float64.

    `theirs` is XLA's count in float32 if JAX's lowering differs: for each element, and once.
    """

    @rule(*primitives, flops=f"{single}·n", transcendentals=f"{transcendentals}·n", note=note)
    def approximated(equation: Equation) -> Formula:
        """Operations for each element by its dtype, and the conversions of dtypes below 32 bits."""
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
    """Register rules with a number of operations for each element, and more for each iteration."""

    @rule(
        *primitives, flops=f"({fixed} + {each}·I)·n", transcendentals=f"{transcendentals}·n",
        note=note, typical=_CONVERGENCE,
    )  # fmt: skip
    def iterated(equation: Equation) -> Formula:
        """Operations of 20 iterations, and those before and after them."""
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
    note="Marsaglia and Tsang", typical="the number of rejected samples; none",
)  # fmt: skip
def random_gamma(equation: Equation) -> Letters:
    """One round for each element, because more than 95 % of the samples are accepted: `1414·n`.

    Keys and bits take 11 blocks of Threefry with 92 operations each; the rest is a normal and a uniform variate, and
    the acceptance test. With the loop of Threefry rounds counted once, as in XLA, it is `402·n`.
    """
    return {"n": count(equation.outputs[0])}
