"""The block of a constant array."""

from __future__ import annotations

from typing import Any

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import ITEM_BYTES, TensorSpec, as_dtype
from mithril_nb.models.op import Operator
from mithril_nb.models.rules import Inferred, Options, Specs
from mithril_nb.models.shape_inference.folding import dtype_of, shape_of


class Constant(Operator):
    """Constant array.

    Args:
        value: A number, or nested lists of numbers. Lists at the same depth have the same length.
        dtype: Dtype of the array; by default the model's dtype for floats, `"int32"` for integers, `"bool"` for
            booleans.

    Raises:
        UnknownOptionError: The value is not an array of numbers, or a number does not fit into the dtype.
        UnknownDtypeError: The dtype is unknown.

    Examples:
        >>> Constant([1.0, 2.0])
        Constant(value=(1.0, 2.0), dtype=None)
    """

    op = "constant"
    input_ports = ()
    category = "Values"
    formula = "y = value"

    def __init__(self, value: Any = 0.0, dtype: str | None = None, name: str | None = None):
        super().__init__(name, value=value, dtype=None if dtype is None else str(as_dtype(dtype)))
        attributes = dict(self.block.attributes)
        _check_numbers(attributes["value"], attributes["dtype"])

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shape and dtype of the value."""
        value = options["value"]
        shape, dtype = shape_of(value), options["dtype"] or dtype_of(value)
        return Inferred({"output": TensorSpec(shape, str(dtype)) if dtype else shape})


def _check_numbers(value: Value, dtype: Value) -> None:
    numbers = _leaves(value, shape_of(value))
    if numbers is None or not all(isinstance(number, int | float) for number in numbers):
        raise UnknownOptionError(
            f"Constant cannot take value={short_repr(value)}.",
            (("needs", "a number, or nested lists of numbers, of equal length at each depth"),),
            "Constant([[1.0, 2.0], [3.0, 4.0]])",
        )
    named = str(dtype or dtype_of(value))
    bits, is_signed = 8 * ITEM_BYTES.get(named, 8), not named.startswith("uint")
    # The conversion of an integer to a float goes through a 64-bit integer.
    width = bits if "int" in named else 64
    least, most = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if is_signed else (0, 2**width - 1)
    for number in numbers:
        if isinstance(number, int) and not least <= number <= most:
            raise UnknownOptionError(
                f"Constant cannot hold {short_repr(number, 24)} in {named if 'int' in named else '64 bits'}.",
                (("needs", f"whole numbers from {least} to {most}"),),
                f'Constant({number}, dtype="float32")' if abs(number) < 2**63 else "Constant(1e30)",
            )


def _leaves(value: Value, shape: tuple[int, ...]) -> list[Value] | None:
    """Return the items of nested tuples in one list; `None` if the tuples do not have the given shape."""
    if not shape or not isinstance(value, tuple):
        return None if shape or isinstance(value, tuple) else [value]
    if len(value) != shape[0]:
        return None
    leaves: list[Value] = []
    for entry in value:
        inner = _leaves(entry, shape[1:])
        if inner is None:
            return None
        leaves += inner
    return leaves
