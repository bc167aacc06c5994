"""Convolutions, and transposed convolutions.

A transposed convolution computes the gradient of a convolution with respect to its input. Arrays are
`(batch, channels, ...)`. The weight is `(out, in / groups, ...)`, and `(in, out / groups, ...)` if transposed.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from mithril_nb.graph.spec import LEADING, Dim
from mithril_nb.models.fields import Range
from mithril_nb.models.library.layers.windows import (
    SPATIAL,
    Size,
    Window,
    Windows,
    each,
    refusal,
    refuse_padding,
    shape_with_channels,
    transposed_pads,
    windows,
)
from mithril_nb.models.op import UNKNOWN, Inferred, Initializer, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

Shape = tuple[Dim, ...]


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
    initializers: ClassVar = {"weight": Initializer("he_normal", in_axis=1, out_axis=0), "bias": Initializer("zeros")}

    def __init__(self, name: str | None = None, **attributes: Any):
        super().__init__(name, **attributes)
        refuse_padding(self, self.axes)
        groups = self.options.get("groups", 1)
        for key in ("out_channels", "in_channels"):
            if (self.options.get(key) or groups) % groups:
                need = f"a number that divides {key}={self.options[key]}"
                raise refusal(self, "groups", (("needs", need),), 1)

    @classmethod
    def data_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of the data inputs. They include weight and bias if these are not parameters."""
        return ("input",) if _is_sized(options) else ("input", *_weights(options))

    @classmethod
    def param_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of the parameters; empty if weight and bias are inputs."""
        return _weights(options) if _is_sized(options) else ()

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(batch, in, ...)` to `(batch, out, ...)`."""
        shape, groups = shape_with_channels(inputs["input"], cls.axes), options.get("groups", 1)
        unknown = Inferred({"output": (LEADING,)})
        if groups == UNKNOWN:
            return unknown
        (count,) = each("groups", groups, 1)
        if _is_sized(options):
            weight = cls.weight_shape(options, shape[1] if shape else "in_channels", count)
        elif (weight := cls._given_weight(options, inputs, count)) is None:
            return unknown
        cls._check_channels(options, shape, weight, count)
        out = cls.channels(weight, count)[1]
        if isinstance(out, int) and out % count:
            raise MismatchError("groups", f"a number that divides out_channels={out}", "groups=1", str(count))
        kernel = [size for size in weight[2:] if isinstance(size, int)]
        window = windows(options, cls.axes, kernel) if len(kernel) == cls.axes else None
        output = (LEADING,) if shape is None or window is None else (shape[0], out, *cls.sizes(options, shape, window))
        params: dict[str, Shape] = {"weight": weight, "bias": (out,)}
        return Inferred({"output": output}, {port: params[port] for port in cls.param_ports(options)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the batch size of the input from the output, and its channels from `in_channels`."""
        shape: Shape = inputs["input"].shape
        output: Shape = outputs["output"].shape if "output" in outputs else ()
        if len(shape) != cls.axes + 2 or shape[0] == LEADING:
            return {}
        batch = output[:1] if len(output) == len(shape) and LEADING not in output[:1] else shape[:1]
        channels = options.get("in_channels")
        return {"input": (*batch, channels if isinstance(channels, int) else shape[1], *shape[2:])}

    @classmethod
    def weight_shape(cls, options: Options, channels: Dim, groups: int) -> Shape:
        """Return the shape of the weight, `(out, in / groups, ...)`, for an input with a number of channels."""
        out, declared = options["out_channels"], options.get("in_channels")
        assert isinstance(out, int)
        return (out, _divided(declared if isinstance(declared, int) else channels, groups), *_kernel(options, cls.axes))

    @classmethod
    def channels(cls, weight: Shape, groups: int) -> tuple[Dim | None, Dim]:
        """Return the numbers of input and output channels for a weight; `None` for an unknown number."""
        return weight[1] * groups if isinstance(weight[1], int) else None, weight[0]

    @classmethod
    def sizes(cls, options: Options, shape: Shape, window: Windows) -> Shape:
        """Return the sizes of the output's axes after batch and channels."""
        return window.counts(shape)

    @classmethod
    def _check_channels(cls, options: Options, shape: Shape | None, weight: Shape, groups: int) -> None:
        has, declared = shape[1] if shape else None, options.get("in_channels")
        needs = declared if _is_sized(options) else cls.channels(weight, groups)[0]
        if isinstance(has, int) and isinstance(needs, int) and has != needs:
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
    def _given_weight(cls, options: Options, inputs: Specs, groups: int) -> Shape | None:
        weight = inputs["weight"].shape
        if weight[:1] == (LEADING,):
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
        if bias[:1] != (LEADING,) and (len(bias) != 1 or (isinstance(bias[0], int) and bias[0] != out)):
            raise MismatchError("bias", f"({out},)", "use a bias with one number for each channel of the output.")
        return weight


class _OwnWeight(Convolution):
    """Base of the convolutions with a learned weight."""

    def __init__(
        self,
        out_channels: Size,
        kernel_size: Window = 3,
        in_channels: Size | None = None,
        stride: Window = 1,
        padding: Any = "same",
        use_bias: bool = True,
        dilation: Window = 1,
        groups: Size = 1,
        name: str | None = None,
    ):
        attributes = {
            "out_channels": out_channels,
            "kernel_size": kernel_size,
            "in_channels": in_channels,
            "stride": stride,
        }
        more = {"padding": padding, "use_bias": use_bias, "dilation": dilation, "groups": groups}
        super().__init__(name, **attributes, **more)


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


class _Transposed(Convolution):
    formula = "y[o] = Σ_i w[i, o] * (x[i] with stride - 1 zeros between its items) + b[o]"
    initializers: ClassVar = {"weight": Initializer("he_normal", in_axis=0, out_axis=1), "bias": Initializer("zeros")}

    def __init__(
        self,
        out_channels: Size,
        kernel_size: Window = 3,
        in_channels: Size | None = None,
        stride: Window = 1,
        padding: Any = "same",
        use_bias: bool = True,
        dilation: Window = 1,
        groups: Size = 1,
        output_padding: Annotated[int, Range(0, 63)] = 0,
        name: str | None = None,
    ):
        attributes = {
            "out_channels": out_channels,
            "kernel_size": kernel_size,
            "in_channels": in_channels,
            "stride": stride,
        }
        more = {"padding": padding, "use_bias": use_bias, "dilation": dilation, "groups": groups}
        super().__init__(name, **attributes, **more, output_padding=output_padding)

    @classmethod
    def weight_shape(cls, options: Options, channels: Dim, groups: int) -> Shape:
        """Return the shape of the weight, `(in, out / groups, ...)`, for an input with a number of channels."""
        out, declared = options["out_channels"], options["in_channels"]
        assert isinstance(out, int)
        channels = declared if isinstance(declared, int) else channels
        return (channels, _divided(out, groups), *_kernel(options, cls.axes))

    @classmethod
    def channels(cls, weight: Shape, groups: int) -> tuple[Dim | None, Dim]:
        """Return the numbers of input and output channels for a weight."""
        assert isinstance(weight[1], int)
        return weight[0], weight[1] * groups

    @classmethod
    def sizes(cls, options: Options, shape: Shape, window: Windows) -> Shape:
        """Return the sizes of the output's axes after batch and channels."""
        extra = options["output_padding"]
        assert isinstance(extra, int)
        sizes: list[Dim] = []
        spans = zip(shape[2:], window.stride, window.reach, transposed_pads(window, extra), strict=True)
        for axis, (size, step, reach, pads) in enumerate(spans, start=2):
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
    """Return the channels of one group."""
    if groups == 1:
        return channels
    return channels // groups if isinstance(channels, int) else f"({channels})//{groups}"


def _is_sized(options: Options) -> bool:
    return options.get("out_channels") is not None and options.get("kernel_size") is not None


def _weights(options: Options) -> tuple[str, ...]:
    return ("weight", "bias") if options["use_bias"] else ("weight",)


def _kernel(options: Options, axes: int) -> tuple[int, ...]:
    return each("kernel_size", options["kernel_size"], axes)
