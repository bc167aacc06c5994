"""Fill the parameters of a compiled model with the arrays of another library's layers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.compilation import PhysicalModel
from mithril_nb.errors import ShapeError, UnexpectedInputError, UnknownOptionError, short_repr
from mithril_nb.graph.records import Endpoint
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.interop.layers import ForeignLayer, Imported
from mithril_nb.models.op import OPS
from mithril_nb.models.shape_inference.flat import Flat, FlatOp, flat
from mithril_nb.models.shape_inference.infer import Inference, Parameter

PER_CHANNEL = ("batch_norm", "batch_norm1d", "batch_norm2d", "table_batch_norm2d", "group_norm", "instance_norm")
ON_LAST_AXIS = ("linear", "layer_norm", "rms_norm")
ON_FEATURES = (*ON_LAST_AXIS, "batch_norm", "batch_norm1d")
"""Ops whose arrays have one element per feature of `(batch, features)`."""
_WINDOWS = re.compile(r"(conv|convolution|conv_transpose|pool)[123]d$|batch_norm2d$")
_RESHAPING = ("flatten", "reshape", "squeeze", "expand_dims")
_ALONG_AXES = ("concat", "split", "pad", "repeat_items", "tile")
_REDUCING = ("mean", "sum", "prod", "max", "min", "variance", "log_sum_exp", "norm")
_TRANSPOSING = ("transpose", "swap_axes")
_MIXING = ("matrix_multiply", "cartesian_difference")
_PLAIN = ("dropout", "identity", "buffer", "stop_gradient", *(op for op in ON_FEATURES if op != "linear"))


@dataclass(frozen=True)
class Image:
    """The order of an image: channels are on axis 1 in the model, and on the last axis in the library.

    Attributes:
        rank: Number of axes.
        is_moved: True if a block of the model moved the channels to axis 1. The library's model does the same, so the
            orders are equal.
    """

    rank: int
    is_moved: bool = False


@dataclass(frozen=True)
class Moved:
    """An image whose channels the model moved to the last axis, so that its order equals the library's."""


@dataclass(frozen=True)
class FlatImages:
    """The order of flattened images `(batch, features)`: channels come first in the model, and last in the library.

    Attributes:
        sizes: Sizes of the channel axis and the spatial axes before flattening.
    """

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class FeaturesLast:
    """The library's order, with features on the last axis, so that no op may read axis 1 as channels.

    Attributes:
        by: Path of the block that computes the features: a Reshape, or a layer over the last axis.
    """

    by: str


@dataclass(frozen=True)
class Lost:
    """An unknown order.

    Attributes:
        because: The reason, with the path of the block that changes the order.
    """

    because: str


Order = Image | Moved | FlatImages | FeaturesLast | Lost | None
"""Order of an array compared with the same array in the library. `None` means that both are equal."""


def orders_of(graph: Flat, inference: Inference) -> dict[Endpoint, Order]:
    """Return the order of each array of a model, by the endpoint that computes it. Of the inputs, only images count."""
    images = _read_as_images(graph, inference)
    orders: dict[Endpoint, Order] = {}
    learned: set[str] = set()  # layers with parameters, and ops after them
    for name, spec in inference.inputs.items():
        end = Endpoint("", name)
        if end in images and isinstance(spec, TensorSpec):
            orders[end] = Image(len(spec.shape))
    for op in graph.ops:
        specs = inference.blocks[op.path]
        is_learned = bool(op.arrays) or any(source.node in learned for source in op.sources.values())
        learned |= {op.path} if is_learned else set()
        read = [(orders.get(op.sources[port]), spec) for port, spec in _arrays_of(op, specs.inputs)]
        for port, spec in specs.outputs.items():
            if isinstance(spec, TensorSpec):
                orders[Endpoint(op.path, port)] = _after(op, read, spec.shape, is_learned)
    return orders


def _arrays_of(op: FlatOp, specs: Mapping[str, Any]) -> Iterable[tuple[str, TensorSpec]]:
    for port in op.block.inputs:
        spec = specs.get(port.name)
        if port.role == "data" and port.name in op.sources and isinstance(spec, TensorSpec):
            yield port.name, spec


def _read_as_images(graph: Flat, inference: Inference) -> set[Endpoint]:
    images: set[Endpoint] = set()
    for op in reversed(graph.ops):
        specs = inference.blocks[op.path]
        arrays = dict(_arrays_of(op, specs.inputs))
        image_shapes = [spec.shape for port, spec in specs.outputs.items() if isinstance(spec, TensorSpec)
                 and Endpoint(op.path, port) in images]  # fmt: skip
        for port, spec in arrays.items():
            # Backwards: what a convolution reads is an image, and so is what has the same shape before it.
            if _WINDOWS.search(op.block.op) and port == "input":
                is_image = True
            elif op.block.op in ("flatten", "reshape"):
                results = [spec.shape for spec in specs.outputs.values() if isinstance(spec, TensorSpec)]
                is_image = LEADING in spec.shape or (len(spec.shape) > 3 and any(len(shape) == 2 for shape in results))
            else:
                is_image = spec.shape in image_shapes and op.block.op not in ON_LAST_AXIS
            if is_image:
                images.add(op.sources[port])
    return images


def _after(op: FlatOp, read: list[tuple[Order, TensorSpec]], shape: tuple[Dim, ...], is_learned: bool) -> Order:
    name = op.block.op
    # The first unknown order is the reason; what follows from it would only hide the block.
    lost = next((order for order, _ in read if isinstance(order, Lost)), None)
    if lost is not None:
        return lost
    # Arrays with the library's order, such as biases, do not change that of the others.
    others = {order for order, _ in read if isinstance(order, Image | FlatImages)}
    is_window = _WINDOWS.search(name) is not None
    split = next(
        (
            order
            for order, spec in read
            if isinstance(order, FeaturesLast) and (is_window or len(spec.shape) == len(shape))
        ),
        None,
    )
    if split is not None and not others and name in _TRANSPOSING:
        return None if _permutation(op, len(shape)) == [0, len(shape) - 1, *range(1, len(shape) - 1)] else split
    if split is not None and not others:
        return split
    if name in _RESHAPING and is_learned and not others and shape[1:2] != (1,) and _product(shape[2:]) != 1:
        return FeaturesLast(op.path)
    if is_window and not any(isinstance(order, FlatImages) for order in others):
        return Image(len(shape)) if LEADING in shape or len(shape) > 2 else None
    if not others:
        is_moved = any(isinstance(order, Moved) for order, _ in read)
        if not is_moved and len(shape) > 2 and name in (*ON_LAST_AXIS, "embedding"):
            return FeaturesLast(op.path)
        return _behind_moved(op, shape, [len(spec.shape) for _, spec in read]) if is_moved else None
    order, spec = next((order, spec) for order, spec in read if order in others)
    assert isinstance(order, Image | FlatImages)
    # Whatever no rule below covers: a wrong order would give wrong numbers without an error.
    after = Lost(f"{op.path!r} changes the order of the elements of an image in an unknown way")
    if is_window or any(not _goes_with(other, against.shape, order) for other, against in read):
        return after
    return (_of_image if isinstance(order, Image) else _of_rows)(op, order, spec.shape, shape, after)  # pyright: ignore[reportArgumentType]


def _goes_with(other: Order, shape: tuple[Dim, ...], order: Image | FlatImages) -> bool:
    if other is not None or isinstance(other, Moved):
        return type(other) is type(order) and (isinstance(other, Image) or other == order)
    if isinstance(order, FlatImages):
        return shape[-1:] in ((), (1,))
    # An array with one item per channel, `(batch, channels, 1, 1)` or `(channels, 1, 1)`, has the same order in both.
    windows = shape[max(0, len(shape) - order.rank + 2) :]
    return LEADING not in shape and all(size == 1 for size in windows)


def _of_image(op: FlatOp, order: Image, input_shape: tuple[Dim, ...], shape: tuple[Dim, ...], lost: Lost) -> Order:
    name = op.block.op
    if name in _RESHAPING:
        return _reshaped(op, order, input_shape, shape, lost)
    if LEADING in input_shape:  # of unknown rank, so axes cannot be counted
        return order if shape == input_shape and name not in _TRANSPOSING else lost
    if name in _TRANSPOSING:
        axes = _permutation(op, order.rank)
        if axes is None or axes[0] != 0:
            return lost
        return Moved() if axes[-1] == 1 else Image(order.rank, order.is_moved) if axes[1] == 1 else lost
    if name in ON_LAST_AXIS and not order.is_moved:
        return lost
    if shape == input_shape or (name in (*_ALONG_AXES, *ON_LAST_AXIS) and len(shape) == order.rank):
        return order
    return _reduced(op, order, shape, lost)


def _reshaped(op: FlatOp, order: Image, input_shape: tuple[Dim, ...], shape: tuple[Dim, ...], lost: Lost) -> Order:
    sizes = [size for size in input_shape[1:] if isinstance(size, int)]
    if LEADING in input_shape or len(sizes) < len(input_shape) - 1:
        return Lost(f"{op.path!r} joins axes of unknown size: {TensorSpec(input_shape)}")
    channels, *windows = sizes
    if shape[:2] == (input_shape[0], channels) and prod(windows) == _product(shape[2:]):
        return Image(len(shape), order.is_moved) if len(shape) > 2 else None
    if 1 in (channels, prod(windows)):  # then both orders are the same
        return None
    return FlatImages((channels, *windows)) if shape == (input_shape[0], prod(sizes)) else lost


def _product(sizes: tuple[Dim, ...]) -> int | None:
    known_sizes = [size for size in sizes if isinstance(size, int)]
    return prod(known_sizes) if len(known_sizes) == len(sizes) else None


def _reduced(op: FlatOp, order: Image, shape: tuple[Dim, ...], lost: Lost) -> Order:
    axis = op.block.options.get("axis")
    if op.block.op not in _REDUCING or "axis" in op.sources or LEADING in shape:
        return lost
    if axis is None:
        return None
    axes = {index % order.rank for index in _axes(axis)}
    if len(shape) == order.rank:
        return order
    if 0 in axes:
        return lost
    return None if 1 in axes or len(shape) == 2 else Image(len(shape), order.is_moved)


def _of_rows(op: FlatOp, order: FlatImages, input_shape: tuple[Dim, ...], shape: tuple[Dim, ...], lost: Lost) -> Order:
    name = op.block.op
    if name == "linear":  # `_reordered` moves the rows of its weight
        return None
    category = OPS[name].category if name in OPS else ""
    is_plain = name in _PLAIN or (category in ("Activations", "Arithmetic", "Logic") and name not in _MIXING)
    if shape == input_shape and (is_plain or name in _RESHAPING):
        return order
    if name in _RESHAPING and shape == (input_shape[0], *order.sizes):
        return Image(len(shape))
    if name in _REDUCING and "axis" not in op.sources:
        axis = op.block.options.get("axis")
        if axis is None or {index % 2 for index in _axes(axis)} == {1}:
            return None
    return lost


def _behind_moved(op: FlatOp, shape: tuple[Dim, ...], ranks: list[int]) -> Order:
    rank = max(ranks)
    if op.block.op in _TRANSPOSING:
        axes = _permutation(op, rank)
        return Image(rank, is_moved=True) if axes is not None and axes[:2] == [0, rank - 1] else None
    return Moved() if len(shape) == rank and op.block.op not in _RESHAPING else None


def _permutation(op: FlatOp, rank: int) -> list[int] | None:
    options = op.block.options
    # Axes that another block computes are unknown here.
    if any(port in op.sources for port in ("axes", "axis1", "axis2")):
        return None
    axes = list(range(rank))
    if op.block.op == "transpose":
        return [axis % rank for axis in _axes(options["axes"])] or axes[::-1]
    first, second = (axis % rank for axis in _axes((options["axis1"], options["axis2"])))
    axes[first], axes[second] = axes[second], axes[first]
    return axes


def _axes(axis: Any) -> tuple[int, ...]:
    return () if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


_KINDS = {
    "linear": "linear",
    "embedding": "embedding",
    "layer_norm": "norm",
    "rms_norm": "norm",
    "group_norm": "norm",
    "instance_norm": "norm",
}
_STEPS = re.compile(r"[./]")  # Flax and Equinox have dots, Haiku slashes
"""Separators of the names in a path."""


def fill_model(
    library: str,
    layers: Sequence[ForeignLayer],
    pm: Any,
    names: Mapping[str, str] | None,
    channels_last: bool,
    is_sorted: bool = False,
) -> Imported:
    """Match layers to the blocks of a physical model by kind, in order, and return its params and state."""
    if not isinstance(pm, PhysicalModel):
        raise UnknownOptionError(
            f"cannot put parameters into {short_repr(pm)}.",
            (("needs", "a compiled model"),),
        )
    ops = {op.path: op for op in flat(pm.graph).ops}
    targets: dict[str, list[Parameter]] = {}
    for parameter in (*pm.parameters, *pm.states):
        targets.setdefault(parameter.path, []).append(parameter)
    params: dict[str, jax.Array] = {}
    state: dict[str, jax.Array] = {}
    # With channels first, as in Equinox, flattened images have the order of the model.
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
                    block=path,
                    port=parameter.port,
                )  # fmt: skip
            (state if parameter in pm.states else params)[parameter.name] = jnp.asarray(array, parameter.spec.dtype)
        # A bias that the block lacks would be dropped without a trace.
        left = {**layer.params, **layer.states}.keys() - {parameter.port for parameter in targets[path]}
        if left:
            raise UnexpectedInputError(
                f"{layer.path!r} of {library} has more parameters than {path!r}.",
                (("not used", ", ".join(sorted(left))),),
                block=path,
            )
    return Imported(None, params, state)


def _match_layers(
    library: str,
    layers: Sequence[ForeignLayer],
    targets: Mapping[str, Sequence[Parameter]],
    ops: Mapping[str, FlatOp],
    names: Mapping[str, str],
    is_sorted: bool,
) -> dict[str, ForeignLayer]:
    by_path = {layer.path: layer for layer in layers}
    for here, there in names.items():
        if here not in by_path or there not in targets:
            missing, available = (here, by_path) if here not in by_path else (there, targets)
            raise UnexpectedInputError(
                f"names={{...}} contains {missing!r}, but no {'block' if here in by_path else 'layer'} with parameters "
                "has this path.",
                (("known", ", ".join(map(repr, available)) or "none"),),
            )
    matches = {there: by_path[here] for here, there in names.items()}
    waiting: dict[str, list[str]] = {}
    for path in targets:
        op = ops.get(path)
        kind = _kind(op)
        if path not in matches:
            if kind is None:
                raise UnknownOptionError(
                    f"cannot fill {path!r} from {library}.",
                    (("block", op.block.kind if op else "inside a block that runs others"),
                     ("because", "the layout of its parameters differs from that of the library")),
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
            )
        if is_sorted:
            _check_order(library, dict(zip(mine, theirs, strict=True)))
        matches |= dict(zip(mine, theirs, strict=True))
    return matches


def _check_order(library: str, matched: Mapping[str, ForeignLayer]) -> None:
    # Other shapes would raise later, so only layers of equal shapes can be mistaken for each other.
    for layer, other in combinations(matched.values(), 2):
        if _shapes(layer) == _shapes(other) and not _is_numbered(layer.path, other.path):
            raise UnknownOptionError(
                f"the order of {layer.path!r} and {other.path!r} in {library} is unknown.",
                (("because", "both have the same shapes, and jax.tree.map and jit sort layers by their names"),
                 ("blocks", ", ".join(map(repr, matched)))),
                "names={...}  # from the paths of the layers to those of the blocks",
            )  # fmt: skip


def _shapes(layer: ForeignLayer) -> dict[str, tuple[int, ...]]:
    return {port: jnp.shape(array) for port, array in {**layer.params, **layer.states}.items()}


def _is_numbered(path: str, other: str) -> bool:
    pairs = zip(_STEPS.split(path), _STEPS.split(other), strict=False)
    a, b = next(((a, b) for a, b in pairs if a != b), ("", ""))
    return _numbered(a)[0] == _numbered(b)[0]


def _kind(op: FlatOp | None) -> str | None:
    if op is None:
        return None
    name = op.block.op
    # "conv_transpose2d" before "conv2d": both contain "conv".
    return _KINDS.get(name) or next((kind for kind in ("conv_transpose", "conv", "batch_norm") if kind in name), None)


def _reordered(orders: Mapping[Endpoint, Order], op: FlatOp, layer: ForeignLayer) -> ForeignLayer:
    order, name = orders.get(op.sources.get("input", Endpoint("", ""))), op.block.op
    is_conv, is_per_channel = _kind(op) in ("conv", "conv_transpose"), name in PER_CHANNEL
    if isinstance(order, FeaturesLast | Moved) and (is_conv or is_per_channel):
        by = f"{order.by!r}" if isinstance(order, FeaturesLast) else "a Transpose"
        raise ShapeError(
            f"the order of the channels of {layer.path!r} is unknown.",
            (
                ("in the model", f"{op.path!r} reads channels on axis 1 of the output of {by}"),
                ("in the library", f"{layer.path!r} reads channels on the last axis"),
            ),
            block=op.path,
        )
    # A kernel has its own axes of channels, so the order of the image does not matter.
    if order is None or isinstance(order, Moved | FeaturesLast) or is_conv:
        return layer
    if isinstance(order, Image) and (is_per_channel or (order.is_moved and name in ON_LAST_AXIS)):
        return layer
    if isinstance(order, FlatImages) and name in ON_FEATURES:
        ports = ("weight",) if name == "linear" else (*layer.params, *layer.states)
        arrays = {port: _channels_first(array, order.sizes) if port in ports else array
                  for port, array in {**layer.params, **layer.states}.items()}  # fmt: skip
        return replace(
            layer,
            params={port: arrays[port] for port in layer.params},
            states={port: arrays[port] for port in layer.states},
        )
    if isinstance(order, Lost):
        because = order.because
    elif isinstance(order, FlatImages):
        because = f"{op.path!r} works on groups of features from an image"
    else:
        because = f"{op.path!r} reads an image with channels on axis 1, but the library has channels on the last axis"
    raise ShapeError(
        f"cannot match the parameters of {layer.path!r} to {op.path!r}: the order of its features is unknown.",
        (("because", because),),
        block=op.path,
    )


def _channels_first(array: jax.Array, sizes: Sequence[int]) -> jax.Array:
    # Features of (height, width, channels) become those of (channels, height, width).
    channels, *window = sizes
    if prod(sizes) != array.shape[0]:
        return array  # the caller compares the shapes and raises
    rows = jnp.reshape(array, (*window, channels, *array.shape[1:]))
    return jnp.reshape(jnp.moveaxis(rows, len(window), 0), array.shape)


def in_order(paths: Iterable[str]) -> list[str]:
    """Return the paths in their order, but with numbered names sorted by number: `Dense_2` before `Dense_10`.

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
    # Only names with the same stem change places: the order of "encoder" and "decoder" is that of the library.
    by_number = sorted(tree, key=lambda name: _numbered(name)[1])
    stems = {name: _numbered(name)[0] for name in tree}
    waiting = {stem: iter([name for name in by_number if stems[name] == stem]) for stem in stems.values()}
    for stem in stems.values():
        below = tree[next(waiting[stem])]
        yield from (below,) if isinstance(below, str) else _walked(below)


def _numbered(name: str) -> tuple[str, int]:
    # Haiku's first module has no number: linear, linear_1.
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
