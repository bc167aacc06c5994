"""Find the gradients that pass through a sum. JAX's backward pass has no equation for a sum that would show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from mithril_nb.stages.graph.draft import block_of
from mithril_nb.stages.graph.stage_graph import Gradient
from mithril_nb.stages.records import Instruction

# Maximum number of sums through which the gradient of one value is followed.
_MOST_SUMS = 64
_SUMS = frozenset({"add", "add_any"})


def passed_gradients(
    flows: Sequence[tuple[str, str]], carried: Sequence[tuple[str, str]], by_id: Mapping[str, Instruction]
) -> Iterator[Gradient]:
    """Yield the gradients that flow through sums from the user of a value to the instruction that computes the value.

    `flows`: Pairs of ids: the instruction that computes data, and an instruction that uses it. `carried`: The same for
    data that a loop passes to its next round.
    """
    # In the backward pass, a sum adds the gradients from all users of a value. In the forward pass, a sum has no
    # instruction in the backward pass: both operands get the gradient of its result.
    forward: dict[str, list[str]] = {}
    backward: dict[str, list[tuple[str, bool]]] = {}
    for pairs, is_carried in ((flows, False), (carried, True)):
        for source, target in pairs:
            if by_id[target].role == "backward":
                backward.setdefault(source, []).append((target, is_carried))
            elif not is_carried:
                forward.setdefault(source, []).append(target)
    if not backward:
        return
    blocks = {id: block_of(instruction) for id, instruction in by_id.items()}
    sums = {id for id, instruction in by_id.items() if instruction.opcode.rpartition(".")[2] in _SUMS}
    block_pairs: set[tuple[str, str]] = set()  # blocks of producer and user, where a gradient flows in one round
    for user, targets in backward.items():
        for producer, is_carried, is_direct in _behind_sums(targets, backward, sums):
            if not is_direct:
                yield user, producer, is_carried
            if not is_carried:
                block_pairs.add((blocks[producer], blocks[user]))
    starts = {producer for producer, _ in block_pairs}
    for start, users in forward.items():
        above = blocks[start]
        if sums.isdisjoint(users) or by_id[start].role != "forward" or above not in starts:
            continue
        before: dict[str, list[str]] = {}  # by sum, the values behind it
        reached = [start]
        wires: list[tuple[str, str]] = []
        for value in reached:  # the list grows in this loop
            for user in forward.get(value, ()):
                if value != start and (above, blocks[user]) in block_pairs:
                    wires.append((value, user))
                if user in sums and len(before) < _MOST_SUMS:
                    if user not in before:
                        reached.append(user)
                    before.setdefault(user, []).append(value)
        seen = set(wires)
        for value, user in wires:  # the list grows in this loop
            yield user, value, False
            more = [wire for earlier in before.pop(value, ()) if (wire := (earlier, value)) not in seen]
            seen.update(more)
            wires += more


def _behind_sums(
    targets: Sequence[tuple[str, bool]],
    backward: Mapping[str, Sequence[tuple[str, bool]]],
    sums: Set[str],
) -> Iterator[tuple[str, bool, bool]]:
    # Each item is the id of an instruction, whether the gradient reaches it only in a later round of a loop, and
    # whether it is one of `targets`, so that no sum is between.
    waiting = [(target, is_carried, True) for target, is_carried in targets]
    seen: set[tuple[str, bool]] = set()
    while waiting:
        at, is_carried, is_direct = waiting.pop()
        if (at, is_carried) in seen:
            continue
        seen.add((at, is_carried))
        yield at, is_carried, is_direct
        if at in sums and len(seen) < _MOST_SUMS:
            waiting += [(user, is_carried or carries, False) for user, carries in backward.get(at, ())]
