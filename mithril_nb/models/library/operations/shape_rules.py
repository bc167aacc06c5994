"""Shape rules that several ops share: for axes, reshaping, broadcasting, and ops that keep the shape."""

from __future__ import annotations

from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.rules import Inferred, OpRules, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, broadcast, place_of, product, quotient


class KeepsShape(OpRules):
    """The rule of an op whose output has the shape of its input."""

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Keep the shape."""
        return Inferred({"output": inputs["input"].shape})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the input's shape: it is the output's."""
        return {"input": outputs["output"].shape} if "output" in outputs else {}


def as_sizes(port: str, value: Value) -> tuple[Dim, ...]:
    """Return the value of an attribute, one size or a tuple of sizes, as a tuple. A size is an integer or a name.

    Raises:
        MismatchError: `value` contains something else. The message names the attribute, `port`.
    """
    sizes = value if isinstance(value, tuple) else (value,)
    if any(isinstance(size, bool) or not isinstance(size, int | str) for size in sizes):
        raise MismatchError(port, "sizes", f"{port}=(2, 3)  # or a connected shape: {port}=x.shape()")
    return tuple(size for size in sizes if isinstance(size, int | str))


def reshaped(shape: tuple[Dim, ...], target: tuple[Dim, ...], connected: bool = False) -> tuple[Dim, ...]:
    """Return the shape of an array after reshaping it to `target`, for `Reshape`.

    Args:
        shape: The shape of the array.
        target: The new sizes, see `Reshape`.
        connected: True if `target` comes from a connection. A name in it is then the size itself, and is not inferred.

    Raises:
        MismatchError: The number of items differs, or `target` is invalid.

    Examples:
        A size of -1 is inferred:

        >>> reshaped(("batch", 4, 6), (-1, 24)), reshaped((0, 3), (0, -1))
        (('batch', 24), (0, 3))

        A name next to a -1 is the array's size on the same axis. A name alone is inferred:

        >>> reshaped((2, 4, 6), ("batch", -1)), reshaped((2, 4, 6), ("rows", 6))
        ((2, 24), (8, 6))
    """
    if LEADING in target[:1]:
        return target if -1 not in target else (LEADING,)
    if target.count(-1) > 1 or any(isinstance(size, int) and size < -1 for size in target):
        raise MismatchError("input", f"a shape with at most one -1, not {target}", "shape=(2, -1)")
    names = [] if connected else [position for position, size in enumerate(target) if isinstance(size, str)]
    sizes = list(target)
    if len(names) == 1 and -1 not in target:
        (open_one,) = names
    else:
        open_one = target.index(-1) if -1 in target else None
        for position in names:
            sizes[position] = _kept(shape, target, position)
    others = tuple(size for position, size in enumerate(sizes) if position != open_one)
    if LEADING in shape[:1]:
        # The number of items is unknown. An inferred size keeps its name. A -1 has no name, so its size is unknown.
        return tuple(sizes) if -1 not in sizes else (LEADING,)
    total = product(shape)
    rest = product(others)
    if open_one is None:
        ratio = (
            1
            if rest == total
            else None
            if isinstance(rest, int) and isinstance(total, int)
            else quotient(shape, others)
        )
        fits = ratio == 1 or isinstance(ratio, str)
    else:
        ratio, name = quotient(shape, others), target[open_one]
        fits = ratio is not None and (ratio == name or name not in shape)
        sizes[open_one] = -1 if ratio is None else ratio
    if not fits:
        needed = f"a multiple of {rest}" if -1 in target else product(tuple(target) if names else tuple(sizes))
        raise MismatchError(
            "input",
            f"{needed} items, for shape {target}",
            f"use sizes whose product is {total}.",
            f"{total} items" if -1 in target else f"{total} != {needed}",
        )
    return tuple(sizes)


def _kept(shape: tuple[Dim, ...], target: tuple[Dim, ...], position: int) -> Dim:
    """Return the size for the name `target[place]` of a reshape: the input's size on the same axis.

    Raises:
        MismatchError: The input does not have the axis, or has the name on another axis.
    """
    name = target[position]
    if LEADING in shape[:1]:
        return name
    if position >= len(shape):
        raise MismatchError(
            "input",
            f"an axis {position}, for {name!r} in {target}",
            f"replace {name!r} by a number or -1.",
            f"rank {len(shape)}",
        )
    if name in shape and shape[position] != name:
        raise MismatchError(
            "input",
            f"{name!r} on axis {position}, for shape {target}",
            f"x.reshape({_by_place(shape, target)})  # each size from its axis",
            f"axis {position}: {shape[position]} != {name}",
        )
    return shape[position]


def _by_place(shape: tuple[Dim, ...], target: tuple[Dim, ...]) -> str:
    return ", ".join(
        f"x.shape()[{shape.index(size)}]" if isinstance(size, str) and size in shape else str(size) for size in target
    )


def stretched(shape: tuple[Dim, ...], target: tuple[Dim, ...], connected: bool = False) -> tuple[Dim, ...]:
    """Return the shape of an array after broadcasting it to `target`, for `BroadcastTo`.

    Args:
        shape: The shape of the array.
        target: The new sizes, see `BroadcastTo`.
        connected: True if `target` comes from a connection. A name in it is then the size itself.

    Raises:
        MismatchError: The array does not broadcast to `target`, or a size is negative.

    Examples:
        >>> stretched((1, 3), (2, 3)), stretched(("batch", 1), ("batch", 4))
        ((2, 3), ('batch', 4))
    """
    if LEADING in shape[:1] or LEADING in target[:1]:
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
        own = shape[axis - offset] if axis >= offset else 1
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
        elif isinstance(own, int) and isinstance(size, int) and own not in (1, size):
            raise MismatchError(
                "input",
                f"a shape that broadcasts to {target}",
                f"use an input with size 1 or {size} on axis {axis - offset}.",
                f"axis {axis - offset}: {own} != {size}",
            )
    return tuple(sizes)


def flat_span(shape: tuple[Dim, ...], start: int, end: int) -> tuple[int, int] | None:
    """Return `(a, b)` if `Flatten` merges the axes `shape[a:b]`; `None` if their positions are unknown.

    If a equals b, `Flatten` inserts an axis of size 1.

    Raises:
        MismatchError: The array does not have these axes, or `end` is before `start`.

    Examples:
        >>> flat_span((2, 3, 4), 1, -1), flat_span((2,), 1, -1)
        ((1, 3), (1, 1))
    """
    rank = len(shape)
    if LEADING not in shape[:1]:
        if rank == 0 and start > 0:
            raise MismatchError("input", "at least one axis", "use an input with a batch axis.", "rank 0")
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


def places_of(port: str, axes: Value, shape: tuple[Dim, ...], adds: bool = False) -> list[int] | None:
    """Return axes as non-negative numbers; `None` if one is unknown because the shape has unknown leading axes.

    Args:
        port: The attribute with the axes, for the error message.
        axes: One axis, or a tuple of axes. A negative axis counts from the end.
        shape: The shape.
        adds: True for axes that the block adds. They are then positions in the shape of the result.

    Raises:
        MismatchError: The shape does not have an axis, an axis is repeated, or an axis is not an integer.

    Examples:
        >>> places_of("axis", (0, -1), (2, 3, 4)), places_of("axis", -1, (2, 3), adds=True)
        ([0, 2], [2])
        >>> places_of("axis", (0, -1), ("...", 3)) is None
        True
    """
    several = axes if isinstance(axes, tuple) else (axes,)
    if any(isinstance(axis, bool) or not isinstance(axis, int) for axis in several):
        raise MismatchError("input", f"whole numbers as {port}, not {axes!r}", f"{port}=0")
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


def broadcast_all(inputs: Specs) -> tuple[Dim, ...]:
    """Return the shape that several inputs broadcast to.

    Raises:
        MismatchError: Two sizes differ and neither is 1.

    Examples:
        >>> broadcast_all({"a": TensorSpec((3, 1)), "b": TensorSpec((4,)), "c": TensorSpec(())})
        (3, 4)
    """
    (_, so_far), *rest = inputs.items()
    for port, spec in rest:
        try:
            so_far = TensorSpec(broadcast(so_far, spec))
        except MismatchError as error:
            raise MismatchError(port, error.need, error.advice, error.detail) from None
    return so_far.shape


def broadcast_back(inputs: Specs, output: tuple[Dim, ...]) -> Shapes:
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
    shapes: dict[str, tuple[Dim, ...]] = {}
    for port, spec in inputs.items():
        others = [other.shape for name, other in inputs.items() if name != port]
        if all(shape == () for shape in others):
            shapes[port] = output
        elif LEADING not in (*spec.shape[:1], *output[:1], *(dim for shape in others for dim in shape[:1])):
            shape = list(spec.shape)
            for offset in range(1, len(shape) + 1):
                if all(offset > len(other) or other[-offset] == 1 for other in others) and offset <= len(output):
                    shape[-offset] = output[-offset]
            shapes[port] = tuple(shape)
    return shapes


def same_sizes(inputs: Specs, except_axis: int | None = None) -> tuple[Dim, ...]:
    """Return the common shape of all inputs. A size is a name only if it is a name in all inputs.

    Args:
        inputs: Specs by port.
        except_axis: An axis on which the sizes may differ. The result has the size of the first input there.

    Raises:
        MismatchError: The shapes differ on another axis, or in their number of axes.

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
            if axis == except_axis or size == other:
                continue
            if isinstance(size, int) and isinstance(other, int):
                raise MismatchError(
                    port, need, f"use arrays with the same size on axis {axis}.", f"axis {axis}: {other} != {size}"
                )
            sizes[axis] = other if isinstance(other, int) else size
    return tuple(sizes)
