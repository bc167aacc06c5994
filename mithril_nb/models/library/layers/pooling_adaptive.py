"""Pooling of images by windows that follow from the size of the output."""

from __future__ import annotations

from mithril_nb.graph.spec import LEADING, Dim
from mithril_nb.models.library.layers.windows import Pair, as_output, channelled
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError

__all__ = ["AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "GlobalAvgPool2d"]


class _Adaptive(Operator):
    category = "Layers"
    keeps_scale = True

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(batch, channels, h, w)` to `(batch, channels, *output_size)`, or without sizes for a global pool."""
        shape, size = channelled(inputs["input"], 2), options.get("output_size", ())
        assert isinstance(size, tuple)
        if shape is None:
            return Inferred({"output": (LEADING,)})
        for axis, length in enumerate(shape[2:], start=2):
            if length == 0:
                raise MismatchError("input", "a non-empty image", "a larger image.", f"axis {axis}: 0")
        dims: list[Dim] = [one for one in size if isinstance(one, int)]
        return Inferred({"output": (*shape[:2], *dims)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return the output's batch and channels for the input."""
        return as_output(inputs, outputs, 2)


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


class GlobalAvgPool2d(_Adaptive):
    """Mean of each channel of an image: `(batch, channels, height, width)` becomes `(batch, channels)`.

    Examples:
        >>> GlobalAvgPool2d()
        GlobalAvgPool2d()
    """

    op = "global_avg_pool2d"
    formula = "y = mean over height and width of x"

    def __init__(self, name: str | None = None):
        super().__init__(name)
