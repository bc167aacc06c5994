"""What a program is run with: the arrays of the person as far as there are any, else values made up."""

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
"""How many random numbers are drawn; larger arrays repeat them."""
_SPREAD = 0.02
"""Standard deviation of parameters that are made up: that of many initializers, at which values neither grow nor
vanish on their way through a model."""


@dataclass(frozen=True)
class Values:
    """Everything that one run of a program takes.

    Attributes:
        leaves: The arrays, in the order of its inputs, where the program wants them.
        structure: How they make up its arguments, `(args, kwargs)`.
        donated: Whether the program may reuse the memory of each, which takes the array away.
        made_up: Names of those that nobody gave.
    """

    leaves: tuple[Any, ...]
    structure: Any
    donated: tuple[bool, ...]
    made_up: tuple[str, ...]

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of one run: a copy of what is donated, so that it is still there for the next."""
        leaves = [
            leaf.copy() if taken and not _is_number(leaf) else leaf
            for leaf, taken in zip(self.leaves, self.donated, strict=True)
        ]
        jax.block_until_ready(leaves)
        return jax.tree.unflatten(self.structure, leaves)

    @property
    def notes(self) -> tuple[str, ...]:
        """What there is to say of them."""
        if not self.made_up:
            return ()
        names = ", ".join(self.made_up[:_MOST_NAMES])
        more = f", and {len(self.made_up) - _MOST_NAMES} more" if len(self.made_up) > _MOST_NAMES else ""
        return (f"made-up values for {names}{more}: whole numbers are 0, others small and random",)


def values_for(inspection: Inspection, args: tuple[Any, ...]) -> Values:
    """Return what to run a compiled program with.

    Args:
        inspection: The program; it is compiled now if it was not before.
        args: What the person gave: arrays for all inputs, or for the last ones, or nothing. Where a
            `jax.ShapeDtypeStruct` stands, and for inputs before those given, values are made up.

    Raises:
        UnexpectedInputError: They are not what the program takes.
    """
    compiled, inputs = inspection.compiled, inspection.inputs
    avals = jax.tree.leaves(compiled.in_avals)
    shardings = jax.tree.leaves(compiled.input_shardings, is_leaf=lambda leaf: leaf is None)
    donated = tuple(info.donated for info in jax.tree.leaves(inspection.lowered.args_info, is_leaf=_is_info))
    given = _fitting(inspection, args, avals, inputs)
    whole = [None] * (len(avals) - len(given)) + given
    leaves: list[Any] = []
    made_up: list[str] = []
    for place, (leaf, aval, one) in enumerate(zip(whole, avals, inputs, strict=True)):
        if leaf is None or isinstance(leaf, jax.ShapeDtypeStruct):
            leaf = _made_up(aval, bool(one.is_param), place)
            made_up.append(one.name)
        # A number stays one: it has a weak type, which an array of NumPy's would not have.
        leaves.append(leaf if _is_number(leaf) else _put(leaf, aval, shardings[place]))
    return Values(tuple(leaves), compiled.in_tree, donated, tuple(made_up))


def _is_info(leaf: Any) -> bool:
    return hasattr(leaf, "donated")


def _fitting(inspection: Inspection, args: tuple[Any, ...], avals: Sequence[Any], inputs: Sequence[Input]) -> list[Any]:
    """Return the leaves of `args` that are inputs: what is static is none, and numbers are static in most functions."""
    leaves = [leaf for leaf in jax.tree.leaves(args) if _is_array(leaf) or _is_number(leaf)]
    for found in (leaves, [leaf for leaf in leaves if _is_array(leaf)]):
        wanted = avals[len(avals) - len(found) :] if len(found) <= len(avals) else ()
        if len(found) == len(wanted) and all(_fits(leaf, aval) for leaf, aval in zip(found, wanted, strict=True)):
            return found
    raise UnexpectedInputError(
        f"program {inspection.name!r} does not take these arguments.",
        (
            ("takes", ", ".join(f"{one.name} {one.spec}" for one in inputs) or "nothing"),
            ("given", ", ".join(_told(leaf) for leaf in leaves)),
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


def _told(leaf: Any) -> str:
    return f"{tuple(leaf.shape)} {leaf.dtype}" if _is_array(leaf) else repr(leaf)


def _put(leaf: Any, aval: Any, sharding: Any) -> Any:
    if isinstance(leaf, np.ndarray | np.generic):
        leaf = jnp.asarray(np.asarray(leaf, aval.dtype))
    # What is put anywhere keeps a layout, and JAX refuses that of 4-bit integers where it compiled for another.
    return leaf if leaf.sharding == sharding else jax.device_put(leaf, sharding)


def _made_up(aval: Any, is_param: bool, place: int) -> Any:
    if not jnp.issubdtype(aval.dtype, jnp.inexact):
        return jnp.zeros(aval.shape, aval.dtype)
    draw = np.random.default_rng((_SEED, place))
    # Data and what an optimizer keeps are not negative: it takes roots of them.
    numbers = draw.normal(0, _SPREAD, _DRAWN) if is_param else draw.random(_DRAWN)
    return np.resize(numbers.astype(aval.dtype), aval.shape)
