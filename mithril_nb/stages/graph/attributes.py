"""The block of an instruction, and the attributes that are compared to find equal blocks."""

from __future__ import annotations

from collections.abc import Mapping, Set

from mithril_nb.stages.records import UNATTRIBUTED, Instruction

# Attributes that choose a part of an array.
_PLACES = frozenset({"start_indices", "limit_indices", "slice", "index"})


def block_of(instruction: Instruction) -> str:
    """Return the path of the block with the largest share in an instruction."""
    return instruction.shares[0][0] if instruction.shares else UNATTRIBUTED


def options_of(instruction: Instruction, shared: Set[str]) -> tuple[tuple[str, str], ...]:
    """Return the attributes of an instruction, as pairs of name and value, that count when blocks are compared."""
    # If the instruction reads one of the arrays `shared`, whose parts go to several blocks, the position of the part
    # does not count.
    if instruction.opcode == "get-tuple-element":
        return ()
    # Equal blocks may read different parts of one array of all parameters, and call separate copies of one function.
    positions = _PLACES if not shared.isdisjoint(instruction.operands) else ()
    return tuple(
        pair for pair in instruction.attributes if pair[0] not in positions and not pair[1].startswith(("%", "@"))
    )


def shared_arrays(by_id: Mapping[str, Instruction]) -> set[str]:
    """Return the ids of arrays that several blocks share, each reading a part, such as one array of all parameters."""
    cut: dict[str, set[str]] = {}
    for instruction in by_id.values():
        if any(name in _PLACES for name, _ in instruction.attributes):
            for operand in instruction.operands:
                cut.setdefault(operand, set()).add(block_of(instruction))
    return {id for id, blocks in cut.items() if len(blocks) > 1}
