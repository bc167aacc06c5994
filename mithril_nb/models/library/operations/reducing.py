"""The base class of reductions, and the rules of their axes, dtypes and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.fields import Range
from mithril_nb.models.library.operations.elementwise import Kind, check_kind, floating, kind_of
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError

Axis = Annotated[int, Range(-32, 31)]
Axes = Annotated[int | Sequence[int], Range(-32, 31)]


def summed(dtype: str) -> str:
    """Return the dtype of a sum. The sum of integers or booleans is an integer of at least 32 bits.

    Examples:
        >>> summed("bool"), summed("uint8"), summed("float16")
        ('int32', 'uint32', 'float16')
    """
    if kind_of(dtype) in ("truth", "whole") and not dtype.endswith("64"):
        return "uint32" if dtype.startswith("uint") else "int32"
    return dtype


def axes_of(axis: Value) -> tuple[int, ...] | None:
    """Return the attribute `axis` as a tuple of axes, or `None` for all axes."""
    if axis is None:
        return None
    axes = axis if isinstance(axis, tuple) else (axis,)
    assert all(isinstance(number, int) for number in axes)
    return axes  # pyright: ignore[reportReturnType]


def negative_axes(kind: str, shape: tuple[Dim, ...], axes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return axes as negative numbers; `None` if their position is unknown.

    Negative axes count from the end, so the last axis is -1. A shape that starts with `"..."` has unknown leading axes.

    Args:
        kind: The block's kind, for the error message.
        shape: The input's shape.
        axes: The axes; `None` for all.

    Raises:
        MismatchError: The shape does not have an axis, or an axis is repeated.

    Examples:
        >>> negative_axes("Sum", (2, 3, 4), (0, -1)), negative_axes("Sum", (2, 3), None)
        ((-3, -1), (-2, -1))
        >>> negative_axes("Sum", ("...", 3), (-1,)), negative_axes("Sum", ("...", 3), (0,))
        ((-1,), None)
    """
    is_open = shape[:1] == (LEADING,)
    if axes is None:
        return None if is_open else tuple(range(-len(shape), 0))
    if is_open:
        return axes if all(-len(shape) < axis < 0 for axis in axes) and len(set(axes)) == len(axes) else None
    positions: list[int] = []
    for axis in axes:
        if not -len(shape) <= axis < len(shape):
            nearest = f"{kind}(axis={-1 if axis < 0 else len(shape) - 1})"
            advice = nearest if shape else "use an input with at least one axis."
            raise MismatchError("input", f"an array that has axis {axis}", advice, f"rank {len(shape)}")
        position = axis - len(shape) if axis >= 0 else axis
        if position in positions:
            raise MismatchError(
                "input", "each axis once", f"{kind}(axis={position})", f"axis {position} twice in {axes}"
            )
        positions.append(position)
    return tuple(positions)


def reduced(shape: tuple[Dim, ...], at: tuple[int, ...] | None, axis: Value, keepdim: bool) -> tuple[Dim, ...]:
    """Return the shape after a reduction of the axes `at`, which `negative_axes` found from the attribute `axis`."""
    if at is None:
        return () if axis is None and not keepdim else (LEADING,)
    sizes = [1 if position in at else shape[position] for position in range(-len(shape), 0)]
    return tuple(sizes if keepdim else [shape[position] for position in range(-len(shape), 0) if position not in at])


def sizes_before_reduction(options: Options, output: tuple[Dim, ...]) -> Shapes:
    """Infer the input's shape from the output's: the sizes after the last reduced axis are equal.

    The result is empty if the output determines no size of the input.

    Examples:
        >>> sizes_before_reduction({"axis": (-2,), "keepdim": False}, ("batch", 5))
        {'input': ('...', 5)}
    """
    axes = axes_of(options["axis"])
    if not axes:
        return {} if axes is None else {"input": output}
    rank = len(output) + (0 if options["keepdim"] else len(axes))
    if output[:1] == (LEADING,) and max(axes) >= 0:
        return {}
    after = -1 - max(axis - rank if axis >= 0 else axis for axis in axes)
    tail = output[len(output) - after :]
    return {} if not tail or LEADING in tail else {"input": (LEADING, *tail)}


class Reduction(Operator):
    """Base of the ops that reduce some axes to one item.

    Attributes:
        takes: The kinds of dtypes that the input may have, see `kind_of`.
        gives: The dtype of the output: `"same"` for the dtype of the input, `"floating"` for its floating-point dtype,
            `"summed"` for the dtype of a sum, `"place"` for an index, which is an int32.
        needs_items: True if the op is not defined for an axis of size 0.
    """

    category = "Reductions"
    input_dtypes: ClassVar = {"*": "any"}
    takes: ClassVar[tuple[Kind, ...]] = ("floating", "whole", "truth")
    gives: ClassVar[Literal["same", "floating", "summed", "place"]] = "floating"
    needs_items: ClassVar[bool] = False

    def __init__(self, axis: Axes | None = None, keepdim: bool = False, name: str | None = None):
        super().__init__(name, axis=axis, keepdim=keepdim)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Remove the axes, or keep them with size 1 if `keepdim` is set."""
        spec, axis = inputs["input"], options["axis"]
        check_kind("input", spec, cls.takes)
        at = negative_axes(cls.__name__, spec.shape, axes_of(axis))
        for position in at or ():
            if cls.needs_items and spec.shape[position] == 0:
                raise MismatchError(
                    "input",
                    f"at least one item along axis {position}",
                    f"use an array with at least one item along axis {position}.",
                    f"axis {position}: size 0",
                )
        dtype = {
            "same": spec.dtype,
            "floating": floating(spec.dtype),
            "summed": summed(spec.dtype),
            "place": "int32",
        }[cls.gives]
        return Inferred({"output": TensorSpec(reduced(spec.shape, at, axis, bool(options["keepdim"])), dtype)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the input's sizes after the last reduced axis from the output. A connected attribute is a scalar."""
        return {**dict.fromkeys(cls.option_ports, ()), **sizes_before_reduction(options, outputs["output"].shape)}
