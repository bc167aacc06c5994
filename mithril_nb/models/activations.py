"""Blocks that act on each item by itself, and softmax: no parameters, the shape stays."""

from __future__ import annotations

from typing import Annotated

from mithril_nb.models.dims import MismatchError
from mithril_nb.models.fields import Range
from mithril_nb.models.op import Inferred, Operator, Options, Specs


class _Elementwise(Operator):
    category = "Activations"

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """The shape stays as it is."""
        return Inferred({"output": inputs["input"].shape}, {})


class Relu(_Elementwise):
    """Keeps what is positive and sets the rest to zero.

    Examples:
        >>> Relu()
        Relu()
    """

    op = "relu"
    formula = "y = max(x, 0)"

    def __init__(self, name: str | None = None):
        super().__init__(name)


class Gelu(_Elementwise):
    """Weights each item by the normal distribution's chance to be below it (Hendrycks and Gimpel, 2016).

    Args:
        approximate: Whether to use the tanh formula in place of the exact one.

    Examples:
        >>> Gelu()
        Gelu(approximate=False)
    """

    op = "gelu"
    formula = "y = x Φ(x)"

    def __init__(self, approximate: bool = False, name: str | None = None):
        super().__init__(name, approximate=approximate)


class Sigmoid(_Elementwise):
    """Squeezes each item between 0 and 1.

    Examples:
        >>> Sigmoid()
        Sigmoid()
    """

    op = "sigmoid"
    formula = "y = 1 / (1 + exp(-x))"

    def __init__(self, name: str | None = None):
        super().__init__(name)


class Tanh(_Elementwise):
    """Squeezes each item between -1 and 1.

    Examples:
        >>> Tanh()
        Tanh()
    """

    op = "tanh"
    formula = "y = tanh(x)"

    def __init__(self, name: str | None = None):
        super().__init__(name)


class Softmax(_Elementwise):
    """Turns scores along an axis into positive weights that sum to 1.

    Args:
        axis: The axis; -1 is the last one.

    Examples:
        >>> Softmax()
        Softmax(axis=-1)
    """

    op = "softmax"
    formula = "y = exp(x) / Σ exp(x)"

    def __init__(self, axis: Annotated[int, Range(-8, 7)] = -1, name: str | None = None):
        super().__init__(name, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """The shape stays; the axis must exist."""
        shape, axis = inputs["input"].shape, options["axis"]
        assert isinstance(axis, int)
        if shape[:1] != ("...",) and not -len(shape) <= axis < len(shape):
            raise MismatchError("input", f"an array that has axis {axis}", "Softmax(axis=-1)", f"rank {len(shape)}")
        return Inferred({"output": shape}, {})


class Dropout(_Elementwise):
    """In training, sets items to zero at random and scales up the rest; otherwise changes nothing.

    Args:
        p: Chance of an item to be dropped.
        training: Whether to drop; `None` follows the program: yes in `fit`, no in `evaluate`.

    Examples:
        >>> Dropout(0.5)
        Dropout(p=0.5, training=None)
    """

    op = "dropout"
    category = "Layers"
    formula = "y = x m / (1 - p), m ~ Bernoulli(1 - p)"

    def __init__(
        self, p: Annotated[float, Range(0.0, 0.99)] = 0.5, training: bool | None = None, name: str | None = None
    ):
        super().__init__(name, p=p, training=training)
