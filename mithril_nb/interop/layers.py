"""Layers of other libraries in our words: what they are made of, and how they become a chain of blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb import models as blocks
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.paths import component
from mithril_nb.models.model import Model


class Imported(NamedTuple):
    """What came from another library.

    Attributes:
        model: The model, where the structure could be read; else `None`.
        params: Its parameters, by name.
        state: Its running statistics, by name.
    """

    model: Model | None
    params: dict[str, jax.Array]
    state: dict[str, jax.Array]


@dataclass(frozen=True)
class Layer:
    """The arrays of one layer, in the layout and under the names of our blocks.

    Attributes:
        path: Where it is in the other library's model.
        kind: `"linear"`, `"conv"`, `"norm"`, `"batch_norm"` or `"embedding"`.
        params: Arrays by port.
        states: Running statistics by port.
    """

    path: str
    kind: str
    params: Mapping[str, Any]
    states: Mapping[str, Any] = field(default_factory=dict[str, Any])


def linear(path: str, weight: Any, bias: Any = None) -> Layer:
    """An affine map, of a weight `(in, out)`."""
    return Layer(path, "linear", _given(weight=weight, bias=bias))


def conv(path: str, weight: Any, bias: Any = None, *, channels_last: bool) -> Layer:
    """A convolution: windows `(..., in, out)` of a library with channels last, else `(out, in, ...)` as here."""
    weight = jnp.moveaxis(weight, (-1, -2), (0, 1)) if channels_last else weight
    return Layer(path, "conv", _given(weight=weight, bias=None if bias is None else jnp.reshape(bias, -1)))


def norm(path: str, weight: Any, bias: Any = None) -> Layer:
    """A norm without a state."""
    flat = {port: None if array is None else jnp.reshape(array, -1) for port, array in (("w", weight), ("b", bias))}
    return Layer(path, "norm", _given(weight=flat["w"], bias=flat["b"]))


def batch_norm(path: str, weight: Any, bias: Any, mean: Any, var: Any) -> Layer:
    """A norm with running statistics."""
    found = norm(path, weight, bias)
    return Layer(
        path, "batch_norm", found.params, {"running_mean": jnp.reshape(mean, -1), "running_var": jnp.reshape(var, -1)}
    )


def embedding(path: str, weight: Any) -> Layer:
    """A table of rows."""
    return Layer(path, "embedding", _given(weight=weight))


def _given(**arrays: Any) -> dict[str, jax.Array]:
    return {port: jnp.asarray(array) for port, array in arrays.items() if array is not None}


def refused(library: str, path: str, what: Any, because: str) -> UnknownOptionError:
    """The error for what has no block here, by name and with the reason."""
    return UnknownOptionError(
        f"cannot bring {path!r} over from {library}.",
        (("is", what if isinstance(what, str) else short_repr(what)), ("because", because)),
        f"compose the model with blocks, and ml.from_{library.lower()}(..., into=pm) for its parameters.",
    )


class Chain:
    """Blocks one after another, made of another library's layers.

    Args:
        library: Its name, for messages.
        spatial: Over how many axes the first layer that cares slides its windows; 0 if the last axis is the features.
        channels_last: Whether the library has channels behind height and width, and we before them.
    """

    def __init__(self, library: str, spatial: int, channels_last: bool):
        self.library, self.spatial, self.channels_last = library, spatial, channels_last
        self.model = Model()
        self.params: dict[str, jax.Array] = {}
        self.state: dict[str, jax.Array] = {}

    def add(self, block: Model, layer: Layer | None = None) -> None:
        """Add a block, with its arrays."""
        self.model += block
        name = component(self.model.graph.nodes[-1].name)
        if layer is not None:
            self.params |= {f"{name}.{port}": array for port, array in layer.params.items()}
            self.state |= {f"{name}.{port}": array for port, array in layer.states.items()}

    def last_axis(self, path: str, what: Any) -> None:
        """Raise if a layer works on the last axis, and that holds the channels there and something else here."""
        if self.spatial and self.channels_last:
            raise refused(
                self.library, path, what, "it works on the last axis: channels there, which are the second axis here"
            )

    def per_channel(self, block: Model, layer: Layer, count: int) -> None:
        """Add a norm of channels; without windows around, arrays are `(batch, channels)`."""
        self.add(block, layer)
        if not self.spatial:
            self.model.set_shapes({f"{component(self.model.graph.nodes[-1].name)}.output": ["batch", count]})

    def function(self, path: str, given: Any) -> None:
        """Add the block that a function is.

        Raises:
            UnknownOptionError: Nothing here is known to be the same.
        """
        plain, options = given, {}
        while isinstance(plain, functools.partial) and not plain.args:
            plain, options = plain.func, {**plain.keywords, **options}
        for known, taken, make in _functions():
            if plain is known and set(options) <= set(taken):
                axis = options.get("axis", -1)
                if known in _ALONG and self.spatial and self.channels_last:
                    if axis != -1:
                        raise refused(self.library, path, given, f"axis {axis} is another one here")
                    options = {**options, "axis": 1}
                block = make(**options)
                if block is not None:
                    self.add(block)
                return
        raise refused(self.library, path, given, "what a function does cannot be read from it")

    def done(self) -> Imported:
        """Return what was made."""
        return Imported(self.model, self.params, self.state)


_ALONG = (jax.nn.softmax, jax.nn.log_softmax)
Make = Callable[..., Model | None]


@functools.cache
def _functions() -> list[tuple[Any, tuple[str, ...], Make]]:
    """Functions that are a block here, the arguments that are understood, and what makes the block."""

    def plain(name: str) -> Make:
        return lambda: getattr(blocks, name)()

    def gelu(approximate: bool = True) -> Model:
        return blocks.Gelu(approximate=approximate)

    def leaky(negative_slope: float = 0.01) -> Model:
        return blocks.LeakyRelu(slope=negative_slope)

    def softmax(axis: int = -1) -> Model:
        return blocks.Softmax(axis=axis)

    def log_softmax(axis: int = -1) -> Model:
        return blocks.LogSoftmax(axis=axis)

    names = {
        "relu": "Relu", "relu6": "Relu6", "sigmoid": "Sigmoid", "tanh": "Tanh", "softplus": "Softplus",
        "silu": "SiLU", "mish": "Mish", "elu": "Elu", "selu": "Selu", "celu": "Celu", "log_sigmoid": "LogSigmoid",
        "soft_sign": "Softsign", "hard_sigmoid": "HardSigmoid", "hard_tanh": "HardTanh", "hard_silu": "HardSwish",
    }  # fmt: skip
    known: list[tuple[Any, tuple[str, ...], Make]] = [
        (getattr(jax.nn, function), (), plain(name)) for function, name in names.items() if hasattr(jax.nn, function)
    ]
    return [
        *known,
        (jnp.tanh, (), plain("Tanh")),
        (jax.lax.tanh, (), plain("Tanh")),
        (jax.nn.gelu, ("approximate",), gelu),
        (jax.nn.leaky_relu, ("negative_slope",), leaky),
        (jax.nn.softmax, ("axis",), softmax),
        (jax.nn.log_softmax, ("axis",), log_softmax),
        (jax.nn.identity, (), lambda: None),
    ]


def pairs(sizes: Any, axes: int) -> tuple[int, ...]:
    """A size for each axis."""
    if sizes is None:
        return (1,) * axes
    return (int(sizes),) * axes if isinstance(sizes, int | np.integer) else tuple(int(size) for size in sizes)


def padding_of(padding: Any, axes: int) -> str | tuple[tuple[int, int], ...] | None:
    """A padding as our blocks take it; `None` if they do not."""
    if isinstance(padding, str):
        return padding.lower() if padding.lower() in ("same", "valid") else None
    if isinstance(padding, int | np.integer):
        return ((int(padding), int(padding)),) * axes
    try:
        sides = [(int(one), int(one)) if isinstance(one, int | np.integer) else tuple(map(int, one)) for one in padding]
    except (TypeError, ValueError):
        return None
    sides = sides * axes if len(sides) == 1 else sides
    return tuple((before, after) for before, after in sides) if len(sides) == axes else None


def convolution(axes: int, **options: Any) -> Model:
    """A convolution over so many axes."""
    return getattr(blocks, f"Conv{axes}d")(**options)
