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
from mithril_nb.stages.records import Ids, Instruction
from mithril_nb.stages.xla.passes import Became, Histories, Outcome, Pass
from mithril_nb.stages.xla.recover_op_names import ModuleText

HELPERS = frozenset({"constant", "broadcast", "parameter", "tuple", "get-tuple-element"})
"""Opcodes of instructions that only pass data to the instruction that does the work of a JAX operation."""
# Opcodes that compute nothing. If only these remain of an operation, it was simplified away.
_NO_RESULT = HELPERS - {"broadcast"}
TURNS = frozenset({"reshape", "bitcast", "copy"})
"""Opcodes that change the shape or layout of an array for an operation."""
_NO_WORK = HELPERS | TURNS | {"fusion", "call"}
# Maximum number of copies of one instruction that are followed.
_MOST = 8
# Number of passes whose parsed texts are cached. One takes half a megabyte for 3,500 instructions.
_STEPS = 64

_Op = TypeVar("_Op", HloLine, Instruction)


class _Progress(NamedTuple):
    first: str
    opcode: str
    fused: Pass | None = None
    rewritten: Pass | None = None


class _Copy(NamedTuple):
    """An instruction after some passes."""

    name: str
    since: int
    progress: _Progress
    equations: Ids
    position: tuple[int, ...]
    followed: set[tuple[str, int]]
    partners: Ids | None = None

    def merged(self, outcome: Outcome) -> Outcome:
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
        cache: dict[str, HloLine | str] = {}
        return lru_cache(_STEPS)(lambda xla_pass: _Step(xla_pass, cache))

    @cached_property
    def first(self) -> ModuleText:
        """The HLO before XLA's passes; empty if no pass changed anything."""
        return self._step(self.passes[0]).before if self.passes else ModuleText("", {})

    @cached_property
    def in_combiners(self) -> frozenset[str]:
        """Names of the instructions in functions that a reduction or sort applies to two elements."""
        lines = (line for line in self.first.lines.values() if line.opcode != "call")
        combiners = {callee for line in lines for how, callee in line.calls if how == "to_apply"}
        return frozenset(name for name, home in self.first.homes.items() if home in combiners)

    def of(self, name: str, equations: Sequence[str] = ()) -> tuple[Outcome, ...]:
        """Return the outcomes of an instruction, one for each of its copies."""
        return self.of_each([name], equations)[0]

    def of_each(self, names: Sequence[str], equations: Sequence[str]) -> list[tuple[Outcome, ...]]:
        """Return the outcomes of several instructions."""
        # This parses each pass only once.
        outcomes: dict[tuple[int, ...], Outcome] = {}
        waiting: list[tuple[int, tuple[int, ...], _Copy]] = []

        def follow(copy: _Copy) -> None:
            if (copy.name, copy.since) in copy.followed:  # parts of one operation share one name in every pass
                return
            copy.followed.add((copy.name, copy.since))
            gone = self.histories.vanished.get(copy.name)
            if gone is None or gone.number <= copy.since:
                outcomes[copy.position] = copy.merged(self._end(copy.name, copy.progress))
            else:
                heappush(waiting, (gone.number, copy.position, copy))

        for index, name in enumerate(names):
            line = self.first.lines.get(name)
            progress = _Progress(name, self.last.get(name, "") if line is None else line.opcode)
            follow(_Copy(name, -1, progress, tuple(equations), (index,), set()))
        while waiting:
            copy = heappop(waiting)[2]  # in the order of the passes, so that each is parsed once
            for number, after in enumerate(self._after_pass(copy)):
                index = (*copy.position, number)
                if isinstance(after, Outcome):
                    outcomes[index] = copy.merged(after)
                else:
                    follow(after._replace(position=index))
        each: list[dict[Outcome, None]] = [{} for _ in names]
        for index in sorted(outcomes):
            each[index[0]][outcomes[index]] = None
        return [tuple(group) for group in each]

    def _after_pass(self, copy: _Copy) -> list[Outcome | _Copy]:
        """Follow a copy through the pass that removed it: return its final outcomes and the copies that continue it."""
        name, progress = copy.name, copy.progress
        gone = self.histories.vanished[name]
        step = self._step(gone)
        before, after = step.before, step.after
        line = before.lines.get(name)
        if line is None:
            return [Outcome("unknown", progress.first)]
        new = step.same(line) if line.op_name else step.nameless[line.name][0]
        meant: list[HloLine] = []
        for candidate in new:
            own = self.equation_of(candidate.op_name)
            meant += (
                [candidate] if any(id == own or id.endswith((f".{own}", f"/{own}")) for id in copy.equations) else []
            )
        new = meant or new
        # If XLA replaces an instruction by several, all have its op name. Those with its opcode are copies of it.
        copies = [candidate for candidate in new if candidate.opcode == line.opcode]
        if line.opcode == "call" and not copies:
            return [Outcome("inlined" if progress.opcode == "call" else "simplified", progress.first, by=gone)]
        replaced = step.replacements.get(name)
        if copies:  # the replacement may also be a copy with another instruction around it
            copies += [
                candidate
                for candidate in new
                if candidate is replaced and candidate.opcode not in {line.opcode, *_NO_WORK}
            ]
        elif replaced is not None and replaced.name in before.lines:
            return [self._merged(line, replaced, step, gone, copy)]
        else:
            # No copy has the opcode. Other new instructions with the op name do its work, or the replacement does.
            copies = at_work(new)
            if not copies and replaced is not None and replaced.opcode in (line.opcode, "fusion"):
                copies = [replaced]
            if not copies:
                return [Outcome(step.end(line), progress.first, by=gone)]
        successors: list[Outcome | _Copy] = []
        for successor in copies[:_MOST]:
            if successor.opcode == "fusion" and line.opcode != "fusion":
                onward = progress._replace(fused=gone)
            else:
                is_fused = after.homes[successor.name] in after.fusions and before.homes[name] not in before.fusions
                onward = progress._replace(
                    fused=progress.fused or (gone if is_fused else None),
                    rewritten=progress.rewritten if successor.opcode == line.opcode else gone,
                )
            successors.append(copy._replace(name=successor.name, since=gone.number, progress=onward))
        return successors

    def _end(self, name: str, progress: _Progress) -> Outcome:
        if name not in self.last:
            return Outcome("unknown", progress.first)
        if self.last[name] != progress.opcode and self.last[name] in _NO_RESULT:
            return Outcome("simplified", progress.first, by=progress.rewritten)
        fusion = self.fusions.get(name)
        if fusion is not None:
            by, opcode = progress.fused or self.histories.appeared.get(fusion), self.last[name]
            rewrite = (
                {}
                if progress.rewritten is None or opcode == progress.opcode
                else {"opcode": opcode, "rewritten": progress.rewritten}
            )
            return Outcome("fused", progress.first, fusion, by, **rewrite)
        if self.last[name] == progress.opcode:
            return Outcome("kept", progress.first, name)
        if self.last[name] == "fusion":
            return Outcome("fused", progress.first, name, progress.fused or self.histories.appeared.get(name))
        return Outcome("rewritten", progress.first, name, progress.rewritten)

    def _merged(self, line: HloLine, other: HloLine, step: _Step, gone: Pass, copy: _Copy) -> Outcome | _Copy:
        """Return the outcome of an instruction whose users use the older instruction `other` after the pass."""
        progress = copy.progress
        before = step.before.lines[other.name]

        def merged(name: str) -> str:
            return step.replacements[name].name if name in step.replacements else name

        computes_same = (line.opcode, line.shapes) == (before.opcode, before.shapes)
        if not computes_same or [*map(merged, line.operands)] != [*map(merged, before.operands)]:
            return Outcome("simplified", progress.first, by=gone)
        partner = self.equation_of(other.op_name)
        partners = (partner,) if partner else ()
        if line.opcode == progress.opcode:
            return Outcome("merged", progress.first, other.name, gone, partners)
        onward = progress._replace(rewritten=progress.rewritten or gone)
        partners = partners if copy.partners is None else copy.partners
        return copy._replace(
            name=other.name, since=gone.number, progress=onward, equations=(partner,), partners=partners
        )


class _Step:
    def __init__(self, xla_pass: Pass, cache: dict[str, HloLine | str]):
        self.before, self.after = (ModuleText(text, cache) for text in xla_pass.raw_texts)

    def same(self, line: HloLine) -> list[HloLine]:
        # The name of an inlined call may precede it.
        matches = [candidate for name in line.op_name.split(";") if name for candidate in self._new.get(name, ())]
        return list({match.name: match for match in matches}.values())

    def end(self, line: HloLine) -> Became:
        home = self.before.homes[line.name]
        if line.opcode == "parameter" and home not in self._homes:
            callers = [
                caller for caller in self.before.lines.values() if home in {callee for _, callee in caller.calls}
            ]
            return "inlined" if callers and {caller.opcode for caller in callers} == {"call"} else "unknown"
        return "simplified" if line.op_name or self.nameless[line.name][1] else "unknown"

    @cached_property
    def nameless(self) -> dict[str, tuple[list[HloLine], bool]]:
        """For each removed instruction without op name: similar new ones, and whether all users do without it."""
        replaced: dict[str, tuple[list[HloLine], bool]] = {}
        for line in reversed(self.before.lines.values()):  # users first
            if line.op_name or line.name in self.after.lines:
                continue
            replacements: dict[str, HloLine] = {}
            is_gone = not line.is_root
            for user in self.before.users.get(line.name, ()):
                survivor = self.after.lines.get(user.name)
                if survivor is not None:
                    successors = [survivor]
                elif user.op_name:
                    successors = self.same(user)
                else:
                    successors, is_simplified = replaced[user.name]
                    is_gone &= bool(successors) or is_simplified
                for operand in self._taken_instead(line, user, successors):
                    is_gone &= operand is not None and not _alike(operand, line)
                    if operand is not None and operand.name not in self.before.lines and _alike(operand, line):
                        replacements[operand.name] = operand
            replaced[line.name] = [*replacements.values()], is_gone
        return replaced

    def _taken_instead(self, line: HloLine, user: HloLine, successors: list[HloLine]) -> Iterator[HloLine | None]:
        for now in successors:
            if now.opcode == user.opcode and len(now.operands) == len(user.operands):
                yield self.after.lines.get(now.operands[user.operands.index(line.name)])
            else:
                operands = (self.after.lines.get(name) for name in now.operands)
                yield from (operand for operand in operands if operand is not None and _alike(operand, line))

    @cached_property
    def _homes(self) -> frozenset[str]:
        return frozenset(self.after.homes.values())

    @cached_property
    def _new(self) -> dict[str, list[HloLine]]:
        # The instructions that the pass created, by op name, and by the end of the op name after each `/`.
        by_name: dict[str, list[HloLine]] = {}
        for line in self.after.lines.values():
            for name in () if line.name in self.before.lines else line.op_name.split(";"):
                while name:
                    by_name.setdefault(name, []).append(line)
                    name = name.partition("/")[2]
        return by_name

    @cached_property
    def replacements(self) -> dict[str, HloLine]:
        """For each removed instruction by name: the instruction that its users use instead after the pass."""
        before, after = self.before, self.after
        replacements: dict[str, HloLine] = {}
        for line in reversed(before.lines.values()):  # users first, because they may be removed too
            name, home = line.name, before.homes[line.name]
            if name in after.lines:
                continue
            for user in before.users.get(name, ()):
                now = after.lines.get(user.name) or replacements.get(user.name)
                if now is None or now.opcode != user.opcode or len(now.operands) != len(user.operands):
                    continue
                operand = now.operands[user.operands.index(name)]
                if operand in after.lines and operand != name:
                    replacements[name] = after.lines[operand]
                    break
            else:
                if before.roots.get(home) == name and home in after.roots:
                    replacements[name] = after.lines[after.roots[home]]
        return replacements


def _alike(line: HloLine, other: HloLine) -> bool:
    is_same = (line.opcode, line.shapes) == (other.opcode, other.shapes)
    return is_same and (line.opcode != "constant" or line.literal == other.literal)


def at_work(candidates: Sequence[_Op]) -> list[_Op]:
    """Return those instructions of one operation that do its work; all of them if none does."""
    some = [candidate for candidate in candidates if candidate.opcode not in HELPERS]
    return [candidate for candidate in some if candidate.opcode not in TURNS] or some or [*candidates]
