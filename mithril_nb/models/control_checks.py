"""Checks of the arguments of Scan, Repeat and Cond, and of the shapes of their bodies."""

from __future__ import annotations

from typing import Any, SupportsIndex

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.records import Block, Value
from mithril_nb.graph.spec import LEADING, Spec, StaticSpec, TensorSpec
from mithril_nb.models.rules import Infer, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, meet
from mithril_nb.models.shape_inference.inference import Inference


def plain_names(value: Value) -> tuple[str, ...]:
    """Return an attribute that holds a tuple of names."""
    assert isinstance(value, tuple)
    return tuple(str(one) for one in value)


def pairs_of(carry: object) -> dict[str, str]:
    """Return the carry as a dict from output to input; a file stores it as pairs.

    Raises:
        UnknownOptionError: It is not a dict of names.
    """
    given: Any = () if carry is None else carry
    try:
        pairs = [] if isinstance(given, str) else [*dict(given).items()]
        fits = not isinstance(given, str) and all(isinstance(name, str) for pair in pairs for name in pair)
    except (TypeError, ValueError):
        pairs, fits = [], False
    if not fits:
        raise UnknownOptionError(
            f"Scan cannot take carry={short_repr(carry)}.",
            (("needs", "a dict from an output of the body to the input that receives it in the next step"),),
            "Scan(body, carry={'hidden': 'prev_hidden'})",
        )
    return dict(pairs)


def names_of(fixed: object) -> tuple[str, ...]:
    """Check the names of fixed inputs, and return them."""
    if not isinstance(fixed, list | tuple) or not all(isinstance(name, str) for name in fixed):
        raise UnknownOptionError(
            f"Scan cannot take fixed={short_repr(fixed)}.",
            (("needs", "a list of input names of the body"),),
            "Scan(body, fixed=['mask'])",
        )
    return tuple(fixed)


def checked_whole(kind: str, name: str, value: object, least: int, most: int) -> int:
    """Return a validated int.

    Raises:
        UnknownOptionError: It is not an integer, or is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or not least <= int(value) <= most:
        raise UnknownOptionError(
            f"{kind} cannot take {name}={short_repr(value)}.",
            (("needs", f"a whole number from {least} to {most}"),),
            f"{kind}(body, {name}={max(least, 1)})",
        )
    return int(value)


def array_of(block: Block, output: str, spec: Spec | None) -> TensorSpec:
    """Return the spec of an output without a known shape, after an earlier mismatch.

    Raises:
        MismatchError: It is not an array. A loop or a branch can return only arrays.
    """
    if isinstance(spec, StaticSpec):
        raise MismatchError(
            block.inputs[-1].name,
            "a body that returns arrays",
            "compute the shape outside this block.",
            f"its {output!r} is a static value, not an array",
        )
    return TensorSpec((LEADING,))


def count_of(block: Block) -> int:
    """Return the number of repetitions of a block."""
    count = block.options["count"]
    assert isinstance(count, int)
    return count


def infer_inside(block: Block, part: str, specs: Specs, infer: Infer) -> Inference:
    """Infer the shapes in the body of a block."""
    assert block.graph is not None
    return infer(block.graph, {f"{part}_{port}": spec for port, spec in specs.items()})


def check_same(port: str, before: TensorSpec, after: TensorSpec | StaticSpec) -> None:
    """Raise if the output of a step cannot be the input of the next step."""
    if isinstance(after, TensorSpec) and (meet(before.shape, after.shape, {}) is None or before.dtype != after.dtype):
        raise MismatchError(
            port,
            f"{after.shape} {after.dtype!s}, the result of the body",
            "a body whose output matches its input, or another initial value.",
            "each step receives the output of the step before",
        )
