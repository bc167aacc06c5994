"""How parameters start: the usual formulas, drawn by NumPy.

The same numbers come from `jax.nn.initializers`, in distribution (the tests hold them together). But there each
new shape is compiled first, which took seconds before a first step; and streams of `jax.random` differ by version.
Each parameter has a stream of its own, named by it: adding a block leaves the draws of all others as they were. Long
ones are drawn in pieces, each with a stream of its own again, so that threads share the work and change no number.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from math import prod, sqrt
from typing import NamedTuple

import numpy as np

from mithril_nb.errors import ShapeError
from mithril_nb.models.op import Initializer

Stream = Callable[[int], np.random.Generator]
"""The random numbers of each piece of a parameter, by the number of the piece."""
PIECE = 2**20
"""Items that are drawn from one stream."""
FEW = 2**18
"""Items that are drawn before a second thread could have started."""

_CUT_STDDEV = 0.87962566103423978
"""Standard deviation of a standard normal distribution that is cut off at -2 and 2."""

_VARIANCES = {
    "glorot_uniform": (1.0, "mean"),
    "glorot_normal": (1.0, "mean"),
    "he_uniform": (2.0, "in"),
    "he_normal": (2.0, "in"),
    "lecun_uniform": (1.0, "in"),
    "lecun_normal": (1.0, "in"),
}
"""Gain, and the fan to divide by: Glorot and Bengio 2010, He et al. 2015, LeCun et al. 1998."""


def stream(seed: Sequence[int], name: str) -> Stream:
    """Return the random numbers of a parameter, the same for the same seed and name on every machine."""
    entropy = [*seed, zlib.crc32(name.encode(errors="surrogatepass"))]

    def piece(number: int) -> np.random.Generator:
        # The first piece is the whole of most parameters: it has no number.
        key = (number,) if number else ()
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy, spawn_key=key)))

    return piece


def initial(initializer: Initializer, random: Stream, shape: tuple[int, ...], name: str = "") -> np.ndarray:
    """Return the starting value of a parameter, as float32 (float64 is made of it without a new draw).

    Args:
        initializer: How it starts; the formulas stand in `mithril_nb.models.initializers`.
        random: Its random numbers.
        shape: Its shape.
        name: Its name, for a message.

    Raises:
        ShapeError: The formula needs two axes.
        ValueError: There is no initializer of that name.
    """
    return next(drawn([Wanted(initializer, random, shape, name)]))


class Wanted(NamedTuple):
    """What a parameter needs to start.

    Attributes:
        initializer: How it starts.
        random: Its random numbers.
        shape: Its shape.
        name: Its name, for a message.
        stacked: Along how many axes, its first ones, it is many arrays, each of which starts by itself.
    """

    initializer: Initializer
    random: Stream
    shape: tuple[int, ...]
    name: str = ""
    stacked: int = 0

    @property
    def one(self) -> tuple[int, ...]:
        """The shape of one of its arrays."""
        return self.shape[self.stacked :]


def drawn(wanted: Sequence[Wanted]) -> Iterator[np.ndarray]:
    """Yield the starting values of many parameters; threads draw them, as NumPy draws without the interpreter's lock.

    Raises:
        ShapeError: A formula needs two axes.
        ValueError: There is no initializer of that name.
    """
    fills = [_fill(one) for one in wanted]
    arrays = [np.empty(one.shape, "float32") for one in wanted]

    def draw(at: int, number: int) -> None:
        fills[at](wanted[at].random(number), arrays[at].reshape(-1)[number * PIECE : (number + 1) * PIECE])

    pieces = [range(max(1, -(-array.size // PIECE))) for array in arrays]
    threads = min(os.cpu_count() or 1, 16) if sum(array.size for array in arrays) > FEW else 1
    with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
        drawing = [[pool.submit(draw, at, n) for n in numbers] for at, numbers in enumerate(pieces)] if pool else []
        for at, numbers in enumerate(pieces):
            for n in numbers:
                drawing[at][n].result() if pool else draw(at, n)
            array, initializer = arrays[at], wanted[at].initializer
            arrays[at] = _NONE  # so that it goes when the caller has no more use for it
            if initializer.name == "orthogonal" and array.size:
                several = array.reshape(-1, *wanted[at].one)
                array = np.stack([_orthogonal(one, initializer) for one in several]).reshape(array.shape)
            yield _weighed(array, wanted[at])


_NONE = np.empty(0, "float32")
Fill = Callable[[np.random.Generator, np.ndarray], None]


def _fill(wanted: Wanted) -> Fill:
    """What fills a piece of a parameter."""
    name, scale, shift = wanted.initializer.name, wanted.initializer.scale, wanted.initializer.shift
    if name == "zeros":
        return lambda random, piece: piece.fill(0)
    if name in ("ones", "constant"):
        return lambda random, piece: piece.fill(scale + shift)
    if name == "uniform":
        return lambda random, piece: _uniform(random, piece, scale, shift)
    if name == "normal":
        return lambda random, piece: _normal(random, piece, scale, shift)
    if name == "orthogonal":
        _check_axes(wanted)
        return lambda random, piece: _normal(random, piece, 1.0, 0.0)
    if name == "truncated_normal":
        return lambda random, piece: _cut_normal(random, piece, scale, shift)
    if name not in _VARIANCES:
        raise ValueError(f"unknown initializer {name!r}")
    _check_axes(wanted)
    gain, fan = _VARIANCES[name]
    fan_in, fan_out = _fans(wanted)
    stddev = scale * sqrt(gain / max(1.0, fan_in if fan == "in" else (fan_in + fan_out) / 2))
    if name.endswith("uniform"):
        return lambda random, piece: _symmetric(random, piece, sqrt(3) * stddev, shift)
    return lambda random, piece: _cut_normal(random, piece, stddev / _CUT_STDDEV, shift)


def _uniform(random: np.random.Generator, piece: np.ndarray, scale: float, shift: float) -> None:
    random.random(dtype="float32", out=piece)
    piece *= scale
    piece += shift


def _symmetric(random: np.random.Generator, piece: np.ndarray, limit: float, shift: float) -> None:
    random.random(dtype="float32", out=piece)
    piece *= 2
    piece -= 1
    piece *= limit
    piece += shift


def _normal(random: np.random.Generator, piece: np.ndarray, scale: float, shift: float) -> None:
    random.standard_normal(dtype="float32", out=piece)
    piece *= scale
    piece += shift


def _cut_normal(random: np.random.Generator, piece: np.ndarray, scale: float, shift: float) -> None:
    """Draws of a normal distribution, those beyond 2 standard deviations drawn again."""
    random.standard_normal(dtype="float32", out=piece)
    far = np.flatnonzero(np.abs(piece) > 2)
    while far.size:
        piece[far] = again = random.standard_normal(far.size, "float32")
        far = far[np.abs(again) > 2]
    piece *= scale
    piece += shift


def _weighed(array: np.ndarray, wanted: Wanted) -> np.ndarray:
    """Each of the arrays in a row with its factor."""
    initializer = wanted.initializer
    if set(initializer.parts) <= {1.0}:
        return array
    axis = initializer.out_axis
    axis = axis if axis < 0 else axis - len(wanted.one)  # counted from the end, where stacked axes do not matter
    factors = np.repeat(np.asarray(initializer.parts, "float32"), array.shape[axis] // len(initializer.parts))
    array *= np.expand_dims(factors, tuple(range(1, -axis)))
    return array


def _orthogonal(normal: np.ndarray, initializer: Initializer) -> np.ndarray:
    """The Q of normally distributed numbers, each unit of the output a column; signs made even over all such Q."""
    axis = initializer.out_axis
    if len(initializer.parts) > 1:
        one, split = replace(initializer, parts=()), np.split(normal, len(initializer.parts), axis)
        return np.concatenate([_orthogonal(part, one) for part in split], axis)
    flat = np.moveaxis(normal, axis, 0)
    rows, columns = flat.shape[0], prod(flat.shape[1:])
    tall = flat.reshape(rows, columns).astype("float64")
    q, r = np.linalg.qr(tall if rows >= columns else tall.T)
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
    q = (q if rows >= columns else q.T).reshape(flat.shape)
    return np.ascontiguousarray(np.moveaxis(initializer.scale * q + initializer.shift, 0, axis), "float32")


def _fans(wanted: Wanted) -> tuple[float, float]:
    """How many inputs a unit of the output sums over, and the other way round; windows count with their size."""
    shape = wanted.one
    fan_in, fan_out = shape[wanted.initializer.in_axis], shape[wanted.initializer.out_axis]
    window = prod(shape) / (fan_in * fan_out) if prod(shape) else 1.0
    return fan_in * window, fan_out * window / max(1, len(wanted.initializer.parts))


def _check_axes(wanted: Wanted) -> None:
    rank, initializer = len(wanted.one), wanted.initializer
    axes = (initializer.in_axis, initializer.out_axis)
    if not all(-rank <= axis < rank for axis in axes):
        raise ShapeError(
            f"{wanted.name or 'an array'!r} of shape {wanted.shape} cannot start as {initializer.name!r}.",
            (("needs", f"an axis of inputs and one of outputs: axes {axes[0]} and {axes[1]}"),),
            f'model.set_initializers({{{wanted.name!r}: "normal(0.02)"}})',
        )
