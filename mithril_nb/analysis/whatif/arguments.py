"""The arguments of a program in another size or another dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from mithril_nb.errors import ShapeError
from mithril_nb.inspection import Inspection


@dataclass(frozen=True)
class Batch:
    """The arrays of a program that have one row per sample.

    Attributes:
        size: Number of samples.
        leaves: Indices of these arrays among the leaves of the arguments.
    """

    size: int
    leaves: frozenset[int]


def common_dtype(args: Any) -> str | None:
    """Return the dtype of the floating-point arrays; `None` if there are none, or several dtypes."""
    found = {str(leaf.dtype) for leaf in jax.tree.leaves(args) if _is_floating(leaf)}
    return found.pop() if len(found) == 1 else None


def cast(args: Any, dtype: Any) -> Any:
    """Return the arguments with all floating-point arrays in another dtype."""
    return jax.tree.map(
        lambda leaf: _spec(leaf, leaf.shape, jax.numpy.dtype(dtype)) if _is_floating(leaf) else leaf, args
    )


def resized(args: Any, batch: Batch, size: Any) -> Any:
    """Return the arguments for another number of samples, which may be a symbol."""
    leaves, structure = jax.tree.flatten(args)
    return structure.unflatten(
        [
            _spec(leaf, (size, *leaf.shape[1:]), leaf.dtype) if place in batch.leaves else leaf
            for place, leaf in enumerate(leaves)
        ]
    )


def batch_of(inspection: Inspection) -> Batch:
    """Return the arrays with the samples of a program: whole arguments whose arrays share their first dim.

    If there are several candidates, the batch is the first dim that can vary while the others stay; a weight cannot.

    Raises:
        ShapeError: There are no candidates, or several.
    """
    found = _candidates(inspection.arguments)
    fitting = [one for one in found if _is_free(inspection, one)] if len(found) > 1 else found
    if len(fitting) == 1:
        return fitting[0]
    leaves = inspection.inputs
    facts = [
        (
            f"first dim {one.size}",
            ", ".join(f"{leaves[place].name} {leaves[place].spec}" for place in sorted(one.leaves)),
        )
        for one in fitting or found
    ]
    raise ShapeError(
        f"cannot determine the batch of {inspection.name!r}: "
        + (
            "several first dims are possible."
            if fitting
            else "none of these first dims can vary."
            if found
            else "no argument consists of arrays that share their first dim."
        ),
        tuple(facts),
        "ml.what_if(make)  # make(batch=32) returns the function and the shapes of its arguments",
    )


def _candidates(args: tuple[Any, ...]) -> list[Batch]:
    groups: dict[int, set[int]] = {}
    start = 0
    for arg in args:
        leaves = jax.tree.leaves(arg)
        arrays = [place for place, leaf in enumerate(leaves, start) if len(getattr(leaf, "shape", ())) > 0]
        sizes = {leaves[place - start].shape[0] for place in arrays}
        if len(sizes) == 1:
            groups.setdefault(sizes.pop(), set()).update(arrays)
        start += len(leaves)
    return [Batch(size, frozenset(places)) for size, places in groups.items()]


def _is_free(inspection: Inspection, batch: Batch) -> bool:
    """Return whether the program can be traced for one more sample."""
    other = inspection.altered(lambda args: resized(args, batch, batch.size + 1))
    return other.stage("jaxpr").unavailable is None


def _is_floating(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)


def _spec(leaf: Any, shape: tuple[Any, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of an array, with its sharding if it has one."""
    kept: dict[str, Any] = {name: getattr(leaf, name, None) for name in ("sharding", "weak_type")}
    return jax.ShapeDtypeStruct(shape, dtype, sharding=kept["sharding"], weak_type=bool(kept["weak_type"]))
