"""Convolutions and pools as in Mithril: outputs of other blocks can be connected to attributes such as `stride`."""

from __future__ import annotations

from typing import Annotated, Any

from mithril_nb.models.fields import Start
from mithril_nb.models.library.layers.convolution import Convolution
from mithril_nb.models.library.layers.pooling import AvgPool2d, MaxPool1d, MaxPool2d, Pool
from mithril_nb.models.library.layers.windows import Line, Pair, Size

__all__ = [
    "AvgPool2D",
    "Convolution1D",
    "Convolution2D",
    "MaxPool1D",
    "MaxPool2D",
    "PrimitiveAvgPool2D",
    "PrimitiveConvolution1D",
    "PrimitiveConvolution2D",
    "PrimitiveMaxPool1D",
    "PrimitiveMaxPool2D",
]


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
        attributes = {"kernel_size": kernel_size, "out_channels": out_channels, "stride": stride, "padding": padding}
        super().__init__(name, **attributes, dilation=dilation, use_bias=use_bias)


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
        attributes = {"kernel_size": kernel_size, "out_channels": out_channels, "stride": stride, "padding": padding}
        super().__init__(name, **attributes, dilation=dilation, groups=groups, use_bias=use_bias)


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
        attributes = {"use_bias": use_bias, "stride": stride, "padding": padding, "dilation": dilation}
        super().__init__(name, **attributes, groups=groups)


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

    op = "table_max_pool1d"
    category = "As in Mithril"
    formula = MaxPool1d.formula
    axes = 1
    option_ports = ("kernel_size", "stride", "padding", "dilation")

    def __init__(
        self,
        kernel_size: Line = 2,
        stride: Line | None = None,
        padding: Any = 0,
        dilation: Line = 1,
        name: str | None = None,
    ):
        super().__init__(name, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)


class _ConnectedPool2D(Pool):
    """Base of the pools of images as in Mithril. Outputs of other blocks can be connected to all attributes."""

    category = "As in Mithril"
    axes = 2
    option_ports = ("kernel_size", "stride", "padding", "dilation")

    def __init__(
        self,
        kernel_size: Pair = 2,
        stride: Pair | None = None,
        padding: Any = (0, 0),
        dilation: Pair = (1, 1),
        name: str | None = None,
    ):
        super().__init__(name, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)


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
