"""Fill the parameters of a compiled model with the arrays of another library's layers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.compilation import PhysicalModel
from mithril_nb.errors import ShapeError, UnexpectedInputError, UnknownOptionError, short_repr
from mithril_nb.graph.records import Endpoint
from mithril_nb.interop.layers import Imported, Layer
from mithril_nb.interop.orders import (
    ON_FEATURES,
    ON_LAST_AXIS,
    PER_CHANNEL,
    Image,
    Lost,
    Moved,
    Order,
    Rows,
    Split,
    orders_of,
)
from mithril_nb.models.shape_inference.flat import FlatOp, flat
from mithril_nb.models.shape_inference.infer import Parameter

_KINDS = {
    "linear": "linear",
    "embedding": "embedding",
    "layer_norm": "norm",
    "rms_norm": "norm",
    "group_norm": "norm",
    "instance_norm": "norm",
}
_STEPS = re.compile(r"[./]")
"""Separators of the names in a path."""


def fill_model(
    library: str,
    layers: Sequence[Layer],
    pm: Any,
    names: Mapping[str, str] | None,
    channels_last: bool,
    is_sorted: bool = False,
) -> Imported:
    """Match layers to the blocks of a physical model by kind, in order, and return its params and state.

    Args:
        library: The library's name.
        layers: The library's layers with arrays.
        pm: The physical model.
        names: A dict from the path of a layer to the path of its block. The other layers are matched in order.
        channels_last: True if the library has channels on the last axis.
        is_sorted: True if the layers may be sorted by name. Their order is then known only if their names are numbered.

    Raises:
        UnknownOptionError: `pm` is not a physical model, a block cannot be filled, or the order of layers is unknown.
        UnexpectedInputError: The numbers of layers and blocks of a kind differ, `names` contains an unknown path, or a
            layer has more arrays than its block.
        ShapeError: Arrays are missing or do not match in shape, or the order of their elements is unknown.
    """
    if not isinstance(pm, PhysicalModel):
        raise UnknownOptionError(
            f"cannot put parameters into {short_repr(pm)}.",
            (("needs", "a compiled model"),),
            "into=ml.compile(model, shapes=shapes)",
        )
    ops = {op.path: op for op in flat(pm.graph).ops}
    targets: dict[str, list[Parameter]] = {}
    for parameter in (*pm.parameters, *pm.states):
        targets.setdefault(parameter.path, []).append(parameter)
    params: dict[str, jax.Array] = {}
    state: dict[str, jax.Array] = {}
    orders = orders_of(flat(pm.graph), pm.inference) if channels_last else {}
    for path, layer in _match_layers(library, layers, targets, ops, names or {}, is_sorted).items():
        op = ops.get(path)
        layer = _reordered(orders, op, layer) if channels_last and op is not None else layer
        for parameter in targets[path]:
            array = {**layer.params, **layer.states}.get(parameter.port)
            if array is None or jnp.shape(array) != parameter.spec.shape:
                raise ShapeError(
                    f"{layer.path!r} of {library} does not match {parameter.name!r}.",
                    ((layer.path, "missing" if array is None else str(jnp.shape(array))),
                     (parameter.name, str(parameter.spec))),
                    "use a block of the same sizes, or pass names={...} if the layer belongs to another block.",
                    block=path,
                    port=parameter.port,
                )  # fmt: skip
            (state if parameter in pm.states else params)[parameter.name] = jnp.asarray(array, parameter.spec.dtype)
        left = {**layer.params, **layer.states}.keys() - {parameter.port for parameter in targets[path]}
        if left:
            raise UnexpectedInputError(
                f"{layer.path!r} of {library} has more parameters than {path!r}.",
                (("not used", ", ".join(sorted(left))),),
                "use a block with these parameters, such as Linear(..., use_bias=True).",
                block=path,
            )
    return Imported(None, params, state)


def _match_layers(
    library: str,
    layers: Sequence[Layer],
    targets: Mapping[str, Sequence[Parameter]],
    ops: Mapping[str, FlatOp],
    names: Mapping[str, str],
    is_sorted: bool,
) -> dict[str, Layer]:
    """Return a dict from the path of each block to its layer."""
    by_path = {layer.path: layer for layer in layers}
    for here, there in names.items():
        if here not in by_path or there not in targets:
            missing, available = (here, by_path) if here not in by_path else (there, targets)
            raise UnexpectedInputError(
                f"names={{...}} contains {missing!r}, but no {'block' if here in by_path else 'layer'} with parameters "
                "has this path.",
                (("known", ", ".join(map(repr, available)) or "none"),),
                f"names={{{(here if here in by_path else next(iter(by_path), here))!r}: "
                f"{(there if there in targets else next(iter(targets), there))!r}}}",
            )
    matches = {there: by_path[here] for here, there in names.items()}
    waiting: dict[str, list[str]] = {}
    for path, arrays in targets.items():
        op = ops.get(path)
        kind = _kind(op)
        if path not in matches:
            if kind is None:
                raise UnknownOptionError(
                    f"cannot fill {path!r} from {library}.",
                    (("block", op.block.kind if op else "inside a block that runs others"),
                     ("because", "the layout of its parameters differs from that of the library")),
                    f"params = {{**pm.randomize_params(), {arrays[0].name!r}: ...}}  # each array by its name",
                    block=path,
                )  # fmt: skip
            waiting.setdefault(kind, []).append(path)
    there = {
        layer.kind: [candidate for candidate in layers if candidate.kind == layer.kind and candidate.path not in names]
        for layer in layers
    }
    for kind in sorted({*waiting, *there}):
        mine, theirs = waiting.get(kind, []), there.get(kind, [])
        if len(mine) != len(theirs):
            raise UnexpectedInputError(
                f"{library} has {len(theirs)} layers of kind {kind!r}, but the model has {len(mine)}.",
                ((library, ", ".join(layer.path for layer in theirs) or "none"), ("model", ", ".join(mine) or "none")),
                "compile a model with the same layers, and pass it as into.",
            )
        if is_sorted:
            _check_order(library, dict(zip(mine, theirs, strict=True)))
        matches |= dict(zip(mine, theirs, strict=True))
    return matches


def _check_order(library: str, matched: Mapping[str, Layer]) -> None:
    """Raise if the order of two layers of equal shapes is unknown, because their names differ in more than a number."""
    for (here, layer), (there, other) in combinations(matched.items(), 2):
        if _shapes(layer) == _shapes(other) and not _is_numbered(layer.path, other.path):
            raise UnknownOptionError(
                f"the order of {layer.path!r} and {other.path!r} in {library} is unknown.",
                (("because", "both have the same shapes, and jax.tree.map and jit sort layers by their names"),
                 ("blocks", ", ".join(map(repr, matched)))),
                f"names={{{layer.path!r}: {here!r}, {other.path!r}: {there!r}}}  # or the other way round",
            )  # fmt: skip


def _shapes(layer: Layer) -> dict[str, tuple[int, ...]]:
    return {port: jnp.shape(array) for port, array in {**layer.params, **layer.states}.items()}


def _is_numbered(path: str, other: str) -> bool:
    """Return whether the first difference of two paths is a number, as in `a/Dense_1` and `a/Dense_2`."""
    pairs = zip(_STEPS.split(path), _STEPS.split(other), strict=False)
    a, b = next(((a, b) for a, b in pairs if a != b), ("", ""))
    return _numbered(a)[0] == _numbered(b)[0]


def _kind(op: FlatOp | None) -> str | None:
    if op is None:
        return None
    name = op.block.op
    return _KINDS.get(name) or next((kind for kind in ("conv_transpose", "conv", "batch_norm") if kind in name), None)


def _reordered(orders: Mapping[Endpoint, Order], op: FlatOp, layer: Layer) -> Layer:
    """Return a layer with its arrays in the order of the model.

    Only layers that read flattened images change: their features get the order with channels first, instead of last.

    Raises:
        ShapeError: The order of the elements of the image is unknown.
    """
    order, name = orders.get(op.sources.get("input", Endpoint("", ""))), op.block.op
    is_conv, is_per_channel = _kind(op) in ("conv", "conv_transpose"), name in PER_CHANNEL
    if isinstance(order, Split | Moved) and (is_conv or is_per_channel):
        by = f"{order.by!r}" if isinstance(order, Split) else "a Transpose"
        raise ShapeError(
            f"the order of the channels of {layer.path!r} is unknown.",
            (
                ("in the model", f"{op.path!r} reads channels on axis 1 of the output of {by}"),
                ("in the library", f"{layer.path!r} reads channels on the last axis"),
            ),
            f"put the channels last in {by}, and add a Transpose after it that moves them to axis 1.",
            block=op.path,
        )
    if order is None or isinstance(order, Moved | Split) or is_conv:
        return layer
    if isinstance(order, Image) and (is_per_channel or (order.is_moved and name in ON_LAST_AXIS)):
        return layer
    if isinstance(order, Rows) and name in ON_FEATURES:
        ports = ("weight",) if name == "linear" else (*layer.params, *layer.states)
        arrays = {port: _channels_first(array, order.sizes) if port in ports else array
                  for port, array in {**layer.params, **layer.states}.items()}  # fmt: skip
        return replace(
            layer,
            params={port: arrays[port] for port in layer.params},
            states={port: arrays[port] for port in layer.states},
        )
    if isinstance(order, Lost):
        because, rank = order.because, order.rank
    elif isinstance(order, Rows):
        because, rank = f"{op.path!r} works on groups of features from an image", len(order.sizes) + 1
    else:
        because = f"{op.path!r} reads an image with channels on axis 1, but the library has channels on the last axis"
        rank = order.rank
    axes = (0, *range(2, rank), 1)
    raise ShapeError(
        f"cannot match the parameters of {layer.path!r} to {op.path!r}: the order of its features is unknown.",
        (("because", because),),
        f"Transpose({axes})  # after the image: channels last, as in the library"
        if rank
        else "call ml.compile(model, shapes=...) with the sizes of the images.",
        block=op.path,
    )


def _channels_first(array: jax.Array, sizes: Sequence[int]) -> jax.Array:
    """Reorder the rows of an array that multiplies flattened images, from channels last to channels first."""
    channels, *window = sizes
    if prod(sizes) != array.shape[0]:
        return array  # the caller compares the shapes and raises
    rows = jnp.reshape(array, (*window, channels, *array.shape[1:]))
    return jnp.reshape(jnp.moveaxis(rows, len(window), 0), array.shape)


def in_order(paths: Iterable[str]) -> list[str]:
    """Return the paths in their order, but with numbered names sorted by number: `Dense_2` before `Dense_10`.

    Paths that start with the same name come one after the other.

    Examples:
        >>> in_order(["encoder", "Dense_10", "decoder", "Dense_2"])
        ['encoder', 'Dense_2', 'decoder', 'Dense_10']
        >>> in_order(["encoder/w", "decoder/w", "encoder/b"])
        ['encoder/w', 'encoder/b', 'decoder/w']
    """
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for step in _STEPS.split(path):
            node = node.setdefault(step, {})
        node[""] = path
    return list(_walked(tree))


def _walked(tree: Mapping[str, Any]) -> Iterable[str]:
    by_number = sorted(tree, key=lambda name: _numbered(name)[1])
    stems = {name: _numbered(name)[0] for name in tree}
    waiting = {stem: iter([name for name in by_number if stems[name] == stem]) for stem in stems.values()}
    for stem in stems.values():
        below = tree[next(waiting[stem])]
        yield from (below,) if isinstance(below, str) else _walked(below)


def _numbered(name: str) -> tuple[str, int]:
    """Return a name without its number, and the number. A name without a number, Haiku's first module, has -1."""
    stem, number = re.fullmatch(r"(.*?)_?(\d*)", name, re.S).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return stem, int(number or -1)


def may_be_sorted(tree: Mapping[Any, Any]) -> bool:
    """Return whether the keys are sorted on all levels, as `jax.tree.map` and `jit` return them.

    Examples:
        >>> may_be_sorted({"a": {"kernel": 1, "bias": 2}}), may_be_sorted({"a": {"bias": 2, "kernel": 1}})
        (False, True)
    """
    within = [subtree for subtree in tree.values() if isinstance(subtree, Mapping)]
    return list(tree) == sorted(tree) and all(map(may_be_sorted, within))
