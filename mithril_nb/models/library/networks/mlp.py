"""The multilayer perceptron."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from mithril_nb.errors import UnknownOptionError
from mithril_nb.models.composite import Composite
from mithril_nb.models.fields import Range, checked, fields_of
from mithril_nb.models.library.layers.linear import Linear
from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.library.networks.containers import Layer
from mithril_nb.models.library.operations.activations import Gelu, Relu, Sigmoid, Tanh
from mithril_nb.models.model import Model

__all__ = [
    "MLP",
]

_ACTIVATIONS = {"relu": Relu, "gelu": Gelu, "sigmoid": Sigmoid, "tanh": Tanh}


class MLP(Composite):
    """Linear blocks with an activation between them.

    Mithril's own form has an activation after each Linear: `MLP([Relu(), Softmax()], [256, 10])`. Its parameters are
    named `weight0`, `bias0`, `weight1` and so on.

    Args:
        input_size: Size of the last axis of the input; by default taken from the input.
        hidden_sizes: Widths of the hidden blocks.
        output_size: Width of the last block.
        activation: The activation between two blocks.
        activations: In Mithril's form, the activation after each Linear block.
        dimensions: In Mithril's form, the width of each Linear block; `None` requires a given weight.
        input_name_templates: In Mithril's form, names of the parameters without the number suffix:
            `{"weight": "w", "bias": "b"}`.

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
        if isinstance(input_size, list | tuple):
            activations, dimensions = input_size, hidden_sizes
        if activations is not None or dimensions is not None or input_name_templates is not None:
            super().__init__(name)
            self._layers(activations or (), dimensions or (), input_name_templates or {})
            return
        super().__init__(
            name, input_size=input_size, hidden_sizes=hidden_sizes, output_size=output_size, activation=activation
        )
        options: Any = self.options
        self += Linear((*options["hidden_sizes"], options["output_size"])[0], input_size=options["input_size"])
        for width in (*options["hidden_sizes"], options["output_size"])[1:]:
            self += _ACTIVATIONS[options["activation"]]()
            self += Linear(width)

    def _layers(self, activations: Sequence[Model], dimensions: Sequence[int | None], names: Mapping[str, str]) -> None:
        unknown = [port for port in names if port not in ("weight", "bias")]
        if len(activations) != len(dimensions) or not activations or unknown:
            raise UnknownOptionError(
                "cannot build MLP from these layers.",
                (
                    ("activations", f"{len(activations)}, one for each layer"),
                    ("dimensions", f"{len(dimensions)}, one for each layer"),
                    *((("names", f"weight and bias, not {unknown[0]!r}"),) if unknown else ()),
                ),
                "MLP(activations=[Relu(), Softmax()], dimensions=[256, 10])",
            )
        for dimension in dimensions:  # before any layer is built
            checked("Linear", fields_of(Linear), {"dimension": dimension})
        source: Any = "input"
        for number, (activation, dimension) in enumerate(zip(activations, dimensions, strict=True)):
            named = {port: f"{names.get(port, port)}{number}" for port in ("weight", "bias")}
            layer = Layer(activation, dimension)
            self |= layer(input=source, **named)
            source = layer.output
