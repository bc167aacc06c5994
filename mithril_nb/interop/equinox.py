"""Equinox: convert modules to models, or only load their parameters into a model."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb import models as blocks
from mithril_nb.compilation import PhysicalModel
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.interop import layers
from mithril_nb.interop.into import fill_model
from mithril_nb.interop.layers import Chain, ForeignLayer, Imported, conversion_error, convolution, padding_of, pairs

_ADVICE = "ml.from_equinox(eqx.nn.MLP(784, 10, 64, 2, key=key))"


def from_equinox(
    module: Any,
    state: Any = None,
    *,
    into: PhysicalModel | None = None,
    names: Mapping[str, str] | None = None,
) -> Imported:
    """Convert an Equinox module to a model, with its parameters.

    The first axis of the model's input is a batch, as in `jax.vmap(module)`.

    Supported are Linear, Conv, LayerNorm, RMSNorm, GroupNorm, BatchNorm, Embedding, Dropout, pools, MLP, Sequential and
    the common activation functions. Other modules cannot be converted, because their `__call__` can contain any code.
    For such a module, compose the same model with blocks, and load the parameters into it with `into`.

    Args:
        module: The module.
        state: The `eqx.nn.State` of the module, required for a BatchNorm.
        into: A compiled model to fill. Layers are matched to blocks by kind, in order.
        names: With `into`, a dict from the path of a layer in the module to the path of its block. The other layers are
            matched in order.

    Raises:
        UnknownOptionError: `module` is not an Equinox module, `into` is not a compiled model, or a part of the module
            cannot be converted. The message names the part and gives the reason.
        UnexpectedInputError, ShapeError: The layers or their shapes do not match `into`.

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
            f"cannot convert {short_repr(module)} from Equinox.", (("needs", "an Equinox module"),)
        )
    if into is not None:
        return fill_model("Equinox", list(_all(module, state, "")), into, names, channels_last=False)
    chain = Chain("Equinox", 0, channels_last=False)
    _walk(chain, module, state, type(module).__name__.lower())
    return chain.done()


def _walk(chain: Chain, module: Any, state: Any, path: str) -> None:
    import equinox.nn as nn

    # Compare exact types: a subclass may behave differently.
    match type(module):
        case nn.Sequential:
            for index, part in enumerate(module.layers):
                _walk(chain, part, state, f"{path}.layers.{index}")
        case nn.MLP:
            # A lambda, for which `Chain.function` has no rule.
            identity = inspect.signature(nn.MLP.__init__).parameters["final_activation"].default
            for index, part in enumerate(module.layers):
                _walk(chain, part, state, f"{path}.layers.{index}")
                activation = module.activation if index + 1 < len(module.layers) else module.final_activation
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
            raise conversion_error("Equinox", path, module, f"the code of {type(module).__name__} cannot be converted")


def _function(chain: Chain, path: str, function: Any) -> None:
    if function is jnp.ravel:
        chain.add(blocks.Flatten())
    else:
        chain.function(path, function)


def _layer(chain: Chain, module: Any, layer: ForeignLayer, path: str) -> None:
    import equinox.nn as nn

    match module:
        case nn.Linear():
            if "scalar" in (module.in_features, module.out_features):
                because = "the Linear block has no scalar input or output, only a feature axis"
                raise conversion_error("Equinox", path, module, because)
            chain.add(blocks.Linear(module.out_features, module.use_bias, module.in_features), layer)
        case nn.Conv():
            axes, padding = module.num_spatial_dims, padding_of(module.padding, module.num_spatial_dims)
            if padding is None or module.padding_mode.upper() != "ZEROS":
                because = f"no block supports padding={module.padding!r} with padding_mode={module.padding_mode!r}"
                raise conversion_error("Equinox", path, module, because)
            options = {"kernel_size": pairs(module.kernel_size, axes), "stride": pairs(module.stride, axes)}
            options |= {"dilation": pairs(module.dilation, axes), "groups": module.groups, "padding": padding}
            options |= {"in_channels": module.in_channels, "use_bias": module.use_bias}
            chain.add(convolution(axes, out_channels=module.out_channels, **options), layer)
        case nn.LayerNorm() | nn.RMSNorm():
            if len(module.shape) != 1:
                because = f"blocks normalize only the last axis, but this layer has shape={module.shape}"
                raise conversion_error("Equinox", path, module, because)
            if isinstance(module, nn.LayerNorm):
                chain.add(blocks.LayerNorm(module.use_weight, module.use_bias, module.eps), layer)
            elif module.use_bias:
                raise conversion_error("Equinox", path, module, "the RMSNorm block has no bias: set use_bias=False")
            else:
                chain.add(blocks.RMSNorm(module.use_weight, module.eps), layer)
        case nn.GroupNorm():
            affine = module.channelwise_affine  # the weight and the bias in one option
            chain.add(blocks.GroupNorm(module.groups, affine, affine, module.eps), layer)
        case nn.BatchNorm():
            affine, count = module.channelwise_affine, module.input_size
            chain.add(blocks.BatchNorm(count, affine, affine, module.eps, 1 - module.momentum), layer)
        case nn.Embedding():
            chain.add(blocks.Embedding(module.num_embeddings, module.embedding_size), layer)


def _known() -> tuple[type, ...]:
    import equinox.nn as nn

    # Conv1d to Conv3d only set an option; ConvTranspose is no subclass of Conv.
    convolutions = nn.Conv, nn.Conv1d, nn.Conv2d, nn.Conv3d
    return nn.Linear, *convolutions, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.BatchNorm, nn.Embedding


def _arrays(module: Any, state: Any, path: str) -> ForeignLayer:
    import equinox.nn as nn

    bias = getattr(module, "bias", None)
    match module:
        case nn.Linear():
            return layers.linear(path, jnp.transpose(jnp.atleast_2d(module.weight)), bias)  # stored as (out, in)
        case nn.Conv():
            return layers.conv(path, module.weight, bias, channels_last=False)
        case nn.BatchNorm():
            if state is None:
                raise conversion_error(
                    "Equinox", path, module, "its running statistics are missing: pass state as well"
                )
            mean, var = _statistics(module, state)
            return layers.batch_norm(path, module.weight, bias, mean, var)
        case nn.Embedding():
            return layers.embedding(path, module.weight)
        case _:
            return layers.norm(path, module.weight, bias)


def _statistics(module: Any, state: Any) -> tuple[Any, Any]:
    if module.mode == "ema":  # the mode "batch" counts its updates instead
        return state.get(module.ema_state_index)
    counter = state.get(module.batch_counter)
    scale = jnp.where(counter == 0, 1, 1 - module.momentum**counter)  # the averages start at 0
    mean, var = state.get(module.batch_state_index)
    return mean / scale, var / scale


def _pool(module: Any, path: str) -> Any:
    import equinox.nn as nn

    axes = module.num_spatial_dims
    kinds = {nn.MaxPool1d: "Max", nn.MaxPool2d: "Max", nn.MaxPool3d: "Max", nn.AvgPool1d: "Avg", nn.AvgPool2d: "Avg"}
    kind = {**kinds, nn.AvgPool3d: "Avg"}.get(type(module))
    # AvgPool of Equinox counts the padding, our block does not; `use_ceil` pads with what fits.
    sides = padding_of(module.padding, axes)
    if kind is None or module.use_ceil or (any(map(any, sides or ())) and kind == "Avg"):
        because = "only max pools, and average pools without padding, are supported, both without use_ceil"
        raise conversion_error("Equinox", path, module, because)
    options = {"kernel_size": pairs(module.kernel_size, axes), "stride": pairs(module.stride, axes)}
    return getattr(blocks, f"{kind}Pool{axes}d")(**options, padding=sides if any(map(any, sides or ())) else "valid")


def _leaves(module: Any, path: str) -> Iterator[tuple[str, Any]]:
    # Subclasses of layers count: they may compute something else, but only their arrays are read. Other objects with
    # arrays are yielded too, and `_all` rejects them, so that no array is lost silently.
    if isinstance(module, _known()):
        yield path, module
    elif dataclasses.is_dataclass(module) and not isinstance(module, type):
        if _own_arrays(module):
            yield path, module
        for name, part in _fields(module):
            if not _is_array(part):
                yield from _leaves(part, f"{path}.{name}".strip("."))
    elif isinstance(module, list | tuple):
        for index, part in enumerate(module):
            yield from _leaves(part, f"{path}.{index}".strip("."))
    elif isinstance(module, dict):
        for key, part in module.items():
            yield from _leaves(part, f"{path}.{key}".strip("."))
    elif any(map(_is_array, jax.tree.leaves(module))):
        yield path, module


def _fields(module: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(module):
        if not field.metadata.get("static", False):
            yield field.name, getattr(module, field.name, None)


def _own_arrays(module: Any) -> list[str]:
    return sorted(name for name, value in _fields(module) if _is_array(value))


def _is_array(value: Any) -> bool:
    # Arrays of integers, such as indices and keys, are no parameters.
    return isinstance(value, jax.Array | np.ndarray) and jnp.issubdtype(value.dtype, jnp.inexact)


def _all(module: Any, state: Any, path: str) -> Iterator[ForeignLayer]:
    for layer_path, layer in _leaves(module, path):
        where = layer_path or type(layer).__name__.lower()
        if not dataclasses.is_dataclass(layer):
            raise conversion_error("Equinox", where, layer, "the array does not belong to a supported layer")
        left = _extra_arrays(layer) if isinstance(layer, _known()) else _own_arrays(layer)
        if left:
            because = f"no block has parameters for the arrays {', '.join(left)}"
            raise conversion_error("Equinox", where, type(layer).__name__, because)
        yield _arrays(layer, state, where)


def _extra_arrays(layer: Any) -> list[str]:
    parts = [(name, value) for name, value in _fields(layer) if name not in ("weight", "bias")]
    return sorted(name for name, value in parts if any(map(_is_array, jax.tree.leaves(value))))
