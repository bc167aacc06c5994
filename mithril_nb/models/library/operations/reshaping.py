"""Reshaping and reordering of axes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from mithril_nb.graph.spec import LEADING, Spec, TensorSpec
from mithril_nb.models.fields import Start
from mithril_nb.models.library.operations.shape_rules import (
    KeepsShape,
    as_sizes,
    flat_span,
    places_of,
    reshaped,
    stretched,
)
from mithril_nb.models.op import UNKNOWN, Inferred, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, place_of, product
from mithril_nb.models.shape_inference.folding import as_array

__all__ = [
    "AtLeast1D",
    "BroadcastTo",
    "ExpandDims",
    "Flatten",
    "Identity",
    "PermuteTensor",
    "Reshape",
    "Squeeze",
    "SwapAxes",
    "Transpose",
]

NOTHING_KNOWN: Inferred = Inferred({"output": (LEADING,)})


class Rearranging(Operator):
    """Base of the ops that accept arrays of any dtype and return the same dtype."""

    category = "Shape"
    keeps_scale = True
    input_dtypes: ClassVar = {"*": "any"}

    @classmethod
    def wanted_dtype(cls, port: str, dtype: str) -> str:
        """Return the declared dtype of an input. A connected attribute, such as a shape, is `"int32"`."""
        return "int32" if port in cls.option_ports else super().wanted_dtype(port, dtype)


class Reshape(Rearranging):
    """Reshapes the array, keeping the order of items.

    Args:
        shape: The sizes. One may be -1: it is inferred from the number of items. A size may also be a name, such as in
            `("batch", -1)`: it is the input's size on the same axis. If there is one name and no -1, the name is
            inferred like -1.

    Examples:
        >>> Reshape((2, -1))
        Reshape(shape=(2, -1))
    """

    op = "reshape"
    option_ports = ("shape",)
    formula = "y = x in another shape"
    takes_values = True

    def __init__(self, shape: Any = None, name: str | None = None):
        super().__init__(name, shape=shape)

    @classmethod
    def infer(cls, options: Options, inputs: dict[str, Spec]) -> Inferred:
        """Return the shape, with -1 and names resolved."""
        array, target = as_array("input", inputs["input"], "float32"), options["shape"]
        if target == UNKNOWN:
            return Inferred({"output": TensorSpec((LEADING,), array.dtype)})
        shape = reshaped(array.shape, as_sizes("shape", target), connected="shape" in inputs)
        return Inferred({"output": TensorSpec(shape, array.dtype)})


class Flatten(Rearranging):
    """Merges axes into one. By default all except the first: `(batch, a, b)` becomes `(batch, a * b)`.

    Args:
        start_dim: The first axis to merge.
        end_dim: The last axis to merge.

    Examples:
        >>> Flatten()
        Flatten(start_dim=1, end_dim=-1)
    """

    op = "flatten"
    option_ports = ("start_dim", "end_dim")
    formula = "y[n] = all of x[n] in one row"

    def __init__(self, start_dim: int = 1, end_dim: int = -1, name: str | None = None):
        super().__init__(name, start_dim=start_dim, end_dim=end_dim)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Replace the sizes of the merged axes by their product."""
        shape, start, end = inputs["input"].shape, options["start_dim"], options["end_dim"]
        if not isinstance(start, int) or not isinstance(end, int):
            return NOTHING_KNOWN
        span = flat_span(shape, start, end)
        if span is None:
            return NOTHING_KNOWN
        first, last = span
        return Inferred({"output": (*shape[:first], product(shape[first:last]), *shape[last:])})


class Squeeze(Rearranging):
    """Removes axes of size 1.

    Args:
        axis: One axis or several; by default all axes of size 1.

    Examples:
        >>> Squeeze()
        Squeeze(axis=None)
    """

    op = "squeeze"
    option_ports = ("axis",)
    formula = "y = x without axes of size 1"

    def __init__(self, axis: Any = None, name: str | None = None):
        super().__init__(name, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Remove axes of size 1. Without `axis`, it is unknown whether to remove an axis whose size is a name."""
        shape, axis = inputs["input"].shape, options["axis"]
        if axis == UNKNOWN:
            return NOTHING_KNOWN
        if axis is None:
            named = [position for position, size in enumerate(shape) if isinstance(size, str)]
            tail = tuple(size for size in shape[named[-1] + 1 if named else 0 :] if size != 1)
            return Inferred({"output": (LEADING, *tail) if named else tail})
        positions = places_of("axis", axis, shape)
        if positions is None:
            return NOTHING_KNOWN
        for position in positions:
            if isinstance(shape[position], int) and shape[position] != 1:
                raise MismatchError(
                    "input",
                    f"size 1 on axis {position}",
                    "Squeeze()  # removes all axes of size 1",
                    f"axis {position}: {shape[position]} != 1",
                )
        return Inferred({"output": tuple(size for position, size in enumerate(shape) if position not in positions)})


class ExpandDims(Rearranging):
    """Adds axes of size 1.

    Args:
        axis: Position of the new axis in the output, or several positions.

    Examples:
        >>> ExpandDims(-1)
        ExpandDims(axis=-1)
    """

    op = "expand_dims"
    option_ports = ("axis",)
    formula = "y = x with an axis of size 1"

    def __init__(self, axis: Any = 0, name: str | None = None):
        super().__init__(name, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Insert a 1 at each position."""
        shape, axis = inputs["input"].shape, options["axis"]
        if axis == UNKNOWN:
            return NOTHING_KNOWN
        positions = places_of("axis", axis, shape, adds=True)
        if positions is None:
            return NOTHING_KNOWN
        sizes = iter(shape)
        return Inferred(
            {
                "output": tuple(
                    1 if position in positions else next(sizes) for position in range(len(shape) + len(positions))
                )
            }
        )


class AtLeast1D(Rearranging):
    """Adds an axis of size 1 to a scalar; other arrays are unchanged.

    Examples:
        >>> AtLeast1D()
        AtLeast1D()
    """

    op = "at_least_1d"
    formula = "y = x with at least one axis"

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `()` to `(1,)`."""
        return Inferred({"output": inputs["input"].shape or (1,)})


class BroadcastTo(Rearranging):
    """Broadcasts an array to a shape: repeats it along axes of size 1, and along new leading axes.

    Args:
        shape: The sizes. A name is the input's size on that axis, where axes are counted from the last one.

    Examples:
        >>> BroadcastTo((3, 4))
        BroadcastTo(shape=(3, 4))
    """

    op = "broadcast_to"
    option_ports = ("shape",)
    formula = "y = x, repeated to a shape"
    takes_values = True

    def __init__(self, shape: Any = None, name: str | None = None):
        super().__init__(name, shape=shape)

    @classmethod
    def infer(cls, options: Options, inputs: dict[str, Spec]) -> Inferred:
        """Return the shape, if the input broadcasts to it."""
        array, target = as_array("input", inputs["input"], "float32"), options["shape"]
        if target == UNKNOWN:
            return Inferred({"output": TensorSpec((LEADING,), array.dtype)})
        shape = stretched(array.shape, as_sizes("shape", target), connected="shape" in inputs)
        return Inferred({"output": TensorSpec(shape, array.dtype)})


class Transpose(Rearranging):
    """Permutes the axes.

    Args:
        axes: For each axis of the output, the axis of the input. By default the order is reversed.

    Examples:
        >>> Transpose((0, 2, 1))
        Transpose(axes=(0, 2, 1))
    """

    op = "transpose"
    option_ports = ("axes",)
    formula = "y[j, i] = x[i, j]"

    def __init__(self, axes: Any = None, name: str | None = None):
        super().__init__(name, axes=axes)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Permute the sizes."""
        shape, axes = inputs["input"].shape, options["axes"]
        if axes == UNKNOWN or LEADING in shape[:1]:
            return NOTHING_KNOWN
        if axes is None or axes == ():
            return Inferred({"output": shape[::-1]})
        positions = places_of("axes", axes, shape)
        assert positions is not None
        if len(positions) != len(shape):
            raise MismatchError(
                "input",
                f"rank {len(positions)}, for axes={axes!r}",
                f"use axes that contain each number from 0 to {len(shape) - 1} once.",
                f"rank {len(shape)}",
            )
        return Inferred({"output": tuple(shape[position] for position in positions)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the input's shape: the output's sizes in the order of the input's axes."""
        shape, axes = outputs["output"].shape if "output" in outputs else (LEADING,), options["axes"]
        if LEADING in shape[:1]:
            return {}
        if axes is None or axes == ():
            return {"input": shape[::-1]}
        order = [axis % len(shape) for axis in axes if isinstance(axis, int)] if isinstance(axes, tuple) else []
        if sorted(order) != list(range(len(shape))):
            return {}
        return {"input": tuple(shape[order.index(position)] for position in range(len(shape)))}


class SwapAxes(Rearranging):
    """Swaps two axes.

    Args:
        axis1: One axis.
        axis2: The other axis.

    Examples:
        >>> SwapAxes(-1, -2)
        SwapAxes(axis1=-1, axis2=-2)
    """

    op = "swap_axes"
    option_ports = ("axis1", "axis2")
    formula = "y[j, i] = x[i, j]"

    def __init__(self, axis1: Annotated[int, Start(-1)], axis2: Annotated[int, Start(-2)], name: str | None = None):
        super().__init__(name, axis1=axis1, axis2=axis2)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Swap the two sizes."""
        shape, axes = inputs["input"].shape, (options["axis1"], options["axis2"])
        positions = [place_of("input", axis, shape) for axis in axes if isinstance(axis, int)]
        if len(positions) < 2 or None in positions:
            return NOTHING_KNOWN
        sizes = list(shape)
        first, other = (position for position in positions if position is not None)
        sizes[first], sizes[other] = sizes[other], sizes[first]
        return Inferred({"output": tuple(sizes)})


class PermuteTensor(Rearranging):
    """Selects rows in the order of an index array: `input[indices]`.

    Examples:
        >>> [port.name for port in PermuteTensor().inputs]
        ['input', 'indices']
    """

    op = "permute_tensor"
    input_ports = ("input", "indices")
    input_dtypes: ClassVar = {"input": "any", "indices": "int32"}
    formula = "y[i] = x[indices[i]]"

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Replace the first size of the input by the shape of the indices."""
        shape, some = inputs["input"].shape, inputs["indices"].shape
        if shape == ():
            raise MismatchError("input", "at least one axis", "use an input with at least one axis.", "rank 0")
        if LEADING in shape[:1]:
            return NOTHING_KNOWN
        return Inferred({"output": (*some, *shape[1:])})


class Identity(KeepsShape, Rearranging):
    """Returns its input unchanged: an array, or a static value such as a shape. Use it to give a connection a name.

    Examples:
        >>> Identity()
        Identity()
    """

    op = "identity"
    formula = "y = x"
    takes_values = True

    @classmethod
    def infer(cls, options: Options, inputs: dict[str, Spec]) -> Inferred:
        """Return the spec of the input."""
        return Inferred({"output": inputs["input"]})
