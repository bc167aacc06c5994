"""Equinox: modules whose structure can be read, and the arrays of any module."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb import models as blocks
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.interop import layers
from mithril_nb.interop.into import filled
from mithril_nb.interop.layers import Chain, Imported, Layer, convolution, padding_of, pairs, refused
from mithril_nb.physical import PhysicalModel

_ADVICE = "ml.from_equinox(eqx.nn.MLP(784, 10, 64, 2, key=key))"


def from_equinox(
    module: Any,
    state: Any = None,
    *,
    into: PhysicalModel | None = None,
    names: Mapping[str, str] | None = None,
) -> Imported:
    """Return a model with the parameters of an Equinox module; a batch stands first, as after `jax.vmap(module)`.

    Linear, Conv, LayerNorm, RMSNorm, GroupNorm, BatchNorm, Embedding, Dropout, pools, MLP and Sequential are read, and
    the usual activation functions. Whatever another module does in its `__call__` cannot be read from it: compose the
    same with blocks, and bring its parameters `into` that.

    Args:
        module: The module.
        state: Its `eqx.nn.State`, if it has a BatchNorm.
        into: A compiled model whose parameters shall be filled, in the order of their kind.
        names: With `into`: the block that a layer belongs to, by its path in the module.

    Raises:
        UnknownOptionError: Something that cannot be brought over, by name and with the reason.
        UnexpectedInputError, ShapeError: Layers that `into` does not have, or in other shapes.

    Examples:
        >>> import equinox as eqx, jax
        >>> import mithril_nb as ml
        >>> module = eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(0))
        >>> model, params, _ = from_equinox(module)
        >>> x = jax.numpy.ones((3, 4))
        >>> ours = ml.compile(model, shapes={"input": [3, 4]}).evaluate(params, {"input": x})["output"]
        >>> bool(abs(ours - jax.vmap(module)(x)).max() < 1e-6)
        True
    """
    import equinox as eqx

    if not isinstance(module, eqx.Module):
        raise UnknownOptionError(
            f"cannot bring {short_repr(module)} over from Equinox.", (("needs", "an Equinox module"),), _ADVICE
        )
    if into is not None:
        return filled("Equinox", list(_all(module, state, "")), into, names, channels_last=False)
    chain = Chain("Equinox", _windows(module), channels_last=False)
    _walk(chain, module, state, type(module).__name__.lower())
    return chain.done()


def _walk(chain: Chain, module: Any, state: Any, path: str) -> None:
    """Add what a module, or a function, is."""
    import equinox.nn as nn

    # Types are compared as they are: what a subclass does differently is in its code.
    match type(module):
        case nn.Sequential:
            for place, part in enumerate(module.layers):
                _walk(chain, part, state, f"{path}.layers.{place}")
        case nn.MLP:
            identity = inspect.signature(nn.MLP.__init__).parameters["final_activation"].default
            for place, part in enumerate(module.layers):
                _walk(chain, part, state, f"{path}.layers.{place}")
                activation = module.activation if place + 1 < len(module.layers) else module.final_activation
                if activation is not identity:
                    chain.function(f"{path}.activation", activation)
        case nn.Lambda:
            _function(chain, f"{path}.fn", module.fn)
        case nn.Identity:
            return
        case nn.Dropout:
            chain.add(blocks.Dropout(module.p))
        case _ if isinstance(module, nn.Pool):
            chain.add(_pool(module, path))
        case kind if kind in _known():
            _layer(chain, module, _arrays(module, state, path), path)
        case _ if callable(module) and not dataclasses.is_dataclass(module):
            _function(chain, path, module)
        case _:
            raise refused("Equinox", path, module, f"{type(module).__name__} says what it does in code")


def _function(chain: Chain, path: str, function: Any) -> None:
    if function is jnp.ravel:
        chain.add(blocks.Flatten())
        chain.spatial = 0
    else:
        chain.function(path, function)


def _layer(chain: Chain, module: Any, layer: Layer, path: str) -> None:
    """Add the block of a layer with arrays."""
    import equinox.nn as nn

    match module:
        case nn.Linear():
            if "scalar" in (module.in_features, module.out_features):
                raise refused("Equinox", path, module, "a scalar has no axis to map")
            chain.add(blocks.Linear(module.out_features, module.use_bias, module.in_features), layer)
        case nn.Conv():
            axes, padding = module.num_spatial_dims, padding_of(module.padding, module.num_spatial_dims)
            if padding is None or module.padding_mode.upper() != "ZEROS":
                raise refused("Equinox", path, module, f"padding {module.padding!r}, {module.padding_mode}")
            options = {"kernel_size": pairs(module.kernel_size, axes), "stride": pairs(module.stride, axes)}
            options |= {"dilation": pairs(module.dilation, axes), "groups": module.groups, "padding": padding}
            options |= {"in_channels": module.in_channels, "use_bias": module.use_bias}
            chain.spatial = axes
            chain.add(convolution(axes, out_channels=module.out_channels, **options), layer)
        case nn.LayerNorm() | nn.RMSNorm():
            if len(module.shape) != 1:
                raise refused("Equinox", path, module, "it works on several axes at once")
            if isinstance(module, nn.LayerNorm):
                chain.add(blocks.LayerNorm(module.use_weight, module.use_bias, module.eps), layer)
            elif module.use_bias:
                raise refused("Equinox", path, module, "RMSNorm has no bias here: use_bias=False")
            else:
                chain.add(blocks.RMSNorm(module.use_weight, module.eps), layer)
        case nn.GroupNorm():
            affine = module.channelwise_affine
            chain.add(blocks.GroupNorm(module.groups, affine, affine, module.eps), layer)
        case nn.BatchNorm():
            affine, count = module.channelwise_affine, module.input_size
            chain.add(blocks.BatchNorm(count, affine, affine, module.eps, 1 - module.momentum), layer)
        case nn.Embedding():
            chain.add(blocks.Embedding(module.num_embeddings, module.embedding_size), layer)


def _known() -> tuple[type, ...]:
    import equinox.nn as nn

    convolutions = nn.Conv, nn.Conv1d, nn.Conv2d, nn.Conv3d
    return nn.Linear, *convolutions, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.BatchNorm, nn.Embedding


def _arrays(module: Any, state: Any, path: str) -> Layer:
    """The arrays of a layer in our layout: Equinox has a Linear's weight as `(out, in)`, a Conv's as we do."""
    import equinox.nn as nn

    bias = getattr(module, "bias", None)
    match module:
        case nn.Linear():
            return layers.linear(path, jnp.transpose(jnp.atleast_2d(module.weight)), bias)
        case nn.Conv():
            return layers.conv(path, module.weight, bias, channels_last=False)
        case nn.BatchNorm():
            if state is None:
                raise refused("Equinox", path, module, "its running statistics are in the state: give that too")
            mean, var = _statistics(module, state)
            return layers.batch_norm(path, module.weight, bias, mean, var)
        case nn.Embedding():
            return layers.embedding(path, module.weight)
        case _:
            return layers.norm(path, module.weight, bias)


def _statistics(module: Any, state: Any) -> tuple[Any, Any]:
    if module.mode == "ema":
        return state.get(module.ema_state_index)
    counter = state.get(module.batch_counter)
    scale = jnp.where(counter == 0, 1, 1 - module.momentum**counter)  # the average of few steps is short of the mean
    mean, var = state.get(module.batch_state_index)
    return mean / scale, var / scale


def _pool(module: Any, path: str) -> Any:
    import equinox.nn as nn

    axes = module.num_spatial_dims
    known = {nn.MaxPool1d: "Max", nn.MaxPool2d: "Max", nn.MaxPool3d: "Max", nn.AvgPool1d: "Avg", nn.AvgPool2d: "Avg"}
    kind = {**known, nn.AvgPool3d: "Avg"}.get(type(module))
    sides = padding_of(module.padding, axes)
    if kind is None or module.use_ceil or (any(map(any, sides or ())) and kind == "Avg"):
        raise refused("Equinox", path, module, "only plain max and average pools are the same here")
    options = {"kernel_size": pairs(module.kernel_size, axes), "stride": pairs(module.stride, axes)}
    return getattr(blocks, f"{kind}Pool{axes}d")(**options, padding=sides if any(map(any, sides or ())) else "valid")


def _windows(module: Any) -> int:
    """Over how many axes the first layer that cares slides its windows."""
    import equinox.nn as nn

    for one in _leaves(module, ""):
        if isinstance(one[1], nn.Conv):
            return one[1].num_spatial_dims
        if isinstance(one[1], _known()):
            return 0
    return 0


def _leaves(module: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every layer in a module with its path, of a subclass too; and whatever else has arrays, for the caller to refuse.

    What a subclass does differently is said by the model that `into` names.
    """
    if isinstance(module, _known()):
        yield path, module
    elif dataclasses.is_dataclass(module) and not isinstance(module, type):
        if _own_arrays(module):
            yield path, module
        for name, one in _fields(module):
            if not _is_array(one):
                yield from _leaves(one, f"{path}.{name}".strip("."))
    elif isinstance(module, list | tuple):
        for place, one in enumerate(module):
            yield from _leaves(one, f"{path}.{place}".strip("."))
    elif isinstance(module, dict):
        for key, one in module.items():
            yield from _leaves(one, f"{path}.{key}".strip("."))
    elif any(map(_is_array, jax.tree.leaves(module))):
        yield path, module


def _fields(module: Any) -> Iterator[tuple[str, Any]]:
    """What a module is made of, but for what Equinox itself takes for no part of it."""
    for field in dataclasses.fields(module):
        if not field.metadata.get("static", False):
            yield field.name, getattr(module, field.name, None)


def _own_arrays(module: Any) -> list[str]:
    return sorted(name for name, one in _fields(module) if _is_array(one))


def _is_array(one: Any) -> bool:
    """Whether it is an array that training may change; whole numbers, as places and keys, are not."""
    return isinstance(one, jax.Array | np.ndarray) and jnp.issubdtype(one.dtype, jnp.inexact)


def _all(module: Any, state: Any, path: str) -> Iterator[Layer]:
    for place, one in _leaves(module, path):
        where = place or type(one).__name__.lower()
        if not dataclasses.is_dataclass(one):
            raise refused("Equinox", where, one, "it is an array that belongs to no block here")
        left = _beyond(one) if isinstance(one, _known()) else _own_arrays(one)
        if left:
            raise refused("Equinox", where, type(one).__name__, f"its arrays {', '.join(left)} belong to no block here")
        yield _arrays(one, state, where)


def _beyond(layer: Any) -> list[str]:
    """The arrays that a subclass of a layer has beside the layer's own."""
    parts = [(name, one) for name, one in _fields(layer) if name not in ("weight", "bias")]
    return sorted(name for name, one in parts if any(map(_is_array, jax.tree.leaves(one))))
