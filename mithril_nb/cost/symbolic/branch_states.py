"""The branches of conditions that count in sums of formulas, which may depend on symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from mithril_nb.cost.formulas.communication import NOTHING, UNKNOWN, Sent, sends_no_more
from mithril_nb.cost.formulas.symbols import Expression, Polynomial, UndecidedError, total
from mithril_nb.stages.records import Equation

COUNTS, IDLE, UNDECIDED, SENDS = "counts", "idle", "undecided", "sends"
"""States of an equation in a branch: in the most expensive branch; in a cheaper one, which counts 0; undecided, because
it depends on sizes or unknown costs; a collective in a cheaper branch that may communicate more."""


def branch_states(
    conditions: Sequence[str],
    members: Iterable[tuple[Equation, int]],
    weight: Callable[[int], Expression | None],
    sent: Callable[[int], Sent],
) -> dict[str, str]:
    """Return the state of each equation in a branch, by id.

    Args:
        conditions: Ids of the conditions, outer ones first.
        members: The equations with the indices of their kinds.
        weight: Returns the cost of an equation of a kind in all its runs; `None` if unknown.
        sent: Returns its payload and wire bytes in all its runs.
    """
    every = tuple(members)
    found: dict[str, str] = {}
    for condition in reversed(conditions):
        branches: dict[str, list[tuple[str, int]]] = {}
        for one, place in every:
            if one.id.startswith(f"{condition}.b"):
                branches.setdefault(one.id[len(condition) + 1 :].split(".", 1)[0], []).append((one.id, place))
        if len(branches) < 2:
            continue
        weights = {
            name: [0 if found.get(id) in (IDLE, SENDS) else weight(place) for id, place in body]
            for name, body in branches.items()
        }
        is_open = any(found.get(id) == UNDECIDED for body in branches.values() for id, _ in body)
        sums = {name: total(0 if each is None else each for each in some) for name, some in weights.items()}
        most_expensive = None if is_open else _most_expensive(sums)
        for name, body in branches.items():
            if name == most_expensive:
                continue
            state, own = UNDECIDED, IDLE
            if most_expensive is not None and None not in weights[name]:
                sums_sent = [_sum_sent(branches[branch], found, sent) for branch in (name, most_expensive)]
                state, own = IDLE, IDLE if sends_no_more(*sums_sent) else SENDS
            for id, place in body:
                if found.get(id) not in (IDLE, SENDS):
                    found[id] = own if state == IDLE and sent(place) != NOTHING else state
    return found


def _sum_sent(body: Iterable[tuple[str, int]], found: Mapping[str, str], sent: Callable[[int], Sent]) -> Sent:
    """Return the payload and wire bytes of a branch; those of idle branches inside it are 0 or unknown."""
    each = [UNKNOWN if found.get(id) == SENDS else sent(place) for id, place in body if found.get(id) != IDLE]
    payloads = [payload for payload, _ in each if payload is not None]
    wires = [wire for _, wire in each if wire is not None]
    return total(payloads) if len(payloads) == len(each) else None, total(wires) if len(wires) == len(each) else None


def _most_expensive(branches: Mapping[str, Polynomial]) -> str | None:
    """Return the most expensive branch for all sizes, the first of several; `None` if it depends on the sizes."""
    best = next(iter(branches))
    try:
        for name, cost in branches.items():
            if cost > branches[best]:
                best = name
    except UndecidedError:
        return None
    return best
