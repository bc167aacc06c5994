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
    """Return the attributes of an instruction, as pairs of name and value, that count when blocks are compared.

    If the instruction reads one of the arrays `shared`, whose parts go to several blocks, the position of the part does
    not count.
    """
    if one.opcode == "get-tuple-element":
        return ()
    # Equal blocks may read different parts of one array of all parameters, and call separate copies of one function.
    places = _PLACES if not shared.isdisjoint(one.operands) else ()
    return tuple(pair for pair in one.attributes if pair[0] not in places and not pair[1].startswith(("%", "@")))


def shared_arrays(by_id: Mapping[str, Instruction]) -> set[str]:
    """Return the ids of arrays that several blocks share, each reading a part, such as one array of all parameters."""
    cut: dict[str, set[str]] = {}
    for one in by_id.values():
        if any(name in _PLACES for name, _ in one.attributes):
            for operand in one.operands:
                cut.setdefault(operand, set()).add(block_of(one))
    return {id for id, blocks in cut.items() if len(blocks) > 1}
