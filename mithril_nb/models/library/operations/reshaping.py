"""Reshaping and reordering of axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from mithril_nb.graph.records import Value
from mithril_nb.models.op import (
    LEADING,
    UNKNOWN,
    UNKNOWN_SHAPE,
    Dim,
    Dims,
    MismatchError,
    Operator,
    Options,
    PortNames,
    Range,
    Spec,
    Start,
    TensorSpec,
    jnp,
)
from mithril_nb.models.rules import OpRules, Shapes, Specs
from mithril_nb.models.shape_inference.dims import (
    UnknownShapeError,
    broadcast,
    check_axis,
    closed,
    differ,
    is_open,
    located,
    place_of,
    plus,
    product,
    quotient,
    spliced,
)
from mithril_nb.models.shape_inference.folding import as_array

__all__ = [
    "AtLeast1D",
    "BroadcastTo",
    "CartesianDifference",
    "Concat",
    "ExpandDims",
    "Flatten",
    "Flip",
    "Identity",
    "Pad",
    "PermuteTensor",
    "RepeatItems",
    "Reshape",
    "Roll",
    "Split",
    "Squeeze",
    "Stack",
    "SwapAxes",
    "Tile",
    "Transpose",
]


class KeepsShape(OpRules):
    """The rule of an op whose output has the shape of its input."""

    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape."""
        return inputs["input"].shape

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the input's shape: it is the output's."""
        # A mismatch at the output leaves it unknown, and then nothing follows for the input.
        return {"input": outputs["output"].shape} if "output" in outputs else {}


def last_axis(inputs: Specs) -> tuple[Dims, Dim | None]:
    """Return the sizes of `input` before its last axis, and that of the last axis; `None` if it is unknown."""
    shape = inputs["input"].shape
    check_axis("input", shape, "use an input with axes, such as (batch, features).")
    # Of ("...", 3) the last size is known, and the sizes before it are ("...",).
    return (shape, None) if shape == UNKNOWN_SHAPE else (shape[:-1], shape[-1])


def known(value: Value) -> Any:
    """Return the value of an attribute. Raise an `UnknownShapeError` if it is connected and known only at run time."""
    if value == UNKNOWN:
        raise UnknownShapeError
    return value


def as_sizes(port: str, value: Value) -> Dims:
    """Return the value of an attribute, one size or a tuple of sizes, as a tuple. A size is an integer or a name."""
    sizes = value if isinstance(value, tuple) else (value,)
    # `True` is an int in Python, and no size.
    if any(isinstance(size, bool) or not isinstance(size, int | str) for size in sizes):
        raise MismatchError(port, "sizes", f"{port}=(2, 3)  # or a connected shape: {port}=x.shape()")
    return tuple(size for size in sizes if isinstance(size, int | str))


def reshaped(shape: Dims, target: Dims, connected: bool = False) -> Dims:
    """Return the shape of an array after reshaping it to `target`, for `Reshape`.

    Args:
        shape: The shape of the array.
        target: The new sizes, see `Reshape`.
        connected: True if `target` comes from a connection. A name in it is then the size itself, and is not inferred.

    Examples:
        A size of -1 is inferred:

        >>> reshaped(("batch", 4, 6), (-1, 24)), reshaped((0, 3), (0, -1))
        (('batch', 24), (0, 3))

        A name next to a -1 is the array's size on the same axis. A name alone is inferred:

        >>> reshaped((2, 4, 6), ("batch", -1)), reshaped((2, 4, 6), ("rows", 6))
        ((2, 24), (8, 6))
    """
    if is_open(target):
        # A connected shape of unknown rank, such as that of another open array.
        return target if -1 not in target else UNKNOWN_SHAPE
    if target.count(-1) > 1 or any(isinstance(size, int) and size < -1 for size in target):
        raise MismatchError("input", f"a shape with at most one -1, not {target}", "shape=(2, -1)")
    # In `Reshape(("batch", -1))` a name copies the size of the same axis. A connected name is the size itself.
    names = [] if connected else [position for position, size in enumerate(target) if isinstance(size, str)]
    sizes = list(target)
    if len(names) == 1 and -1 not in target:
        # A single name is inferred from the number of items, so its axis may be another one in the input.
        (inferred,) = names
    else:
        inferred = target.index(-1) if -1 in target else None
        for position in names:
            sizes[position] = _kept(shape, target, position)
    others = tuple(size for position, size in enumerate(sizes) if position != inferred)
    if is_open(shape):
        # The number of items is unknown. An inferred size keeps its name. A -1 has no name, so its size is unknown.
        return tuple(sizes) if -1 not in sizes else UNKNOWN_SHAPE
    total = product(shape)
    rest = product(others)
    if inferred is None:
        # Named sizes may turn out equal, so only a number, or a quotient that is no integer, is refused.
        ratio = 1 if rest == total else None if differ(rest, total) else quotient(shape, others)
        fits = ratio == 1 or isinstance(ratio, str)
    else:
        ratio, name = quotient(shape, others), target[inferred]
        # A name of the input is one size: (n, 4) cannot become (m * n,) under the name n.
        fits = ratio is not None and (ratio == name or name not in shape)
        sizes[inferred] = -1 if ratio is None else ratio
    if not fits:
        # With a -1, any multiple fits. Without, only one number does.
        needed = f"a multiple of {rest}" if -1 in target else product(tuple(target) if names else tuple(sizes))
        raise MismatchError(
            "input",
            f"{needed} items, for shape {target}",
            f"use sizes whose product is {total}.",
            f"{total} items" if -1 in target else f"{total} != {needed}",
        )
    return tuple(sizes)


def _kept(shape: Dims, target: Dims, position: int) -> Dim:
    """Return the size for the name `target[place]` of a reshape: the input's size on the same axis."""
    name = target[position]
    if is_open(shape):
        return name
    if position >= len(shape):
        raise MismatchError(
            "input",
            f"an axis {position}, for {name!r} in {target}",
            f"replace {name!r} by a number or -1.",
            f"rank {len(shape)}",
        )
    if name in shape and shape[position] != name:
        each = (
            f"x.shape()[{shape.index(dim)}]" if dim in shape and isinstance(dim, str) else str(dim) for dim in target
        )
        raise MismatchError(
            "input",
            f"{name!r} on axis {position}, for shape {target}",
            f"x.reshape({', '.join(each)})  # each size from its axis",
            f"axis {position}: {shape[position]} != {name}",
        )
    return shape[position]


def stretched(shape: Dims, target: Dims, connected: bool = False) -> Dims:
    """Return the shape of an array after broadcasting it to `target`, for `BroadcastTo`.

    Args:
        shape: The shape of the array.
        target: The new sizes, see `BroadcastTo`.
        connected: True if `target` comes from a connection. A name in it is then the size itself.

    Examples:
        >>> stretched((1, 3), (2, 3)), stretched(("batch", 1), ("batch", 4))
        ((2, 3), ('batch', 4))
    """
    if is_open(shape) or is_open(target):
        return target
    if len(target) < len(shape):
        raise MismatchError(
            "input",
            f"at most {len(target)} axes, for shape {target}",
            f"use a shape with at least {len(shape)} sizes.",
            f"rank {len(shape)}",
        )
    sizes = list(target)
    offset = len(target) - len(shape)
    for axis, size in enumerate(target):
        # Axes are aligned at the end, as in NumPy. An axis that the array lacks has size 1.
        own = shape[axis - offset] if axis >= offset else 1
        # PyTorch's `expand` keeps a size for -1. Here a name does that, and a negative size is a mistake.
        if isinstance(size, int) and size < 0:
            raise MismatchError(
                "input",
                f"sizes of 0 or more, not {target}",
                f"replace {size} by a number of 0 or more, or by a name.",
                f"axis {axis}: {size}",
            )
        if isinstance(size, str) and not connected:
            if axis < offset:
                raise MismatchError(
                    "input",
                    f"an axis for {size!r} in {target}",
                    f"replace {size!r} by a number, or connect shape.",
                    f"rank {len(shape)}",
                )
            sizes[axis] = own
        elif differ(own, size) and own != 1:
            raise MismatchError(
                "input",
                f"a shape that broadcasts to {target}",
                f"use an input with size 1 or {size} on axis {axis - offset}.",
                f"axis {axis - offset}: {own} != {size}",
            )
    return tuple(sizes)


def flat_span(shape: Dims, start: int, end: int) -> tuple[int, int] | None:
    """Return `(a, b)` if `Flatten` merges the axes `shape[a:b]`; `None` if their positions are unknown.

    If a equals b, `Flatten` inserts an axis of size 1.

    Examples:
        >>> flat_span((2, 3, 4), 1, -1), flat_span((2,), 1, -1)
        ((1, 3), (1, 1))
    """
    rank = len(shape)
    if not is_open(shape):
        if start > 0:
            check_axis("input", shape, "use an input with a batch axis.")
        # `Flatten()` of a vector of samples adds an axis of size 1, so that a `Linear` can follow.
        if (start, end) == (rank, -1) or (rank == 0 and start in (0, -1) and end in (0, -1)):
            return rank, rank
    first, last = place_of("input", start, shape), place_of("input", end, shape)
    if first is None or last is None:
        return None
    if first > last:
        raise MismatchError(
            "input",
            "start_dim at or before end_dim",
            f"Flatten(start_dim={end}, end_dim={start})",
            f"start_dim={start} is axis {first}, end_dim={end} is axis {last}",
        )
    return first, last + 1


def places_of(port: str, axes: Value, shape: Dims, adds: bool = False) -> list[int] | None:
    """Return axes as non-negative numbers; `None` if one is unknown because the shape has unknown leading axes.

    Args:
        port: The attribute with the axes, for the error message.
        axes: One axis, or a tuple of axes. A negative axis counts from the end.
        shape: The shape.
        adds: True for axes that the block adds. They are then positions in the shape of the result.

    Examples:
        >>> places_of("axis", (0, -1), (2, 3, 4)), places_of("axis", -1, (2, 3), adds=True)
        ([0, 2], [2])
        >>> places_of("axis", (0, -1), ("...", 3)) is None
        True
    """
    several = axes if isinstance(axes, tuple) else (axes,)
    if any(isinstance(axis, bool) or not isinstance(axis, int) for axis in several):
        raise MismatchError("input", f"whole numbers as {port}, not {axes!r}", f"{port}=0")
    # Positions of new axes count in the result, as in `np.expand_dims`.
    more = len(several) if adds else 0
    resolved = [place_of("input", axis, shape, more) for axis in several if isinstance(axis, int)]
    positions = [position for position in resolved if position is not None]
    if len(positions) < len(resolved):
        return None
    if len(set(positions)) < len(positions):
        raise MismatchError(
            "input", f"different axes, not {port}={axes!r}", f"use each axis once in {port}.", f"rank {len(shape)}"
        )
    return positions


def is_count(value: object, least: int = 0) -> bool:
    """Return whether a value is an integer of at least `least`, and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def broadcast_all(inputs: Specs) -> Dims:
    """Return the shape that several inputs broadcast to.

    Examples:
        >>> broadcast_all({"a": TensorSpec((3, 1)), "b": TensorSpec((4,)), "c": TensorSpec(())})
        (3, 4)
    """
    # One by one, so that an error names the port that does not fit.
    (_, so_far), *rest = inputs.items()
    for port, spec in rest:
        try:
            so_far = TensorSpec(broadcast(so_far, spec))
        except MismatchError as error:
            raise MismatchError(port, error.need, error.advice, error.detail) from None
    return so_far.shape


def broadcast_back(inputs: Specs, output: Dims) -> Shapes:
    """Infer the shapes of broadcast inputs from the shape of the result.

    If all inputs except one have size 1 on an axis, this one input has the size of the result. An input is omitted if
    nothing is known about its shape.

    Examples:
        The last size of `left` must be 3, because `right` has size 1 there:

        >>> broadcast_back({"left": TensorSpec(("n", "m")), "right": TensorSpec((4, 1))}, (4, 3))
        {'left': ('n', 3), 'right': (4, 1)}
        >>> broadcast_back({"left": TensorSpec(("...",)), "right": TensorSpec(())}, ("batch", 3))
        {'left': ('batch', 3)}
    """
    shapes: dict[str, Dims] = {}
    for port, spec in inputs.items():
        others = [other.shape for name, other in inputs.items() if name != port]
        # Scalars add no axes, so the rank of the result is that of this input.
        if all(shape == () for shape in others):
            shapes[port] = output
        elif LEADING not in (*spec.shape[:1], *output[:1], *(dim for shape in others for dim in shape[:1])):
            shape = list(spec.shape)
            # A size of the result comes from this input if it is the only one that does not have size 1 there.
            for offset in range(1, len(shape) + 1):
                if all(offset > len(other) or other[-offset] == 1 for other in others) and offset <= len(output):
                    shape[-offset] = output[-offset]
            shapes[port] = tuple(shape)
    return shapes


def same_sizes(inputs: Specs, except_axis: int | None = None) -> Dims:
    """Return the common shape of all inputs. A size is a name only if it is a name in all inputs.

    Args:
        inputs: Specs by port.
        except_axis: An axis on which the sizes may differ. The result has the size of the first input there.

    Examples:
        >>> same_sizes({"input1": TensorSpec(("batch", 3)), "input2": TensorSpec((8, 3))})
        (8, 3)
    """
    (first, reference), *others = inputs.items()
    sizes = list(reference.shape)
    for port, spec in others:
        expected = ["any" if axis == except_axis else str(size) for axis, size in enumerate(sizes)]
        need = f"({', '.join(expected)}{',' * (len(expected) == 1)}), like {first} {reference.shape}"
        if len(spec.shape) != len(sizes):
            raise MismatchError(
                port, need, "use arrays with the same number of axes.", f"rank {len(spec.shape)} != {len(sizes)}"
            )
        for axis, (size, other) in enumerate(zip(sizes, spec.shape, strict=True)):
            if axis == except_axis:
                continue
            if differ(size, other):
                raise MismatchError(
                    port, need, f"use arrays with the same size on axis {axis}.", f"axis {axis}: {other} != {size}"
                )
            # A number is more precise than a name.
            sizes[axis] = other if isinstance(other, int) else size
    return tuple(sizes)


class Rearranging(Operator):
    """Base of the ops that accept arrays of any dtype and return the same dtype."""

    category = "Shape"
    keeps_scale = True
    # Connected attributes are axes and sizes; the data may have any dtype.
    input_dtypes = {"*": "any", "option": "int32"}


def _to_sizes(rule: Callable[[Dims, Dims, bool], Dims], options: Options, inputs: Mapping[str, Spec]) -> TensorSpec:
    array, target = as_array("input", inputs["input"], "float32"), options["shape"]
    if target == UNKNOWN:
        return TensorSpec(UNKNOWN_SHAPE, array.dtype)
    return TensorSpec(rule(array.shape, as_sizes("shape", target), "shape" in inputs), array.dtype)


class Reshape(Rearranging):
    """Reshapes the array, keeping the order of items.

    Args:
        shape: The sizes. One may be -1: it is inferred from the number of items. A size may also be a name, such as in
            `("batch", -1)`: it is the input's size on the same axis. If there is one name and no -1, the name is
            inferred like -1.
    """

    shape: Any = None

    op = "reshape"
    option_ports = ("shape",)
    formula = "y = x in another shape"
    takes_values = True

    @classmethod
    def infer(cls, options, inputs: dict[str, Spec]):
        """Return the shape, with -1 and names resolved."""
        return _to_sizes(reshaped, options, inputs)


class Flatten(Rearranging):
    """Merges axes into one. By default all except the first: `(batch, a, b)` becomes `(batch, a * b)`.

    Args:
        start_dim: The first axis to merge.
        end_dim: The last axis to merge.
    """

    start_dim: int = 1
    end_dim: int = -1

    op = "flatten"
    option_ports = ("start_dim", "end_dim")
    formula = "y[n] = all of x[n] in one row"

    @classmethod
    def infer(cls, options, inputs):
        """Replace the sizes of the merged axes by their product."""
        shape, start, end = inputs["input"].shape, options["start_dim"], options["end_dim"]
        span = flat_span(shape, start, end) if isinstance(start, int) and isinstance(end, int) else None
        if span is None:
            raise UnknownShapeError
        first, last = span
        return (*shape[:first], product(shape[first:last]), *shape[last:])


class Squeeze(Rearranging):
    """Removes axes of size 1.

    Args:
        axis: One axis or several; by default all axes of size 1.
    """

    axis: Any = None

    op = "squeeze"
    option_ports = ("axis",)
    formula = "y = x without axes of size 1"

    @classmethod
    def infer(cls, options, inputs):
        """Remove axes of size 1. Without `axis`, it is unknown whether to remove an axis whose size is a name."""
        shape, axis = inputs["input"].shape, known(options["axis"])
        if axis is None:
            # A named size may turn out to be 1. Only the axes after the last name keep their positions from the end.
            named = [position for position, size in enumerate(shape) if isinstance(size, str)]
            tail = tuple(size for size in shape[named[-1] + 1 if named else 0 :] if size != 1)
            return (LEADING, *tail) if named else tail
        positions = places_of("axis", axis, shape)
        if positions is None:
            raise UnknownShapeError
        for position in positions:
            # A named size is accepted: it may be 1.
            if differ(shape[position], 1):
                raise MismatchError(
                    "input",
                    f"size 1 on axis {position}",
                    "Squeeze()  # removes all axes of size 1",
                    f"axis {position}: {shape[position]} != 1",
                )
        return tuple(size for position, size in enumerate(shape) if position not in positions)


class ExpandDims(Rearranging):
    """Adds axes of size 1.

    Args:
        axis: Position of the new axis in the output, or several positions.
    """

    axis: Any = 0

    op = "expand_dims"
    option_ports = ("axis",)
    formula = "y = x with an axis of size 1"
    kernel = jnp.expand_dims

    @classmethod
    def infer(cls, options, inputs):
        """Insert a 1 at each position."""
        shape = inputs["input"].shape
        positions = places_of("axis", known(options["axis"]), shape, adds=True)
        if positions is None:
            raise UnknownShapeError
        # The old axes keep their order between the new ones.
        sizes = iter(shape)
        return tuple(1 if position in positions else next(sizes) for position in range(len(shape) + len(positions)))


class AtLeast1D(Rearranging):
    """Adds an axis of size 1 to a scalar; other arrays are unchanged."""

    op = "at_least_1d"
    formula = "y = x with at least one axis"
    kernel = jnp.atleast_1d

    @classmethod
    def infer(cls, options, inputs):
        """Map `()` to `(1,)`."""
        return inputs["input"].shape or (1,)


class BroadcastTo(Rearranging):
    """Broadcasts an array to a shape: repeats it along axes of size 1, and along new leading axes.

    Args:
        shape: The sizes. A name is the input's size on that axis, where axes are counted from the last one.
    """

    shape: Any = None

    op = "broadcast_to"
    option_ports = ("shape",)
    formula = "y = x, repeated to a shape"
    takes_values = True

    @classmethod
    def infer(cls, options, inputs: dict[str, Spec]):
        """Return the shape, if the input broadcasts to it."""
        return _to_sizes(stretched, options, inputs)


def _transpose(x: Any, axes: Any) -> Any:
    # JAX iterates over the axes, so a number must be a tuple. It takes () for a permutation of no axes.
    return jnp.transpose(x, (axes,) if isinstance(axes, int) else axes or None)


class Transpose(Rearranging):
    """Permutes the axes.

    Args:
        axes: For each axis of the output, the axis of the input. By default the order is reversed.
    """

    axes: Any = None

    op = "transpose"
    option_ports = ("axes",)
    formula = "y[j, i] = x[i, j]"
    kernel = _transpose

    @classmethod
    def infer(cls, options, inputs):
        """Permute the sizes."""
        axes, shape = known(options["axes"]), closed(inputs["input"].shape)
        if axes is None or axes == ():
            return shape[::-1]
        positions = places_of("axes", axes, shape)
        # The rank is known, so all axes can be located.
        assert positions is not None
        if len(positions) != len(shape):
            raise MismatchError(
                "input",
                f"rank {len(positions)}, for axes={axes!r}",
                f"use axes that contain each number from 0 to {len(shape) - 1} once.",
                f"rank {len(shape)}",
            )
        return tuple(shape[position] for position in positions)

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the input's shape: the output's sizes in the order of the input's axes."""
        shape, axes = closed(outputs["output"].shape), options["axes"]
        if axes is None or axes == ():
            return {"input": shape[::-1]}
        # `infer` reports axes that are no permutation. From here nothing would follow.
        order = [axis % len(shape) for axis in axes if isinstance(axis, int)] if isinstance(axes, tuple) else []
        if sorted(order) != list(range(len(shape))):
            return {}
        return {"input": tuple(shape[order.index(position)] for position in range(len(shape)))}


class SwapAxes(Rearranging):
    """Swaps two axes.

    Args:
        axis1: One axis.
        axis2: The other axis.
    """

    axis1: Annotated[int, Start(-1)]
    axis2: Annotated[int, Start(-2)]

    op = "swap_axes"
    option_ports = ("axis1", "axis2")
    formula = "y[j, i] = x[i, j]"
    kernel = jnp.swapaxes

    @classmethod
    def infer(cls, options, inputs):
        """Swap the two sizes."""
        shape = inputs["input"].shape
        sizes = list(shape)
        first, other = (located("input", options[port], shape) for port in cls.option_ports)
        sizes[first], sizes[other] = sizes[other], sizes[first]
        return tuple(sizes)


class PermuteTensor(Rearranging):
    """Selects rows in the order of an index array: `input[indices]`.

    Examples:
        >>> [port.name for port in PermuteTensor().inputs]
        ['input', 'indices']
    """

    op = "permute_tensor"
    input_ports = ("input", "indices")
    input_dtypes = {"indices": "int32", **Rearranging.input_dtypes}
    formula = "y[i] = x[indices[i]]"

    @classmethod
    def infer(cls, options, inputs):
        """Replace the first size of the input by the shape of the indices."""
        # Not `Take`: Mithril has this block under its own name, for rows only.
        shape, some = inputs["input"].shape, inputs["indices"].shape
        check_axis("input", shape, "use an input with at least one axis.")
        return (*some, *closed(shape)[1:])


class Identity(KeepsShape, Rearranging):
    """Returns its input unchanged: an array, or a static value such as a shape. Use it to give a connection a name."""

    op = "identity"
    formula = "y = x"
    takes_values = True

    @classmethod
    def infer(cls, options, inputs: dict[str, Spec]):
        """Return the spec of the input."""
        return inputs["input"]


Many = Annotated[int, Range(1, 1024)]


def numbered_ports(n: Value) -> tuple[str, ...]:
    """Return the names `input1`, ..., `input{n}`; no names if `n` is not an integer.

    Examples:
        >>> numbered_ports(2)
        ('input1', 'input2')
    """
    return tuple(f"input{number}" for number in range(1, n + 1)) if isinstance(n, int) else ()


# The number of inputs is no port: it changes which ports there are.
class _Several(Rearranging):
    option_ports = ("axis",)

    @classmethod
    def ports(cls, options: Options) -> PortNames:
        """Return the inputs `input1`, `input2`, ... up to `n`."""
        return PortNames(numbered_ports(options["n"]))


class Concat(_Several):
    """Concatenates arrays along an axis.

    Args:
        n: Number of inputs, named `input1`, `input2`, ...
        axis: The axis; `None` concatenates the flattened arrays.

    Examples:
        >>> [port.name for port in Concat(2).inputs if port.role == "data"]
        ['input1', 'input2']
    """

    n: Many = 2
    # 0 as in Mithril and PyTorch. From the palette -1, which joins features.
    axis: Annotated[int | None, Start(-1)] = 0

    op = "concat"
    formula = "y = [x1, x2, ...] along an axis"

    @classmethod
    def infer(cls, options, inputs):
        """Add the sizes along the axis. All other sizes must match."""
        shapes, axis = [closed(spec.shape) for spec in inputs.values()], options["axis"]
        if axis is None:
            # As in NumPy, `axis=None` joins the flattened arrays.
            return (plus(*map(product, shapes)),)
        position = located("input1", axis, shapes[0])
        sizes = list(same_sizes(inputs, position))
        # "n" and "n" give "n*2"; the sum of two names stays an expression.
        sizes[position] = plus(*(shape[position] for shape in shapes))
        return tuple(sizes)


class Stack(_Several):
    """Stacks arrays of one shape along a new axis.

    Args:
        n: Number of inputs, named `input1`, `input2`, ...
        axis: Position of the new axis in the output.
    """

    n: Many = 2
    axis: int = 0

    op = "stack"
    formula = "y = [x1, x2, ...] along a new axis"

    @classmethod
    def infer(cls, options, inputs):
        """Return the common shape with a new axis."""
        if not isinstance(options["axis"], int) or any(is_open(spec.shape) for spec in inputs.values()):
            raise UnknownShapeError
        sizes = same_sizes(inputs)
        position = located("input1", options["axis"], sizes, more=1)
        return (*sizes[:position], len(inputs), *sizes[position:])

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the shape of each input: that of the output without the new axis."""
        shape, axis = outputs["output"].shape, options["axis"]
        if is_open(shape) or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            return {}
        position = axis % len(shape)
        return dict.fromkeys(numbered_ports(options["n"]), spliced(shape, position))


class RepeatItems(Rearranging):
    """Repeats each item of an axis several times in succession.

    Args:
        repeats: Number of times that each item occurs in the result.
        axis: The axis; `None` repeats the items of the flattened array.
    """

    # `np.repeat`. PyTorch calls this `repeat_interleave`, and its `repeat` is `Tile`.
    repeats: Annotated[int, Range(0, 2**20)] = 2
    axis: int | None = None

    op = "repeat_items"
    option_ports = ("axis",)
    formula = "y = x[0], x[0], x[1], x[1], ..."

    @classmethod
    def infer(cls, options, inputs):
        """Multiply the size of the axis by `repeats`."""
        shape, axis, repeats = inputs["input"].shape, options["axis"], options["repeats"]
        if axis is None:
            return (product((*closed(shape), repeats)),)
        position = located("input", axis, shape)
        return spliced(shape, position, product((shape[position], repeats)))


class Tile(Rearranging):
    """Repeats the whole array along each axis.

    Args:
        reps: Number of copies along each axis, as in `jnp.tile`. If there are fewer numbers than axes, they belong to
            the last axes. If there are more, the result has new axes at the front.
    """

    reps: Any = 2

    op = "tile"
    option_ports = ("reps",)
    formula = "y = x, x, ..."
    kernel = jnp.tile

    @classmethod
    def infer(cls, options, inputs):
        """Multiply each size by its number of copies."""
        reps = known(options["reps"])
        times_ = reps if isinstance(reps, tuple) else (reps,)
        if not all(map(is_count, times_)):
            raise MismatchError("input", f"reps of whole numbers, each 0 or more, not {reps!r}", "Tile((2, 1))")
        shape = closed(inputs["input"].shape)
        # Shorter rows are filled with 1 in front, as in NumPy.
        rank = max(len(shape), len(times_))
        sizes, counts = ((*(1,) * (rank - len(row)), *row) for row in (shape, times_))
        return tuple(product(pair) for pair in zip(sizes, counts, strict=True))


class Pad(Rearranging):
    """Pads an array with a constant value.

    Args:
        pad_width: Number of items to add before and after each axis: `((1, 1), (0, 2))`. One pair is used for all axes.
            One number is used before and after all axes.
        value: The value of the added items.
    """

    pad_width: Any = None
    value: float = 0.0

    op = "pad"
    option_ports = ("pad_width",)
    formula = "y = x, with zeros around"

    @classmethod
    def infer(cls, options, inputs):
        """Add the padding to each size."""
        shape, width = inputs["input"].shape, known(options["pad_width"])
        pairs = pad_pairs(width, None if is_open(shape) else len(shape))  # of an open shape, too, the pairs are checked
        closed(shape)
        return tuple(plus(size, *pair) for size, pair in zip(shape, pairs, strict=True))


def _split(x: Any, count: int, axis: int) -> Any:
    return jnp.stack(jnp.split(x, count, axis))


class Split(Rearranging):
    """Splits an axis into equal parts, and stacks the parts along a new first axis: `(6,)` becomes `(3, 2)`.

    Args:
        split_size: Number of parts. It must divide the size of the axis.
        axis: The axis to split.
    """

    # The number of parts, as in Mithril and `np.split`. In `torch.split` it is the size of a part.
    split_size: Annotated[Many, Start(2)]
    axis: Annotated[int, Start(-1)] = 0

    op = "split"
    option_ports = ("split_size", "axis")
    formula = "y[i] = part i of x"
    kernel = _split

    @classmethod
    def infer(cls, options, inputs):
        """Divide the size of the axis by the number of parts, and add an axis for the parts at the front."""
        shape, parts, axis = inputs["input"].shape, options["split_size"], options["axis"]
        position = located("input", axis, shape)
        if not isinstance(parts, int) or is_open(shape):
            raise UnknownShapeError
        # A connected number of parts may be 0 or negative.
        size = quotient((shape[position],), (parts,)) if parts > 0 else None
        if size is None:
            raise MismatchError(
                "input",
                f"a multiple of {parts} on axis {position}",
                f"use a number of parts that divides {shape[position]}.",
                f"axis {position}: {shape[position]}",
            )
        return (parts, *shape[:position], size, *shape[position + 1 :])


class Flip(KeepsShape, Rearranging):
    """Reverses the order of items along one or several axes.

    Args:
        axis: One axis or several; by default all.
    """

    axis: Any = None

    op = "flip"
    option_ports = ("axis",)
    formula = "y[i] = x[n - 1 - i]"
    kernel = jnp.flip

    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape."""
        return _same_shape(options["axis"], inputs["input"])


class Roll(KeepsShape, Rearranging):
    """Shifts items along an axis. Items that leave at one end enter at the other.

    Args:
        shift: Number of positions, as one number for all axes in `axis`, or a tuple with one number for each.
        axis: One axis or several. By default, the items of the flattened array are shifted.
    """

    shift: Any = 1
    axis: Any = None

    op = "roll"
    option_ports = ("shift", "axis")
    formula = "y[i] = x[i - shift]"

    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape."""
        shift, axis = options["shift"], options["axis"]
        # With one number for several axes, JAX shifts each of them. Several numbers need as many axes.
        if isinstance(shift, tuple) and len(shift) != (len(axis) if isinstance(axis, tuple) else 1) and axis != UNKNOWN:
            raise MismatchError(
                "input", f"an axis for each of shift={shift!r}", "Roll((1, 2), axis=(0, 1))", f"axis={axis!r}"
            )
        return _same_shape(axis, inputs["input"])


def _cartesian_difference(left: Any, right: Any) -> Any:
    return left[:, None, :] - right[None, :, :]


class CartesianDifference(Rearranging):
    """Differences of each row of `left` and each row of `right`: `(n, d)` and `(m, d)` become `(n, m, d)`.

    Examples:
        >>> [port.name for port in CartesianDifference().inputs]
        ['left', 'right']
    """

    op = "cartesian_difference"
    input_ports = ("left", "right")
    category = "Arithmetic"
    formula = "y[i, j] = left[i] - right[j]"
    kernel = _cartesian_difference

    @classmethod
    def infer(cls, options, inputs):
        """Map `(n, d)` and `(m, d)` to `(n, m, d)`. An input with one column broadcasts to d columns."""
        for port in cls.input_ports:
            shape = inputs[port].shape
            if not is_open(shape) and len(shape) != 2:
                raise MismatchError(port, "(rows, features)", "x.reshape(rows, -1)", f"rank {len(shape)} != 2")
        left, right = inputs["left"].shape, inputs["right"].shape
        (n, a), (m, b) = closed(left), closed(right)
        if differ(a, b) and 1 not in (a, b):
            raise MismatchError(
                "right",
                f"(rows, {a}), like left {left}",
                "use the same number of columns for left and right.",
                f"axis 1: {b} != {a}",
            )
        # NumPy's rule for the features: 1 broadcasts, and a number is more precise than a name.
        last: Dim = b if a == 1 else a if b == 1 or isinstance(a, int) else b
        return (n, m, last)


def pad_pairs(width: Value, rank: int | None) -> tuple[tuple[int, int], ...]:
    """Return a pair for each axis: the numbers of items to add before and after it.

    Args:
        width: A number, a pair, or a pair for each axis.
        rank: The number of axes; `None` to only check `width`.

    Examples:
        >>> pad_pairs(1, 2), pad_pairs((1, 2), 2), pad_pairs(((0, 0), (1, 2)), 2)
        (((1, 1), (1, 1)), ((1, 2), (1, 2)), ((0, 0), (1, 2)))
    """
    pad_width = width
    # The forms of `np.pad`. PyTorch lists the pairs from the last axis to the first.
    if isinstance(width, int) and not isinstance(width, bool):
        width = (width, width)
    if isinstance(width, tuple) and len(width) == 2 and all(isinstance(number, int) for number in width):
        width = (width,) * (rank or 0)
    pairs = width if isinstance(width, tuple) else ()
    valid = [pair for pair in pairs if isinstance(pair, tuple) and len(pair) == 2]
    if not isinstance(width, tuple) or len(valid) < len(pairs) or not all(is_count(n) for pair in valid for n in pair):
        need = f"pad_width in pairs of numbers, each 0 or more, not {pad_width!r}"
        raise MismatchError("input", need, "Pad(((0, 0), (1, 1)))")
    if rank is not None and len(valid) != rank:
        # The advice keeps the pairs that the user gave, with zeros for further axes.
        pairs = (*valid, *((0, 0),) * rank)[:rank]
        raise MismatchError("input", f"rank {len(valid)}, for pad_width={pad_width!r}", f"Pad({pairs})", f"rank {rank}")
    return tuple((int(before), int(after)) for before, after in valid)  # pyright: ignore


def _same_shape(axis: Value, spec: TensorSpec) -> Dims:
    # Only a check: a wrong axis is reported, an unknown one is not.
    if axis is not None and axis != UNKNOWN:
        places_of("axis", axis, spec.shape)
    return spec.shape
