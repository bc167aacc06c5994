"""Comparison of a transformed function with a reference, on numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.stages.transforms.transform import Compared

_ROUGH = 1e-2
_DIGITS = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 2e-2}
_FEW_DIGITS = 1e-1


@dataclass(frozen=True)
class Comparison:
    """Two sides of a step, as numbers.

    Attributes:
        step: Name of the step.
        how: The reference; the reason, if nothing was compared; the exception, if a side failed.
        largest: The largest difference; `None` if nothing was compared, infinite if a side failed.
        tolerance: The largest difference that rounding explains.
        nans: Number of values that are NaN on both sides; they count as equal.
        is_failed: True if one side raised an exception.
    """

    step: str
    how: str
    largest: float | None = None
    tolerance: float = 0.0
    nans: int = 0
    is_failed: bool = False

    @property
    def agrees(self) -> bool | None:
        """True if both sides are equal within the tolerance; `None` if nothing was compared."""
        return None if self.largest is None else self.largest <= self.tolerance

    def __str__(self) -> str:
        if self.largest is None:
            return f"{self.step}: not compared: {self.how}"
        if self.is_failed:
            return f"{self.step}: FAILS at run time: {self.how}"
        nans = f", {self.nans} NaN on both sides" if self.nans else ""
        verdict = "agrees with" if self.agrees else "DIFFERS from"
        return f"{self.step}: {verdict} {self.how}: off by {self.largest:.2g}, tolerance {self.tolerance:.2g}{nans}"


def comparison(step: str, compare: Callable[[], Compared | None]) -> Comparison:
    """Run a comparison of a step; its error becomes part of the result."""
    try:
        compared = compare()
    except Exception as error:  # a function with side effects may trace and still fail when it runs
        return Comparison(step, f"{type(error).__name__}: {first_lines(error, 1)}", math.inf, is_failed=True)
    if compared is None:
        return Comparison(step, "its expected result is unknown")
    got, expected = jax.tree.leaves(compared.got), jax.tree.leaves(compared.expected)
    if [np.shape(one) for one in got] != [np.shape(one) for one in expected]:
        return Comparison(step, f"{compared.how}, which returns different shapes", math.inf)
    largest, scale, rate, nans = 0.0, max(1.0, float(compared.scale)), 0.0, 0
    for one, other in zip(got, expected, strict=True):
        dtype = jax.dtypes.result_type(one)
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        wide = np.complex128 if jnp.issubdtype(dtype, np.complexfloating) else np.float64
        left, right = np.asarray(one).astype(wide), np.asarray(other).astype(wide)
        both = np.isnan(left) & np.isnan(right)
        nans += int(both.sum())
        same = both | (left == right)  # infinities too, whose difference is NaN
        apart = np.abs(np.subtract(left, right, where=~same, out=np.zeros_like(left)))
        largest = max(largest, float(np.max(np.where(np.isnan(apart), np.inf, apart), initial=0.0)))
        scale = max(scale, float(np.max(np.abs(right), where=np.isfinite(right), initial=0.0)))
        if jnp.issubdtype(dtype, np.inexact):
            rate = max(rate, _DIGITS.get(np.dtype(dtype).name, _FEW_DIGITS))
    return Comparison(step, compared.how, largest, scale * (max(rate, _ROUGH) if compared.is_rough else rate), nans)


def first_lines(error: Exception, count: int = 8) -> str:
    """Return the first lines of the message of an error."""
    return "\n".join(str(error).strip().splitlines()[:count]) or "no message"
