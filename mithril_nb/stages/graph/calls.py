"""Detect the iterations of an unrolled Python loop: repeated calls of the same functions.

Blocks named after functions have the same path in every call of the function. If their calls come in rounds, one per
iteration, each round becomes a separate node, so that equal rounds can be folded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mithril_nb.stages.graph.draft import Draft
from mithril_nb.stages.graph.folds import round_name, rounds
from mithril_nb.stages.records import Instruction

_FEWEST = 6
"""A level with fewer runs than this is clear without folding."""


@dataclass
class _Run:
    """Consecutive instructions of one child of a node, all of the forward pass, backward pass or update.

    Attributes:
        part: Key of the child in the dict `children` of the node.
        child: The child.
        units: The nodes of the instructions. A loop or call is one unit.
    """

    part: str
    child: Draft
    units: list[Draft]

    @property
    def token(self) -> Hashable:
        return (self.child.kind, self.child.name, self.child.shapes if self.child.kind == "instruction" else ())


def split_rounds(root: Draft, by_id: Mapping[str, Instruction]) -> None:
    """Put the blocks of each round of calls into a separate node, on every level of a tree."""
    for draft in root.walk():
        if len(draft.children) > 1:
            _split(draft, by_id)


def _split(draft: Draft, by_id: Mapping[str, Instruction]) -> None:
    if not any(child.kind == "block" for child in draft.children.values()):
        return
    runs = _runs(draft, "forward")
    calls = Counter(run.part for run in runs if run.child.kind == "block")
    if len(runs) < _FEWEST or max(calls.values(), default=0) < 3:
        return
    found = rounds([run.token for run in runs])
    if found is None or not any(calls[run.part] > 1 for run in runs[found[0] : found[0] + found[1]]):
        return
    start, period, count = found
    name = round_name([run.child for run in runs[start : start + period] if run.child.source] or [runs[start].child])
    # One node per round; `fold` makes one node of equal rounds later.
    groups = [draft.child(f"round:{start}:{at}", name, "repeat", draft.block) for at in range(count)]
    place: dict[str, tuple[int, str, Draft]] = {}  # by instruction: its round, the child of the level, its instance
    instances: dict[str, list[tuple[int, Draft] | None]] = {}
    for at, run in enumerate(runs):
        number, position = divmod(at - start, period)
        if not 0 <= at - start < period * count:
            instances.setdefault(run.part, []).append(None)
            continue
        before = sum(one.part == run.part for one in runs[start + number * period : start + number * period + position])
        instance = _instance(groups[number], run, before)
        instances.setdefault(run.part, []).append((number, instance))
        _move(run, instance, place, number)
    _pair_backward(draft, groups, instances, place)
    _follow_updates(draft, place, by_id)
    _drop_empty(draft)


def _instance(group: Draft, run: _Run, before: int) -> Draft:
    if run.child.kind != "block":
        return group
    if not before:
        return group.child(run.part, run.child.name, "block", run.child.block)
    return group.child(f"{run.part}#{before + 1}", f"{run.child.name} #{before + 1}", "block", run.child.block)


def _pair_backward(
    draft: Draft,
    groups: Sequence[Draft],
    instances: Mapping[str, Sequence[tuple[int, Draft] | None]],
    place: dict[str, tuple[int, str, Draft]],
) -> None:
    """Move the backward pass of each call of a block into the node of the round that contains the call.

    The first backward pass belongs to the last call. Instructions between two backward passes belong to the earlier
    one. If a block has more or fewer backward passes than calls, they are not moved.

    Args:
        draft: The node with the calls.
        groups: The nodes of the rounds.
        instances: For each block, by its key in `draft.children`: round number and new node of each call. `None` for a
            call outside the rounds.
        place: Where each instruction was moved, by id; updated in place.
    """
    runs = _runs(draft, "backward")
    # If there are more or fewer backward passes than calls, their calls are unknown.
    total = Counter(run.part for run in runs)
    done: Counter[str] = Counter()
    current: int | None = None
    for run in runs:
        forward = instances.get(run.part, ())
        if run.child.kind == "block" and len(forward) == total[run.part]:
            found = forward[len(forward) - 1 - done[run.part]]
            done[run.part] += 1
            current = found[0] if found else None
            if found is not None:
                _move(run, found[1], place, found[0])
        elif current is not None and run.child.kind != "block":
            _move(run, groups[current], place, current)


def _follow_updates(draft: Draft, place: dict[str, tuple[int, str, Draft]], by_id: Mapping[str, Instruction]) -> None:
    """Move the update of a parameter into the round that computes the gradient of the parameter."""
    for run in _runs(draft, "update"):
        for unit in run.units:
            near = [place[one] for id in unit.ids for one in by_id[id].operands if one in place]
            same = [one for one in near if one[1] == run.part]
            if same or (near and run.child.kind != "block"):
                number, _, instance = (same or near)[0]
                _move(_Run(run.part, run.child, [unit]), instance, place, number)


def _runs(draft: Draft, role: str) -> list[_Run]:
    units = [
        (unit.order, part, unit)
        for part, child in draft.children.items()
        if not part.startswith("round:")
        for unit in _units(child)
        if unit.role == role
    ]
    found: list[_Run] = []
    for _, part, unit in sorted(units, key=lambda one: one[0]):
        if found and found[-1].part == part:
            found[-1].units.append(unit)
        else:
            found.append(_Run(part, draft.children[part], [unit]))
    return found


def _units(draft: Draft) -> Iterator[Draft]:
    """Yield the instructions, loops and calls in a node, but not those inside another of them."""
    stack = [draft]
    while stack:
        one = stack.pop()
        if one.ids and one.kind not in ("block", "input"):
            yield one
        else:
            stack.extend(one.children.values())


def _move(run: _Run, instance: Draft, place: dict[str, tuple[int, str, Draft]], number: int) -> None:
    for unit in run.units:
        path: list[tuple[str, Draft]] = []
        one = unit
        while one is not run.child and one.parent is not None:
            path.append((_part(one), one))
            one = one.parent
        home = instance
        if run.child.kind != "block":
            path.append((_part(run.child), run.child))
        for part, passed in reversed(path[1:]):
            home = home.child(part, passed.name, passed.kind, passed.block)
        part = path[0][0]
        assert unit.parent is not None
        del unit.parent.children[part]
        home.children[part] = unit
        unit.parent = home
        unit.rekey(f"{home.key}/{part}")
        for id in (id for one in unit.walk() for id in one.ids):
            place[id] = number, run.part, instance


def _part(draft: Draft) -> str:
    assert draft.parent is not None  # nothing is folded yet, so a key is the parent's key and the part
    return draft.key[len(draft.parent.key) + 1 :] if draft.parent.key else draft.key


def _drop_empty(draft: Draft) -> None:
    for one in reversed([*draft.walk()]):
        one.children = {part: child for part, child in one.children.items() if child.children or child.ids}
