"""Routines of linear algebra, transforms, sorting and complex numbers against closed forms of the literature.

The closed forms are computed in float64; a count is an integer, so it may differ by one half.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import pytest
from jax import lax
from jax_programs import spec

from mithril_nb.cost.formulas.elementwise import ITERATIONS
from mithril_nb.inspection import inspect_function as inspect

Sizes = tuple[int, int]
Case = tuple[Callable[..., Any], tuple[Any, ...], float]
SIZES = ((64, 64), (100, 37), (37, 100))


def householder(m: float, n: float, k: float) -> float:
    return 4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 / 3


def real(m: int, n: int) -> dict[str, Case]:
    """Routines on matrices of `m` x `n`, or of the order `n`, with the closed form of each."""
    a, square, x, tall = spec(m, n), spec(n, n), spec(n, m), (max(m, n), min(m, n))
    high, low = tall
    k = min(m, n)
    r_alone = 2 * high * low**2 - 2 * low**3 / 3
    diagonal = spec(n)
    return {
        "cholesky": (lambda a: lax.linalg.cholesky(a, symmetrize_input=False), (square,), n**3 / 3),
        "cholesky of a batch": (
            lambda a: lax.linalg.cholesky(a, symmetrize_input=False), (spec(5, n, n),), 5 * n**3 / 3,
        ),
        "lu, square": (lax.linalg.lu, (square,), 2 * n**3 / 3),
        "lu": (lax.linalg.lu, (a,), 2 * m * n * k - (m + n) * k**2 + 2 * k**3 / 3),
        "lu of a tall matrix": (lax.linalg.lu, (spec(*tall),), high * low**2 - low**3 / 3),
        "qr, R alone": (
            lambda a: lax.linalg.qr(a, full_matrices=False)[1], (spec(*tall),), r_alone,
        ),
        "qr of jax.numpy, R alone": (
            lambda a: jnp.linalg.qr(a, mode="r"), (spec(*tall),), r_alone,
        ),
        "qr": (jnp.linalg.qr, (spec(*tall),), 2 * r_alone),
        "qr, Q alone": (
            lambda a: lax.linalg.qr(a, full_matrices=False)[0], (spec(*tall),),
            2 * r_alone,
        ),
        "qr, full": (
            lambda a: jnp.linalg.qr(a, mode="complete"), (spec(*tall),),
            r_alone + 4 * (high**2 * low - high * low**2 + low**3 / 3),
        ),
        "qr of a wide matrix, R alone": (
            lambda a: lax.linalg.qr(a, full_matrices=False)[1], (spec(low, high),),
            r_alone,
        ),
        "qr of a wide matrix": (
            lambda a: lax.linalg.qr(a, full_matrices=False), (spec(low, high),),
            r_alone + 4 * low**3 / 3,
        ),
        "householder product": (
            lax.linalg.householder_product, (spec(*tall), spec(low)), r_alone,
        ),
        "eigh": (lambda a: lax.linalg.eigh(a, symmetrize_input=False), (square,), 9 * n**3),
        "eigenvalues": (
            lambda a: lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False), (square,),
            10 * n**3,
        ),
        "eig": (
            lambda a: lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=True), (square,),
            25 * n**3 + 4 * n**3 / 3,
        ),
        "eig, both sides": (
            lambda a: lax.linalg.eig(a, compute_left_eigenvectors=True, compute_right_eigenvectors=True), (square,),
            25 * n**3 + 8 * n**3 / 3,
        ),
        "singular values": (
            lambda a: lax.linalg.svd(a, compute_uv=False), (a,), 4 * high * low**2 - 4 * low**3 / 3,
        ),
        "svd, thin": (lambda a: lax.linalg.svd(a, full_matrices=False), (a,), 14 * high * low**2 + 8 * low**3),
        "svd, full": (
            lambda a: lax.linalg.svd(a, full_matrices=True), (a,), 4 * high**2 * low + 8 * high * low**2 + 9 * low**3,
        ),
        "schur": (lax.linalg.schur, (square,), 25 * n**3),
        "schur without vectors": (
            lambda a: lax.linalg.schur(a, compute_schur_vectors=False), (square,), 10 * n**3,
        ),
        "hessenberg": (lax.linalg.hessenberg, (square,), 10 * n**3 / 3),
        "tridiagonal": (lax.linalg.tridiagonal, (square,), 4 * n**3 / 3),
        "triangular solve": (
            lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True), (square, x), n**2 * m,
        ),
        "triangular solve from the right": (lax.linalg.triangular_solve, (square, a), n**2 * m),
        "tridiagonal solve": (
            lax.linalg.tridiagonal_solve, (diagonal, diagonal, diagonal, x), 3 * (n - 1) + m * (5 * n - 4),
        ),
        "solve": (
            lambda a, b: jsp.linalg.lu_solve(jsp.linalg.lu_factor(a), b), (square, x), 2 * n**3 / 3 + 2 * n**2 * m,
        ),
        "positive definite solve": (
            lambda a, b: lax.linalg.triangular_solve(
                lax.linalg.cholesky(a, symmetrize_input=False), b, left_side=True
            ),
            (square, x), n**3 / 3 + n**2 * m,
        ),
        "symmetric product": (
            lambda a, c: lax.linalg.symmetric_product(a, c, alpha=1.0, beta=1.0), (spec(n, m), square),
            m * n * (n + 1) + 3 * n**2,
        ),
        "product": (jnp.matmul, (a, x), 2 * m * n * m),
        "inner product": (jnp.vdot, (spec(n), spec(n)), 2 * n),
        "real fft": (jnp.fft.rfft, (a,), 2.5 * m * n * log2(n)),
        "inverse real fft": (lambda z: jnp.fft.irfft(z, n), (spec(m, n // 2 + 1, dtype="complex64"),),
                             2.5 * m * n * log2(n)),
        "sort": (jnp.sort, (a,), m * n * log2(n)),
        "sort along the first axis": (lambda a: lax.sort(a, dimension=0), (a,), m * n * log2(m)),
        "sort by a key": (lambda a: lax.sort_key_val(a, a), (a,), m * n * log2(n)),
        "top k": (lambda a: lax.top_k(a, 8), (a,), m * n * (1 + log2(8))),
        "running sum": (lambda a: lax.cumsum(a, axis=1), (a,), m * (n - 1)),
        "running product": (lambda a: lax.cumprod(a, axis=0), (a,), n * (m - 1)),
        "largest": (lambda a: a.max(1), (a,), m * (n - 1)),
        "incomplete gamma": (lax.igamma, (a, a), (93 + 48 * ITERATIONS) * m * n),
        "incomplete beta": (lax.betainc, (a, a, a), (219 + 76 * ITERATIONS) * m * n),
        "log gamma": (lax.lgamma, (a,), 53 * m * n),
    }  # fmt: skip


def of_complex(m: int, n: int) -> dict[str, Case]:
    """The same for complex numbers: a sum is 2 operations, a product 6, a multiply-add 8."""
    z, square = spec(m, n, dtype="complex64"), spec(n, n, dtype="complex64")
    return {
        "sum": (lax.add, (z, z), 2 * m * n),
        "difference": (lax.sub, (z, z), 2 * m * n),
        "product of items": (lax.mul, (z, z), 6 * m * n),
        "quotient": (lax.div, (z, z), 11 * m * n),
        "third power": (lambda z: lax.integer_pow(z, 3), (z,), 2 * 6 * m * n),
        "sum of a row": (lambda z: z.sum(1), (z,), 2 * m * (n - 1)),
        "product of a row": (lambda z: z.prod(1), (z,), 6 * m * (n - 1)),
        "product": (jnp.matmul, (z, spec(n, m, dtype="complex64")), 8 * m * n * m),
        "fft": (jnp.fft.fft, (z,), 5 * m * n * log2(n)),
        "inverse fft": (jnp.fft.ifft, (z,), 5 * m * n * log2(n)),
        "fft of two axes": (jnp.fft.fft2, (z,), 5 * m * n * log2(m * n)),
        "cholesky": (lambda a: lax.linalg.cholesky(a, symmetrize_input=False), (square,), 4 * n**3 / 3),
        "lu": (lax.linalg.lu, (square,), 8 * n**3 / 3),
        "qr, R alone": (lambda a: lax.linalg.qr(a, full_matrices=False)[1], (square,), 16 * n**3 / 3),
        "qr": (lambda a: lax.linalg.qr(a, full_matrices=False), (square,), 2 * 16 * n**3 / 3),
        "eigh": (lambda a: lax.linalg.eigh(a, symmetrize_input=False), (square,), 36 * n**3),
        "triangular solve": (
            lambda a, b: lax.linalg.triangular_solve(a, b), (square, z), 4 * n**2 * m,
        ),
    }  # fmt: skip


FACTORIZATIONS = frozenset(
    "cholesky lu qr householder_product eigh eig svd schur hessenberg tridiagonal triangular_solve tridiagonal_solve "
    "symmetric_product".split()
)
BESIDE: dict[str, Callable[[int], int]] = {
    "cholesky": lambda n: 2 * n**2,
    "inverse real fft": lambda n: 1,
    "cholesky of a batch": lambda n: (1 + 5) * n**2,
    "positive definite solve": lambda n: 2 * n**2,
    "solve": lambda n: 3 * n,
}
"""Additional operations of JAX: triangular masks, pivots, and a zero for padding."""
TABLES = {"real": real, "complex": of_complex}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("table", "name"), [(table, name) for table, make in TABLES.items() for name in make(4, 4)])
def test_a_routine_costs_its_closed_form(table: str, name: str, sizes: Sizes) -> None:
    fn, args, closed_form = TABLES[table](*sizes)[name]
    found = inspect(fn, *args).cost()
    assert found.unknown == ()
    whole = closed_form + BESIDE.get(name, lambda n: 0)(sizes[1])
    rows = sum(row.opcode in FACTORIZATIONS for row in found.rows)  # each is an integer
    assert found.total.flops == pytest.approx(whole, abs=max(rows, 1) / 2, rel=1e-15)


NAMED: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "cholesky": lambda b, n: (lambda a: lax.linalg.cholesky(a, symmetrize_input=False), spec(b, n, n)),
    "lu": lambda b, n: (lambda a: lax.linalg.lu(a)[0], spec(b, n, 5)),
    "qr": lambda b, n: (lambda a: lax.linalg.qr(a, full_matrices=False), spec(b, 7, n)),
    "eigh": lambda b, n: (lax.linalg.eigh, spec(b, n, n)),
    "eig": lambda b, n: (lax.linalg.eig, spec(b, n, n)),
    "svd": lambda b, n: (lambda a: lax.linalg.svd(a, full_matrices=False), spec(b, n, 5)),
    "schur": lambda b, n: (lax.linalg.schur, spec(b, n, n)),
    "hessenberg": lambda b, n: (lax.linalg.hessenberg, spec(b, 9, 9)),
    "householder product": lambda b, n: (lax.linalg.householder_product, spec(b, 9, 5), spec(b, 5)),
    "triangular solve": lambda b, n: (lax.linalg.triangular_solve, spec(b, n, n), spec(b, 3, n)),
    "fft": lambda b, n: (jnp.fft.fft, spec(b, n, dtype="complex64")),
    "real fft": lambda b, n: (jnp.fft.rfft, spec(b, 2 * n)),
    "sort": lambda b, n: (lambda a: lax.sort(a, dimension=1), spec(b, n)),
    "top k": lambda b, n: (lambda a: lax.top_k(a, 3), spec(b, 4 * n)),
    "running sum": lambda b, n: (lambda a: lax.cumsum(a, axis=1), spec(b, n)),
    "complex product": lambda b, n: (jnp.matmul, spec(b, n, dtype="complex64"), spec(n, 3, dtype="complex64")),
    "incomplete gamma": lambda b, n: (lax.igamma, spec(b, n), spec(b, n)),
    "random bits": lambda b, n: (lambda x: x + jax.random.gamma(jax.random.key(0), 2.0, x.shape), spec(b, n)),
    "generator of XLA": lambda b, n: (
        lambda x: x + jax.random.uniform(jax.random.key(0, impl="rbg"), x.shape),
        spec(b, n),
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_symbolic_sizes_count_like_numbers(name: str) -> None:
    """Numbers for symbolic sizes after tracing give the same costs as tracing with numbers."""
    fn, *args = NAMED[name](*jax.export.symbolic_shape("b, n"))
    found = inspect(fn, *args).cost()
    assert found.symbols
    for sizes in ({"b": 2, "n": 8}, {"b": 3, "n": 11}):
        fn, *args = NAMED[name](**sizes)
        here = {symbol: sizes[symbol] for symbol in found.symbols}
        assert found.at(**here).total == inspect(fn, *args).cost().total


def test_a_typical_count_names_what_it_depends_on() -> None:
    found = inspect(lambda a: jnp.linalg.eigh(a)[0] + lax.igamma(a[0], a[1]), spec(8, 8)).cost()
    assert [note for note in found.notes if "typical" in note] == [
        "1 × eigh: B·9·n³ is a typical count; the actual count depends on the number of QR steps",
        "1 × igamma: (93 + 48·I)·n is a typical count; the actual count depends on "
        "the number of iterations, assumed to be 20",
    ]


def test_differences_from_xla_have_a_reason() -> None:
    z = spec(8, 16, dtype="complex64")
    found = inspect(lambda z: jnp.fft.fft(z) * z, z)
    rows = {row.opcode: row.reason for row in found.cost().difference(found.cost("lowered")).differing}
    assert rows == {"fft": "XLA counts 8·in·rounds, we count 5·n·log2(N)", "mul": "XLA counts n, we count 6·n"}
