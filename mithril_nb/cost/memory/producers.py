"""The blocks that produce the values of a compiled program, looking inside loops and fusions."""

from __future__ import annotations

import re

from mithril_nb.cost.hlo.module import Computation, HloModule
from mithril_nb.stages.records import UNATTRIBUTED, Instruction, Stage

_NUMBERS = re.compile(r"\d+")
_MOST_STEPS = 100
"""Enough for nested loops; the limit protects against endless cycles in unexpected HLO text."""


class Makers:
    """The instructions and blocks that produce the values of a compiled program.

    Args:
        stage: Optimized HLO.
    """

    def __init__(self, stage: Stage):
        self._module = HloModule.of(stage)
        self._by_id = {one.id: one for one in stage.instructions}
        self._home: dict[str, Computation] = {}
        self._callers: dict[str, tuple[Instruction, Computation]] = {}
        for computation in () if self._module is None else self._module.computations.values():
            for one in computation.by_id.values():
                self._home[one.id] = computation
                if one.opcode in _CALLS:
                    for called in self._module.called(one) if self._module is not None else ():
                        self._callers[called.name] = one, computation

    def block_of(self, id: str, index: str = "") -> str:
        """Return the path of the block that produces a value, or most of it; `""` if not attributed.

        Args:
            id: Id of the instruction whose result is the value.
            index: Index in the result if that is a tuple: `"{1}"`.
        """
        first = self._by_id.get(id)
        if first is None:
            return UNATTRIBUTED
        if index == "{}":
            return UNATTRIBUTED  # XLA's own table of pointers to the elements of a tuple
        made = self._maker(first, [int(number) for number in _NUMBERS.findall(index)])
        return _most(made) or _most(first)

    def is_argument(self, id: str) -> bool:
        """Return whether a value is an argument of the program."""
        home = self._home.get(id)
        return home is not None and home.is_entry and self._by_id[id].opcode == "parameter"

    def _maker(self, one: Instruction, index: list[int]) -> Instruction:
        """Follow an element of a result to the instruction that computes it."""
        for _ in range(_MOST_STEPS):
            found = self._behind(one, index)
            if found is None:
                break
            one, index = found
        return one

    def _behind(self, one: Instruction, index: list[int]) -> tuple[Instruction, list[int]] | None:
        """Take one step of `_maker`; return `None` at the end."""
        home = self._home.get(one.id)
        if home is None or self._module is None:
            return None
        if one.opcode == "parameter":
            caller = self._callers.get(home.name)
            if caller is None:
                return None
            return self._round_loop(caller[0], index) if caller[0].opcode == "while" else None
        operands = home.operands(one)
        if one.opcode == "tuple" and index and index[0] < len(one.operands):
            return self._known(one.operands[index[0]], index[1:])
        if one.opcode == "get-tuple-element" and operands:
            return operands[0], [*_place(one), *index]
        if one.opcode == "while":
            return self._round_loop(one, index)
        if one.opcode in _CALLS:
            roots = [body.root for body in self._module.called(one) if body.root is not None]
            return (roots[0], index) if roots else None
        if not one.shares and operands and one.opcode in ("copy", "bitcast", "copy-start", "copy-done"):
            return operands[0], []
        return None

    def _round_loop(self, loop: Instruction, index: list[int]) -> tuple[Instruction, list[int]] | None:
        """Return an element of the loop body's result, or of the loop's operand if the body passes it on unchanged."""
        assert self._module is not None
        bodies = self._module.called(loop, "body")
        root = bodies[0].root if bodies else None
        if root is None or not index:
            return None
        if root.opcode != "tuple" or index[0] >= len(root.operands):
            return None
        found = self._by_id.get(root.operands[index[0]])
        if found is None:
            return None
        given = bodies[0].operands(found)
        is_passed_on = (
            found.opcode == "get-tuple-element"
            and _place(found) == index[:1]
            and bool(given)
            and given[0].opcode == "parameter"
        )
        if is_passed_on:
            return self._known(loop.operands[0], index) if loop.operands else None
        return found, index[1:]

    def _known(self, id: str, index: list[int]) -> tuple[Instruction, list[int]] | None:
        one = self._by_id.get(id)
        return None if one is None else (one, index)


_CALLS = frozenset({"while", "conditional", "call", "fusion", "async-start"})


def _place(element: Instruction) -> list[int]:
    return [int(number) for number in _NUMBERS.findall(dict(element.attributes).get("index", ""))][:1]


def _most(one: Instruction) -> str:
    """Return the block with the largest share, or the first of several."""
    return max(one.shares, key=lambda share: share[1])[0] if one.shares else UNATTRIBUTED
