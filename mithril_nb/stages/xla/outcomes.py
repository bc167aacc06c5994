"""The outcome of each instruction that XLA received, such as "fused", found by following it from pass to pass.

If a pass removes an instruction, the instructions that continue it are:

- new instructions with its op name and opcode, because XLA renames an instruction that it moves into a fusion or out of
  a call;
- otherwise, the instruction that the users of the removed instruction use after the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from typing import NamedTuple, TypeVar

from mithril_nb.stages.hlo.syntax import HloLine
from mithril_nb.stages.records import Instruction
from mithril_nb.stages.xla.passes import Became, Histories, Outcome, Pass
from mithril_nb.stages.xla.recover_op_names import ModuleText

HELPERS = frozenset({"constant", "broadcast", "parameter", "tuple", "get-tuple-element"})
"""Opcodes of instructions that only pass data to the instruction that does the work of a JAX operation."""
_NO_RESULT = HELPERS - {"broadcast"}
"""Opcodes that compute nothing. If only these remain of an operation, it was simplified away."""
TURNS = frozenset({"reshape", "bitcast", "copy"})
"""Opcodes that change the shape or layout of an array for an operation."""
_NO_WORK = HELPERS | TURNS | {"fusion", "call"}
_MOST = 8
"""Maximum number of copies of one instruction that are followed."""
_STEPS = 64
"""Number of passes whose parsed texts are cached. One takes half a megabyte for 3,500 instructions."""

_Op = TypeVar("_Op", HloLine, Instruction)


class _Progress(NamedTuple):
    """The changes that the passes so far made to an instruction.

    Attributes:
        first: Name of the instruction before XLA's passes.
        opcode: Opcode of the instruction before XLA's passes.
        fused: The pass that put the instruction into a fusion; `None` if no pass did.
        rewritten: The pass that replaced the instruction by one with another opcode; `None` if no pass did.
    """

    first: str
    opcode: str
    fused: Pass | None = None
    rewritten: Pass | None = None


class _Copy(NamedTuple):
    """An instruction after some passes. If XLA duplicated it, there are several copies.

    Attributes:
        name: Name of the copy.
        since: Number of the pass that created the copy; -1 if it existed before all passes.
        way: The changes that the passes so far made to the instruction.
        equations: Ids of the equations whose copies are followed; see `Outcomes.of`.
        place: Sort key: the index of the instruction, then the index of the copy in each pass that made copies.
        followed: `name` and `since` of all copies of the instruction so far.
        partners: If the instruction was merged with another: ids of the equations of the other; else `None`.
    """

    name: str
    since: int
    way: _Progress
    equations: tuple[str, ...]
    place: tuple[int, ...]
    followed: set[tuple[str, int]]
    partners: tuple[str, ...] | None = None

    def merged(self, outcome: Outcome) -> Outcome:
        """Return an outcome, with `partners` as its equations if the copy was merged with another instruction."""
        if self.partners is None or outcome.became == "simplified":
            return outcome
        return replace(outcome, equations=self.partners)


@dataclass
class Outcomes:
    """Follows instructions through XLA's passes.

    Attributes:
        passes: The passes that changed something.
        histories: The passes in which each instruction appeared and vanished.
        last: A dict from the id of each instruction of the optimized HLO to its opcode.
        fusions: A dict from the id of each instruction inside a fusion of the optimized HLO to the id of the fusion.
        equation_of: Function of an op name that returns the id of its equation, relative to the function that contains
            the equation; `""` if the op name contains no id.
    """

    passes: Sequence[Pass]
    histories: Histories
    last: Mapping[str, str]
    fusions: Mapping[str, str]
    equation_of: Callable[[str], str]

    @cached_property
    def _step(self) -> Callable[[Pass], _Step]:
        known: dict[str, HloLine | str] = {}
        return lru_cache(_STEPS)(lambda one: _Step(one, known))

    def is_in_combiner(self, name: str) -> bool:
        """Return whether an instruction is in the function that a reduction or sort applies to two elements."""
        return self.first.homes.get(name, "") in self._combiners

    @cached_property
    def first(self) -> ModuleText:
        """The HLO before XLA's passes."""
        return self._step(self.passes[0]).before

    @cached_property
    def _combiners(self) -> frozenset[str]:
        lines = (line for line in self.first.lines.values() if line.opcode != "call")
        return frozenset(callee for line in lines for how, callee in line.calls if how == "to_apply")

    def of(self, name: str, equations: Sequence[str] = ()) -> tuple[Outcome, ...]:
        """Return the outcomes of an instruction, one for each of its copies.

        Args:
            name: Name of the instruction before XLA's passes.
            equations: Ids of equations, to select copies: XLA inlines a function once per call, and each copy has the
                equations of its call. Copies of other equations are left out, unless no copy has one of these.
        """
        return self.of_each([name], equations)[0]

    def of_each(self, names: Sequence[str], equations: Sequence[str]) -> list[tuple[Outcome, ...]]:
        """Return the outcomes of several instructions. This parses each pass only once.

        Args:
            names: Names of the instructions before XLA's passes.
            equations: Ids of equations, as in `of`.
        """
        found: dict[tuple[int, ...], Outcome] = {}
        waiting: list[tuple[int, tuple[int, ...], _Copy]] = []

        def follow(copy: _Copy) -> None:
            if (copy.name, copy.since) in copy.followed:  # parts of one operation share one name in every pass
                return
            copy.followed.add((copy.name, copy.since))
            gone = self.histories.vanished.get(copy.name)
            if gone is None or gone.number <= copy.since:
                found[copy.place] = copy.merged(self._end(copy.name, copy.way))
            else:
                heappush(waiting, (gone.number, copy.place, copy))

        for place, name in enumerate(names):
            line = self.first.lines.get(name)
            way = _Progress(name, self.last.get(name, "") if line is None else line.opcode)
            follow(_Copy(name, -1, way, tuple(equations), (place,), set()))
        while waiting:
            copy = heappop(waiting)[2]  # in the order of the passes, so that each is parsed once
            for number, after in enumerate(self._after_pass(copy)):
                place = (*copy.place, number)
                if isinstance(after, Outcome):
                    found[place] = copy.merged(after)
                else:
                    follow(after._replace(place=place))
        each: list[dict[Outcome, None]] = [{} for _ in names]
        for place in sorted(found):
            each[place[0]][found[place]] = None
        return [tuple(one) for one in each]

    def _after_pass(self, copy: _Copy) -> list[Outcome | _Copy]:
        """Follow a copy through the pass that removed it: return its final outcomes and the copies that continue it."""
        name, way = copy.name, copy.way
        gone = self.histories.vanished[name]
        step = self._step(gone)
        before, after = step.before, step.after
        line = before.lines.get(name)
        if line is None:
            return [Outcome("unknown", way.first)]
        new = step.same(line) if line.op_name else step.nameless(line)
        new = [one for one in new if self._is_meant(one, copy.equations)] or new
        # If XLA replaces an instruction by several, all have its op name. Those with its opcode are copies of it.
        copies = [one for one in new if one.opcode == line.opcode]
        if line.opcode == "call" and not copies:
            return [Outcome("inlined" if way.opcode == "call" else "simplified", way.first, by=gone)]
        replaced = step.replacements.get(name)
        if copies:  # the replacement may also be a copy with another instruction around it
            copies += [one for one in new if one is replaced and one.opcode not in {line.opcode, *_NO_WORK}]
        elif replaced is not None and replaced.name in before.lines:
            return [self._merged(line, replaced, step, gone, copy)]
        else:
            # No copy has the opcode. Other new instructions with the op name do its work, or the replacement does.
            copies = at_work(new)
            if not copies and replaced is not None and replaced.opcode in (line.opcode, "fusion"):
                copies = [replaced]
            if not copies:
                return [Outcome(step.end(line), way.first, by=gone)]
        found: list[Outcome | _Copy] = []
        for one in copies[:_MOST]:
            if one.opcode == "fusion" and line.opcode != "fusion":
                onward = way._replace(fused=gone)
            else:
                is_fused = after.homes[one.name] in after.fusions and before.homes[name] not in before.fusions
                onward = way._replace(
                    fused=way.fused or (gone if is_fused else None),
                    rewritten=way.rewritten if one.opcode == line.opcode else gone,
                )
            found.append(copy._replace(name=one.name, since=gone.number, way=onward))
        return found

    def _end(self, name: str, way: _Progress) -> Outcome:
        """Return the outcome of an instruction that exists after all passes."""
        if name not in self.last:
            return Outcome("unknown", way.first)
        if self.last[name] != way.opcode and self.last[name] in _NO_RESULT:
            return Outcome("simplified", way.first, by=way.rewritten)
        fusion = self.fusions.get(name)
        if fusion is not None:
            by, opcode = way.fused or self.histories.appeared.get(fusion), self.last[name]
            rewrite = (
                {} if way.rewritten is None or opcode == way.opcode else {"opcode": opcode, "rewritten": way.rewritten}
            )
            return Outcome("fused", way.first, fusion, by, **rewrite)
        if self.last[name] == way.opcode:
            return Outcome("kept", way.first, name)
        if self.last[name] == "fusion":
            return Outcome("fused", way.first, name, way.fused or self.histories.appeared.get(name))
        return Outcome("rewritten", way.first, name, way.rewritten)

    def _merged(self, line: HloLine, other: HloLine, step: _Step, gone: Pass, copy: _Copy) -> Outcome | _Copy:
        """Return the outcome of an instruction whose users use the older instruction `other` after the pass."""
        way = copy.way
        if not step.computes_same(line, step.before.lines[other.name]):
            return Outcome("simplified", way.first, by=gone)
        partner = self.equation_of(other.op_name)
        partners = (partner,) if partner else ()
        if line.opcode == way.opcode:
            return Outcome("merged", way.first, other.name, gone, partners)
        onward = way._replace(rewritten=way.rewritten or gone)
        partners = partners if copy.partners is None else copy.partners
        return copy._replace(name=other.name, since=gone.number, way=onward, equations=(partner,), partners=partners)

    def _is_meant(self, line: HloLine, equations: Sequence[str]) -> bool:
        own = self.equation_of(line.op_name)
        return any(id == own or id.endswith((f".{own}", f"/{own}")) for id in equations)


class _Step:
    """The module before and after a pass, parsed."""

    def __init__(self, one: Pass, known: dict[str, HloLine | str]):
        self.before, self.after = (ModuleText(text, known) for text in one.written)

    def same(self, line: HloLine) -> list[HloLine]:
        """Return the new instructions with the op name of `line`. The name of an inlined call may precede it."""
        found = [one for name in line.op_name.split(";") if name for one in self._new.get(name, ())]
        return list({one.name: one for one in found}.values())

    def nameless(self, line: HloLine) -> list[HloLine]:
        """Return the new instructions that replace an instruction without op name, and are similar to it."""
        return self._nameless[line.name][0]

    def end(self, line: HloLine) -> Became:
        """Return the outcome of an instruction that no instruction continues."""
        home = self.before.homes[line.name]
        if line.opcode == "parameter" and home not in self._homes:
            callers = [one for one in self.before.lines.values() if home in {callee for _, callee in one.calls}]
            return "inlined" if callers and {one.opcode for one in callers} == {"call"} else "unknown"
        return "simplified" if line.op_name or self._nameless[line.name][1] else "unknown"

    @cached_property
    def _nameless(self) -> dict[str, tuple[list[HloLine], bool]]:
        """For each removed instruction without op name: its replacements, and whether all users do without it."""
        found: dict[str, tuple[list[HloLine], bool]] = {}
        for line in reversed(self.before.lines.values()):  # users first
            if line.op_name or line.name in self.after.lines:
                continue
            replacements: dict[str, HloLine] = {}
            is_gone = not line.is_root
            for user in self.before.users.get(line.name, ()):
                kept = self.after.lines.get(user.name)
                if kept is not None:
                    successors = [kept]
                elif user.op_name:
                    successors = self.same(user)
                else:
                    successors, is_simplified = found[user.name]
                    is_gone &= bool(successors) or is_simplified
                for operand in self._taken_instead(line, user, successors):
                    is_gone &= operand is not None and not _alike(operand, line)
                    if operand is not None and operand.name not in self.before.lines and _alike(operand, line):
                        replacements[operand.name] = operand
            found[line.name] = [*replacements.values()], is_gone
        return found

    def _taken_instead(self, line: HloLine, user: HloLine, successors: list[HloLine]) -> Iterator[HloLine | None]:
        """Yield the operands that replace an instruction in the `successors` of a user; `None` for an unknown one."""
        for now in successors:
            if now.opcode == user.opcode and len(now.operands) == len(user.operands):
                yield self.after.lines.get(now.operands[user.operands.index(line.name)])
            else:
                operands = (self.after.lines.get(name) for name in now.operands)
                yield from (one for one in operands if one is not None and _alike(one, line))

    @cached_property
    def _homes(self) -> frozenset[str]:
        return frozenset(self.after.homes.values())

    @cached_property
    def _new(self) -> dict[str, list[HloLine]]:
        """The instructions that the pass created, by op name, and by the end of the op name after each `/`."""
        found: dict[str, list[HloLine]] = {}
        for line in self.after.lines.values():
            for name in () if line.name in self.before.lines else line.op_name.split(";"):
                while name:
                    found.setdefault(name, []).append(line)
                    name = name.partition("/")[2]
        return found

    @cached_property
    def replacements(self) -> dict[str, HloLine]:
        """For each removed instruction by name: the instruction that its users use instead after the pass."""
        before, after = self.before, self.after
        found: dict[str, HloLine] = {}
        for line in reversed(before.lines.values()):  # users first, because they may be removed too
            name, home = line.name, before.homes[line.name]
            if name in after.lines:
                continue
            for user in before.users.get(name, ()):
                now = after.lines.get(user.name) or found.get(user.name)
                if now is None or now.opcode != user.opcode or len(now.operands) != len(user.operands):
                    continue
                taken = now.operands[user.operands.index(name)]
                if taken in after.lines and taken != name:
                    found[name] = after.lines[taken]
                    break
            else:
                if before.roots.get(home) == name and home in after.roots:
                    found[name] = after.lines[after.roots[home]]
        return found

    def computes_same(self, one: HloLine, other: HloLine) -> bool:
        """Return whether two instructions do the same with operands that the pass made equal."""
        if (one.opcode, one.shapes, len(one.operands)) != (other.opcode, other.shapes, len(other.operands)):
            return False

        def merged(name: str) -> str:
            return self.replacements[name].name if name in self.replacements else name

        return all(merged(left) == merged(right) for left, right in zip(one.operands, other.operands, strict=True))


def _alike(one: HloLine, other: HloLine) -> bool:
    """Return whether two instructions have the same opcode, the same shapes and, for constants, the same value."""
    is_same = (one.opcode, one.shapes) == (other.opcode, other.shapes)
    return is_same and (one.opcode != "constant" or one.literal == other.literal)


def at_work(ones: Sequence[_Op]) -> list[_Op]:
    """Return those instructions of one operation that do its work; all of them if none does."""
    some = [one for one in ones if one.opcode not in HELPERS]
    return [one for one in some if one.opcode not in TURNS] or some or [*ones]
