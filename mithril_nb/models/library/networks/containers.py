"""Containers of user-supplied blocks."""

from __future__ import annotations

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.models.composite import Composite
from mithril_nb.models.connection import Connection
from mithril_nb.models.library.layers.linear import Linear
from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.library.operations.arithmetic import Add
from mithril_nb.models.model import Model

__all__ = [
    "Layer",
    "Residual",
    "Sequential",
]


class Sequential(Composite):
    """Blocks in sequence: each reads the output of the previous one.

    Args:
        blocks: The blocks. A repeated block has separate parameters each time.

    Examples:
        >>> from mithril_nb.models import Relu
        >>> [node.name for node in Sequential(Linear(8), Relu(), Linear(2)).graph.nodes]
        ['linear_0', 'relu_0', 'linear_1']
    """

    def __init__(self, *blocks: Model, name: str | None = None):
        super().__init__(name)
        for block in blocks:
            self += block


class Layer(Composite):
    """An affine map of the last axis, followed by an activation.

    Args:
        activation: The activation.
        dimension: Size of the last axis of the output; with `None` weight and bias must be given.

    Examples:
        >>> from mithril_nb.models import Relu
        >>> [port.name for port in Layer(Relu(), 8).inputs]
        ['input', 'weight', 'bias']
    """

    formula = "y = act(x W + b)"

    def __init__(self, activation: Model, dimension: Size | None = None, name: str | None = None):
        super().__init__(name)
        self |= Linear(dimension)(input="input", weight="weight", bias="bias")
        self += activation


class Residual(Composite):
    """A residual connection: the output of a block is added to its input (He et al., 2016).

    Args:
        block: The block on the main path.
        shortcut: A block on the shortcut; `None` for the identity.

    Raises:
        UnknownOptionError: A block has no input or no output.

    Examples:
        >>> [node.name for node in Residual(Linear(8)).graph.nodes]
        ['linear_0', 'add_0']
    """

    formula = "y = x + block(x)"

    def __init__(self, block: Model, shortcut: Model | None = None, name: str | None = None):
        super().__init__(name)
        way = self._reading(block)
        around = "input" if shortcut is None else self._reading(shortcut)
        self |= Add()(left=around, right=way, output="output")

    def _reading(self, block: Model) -> Connection:
        """Add a block that reads the input; return its output."""
        if not isinstance(block, Model):
            raise UnknownOptionError(
                f"cannot build Residual around {short_repr(block)}.",
                (("needs", "a block with an input and an output"),),
                "Residual(Linear(64))",
            )
        data = [port.name for port in block.inputs if port.role == "data"]
        if not data or not block.outputs:
            raise UnknownOptionError(
                f"cannot build Residual around {block!r}: it has no {'output' if data else 'input'}.",
                (("needs", "a block with an input and an output"),),
                "Residual(Linear(64))",
            )
        self |= block(**{data[0]: "input"})
        return Connection(block, block.outputs[0].name)
