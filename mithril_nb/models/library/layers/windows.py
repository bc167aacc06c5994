"""Sliding windows over the last axes of an array: attributes and shapes that convolutions and pools share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.fields import Range, RangeByAxes, fields_of
from mithril_nb.models.library.operations.shape_rules import is_count
from mithril_nb.models.op import UNKNOWN, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, same_padding, window_size

if TYPE_CHECKING:
    from mithril_nb.models.model import Model

Size = Annotated[int, Range(1, 2**20)]
_RANGES = (Range(1, 2**16, length=1), Range(1, 64, length=2), Range(1, 64, length=3))
Line = Annotated[int | Sequence[int], _RANGES[0]]
Pair = Annotated[int | Sequence[int], _RANGES[1]]
Window = Annotated[int | Sequence[int], RangeByAxes(_RANGES)]

SPATIAL = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
"""Names of the axes after batch and channels, for 1 to 3 axes."""


@dataclass(frozen=True)
class Windows:
    """The windows that a convolution or a pool slides over some axes.

    Attributes:
        size: For each axis, the number of items in a window.
        stride: For each axis, the distance between neighbouring windows.
        dilation: For each axis, the distance between neighbouring items of a window.
        padding: `"same"`, `"valid"`, or for each axis the numbers of items added before and after it.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: str | tuple[tuple[int, int], ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """For each axis, the number of positions that a window with dilation covers."""
        return tuple((size - 1) * step + 1 for size, step in zip(self.size, self.dilation, strict=True))

    def pads(self, sizes: Sequence[Dim]) -> tuple[tuple[int, int], ...]:
        """Return the numbers of items added before and after each axis. `sizes` are the sizes of the axes."""
        if isinstance(self.padding, tuple):
            return self.padding
        if self.padding == "valid":
            return ((0, 0),) * len(self.size)
        return tuple(same_padding(*args) for args in zip(sizes, self.reach, self.stride, strict=True))

    def counts(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Return the numbers of windows on the last axes of an array of this shape.

        Raises:
            MismatchError: No window fits on an axis.
        """
        reach, lead = self.reach, len(shape) - len(self.size)
        sizes = zip(shape[lead:], reach, self.stride, self.pads(shape[lead:]), strict=True)
        counts = tuple(window_size(size, window, step, *pads) for size, window, step, pads in sizes)
        for axis, (count, window) in enumerate(zip(counts, reach, strict=True), start=lead):
            if count == 0:
                raise MismatchError(
                    "input",
                    f"at least {window} items on axis {axis}",
                    f"padding='same'  # or a smaller kernel_size: a window covers {'x'.join(map(str, reach))} items",
                    f"axis {axis}: {shape[axis]} < {window}",
                )
        return counts


def windows(options: Mapping[str, Any], axes: int, size: Sequence[int] | None = None) -> Windows | None:
    """Return the windows of a block; `None` if an attribute is known only at run time.

    Args:
        options: The attributes `kernel_size`, `stride`, `padding` and `dilation`. A missing stride is the size of a
            window, a missing padding is `"valid"`, and a missing dilation is 1.
        axes: Number of axes that the windows slide over.
        size: For each axis, the number of items in a window. Default: `kernel_size`.

    Raises:
        MismatchError: A value is invalid.

    Examples:
        >>> windows({"stride": 2, "padding": 1}, 2, size=(3, 3))
        Windows(size=(3, 3), stride=(2, 2), dilation=(1, 1), padding=((1, 1), (1, 1)))
    """
    kernel = options.get("kernel_size") if size is None else tuple(size)
    stride, padding, dilation = options.get("stride"), options.get("padding", "valid"), options.get("dilation", 1)
    if kernel is None or UNKNOWN in (kernel, stride, padding, dilation):
        return None
    lengths = each("kernel_size", kernel, axes)
    return Windows(
        lengths,
        lengths if stride is None else each("stride", stride, axes),
        each("dilation", dilation, axes),
        paddings("padding", padding, axes),
    )


def transposed_pads(window: Windows, extra: int = 0) -> tuple[tuple[int, int], ...]:
    """Return the padding before and after each axis of a transposed convolution's input.

    The padding is added after `stride - 1` zeros are inserted between the items of the input.

    Args:
        window: The windows of the transposed convolution.
        extra: Number of items to add at the end of each axis of the output.

    Examples:
        >>> transposed_pads(windows({"stride": 2, "padding": "same"}, 1, size=(3,)))
        ((2, 1),)
    """
    pads: list[tuple[int, int]] = []
    for axis, (reach, step) in enumerate(zip(window.reach, window.stride, strict=True)):
        if window.padding == "same":  # as in Flax and TensorFlow: size * stride items; an odd total pads more before
            total = reach + step - 2
            before = reach - 1 if step > reach - 1 else -(-total // 2)
            pads.append((before, total - before + extra))
        else:
            before, after = (0, 0) if isinstance(window.padding, str) else window.padding[axis]
            pads.append((reach - 1 - before, reach - 1 - after + extra))
    return tuple(pads)


def each(port: str, value: Value, axes: int) -> tuple[int, ...]:
    """Return the value of the attribute `port`, one number or a tuple, as a tuple with one number per axis.

    Raises:
        MismatchError: The value contains something else than positive integers, or the wrong count of them.

    Examples:
        >>> each("stride", 2, axes=3), each("stride", (1, 2), axes=2)
        ((2, 2, 2), (1, 2))
    """
    numbers = (value,) * axes if isinstance(value, int) else value
    if isinstance(numbers, tuple) and len(numbers) == 1:
        numbers *= axes
    if not isinstance(numbers, tuple) or len(numbers) != axes or not all(is_count(number, 1) for number in numbers):
        need = "a whole number, 1 or more" if axes == 1 else f"{axes} whole numbers, each 1 or more"
        raise MismatchError(port, need, f"{port}=2", repr(value))
    return numbers  # pyright: ignore[reportReturnType]


def paddings(port: str, value: Value, axes: int) -> str | tuple[tuple[int, int], ...]:
    """Return the value of the attribute `port`, a padding, as `"same"`, `"valid"`, or one pair of numbers per axis.

    One number is the padding at both ends of an axis, or of all axes. For a single axis, two numbers are a pair.

    Raises:
        MismatchError: The value is not a padding, see `padding_need`.

    Examples:
        >>> paddings("padding", (1, 2), 2), paddings("padding", (1, 2), 1)
        (((1, 1), (2, 2)), ((1, 2),))
    """
    if value in ("same", "valid"):
        return str(value)
    pads: Any = (value,) * axes if isinstance(value, int) else value
    if axes == 1 and isinstance(pads, tuple) and len(pads) == 2:
        pads = (pads,)  # before and after the only axis
    if isinstance(pads, tuple) and len(pads) == axes:
        pairs = tuple((pad, pad) if isinstance(pad, int) else pad for pad in pads)
        if all(isinstance(pair, tuple) and len(pair) == 2 and all(is_count(n, 0) for n in pair) for pair in pairs):
            return pairs
    raise MismatchError(port, padding_need(axes), f"{port}='same'", repr(value))


def padding_need(axes: int) -> str:
    """Return the list of valid values of an attribute `padding`, for messages."""
    if axes == 1:
        return "'same', 'valid', a number, or a pair (before, after)"
    return f"'same', 'valid', a number, {axes} numbers, or {axes} pairs (before, after)"


def refuse_padding(block: Model, axes: int) -> None:
    """Raise an `UnknownOptionError` if the attribute `padding` of a block with windows over `axes` axes is invalid."""
    value = block.options["padding"]
    try:
        paddings("padding", value, axes)
    except MismatchError:
        doc = next(field.doc for field in fields_of(type(block)) if field.name == "padding")
        raise refusal(block, "padding", (("needs", padding_need(axes)), ("means", doc)), "same") from None


def refusal(block: Model, key: str, facts: tuple[tuple[str, str], ...], better: Value) -> UnknownOptionError:
    """Return the error for an invalid attribute `key` of a block, with the valid value `better` in its advice."""
    attributes = {key: value for key, value in block.options.items() if key == "out_channels" and value is not None}
    call = ", ".join(f"{name}={value!r}" for name, value in {**attributes, key: better}.items())
    return UnknownOptionError(
        f"{block.kind} cannot take {key}={short_repr(block.options[key])}.", facts, f"{block.kind}({call})"
    )


def shape_with_channels(spec: TensorSpec, axes: int, needs_batch: bool = True) -> tuple[Dim, ...] | None:
    """Return the shape of an array `(batch, channels, ...)`; `None` if leading axes are unknown.

    Args:
        spec: Spec of the array.
        axes: Number of axes after the channels.
        needs_batch: If false, the batch axis may be missing.

    Raises:
        MismatchError: The array does not have this number of axes.
    """
    if spec.shape[:1] == (LEADING,):
        return None
    if len(spec.shape) != axes + 2 and (needs_batch or len(spec.shape) != axes + 1):
        example, names = [32, 1, *(28,) * axes], ", ".join(SPATIAL[axes])
        single = "" if needs_batch else f", or (channels, {names})"
        other = "" if needs_batch else f" or {axes + 1}"
        raise MismatchError(
            "input",
            f"(batch, channels, {names}){single}",
            f'shapes={{"input": {example}}}',
            f"rank {len(spec.shape)} != {axes + 2}{other}",
        )
    return spec.shape


def as_output(inputs: Specs, outputs: Specs, axes: int) -> Shapes:
    """Return the shape of `input`, by port, with the batch size and channels of the output.

    The last `axes` sizes are the known sizes of the input. The result is empty if the shape of the input or of the
    output is unknown.
    """
    shape, output = inputs["input"].shape, outputs["output"].shape if "output" in outputs else (LEADING,)
    lead = len(shape) - axes
    if lead < 1 or len(output) < lead or LEADING in (shape[0], output[0]):
        return {}
    return {"input": (*output[:lead], *shape[lead:])}
