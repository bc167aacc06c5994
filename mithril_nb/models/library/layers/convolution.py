"""Convolutions. Arrays are `(batch, channels, ...)`; a weight is `(out, in / groups, ...)`."""

from __future__ import annotations

from typing import Annotated, Any

from mithril_nb.models.fields import Start
from mithril_nb.models.library.layers.convolving import Convolution
from mithril_nb.models.library.layers.windows import Line, Pair, Size, Triple

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Convolution1D",
    "Convolution2D",
    "PrimitiveConvolution1D",
    "PrimitiveConvolution2D",
]


class Conv1d(Convolution):
    """Cross-correlation of series with learned windows. Series are `(batch, channels, length)`.

    The weight is stored as `(out, in / groups, length)`.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Length of the window.
        in_channels: Channels of the input; by default taken from the input.
        stride: Step of the window.
        padding: `"same"` keeps the size (at stride 1), `"valid"` adds nothing; or a number, or a pair of numbers.
        use_bias: If true, add a bias to each channel.
        dilation: Step from one item of the window to the next.
        groups: Number of groups of channels, each with separate windows.

    Examples:
        >>> Conv1d(16, kernel_size=5).options["kernel_size"]
        (5,)
    """

    op = "conv1d"
    axes = 1

    def __init__(
        self,
        out_channels: Size,
        kernel_size: Line = 3,
        in_channels: Size | None = None,
        stride: Line = 1,
        padding: Any = "same",
        use_bias: bool = True,
        dilation: Line = 1,
        groups: Size = 1,
        name: str | None = None,
    ):
        given = {"out_channels": out_channels, "kernel_size": kernel_size, "in_channels": in_channels, "stride": stride}
        more = {"padding": padding, "use_bias": use_bias, "dilation": dilation, "groups": groups}
        super().__init__(name, **given, **more)


class Conv2d(Convolution):
    """Cross-correlation of images with learned windows. Images are `(batch, channels, height, width)`.

    The weight is stored as `(out, in / groups, height, width)`.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Height and width of the window; one number for both.
        in_channels: Channels of the input; by default taken from the input.
        stride: Step of the window; one number for both.
        padding: `"same"` keeps the size (at stride 1), `"valid"` adds nothing; numbers add rows and columns.
        use_bias: If true, add a bias to each channel.
        dilation: Step from one item of the window to the next; one number for both.
        groups: Number of groups of channels, each with separate windows.

    Examples:
        >>> Conv2d(16, kernel_size=3).options["kernel_size"]
        (3, 3)
        >>> Conv2d(16, 5, stride=2, padding=((2, 1), 2)).options["padding"]
        ((2, 1), 2)
    """

    op = "conv2d"
    axes = 2

    def __init__(
        self,
        out_channels: Size,
        kernel_size: Pair = 3,
        in_channels: Size | None = None,
        stride: Pair = 1,
        padding: Any = "same",
        use_bias: bool = True,
        dilation: Pair = 1,
        groups: Size = 1,
        name: str | None = None,
    ):
        given = {"out_channels": out_channels, "kernel_size": kernel_size, "in_channels": in_channels, "stride": stride}
        more = {"padding": padding, "use_bias": use_bias, "dilation": dilation, "groups": groups}
        super().__init__(name, **given, **more)


class Conv3d(Convolution):
    """Cross-correlation of volumes with learned windows. Volumes are `(batch, channels, depth, height, width)`.

    The weight is stored as `(out, in / groups, depth, height, width)`.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Depth, height and width of the window; one number for all.
        in_channels: Channels of the input; by default taken from the input.
        stride: Step of the window.
        padding: `"same"`, `"valid"`, a number, one for each axis, or a pair (before, after) for each.
        use_bias: If true, add a bias to each channel.
        dilation: Step from one item of the window to the next.
        groups: Number of groups of channels, each with separate windows.

    Examples:
        >>> Conv3d(16).options["kernel_size"]
        (3, 3, 3)
    """

    op = "conv3d"
    axes = 3

    def __init__(
        self,
        out_channels: Size,
        kernel_size: Triple = 3,
        in_channels: Size | None = None,
        stride: Triple = 1,
        padding: Any = "same",
        use_bias: bool = True,
        dilation: Triple = 1,
        groups: Size = 1,
        name: str | None = None,
    ):
        given = {"out_channels": out_channels, "kernel_size": kernel_size, "in_channels": in_channels, "stride": stride}
        more = {"padding": padding, "use_bias": use_bias, "dilation": dilation, "groups": groups}
        super().__init__(name, **given, **more)


class Convolution1D(Convolution):
    """Cross-correlation of series with learned windows, like `Conv1d`; its attributes can be connected, as in Mithril.

    Without `kernel_size` and `out_channels`, the weight (and the bias) must be given.

    Args:
        kernel_size: Length of the window.
        out_channels: Number of channels of the output.
        stride: Step of the window.
        padding: A number, a pair of numbers, `"same"` or `"valid"`.
        dilation: Step from one item of the window to the next.
        use_bias: If true, add a bias to each channel.

    Examples:
        >>> [port.name for port in Convolution1D(3, 16).inputs]
        ['input', 'weight', 'bias', 'stride', 'padding', 'dilation']
    """

    op = "convolution1d"
    category = "As in Mithril"
    axes = 1
    option_ports = ("stride", "padding", "dilation")

    def __init__(
        self,
        kernel_size: Annotated[Line | None, Start(3)] = None,
        out_channels: Annotated[Size | None, Start(16)] = None,
        stride: Line = 1,
        padding: Any = 0,
        dilation: Line = 1,
        use_bias: bool = True,
        name: str | None = None,
    ):
        given = {"kernel_size": kernel_size, "out_channels": out_channels, "stride": stride, "padding": padding}
        super().__init__(name, **given, dilation=dilation, use_bias=use_bias)


class Convolution2D(Convolution):
    """Cross-correlation of images with learned windows, like `Conv2d`; its attributes can be connected, as in Mithril.

    Without `kernel_size` and `out_channels`, the weight (and the bias) must be given.

    Args:
        kernel_size: Height and width of the window; one number for both.
        out_channels: Number of channels of the output.
        stride: Step of the window; one number for both.
        padding: A number, one for each axis, a pair (before, after) for each, `"same"` or `"valid"`.
        dilation: Step from one item of the window to the next; one number for both.
        groups: Number of groups of channels, each with separate windows.
        use_bias: If true, add a bias to each channel.

    Examples:
        >>> [port.name for port in Convolution2D(3, 16).inputs]
        ['input', 'weight', 'bias', 'stride', 'padding', 'dilation', 'groups']
    """

    op = "convolution2d"
    category = "As in Mithril"
    axes = 2
    option_ports = ("stride", "padding", "dilation", "groups")

    def __init__(
        self,
        kernel_size: Annotated[Pair | None, Start((3, 3))] = None,
        out_channels: Annotated[Size | None, Start(16)] = None,
        stride: Pair = (1, 1),
        padding: Any = (0, 0),
        dilation: Pair = (1, 1),
        groups: Size = 1,
        use_bias: bool = True,
        name: str | None = None,
    ):
        given = {"kernel_size": kernel_size, "out_channels": out_channels, "stride": stride, "padding": padding}
        super().__init__(name, **given, dilation=dilation, groups=groups, use_bias=use_bias)


class PrimitiveConvolution1D(Convolution):
    """Cross-correlation of series with given windows.

    Args:
        use_bias: If true, a bias is given too.
        stride: Step of the window.
        padding: A number, a pair of numbers, `"same"` or `"valid"`.
        dilation: Step from one item of the window to the next.

    Examples:
        >>> [port.name for port in PrimitiveConvolution1D(use_bias=False).inputs]
        ['input', 'weight', 'stride', 'padding', 'dilation']
    """

    op = "primitive_convolution1d"
    category = "As in Mithril"
    axes = 1
    option_ports = ("stride", "padding", "dilation")

    def __init__(
        self,
        use_bias: bool = True,
        stride: Line = 1,
        padding: Any = 0,
        dilation: Line = 1,
        name: str | None = None,
    ):
        super().__init__(name, use_bias=use_bias, stride=stride, padding=padding, dilation=dilation)


class PrimitiveConvolution2D(Convolution):
    """Cross-correlation of images with given windows.

    Args:
        use_bias: If true, a bias is given too.
        stride: Step of the window; one number for both.
        padding: A number, one for each axis, a pair (before, after) for each, `"same"` or `"valid"`.
        dilation: Step from one item of the window to the next; one number for both.
        groups: Number of groups of channels, each with separate windows.

    Examples:
        >>> [port.name for port in PrimitiveConvolution2D(use_bias=False).inputs]
        ['input', 'weight', 'stride', 'padding', 'dilation', 'groups']
    """

    op = "primitive_convolution2d"
    category = "As in Mithril"
    axes = 2
    option_ports = ("stride", "padding", "dilation", "groups")

    def __init__(
        self,
        use_bias: bool = True,
        stride: Pair = 1,
        padding: Any = 0,
        dilation: Pair = 1,
        groups: Size = 1,
        name: str | None = None,
    ):
        given = {"use_bias": use_bias, "stride": stride, "padding": padding, "dilation": dilation}
        super().__init__(name, **given, groups=groups)
