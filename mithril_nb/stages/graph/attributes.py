"""The block of an instruction, and the attributes that are compared to find equal blocks."""

from __future__ import annotations

from collections.abc import Mapping, Set

from mithril_nb.stages.records import UNATTRIBUTED, Instruction

_PLACES = frozenset({"start_indices", "limit_indices", "slice", "index"})
"""Attributes that choose a part of an array."""


def block_of(one: Instruction) -> str:
    """Return the path of the block with the largest share in an instruction."""
    return one.shares[0][0] if one.shares else UNATTRIBUTED


def options_of(one: Instruction, shared: Set[str]) -> tuple[tuple[str, str], ...]:
    """Return the attributes of an instruction that are compared to find equal blocks.

    Attributes that may differ between equal blocks are left out: the part of an array that an instruction reads, if
    several blocks each read a part of this array; names of functions and computations, because each block may call its
    own copy; and all attributes of a `get-tuple-element`.

    Args:
        one: The instruction.
        shared: Ids of the arrays from which several blocks each read a part, such as one array of all parameters.
    """
    if one.opcode == "get-tuple-element":
        return ()
    places = _PLACES if not shared.isdisjoint(one.operands) else ()
    return tuple(pair for pair in one.attributes if pair[0] not in places and not pair[1].startswith(("%", "@")))


def shared_arrays(by_id: Mapping[str, Instruction]) -> set[str]:
    """Return the ids of the arrays from which several blocks each read a part."""
    cut: dict[str, set[str]] = {}
    for one in by_id.values():
        if any(name in _PLACES for name, _ in one.attributes):
            for operand in one.operands:
                cut.setdefault(operand, set()).add(block_of(one))
    return {id for id, blocks in cut.items() if len(blocks) > 1}
