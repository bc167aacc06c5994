"""Special functions: series and rational approximations, with as many terms or iterations as are stated.

Sources: Moshier, Cephes (the approximations that XLA and JAX write out); Lanczos, SIAM J. Numer. Anal. B 1 (1964) 86,
for the gamma function; Press et al., Numerical Recipes, §6.2 and §6.4, for the incomplete gamma and beta functions,
whose series and continued fractions take of the order of the root of their arguments; Marsaglia & Tsang, ACM TOMS 26
(2000) 363, for gamma variates. The operations of a term are those of the module that JAX 0.10 lowers in float32.
"""

from __future__ import annotations

from mithril_nb.cost.formulas.rules import Letters, count, elementwise, of_items, rule
from mithril_nb.stages.records import Equation

ITERATIONS = 20
"""Iterations that are counted of a series or a continued fraction whose number depends on the arguments."""
_CONVERGENCE = f"how soon it converges; {ITERATIONS} iterations"

elementwise(53, 4, "Lanczos, 8 terms and the reflection", "lgamma")
elementwise(73, 3, "Lanczos, 8 terms and the reflection", "digamma")
elementwise(83, 1, "Chebyshev, 18 and 7 terms", "bessel_i0e", "bessel_i1e")
elementwise(121, 11, "Euler and Maclaurin, 9 terms and 12 corrections", "zeta")
elementwise(260, 19, "zeta and lgamma", "polygamma")
elementwise(1, 1, "log(x) / log(2)", "log2")
elementwise(1, 0, "", "_copysign", "reciprocal")


def _iterated(fixed: int, each: int, transcendentals: int, note: str, *primitives: str) -> None:
    """Register rules of some operations for each item, and some more for each iteration."""

    @rule(
        *primitives, flops=f"({fixed} + {each}·I)·n", transcendentals=f"{transcendentals}·n",
        note=note, typical=_CONVERGENCE,
    )  # fmt: skip
    def iterated(equation: Equation) -> Letters:
        """Operations of each iteration, 20 of them, and those before and after them."""
        return {**of_items(equation), "I": ITERATIONS}


_iterated(93, 48, 6, "series and continued fraction, I iterations", "igamma", "igammac")
_iterated(172, 86, 14, "series and continued fraction, I iterations", "igamma_grad_a")
_iterated(174, 86, 13, "series and continued fraction, I iterations", "random_gamma_grad")
_iterated(219, 76, 17, "continued fraction, I iterations", "regularized_incomplete_beta")


@rule(
    "random_gamma",
    flops="1414·n", transcendentals="8·n", once="402·n",
    note="Marsaglia and Tsang", typical="how many samples are rejected; none",
)  # fmt: skip
def random_gamma(equation: Equation) -> Letters:
    """One round for each item, as more than 95 % are accepted: `1414·n`.

    Keys and bits take 11 blocks of Threefry of 92 operations each; the rest is a normal and a uniform variate, and the
    test. With the rounds of Threefry, a loop, counted once as XLA counts them, it is `402·n`.
    """
    return {"n": count(equation.outputs[0])}
