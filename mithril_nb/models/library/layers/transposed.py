"""Transposed convolutions: the gradient of a convolution with respect to its input."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from mithril_nb.graph.spec import Dim
from mithril_nb.models.fields import Range
from mithril_nb.models.library.layers.convolving import Convolution, Shape, divided
from mithril_nb.models.library.layers.windows import Line, Pair, Size, Triple, Windows, each, transposed_pads
from mithril_nb.models.op import Initializer, Options
from mithril_nb.models.shape_inference.dims import MismatchError

__all__ = [
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
]

Extra = Annotated[int, Range(0, 63)]


class _Transposed(Convolution):
    formula = "y[o] = Σ_i w[i, o] * (x[i] with stride - 1 zeros between its items) + b[o]"
    initializers: ClassVar = {"weight": Initializer("he_normal", in_axis=0, out_axis=1), "bias": Initializer("zeros")}

    @classmethod
    def weight_shape(cls, options: Options, channels: Dim, groups: int) -> Shape:
        """Return `(in, out / groups, ...)`, given the channels of the input."""
        out, wanted = options["out_channels"], options["in_channels"]
        assert isinstance(out, int)
        kernel = each("kernel_size", options["kernel_size"], cls.axes)
        return (wanted if isinstance(wanted, int) else channels, divided(out, groups), *kernel)

    @classmethod
    def channels(cls, weight: Shape, groups: int) -> tuple[Dim | None, Dim]:
        """Return the input and output channels of a weight."""
        assert isinstance(weight[1], int)
        return weight[0], weight[1] * groups

    @classmethod
    def sizes(cls, options: Options, shape: Shape, found: Windows) -> Shape:
        """Return `(size - 1) * stride + 1`, adjusted for the reach of the window and the padding."""
        extra = options["output_padding"]
        assert isinstance(extra, int)
        sizes: list[Dim] = []
        spans = zip(shape[2:], found.stride, found.reach, transposed_pads(found, extra), strict=True)
        for axis, (size, step, reach, pads) in enumerate(spans, start=2):
            change = sum(pads) + 2 - reach - step
            sizes.append(
                size * step + change
                if isinstance(size, int)
                else (size if step == 1 else f"({size})*{step}") + (f"{change:+d}" if change else "")
            )
            if isinstance(sizes[-1], int) and sizes[-1] < 1:
                raise MismatchError("input", f"more on axis {axis}", "less padding.", f"axis {axis}: {size}")
        return tuple(sizes)


class ConvTranspose1d(_Transposed):
    """Transposed convolution, which upsamples series. Series are `(batch, channels, length)`.

    The weight is stored as `(in, out / groups, length)`, like that of the `Conv1d` whose gradient it is.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Length of the window.
        in_channels: Channels of the input; by default taken from the input.
        stride: Upsampling factor.
        padding: `"same"` gives `size * stride` items, `"valid"` every item that the windows reach; numbers, with the
            meaning of the `Conv1d` whose gradient it is, are removed from the output.
        use_bias: If true, add a bias to each channel.
        dilation: Step from one item of the window to the next.
        groups: Number of groups of channels, each with separate windows.
        output_padding: Number of items to add after each axis of the output.

    Examples:
        >>> ConvTranspose1d(8, 4, stride=2).options["stride"]
        (2,)
    """

    op = "conv_transpose1d"
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
        output_padding: Extra = 0,
        name: str | None = None,
    ):
        given = {"out_channels": out_channels, "kernel_size": kernel_size, "in_channels": in_channels, "stride": stride}
        more = {"padding": padding, "use_bias": use_bias, "dilation": dilation, "groups": groups}
        super().__init__(name, **given, **more, output_padding=output_padding)


class ConvTranspose2d(_Transposed):
    """Transposed convolution, which upsamples images. Images are `(batch, channels, height, width)`.

    The weight is stored as `(in, out / groups, height, width)`, like that of the `Conv2d` whose gradient it is.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Height and width of the window; one number for both.
        in_channels: Channels of the input; by default taken from the input.
        stride: Upsampling factor.
        padding: `"same"` gives `size * stride` items, `"valid"` every item that the windows reach; numbers, with the
            meaning of the `Conv2d` whose gradient it is, are removed from the output.
        use_bias: If true, add a bias to each channel.
        dilation: Step from one item of the window to the next.
        groups: Number of groups of channels, each with separate windows.
        output_padding: Number of items to add after each axis of the output.

    Examples:
        >>> ConvTranspose2d(8, 4, stride=2).options["stride"]
        (2, 2)
    """

    op = "conv_transpose2d"
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
        output_padding: Extra = 0,
        name: str | None = None,
    ):
        given = {"out_channels": out_channels, "kernel_size": kernel_size, "in_channels": in_channels, "stride": stride}
        more = {"padding": padding, "use_bias": use_bias, "dilation": dilation, "groups": groups}
        super().__init__(name, **given, **more, output_padding=output_padding)


class ConvTranspose3d(_Transposed):
    """Transposed convolution, which upsamples volumes. Volumes are `(batch, channels, depth, height, width)`.

    The weight is stored as `(in, out / groups, depth, height, width)`, like that of the `Conv3d` whose gradient it is.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Depth, height and width of the window; one number for all.
        in_channels: Channels of the input; by default taken from the input.
        stride: Upsampling factor.
        padding: `"same"` gives `size * stride` items, `"valid"` every item that the windows reach; numbers, with the
            meaning of the `Conv3d` whose gradient it is, are removed from the output.
        use_bias: If true, add a bias to each channel.
        dilation: Step from one item of the window to the next.
        groups: Number of groups of channels, each with separate windows.
        output_padding: Number of items to add after each axis of the output.

    Examples:
        >>> ConvTranspose3d(8, 4, stride=2).options["stride"]
        (2, 2, 2)
    """

    op = "conv_transpose3d"
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
        output_padding: Extra = 0,
        name: str | None = None,
    ):
        given = {"out_channels": out_channels, "kernel_size": kernel_size, "in_channels": in_channels, "stride": stride}
        more = {"padding": padding, "use_bias": use_bias, "dilation": dilation, "groups": groups}
        super().__init__(name, **given, **more, output_padding=output_padding)
