"""Layers of other libraries in the layout of our blocks, and their conversion to a chain of blocks."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb import models as blocks
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.paths import component
from mithril_nb.models.lazy_jax import loaded
from mithril_nb.models.model import Model
from mithril_nb.models.op import OPS


class Imported(NamedTuple):
    """A model or parameters imported from another library.

    Attributes:
        model: The model; `None` if only parameters were imported.
        params: Parameters by name.
        state: Running statistics by name.
    """

    model: Model | None
    params: dict[str, jax.Array]
    state: dict[str, jax.Array]


@dataclass(frozen=True)
class ForeignLayer:
    """The arrays of one layer, with the layout and names of our blocks.

    Attributes:
        path: Path in the other library's model.
        kind: `"linear"`, `"conv"`, `"norm"`, `"batch_norm"` or `"embedding"`.
        params: Arrays by port.
        states: Running statistics by port.
    """

    path: str
    kind: str
    params: Mapping[str, Any]
    states: Mapping[str, Any] = field(default_factory=dict[str, Any])


def linear(path: str, weight: Any, bias: Any = None) -> ForeignLayer:
    """Return an affine layer with a weight of shape `(in, out)`."""
    return ForeignLayer(path, "linear", _given(weight=weight, bias=bias))


def conv(path: str, weight: Any, bias: Any = None, *, channels_last: bool) -> ForeignLayer:
    """Return a convolution. `weight` is `(..., in, out)` if `channels_last` is true, otherwise `(out, in, ...)`."""
    weight = jnp.moveaxis(weight, (-1, -2), (0, 1)) if channels_last else weight  # ours is (out, in, ...)
    return ForeignLayer(path, "conv", _given(weight=weight, bias=None if bias is None else jnp.reshape(bias, -1)))


def norm(path: str, weight: Any, bias: Any = None) -> ForeignLayer:
    """Return a normalization layer without running statistics."""
    flat = {port: None if array is None else jnp.reshape(array, -1) for port, array in (("w", weight), ("b", bias))}
    return ForeignLayer(path, "norm", _given(weight=flat["w"], bias=flat["b"]))


def batch_norm(path: str, weight: Any, bias: Any, mean: Any, var: Any) -> ForeignLayer:
    """Return a normalization layer with running statistics."""
    layer = norm(path, weight, bias)
    return ForeignLayer(
        path, "batch_norm", layer.params, {"running_mean": jnp.reshape(mean, -1), "running_var": jnp.reshape(var, -1)}
    )


def embedding(path: str, weight: Any) -> ForeignLayer:
    """Return an embedding."""
    return ForeignLayer(path, "embedding", _given(weight=weight))


class ArrayNames(NamedTuple):
    """The names that a library gives to the arrays of its layers."""

    weight: str
    bias: str
    scale: str
    offset: str
    embedding: str


def identify_layer(library: str, path: str, arrays: Mapping[str, Any], names: ArrayNames, owner: Any) -> ForeignLayer:
    """Return the layer with these arrays. Its kind follows from their names: only a batch norm has `mean` and `var`."""
    # Names alone do not tell a Dense from a Conv, which the rank of the weight does.
    present, weight, scales = set(arrays), arrays.get(names.weight), {names.scale, names.offset}
    rank = getattr(weight, "ndim", 0)
    if present <= {names.weight, names.bias} and rank == 2:
        return linear(path, weight, arrays.get(names.bias))
    if present <= {names.weight, names.bias} and rank in (3, 4, 5):
        return conv(path, weight, arrays.get(names.bias), channels_last=True)
    if present == {names.embedding}:
        return embedding(path, arrays[names.embedding])
    scale, offset = arrays.get(names.scale), arrays.get(names.offset)
    if {"mean", "var"} <= present <= {"mean", "var", *scales}:
        return batch_norm(path, scale, offset, arrays["mean"], arrays["var"])
    if present and present <= scales:
        return norm(path, scale, offset)
    because = f"no block has parameters for the arrays {', '.join(sorted(arrays)) or '(none)'}"
    raise conversion_error(library, path, owner, because)


def _given(**arrays: Any) -> dict[str, jax.Array]:
    return {port: jnp.asarray(array) for port, array in arrays.items() if array is not None}


def conversion_error(library: str, path: str, part: Any, because: str) -> UnknownOptionError:
    """Return the error for a part that cannot be converted. The whole module has the path `""`."""
    return UnknownOptionError(
        f"cannot convert {repr(path) if path else 'the module'} from {library}.",
        (("is", part if isinstance(part, str) else short_repr(part)), ("because", because)),
        f"ml.from_{library.lower()}(..., into=pm)  # with a model composed of blocks",
    )


class Chain:
    """A chain of blocks converted from another library's layers."""

    def __init__(self, library: str, spatial: int, channels_last: bool):
        self.library, self.spatial, self.channels_last = library, spatial, channels_last
        self.model = Model()
        self.params: dict[str, jax.Array] = {}
        self.state: dict[str, jax.Array] = {}

    def add(self, block: Model, layer: ForeignLayer | None = None) -> None:
        """Add a block, and the arrays of its layer."""
        self.model += block
        name = component(self.model.graph.nodes[-1].name)
        if layer is not None:
            self.params |= {f"{name}.{port}": array for port, array in layer.params.items()}
            self.state |= {f"{name}.{port}": array for port, array in layer.states.items()}

    def check_last_axis(self, path: str, layer: Any) -> None:
        """Raise for a layer over the last axis if it would read channels in the library, but not in blocks."""
        if self.spatial > 0 and self.channels_last:
            because = "it reads the channels of images on the last axis, but blocks have channels on axis 1"
            raise conversion_error(self.library, path, layer, because)

    def to_images(self, axes: int, path: str, layer: Any) -> None:
        """Move features on the last axis to axis 1, for a layer over `axes` spatial axes."""
        if self.spatial < 0:
            self.add(blocks.Transpose((0, axes + 1, *range(1, axes + 1))))
        elif self.spatial != axes:
            because = f"it works on {axes} spatial axes, but the layers before it on {self.spatial}"
            raise conversion_error(self.library, path, layer, because)
        self.spatial = axes

    def per_channel(self, block: Model, layer: ForeignLayer, count: int) -> None:
        """Add a norm over `count` channels, with its arrays. It reads channels on axis 1."""
        # Libraries with channels last normalize the last axis, which after a Dense holds the features of each step.
        swaps = [blocks.SwapAxes(1, -1) for _ in range(2 * (self.spatial < 0))]  # no change for (batch, count)
        for swap in swaps[:1]:
            self.add(swap)
        self.add(block, layer)
        for swap in swaps[1:]:
            self.add(swap)
        if not self.spatial:
            self.model.set_shapes({f"{component(self.model.graph.nodes[-1].name)}.output": ["batch", count]})

    def function(self, path: str, function: Any) -> None:
        """Add the block that is equivalent to a function. For the identity, add no block."""
        plain, options = function, {}  # functools.partial(jax.nn.gelu, approximate=False)
        while isinstance(plain, functools.partial) and not plain.args:
            plain, options = plain.func, {**plain.keywords, **options}
        for candidate, kind, parameters in _functions():
            if plain is candidate and options.keys() <= parameters.keys():
                axis = options.get("axis", -1)
                if type(axis) is not int or (self.spatial > 0 and self.channels_last and axis != -1):
                    because = f"only axis -1, the channels, is supported, not axis {axis}"
                    raise conversion_error(self.library, path, function, because)
                if candidate in _ALONG and self.channels_last:
                    options = {**options, "axis": 1 if self.spatial > 0 else axis}
                elif candidate in _ALONG:  # the function gets one sample, but the block a batch
                    options = {**options, "axis": axis + (axis >= 0)}
                if kind:
                    kwargs = {ours: options.get(theirs, default) for theirs, (ours, default) in parameters.items()}
                    self.add(getattr(blocks, kind)(**kwargs))
                return
        raise conversion_error(self.library, path, function, "the code of a function cannot be converted")

    def done(self) -> Imported:
        """Return the converted model."""
        return Imported(self.model, self.params, self.state)


_ALONG = (jax.nn.softmax, jax.nn.log_softmax)


@functools.cache
def _functions() -> list[tuple[Any, str, dict[str, tuple[str, Any]]]]:
    # Each function, the block ("" for the identity), and its arguments by the names and defaults of the function.
    arguments = {
        jax.nn.gelu: {"approximate": ("approximate", True)},
        jax.nn.softmax: {"axis": ("axis", -1)},
        jax.nn.log_softmax: {"axis": ("axis", -1)},
    }
    # From the kernels: a new activation is converted without another table.
    ours = (rules for rules in OPS.values() if rules.category == "Activations" and hasattr(blocks, rules.__name__))
    kernels = {loaded(rules.kernel): rules.__name__ for rules in ours}
    return [
        *(
            (function, kind, arguments.get(function, {}))
            for function, kind in kernels.items()
            if str(function.__module__).startswith("jax.")
        ),
        (jax.nn.identity, "", {}),
        (jax.lax.tanh, "Tanh", {}),  # not the same object as jnp.tanh, the kernel
        (jax.nn.leaky_relu, "LeakyRelu", {"negative_slope": ("slope", 0.01)}),
    ]


def pairs(sizes: Any, axes: int) -> tuple[int, ...]:
    """Return one size for each axis: `sizes` itself, a number for all axes, or 1 for `None`."""
    if sizes is None:
        return (1,) * axes
    return (int(sizes),) * axes if isinstance(sizes, int | np.integer) else tuple(int(size) for size in sizes)


def padding_of(padding: Any, axes: int) -> str | tuple[tuple[int, int], ...] | None:
    """Return the argument `padding` of our blocks for that of a library; `None` if blocks do not support it."""
    if isinstance(padding, str):
        return padding.lower() if padding.lower() in ("same", "valid") else None
    if isinstance(padding, int | np.integer):
        return ((int(padding), int(padding)),) * axes
    try:
        sides = [
            (int(side), int(side)) if isinstance(side, int | np.integer) else tuple(map(int, side)) for side in padding
        ]
    except (TypeError, ValueError):
        return None
    sides = sides * axes if len(sides) == 1 else sides  # Flax: one pair for all axes
    return tuple((before, after) for before, after in sides) if len(sides) == axes else None


def convolution(axes: int, **options: Any) -> Model:
    """Return a convolution block over `axes` spatial axes."""
    return getattr(blocks, f"Conv{axes}d")(**options)
