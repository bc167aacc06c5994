"""Pooling of windows, channel by channel.

Arrays are `(batch, channels, ...)`. Pools with a `kernel_size` also accept `(channels, ...)`, as in PyTorch. If several
items of a window are the maximum, the gradient goes to the first of them, as in PyTorch. In adaptive pools and in pools
with dilation, these items share the gradient.
"""

from __future__ import annotations

from typing import Any, ClassVar

from mithril_nb.graph.spec import LEADING, Dim
from mithril_nb.models.library.layers.windows import (
    Pair,
    Window,
    as_output,
    refuse_padding,
    shape_with_channels,
    windows,
)
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError

__all__ = [
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "GlobalAvgPool2d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
]


class Pool(Operator):
    """Base of the pools with a window size and a stride. By default, the stride is the size of a window.

    Attributes:
        axes: Number of axes that the windows slide over.
    """

    axes: ClassVar[int]
    category = "Layers"
    keeps_scale = True

    def __init__(self, name: str | None = None, **attributes: Any):
        if attributes["stride"] is None and "stride" not in self.option_ports:
            attributes["stride"] = attributes["kernel_size"]
        super().__init__(name, **attributes)
        refuse_padding(self, self.axes)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shape of the output, whose axes after the channels contain one item per window."""
        shape, window = shape_with_channels(inputs["input"], cls.axes, needs_batch=False), windows(options, cls.axes)
        if shape is None or window is None:
            return Inferred({"output": (LEADING,)})
        return Inferred({"output": (*shape[: -cls.axes], *window.counts(shape))})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the input's batch and channels from the output."""
        return as_output(inputs, outputs, cls.axes)


class _MaxPool(Pool):
    formula = "y = max over each window of x"

    def __init__(
        self,
        kernel_size: Window = 2,
        stride: Window | None = None,
        padding: Any = "valid",
        dilation: Window = 1,
        name: str | None = None,
    ):
        super().__init__(name, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)


class _AvgPool(Pool):
    formula = "y = mean over each window of x"

    def __init__(
        self,
        kernel_size: Window = 2,
        stride: Window | None = None,
        padding: Any = "valid",
        count_include_pad: bool = True,
        name: str | None = None,
    ):
        super().__init__(
            name, kernel_size=kernel_size, stride=stride, padding=padding, count_include_pad=count_include_pad
        )


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
    category = "Layers"
    keeps_scale = True

    def __init__(self, output_size: Pair = 1, name: str | None = None):
        super().__init__(name, output_size=output_size)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(batch, channels, h, w)` to `(batch, channels, *output_size)`, or to `(batch, channels)` if global."""
        shape, size = shape_with_channels(inputs["input"], 2), options.get("output_size", ())
        assert isinstance(size, tuple)
        if shape is None:
            return Inferred({"output": (LEADING,)})
        for axis, length in enumerate(shape[2:], start=2):
            if length == 0:
                raise MismatchError("input", "a non-empty image", "use a larger image.", f"axis {axis}: 0")
        dims: list[Dim] = [dim for dim in size if isinstance(dim, int)]
        return Inferred({"output": (*shape[:2], *dims)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the input's batch and channels from the output."""
        return as_output(inputs, outputs, 2)


class AdaptiveAvgPool2d(_Adaptive):
    """Mean of each window of an image. The output has the size `output_size` for images of any size.

    The windows cover the image and have nearly equal sizes. Each window gives one item of the output.

    Args:
        output_size: Height and width of the output; one number for both.

    Examples:
        >>> AdaptiveAvgPool2d(7)
        AdaptiveAvgPool2d(output_size=(7, 7))
    """

    op = "adaptive_avg_pool2d"
    formula = "y = mean over each window of x"


class AdaptiveMaxPool2d(_Adaptive):
    """Maximum of each window of an image. The output has the size `output_size` for images of any size.

    The windows cover the image and have nearly equal sizes. Each window gives one item of the output. Equal maxima
    share the gradient.

    Args:
        output_size: Height and width of the output; one number for both.

    Examples:
        >>> AdaptiveMaxPool2d(7)
        AdaptiveMaxPool2d(output_size=(7, 7))
    """

    op = "adaptive_max_pool2d"
    formula = "y = max over each window of x"


class GlobalAvgPool2d(_Adaptive):
    """Mean of each channel of an image: `(batch, channels, height, width)` becomes `(batch, channels)`.

    Examples:
        >>> GlobalAvgPool2d()
        GlobalAvgPool2d()
    """

    op = "global_avg_pool2d"
    formula = "y = mean over height and width of x"

    def __init__(self, name: str | None = None):
        Operator.__init__(self, name)
