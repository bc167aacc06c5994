"""Containers such as `Sequential`, and feed-forward networks for rows of features and for images.

Images are `(batch, channels, height, width)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.models.composite import Composite
from mithril_nb.models.connection import Connection
from mithril_nb.models.fields import checked, fields_of
from mithril_nb.models.library.layers import BatchNorm2d, Conv2d, GlobalAvgPool2d, Linear, MaxPool2d
from mithril_nb.models.library.layers.windows import Pair, Size
from mithril_nb.models.library.operations import Add, Flatten, Gelu, Relu, Sigmoid, Tanh
from mithril_nb.models.model import Model
from mithril_nb.models.naming import input_names
from mithril_nb.models.op import Range

__all__ = ["CNN", "MLP", "Layer", "ResNet", "Residual", "ResidualBlock", "Sequential"]

_ACTIVATIONS = {"relu": Relu, "gelu": Gelu, "sigmoid": Sigmoid, "tanh": Tanh}
Sizes = Annotated[Sequence[int], Range(1, 2**20)]
Small = Annotated[int, Range(1, 64)]
_BY_DEPTH = {
    # The number counts the layers with weights. It does not determine the stages, so it is refused with this advice.
    18: "ResNet((2, 2, 2, 2))",
    34: "ResNet((3, 4, 6, 3))",
    50: "ResNet((3, 4, 6, 3), bottleneck=True)",
    101: "ResNet((3, 4, 23, 3), bottleneck=True)",
    152: "ResNet((3, 8, 36, 3), bottleneck=True)",
}
"""Code of the networks of He et al. (2016), table 1, by the number in their names."""


class Sequential(Composite):
    """Blocks in sequence: each reads the output of the previous one.

    Args:
        blocks: The blocks. A block that is given twice has separate parameters for each use.

    Examples:
        >>> from mithril_nb.models import Relu
        >>> [node.name for node in Sequential(Linear(8), Relu(), Linear(2)).graph.nodes]
        ['linear_0', 'relu_0', 'linear_1']
    """

    def __init__(self, *blocks: Model, name: str | None = None):
        super().__init__(name)
        # A copy is added, see `Model`: a block given twice has two sets of parameters, unlike in PyTorch.
        for block in blocks:
            self += block


class Layer(Composite):
    """An affine map of the last axis, followed by an activation.

    Args:
        activation: The activation.
        dimension: Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.

    Raises:
        UnknownOptionError: `activation` is not a block, or `dimension` is invalid.

    Examples:
        >>> [port.name for port in Layer(Relu(), 8).inputs]
        ['input', 'weight', 'bias']
    """

    formula = "y = act(x W + b)"

    def __init__(self, activation: Model, dimension: Size | None = None, name: str | None = None):
        super().__init__(name)
        if not isinstance(activation, Model):
            raise UnknownOptionError(
                f"cannot build Layer with {short_repr(activation)}.", (("needs", "an activation"),), "Layer(Relu(), 64)"
            )
        # The parameters are named, as in Mithril: `layer.weight`, not `layer.linear_0.weight`.
        self |= Linear(dimension)(input="input", weight="weight", bias="bias")
        self += activation


class Residual(Composite):
    """A residual connection: the output of a block is added to its input (He et al., 2016).

    Args:
        block: The block on the main path.
        shortcut: A block on the shortcut; `None` for the identity.

    Raises:
        UnknownOptionError: An argument is not a block, or a block has no input or no output.

    Examples:
        >>> [node.name for node in Residual(Linear(8)).graph.nodes]
        ['linear_0', 'add_0']
    """

    formula = "y = x + block(x)"

    def __init__(self, block: Model, shortcut: Model | None = None, name: str | None = None):
        super().__init__(name)
        # The shortcut comes second, so that the main path is computed first in the order of blocks.
        branch = self._reading(block)
        around = "input" if shortcut is None else self._reading(shortcut)
        self |= Add()(left=around, right=branch, output="output")

    def _reading(self, block: Model) -> Connection:
        if not isinstance(block, Model):
            raise UnknownOptionError(
                f"cannot build Residual around {short_repr(block)}.",
                (("needs", "a block with an input and an output"),),
                "Residual(Linear(64))",
            )
        data = input_names(block.block)
        if not data or not block.outputs:
            raise UnknownOptionError(
                f"cannot build Residual around {block!r}: the block has no {'output' if data else 'input'}.",
                (("needs", "a block with an input and an output"),),
                "Residual(Linear(64))",
            )
        self |= block(**{data[0]: "input"})
        return Connection(block, block.outputs[0].name)


class MLP(Composite):
    """Linear blocks with an activation between them.

    Mithril's arguments, a list of activations and a list of widths, work too: `MLP([Relu(), Softmax()], [256, 10])`. An
    activation then follows each Linear block, and the parameters are named `weight0`, `bias0`, `weight1` and so on.

    Args:
        input_size: Size of the last axis of the input; by default taken from the input.
        hidden_sizes: Widths of the hidden blocks.
        output_size: Width of the last block.
        activation: The activation between two blocks.
        activations: Mithril's argument: the activation after each Linear block.
        dimensions: Mithril's argument: the width of each Linear block. With `None`, weight and bias are inputs.
        input_name_templates: Mithril's argument: names of the parameters, without the number. With
            `{"weight": "w"}`, the weights are named `w0`, `w1` and so on.

    Raises:
        UnknownOptionError: A size is invalid, or the numbers of activations and widths differ.

    Examples:
        >>> [node.name for node in MLP(784, [512, 256], 10).graph.nodes]
        ['linear_0', 'relu_0', 'linear_1', 'relu_1', 'linear_2']
        >>> [port.name for port in MLP(activations=[Relu(), Tanh()], dimensions=[8, 2]).inputs]
        ['input', 'weight0', 'bias0', 'weight1', 'bias1']
    """

    category = "Composites"
    formula = "y = Linear(act(Linear(... x)))"

    def __init__(
        self,
        input_size: Size | None = None,
        hidden_sizes: Annotated[Sequence[int], Range(1, 2**20)] = (64,),
        output_size: Size = 10,
        activation: Literal["relu", "gelu", "sigmoid", "tanh"] = "relu",
        name: str | None = None,
        *,
        activations: Sequence[Model] | None = None,
        dimensions: Sequence[int | None] | None = None,
        input_name_templates: Mapping[str, str] | None = None,
    ):
        # Mithril's arguments by position: activations come first, then dimensions.
        if isinstance(input_size, list | tuple):
            activations, dimensions = input_size, hidden_sizes
        # Blocks cannot be attributes, so a file stores the inner blocks of such a model instead of its arguments.
        if activations is not None or dimensions is not None or input_name_templates is not None:
            super().__init__(name)
            self._layers(activations or (), dimensions or (), input_name_templates or {})
            return
        super().__init__(
            name, input_size=input_size, hidden_sizes=hidden_sizes, output_size=output_size, activation=activation
        )
        options: Any = self.options
        # Only the first block needs the size of the input. The others take it from the block before.
        self += Linear((*options["hidden_sizes"], options["output_size"])[0], input_size=options["input_size"])
        for width in (*options["hidden_sizes"], options["output_size"])[1:]:
            self += _ACTIVATIONS[options["activation"]]()
            self += Linear(width)

    def _layers(self, activations: Sequence[Model], dimensions: Sequence[int | None], names: Mapping[str, str]) -> None:
        unknown = [port for port in names if port not in ("weight", "bias")]
        if len(activations) != len(dimensions) or not activations or unknown:
            counts = (("activations", f"{len(activations)}"), ("dimensions", f"{len(dimensions)}"))
            because = "it needs one activation and one dimension for each layer"
            if unknown:
                because = f"input_name_templates has the unknown key {unknown[0]!r}"
            raise UnknownOptionError(
                f"cannot build MLP: {because}.",
                (("keys", "'weight' and 'bias'"),) if unknown else counts,
                "MLP(activations=[Relu(), Softmax()], dimensions=[256, 10])",
            )
        for dimension in dimensions:  # checked before the first layer is built
            checked("Linear", fields_of(Linear), {"dimension": dimension})
        source: Any = "input"
        for number, (activation, dimension) in enumerate(zip(activations, dimensions, strict=True)):
            # Mithril's names: weight0, bias0, weight1, ...
            named = {port: f"{names.get(port, port)}{number}" for port in ("weight", "bias")}
            layer = Layer(activation, dimension)
            self |= layer(input=source, **named)
            source = layer.output


class CNN(Composite):
    """A small convolutional network: convolutions, each followed by a pool that halves the image, and a Linear block.

    Args:
        channels: Number of output channels of each convolution.
        dimension: Width of the output.
        kernel_size: Height and width of the windows.
        use_norm: If true, a BatchNorm follows each convolution.

    Examples:
        >>> [node.name for node in CNN([8], 10).graph.nodes]
        ['conv2d_0', 'relu_0', 'max_pool2d_0', 'flatten_0', 'linear_0']
    """

    channels: Sizes = (32, 64)
    dimension: Size = 10
    kernel_size: Pair = 3
    use_norm: bool = False

    category = "Composites"
    formula = "y = Linear(Flatten(MaxPool(act(Conv(... x)))))"

    def compose(self):
        for count in self.channels:
            # The norm subtracts the mean, so a bias before it has no effect.
            self += Conv2d(count, self.kernel_size, use_bias=not self.use_norm)
            if self.use_norm:
                self += BatchNorm2d()
            self += Relu()
            self += MaxPool2d(2)
        self += Flatten()
        self += Linear(self.dimension)


class ResidualBlock(Composite):
    """A block of a residual network: two or three convolutions with norms, and a shortcut (He et al., 2016).

    Args:
        channels: Channels of the convolutions.
        stride: Factor by which the image becomes smaller.
        bottleneck: If true, there is a 1x1 convolution before and after the 3x3 convolution, and the output has 4 times
            the channels.
        project: If true, the shortcut has a 1x1 convolution. It is required if the input has another number of channels
            than the output, or if `stride` is not 1.

    Examples:
        >>> [node.name for node in ResidualBlock(16).graph.nodes]
        ['residual_0', 'relu_0']
    """

    channels: Size = 64
    stride: Small = 1
    bottleneck: bool = False
    project: bool = False

    category = "Composites"
    formula = "y = relu(x + Norm(Conv(relu(Norm(Conv(x))))))"

    def compose(self):
        width, step = self.channels, self.stride
        if self.bottleneck:
            wide = 4 * width
            branch = [*_normed(width, 1), Relu(), *_normed(width, 3, step), Relu(), *_normed(wide, 1)]
        else:
            wide = width
            branch = [*_normed(width, 3, step), Relu(), *_normed(width, 3)]
        # The ReLU comes after the sum, as in the first version of the paper and in torchvision.
        self += Residual(Sequential(*branch), Sequential(*_normed(wide, 1, step)) if self.project else None)
        self += Relu()


class _Stages(Composite):
    def __init__(self, name: str | None = None, **attributes: Any):
        if str(layers := attributes["layers"]).isdigit():  # ResNet(18) means ResNet-18, not one stage of 18 blocks
            raise UnknownOptionError(
                f"ResNet cannot take layers={layers!r}.",
                (("needs", "a list with the number of residual blocks per stage"),),
                _BY_DEPTH.get(int(str(layers)), "ResNet((2, 2, 2, 2))"),
            )
        super().__init__(name, **attributes)


class ResNet(_Stages):
    """A residual network (He et al., 2016). The weights have the same shapes as in torchvision.

    | network | arguments |
    |---|---|
    | ResNet-18 | `ResNet((2, 2, 2, 2))` |
    | ResNet-34 | `ResNet((3, 4, 6, 3))` |
    | ResNet-50 | `ResNet((3, 4, 6, 3), bottleneck=True)` |
    | ResNet-20, for images as small as CIFAR's | `ResNet((3, 3, 3), 10, width=16, small=True)` |

    Args:
        layers: Number of residual blocks in each stage. Each stage after the first halves the image and doubles the
            channels.
        dimension: Width of the output.
        width: Channels of the first stage.
        bottleneck: If true, the residual blocks have bottlenecks, see `ResidualBlock`.
        small: If true, the blocks before the first stage keep the size of the image, which suits small images. If
            false, they divide it by 4.

    Examples:
        >>> model = ResNet((1, 1), 10, width=8, small=True)
        >>> [node.name for node in model.graph.nodes if node.name.startswith("residual")]
        ['residual_block_0', 'residual_block_1']
    """

    layers: Annotated[Sequence[int], Range(1, 64)] = (2, 2, 2, 2)
    dimension: Size = 1000
    width: Annotated[int, Range(1, 2**12)] = 64
    bottleneck: bool = False
    small: bool = False

    category = "Composites"
    formula = "y = Linear(mean(ResidualBlock(... Conv(x))))"

    def compose(self):
        for block in _normed(self.width, 3) if self.small else _normed(self.width, 7, 2):
            self += block
        self += Relu()
        if not self.small:
            # As in torchvision; TensorFlow's "same" would pad at the end only.
            self += MaxPool2d(3, stride=2, padding=1)
        for stage, count in enumerate(self.layers):
            for index in range(count):
                # Only the first block of a stage halves the image, and so needs a projection.
                step = 2 if stage and not index else 1
                changes = step == 2 or (self.bottleneck and not index)
                self += ResidualBlock(self.width * 2**stage, step, self.bottleneck, changes)
        self += GlobalAvgPool2d()
        self += Linear(self.dimension)


def _normed(channels: int, size: int, stride: int = 1) -> tuple[Conv2d, BatchNorm2d]:
    # Both sides have the same padding, as in PyTorch and unlike "same".
    return Conv2d(channels, size, stride=stride, padding=size // 2, use_bias=False), BatchNorm2d()
