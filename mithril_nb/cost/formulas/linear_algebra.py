"""Rules for factorizations and solvers of linear algebra: the leading terms of the counts in the literature.

Sources:
    [GVL] Golub & Van Loan, Matrix Computations, 4th edition; the section is given with each rule.
    [LAWN 41] Blackford & Dongarra, LAPACK Working Note 41, "Operation Counts for the LAPACK Routines".
    [LUG] Anderson et al., LAPACK Users' Guide, 3rd edition, table of operation counts of the drivers.

`B` is the number of matrices, `m` and `n` are rows and columns. A complex matrix takes four times as many real FLOPs:
a complex multiply-add takes 8 where a real one takes 2 [LAWN 41].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from mithril_nb.cost.formulas.rules import Formula, Letters, complex_rule, rule, without_arithmetic
from mithril_nb.cost.formulas.sizes import length, times
from mithril_nb.cost.formulas.symbols import call
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.records import Equation
from mithril_nb.stages.trace.params import UNUSED

Finding = Callable[[Equation], Letters | Formula]
_QR_STEPS = "the number of QR steps"
# FLOPs of `k` Householder reflections of an `m` x `n` matrix; each has one row and one column less than the last.
_PRODUCT = "B·(4·m·n·k - 2·(m + n)·k² + 4·k³/3)"
# FLOPs of `_PRODUCT`, and of `k` more reflections, of an `m` x `q` matrix.
_WITH_Q = _PRODUCT.removesuffix(")") + " + 4·m·q·k - 2·(m + q)·k² + 4·k³/3)"


def factorization(*primitives: str, flops: str, note: str = "", typical: str = "") -> Callable[[Finding], Finding]:
    """Register a function as the rule of some primitives, like `rule`. Complex matrices take 4 times the FLOPs."""

    def register(find: Finding) -> Finding:
        @wraps(find)
        def of_complex(equation: Equation) -> Letters | Formula:
            formula = find(equation)
            return replace(formula, flops=f"4·{formula.flops}") if isinstance(formula, Formula) else formula

        rule(*primitives, flops=flops, note=note, typical=typical)(find)
        complex_rule(*primitives, flops=f"4·{flops}", note=note or "complex", typical=typical)(of_complex)
        return find

    return register


def _batch(spec: TensorSpec, axes: int = 2) -> Letters:
    return {"B": times(length(spec, axis) for axis in range(len(spec.shape) - axes))}


def _square(equation: Equation) -> Letters:
    """`n` x `n` matrices."""
    spec = equation.inputs[0]
    return {**_batch(spec), "n": length(spec, -1)}


def _matrix(equation: Equation) -> Letters:
    """`m` x `n` matrices, with `k = min(m, n)`."""
    spec = equation.inputs[0]
    rows, columns = length(spec, -2), length(spec, -1)
    return {**_batch(spec), "m": rows, "n": columns, "k": call("min", rows, columns)}


factorization("cholesky", flops="B·n³/3")(_square)  # GVL 4.2.5; LAWN 41, xPOTRF
factorization("hessenberg", flops="B·10·n³/3")(_square)  # Q as reflections: GVL 7.4.3; LAWN 41, xGEHRD
factorization("tridiagonal", flops="B·4·n³/3")(_square)  # Q as reflections: GVL 8.3.1; LAWN 41, xSYTRD
factorization("eigh", flops="B·9·n³", typical=_QR_STEPS)(_square)  # with eigenvectors: GVL 8.3.5; LUG, xSYEV
# n Givens rotations, each of a row and the vector, with 6 operations for each pair of elements: GVL 6.5.4.
factorization("cholesky_update", flops="B·3·n·(n + 1)")(_square)
# GVL 3.4; LAWN 41, xGETRF.
factorization("lu", flops="B·(2·m·n·k - (m + n)·k² + 2·k³/3)", note="2·n³/3 if square")(_matrix)
# R and the reflections, but not the matrix Q: GVL 5.2.2; LAWN 41, xGEQRF.
factorization("geqrf", "geqp3", flops=_PRODUCT, note="2·m·n² - 2·n³/3 if m ≥ n")(_matrix)


@factorization("qr", flops=_WITH_Q, note="R alone 2·m·n² - 2·n³/3 if m ≥ n")
def qr(equation: Equation) -> Formula:
    """R by `k = min(m, n)` reflections, then Q as an `m` x `q` matrix; Q costs 0 if the program does not use it.

    For `m ≥ n`, R takes `2·m·n² - 2·n³/3`. A thin Q takes the same, and a square Q `4·(m²·n - m·n² + n³/3)`.
    Sources: GVL 5.1.6, 5.2.2; LAWN 41, xGEQRF, xORGQR.
    """
    letters = _matrix(equation)
    unused: Any = equation.param.get(UNUSED, ())
    if 0 in unused:
        return Formula(_PRODUCT, letters, note="R alone; 2·m·n² - 2·n³/3 if m ≥ n")
    return Formula(_WITH_Q, {**letters, "q": length(equation.outputs[0], -1)}, note="R, then Q of q columns")


@factorization("householder_product", flops=_PRODUCT, note="k reflections")
def householder_product(equation: Equation) -> Letters:
    """The `m` x `n` matrix that is the product of `k` reflections: `4·m·n·k - 2·(m + n)·k² + 4·k³/3`.

    Sources: GVL 5.1.6; LAWN 41, xORGQR.
    """
    return {**_matrix(equation), "k": length(equation.inputs[1], -1)}


@factorization("ormqr", flops="B·(4·m·n·k - 2·n·k²)", note="k reflections; from the right, m and n are swapped")
def apply_reflections(equation: Equation) -> Letters:
    """`k` reflections applied to an `m` x `n` matrix from the left: `4·m·n·k - 2·n·k²` [GVL 5.1.6; LAWN 41, xORMQR].

    If they are applied from the right, `m` and `n` are swapped.
    """
    spec = equation.inputs[2]
    rows, columns = length(spec, -2), length(spec, -1)
    if not equation.param.get("left", True):
        rows, columns = columns, rows
    return {**_batch(spec), "m": rows, "n": columns, "k": length(equation.inputs[1], -1)}


@factorization("eig", flops="B·79·n³/3", note="10·n³ for eigenvalues alone", typical=_QR_STEPS)
def eig(equation: Equation) -> Formula:
    """`10·n³` for eigenvalues alone, `26.33·n³` with right or left eigenvectors [GVL 7.5.6; LUG, xGEEV].

    With eigenvectors, the Schur form takes `25·n³`, and the eigenvectors of each side take `4·n³/3`.
    """
    sides = [equation.param.get(f"compute_{side}_eigenvectors", False) for side in ("left", "right")]
    texts = {0: "B·10·n³", 1: "B·79·n³/3", 2: "B·83·n³/3"}
    return Formula(texts[sum(map(bool, sides))], _square(equation), typical=_QR_STEPS)


@factorization("svd", flops="B·(14·m·n² + 8·n³)", note="m ≥ n", typical=_QR_STEPS)
def svd(equation: Equation) -> Formula:
    """Golub and Reinsch's algorithm for `m ≥ n`; a wide matrix is transposed first [GVL 8.6.3, figure 8.6.1].

    - Only singular values: `4·m·n² - 4·n³/3`.
    - With singular vectors: `14·m·n² + 8·n³`.
    - With square matrices of singular vectors (`full_matrices`): `4·m²·n + 8·m·n² + 9·n³`.
    """
    spec = equation.inputs[0]
    ends = length(spec, -2), length(spec, -1)
    letters = {**_batch(spec), "m": call("max", *ends), "n": call("min", *ends)}
    text = "B·(14·m·n² + 8·n³)"
    if not equation.param.get("compute_uv", True):
        text = "B·(4·m·n² - 4·n³/3)"
    elif equation.param.get("full_matrices", False):
        text = "B·(4·m²·n + 8·m·n² + 9·n³)"
    return Formula(text, letters, typical=_QR_STEPS)


@factorization("schur", flops="B·25·n³", note="10·n³ without Schur vectors", typical=_QR_STEPS)
def schur(equation: Equation) -> Formula:
    """`25·n³` with Schur vectors, `10·n³` without: Hessenberg form and Francis QR steps [GVL 7.5.6; LUG, xGEES]."""
    has_vectors = equation.param.get("compute_schur_vectors", True)
    return Formula("B·25·n³" if has_vectors else "B·10·n³", _square(equation), typical=_QR_STEPS)


@factorization("triangular_solve", flops="B·n²·m", note="m right-hand sides")
def triangular_solve(equation: Equation) -> Letters:
    """`n²` for each of the `m` right-hand sides [GVL 3.1.2; LAWN 41, xTRSM]."""
    triangle, right = equation.inputs[:2]
    size, axis = length(triangle, -1), -1 if equation.param.get("left_side", False) else -2
    return {**_batch(triangle), "n": size, "m": length(right, axis)}


@factorization("tridiagonal_solve", flops="B·(3·(n - 1) + m·(5·n - 4))", note="m right-hand sides")
def tridiagonal_solve(equation: Equation) -> Letters:
    """The Thomas algorithm: `3·(n - 1)` to eliminate, and `5·n - 4` for each right-hand side [GVL 4.3.6]."""
    diagonal, right = equation.inputs[0], equation.inputs[3]
    return {**_batch(diagonal, 1), "n": length(diagonal, -1), "m": length(right, -1)}


@factorization("symmetric_product", flops="B·(k·n·(n + 1) + 3·n²)", note="k columns")
def symmetric_product(equation: Equation) -> Letters:
    """`k·n·(n + 1)` for one triangle of `A·Aᵀ`, then `3·n²` for `α·A·Aᵀ + β·C` [LAWN 41, xSYRK]."""
    spec = equation.inputs[0]
    return {**_batch(spec), "n": length(spec, -2), "k": length(spec, -1)}


without_arithmetic("lu_pivots_to_permutation", note="moves data")
