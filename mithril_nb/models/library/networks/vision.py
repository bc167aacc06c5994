"""Image models, for `(batch, channels, height, width)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from mithril_nb.errors import UnknownOptionError
from mithril_nb.models.composite import Composite
from mithril_nb.models.fields import Range
from mithril_nb.models.library.layers.convolution import Conv2d
from mithril_nb.models.library.layers.linear import Linear
from mithril_nb.models.library.layers.normalization import BatchNorm2d
from mithril_nb.models.library.layers.pooling import GlobalAvgPool2d, MaxPool2d
from mithril_nb.models.library.layers.windows import Pair, Size
from mithril_nb.models.library.networks.containers import Residual, Sequential
from mithril_nb.models.library.operations.activations import Relu
from mithril_nb.models.library.operations.reshaping import Flatten

__all__ = ["CNN", "ResNet", "ResidualBlock"]

Sizes = Annotated[Sequence[int], Range(1, 2**20)]
Small = Annotated[int, Range(1, 64)]
_BY_DEPTH = {
    18: "ResNet((2, 2, 2, 2))",
    34: "ResNet((3, 4, 6, 3))",
    50: "ResNet((3, 4, 6, 3), bottleneck=True)",
    101: "ResNet((3, 4, 23, 3), bottleneck=True)",
    152: "ResNet((3, 8, 36, 3), bottleneck=True)",
}
"""The networks of He et al. (2016), table 1, by the number in their names."""


class CNN(Composite):
    """A small convolutional network: convolutions that each halve the image, then a Linear block.

    Args:
        channels: Channels of each convolution.
        dimension: Width of the output.
        kernel_size: Height and width of the windows.
        use_norm: If true, a BatchNorm follows each convolution.

    Examples:
        >>> [node.name for node in CNN([8], 10).graph.nodes]
        ['conv2d_0', 'relu_0', 'max_pool2d_0', 'flatten_0', 'linear_0']
    """

    category = "Composites"
    formula = "y = Linear(Flatten(MaxPool(act(Conv(... x)))))"

    def __init__(
        self,
        channels: Sizes = (32, 64),
        dimension: Size = 10,
        kernel_size: Pair = 3,
        use_norm: bool = False,
        name: str | None = None,
    ):
        super().__init__(name, channels=channels, dimension=dimension, kernel_size=kernel_size, use_norm=use_norm)
        options = self.options
        for count in options["channels"]:
            self += Conv2d(count, options["kernel_size"], use_bias=not use_norm)
            if use_norm:
                self += BatchNorm2d()
            self += Relu()
            self += MaxPool2d(2)
        self += Flatten()
        self += Linear(options["dimension"])


class ResidualBlock(Composite):
    """A block of a residual network: two or three convolutions with norms, and a shortcut (He et al., 2016).

    Args:
        channels: Channels of the convolutions.
        stride: Downsampling factor of the image.
        bottleneck: If true, 1x1 convolutions surround the 3x3 one; the output then has 4 times the channels.
        project: If true, the shortcut has a 1x1 convolution; required if size or channels change.

    Examples:
        >>> [node.name for node in ResidualBlock(16).graph.nodes]
        ['residual_0', 'relu_0']
    """

    category = "Composites"
    formula = "y = relu(x + Norm(Conv(relu(Norm(Conv(x))))))"

    def __init__(
        self,
        channels: Size = 64,
        stride: Small = 1,
        bottleneck: bool = False,
        project: bool = False,
        name: str | None = None,
    ):
        super().__init__(name, channels=channels, stride=stride, bottleneck=bottleneck, project=project)
        options = self.options
        width, step = options["channels"], options["stride"]
        if bottleneck:
            wide = 4 * width
            way = [*_normed(width, 1), Relu(), *_normed(width, 3, step), Relu(), *_normed(wide, 1)]
        else:
            wide = width
            way = [*_normed(width, 3, step), Relu(), *_normed(width, 3)]
        self += Residual(Sequential(*way), Sequential(*_normed(wide, 1, step)) if project else None)
        self += Relu()


class ResNet(Composite):
    """A residual network (He et al., 2016), with weights in the shapes of torchvision's.

    | network | arguments |
    |---|---|
    | ResNet-18 | `ResNet((2, 2, 2, 2))` |
    | ResNet-34 | `ResNet((3, 4, 6, 3))` |
    | ResNet-50 | `ResNet((3, 4, 6, 3), bottleneck=True)` |
    | ResNet-20, for images as small as CIFAR's | `ResNet((3, 3, 3), 10, width=16, small=True)` |

    Args:
        layers: Number of residual blocks per stage; each stage halves the image and doubles the channels.
        dimension: Width of the output.
        width: Channels of the first stage.
        bottleneck: If true, the residual blocks have bottlenecks.
        small: True for small images: the first convolution then keeps their size.

    Examples:
        >>> model = ResNet((1, 1), 10, width=8, small=True)
        >>> [node.name for node in model.graph.nodes if node.name.startswith("residual")]
        ['residual_block_0', 'residual_block_1']
    """

    category = "Composites"
    formula = "y = Linear(mean(ResidualBlock(... Conv(x))))"

    def __init__(
        self,
        layers: Annotated[Sequence[int], Range(1, 64)] = (2, 2, 2, 2),
        dimension: Size = 1000,
        width: Annotated[int, Range(1, 2**12)] = 64,
        bottleneck: bool = False,
        small: bool = False,
        name: str | None = None,
    ):
        if str(layers).isdigit():  # as in ResNet-18, not one stage of 18 blocks
            raise UnknownOptionError(
                f"ResNet cannot take layers={layers!r}.",
                (("needs", "a list with the number of residual blocks per stage"),),
                _BY_DEPTH.get(int(str(layers)), "ResNet((2, 2, 2, 2))"),
            )
        super().__init__(name, layers=layers, dimension=dimension, width=width, bottleneck=bottleneck, small=small)
        options = self.options
        channels = options["width"]
        for block in _normed(channels, 3) if small else _normed(channels, 7, 2):
            self += block
        self += Relu()
        if not small:
            self += MaxPool2d(3, stride=2, padding=1)
        for stage, count in enumerate(options["layers"]):
            for place in range(count):
                step = 2 if stage and not place else 1
                changes = step == 2 or (bottleneck and not place)
                self += ResidualBlock(channels * 2**stage, step, bottleneck, changes)
        self += GlobalAvgPool2d()
        self += Linear(options["dimension"])


def _normed(channels: int, size: int, stride: int = 1) -> tuple[Conv2d, BatchNorm2d]:
    """Return a convolution with a norm, padded symmetrically as in PyTorch, also for a stride of 2."""
    return Conv2d(channels, size, stride=stride, padding=size // 2, use_bias=False), BatchNorm2d()
