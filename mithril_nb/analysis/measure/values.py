"""The arguments of a measured run: the user's arrays, and placeholder values for missing ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.errors import UnexpectedInputError
from mithril_nb.inspection.inspection import Inspection
from mithril_nb.stages.records import Input
from mithril_nb.targets.results import NUMBERS

_MOST_NAMES = 4
_SEED = 0
_DRAWN = 1 << 16
"""Number of random values; larger arrays repeat them."""
_SPREAD = 0.02
"""Standard deviation of placeholder parameters, as in many initializers: activations neither grow nor vanish."""


@dataclass(frozen=True)
class Values:
    """The arguments of one run of a program.

    Attributes:
        leaves: The arrays in the order of the program's inputs, on the devices that it needs.
        structure: The tree structure of the arguments, `(args, kwargs)`.
        donated: For each array, whether the program donates it and so invalidates it.
        placeholders: Names of the inputs with placeholder values.
    """

    leaves: tuple[Any, ...]
    structure: Any
    donated: tuple[bool, ...]
    placeholders: tuple[str, ...]

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of one run, with copies of the donated arrays, which the next run needs again."""
        leaves = [
            leaf.copy() if taken and not _is_number(leaf) else leaf
            for leaf, taken in zip(self.leaves, self.donated, strict=True)
        ]
        jax.block_until_ready(leaves)
        return jax.tree.unflatten(self.structure, leaves)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the profile."""
        if not self.placeholders:
            return ()
        names = ", ".join(self.placeholders[:_MOST_NAMES])
        more = f", and {len(self.placeholders) - _MOST_NAMES} more" if len(self.placeholders) > _MOST_NAMES else ""
        return (f"placeholder values for {names}{more}: integers are 0, other numbers small and random",)


def values_for(inspection: Inspection, args: tuple[Any, ...]) -> Values:
    """Return the arguments for running a compiled program.

    Args:
        inspection: The program; it is compiled if necessary.
        args: The user's arrays for all inputs, for the last ones, or none. Missing inputs and
            `jax.ShapeDtypeStruct`s get placeholder values.

    Raises:
        UnexpectedInputError: The program does not accept these arrays.
    """
    compiled, inputs = inspection.compiled, inspection.inputs
    avals = jax.tree.leaves(compiled.in_avals)
    shardings = jax.tree.leaves(compiled.input_shardings, is_leaf=lambda leaf: leaf is None)
    donated = tuple(info.donated for info in jax.tree.leaves(inspection.lowered.args_info, is_leaf=_is_info))
    given = _fitting(inspection, args, avals, inputs)
    whole = [None] * (len(avals) - len(given)) + given
    leaves: list[Any] = []
    placeholders: list[str] = []
    for place, (leaf, aval, one) in enumerate(zip(whole, avals, inputs, strict=True)):
        if leaf is None or isinstance(leaf, jax.ShapeDtypeStruct):
            leaf = _placeholder(aval, bool(one.is_param), place)
            placeholders.append(one.name)
        # A Python number stays one: it has a weak type, which a NumPy array would not have.
        leaves.append(leaf if _is_number(leaf) else _put(leaf, aval, shardings[place]))
    return Values(tuple(leaves), compiled.in_tree, donated, tuple(placeholders))


def _is_info(leaf: Any) -> bool:
    return hasattr(leaf, "donated")


def _fitting(inspection: Inspection, args: tuple[Any, ...], avals: Sequence[Any], inputs: Sequence[Input]) -> list[Any]:
    """Return the leaves of `args` that are inputs; static leaves are not, and in most functions numbers are static."""
    leaves = [leaf for leaf in jax.tree.leaves(args) if _is_array(leaf) or _is_number(leaf)]
    for found in (leaves, [leaf for leaf in leaves if _is_array(leaf)]):
        wanted = avals[len(avals) - len(found) :] if len(found) <= len(avals) else ()
        if len(found) == len(wanted) and all(_fits(leaf, aval) for leaf, aval in zip(found, wanted, strict=True)):
            return found
    raise UnexpectedInputError(
        f"program {inspection.name!r} does not take these arguments.",
        (
            ("takes", ", ".join(f"{one.name} {one.spec}" for one in inputs) or "nothing"),
            ("given", ", ".join(_describe(leaf) for leaf in leaves)),
        ),
        "ml.profile(inspection)  # with placeholder values of the right shapes",
    )


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, NUMBERS) and not isinstance(leaf, np.generic)


def _fits(leaf: Any, aval: Any) -> bool:
    if _is_number(leaf):
        return aval.shape == () and jnp.result_type(leaf) == aval.dtype
    return (
        tuple(leaf.shape) == tuple(aval.shape)
        and jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True) == aval.dtype
    )


def _describe(leaf: Any) -> str:
    return f"{tuple(leaf.shape)} {leaf.dtype}" if _is_array(leaf) else repr(leaf)


def _put(leaf: Any, aval: Any, sharding: Any) -> Any:
    if isinstance(leaf, np.ndarray | np.generic):
        leaf = jnp.asarray(np.asarray(leaf, aval.dtype))
    # `device_put` keeps the layout, and JAX rejects 4-bit integers in another layout than it compiled for.
    return leaf if leaf.sharding == sharding else jax.device_put(leaf, sharding)


def _placeholder(aval: Any, is_param: bool, place: int) -> Any:
    if not jnp.issubdtype(aval.dtype, jnp.inexact):
        return jnp.zeros(aval.shape, aval.dtype)
    draw = np.random.default_rng((_SEED, place))
    # Data and optimizer state must not be negative: optimizers take square roots.
    numbers = draw.normal(0, _SPREAD, _DRAWN) if is_param else draw.random(_DRAWN)
    return np.resize(numbers.astype(aval.dtype), aval.shape)
