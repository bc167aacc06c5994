"""Arrays of another library's layers, put where a compiled model has its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.errors import ShapeError, UnexpectedInputError, UnknownOptionError, short_repr
from mithril_nb.graph.records import Endpoint
from mithril_nb.graph.spec import LEADING, TensorSpec
from mithril_nb.interop.layers import Imported, Layer
from mithril_nb.models.flat import Flat, FlatOp, flat
from mithril_nb.models.infer import Parameter
from mithril_nb.physical import PhysicalModel

_KINDS = {
    "linear": "linear",
    "embedding": "embedding",
    "layer_norm": "norm",
    "rms_norm": "norm",
    "group_norm": "norm",
    "instance_norm": "norm",
}
_SHAPING = ("flatten", "reshape", "transpose", "permute", "squeeze", "expand", "swap")
_WINDOWS = ("conv", "pool", "batch_norm2d")
_STEPS = re.compile(r"[./]")
"""What stands between the names of a path."""


def filled(
    library: str,
    layers: Sequence[Layer],
    pm: Any,
    names: Mapping[str, str] | None,
    channels_last: bool,
    is_sorted: bool = False,
) -> Imported:
    """Return params and state of a physical model, from layers in the order of their kind.

    Args:
        library: The library's name.
        layers: Its layers with arrays.
        pm: The physical model.
        names: By path of a layer, the path of the block that it belongs to; the others go in order.
        channels_last: Whether channels are the last axis there.
        is_sorted: Whether the order of layers tells nothing, but where their names are numbered.

    Raises:
        UnknownOptionError: No physical model, a block that cannot be filled, or layers whose order is not known.
        UnexpectedInputError: Another number of layers of a kind than of blocks, or names of nothing.
        ShapeError: Arrays that do not fit.
    """
    if not isinstance(pm, PhysicalModel):
        raise UnknownOptionError(
            f"cannot put parameters into {short_repr(pm)}.",
            (("needs", "a compiled model"),),
            f"ml.from_{library.lower()}(..., into=ml.compile(model, shapes=...))",
        )
    ops = {op.path: op for op in flat(pm.graph).ops}
    targets: dict[str, list[Parameter]] = {}
    for one in (*pm.parameters, *pm.states):
        targets.setdefault(one.path, []).append(one)
    params: dict[str, jax.Array] = {}
    state: dict[str, jax.Array] = {}
    blocks = {path: ops.get(path) for path in targets}
    for path, layer in _matched(library, layers, blocks, names or {}, is_sorted).items():
        layer = _reordered(flat(pm.graph), pm, path, layer) if channels_last and layer.kind == "linear" else layer
        for one in targets[path]:
            array = {**layer.params, **layer.states}.get(one.port)
            if array is None or jnp.shape(array) != one.spec.shape:
                raise ShapeError(
                    f"{layer.path!r} of {library} does not fit {one.name!r}.",
                    ((layer.path, "nothing of the kind" if array is None else str(jnp.shape(array))),
                     (one.name, str(one.spec))),
                    "a block of the same sizes, or names={...} if it belongs to another one.",
                    block=path,
                    port=one.port,
                )  # fmt: skip
            (state if one in pm.states else params)[one.name] = jnp.asarray(array, one.spec.dtype)
        left = {**layer.params, **layer.states}.keys() - {one.port for one in targets[path]}
        if left:
            raise UnexpectedInputError(
                f"{layer.path!r} of {library} has more than {path!r} takes.",
                (("left over", ", ".join(sorted(left))),),
                "a block that has these too, as Linear(..., use_bias=True).",
                block=path,
            )
    return Imported(None, params, state)


def _matched(
    library: str,
    layers: Sequence[Layer],
    targets: Mapping[str, FlatOp | None],
    names: Mapping[str, str],
    is_sorted: bool,
) -> dict[str, Layer]:
    """The layer of each block."""
    by_path = {layer.path: layer for layer in layers}
    for here, there in names.items():
        if here not in by_path or there not in targets:
            missing, known = (here, by_path) if here not in by_path else (there, targets)
            raise UnexpectedInputError(
                f"names={{...}} speaks of {missing!r}, which has no parameters.",
                (("known", ", ".join(map(repr, known)) or "none"),),
                "one of these.",
            )
    found = {there: by_path[here] for here, there in names.items()}
    waiting: dict[str, list[str]] = {}
    for path, op in targets.items():
        kind = _kind(op)
        if path not in found:
            if kind is None:
                raise UnknownOptionError(
                    f"cannot fill {path!r} from {library}.",
                    (("is", op.block.kind if op else "inside a block that runs others"),
                     ("because", "its parameters are laid out in a way of its own")),
                    "give its parameters by name: {**params, ...}.",
                    block=path,
                )  # fmt: skip
            waiting.setdefault(kind, []).append(path)
    there = {kind: [one for one in layers if one.kind == kind and one.path not in names] for kind in _all_kinds(layers)}
    for kind in sorted({*waiting, *there}):
        mine, theirs = waiting.get(kind, []), there.get(kind, [])
        if len(mine) != len(theirs):
            raise UnexpectedInputError(
                f"{library} has {len(theirs)} layers of kind {kind!r}, the model {len(mine)}.",
                ((library, ", ".join(one.path for one in theirs) or "none"), ("model", ", ".join(mine) or "none")),
                'names={"there": "here"}, or a model with the same layers.',
            )
        if is_sorted:
            _check_order(library, dict(zip(mine, theirs, strict=True)))
        found |= dict(zip(mine, theirs, strict=True))
    return found


def _check_order(library: str, matched: Mapping[str, Layer]) -> None:
    """Raise if two layers could be swapped: equal in shapes, and of names that are sorted by their letters."""
    for (here, one), (there, other) in combinations(matched.items(), 2):
        if _shapes(one) == _shapes(other) and not _is_numbered(one.path, other.path):
            raise UnknownOptionError(
                f"{library} does not tell which comes first: {one.path!r} or {other.path!r}.",
                (("because", "both have the same shapes, and jax.tree.map and jit sort layers by their names"),
                 ("blocks", ", ".join(map(repr, matched)))),
                f"names={{{one.path!r}: {here!r}, {other.path!r}: {there!r}}}, or the other way round.",
            )  # fmt: skip


def _shapes(layer: Layer) -> dict[str, tuple[int, ...]]:
    return {port: jnp.shape(array) for port, array in {**layer.params, **layer.states}.items()}


def _is_numbered(one: str, other: str) -> bool:
    """Whether two paths part at names that differ in their number alone."""
    pairs = zip(_STEPS.split(one), _STEPS.split(other), strict=False)
    a, b = next(((a, b) for a, b in pairs if a != b), ("", ""))
    return _numbered(a)[0] == _numbered(b)[0]


def _all_kinds(layers: Sequence[Layer]) -> list[str]:
    return list(dict.fromkeys(layer.kind for layer in layers))


def _kind(op: FlatOp | None) -> str | None:
    if op is None:
        return None
    name = op.block.op
    return _KINDS.get(name) or next((kind for kind in ("conv_transpose", "conv", "batch_norm") if kind in name), None)


def _reordered(graph: Flat, pm: PhysicalModel, path: str, layer: Layer) -> Layer:
    """The rows of a weight that reads a flattened image, in the order of an image whose channels come first."""
    ops = {op.path: op for op in graph.ops}
    flatten = _before(ops, ops[path])
    if flatten is None or flatten.block.op != "flatten":
        return layer
    spec = pm.inference.blocks[flatten.path].inputs.get("input")
    if not isinstance(spec, TensorSpec) or not _is_image(ops, flatten, spec):
        return layer
    weight, sizes = layer.params["weight"], spec.shape[1:]
    if LEADING in spec.shape or not all(isinstance(size, int) for size in sizes):
        raise ShapeError(
            f"the order of the rows of {layer.path!r} is not known.",
            (("because", f"{flatten.path!r} joins axes of unknown size: {spec}"),),
            "ml.compile(model, shapes=...) with the sizes of the images.",
            block=path,
        )
    channels, *window = map(int, sizes)
    if prod((channels, *window)) != weight.shape[0]:
        return layer  # said when the shapes are compared
    rows = jnp.reshape(weight, (*window, channels, weight.shape[1]))
    rows = jnp.reshape(jnp.moveaxis(rows, -2, 0), weight.shape)
    return replace(layer, params={**layer.params, "weight": rows})


def _is_image(ops: Mapping[str, FlatOp], op: FlatOp, spec: TensorSpec) -> bool:
    """Whether what an op reads has channels before the axes that windows slide over."""
    before = _before(ops, op)
    while before is not None and before.block.op.endswith("_norm"):
        before = _before(ops, before)
    if before is None:
        return LEADING in spec.shape or len(spec.shape) > 3  # straight from the model's input: a batch of images
    return any(word in before.block.op for word in _WINDOWS)


def _before(ops: Mapping[str, FlatOp], op: FlatOp) -> FlatOp | None:
    """The op before, past those that leave every item where it is; `None` at the model's input."""
    while True:
        before = ops.get(op.sources.get("input", Endpoint("", "")).node)
        plain = before is not None and set(before.sources) == {"input"} and not before.arrays
        if before is None or not plain or any(word in before.block.op for word in (*_SHAPING, *_WINDOWS)):
            return before
        op = before


def in_order(paths: Iterable[str]) -> list[str]:
    """Return paths as they came, but siblings of one stem by their numbers: `Dense_2` before `Dense_10`.

    Examples:
        >>> in_order(["encoder", "Dense_10", "decoder", "Dense_2"])
        ['encoder', 'Dense_2', 'decoder', 'Dense_10']
    """
    tree: dict[str, Any] = {}
    for path in paths:
        place = tree
        for step in _STEPS.split(path):
            place = place.setdefault(step, {})
        place[""] = path
    return list(_walked(tree))


def _walked(tree: Mapping[str, Any]) -> Iterable[str]:
    stems = {name: _numbered(name)[0] for name in tree}
    waiting = {
        stem: iter(sorted((name for name in tree if stems[name] == stem), key=_number)) for stem in stems.values()
    }
    for stem in stems.values():
        below = tree[next(waiting[stem])]
        yield from (below,) if isinstance(below, str) else _walked(below)


def _numbered(name: str) -> tuple[str, int]:
    """The stem and the number of a name; the first of several has none in Haiku."""
    stem, number = re.fullmatch(r"(.*?)_?(\d*)", name, re.S).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return stem, int(number or -1)


def _number(name: str) -> int:
    return _numbered(name)[1]


def may_be_sorted(tree: Mapping[Any, Any]) -> bool:
    """Return whether the names of arrays are sorted throughout, as `jax.tree.map` and `jit` leave them.

    Examples:
        >>> may_be_sorted({"a": {"kernel": 1, "bias": 2}}), may_be_sorted({"a": {"bias": 2, "kernel": 1}})
        (False, True)
    """
    within = [one for one in tree.values() if isinstance(one, Mapping)]
    return list(tree) == sorted(tree) and all(map(may_be_sorted, within))
