"""Compare the order of elements in the images of a model with that in a library that has channels last."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from mithril_nb.graph.records import Endpoint
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.op import OPS
from mithril_nb.models.shape_inference.flat import Flat, FlatOp
from mithril_nb.models.shape_inference.infer import Inference

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
class Rows:
    """The order of flattened images `(batch, features)`: channels come first in the model, and last in the library.

    Attributes:
        sizes: Sizes of the channel axis and the spatial axes before flattening.
    """

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Split:
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
        rank: Number of axes of the image; 0 if the sizes of its axes are unknown.
    """

    because: str
    rank: int = 0


Order = Image | Moved | Rows | Split | Lost | None
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
    """Yield the arrays that an op reads on its data ports."""
    for port in op.block.inputs:
        spec = specs.get(port.name)
        if port.role == "data" and port.name in op.sources and isinstance(spec, TensorSpec):
            yield port.name, spec


def _read_as_images(graph: Flat, inference: Inference) -> set[Endpoint]:
    """Return the sources of images: what convolutions, pools and Flatten read, and arrays of this shape before it."""
    images: set[Endpoint] = set()
    for op in reversed(graph.ops):
        specs = inference.blocks[op.path]
        arrays = dict(_arrays_of(op, specs.inputs))
        image_shapes = [spec.shape for port, spec in specs.outputs.items() if isinstance(spec, TensorSpec)
                 and Endpoint(op.path, port) in images]  # fmt: skip
        for port, spec in arrays.items():
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
    """Return the order of an output from the orders of the op's inputs.

    Args:
        op: The op.
        read: The order and spec of each array that the op reads.
        shape: The shape of the output.
        is_learned: True if the output depends on the parameters of a layer.
    """
    name = op.block.op
    lost = next((order for order, _ in read if isinstance(order, Lost)), None)
    if lost is not None:
        return lost
    others = {order for order, _ in read if isinstance(order, Image | Rows)}
    is_window = _WINDOWS.search(name) is not None
    split = next(
        (order for order, spec in read if isinstance(order, Split) and (is_window or len(spec.shape) == len(shape))),
        None,
    )
    if split is not None and not others and name in _TRANSPOSING:
        return None if _permutation(op, len(shape)) == [0, len(shape) - 1, *range(1, len(shape) - 1)] else split
    if split is not None and not others:
        return split
    if name in _RESHAPING and is_learned and not others and shape[1:2] != (1,) and _product(shape[2:]) != 1:
        return Split(op.path)
    if is_window and not any(isinstance(order, Rows) for order in others):
        return Image(len(shape)) if LEADING in shape or len(shape) > 2 else None
    if not others:
        is_moved = any(isinstance(order, Moved) for order, _ in read)
        if not is_moved and len(shape) > 2 and name in (*ON_LAST_AXIS, "embedding"):
            return Split(op.path)
        return _behind_moved(op, shape, [len(spec.shape) for _, spec in read]) if is_moved else None
    order, spec = next((order, spec) for order, spec in read if order in others)
    assert isinstance(order, Image | Rows)
    after = Lost(
        f"{op.path!r} changes the order of the elements of an image in an unknown way",
        order.rank if isinstance(order, Image) else len(order.sizes) + 1,
    )
    if is_window or any(not _goes_with(other, against.shape, order) for other, against in read):
        return after
    return (_of_image if isinstance(order, Image) else _of_rows)(op, order, spec.shape, shape, after)  # pyright: ignore[reportArgumentType]


def _goes_with(other: Order, shape: tuple[Dim, ...], order: Image | Rows) -> bool:
    """Return whether an elementwise op on an array and an image or rows keeps the order of the image or rows."""
    if other is not None or isinstance(other, Moved):
        return type(other) is type(order) and (isinstance(other, Image) or other == order)
    if isinstance(order, Rows):
        return shape[-1:] in ((), (1,))
    # An array with one item per channel, `(batch, channels, 1, 1)` or `(channels, 1, 1)`, has the same order in both.
    windows = shape[max(0, len(shape) - order.rank + 2) :]
    return LEADING not in shape and all(size == 1 for size in windows)


def _of_image(op: FlatOp, order: Image, input_shape: tuple[Dim, ...], shape: tuple[Dim, ...], lost: Lost) -> Order:
    name = op.block.op
    if name in _RESHAPING:
        return _reshaped(op, order, input_shape, shape, lost)
    if LEADING in input_shape:
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
    if 1 in (channels, prod(windows)):
        return None
    return Rows((channels, *windows)) if shape == (input_shape[0], prod(sizes)) else lost


def _product(sizes: tuple[Dim, ...]) -> int | None:
    known_sizes = [size for size in sizes if isinstance(size, int)]
    return prod(known_sizes) if len(known_sizes) == len(sizes) else None


def _reduced(op: FlatOp, order: Image, shape: tuple[Dim, ...], lost: Lost) -> Order:
    """Return the order of the result of a reduction of an image."""
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


def _of_rows(op: FlatOp, order: Rows, input_shape: tuple[Dim, ...], shape: tuple[Dim, ...], lost: Lost) -> Order:
    name = op.block.op
    if name == "linear":
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
    """Return the order of the result of an op on a `Moved` image: `Image` if the op moves the channels to axis 1."""
    rank = max(ranks)
    if op.block.op in _TRANSPOSING:
        axes = _permutation(op, rank)
        return Image(rank, is_moved=True) if axes is not None and axes[:2] == [0, rank - 1] else None
    return Moved() if len(shape) == rank and op.block.op not in _RESHAPING else None


def _permutation(op: FlatOp, rank: int) -> list[int] | None:
    """Return the axes of a transposing op, an input axis for each output axis; `None` if they are unknown."""
    options = op.block.options
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
