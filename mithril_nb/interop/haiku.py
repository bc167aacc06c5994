"""Haiku: read the parameters of a transformed function, for a model composed with blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril_nb.compilation import PhysicalModel
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.interop.into import fill_model, in_order, may_be_sorted
from mithril_nb.interop.layers import ArrayNames, ForeignLayer, Imported, conversion_error, identify_layer

_AVERAGES = ("/~/mean_ema", "/~/var_ema")
_NAMES = ArrayNames("w", "b", "scale", "offset", "embeddings")


def from_haiku(
    params: Mapping[str, Mapping[str, Any]],
    state: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    into: PhysicalModel | None = None,
    names: Mapping[str, str] | None = None,
) -> Imported:
    """Convert the parameters of a Haiku function to those of a compiled model. Its images are `(batch, channels, ...)`.

    Supported are Linear, Conv, LayerNorm, GroupNorm, BatchNorm and Embed at any depth, so also MLP and Sequential.

    Args:
        params: Result of `init`, a dict of dicts: module name -> parameter name -> array.
        state: State that `init` of a function with state returns; required for a BatchNorm.
        into: The compiled model to fill. Modules are matched to blocks of the same kind, in the order in which Haiku
            created them. Modules whose names differ only in a number are in the order of the numbers. `jax.tree.map`
            and `jit` sort parameters by name, so the order of other modules with equal shapes is then lost: pass
            `names`.
        names: A dict from the name of a module to the path of its block. The other modules are matched in order.

    Raises:
        UnknownOptionError: `params` is not a dict of dicts, `into` is missing or not a compiled model, a module cannot
            be converted, or the order of the modules is lost.
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
    if not isinstance(params, Mapping) or not all(isinstance(arrays, Mapping) for arrays in params.values()):
        raise UnknownOptionError(
            f"cannot convert {short_repr(params)} from Haiku.",
            (("needs", "a dict of dicts: module name -> parameter name -> array"),),
        )
    if into is None:
        raise UnknownOptionError(
            "cannot convert Haiku parameters: the argument into is missing.",
            (("because", "parameters do not contain the code of the function"),),
        )
    state = state or {}
    # A BatchNorm without scale and offset has no parameters, only a state.
    owners = [name.removesuffix(end) for name in state for end in _AVERAGES if name.endswith(end)]
    layers = [_layer(name, params.get(name, {}), state) for name in in_order((*params, *owners))]
    return fill_model("Haiku", layers, into, names, channels_last=True, is_sorted=may_be_sorted(params))


def _layer(name: str, arrays: Mapping[str, Any], state: Mapping[str, Mapping[str, Any]]) -> ForeignLayer:
    # `hidden` is the sum before the correction of its start at 0; `average` is what Haiku uses in evaluation.
    averages = {port: state.get(f"{name}/~/{port}_ema", {}).get("average") for port in ("mean", "var")}
    if None not in averages.values():
        arrays = {**arrays, **averages}
    elif name.rpartition("/")[2].startswith("batch_norm"):
        raise conversion_error("Haiku", name, "BatchNorm", "its running statistics are missing: pass state as well")
    return identify_layer("Haiku", name, arrays, _NAMES, "a module")
