"""Detect the iterations of an unrolled Python loop: repeated calls of the same functions.

Blocks named after functions have the same path in every call of the function. If their calls come in rounds, one per
iteration, each round becomes a separate node, so that equal rounds can be folded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from mithril_nb.stages.graph.draft import NodeDraft
from mithril_nb.stages.graph.folds import round_name, rounds
from mithril_nb.stages.records import ById

# A level with fewer runs than this is clear without folding.
_FEWEST = 6


@dataclass
class _CallRun:
    part: str
    child: NodeDraft
    units: list[NodeDraft]


def split_rounds(root: NodeDraft, by_id: ById) -> None:
    """Put the blocks of each round of calls into a separate node, on every level of a tree."""
    for draft in root.walk():
        if len(draft.children) > 1 and any(child.kind == "block" for child in draft.children.values()):
            _split(draft, by_id)


def _split(draft: NodeDraft, by_id: ById) -> None:
    runs = _runs(draft, "forward")
    calls = Counter(run.part for run in runs if run.child.kind == "block")
    if len(runs) < _FEWEST or max(calls.values(), default=0) < 3:
        return
    repetition = rounds(
        [(run.child.kind, run.child.name, run.child.shapes if run.child.kind == "instruction" else ()) for run in runs]
    )
    if repetition is None or not any(
        calls[run.part] > 1 for run in runs[repetition[0] : repetition[0] + repetition[1]]
    ):
        return
    start, period, count = repetition
    name = round_name([run.child for run in runs[start : start + period] if run.child.source] or [runs[start].child])
    # One node per round; `fold` makes one node of equal rounds later.
    groups = [draft.child(f"round:{start}:{at}", name, "repeat", draft.block) for at in range(count)]
    moved: dict[str, tuple[int, str, NodeDraft]] = {}  # by instruction: its round, the child of the level, its instance
    instances: dict[str, list[tuple[int, NodeDraft] | None]] = {}
    for at, run in enumerate(runs):
        number, position = divmod(at - start, period)
        if not 0 <= at - start < period * count:
            instances.setdefault(run.part, []).append(None)
            continue
        instance = groups[number]
        if run.child.kind == "block":
            nth = sum(earlier.part == run.part for earlier in runs[at - position : at]) + 1
            mark = f"#{nth}" if nth > 1 else ""
            name = f"{run.child.name} {mark}" if mark else run.child.name
            instance = instance.child(f"{run.part}{mark}", name, "block", run.child.block)
        instances.setdefault(run.part, []).append((number, instance))
        _move(run, instance, moved, number)
    # The backward pass of each call goes into the round of the call. The first belongs to the last call. Instructions
    # between two backward passes belong to the earlier one.
    backward = _runs(draft, "backward")
    # If there are more or fewer backward passes than calls, their calls are unknown, and they are not moved.
    total = Counter(run.part for run in backward)
    done: Counter[str] = Counter()
    current: int | None = None
    for run in backward:
        forward = instances.get(run.part, ())
        if run.child.kind == "block" and len(forward) == total[run.part]:
            call = forward[len(forward) - 1 - done[run.part]]
            done[run.part] += 1
            current = call[0] if call else None
            if call is not None:
                _move(run, call[1], moved, call[0])
        elif current is not None and run.child.kind != "block":
            _move(run, groups[current], moved, current)
    for run in _runs(draft, "update"):
        for unit in run.units:
            near = [moved[operand] for id in unit.ids for operand in by_id[id].operands if operand in moved]
            same = [home for home in near if home[1] == run.part]
            if same or (near and run.child.kind != "block"):
                number, _, instance = (same or near)[0]
                _move(_CallRun(run.part, run.child, [unit]), instance, moved, number)
    for node in reversed([*draft.walk()]):
        node.children = {part: child for part, child in node.children.items() if child.children or child.ids}


def _runs(draft: NodeDraft, role: str) -> list[_CallRun]:
    units: list[tuple[int, str, NodeDraft]] = []
    for part, child in draft.children.items():
        stack = [] if part.startswith("round:") else [child]
        while stack:
            node = stack.pop()
            if not node.ids or node.kind in ("block", "input"):
                stack.extend(node.children.values())
            elif node.role == role:
                units.append((node.order, part, node))
    runs: list[_CallRun] = []
    for _, part, unit in sorted(units, key=lambda entry: entry[0]):
        if runs and runs[-1].part == part:
            runs[-1].units.append(unit)
        else:
            runs.append(_CallRun(part, draft.children[part], [unit]))
    return runs


def _move(run: _CallRun, instance: NodeDraft, moved: dict[str, tuple[int, str, NodeDraft]], number: int) -> None:
    for unit in run.units:
        path: list[tuple[str, NodeDraft]] = []
        node = unit
        while node is not run.child and node.parent is not None:
            path.append((_part(node), node))
            node = node.parent
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
        for id in (id for inner in unit.walk() for id in inner.ids):
            moved[id] = number, run.part, instance


def _part(draft: NodeDraft) -> str:
    assert draft.parent is not None  # nothing is folded yet, so a key is the parent's key and the part
    return draft.key[len(draft.parent.key) + 1 :] if draft.parent.key else draft.key
