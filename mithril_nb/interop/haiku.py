"""Haiku: read the parameters of a transformed function, for a model composed with blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril_nb.compilation import PhysicalModel
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.interop import layers
from mithril_nb.interop.into import fill_model, in_order, may_be_sorted
from mithril_nb.interop.layers import Imported, Layer, conversion_error

_AVERAGES = ("/~/mean_ema", "/~/var_ema")


def from_haiku(
    params: Mapping[str, Mapping[str, Any]],
    state: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    into: PhysicalModel | None = None,
    names: Mapping[str, str] | None = None,
) -> Imported:
    """Convert the parameters of a Haiku function for a compiled model, whose images are `(batch, channels, ...)`.

    Supported are Linear, Conv, LayerNorm, GroupNorm, BatchNorm and Embed at any depth, so also MLP and Sequential.

    Args:
        params: Result of `init`: arrays by name, by name of the module.
        state: State from `init` of a function with state, required for a BatchNorm.
        into: The compiled model to fill. Modules are matched to blocks by kind, in the order in which Haiku created
            them, or by the numbers in their names. `jax.tree.map` and `jit` sort parameters by name. If two modules
            then have equal shapes and names without numbers, pass `names`.
        names: Paths of blocks by name of a module. The other modules are matched in order.

    Raises:
        UnknownOptionError: The parameters or the model are missing, a module cannot be converted, or the order of the
            modules is lost. The message gives the reason.
        UnexpectedInputError, ShapeError: The layers or their shapes do not match the model.

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
            f"cannot convert {short_repr(params)} from Haiku.",
            (("needs", "arrays by name, by name of the module"),),
            "ml.from_haiku(transformed.init(key, x), into=pm)",
        )
    if into is None:
        raise UnknownOptionError(
            "cannot convert a Haiku function without a model.",
            (("because", "its parameters do not contain its code"),),
            "into=ml.compile(model, shapes=shapes)  # with a model of the same layers",
        )
    state = state or {}
    owners = [name.removesuffix(end) for name in state for end in _AVERAGES if name.endswith(end)]
    found = [_layer(name, params.get(name, {}), state) for name in in_order((*params, *owners))]
    return fill_model("Haiku", found, into, names, channels_last=True, is_sorted=may_be_sorted(params))


def _layer(name: str, arrays: Mapping[str, Any], state: Mapping[str, Mapping[str, Any]]) -> Layer:
    """Return the arrays of a module. Their names identify its kind."""
    rank = getattr(arrays.get("w"), "ndim", 0)
    mean, var = (state.get(f"{name}{end}", {}).get("average") for end in _AVERAGES)
    if mean is not None and var is not None and set(arrays) <= {"scale", "offset"}:
        return layers.batch_norm(name, arrays.get("scale"), arrays.get("offset"), mean, var)
    if name.rpartition("/")[2].startswith("batch_norm"):
        raise conversion_error("Haiku", name, "BatchNorm", "its averages are in the state: pass state as well")
    if set(arrays) <= {"w", "b"} and rank == 2:
        return layers.linear(name, arrays["w"], arrays.get("b"))
    if set(arrays) <= {"w", "b"} and rank in (3, 4, 5):
        return layers.conv(name, arrays["w"], arrays.get("b"), channels_last=True)
    if set(arrays) == {"embeddings"}:
        return layers.embedding(name, arrays["embeddings"])
    if arrays and set(arrays) <= {"scale", "offset"}:
        return layers.norm(name, arrays.get("scale"), arrays.get("offset"))
    raise conversion_error(
        "Haiku", name, f"arrays {', '.join(sorted(arrays)) or '(none)'}", "no block has such parameters"
    )
