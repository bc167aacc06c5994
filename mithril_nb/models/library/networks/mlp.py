"""Models that are made of blocks, under one name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from mithril_nb.models.composite import Composite
from mithril_nb.models.fields import Range
from mithril_nb.models.library.layers.linear import Linear
from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.library.operations.activations import Gelu, Relu, Sigmoid, Tanh

__all__ = [
    "MLP",
]

_ACTIVATIONS = {"relu": Relu, "gelu": Gelu, "sigmoid": Sigmoid, "tanh": Tanh}


class MLP(Composite):
    """Linear blocks with an activation between them.

    Args:
        input_size: Size of the last axis of the input; by default taken from the input.
        hidden_sizes: Widths of the hidden blocks.
        output_size: Width of the last block.
        activation: What stands between two blocks.

    Raises:
        UnknownOptionError: A size that does not fit.

    Examples:
        >>> [node.name for node in MLP(784, [512, 256], 10).graph.nodes]
        ['linear_0', 'relu_0', 'linear_1', 'relu_1', 'linear_2']
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
    ):
        super().__init__(
            name, input_size=input_size, hidden_sizes=hidden_sizes, output_size=output_size, activation=activation
        )
        options = self.options
        hidden = options["hidden_sizes"]
        assert isinstance(hidden, tuple)
        size = options["input_size"]
        for width in (*hidden, options["output_size"]):
            assert isinstance(width, int)
            if self.graph.nodes:
                self += _ACTIVATIONS[str(options["activation"])]()
            self += Linear(width, input_size=size)
            size = None
