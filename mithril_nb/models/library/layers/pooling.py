"""Pooling of windows, channel by channel.

Arrays are `(batch, channels, ...)`, or `(channels, ...)` without a batch, as in PyTorch. The gradient of a maximum goes
to the first of equal items in its window, as in PyTorch; in adaptive pools and with dilation, equal items share it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from mithril_nb.graph.spec import LEADING, Dim
from mithril_nb.models.library.layers.windows import Line, Pair, Triple, channelled, refuse_padding, windows
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError

__all__ = [
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AvgPool1d",
    "AvgPool2D",
    "AvgPool2d",
    "AvgPool3d",
    "GlobalAvgPool2d",
    "MaxPool1D",
    "MaxPool1d",
    "MaxPool2D",
    "MaxPool2d",
    "MaxPool3d",
    "PrimitiveAvgPool2D",
    "PrimitiveMaxPool1D",
    "PrimitiveMaxPool2D",
]


class _Pool(Operator):
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
        """Map `(batch, channels, ...)` to `(batch, channels, ...)` with one item per window; the batch is optional."""
        shape, found = channelled(inputs["input"], cls.axes, needs_batch=False), windows(options, cls.axes)
        if shape is None or found is None:
            return Inferred({"output": (LEADING,)})
        return Inferred({"output": (*shape[: -cls.axes], *found.counts(shape))})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return the output's batch and channels for the input."""
        return _as_output(inputs, outputs, cls.axes)


def _as_output(inputs: Specs, outputs: Specs, axes: int) -> Shapes:
    shape, output = inputs["input"].shape, outputs["output"].shape if "output" in outputs else (LEADING,)
    lead = len(shape) - axes
    if lead < 1 or len(output) < lead or LEADING in (shape[0], output[0]):
        return {}
    return {"input": (*output[:lead], *shape[lead:])}


class _MaxPool(_Pool):
    formula = "y = max over each window of x"


class _AvgPool(_Pool):
    formula = "y = mean over each window of x"


class MaxPool1d(_MaxPool):
    """Maximum of each window of a series, channel by channel.

    The gradient goes to the first of equal items, as in PyTorch; with `dilation`, equal items share it.

    Args:
        kernel_size: Length of the window.
        stride: Step of the window; by default the window's size.
        padding: `"valid"` adds nothing, `"same"` keeps `ceil(size / stride)` windows; or a number, or a
            pair of numbers.
        dilation: Step from one item of the window to the next.

    Examples:
        >>> MaxPool1d(2).options["stride"]
        (2,)
    """

    op = "max_pool1d"
    axes = 1

    def __init__(
        self,
        kernel_size: Line = 2,
        stride: Line | None = None,
        padding: Any = "valid",
        dilation: Line = 1,
        name: str | None = None,
    ):
        super().__init__(name, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)


class AvgPool1d(_AvgPool):
    """Mean of each window of a series, channel by channel.

    Args:
        kernel_size: Length of the window.
        stride: Step of the window; by default the window's size.
        padding: `"valid"` adds nothing, `"same"` keeps `ceil(size / stride)` windows; or a number, or a
            pair of numbers.
        count_include_pad: If true, padding counts as zeros in the mean, as in PyTorch and Flax.

    Examples:
        >>> AvgPool1d(3, stride=1, padding="same").options["stride"]
        (1,)
    """

    op = "avg_pool1d"
    axes = 1

    def __init__(
        self,
        kernel_size: Line = 2,
        stride: Line | None = None,
        padding: Any = "valid",
        count_include_pad: bool = True,
        name: str | None = None,
    ):
        super().__init__(
            name, kernel_size=kernel_size, stride=stride, padding=padding, count_include_pad=count_include_pad
        )


class MaxPool2d(_MaxPool):
    """Maximum of each window of an image, channel by channel.

    The gradient goes to the first of equal items, as in PyTorch; with `dilation`, equal items share it.

    Args:
        kernel_size: Height and width of the window; one number for both.
        stride: Step of the window; by default the window's size.
        padding: `"valid"` adds nothing, `"same"` keeps `ceil(size / stride)` windows; or a number, one for each
            axis, or a pair (before, after) for each.
        dilation: Step from one item of the window to the next.

    Examples:
        >>> MaxPool2d(2).options["stride"]
        (2, 2)
    """

    op = "max_pool2d"
    axes = 2

    def __init__(
        self,
        kernel_size: Pair = 2,
        stride: Pair | None = None,
        padding: Any = "valid",
        dilation: Pair = 1,
        name: str | None = None,
    ):
        super().__init__(name, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)


class AvgPool2d(_AvgPool):
    """Mean of each window of an image, channel by channel.

    Args:
        kernel_size: Height and width of the window; one number for both.
        stride: Step of the window; by default the window's size.
        padding: `"valid"` adds nothing, `"same"` keeps `ceil(size / stride)` windows; or a number, one for each
            axis, or a pair (before, after) for each.
        count_include_pad: If true, padding counts as zeros in the mean, as in PyTorch and Flax.

    Examples:
        >>> AvgPool2d(3, stride=1, padding="same").options["stride"]
        (1, 1)
    """

    op = "avg_pool2d"
    axes = 2

    def __init__(
        self,
        kernel_size: Pair = 2,
        stride: Pair | None = None,
        padding: Any = "valid",
        count_include_pad: bool = True,
        name: str | None = None,
    ):
        super().__init__(
            name, kernel_size=kernel_size, stride=stride, padding=padding, count_include_pad=count_include_pad
        )


class MaxPool3d(_MaxPool):
    """Maximum of each window of a volume, channel by channel.

    The gradient goes to the first of equal items, as in PyTorch; with `dilation`, equal items share it.

    Args:
        kernel_size: Depth, height and width of the window; one number for all.
        stride: Step of the window; by default the window's size.
        padding: `"valid"` adds nothing, `"same"` keeps `ceil(size / stride)` windows; or a number, one for each
            axis, or a pair (before, after) for each.
        dilation: Step from one item of the window to the next.

    Examples:
        >>> MaxPool3d(2).options["stride"]
        (2, 2, 2)
    """

    op = "max_pool3d"
    axes = 3

    def __init__(
        self,
        kernel_size: Triple = 2,
        stride: Triple | None = None,
        padding: Any = "valid",
        dilation: Triple = 1,
        name: str | None = None,
    ):
        super().__init__(name, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)


class AvgPool3d(_AvgPool):
    """Mean of each window of a volume, channel by channel.

    Args:
        kernel_size: Depth, height and width of the window; one number for all.
        stride: Step of the window; by default the window's size.
        padding: `"valid"` adds nothing, `"same"` keeps `ceil(size / stride)` windows; or a number, one for each
            axis, or a pair (before, after) for each.
        count_include_pad: If true, padding counts as zeros in the mean, as in PyTorch and Flax.

    Examples:
        >>> AvgPool3d(3, stride=1, padding="same").options["stride"]
        (1, 1, 1)
    """

    op = "avg_pool3d"
    axes = 3

    def __init__(
        self,
        kernel_size: Triple = 2,
        stride: Triple | None = None,
        padding: Any = "valid",
        count_include_pad: bool = True,
        name: str | None = None,
    ):
        super().__init__(
            name, kernel_size=kernel_size, stride=stride, padding=padding, count_include_pad=count_include_pad
        )


class MaxPool1D(_MaxPool):
    """Maximum of each window, like `MaxPool1d`; its attributes can be connected, as in Mithril.

    The gradient at equal items equals the gradient of `MaxPool1d`.

    Args:
        kernel_size: Length of the window.
        stride: Step of the window; by default the window's size.
        padding: A number, a pair of numbers, `"same"` or `"valid"`.
        dilation: Step from one item of the window to the next.

    Examples:
        >>> [port.name for port in MaxPool1D(2).inputs]
        ['input', 'kernel_size', 'stride', 'padding', 'dilation']
    """

    op = "table_max_pool1d"
    category = "As in Mithril"
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


class _ConnectedPool2D(_Pool):
    """The common part of Mithril's image pools: each attribute is a port too."""

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
    """Maximum of each window, like `MaxPool2d`; its attributes can be connected, as in Mithril.

    The gradient at equal items equals the gradient of `MaxPool2d`.

    Args:
        kernel_size: Height and width of the window; one number for both.
        stride: Step of the window; by default the window's size.
        padding: A number, one for each axis, a pair (before, after) for each, `"same"` or `"valid"`.
        dilation: Step from one item of the window to the next.

    Examples:
        >>> [port.name for port in MaxPool2D(2).inputs]
        ['input', 'kernel_size', 'stride', 'padding', 'dilation']
    """

    op = "table_max_pool2d"
    formula = _MaxPool.formula


class AvgPool2D(_ConnectedPool2D):
    """Mean of each window, like `AvgPool2d`; its attributes can be connected, as in Mithril.

    Args:
        kernel_size: Height and width of the window; one number for both.
        stride: Step of the window; by default the window's size.
        padding: A number, one for each axis, a pair (before, after) for each, `"same"` or `"valid"`.
        dilation: Step from one item of the window to the next.

    Examples:
        >>> [port.name for port in AvgPool2D(2).inputs]
        ['input', 'kernel_size', 'stride', 'padding', 'dilation']
    """

    op = "table_avg_pool2d"
    formula = _AvgPool.formula


class PrimitiveMaxPool1D(MaxPool1D):
    """`MaxPool1D` under the name of Mithril's primitive.

    Args:
        kernel_size: Length of the window.
        stride: Step of the window; by default the window's size.
        padding: A number, a pair of numbers, `"same"` or `"valid"`.
        dilation: Step from one item of the window to the next.

    Examples:
        >>> PrimitiveMaxPool1D(2).options["kernel_size"]
        (2,)
    """

    op = "primitive_max_pool1d"


class PrimitiveMaxPool2D(MaxPool2D):
    """`MaxPool2D` under the name of Mithril's primitive.

    Args:
        kernel_size: Height and width of the window; one number for both.
        stride: Step of the window; by default the window's size.
        padding: A number, one for each axis, a pair (before, after) for each, `"same"` or `"valid"`.
        dilation: Step from one item of the window to the next.

    Examples:
        >>> PrimitiveMaxPool2D(2).options["kernel_size"]
        (2, 2)
    """

    op = "primitive_max_pool2d"


class PrimitiveAvgPool2D(AvgPool2D):
    """`AvgPool2D` under the name of Mithril's primitive.

    Args:
        kernel_size: Height and width of the window; one number for both.
        stride: Step of the window; by default the window's size.
        padding: A number, one for each axis, a pair (before, after) for each, `"same"` or `"valid"`.
        dilation: Step from one item of the window to the next.

    Examples:
        >>> PrimitiveAvgPool2D(2).options["kernel_size"]
        (2, 2)
    """

    op = "primitive_avg_pool2d"


class _Adaptive(Operator):
    category = "Layers"
    keeps_scale = True

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(batch, channels, h, w)` to `(batch, channels, *output_size)`."""
        shape, size = channelled(inputs["input"], 2), options["output_size"]
        assert isinstance(size, tuple)
        if shape is None:
            return Inferred({"output": (LEADING,)})
        _check_filled(shape)
        dims: list[Dim] = [one for one in size if isinstance(one, int)]
        return Inferred({"output": (*shape[:2], *dims)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return the output's batch and channels for the input."""
        return _as_output(inputs, outputs, 2)


class AdaptiveAvgPool2d(_Adaptive):
    """Mean of each window of an image; `output_size` windows cover the image evenly.

    Args:
        output_size: Height and width of the output; one number for both.

    Examples:
        >>> AdaptiveAvgPool2d(7)
        AdaptiveAvgPool2d(output_size=(7, 7))
    """

    op = "adaptive_avg_pool2d"
    formula = "y = mean over each window of x"

    def __init__(self, output_size: Pair = 1, name: str | None = None):
        super().__init__(name, output_size=output_size)


class AdaptiveMaxPool2d(_Adaptive):
    """Maximum of each window of an image; `output_size` windows cover the image evenly.

    Equal items share the gradient.

    Args:
        output_size: Height and width of the output; one number for both.

    Examples:
        >>> AdaptiveMaxPool2d(7)
        AdaptiveMaxPool2d(output_size=(7, 7))
    """

    op = "adaptive_max_pool2d"
    formula = "y = max over each window of x"

    def __init__(self, output_size: Pair = 1, name: str | None = None):
        super().__init__(name, output_size=output_size)


class GlobalAvgPool2d(Operator):
    """Mean of each channel of an image: `(batch, channels, height, width)` becomes `(batch, channels)`.

    Examples:
        >>> GlobalAvgPool2d()
        GlobalAvgPool2d()
    """

    op = "global_avg_pool2d"
    category = "Layers"
    keeps_scale = True
    formula = "y = mean over height and width of x"

    def __init__(self, name: str | None = None):
        super().__init__(name)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(batch, channels, h, w)` to `(batch, channels)`."""
        shape = channelled(inputs["input"], 2)
        if shape is not None:
            _check_filled(shape)
        return Inferred({"output": (LEADING,) if shape is None else shape[:2]})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return the output's batch and channels for the input."""
        return _as_output(inputs, outputs, 2)


def _check_filled(shape: tuple[Dim, ...]) -> None:
    for axis, size in enumerate(shape[2:], start=2):
        if size == 0:
            raise MismatchError("input", "a non-empty image", "a larger image.", f"axis {axis}: 0")
