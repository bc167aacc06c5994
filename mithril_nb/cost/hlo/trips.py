"""Trip counts of HLO loops that count from one constant to another, if XLA has not annotated them yet.

XLA annotates loops only in its passes. Loops that JAX's lowering adds, such as the rounds of its random numbers, are
not in the jaxpr either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mithril_nb.cost.hlo.module import Computation, HloModule
from mithril_nb.stages.records import Instruction
from mithril_nb.stages.trace.trips import rounds

_DIGITS = re.compile(r"\d+")


def counted_rounds(loop: Instruction, home: Computation, module: HloModule) -> int | None:
    """Return the trip count of a `while`; `None` if it depends on values.

    Args:
        loop: The loop.
        home: The computation that contains it.
        module: The module.
    """
    return _Counting(loop, home, module).rounds()


def rounds_of_loops(module: HloModule, rounds: Mapping[str, int | None]) -> dict[str, int]:
    """Return the trip counts of the loops of a module, from the loops of the jaxpr that they come from.

    A loop is also linked to the equations of its body, and to those of an outer loop that carries its result. Its own
    equation is the innermost one that contains all equations of its body. If no equation fits, or an outer loop has
    the same equation, the trip count is unknown.

    Args:
        module: The module.
        rounds: Trip counts of the loops of the jaxpr, by the id of the equation; `None` if unknown.
    """
    inside: dict[str, frozenset[str]] = {}
    own: dict[str, str] = {}
    outer: dict[str, set[str]] = {name: set() for name in module.computations}
    for body in module.callers_last():
        ids: set[str] = set()
        for one in body.by_id.values():
            within = frozenset[str]().union(*(inside.get(callee.name, ()) for callee in module.called(one)))
            if one.opcode == "while":
                own[one.id] = _around([id for id in one.equations if id in rounds], within)
            ids |= within if one.opcode in ("while", "call", "conditional") else {*one.equations, *within}
        inside[body.name] = frozenset(ids)
    found: dict[str, int] = {}
    for body in reversed([*inside]):
        for one in module.computations[body].by_id.values():
            around = {own[one.id], *outer[body]} if one.opcode == "while" else outer[body]
            for callee in module.called(one):
                if callee.name in outer:
                    outer[callee.name] |= around
            count = rounds.get(own[one.id]) if one.opcode == "while" and own[one.id] not in outer[body] else None
            if count is not None:
                found[one.id] = count
    return found


def _around(loops: list[str], ids: frozenset[str]) -> str:
    """Return the innermost of some loops of a jaxpr that contains all equations; `""` if none does."""
    if not loops:
        return ""
    outermost = min(loops, key=len)
    ours = [id for id in ids if id == outermost or id.startswith(f"{outermost}.")]  # XLA moves others into loops
    fitting = [loop for loop in loops if all(id == loop or id.startswith(f"{loop}.") for id in ours)]
    return max(fitting, key=len, default="")


class _Counting:
    def __init__(self, loop: Instruction, home: Computation, module: HloModule):
        self._home = home
        self._given = home.by_id.get(loop.operands[0]) if loop.operands else None
        self._condition = next(iter(module.called(loop, "condition")), None)
        self._body = next(iter(module.called(loop, "body")), None)

    def rounds(self) -> int | None:
        condition = self._condition
        test = None if condition is None else condition.root
        if condition is None or test is None or test.opcode != "compare":
            return None
        how = dict(test.attributes).get("direction", "").lower()
        counter, end = condition.operands(test)
        place, dtype = _place(counter, condition), counter.shapes[0].dtype
        if place is None or how not in ("lt", "le", "gt", "ge", "ne"):
            return None
        start, step, stop = self._start(place), self._step(place), self._number(condition, end)
        return None if start is None or step is None or stop is None else rounds(how, start, step, stop, dtype)

    def _start(self, place: int) -> int | None:
        """Return the initial value of a carried value."""
        given = self._given
        if given is None or given.opcode != "tuple" or place >= len(given.operands):
            return None
        return self._home.numbers.get(given.operands[place])

    def _step(self, place: int) -> int | None:
        """Return the number that one iteration adds to a carried value."""
        made = self._result(place)
        if self._body is None or made is None or made.opcode not in ("add", "subtract"):
            return None
        first, second = self._body.operands(made)
        if made.opcode == "add" and _place(first, self._body) != place:
            first, second = second, first
        if _place(first, self._body) != place:
            return None
        step = self._number(self._body, second)
        return step if step is None or made.opcode == "add" else -step

    def _number(self, where: Computation, one: Instruction) -> int | None:
        """Return the value of an instruction if it is the same number in every iteration."""
        place = _place(one, where)
        if place is None:
            return where.numbers.get(one.id)
        made, body = self._result(place), self._body
        is_kept = made is not None and body is not None and _place(made, body) == place  # carried unchanged
        return self._start(place) if is_kept else None

    def _result(self, place: int) -> Instruction | None:
        """Return the instruction that gives one element of the body's result."""
        body = self._body
        if body is None or body.root is None or body.root.opcode != "tuple" or place >= len(body.root.operands):
            return None
        return body.by_id.get(body.root.operands[place])


def _place(one: Instruction, where: Computation) -> int | None:
    """Return the index of the carried value that an instruction reads, if it does; a body has only one parameter."""
    taken = where.operands(one)
    if one.opcode != "get-tuple-element" or not taken or taken[0].opcode != "parameter":
        return None
    found = _DIGITS.search(dict(one.attributes).get("index", ""))
    return int(found[0]) if found else None
