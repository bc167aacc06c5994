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
        """Return the shape of the output as the shape of the input."""
        return {"input": outputs["output"].shape} if "output" in outputs else {}


def as_sizes(port: str, value: Value) -> tuple[Dim, ...]:
    """Return an attribute as a tuple of sizes. A size may be negative, such as -1.

    Args:
        port: The attribute, for the error message.
        value: One size or a tuple of sizes; a size is a number or a name.

    Raises:
        MismatchError: `value` is none of these.
    """
    sizes = value if isinstance(value, tuple) else (value,)
    if any(isinstance(size, bool) or not isinstance(size, int | str) for size in sizes):
        raise MismatchError(port, "sizes", f"{port}=(2, 3)  # or a connected shape: {port}=x.shape()")
    return tuple(size for size in sizes if isinstance(size, int | str))


def reshaped(shape: tuple[Dim, ...], target: tuple[Dim, ...], connected: bool = False) -> tuple[Dim, ...]:
    """Return the shape of an array after reshaping it to `target`.

    Args:
        shape: The shape of the array.
        target: The new sizes. One may be -1, which is inferred. A name is inferred too if it is the only open size;
            otherwise it is the size of the array on the same axis.
        connected: True if `target` comes from a connection. A name in it is then a size that is not inferred.

    Raises:
        MismatchError: The number of items differs, or `target` is invalid.

    Examples:
        >>> reshaped(("batch", 4, 6), (-1, 24)), reshaped(("batch", 4, 6), ("batch", -1)), reshaped((0, 3), (0, -1))
        (('batch', 24), ('batch', 24), (0, 3))
    """
    if LEADING in target[:1]:
        return target if -1 not in target else (LEADING,)
    if target.count(-1) > 1 or any(isinstance(size, int) and size < -1 for size in target):
        raise MismatchError("input", f"a shape with one -1 at most, not {target}", "shape=(2, -1)")
    names = [] if connected else [place for place, size in enumerate(target) if isinstance(size, str)]
    sizes = list(target)
    if len(names) == 1 and -1 not in target:
        (open_one,) = names
    else:
        open_one = target.index(-1) if -1 in target else None
        for place in names:
            sizes[place] = _kept(shape, target, place)
    others = tuple(size for place, size in enumerate(sizes) if place != open_one)
    if LEADING in shape[:1]:
        # The number of items is unknown. An inferred size keeps its name; for -1 there is no name, so none is known.
        return tuple(sizes) if -1 not in sizes else (LEADING,)
    whole = product(shape)
    rest = product(others)
    if open_one is None:
        ratio = (
            1
            if rest == whole
            else None
            if isinstance(rest, int) and isinstance(whole, int)
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
            f"sizes whose product is {whole}.",
            f"{whole} is not a multiple" if -1 in target else f"{whole} != {needed}",
        )
    return tuple(sizes)


def _kept(shape: tuple[Dim, ...], target: tuple[Dim, ...], place: int) -> Dim:
    """Return the size of a name in the target of a reshape: the input's size on the same axis.

    Args:
        shape: The shape of the input.
        target: The target.
        place: Position of the name in the target.

    Raises:
        MismatchError: The input does not have the axis, or has the name on another axis.
    """
    name = target[place]
    if LEADING in shape[:1]:
        return name
    if place >= len(shape):
        raise MismatchError(
            "input",
            f"an axis {place}, for {name!r} in {target}",
            "a number instead, or -1 for one size.",
            f"rank {len(shape)}",
        )
    if name in shape and shape[place] != name:
        raise MismatchError(
            "input",
            f"{name!r} on axis {place}, for shape {target}",
            f"x.reshape({_by_place(shape, target)})  # which states where the sizes come from",
            f"axis {place}: {shape[place]} != {name}",
        )
    return shape[place]


def _by_place(shape: tuple[Dim, ...], target: tuple[Dim, ...]) -> str:
    return ", ".join(
        f"x.shape()[{shape.index(size)}]" if isinstance(size, str) and size in shape else str(size) for size in target
    )


def stretched(shape: tuple[Dim, ...], target: tuple[Dim, ...], connected: bool = False) -> tuple[Dim, ...]:
    """Return the shape of an array after broadcasting it to `target`.

    Args:
        shape: The shape of the array.
        target: The new sizes. A name is the size of the array on that axis, counted from the last.
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
            "input", f"at most {len(target)} axes, for shape {target}", "a longer shape.", f"rank {len(shape)}"
        )
    sizes = list(target)
    offset = len(target) - len(shape)
    for axis, size in enumerate(target):
        own = shape[axis - offset] if axis >= offset else 1
        if isinstance(size, int) and size < 0:
            raise MismatchError("input", f"sizes from 0, not {target}", "a number, or a name.", f"axis {axis}: {size}")
        if isinstance(size, str) and not connected:
            if axis < offset:
                raise MismatchError(
                    "input",
                    f"an axis for {size!r} in {target}",
                    "a number instead, or a connected shape.",
                    f"rank {len(shape)}",
                )
            sizes[axis] = own
        elif isinstance(own, int) and isinstance(size, int) and own not in (1, size):
            raise MismatchError(
                "input",
                f"a shape that broadcasts to {target}",
                f"size 1 or {size} on that axis.",
                f"axis {axis - offset}: {own} != {size}",
            )
    return tuple(sizes)


def flat_span(shape: tuple[Dim, ...], start: int, end: int) -> tuple[int, int] | None:
    """Return the first axis that `Flatten` merges, and the one after the last; `None` if they are unknown.

    If both are equal, there is nothing to merge, and `Flatten` inserts an axis of size 1.

    Args:
        shape: The shape of the input.
        start: The attribute `start_dim`.
        end: The attribute `end_dim`.

    Raises:
        MismatchError: The array does not have these axes, or `end` is before `start`.

    Examples:
        >>> flat_span((2, 3, 4), 1, -1), flat_span((2,), 1, -1)
        ((1, 3), (1, 1))
    """
    rank = len(shape)
    if LEADING not in shape[:1]:
        if rank == 0 and start > 0:
            raise MismatchError("input", "at least one axis", "give the input a batch axis.", "rank 0")
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
    """Return the indices of axes in the tuple `shape`; `None` if an index is unknown, as in `place_of`.

    Args:
        port: The attribute with the axes, for the error message.
        axes: One axis, or a tuple of axes. A negative axis counts from the end.
        shape: The shape.
        adds: True if the axes will be added to the shape. The result is then indices in the longer shape.

    Raises:
        MismatchError: The shape does not have an axis, an axis is repeated, or an axis is not an integer.

    Examples:
        >>> places_of("axis", (0, -1), (2, 3, 4)), places_of("axis", -1, (2, 3), adds=True)
        ([0, 2], [2])
    """
    several = axes if isinstance(axes, tuple) else (axes,)
    if any(isinstance(axis, bool) or not isinstance(axis, int) for axis in several):
        raise MismatchError("input", f"whole numbers as {port}, not {axes!r}", f"{port}=0")
    more = len(several) if adds else 0
    found = [place_of("input", axis, shape, more) for axis in several if isinstance(axis, int)]
    places = [place for place in found if place is not None]
    if len(places) < len(found):
        return None
    if len(set(places)) < len(places):
        raise MismatchError("input", f"{port} that differ, not {axes!r}", "name each axis once.", f"rank {len(shape)}")
    return places


def is_count(value: object, least: int = 0) -> bool:
    """Return whether a value is an integer of at least `least`. A boolean is not."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def broadcast_all(inputs: Specs) -> tuple[Dim, ...]:
    """Return the shape that several inputs broadcast to.

    Raises:
        MismatchError: Two sizes differ and neither is 1. The error has the port of the first input that does not fit.

    Examples:
        >>> broadcast_all({"a": TensorSpec((3, 1)), "b": TensorSpec((4,)), "c": TensorSpec(())})
        (3, 4)
    """
    (_, so_far), *rest = inputs.items()
    for port, spec in rest:
        try:
            so_far = TensorSpec(broadcast(so_far, spec))
        except MismatchError as found:
            raise MismatchError(port, found.need, found.advice, found.detail) from None
    return so_far.shape


def broadcast_back(inputs: Specs, output: tuple[Dim, ...]) -> Shapes:
    """Return what the shape of a broadcast result implies for the shapes of its inputs, by port.

    On an axis where all other inputs have size 1, an input has the size of the result. Inputs about which nothing
    follows are omitted.

    Args:
        inputs: Specs of the inputs, by port.
        output: The shape of the result.

    Examples:
        >>> broadcast_back({"left": TensorSpec(("...",)), "right": TensorSpec(())}, ("batch", 3))
        {'left': ('batch', 3)}
        >>> broadcast_back({"left": TensorSpec(("n", "m")), "right": TensorSpec((4, 1))}, (4, 3))
        {'left': ('n', 3), 'right': (4, 1)}
    """
    found: dict[str, tuple[Dim, ...]] = {}
    for port, spec in inputs.items():
        others = [other.shape for name, other in inputs.items() if name != port]
        if all(shape == () for shape in others):
            found[port] = output
        elif LEADING not in (*spec.shape[:1], *output[:1], *(dim for shape in others for dim in shape[:1])):
            shape = list(spec.shape)
            for place in range(1, len(shape) + 1):
                if all(place > len(other) or other[-place] == 1 for other in others) and place <= len(output):
                    shape[-place] = output[-place]
            found[port] = tuple(shape)
    return found


def same_sizes(inputs: Specs, but: int | None = None) -> tuple[Dim, ...]:
    """Return the common shape of all inputs, with a number instead of a name where one of them has a number.

    Args:
        inputs: Specs by port.
        but: An axis on which the sizes may differ; the result has the size of the first input.

    Raises:
        MismatchError: The shapes differ on another axis, or in their number of axes.
    """
    (first, one), *others = inputs.items()
    sizes = list(one.shape)
    for port, spec in others:
        need = f"{tuple('any' if axis == but else size for axis, size in enumerate(sizes))}, like {first} {one.shape}"
        if len(spec.shape) != len(sizes):
            raise MismatchError(
                port, need, "arrays with the same number of axes.", f"rank {len(spec.shape)} != {len(sizes)}"
            )
        for axis, (size, other) in enumerate(zip(sizes, spec.shape, strict=True)):
            if axis == but or size == other:
                continue
            if isinstance(size, int) and isinstance(other, int):
                raise MismatchError(port, need, "the same sizes on the other axes.", f"axis {axis}: {other} != {size}")
            sizes[axis] = other if isinstance(other, int) else size
    return tuple(sizes)
