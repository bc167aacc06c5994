"""Initial values of parameters: the standard formulas, drawn with NumPy.

The distributions equal those of `jax.nn.initializers`, which the tests check. JAX itself would compile a program for
each new shape. Before the first step of a model, this took 2.2 s, and NumPy takes 5 ms. Also, the numbers of
`jax.random` differ between versions of JAX.

Each parameter has a separate random stream, derived from its name. So adding a block does not change the values of
other blocks. Long parameters are drawn in pieces with separate streams, so that several threads draw the same numbers
as one thread.
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
"""A function from the number of a piece of a parameter to the random generator of this piece."""
PIECE = 2**20
"""Number of elements drawn from one stream."""
FEW = 2**18
"""For at most this many elements, one thread is faster than several."""

_CUT_STDDEV = 0.87962566103423978
"""Standard deviation of a standard normal distribution truncated to [-2, 2]."""

_VARIANCES = {
    "glorot_uniform": (1.0, "mean"),
    "glorot_normal": (1.0, "mean"),
    "he_uniform": (2.0, "in"),
    "he_normal": (2.0, "in"),
    "lecun_uniform": (1.0, "in"),
    "lecun_normal": (1.0, "in"),
}
"""The gain, and the fan. The variance is gain / fan, where `"mean"` is the mean of fan-in and fan-out.

Sources: Glorot and Bengio 2010, He et al. 2015, LeCun et al. 1998.
"""


def stream(seed: Sequence[int], name: str) -> Stream:
    """Return the random stream of a parameter. The same seed and name give the same numbers on every machine."""
    # A name from a JSON file may contain half a surrogate pair, which UTF-8 cannot encode.
    entropy = [*seed, zlib.crc32(name.encode(errors="surrogatepass"))]

    def piece(number: int) -> np.random.Generator:
        # Piece 0 has an empty key. It is the only piece of most parameters.
        key = (number,) if number else ()
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy, spawn_key=key)))

    return piece


class Request(NamedTuple):
    """Description of a parameter to initialize.

    Attributes:
        initializer: The initializer.
        random: The random stream of the parameter.
        shape: The shape of the parameter.
        name: The name of the parameter. It is shown in the error raised for a shape that does not fit the initializer.
        stacked: Number of leading axes along which separate arrays are stacked. Each of these arrays is initialized
            separately.
    """

    initializer: Initializer
    random: Stream
    shape: tuple[int, ...]
    name: str = ""
    stacked: int = 0

    @property
    def unstacked(self) -> tuple[int, ...]:
        """Shape of one of the stacked arrays."""
        return self.shape[self.stacked :]


def drawn(requests: Sequence[Request]) -> Iterator[np.ndarray]:
    """Yield the initial values of parameters. Threads draw them, because NumPy releases the GIL."""
    fills = [_fill(request) for request in requests]
    arrays = [np.empty(request.shape, "float32") for request in requests]

    def draw(at: int, number: int) -> None:
        fills[at](requests[at].random(number), arrays[at].reshape(-1)[number * PIECE : (number + 1) * PIECE])

    pieces = [range(max(1, -(-array.size // PIECE))) for array in arrays]
    threads = min(os.cpu_count() or 1, 16) if sum(array.size for array in arrays) > FEW else 1
    with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
        drawing = [[pool.submit(draw, at, n) for n in numbers] for at, numbers in enumerate(pieces)] if pool else []
        for at, numbers in enumerate(pieces):
            for n in numbers:
                drawing[at][n].result() if pool else draw(at, n)
            array, initializer = arrays[at], requests[at].initializer
            arrays[at] = _NONE  # drop the reference, so that the caller can free the array
            if initializer.name == "orthogonal" and array.size:
                several = array.reshape(-1, *requests[at].unstacked)
                array = np.stack([_orthogonal(normal, initializer) for normal in several]).reshape(array.shape)
            yield _scaled_by_part(array, requests[at])


_NONE = np.empty(0, "float32")
Fill = Callable[[np.random.Generator, np.ndarray], object]


def _fill(request: Request) -> Fill:
    name, scale, shift = request.initializer.name, request.initializer.scale, request.initializer.shift
    if name in ("zeros", "ones", "constant"):
        constant = 0 if name == "zeros" else scale + shift
        return lambda random, piece: piece.fill(constant)
    draw = _DRAWS.get(name)
    if name in _VARIANCES:
        _check_axes(request)
        gain, fan = _VARIANCES[name]
        fan_in, fan_out = _fans(request)
        # At least 1, because a parameter with an empty axis has a fan of 0.
        stddev = scale * sqrt(gain / max(1.0, fan_in if fan == "in" else (fan_in + fan_out) / 2))
        is_uniform = name.endswith("uniform")
        draw, scale = (_symmetric, sqrt(3) * stddev) if is_uniform else (_cut_normal, stddev / _CUT_STDDEV)
    elif name == "orthogonal":
        _check_axes(request)
        scale, shift = 1.0, 0.0  # `_orthogonal` applies the initializer's scale and shift after the decomposition
    if draw is None:
        raise ValueError(f"unknown initializer {name!r}")

    def fill(random: np.random.Generator, piece: np.ndarray) -> None:
        draw(random, piece)
        piece *= scale
        piece += shift

    return fill


def _symmetric(random: np.random.Generator, piece: np.ndarray) -> None:
    random.random(dtype="float32", out=piece)
    piece *= 2
    piece -= 1


def _cut_normal(random: np.random.Generator, piece: np.ndarray) -> None:
    random.standard_normal(dtype="float32", out=piece)
    # Rejection draws 4.6 % of the numbers again.
    far = np.flatnonzero(np.abs(piece) > 2)
    while far.size:
        piece[far] = again = random.standard_normal(far.size, "float32")
        far = far[np.abs(again) > 2]


_DRAWS: dict[str, Fill] = {
    "uniform": lambda random, piece: random.random(dtype="float32", out=piece),
    **dict.fromkeys(("normal", "orthogonal"), lambda random, piece: random.standard_normal(dtype="float32", out=piece)),
    "truncated_normal": _cut_normal,
}
"""Functions that draw from the distribution of an initializer before its scale and shift are applied."""


def _scaled_by_part(array: np.ndarray, request: Request) -> np.ndarray:
    initializer = request.initializer
    if set(initializer.parts) <= {1.0}:
        return array
    axis = initializer.out_axis
    axis = axis if axis < 0 else axis - len(request.unstacked)  # count from the end, to skip the stacked axes
    factors = np.repeat(np.asarray(initializer.parts, "float32"), array.shape[axis] // len(initializer.parts))
    array *= np.expand_dims(factors, tuple(range(1, -axis)))
    return array


def _orthogonal(normal: np.ndarray, initializer: Initializer) -> np.ndarray:
    # The signs are corrected by the diagonal of R, so that Q is uniformly distributed.
    axis = initializer.out_axis
    if len(initializer.parts) > 1:
        part_initializer, split = replace(initializer, parts=()), np.split(normal, len(initializer.parts), axis)
        return np.concatenate([_orthogonal(part, part_initializer) for part in split], axis)
    flat = np.moveaxis(normal, axis, 0)
    rows, columns = flat.shape[0], prod(flat.shape[1:])
    # In float64, so that the result is orthogonal to the last bit of float32.
    tall = flat.reshape(rows, columns).astype("float64")
    q, r = np.linalg.qr(tall if rows >= columns else tall.T)
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
    q = (q if rows >= columns else q.T).reshape(flat.shape)
    return np.ascontiguousarray(np.moveaxis(initializer.scale * q + initializer.shift, 0, axis), "float32")


def _fans(request: Request) -> tuple[float, float]:
    # In a convolution, the sizes are multiplied by the window. If several parameters are joined along the output axis,
    # the fan-out is that of one of them.
    shape = request.unstacked
    fan_in, fan_out = shape[request.initializer.in_axis], shape[request.initializer.out_axis]
    window = prod(shape) / (fan_in * fan_out) if prod(shape) else 1.0
    return fan_in * window, fan_out * window / max(1, len(request.initializer.parts))


def _check_axes(request: Request) -> None:
    rank, initializer = len(request.unstacked), request.initializer
    axes = (initializer.in_axis, initializer.out_axis)
    if not all(-rank <= axis < rank for axis in axes):
        raise ShapeError(
            f"cannot initialize {request.name or 'an array'!r} of shape {request.shape} with {initializer.name!r}.",
            (("needs", f"an input axis and an output axis: axes {axes[0]} and {axes[1]}"),),
        )
