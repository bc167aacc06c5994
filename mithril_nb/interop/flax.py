"""Flax: convert nnx and linen modules to models, or only load their variables into a model."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from mithril_nb import models as blocks
from mithril_nb.compilation import PhysicalModel
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.interop.into import fill_model, in_order, may_be_sorted
from mithril_nb.interop.layers import (
    ArrayNames,
    Chain,
    ForeignLayer,
    Imported,
    conversion_error,
    convolution,
    identify_layer,
    padding_of,
    pairs,
)

Arrays = Mapping[str, Any]
_ADVICE = "ml.from_flax(nnx_module)  # or ml.from_flax(linen_module, variables), or ml.from_flax(variables, into=pm)"
_NAMES = ArrayNames("kernel", "bias", "scale", "bias", "embedding")
_KINDS = ("Dense", "Linear", "Conv", "Embed", "Dropout", "LayerNorm", "RMSNorm", "GroupNorm", "BatchNorm")


def from_flax(
    module: Any,
    variables: Arrays | None = None,
    *,
    into: PhysicalModel | None = None,
    names: Mapping[str, str] | None = None,
) -> Imported:
    """Convert a Flax module to a model, with its parameters.

    Convolutions and pools read and return images `(batch, channels, ...)` in the model. Dense, Embed, LayerNorm and
    RMSNorm read and return features on the last axis, as in Flax. Between them, the model moves the axis.

    Supported are Dense or Linear, Conv, LayerNorm, RMSNorm, GroupNorm, BatchNorm, Embed, Dropout, pools, Sequential and
    the common activation functions. Other modules cannot be converted, because their `__call__` can contain any code.
    For such a module, compose the same model with blocks, and load the variables into it with `into`.

    Args:
        module: An nnx module, or a linen module with its `variables`, or variables alone with `into`.
        variables: Result of the linen module's `init`: `{"params": ..., "batch_stats": ...}`.
        into: A compiled model to fill. Layers are matched to blocks of the same kind, in the order in which Flax
            created them. Layers whose names differ only in a number are in the order of the numbers. `jax.tree.map`
            and `jit` sort variables by name, so the order of other layers with equal shapes is then lost: pass `names`.
        names: With `into`, a dict from the path of a layer in the variables to the path of its block. The other layers
            are matched in order.

    Raises:
        UnknownOptionError: `module` is not a Flax module, variables or the structure are missing, `into` is not a
            compiled model, a part cannot be converted, or the order of the layers is lost.
        UnexpectedInputError, ShapeError: The layers or their shapes do not match `into`.

    Examples:
        >>> from flax import nnx
        >>> import jax
        >>> import mithril_nb as ml
        >>> module = nnx.Sequential(nnx.Linear(4, 8, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(8, 2, rngs=nnx.Rngs(1)))
        >>> model, params, _ = from_flax(module)
        >>> x = jax.numpy.ones((3, 4))
        >>> ours = ml.compile(model, shapes={"input": [3, 4]}).evaluate(params, {"input": x})["output"]
        >>> bool(abs(ours - module(x)).max() < 1e-6)
        True
    """
    from flax import linen, nnx

    if isinstance(module, Mapping):
        variables, module = module, None
    is_linen = isinstance(module, linen.Module)
    if isinstance(module, nnx.Module) and not is_linen:
        variables = _of_nnx(module)
    elif module is not None and not is_linen:
        raise UnknownOptionError(
            f"cannot convert {short_repr(module)} from Flax.", (("needs", "a Flax module, or variables"),)
        )
    if variables is None or (module is None and into is None):
        raise UnknownOptionError(
            "cannot convert a linen module without its variables."
            if module is not None
            else "cannot convert variables of Flax without a module or the argument into.",
            (("given", "a linen module" if module is not None else "variables"),),
        )
    tree = _Tree.of(variables)
    if into is not None:
        # Variables of a module are in the order of its layers. JAX may have sorted variables without a module by name.
        is_sorted = module is None and may_be_sorted(variables)
        return fill_model("Flax", tree.layers(), into, names, channels_last=True, is_sorted=is_sorted)
    chain = Chain("Flax", _first_layout(module), channels_last=True)
    _walk(chain, module, tree, "")
    return chain.done()


class _Tree:
    def __init__(self, arrays: dict[str, dict[str, Any]]):
        self.arrays = arrays

    @classmethod
    def of(cls, variables: Arrays) -> _Tree:
        # `init` returns all collections, but examples often pass only the parameters on.
        collections = variables if isinstance(variables.get("params"), Mapping) else {"params": variables}
        layers: dict[str, dict[str, Any]] = {}
        for collection in ("params", "batch_stats"):
            _collect(collections.get(collection, {}), "", layers)
        return cls(layers)

    def layers(self) -> list[ForeignLayer]:
        return [self.layer(path) for path in in_order(self.arrays)]

    def layer(self, path: str, module: Any = "a layer") -> ForeignLayer:
        arrays = self.arrays.get(path)
        if arrays is None:
            raise conversion_error("Flax", path, module, "the variables have no arrays at this path")
        return identify_layer("Flax", path, arrays, _NAMES, module)


def _collect(tree: Any, path: str, layers: dict[str, dict[str, Any]]) -> None:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            _collect(value, f"{path}.{name}" if path else str(name), layers)
        else:
            # A linen variable with metadata, such as `nn.Partitioned`, holds its array in `value`.
            array = getattr(value, "value", value) if not hasattr(value, "ndim") else value
            layers.setdefault(path, {})[str(name)] = array


def _of_nnx(module: Any) -> dict[str, Any]:
    from flax import nnx

    _, params, stats, _ = nnx.split(module, nnx.Param, nnx.BatchStat, ...)
    # The names of linen's collections, so that both kinds of modules share the code below.
    arrays = {"params": nnx.to_pure_dict(params), "batch_stats": nnx.to_pure_dict(stats)}
    return {collection: _in_attribute_order(tree, module) for collection, tree in arrays.items()}


def _in_attribute_order(tree: Mapping[Any, Any], module: Any) -> dict[Any, Any]:
    # Flax sorts the arrays of an nnx module by name, but layers are matched in the order of attributes.
    order = [name for name in getattr(module, "__dict__", ()) if name in tree]
    return {
        name: _in_attribute_order(tree[name], _part(module, name)) if isinstance(tree[name], Mapping) else tree[name]
        for name in dict.fromkeys((*order, *tree))
    }


def _part(module: Any, name: Any) -> Any:
    return module[name] if isinstance(module, Mapping | Sequence) else getattr(module, str(name), None)


def _walk(chain: Chain, module: Any, tree: _Tree, path: str) -> None:
    from flax import linen, nnx

    # Compare exact types: a subclass may behave differently.
    kind = type(module).__name__
    if type(module) in (nnx.Sequential, linen.Sequential):
        is_linen = type(module) is linen.Sequential
        for index, part in enumerate(module.layers):
            step = f"layers_{index}" if is_linen else f"layers.{index}"
            _walk(chain, part, tree, f"{path}.{step}" if path else step)
    elif kind in _KINDS and type(module) in (getattr(nnx, kind, None), getattr(linen, kind, None)):
        _add_layer(chain, module, kind, path, tree)
    elif isinstance(module, functools.partial) and module.func in (linen.max_pool, linen.avg_pool):
        _pool(chain, module, path)
    elif callable(module) and not isinstance(module, nnx.Module | linen.Module):
        chain.function(path, module)
    else:
        raise conversion_error("Flax", path, module, f"the code of {kind} cannot be converted")


def _add_layer(chain: Chain, module: Any, kind: str, path: str, tree: _Tree) -> None:
    match kind:
        case "Dense" | "Linear":
            chain.check_last_axis(path, module)
            layer = tree.layer(path, module)
            size, width = layer.params["weight"].shape
            chain.add(blocks.Linear(width, module.use_bias, size), layer)
        case "Embed":
            chain.check_last_axis(path, module)
            layer = tree.layer(path, module)
            chain.add(blocks.Embedding(*layer.params["weight"].shape), layer)
        case "Dropout":
            if module.broadcast_dims:  # one mask for several items
                raise conversion_error("Flax", path, module, "the Dropout block has no broadcast_dims")
            chain.add(blocks.Dropout(module.rate))
        case "Conv":
            _conv(chain, module, path, tree)
        case _:
            _norm(chain, module, path, tree)


def _conv(chain: Chain, module: Any, path: str, tree: _Tree) -> None:
    axes = 1 if isinstance(module.kernel_size, int) else len(module.kernel_size)
    padding = padding_of(module.padding, axes)
    if padding is None or module.mask is not None or any(rate != 1 for rate in pairs(module.input_dilation, axes)):
        raise conversion_error(
            "Flax",
            path,
            module,
            "only 'SAME', 'VALID' and numeric padding is supported, no mask or input_dilation",
        )
    layer, groups = tree.layer(path, module), module.feature_group_count
    out, size = layer.params["weight"].shape[:2]
    options = {"kernel_size": pairs(module.kernel_size, axes), "stride": pairs(module.strides, axes)}
    options |= {"dilation": pairs(module.kernel_dilation, axes), "groups": groups, "padding": padding}
    chain.to_images(axes, path, module)
    chain.add(
        convolution(axes, out_channels=out, in_channels=size * groups, use_bias=module.use_bias, **options), layer
    )


def _norm(chain: Chain, module: Any, path: str, tree: _Tree) -> None:
    kind = type(module).__name__
    # nnx and linen differ in which of these attributes a norm has.
    axes = {name: getattr(module, name, -1) for name in ("reduction_axes", "feature_axes", "axis")}
    default = (None, -1) if kind == "GroupNorm" else (-1, (-1,), [-1])
    others = [f"{name}={axis}" for name, axis in axes.items() if axis not in default]
    if others:
        supported = "all axes after the first are" if kind == "GroupNorm" else "the last axis is"
        raise conversion_error("Flax", path, module, f"only {supported} supported, not {', '.join(others)}")
    if kind in ("LayerNorm", "RMSNorm"):
        chain.check_last_axis(path, module)
    layer = tree.layer(path, module)
    scale, shift, eps = module.use_scale, getattr(module, "use_bias", False), module.epsilon
    if kind == "LayerNorm":
        chain.add(blocks.LayerNorm(scale, shift, eps), layer)
    elif kind == "RMSNorm":
        chain.add(blocks.RMSNorm(scale, eps), layer)
    elif kind == "BatchNorm":
        count = len(layer.states["running_mean"])  # the only array without use_scale and use_bias
        chain.per_channel(blocks.BatchNorm(count, scale, shift, eps, 1 - module.momentum), layer, count)
    else:
        if not scale and not shift:
            raise conversion_error("Flax", path, module, "without scale and bias, the number of channels is unknown")
        count = len(next(iter(layer.params.values())))
        groups = module.num_groups or count // module.group_size
        chain.per_channel(blocks.GroupNorm(groups, scale, shift, eps), layer, count)


def _pool(chain: Chain, partial: Any, path: str) -> None:
    options = dict(partial.keywords)
    window = tuple(options.pop("window_shape", ()))
    padding = padding_of(options.pop("padding", "VALID"), len(window))
    stride = options.pop("strides", None) or (1,) * len(window)
    kind = "Max" if partial.func.__name__ == "max_pool" else "Avg"
    if (
        partial.args
        or options
        or len(window) not in (1, 2, 3)
        or padding is None
        or (kind == "Avg" and padding != "valid")  # Flax counts the padding by default, blocks do not
    ):
        raise conversion_error(
            "Flax", path, partial, "only max_pool, and avg_pool without padding, are supported, on 1 to 3 axes"
        )
    chain.to_images(len(window), path, partial)
    chain.add(getattr(blocks, f"{kind}Pool{len(window)}d")(kernel_size=window, stride=tuple(stride), padding=padding))


def _first_layout(module: Any) -> int:
    from flax import linen, nnx

    # The first layer that fixes the meaning of the last axis decides how the model reads its input.
    if type(module) in (nnx.Sequential, linen.Sequential):
        return next((layout for layout in map(_first_layout, module.layers) if layout), 0)
    kind = type(module).__name__
    if kind == "Conv":
        return 1 if isinstance(module.kernel_size, int) else len(module.kernel_size)
    if isinstance(module, functools.partial) and module.func in (linen.max_pool, linen.avg_pool):
        return len(module.keywords.get("window_shape", ()))
    return -1 if kind in ("Dense", "Linear", "Embed", "LayerNorm", "RMSNorm") else 0
