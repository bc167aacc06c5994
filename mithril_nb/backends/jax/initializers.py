"""How parameters start: the usual formulas, drawn by NumPy.

The same numbers come from `jax.nn.initializers`, in distribution (the tests hold them together). But there each
new shape is compiled first, which took seconds before a first step; and streams of `jax.random` differ by version.
Each parameter has a stream of its own, named by it: adding a block leaves the start of all others as it was.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from math import prod, sqrt

import numpy as np

from mithril_nb.models.op import Initializer

_CUT_STDDEV = 0.87962566103423978
"""Standard deviation of a standard normal distribution that is cut off at -2 and 2."""

_VARIANCES = {"glorot_uniform": (1.0, "mean"), "he_normal": (2.0, "in"), "lecun_normal": (1.0, "in")}
"""Gain, and the fan to divide by: Glorot and Bengio 2010, He et al. 2015, LeCun et al. 1998."""


def stream(seed: Sequence[int], name: str) -> np.random.Generator:
    """Return the random numbers of a parameter, the same for the same seed and name on every machine."""
    return np.random.Generator(
        np.random.Philox(np.random.SeedSequence([*seed, zlib.crc32(name.encode(errors="surrogatepass"))]))
    )


def initial(initializer: Initializer, random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return the starting value of a parameter, as float32 (float64 is made of it without a new draw).

    Raises:
        ValueError: There is no initializer of that name.
    """
    if initializer.name == "zeros":
        return np.zeros(shape, "float32")
    if initializer.name == "ones":
        return np.ones(shape, "float32")
    if initializer.name == "normal":
        return initializer.scale * random.standard_normal(shape, "float32")
    if initializer.name not in _VARIANCES:
        raise ValueError(f"unknown initializer {initializer.name!r}")
    gain, fan = _VARIANCES[initializer.name]
    fan_in, fan_out = _fans(initializer, shape)
    stddev = sqrt(gain / max(1.0, fan_in if fan == "in" else (fan_in + fan_out) / 2))
    if initializer.name.endswith("uniform"):
        return (sqrt(3) * stddev * (2 * random.random(shape, "float32") - 1)).astype("float32")
    return (stddev / _CUT_STDDEV * _cut_normal(random, shape)).astype("float32")


def _fans(initializer: Initializer, shape: tuple[int, ...]) -> tuple[float, float]:
    """How many inputs a unit of the output sums over, and the other way round; windows count with their size."""
    fan_in, fan_out = shape[initializer.in_axis], shape[initializer.out_axis]
    window = prod(shape) / (fan_in * fan_out) if prod(shape) else 1.0
    return fan_in * window, fan_out * window


def _cut_normal(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draws of a normal distribution, those beyond 2 standard deviations drawn again."""
    found = random.standard_normal(shape, "float32")
    while (far := np.abs(found) > 2).any():
        found[far] = random.standard_normal(int(far.sum()), "float32")
    return found
