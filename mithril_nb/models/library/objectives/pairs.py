"""Pairing of the items of an input and a target, for losses and comparisons."""

from __future__ import annotations

from typing import Annotated

from mithril_nb.graph.spec import Dim
from mithril_nb.models.fields import Range
from mithril_nb.models.op import Inferred, Operator, Options, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, agree, broadcast

Threshold = Annotated[float, Range(0.0, 1.0)]
Axis = Annotated[int, Range(-8, 7)]


def paired(inputs: Specs, one: str, other: str) -> tuple[Dim, ...]:
    """Return the result shape of two paired arrays, one of which may broadcast to the other.

    Broadcasting both is an error: `(n,)` and `(n, 1)` would pair all items with all others, which is never intended.

    Raises:
        MismatchError: The shapes do not fit.

    Examples:
        >>> from mithril_nb.graph.spec import TensorSpec
        >>> paired({"input": TensorSpec(("n", 3)), "target": TensorSpec(())}, "input", "target")
        ('n', 3)
    """
    left, right = inputs[one], inputs[other]
    advice = f"a {other} with the shape of the {one}."
    try:
        shape = broadcast(left, right)
    except MismatchError as found:
        raise MismatchError(other, str(left.shape), advice, found.detail) from None
    if not agree(shape, left.shape) and not agree(shape, right.shape):
        raise MismatchError(other, str(left.shape), advice, f"both would broadcast, to {shape}")
    return shape


class Paired(Operator):
    """A loss of each item and its target."""

    category = "Losses"
    input_ports = ("input", "target")

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the common shape."""
        return Inferred({"output": paired(inputs, *cls.input_ports)})
