"""Haiku: the parameters of a transformed function. Its structure is in code, so the model is composed with blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.interop import layers
from mithril_nb.interop.into import filled, in_order, may_be_sorted
from mithril_nb.interop.layers import Imported, Layer, refused
from mithril_nb.physical import PhysicalModel

_AVERAGES = ("/~/mean_ema", "/~/var_ema")


def from_haiku(
    params: Mapping[str, Mapping[str, Any]],
    state: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    into: PhysicalModel | None = None,
    names: Mapping[str, str] | None = None,
) -> Imported:
    """Return the parameters of a Haiku function, for a model of ours. Images are `(batch, channels, ...)` here.

    Linear, Conv, LayerNorm, GroupNorm, BatchNorm and Embed are read, wherever they stand, so MLP and Sequential too.

    Args:
        params: What `init` gave: arrays by name of the module.
        state: What `init` of a function with state gave; needed for a BatchNorm.
        into: The compiled model whose parameters shall be filled: each kind in the order in which Haiku made its
            modules, or by the numbers in their names. What has been through `jax.tree.map` or `jit` is sorted by name:
            there `names` tells modules of other names and equal shapes apart.
        names: The block that a module belongs to, by its name; the others go in order.

    Raises:
        UnknownOptionError: No parameters, no model, or a module that cannot be brought over, with the reason; or
            an order that is lost.
        UnexpectedInputError, ShapeError: Layers that the model does not have, or in other shapes.

    Examples:
        >>> import haiku as hk, jax
        >>> import mithril_nb as ml
        >>> x = jax.numpy.ones((3, 4))
        >>> there = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([8, 2])(x)))
        >>> theirs = there.init(jax.random.key(0), x)
        >>> pm = ml.compile(ml.models.MLP(4, [8], 2), shapes={"input": [3, 4]})
        >>> params = from_haiku(theirs, into=pm).params
        >>> bool(abs(pm.evaluate(params, {"input": x})["output"] - there.apply(theirs, x)).max() < 1e-6)
        True
    """
    if not isinstance(params, Mapping) or not all(isinstance(one, Mapping) for one in params.values()):
        raise UnknownOptionError(
            f"cannot bring {short_repr(params)} over from Haiku.",
            (("needs", "arrays by name, by name of the module"),),
            "ml.from_haiku(transformed.init(key, x), into=pm)",
        )
    if into is None:
        raise UnknownOptionError(
            "cannot bring a Haiku function over without a model.",
            (("because", "what a function does cannot be read from its parameters"),),
            "into=ml.compile(model, shapes=shapes)  # with a model of the same layers",
        )
    state = state or {}
    owners = [name.removesuffix(end) for name in state for end in _AVERAGES if name.endswith(end)]
    found = [_layer(name, params.get(name, {}), state) for name in in_order((*params, *owners))]
    return filled("Haiku", found, into, names, channels_last=True, is_sorted=may_be_sorted(params))


def _layer(name: str, arrays: Mapping[str, Any], state: Mapping[str, Mapping[str, Any]]) -> Layer:
    """The arrays of a module, whose names tell its kind."""
    rank = getattr(arrays.get("w"), "ndim", 0)
    mean, var = (state.get(f"{name}{end}", {}).get("average") for end in _AVERAGES)
    if mean is not None and var is not None and set(arrays) <= {"scale", "offset"}:
        return layers.batch_norm(name, arrays.get("scale"), arrays.get("offset"), mean, var)
    if name.rpartition("/")[2].startswith("batch_norm"):
        raise refused("Haiku", name, "BatchNorm", "its averages are in the state: give that too")
    if set(arrays) <= {"w", "b"} and rank == 2:
        return layers.linear(name, arrays["w"], arrays.get("b"))
    if set(arrays) <= {"w", "b"} and rank in (3, 4, 5):
        return layers.conv(name, arrays["w"], arrays.get("b"), channels_last=True)
    if set(arrays) == {"embeddings"}:
        return layers.embedding(name, arrays["embeddings"])
    if arrays and set(arrays) <= {"scale", "offset"}:
        return layers.norm(name, arrays.get("scale"), arrays.get("offset"))
    raise refused(
        "Haiku", name, f"arrays {', '.join(sorted(arrays)) or 'of none'}", "no block here has such parameters"
    )
