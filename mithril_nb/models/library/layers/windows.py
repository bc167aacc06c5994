"""Sliding windows over the last axes of an array: attributes and shapes that convolutions and pools share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.records import Value
from mithril_nb.models.fields import RangeByAxes, fields_of
from mithril_nb.models.library.operations.reshaping import is_count
from mithril_nb.models.op import (
    LEADING,
    UNKNOWN,
    UNKNOWN_SHAPE,
    Dim,
    Dims,
    Inferred,
    Initializer,
    MismatchError,
    Operator,
    Options,
    PortNames,
    Range,
    Shapes,
    Specs,
    Start,
    TensorSpec,
)
from mithril_nb.models.shape_inference.dims import differ, is_open, same_padding, window_size

__all__ = [
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AvgPool1d",
    "AvgPool2D",
    "AvgPool2d",
    "AvgPool3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Convolution1D",
    "Convolution2D",
    "GlobalAvgPool2d",
    "MaxPool1D",
    "MaxPool1d",
    "MaxPool2D",
    "MaxPool2d",
    "MaxPool3d",
    "PrimitiveAvgPool2D",
    "PrimitiveConvolution1D",
    "PrimitiveConvolution2D",
    "PrimitiveMaxPool1D",
    "PrimitiveMaxPool2D",
]

if TYPE_CHECKING:
    from mithril_nb.models.model import Model

Size = Annotated[int, Range(1, 2**20)]
# Windows of audio can be long. Those of images and volumes are small, which a slider can show.
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
        # As in PyTorch: the items of a window are `dilation` apart, so n items cover (n - 1) * dilation + 1 positions.
        return tuple((size - 1) * step + 1 for size, step in zip(self.size, self.dilation, strict=True))

    def pads(self, sizes: Sequence[Dim]) -> tuple[tuple[int, int], ...]:
        """Return the numbers of items added before and after each axis. `sizes` are the sizes of the axes."""
        if isinstance(self.padding, tuple):
            return self.padding
        # The two names are those of TensorFlow, Keras and Flax.
        if self.padding == "valid":
            return ((0, 0),) * len(self.size)
        # The padding of "same" depends on the size of the input, except for stride 1.
        return tuple(same_padding(*args) for args in zip(sizes, self.reach, self.stride, strict=True))

    def counts(self, shape: Dims) -> Dims:
        """Return the numbers of windows on the last axes of an array of this shape."""
        reach, lead = self.reach, len(shape) - len(self.size)
        sizes = zip(shape[lead:], reach, self.stride, self.pads(shape[lead:]), strict=True)
        counts = tuple(window_size(size, window, step, *pads) for size, window, step, pads in sizes)
        for axis, (count, window) in enumerate(zip(counts, reach, strict=True), start=lead):
            # JAX returns an empty array here, and a mean over it later gives NaN. So it is reported where it arises.
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

    Examples:
        >>> windows({"stride": 2, "padding": 1}, 2, size=(3, 3))
        Windows(size=(3, 3), stride=(2, 2), dilation=(1, 1), padding=((1, 1), (1, 1)))
    """
    # `_given_weight` passes the sizes of a weight that comes from another block.
    kernel = options.get("kernel_size") if size is None else tuple(size)
    stride, padding, dilation = options.get("stride"), options.get("padding", "valid"), options.get("dilation", 1)
    if kernel is None or UNKNOWN in (kernel, stride, padding, dilation):
        return None
    lengths = each("kernel_size", kernel, axes)
    return Windows(
        lengths,
        # As in PyTorch and Keras. Flax has a stride of 1 by default.
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
            # A convolution with padding p removes p items of its transpose at both ends, as in PyTorch.
            pads.append((reach - 1 - before, reach - 1 - after + extra))
    return tuple(pads)


def each(port: str, value: Value, axes: int) -> tuple[int, ...]:
    """Return the value of the attribute `port`, one number or a tuple, as a tuple with one number per axis.

    Examples:
        >>> each("stride", 2, axes=3), each("stride", (1, 2), axes=2)
        ((2, 2, 2), (1, 2))
    """
    numbers = (value,) * axes if isinstance(value, int) else value
    # A connected shape of one axis is a tuple too.
    if isinstance(numbers, tuple) and len(numbers) == 1:
        numbers *= axes
    if not isinstance(numbers, tuple) or len(numbers) != axes or not all(is_count(number, 1) for number in numbers):
        need = "a whole number, 1 or more" if axes == 1 else f"{axes} whole numbers, each 1 or more"
        raise MismatchError(port, need, f"{port}=2", repr(value))
    return numbers  # pyright: ignore[reportReturnType]


def paddings(port: str, value: Value, axes: int) -> str | tuple[tuple[int, int], ...]:
    """Return the value of the attribute `port`, a padding, as `"same"`, `"valid"`, or one pair of numbers per axis.

    One number is the padding at both ends of an axis, or of all axes. For a single axis, two numbers are a pair.

    Examples:
        >>> paddings("padding", (1, 2), 2), paddings("padding", (1, 2), 1)
        (((1, 1), (2, 2)), ((1, 2),))
    """
    if value in ("same", "valid"):
        return str(value)
    pads: Any = (value,) * axes if isinstance(value, int) else value
    # (1, 2) is one pair for one axis, and two paddings for two axes.
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
        # The error quotes the docstring, which explains each form of a padding.
        doc = next(field.doc for field in fields_of(type(block)) if field.name == "padding")
        raise refusal(block, "padding", (("needs", padding_need(axes)), ("means", doc)), "same") from None


def refusal(block: Model, key: str, facts: tuple[tuple[str, str], ...], better: Value) -> UnknownOptionError:
    """Return the error for an invalid attribute `key` of a block, with the valid value `better` in its advice."""
    # The advice must be a call that works, and `out_channels` may be required.
    attributes = {key: value for key, value in block.options.items() if key == "out_channels" and value is not None}
    call = ", ".join(f"{name}={value!r}" for name, value in {**attributes, key: better}.items())
    return UnknownOptionError(
        f"{block.kind} cannot take {key}={short_repr(block.options[key])}.", facts, f"{block.kind}({call})"
    )


def shape_with_channels(spec: TensorSpec, axes: int, needs_batch: bool = True) -> Dims | None:
    """Return the shape of an array `(batch, channels, ...)`; `None` if leading axes are unknown.

    Args:
        spec: Spec of the array.
        axes: Number of axes after the channels.
        needs_batch: If false, the batch axis may be missing.
    """
    if is_open(spec.shape):
        return None
    # Channels come first, as in PyTorch. Keras, Flax and TensorFlow have them last.
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
    shape, output = inputs["input"].shape, outputs["output"].shape
    lead = len(shape) - axes
    # The sizes of windows do not follow from their number, so only the axes before them are inferred.
    if lead < 1 or len(output) < lead or LEADING in (shape[0], output[0]):
        return {}
    return {"input": (*output[:lead], *shape[lead:])}


class Convolution(Operator):
    """Base of the convolutions.

    The weight and bias are parameters if the block has the attributes `out_channels` and `kernel_size`; else inputs.

    Attributes:
        axes: Number of axes that the windows slide over.
    """

    axes: ClassVar[int]
    category = "Layers"
    formula = "y[o] = Σ_i w[o, i] ⋆ x[i] + b[o]"
    init_depends_on_reader = True
    # He et al. (2015) derive this for convolutions with ReLU. Keras uses Glorot, Flax LeCun, PyTorch a uniform one.
    initializers = {"weight": Initializer("he_normal", in_axis=1, out_axis=0), "bias": Initializer("zeros")}

    def __init__(self, name: str | None = None, **attributes: Any):
        super().__init__(name, **attributes)
        refuse_padding(self, self.axes)
        groups = self.options.get("groups", 1)
        for key in ("out_channels", "in_channels"):
            # A missing number is known only from the input; `infer` checks it.
            if (self.options.get(key) or groups) % groups:
                need = f"a number that divides {key}={self.options[key]}"
                raise refusal(self, "groups", (("needs", need),), 1)

    @classmethod
    def ports(cls, options: Options) -> PortNames:
        """Return the ports. Without sizes, weight and bias are inputs."""
        weights = ("weight", "bias") if options["use_bias"] else ("weight",)
        return PortNames(params=weights) if _is_sized(options) else PortNames(("input", *weights))

    @classmethod
    def infer(cls, options, inputs):
        """Map `(batch, in, ...)` to `(batch, out, ...)`."""
        shape, groups = shape_with_channels(inputs["input"], cls.axes), options.get("groups", 1)
        unknown = UNKNOWN_SHAPE
        if groups == UNKNOWN:
            return unknown
        # A connected `groups` may be a tuple of one number, such as a shape.
        (count,) = each("groups", groups, 1)
        if _is_sized(options):
            weight = cls.weight_shape(options, shape[1] if shape else "in_channels", count)
        elif (weight := cls._given_weight(options, inputs, count)) is None:
            return unknown
        cls._check_channels(options, shape, weight, count)
        out = cls.channels(weight, count)[1]
        # 6 output channels cannot be split into 4 groups.
        if isinstance(out, int) and out % count:
            raise MismatchError("groups", f"a number that divides out_channels={out}", "groups=1", str(count))
        # A connected weight may have named sizes. Then the number of windows is unknown.
        kernel = [size for size in weight[2:] if isinstance(size, int)]
        window = windows(options, cls.axes, kernel) if len(kernel) == cls.axes else None
        output = (
            UNKNOWN_SHAPE if shape is None or window is None else (shape[0], out, *cls.sizes(options, shape, window))
        )
        return Inferred({"output": output}, {"weight": weight, "bias": (out,)})

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the batch size of the input from the output, and its channels from `in_channels`."""
        shape, output = inputs["input"].shape, outputs["output"].shape
        if len(shape) != cls.axes + 2 or shape[0] == LEADING:
            return {}
        # The output has the batch of the input; a reader may require it.
        batch = output[:1] if len(output) == len(shape) and not is_open(output) else shape[:1]
        channels = options.get("in_channels")
        return {"input": (*batch, channels if isinstance(channels, int) else shape[1], *shape[2:])}

    @classmethod
    def weight_shape(cls, options: Options, channels: Dim, groups: int) -> Dims:
        """Return the shape of the weight, `(out, in / groups, ...)`, for an input with a number of channels."""
        out, declared = options["out_channels"], options.get("in_channels")
        return (out, _divided(declared if isinstance(declared, int) else channels, groups), *_kernel(options, cls.axes))

    @classmethod
    def channels(cls, weight: Dims, groups: int) -> tuple[Dim | None, Dim]:
        """Return the numbers of input and output channels for a weight; `None` for an unknown number."""
        # The weight stores only the channels of one group.
        return weight[1] * groups if isinstance(weight[1], int) else None, weight[0]

    @classmethod
    def sizes(cls, options: Options, shape: Dims, window: Windows) -> Dims:
        """Return the sizes of the output's axes after batch and channels."""
        return window.counts(shape)

    @classmethod
    def _check_channels(cls, options: Options, shape: Dims | None, weight: Dims, groups: int) -> None:
        # `in_channels` is optional, and needed only to list parameters before the first input.
        has, declared = shape[1] if shape else None, options.get("in_channels")
        needs = declared if _is_sized(options) else cls.channels(weight, groups)[0]
        if differ(has, needs):
            advice = f"{cls.__name__}({options.get('out_channels')}, in_channels={has})  # or leave in_channels out"
            raise MismatchError(
                "input",
                f"(batch, {needs}, {', '.join(SPATIAL[cls.axes])})",
                advice if _is_sized(options) else f"use a weight for {has} input channels.",
                f"axis 1: {has} != {needs}",
            )
        if isinstance(has, int) and has % groups:
            need, advice = f"a number of channels that groups={groups} divides", f"{cls.__name__}(..., groups=1)"
            raise MismatchError("input", need, advice, f"axis 1: {has} channels")

    @classmethod
    def _given_weight(cls, options: Options, inputs: Specs, groups: int) -> Dims | None:
        weight = inputs["weight"].shape
        if is_open(weight):
            return None
        kernel = _kernel(options, cls.axes) if options.get("kernel_size") is not None else weight[2:]
        out = options.get("out_channels") or (cls.channels(weight, groups)[1] if len(weight) > 1 else 0)
        if len(weight) != cls.axes + 2 or cls.channels(weight, groups)[1] != out or weight[2:] != kernel:
            parts = [str(size) for size in kernel] if options.get("kernel_size") is not None else SPATIAL[cls.axes]
            need = f"({options.get('out_channels') or 'out'}, in / groups, {', '.join(parts)})"
            raise MismatchError("weight", need, f"use a weight of the shape {need}.", f"rank {len(weight)}")
        if isinstance(out, int) and out % groups:
            need = f"a number of output channels that groups={groups} divides"
            raise MismatchError("weight", need, "groups=1", f"axis 0: {out}")
        bias = inputs["bias"].shape if "bias" in inputs else (out,)
        if not is_open(bias) and (len(bias) != 1 or (isinstance(bias[0], int) and bias[0] != out)):
            raise MismatchError("bias", f"({out},)", "use a bias with one number for each channel of the output.")
        return weight


class _OwnWeight(Convolution):
    out_channels: Size
    kernel_size: Window = 3
    in_channels: Size | None = None
    stride: Window = 1
    # As in Flax. Keras and PyTorch add nothing by default.
    padding: Any = "same"
    use_bias: bool = True
    dilation: Window = 1
    groups: Size = 1


class Conv1d(_OwnWeight):
    """Cross-correlation of series with learned windows. Series are `(batch, channels, length)`.

    The weight is stored as `(out, in / groups, length)`.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Length of a window.
        in_channels: Number of channels of the input; by default taken from the input.
        stride: Distance between neighbouring windows.
        padding: `"same"` keeps the size for a stride of 1, `"valid"` adds nothing. Also a number of zeros, or a pair
            (before, after).
        use_bias: If true, add a bias to each channel.
        dilation: Distance between neighbouring items of a window.
        groups: Number of groups of channels. The windows of a group use only its channels.

    Examples:
        >>> Conv1d(16, kernel_size=5).options["kernel_size"]
        (5,)
    """

    op = "conv1d"
    axes = 1


class Conv2d(_OwnWeight):
    """Cross-correlation of images with learned windows. Images are `(batch, channels, height, width)`.

    The weight is stored as `(out, in / groups, height, width)`.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Height and width of a window; one number for both.
        in_channels: Number of channels of the input; by default taken from the input.
        stride: Distance between neighbouring windows; one number for both.
        padding: `"same"` keeps the size at stride 1, `"valid"` adds nothing. Or the number of zeros at each end:
            one number for both axes, or for each axis a number or a pair (before, after).
        use_bias: If true, add a bias to each channel.
        dilation: Distance between neighbouring items of a window; one number for both.
        groups: Number of groups of channels. The windows of a group use only its channels.

    Examples:
        >>> Conv2d(16, kernel_size=3).options["kernel_size"]
        (3, 3)
        >>> Conv2d(16, 5, stride=2, padding=((2, 1), 2)).options["padding"]
        ((2, 1), 2)
    """

    op = "conv2d"
    axes = 2


class Conv3d(_OwnWeight):
    """Cross-correlation of volumes with learned windows. Volumes are `(batch, channels, depth, height, width)`.

    The weight is stored as `(out, in / groups, depth, height, width)`.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Depth, height and width of a window; one number for all.
        in_channels: Number of channels of the input; by default taken from the input.
        stride: Distance between neighbouring windows.
        padding: `"same"` keeps the size at stride 1, `"valid"` adds nothing. Or the number of zeros at each end:
            one number for both axes, or for each axis a number or a pair (before, after).
        use_bias: If true, add a bias to each channel.
        dilation: Distance between neighbouring items of a window.
        groups: Number of groups of channels. The windows of a group use only its channels.

    Examples:
        >>> Conv3d(16).options["kernel_size"]
        (3, 3, 3)
    """

    op = "conv3d"
    axes = 3


class _Transposed(_OwnWeight):
    # As in PyTorch: with a stride above 1, inputs of several sizes have a convolution of one size. This selects one.
    output_padding: Annotated[int, Range(0, 63)] = 0
    formula = "y[o] = Σ_i w[i, o] * (x[i] with stride - 1 zeros between its items) + b[o]"
    # The weight has the layout of PyTorch's, with input channels first.
    initializers = {"weight": Initializer("he_normal", in_axis=0, out_axis=1), "bias": Initializer("zeros")}

    @classmethod
    def weight_shape(cls, options: Options, channels: Dim, groups: int) -> Dims:
        """Return the shape of the weight, `(in, out / groups, ...)`, for an input with a number of channels."""
        out, declared = options["out_channels"], options["in_channels"]
        channels = declared if isinstance(declared, int) else channels
        return (channels, _divided(out, groups), *_kernel(options, cls.axes))

    @classmethod
    def channels(cls, weight: Dims, groups: int) -> tuple[Dim | None, Dim]:
        """Return the numbers of input and output channels for a weight."""
        assert isinstance(weight[1], int)
        return weight[0], weight[1] * groups

    @classmethod
    def sizes(cls, options: Options, shape: Dims, window: Windows) -> Dims:
        """Return the sizes of the output's axes after batch and channels."""
        extra = options["output_padding"]
        sizes: list[Dim] = []
        spans = zip(shape[2:], window.stride, window.reach, transposed_pads(window, extra), strict=True)
        for axis, (size, step, reach, pads) in enumerate(spans, start=2):
            # From (size - 1) * stride + 1 items after inserting zeros, plus the pads, less reach - 1.
            change = sum(pads) + 2 - reach - step
            sizes.append(
                size * step + change
                if isinstance(size, int)
                else (size if step == 1 else f"({size})*{step}") + (f"{change:+d}" if change else "")
            )
            if isinstance(sizes[-1], int) and sizes[-1] < 1:
                raise MismatchError(
                    "input", f"more items on axis {axis}", "reduce the padding.", f"axis {axis}: {size}"
                )
        return tuple(sizes)


class ConvTranspose1d(_Transposed):
    """Transposed convolution, which upsamples series. Series are `(batch, channels, length)`.

    The weight is stored as `(in, out / groups, length)`, unlike that of `Conv1d`.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Length of a window.
        in_channels: Number of channels of the input; by default taken from the input.
        stride: Upsampling factor.
        padding: `"same"` gives `size * stride` items, `"valid"` all items that the windows reach. Numbers are the
            padding of the `Conv1d` whose gradient this block is: that many items are removed from the output.
        use_bias: If true, add a bias to each channel.
        dilation: Distance between neighbouring items of a window.
        groups: Number of groups of channels. The windows of a group use only its channels.
        output_padding: Number of items to add at the end of each spatial axis of the output.

    Examples:
        >>> ConvTranspose1d(8, 4, stride=2).options["stride"]
        (2,)
    """

    op = "conv_transpose1d"
    axes = 1


class ConvTranspose2d(_Transposed):
    """Transposed convolution, which upsamples images. Images are `(batch, channels, height, width)`.

    The weight is stored as `(in, out / groups, height, width)`, unlike that of `Conv2d`.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Height and width of a window; one number for both.
        in_channels: Number of channels of the input; by default taken from the input.
        stride: Upsampling factor.
        padding: `"same"` gives `size * stride` items, `"valid"` all items that the windows reach. Numbers are the
            padding of the `Conv2d` whose gradient this block is: that many items are removed from the output.
        use_bias: If true, add a bias to each channel.
        dilation: Distance between neighbouring items of a window.
        groups: Number of groups of channels. The windows of a group use only its channels.
        output_padding: Number of items to add at the end of each spatial axis of the output.

    Examples:
        >>> ConvTranspose2d(8, 4, stride=2).options["stride"]
        (2, 2)
    """

    op = "conv_transpose2d"
    axes = 2


class ConvTranspose3d(_Transposed):
    """Transposed convolution, which upsamples volumes. Volumes are `(batch, channels, depth, height, width)`.

    The weight is stored as `(in, out / groups, depth, height, width)`, unlike that of `Conv3d`.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Depth, height and width of a window; one number for all.
        in_channels: Number of channels of the input; by default taken from the input.
        stride: Upsampling factor.
        padding: `"same"` gives `size * stride` items, `"valid"` all items that the windows reach. Numbers are the
            padding of the `Conv3d` whose gradient this block is: that many items are removed from the output.
        use_bias: If true, add a bias to each channel.
        dilation: Distance between neighbouring items of a window.
        groups: Number of groups of channels. The windows of a group use only its channels.
        output_padding: Number of items to add at the end of each spatial axis of the output.

    Examples:
        >>> ConvTranspose3d(8, 4, stride=2).options["stride"]
        (2, 2, 2)
    """

    op = "conv_transpose3d"
    axes = 3


def _divided(channels: Dim, groups: int) -> Dim:
    if groups == 1:
        return channels
    return channels // groups if isinstance(channels, int) else f"({channels})//{groups}"


def _is_sized(options: Options) -> bool:
    return options.get("out_channels") is not None and options.get("kernel_size") is not None


def _kernel(options: Options, axes: int) -> tuple[int, ...]:
    return each("kernel_size", options["kernel_size"], axes)


class Pool(Operator):
    """Base of the pools with a window size and a stride. By default, the stride is the size of a window.

    Attributes:
        axes: Number of axes that the windows slide over.
    """

    axes: ClassVar[int]
    category = "Pooling"
    keeps_scale = True

    def __init__(self, name: str | None = None, **attributes: Any):
        # Stored, so that the inspector shows a number. As a port, `None` stays: the size may be connected too.
        if attributes["stride"] is None and "stride" not in self.option_ports:
            attributes["stride"] = attributes["kernel_size"]
        super().__init__(name, **attributes)
        refuse_padding(self, self.axes)

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape of the output, whose axes after the channels contain one item per window."""
        shape, window = shape_with_channels(inputs["input"], cls.axes, needs_batch=False), windows(options, cls.axes)
        if shape is None or window is None:
            return UNKNOWN_SHAPE
        return (*shape[: -cls.axes], *window.counts(shape))

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the input's batch and channels from the output."""
        return as_output(inputs, outputs, cls.axes)


# A padded item is -∞, so it is never the maximum.
class _MaxPool(Pool):
    kernel_size: Window = 2
    stride: Window | None = None
    padding: Any = "valid"
    dilation: Window = 1
    formula = "y = max over each window of x"


class _AvgPool(Pool):
    kernel_size: Window = 2
    stride: Window | None = None
    padding: Any = "valid"
    # Keras leaves the padding out of the mean.
    count_include_pad: bool = True
    formula = "y = mean over each window of x"


class MaxPool1d(_MaxPool):
    """Maximum of each window of a series, channel by channel.

    If several items are the maximum, the gradient goes to the first, as in PyTorch. With `dilation`, they share it.

    Args:
        kernel_size: Length of a window.
        stride: Distance between neighbouring windows; by default the size of a window.
        padding: `"valid"` for no padding, `"same"` for an output of size `ceil(size / stride)`, a number of items
            to add at both ends, or a pair (before, after).
        dilation: Distance between neighbouring items of a window.

    Examples:
        >>> MaxPool1d(2).options["stride"]
        (2,)
    """

    op = "max_pool1d"
    axes = 1


class AvgPool1d(_AvgPool):
    """Mean of each window of a series, channel by channel.

    Args:
        kernel_size: Length of a window.
        stride: Distance between neighbouring windows; by default the size of a window.
        padding: `"valid"` for no padding, `"same"` for an output of size `ceil(size / stride)`, a number of items
            to add at both ends, or a pair (before, after).
        count_include_pad: If true, padding counts as zeros in the mean, as in PyTorch and Flax.

    Examples:
        >>> AvgPool1d(3, stride=1, padding="same").options["stride"]
        (1,)
    """

    op = "avg_pool1d"
    axes = 1


class MaxPool2d(_MaxPool):
    """Maximum of each window of an image, channel by channel.

    If several items are the maximum, the gradient goes to the first, as in PyTorch. With `dilation`, they share it.

    Args:
        kernel_size: Height and width of a window; one number for both.
        stride: Distance between neighbouring windows; by default the size of a window.
        padding: `"valid"` for no padding, `"same"` for an output of size `ceil(size / stride)` on each axis, a number
            of items to add at both ends of each axis, or a tuple with a number or pair (before, after) for each axis.
        dilation: Distance between neighbouring items of a window.

    Examples:
        >>> MaxPool2d(2).options["stride"]
        (2, 2)
    """

    op = "max_pool2d"
    axes = 2


class AvgPool2d(_AvgPool):
    """Mean of each window of an image, channel by channel.

    Args:
        kernel_size: Height and width of a window; one number for both.
        stride: Distance between neighbouring windows; by default the size of a window.
        padding: `"valid"` for no padding, `"same"` for an output of size `ceil(size / stride)` on each axis, a number
            of items to add at both ends of each axis, or a tuple with a number or pair (before, after) for each axis.
        count_include_pad: If true, padding counts as zeros in the mean, as in PyTorch and Flax.

    Examples:
        >>> AvgPool2d(3, stride=1, padding="same").options["stride"]
        (1, 1)
    """

    op = "avg_pool2d"
    axes = 2


class MaxPool3d(_MaxPool):
    """Maximum of each window of a volume, channel by channel.

    If several items are the maximum, the gradient goes to the first, as in PyTorch. With `dilation`, they share it.

    Args:
        kernel_size: Depth, height and width of a window; one number for all.
        stride: Distance between neighbouring windows; by default the size of a window.
        padding: `"valid"` for no padding, `"same"` for an output of size `ceil(size / stride)` on each axis, a number
            of items to add at both ends of each axis, or a tuple with a number or pair (before, after) for each axis.
        dilation: Distance between neighbouring items of a window.

    Examples:
        >>> MaxPool3d(2).options["stride"]
        (2, 2, 2)
    """

    op = "max_pool3d"
    axes = 3


class AvgPool3d(_AvgPool):
    """Mean of each window of a volume, channel by channel.

    Args:
        kernel_size: Depth, height and width of a window; one number for all.
        stride: Distance between neighbouring windows; by default the size of a window.
        padding: `"valid"` for no padding, `"same"` for an output of size `ceil(size / stride)` on each axis, a number
            of items to add at both ends of each axis, or a tuple with a number or pair (before, after) for each axis.
        count_include_pad: If true, padding counts as zeros in the mean, as in PyTorch and Flax.

    Examples:
        >>> AvgPool3d(3, stride=1, padding="same").options["stride"]
        (1, 1, 1)
    """

    op = "avg_pool3d"
    axes = 3


class _Adaptive(Operator):
    category = "Pooling"
    keeps_scale = True

    @classmethod
    def infer(cls, options, inputs):
        """Map `(batch, channels, h, w)` to `(batch, channels, *output_size)`, or to `(batch, channels)` if global."""
        shape, size = shape_with_channels(inputs["input"], 2), options.get("output_size", ())
        if shape is None:
            return UNKNOWN_SHAPE
        for axis, length in enumerate(shape[2:], start=2):
            # The mean of no items is NaN.
            if length == 0:
                raise MismatchError("input", "a non-empty image", "use a larger image.", f"axis {axis}: 0")
        # `GlobalAvgPool2d` has no output_size, and drops the axes.
        dims: list[Dim] = [dim for dim in size if isinstance(dim, int)]
        return (*shape[:2], *dims)

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the input's batch and channels from the output."""
        return as_output(inputs, outputs, 2)


class AdaptiveAvgPool2d(_Adaptive):
    """Mean of each window of an image. The output has the size `output_size` for images of any size.

    The windows cover the image and have nearly equal sizes. Each window gives one item of the output.

    Args:
        output_size: Height and width of the output; one number for both.
    """

    output_size: Pair = 1

    op = "adaptive_avg_pool2d"
    formula = "y = mean over each window of x"


class AdaptiveMaxPool2d(_Adaptive):
    """Maximum of each window of an image. The output has the size `output_size` for images of any size.

    The windows cover the image and have nearly equal sizes. Each window gives one item of the output. Equal maxima
    share the gradient.

    Args:
        output_size: Height and width of the output; one number for both.
    """

    output_size: Pair = 1

    op = "adaptive_max_pool2d"
    formula = "y = max over each window of x"


def _mean_of_image(x: Any) -> Any:
    return x.mean((2, 3))


class GlobalAvgPool2d(_Adaptive):
    """Mean of each channel of an image: `(batch, channels, height, width)` becomes `(batch, channels)`."""

    op = "global_avg_pool2d"
    formula = "y = mean over height and width of x"
    kernel = _mean_of_image


# The convolutions below have the names, arguments and ports of Mithril, whose documents run unchanged.
class Convolution1D(Convolution):
    """Cross-correlation of series with windows, like `Conv1d`.

    As in Mithril, outputs of other blocks can be connected to `stride`, `padding` and `dilation`.

    If `kernel_size` or `out_channels` is `None`, the weight and the bias are data inputs instead of parameters.

    Args:
        kernel_size: Length of a window.
        out_channels: Number of channels of the output.
        stride: Distance between neighbouring windows.
        padding: Number of zeros at both ends of the series, a pair (before, after), or `"same"` or `"valid"`, see
            `Conv1d`.
        dilation: Distance between neighbouring items of a window.
        use_bias: If true, add a bias to each channel.

    Examples:
        >>> [port.name for port in Convolution1D(3, 16).inputs]
        ['input', 'weight', 'bias', 'stride', 'padding', 'dilation']
    """

    kernel_size: Annotated[Line | None, Start(3)] = None
    out_channels: Annotated[Size | None, Start(16)] = None
    stride: Line = 1
    padding: Any = 0
    dilation: Line = 1
    use_bias: bool = True

    op = "convolution1d"
    category = "As in Mithril"
    axes = 1
    option_ports = ("stride", "padding", "dilation")


class Convolution2D(Convolution):
    """Cross-correlation of images with windows, like `Conv2d`.

    As in Mithril, outputs of other blocks can be connected to `stride`, `padding`, `dilation` and `groups`.

    If `kernel_size` or `out_channels` is `None`, the weight and the bias are data inputs instead of parameters.

    Args:
        kernel_size: Height and width of a window; one number for both.
        out_channels: Number of channels of the output.
        stride: Distance between neighbouring windows; one number for both.
        padding: Number of zeros to add at both ends of each axis, a tuple with one number or pair (before, after) for
            each axis, or `"same"` or `"valid"`, see `Conv2d`.
        dilation: Distance between neighbouring items of a window; one number for both.
        groups: Number of groups of channels. The windows of a group use only its channels.
        use_bias: If true, add a bias to each channel.

    Examples:
        >>> [port.name for port in Convolution2D(3, 16).inputs]
        ['input', 'weight', 'bias', 'stride', 'padding', 'dilation', 'groups']
    """

    kernel_size: Annotated[Pair | None, Start((3, 3))] = None
    out_channels: Annotated[Size | None, Start(16)] = None
    stride: Pair = (1, 1)
    # No padding by default, as in Mithril.
    padding: Any = (0, 0)
    dilation: Pair = (1, 1)
    groups: Size = 1
    use_bias: bool = True

    op = "convolution2d"
    category = "As in Mithril"
    axes = 2
    option_ports = ("stride", "padding", "dilation", "groups")


class PrimitiveConvolution1D(Convolution):
    """Cross-correlation of series with windows, which are the input `weight`.

    Args:
        use_bias: If true, there is an input `bias`.
        stride: Distance between neighbouring windows.
        padding: Number of zeros at both ends of the series, a pair (before, after), or `"same"` or `"valid"`, see
            `Conv1d`.
        dilation: Distance between neighbouring items of a window.

    Examples:
        >>> [port.name for port in PrimitiveConvolution1D(use_bias=False).inputs]
        ['input', 'weight', 'stride', 'padding', 'dilation']
    """

    use_bias: bool = True
    stride: Line = 1
    padding: Any = 0
    dilation: Line = 1

    op = "primitive_convolution1d"
    category = "As in Mithril"
    axes = 1
    option_ports = ("stride", "padding", "dilation")


class PrimitiveConvolution2D(Convolution):
    """Cross-correlation of images with windows, which are the input `weight`.

    Args:
        use_bias: If true, there is an input `bias`.
        stride: Distance between neighbouring windows; one number for both.
        padding: Number of zeros to add at both ends of each axis, a tuple with one number or pair (before, after) for
            each axis, or `"same"` or `"valid"`, see `Conv2d`.
        dilation: Distance between neighbouring items of a window; one number for both.
        groups: Number of groups of channels. The windows of a group use only its channels.

    Examples:
        >>> [port.name for port in PrimitiveConvolution2D(use_bias=False).inputs]
        ['input', 'weight', 'stride', 'padding', 'dilation', 'groups']
    """

    use_bias: bool = True
    stride: Pair = 1
    padding: Any = 0
    dilation: Pair = 1
    groups: Size = 1

    op = "primitive_convolution2d"
    category = "As in Mithril"
    axes = 2
    option_ports = ("stride", "padding", "dilation", "groups")


class MaxPool1D(Pool):
    """Maximum of each window, like `MaxPool1d`.

    As in Mithril, outputs of other blocks can be connected to the attributes.

    Args:
        kernel_size: Length of a window.
        stride: Distance between neighbouring windows; by default the size of a window.
        padding: Number of items to add at both ends of the series, a pair (before, after), or `"same"` or `"valid"`,
            see `MaxPool1d`.
        dilation: Distance between neighbouring items of a window.

    Examples:
        >>> [port.name for port in MaxPool1D(2).inputs]
        ['input', 'kernel_size', 'stride', 'padding', 'dilation']
    """

    kernel_size: Line = 2
    stride: Line | None = None
    padding: Any = 0
    dilation: Line = 1

    op = "table_max_pool1d"
    category = "As in Mithril"
    formula = MaxPool1d.formula
    axes = 1
    option_ports = ("kernel_size", "stride", "padding", "dilation")


class _ConnectedPool2D(Pool):
    kernel_size: Pair = 2
    stride: Pair | None = None
    padding: Any = (0, 0)
    dilation: Pair = (1, 1)

    category = "As in Mithril"
    axes = 2
    option_ports = ("kernel_size", "stride", "padding", "dilation")


class MaxPool2D(_ConnectedPool2D):
    """Maximum of each window, like `MaxPool2d`.

    As in Mithril, outputs of other blocks can be connected to the attributes.

    Args:
        kernel_size: Height and width of a window; one number for both.
        stride: Distance between neighbouring windows; by default the size of a window.
        padding: One of: a number of items to add at both ends of each axis; a tuple with a number or a pair (before,
            after) for each axis; `"same"`; `"valid"`. See the layer `MaxPool2d`.
        dilation: Distance between neighbouring items of a window.

    Examples:
        >>> [port.name for port in MaxPool2D(2).inputs]
        ['input', 'kernel_size', 'stride', 'padding', 'dilation']
    """

    op = "table_max_pool2d"
    formula = MaxPool2d.formula


class AvgPool2D(_ConnectedPool2D):
    """Mean of each window, like `AvgPool2d`.

    As in Mithril, outputs of other blocks can be connected to the attributes.

    Args:
        kernel_size: Height and width of a window; one number for both.
        stride: Distance between neighbouring windows; by default the size of a window.
        padding: Number of items to add at both ends of each axis, a tuple with one number or pair (before, after) for
            each axis, or `"same"` or `"valid"`, see `AvgPool2d`.
        dilation: Distance between neighbouring items of a window.

    Examples:
        >>> [port.name for port in AvgPool2D(2).inputs]
        ['input', 'kernel_size', 'stride', 'padding', 'dilation']
    """

    op = "table_avg_pool2d"
    formula = AvgPool2d.formula


class PrimitiveMaxPool1D(MaxPool1D):
    """The same as `MaxPool1D`, under the name of a primitive of Mithril.

    Args:
        kernel_size: Length of a window.
        stride: Distance between neighbouring windows; by default the size of a window.
        padding: Number of items to add at both ends of the series, a pair (before, after), or `"same"` or `"valid"`,
            see `MaxPool1d`.
        dilation: Distance between neighbouring items of a window.

    Examples:
        >>> PrimitiveMaxPool1D(2).options["kernel_size"]
        (2,)
    """

    op = "primitive_max_pool1d"


class PrimitiveMaxPool2D(MaxPool2D):
    """The same as `MaxPool2D`, under the name of a primitive of Mithril.

    Args:
        kernel_size: Height and width of a window; one number for both.
        stride: Distance between neighbouring windows; by default the size of a window.
        padding: One of: a number of items to add at both ends of each axis; a tuple with a number or a pair (before,
            after) for each axis; `"same"`; `"valid"`. See the layer `MaxPool2d`.
        dilation: Distance between neighbouring items of a window.

    Examples:
        >>> PrimitiveMaxPool2D(2).options["kernel_size"]
        (2, 2)
    """

    op = "primitive_max_pool2d"


class PrimitiveAvgPool2D(AvgPool2D):
    """The same as `AvgPool2D`, under the name of a primitive of Mithril.

    Args:
        kernel_size: Height and width of a window; one number for both.
        stride: Distance between neighbouring windows; by default the size of a window.
        padding: Number of items to add at both ends of each axis, a tuple with one number or pair (before, after) for
            each axis, or `"same"` or `"valid"`, see `AvgPool2d`.
        dilation: Distance between neighbouring items of a window.

    Examples:
        >>> PrimitiveAvgPool2D(2).options["kernel_size"]
        (2, 2)
    """

    op = "primitive_avg_pool2d"
