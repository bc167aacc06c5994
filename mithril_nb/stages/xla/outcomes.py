"""The outcome of each instruction that XLA received, such as "fused", found by following it from pass to pass.

If a pass removes an instruction, the instructions that continue it are:

- new instructions with its op name that compute the result of the operation, because XLA renames an instruction that it
  moves into a fusion or out of a call, and may replace it by several;
- otherwise, the instruction that the users of the removed instruction use after the pass.

An outcome that the texts of the passes do not show is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from typing import NamedTuple, TypeVar

from mithril_nb.stages.hlo.syntax import OPERAND, HloLine
from mithril_nb.stages.records import Ids, Instruction
from mithril_nb.stages.xla.passes import Became, Histories, Outcome, Pass
from mithril_nb.stages.xla.recover_op_names import CONTRACTIONS, ModuleText

HELPERS = frozenset({"constant", "broadcast", "parameter", "tuple", "get-tuple-element"})
"""Opcodes of instructions that only pass data to the instruction that does the work of a JAX operation."""
# Opcodes that compute nothing. If only these remain of an operation, it was simplified away.
_NO_RESULT = HELPERS - {"broadcast"}
TURNS = frozenset({"reshape", "bitcast", "copy"})
"""Opcodes that change the shape or layout of an array for an operation."""
_NO_WORK = HELPERS | TURNS | {"fusion", "call"}
_MOVES = TURNS | {"transpose", "slice", "pad", "convert", "get-tuple-element"}
_AROUND = frozenset({"while", "conditional", "call"})
# Operations whose operands may be swapped. XLA merges x + y and y + x.
_COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
_SYMMETRIC = re.compile(r"\bdirection=(EQ|NE)\b")
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
    line: HloLine | None = None

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
        return lru_cache(_STEPS)(lambda xla_pass: _Step(xla_pass, cache, self.equation_of))

    @cached_property
    def first(self) -> ModuleText:
        """The HLO before XLA's passes; empty if no pass changed anything."""
        return self._step(self.passes[0]).before if self.passes else ModuleText("", {})

    @cached_property
    def final(self) -> ModuleText:
        """The HLO after XLA's passes; empty if no pass changed anything."""
        return self._step(self.passes[-1]).after if self.passes else ModuleText("", {})

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
                line = self.final.lines.get(copy.name)
                progress = copy.progress if line is None else self._renewed(copy, line, None)
                end = Outcome("unknown", copy.progress.first) if progress is None else self._end(copy.name, progress)
                outcomes[copy.position] = copy.merged(end)
            else:
                heappush(waiting, (gone.number, copy.position, copy))

        for index, name in enumerate(names):
            line = self.first.lines.get(name)
            progress = _Progress(name, self.last.get(name, "") if line is None else line.opcode)
            follow(_Copy(name, -1, progress, tuple(equations), (index,), set(), line=line))
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
        earlier = gone
        while name not in self._step(earlier).used and earlier.number > copy.since + 1:
            earlier = self.passes[earlier.number - 1]
        if name in self._step(earlier).used:  # this pass replaced it, and a later pass removed it
            gone, step = earlier, self._step(earlier)
        before, after = step.before, step.after
        line = before.lines.get(name)
        if line is None or (renewed := self._renewed(copy, line, gone)) is None:
            return [Outcome("unknown", progress.first)]
        progress = renewed
        new = [candidate for candidate in step.same(line) if self._is_meant(candidate, copy)]
        if not new:
            new = step.same(line) if self.equation_of(line.op_name) else step.nameless[name][0]
            # XLA gives an instruction without op name that of the call that it inlines. Several calls may be alike.
            around = [
                candidate
                for candidate in new
                if (call := self.equation_of(candidate.op_name))
                and any(f"{id}.".startswith(f"{call}.") for id in copy.equations)
            ]
            new = around or new
        new = [each for each in new if each.opcode == line.opcode or each.name not in step.constant_helpers]
        copies = [candidate for candidate in new if candidate.opcode == line.opcode]
        if line.opcode in ("constant", "broadcast"):  # an operation has several, and their op names are equal
            copies = [each for each in copies if each.elements == line.elements and _is_equal_constant(each, line)]
        if line.opcode == "call" and not copies:
            return [Outcome("inlined" if progress.opcode == "call" else "simplified", progress.first, by=gone)]
        replaced = step.replacements.get(name)
        if not copies and replaced is not None and replaced.name in step.old:
            return [self._merged(line, replaced, step, gone, copy)]
        if line.opcode not in _NO_WORK:
            # XLA may replace an instruction by several with its op name, of which one computes its result.
            results = _results(after, new, line.opcode)
            if not copies or line in _results(before, step.operation(line), line.opcode):
                copies = [candidate for candidate in results if candidate.opcode == line.opcode] or results
            copies = copies or step.same_product(line) or step.behind(new or [replaced])
        if line.opcode not in HELPERS:
            copies = copies or at_work(new)
        copies = [candidate for candidate in copies if step.is_copy(line, candidate)] or copies
        if not copies and replaced is not None and replaced.opcode in (line.opcode, "fusion"):
            if replaced.opcode != "fusion" and self.equation_of(replaced.op_name) and not step.is_copy(line, replaced):
                return [Outcome("unknown", progress.first, by=gone)]  # it may do the work of another operation only
            copies = [replaced]
        if not copies:
            return [Outcome(step.end(line), progress.first, by=gone)]
        successors: list[Outcome | _Copy] = []
        for successor in copies[:_MOST]:
            if successor.opcode == "fusion" and line.opcode != "fusion":
                onward = progress._replace(fused=gone)
            else:
                is_fused = after.homes[successor.name] in after.fusions and before.homes[name] not in before.fusions
                rewritten = progress.rewritten
                if successor.opcode != line.opcode or (rewritten is None and not step.is_copy(line, successor)):
                    rewritten = gone
                fused = progress.fused or (gone if is_fused else None)
                onward = progress._replace(fused=fused, rewritten=rewritten)
            successors.append(copy._replace(name=successor.name, since=gone.number, progress=onward, line=successor))
        return successors

    def _renewed(self, copy: _Copy, line: HloLine, end: Pass | None) -> _Progress | None:
        """Return the progress of a copy, which `line` is before the pass `end`; `None` if another has its name now."""
        old = copy.line
        ids = [self.equation_of(each.op_name) for each in (line, old or line)]
        tags = [f".{id}" if id else "" for id in ids]
        is_same = tags[0].endswith(tags[1]) or tags[1].endswith(tags[0])
        if old is None or (old.opcode == line.opcode and is_same):
            return copy.progress
        if not is_same and not {old.opcode, line.opcode} <= CONTRACTIONS:
            return None
        for xla_pass in self.passes[copy.since + 1 : None if end is None else end.number]:
            now = self._step(xla_pass).after.lines.get(copy.name, line)
            if (now.opcode, now.op_name) != (old.opcode, old.op_name):
                return copy.progress._replace(rewritten=xla_pass)
        return copy.progress

    def _is_meant(self, candidate: HloLine, copy: _Copy) -> bool:
        own = self.equation_of(candidate.op_name)
        return any(id == own or id.endswith((f".{own}", f"/{own}")) for id in copy.equations)

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
        if self.last[name] == progress.opcode and progress.rewritten is None:
            return Outcome("kept", progress.first, name)
        if self.last[name] == "fusion":
            return Outcome("fused", progress.first, name, progress.fused or self.histories.appeared.get(name))
        return Outcome("rewritten", progress.first, name, progress.rewritten)

    def _merged(self, line: HloLine, other: HloLine, step: _Step, gone: Pass, copy: _Copy) -> Outcome | _Copy:
        """Return the outcome of an instruction whose users use the older instruction `other` after the pass."""
        progress = copy.progress
        if step.values[line.name] != step.values[other.name]:
            return Outcome("simplified", progress.first, by=gone)
        partner = self.equation_of(other.op_name)
        partners = (partner,) if partner else ()
        if line.opcode == progress.opcode:
            return Outcome("merged", progress.first, other.name, gone, partners)
        onward = progress._replace(rewritten=progress.rewritten or gone)
        partners = partners if copy.partners is None else copy.partners
        return copy._replace(
            name=other.name, since=gone.number, progress=onward, equations=(partner,), partners=partners, line=other
        )


class _Step:
    def __init__(self, xla_pass: Pass, cache: dict[str, HloLine | str], equation_of: Callable[[str], str]):
        self.before, self.after = (ModuleText(text, cache) for text in xla_pass.raw_texts)
        self._equation_of = equation_of
        self.used = _used(self.before)
        for name in self.used - _used(self.after):  # a later pass removes them
            self.after.lines.pop(name, None)
        # A new instruction may have the name of the one that it replaced.
        self.old = {
            name
            for name, line in self.after.lines.items()
            if (old := self.before.lines.get(name)) and (old.opcode, old.op_name) == (line.opcode, line.op_name)
        }

    def same(self, line: HloLine) -> list[HloLine]:
        # The name of an inlined call may precede it.
        matches = [candidate for name in line.op_name.split(";") if name for candidate in self._new.get(name, ())]
        return list({match.name: match for match in matches}.values())

    def operation(self, line: HloLine) -> Sequence[HloLine]:
        """Return the instructions before the pass that have the op name of an instruction."""
        return self._operations[line.op_name]

    @cached_property
    def constant_helpers(self) -> set[str]:
        """The names of the instructions after the pass that only pass on constants, such as broadcast(5)."""
        names: set[str] = set()
        for line in self.after.lines.values():  # operands first
            is_helper = line.opcode in HELPERS and line.opcode != "parameter"
            if is_helper and (line.opcode == "constant" or names.issuperset(line.operands)):
                names.add(line.name)
        return names

    @cached_property
    def _operations(self) -> dict[str, list[HloLine]]:
        operations: dict[str, list[HloLine]] = {}
        for line in self.before.lines.values():
            operations.setdefault(line.op_name, []).append(line)
        return operations

    def same_product(self, line: HloLine) -> list[HloLine]:
        """Return the new product that does the work of a removed one under another op name."""
        if line.opcode not in CONTRACTIONS:
            return []
        before, after = self.before, self.after
        size, operands = before.sizes(line), before.operands_of(line)
        new = [each for each in after.products if each.name not in self.old and after.sizes(each) == size]
        near = [each for each in new if after.operands_of(each) == operands]
        gone = [each for each in before.products if each.name not in self.old and before.sizes(each) == size]
        near = near or new * (len(gone) == 1)
        return near if len(near) == 1 else []

    def behind(self, lines: Sequence[HloLine | None]) -> list[HloLine]:
        """Return the new instructions without an equation that compute what other new instructions only move."""
        waiting = [line for line in lines if line is not None]
        seen, work = set[str](), dict[str, HloLine]()
        while waiting:
            line = waiting.pop()
            if line.name in seen or line.name in self.old:
                continue
            seen.add(line.name)
            is_named = bool(self._equation_of(line.op_name))
            if line.opcode in _MOVES and (line in lines or not is_named):
                waiting += [self.after.lines[name] for name in line.operands if name in self.after.lines]
            elif not is_named and line.opcode not in HELPERS:
                work[line.name] = line
        return [*work.values()]

    def is_copy(self, line: HloLine, successor: HloLine) -> bool:
        """Return whether an instruction after the pass computes the same as one before, from the same operands."""
        if line.opcode in _AROUND and successor.opcode == line.opcode:
            return True
        pairs = [*zip(line.operands, successor.operands, strict=False)]
        is_swapped = any(old != new and old in successor.operands for old, new in pairs)
        return _kind(line) == _kind(successor) and not is_swapped

    def end(self, line: HloLine) -> Became:
        home = self.before.homes[line.name]
        if line.opcode == "parameter" and home not in self._homes:
            callers = [
                caller for caller in self.before.lines.values() if home in {callee for _, callee in caller.calls}
            ]
            return "inlined" if callers and {caller.opcode for caller in callers} == {"call"} else "unknown"
        return "simplified" if self._equation_of(line.op_name) or self.nameless[line.name][1] else "unknown"

    @cached_property
    def nameless(self) -> dict[str, tuple[list[HloLine], bool]]:
        """For each removed instruction without op name: similar new ones, and whether all users do without it."""
        replaced: dict[str, tuple[list[HloLine], bool]] = {}
        for line in reversed(self.before.lines.values()):  # users first
            if line.name in self.after.lines or self._equation_of(line.op_name):
                continue
            replacements: dict[str, HloLine] = {}
            is_gone = not line.is_root
            for user in self.before.users.get(line.name, ()):
                survivor = self.after.lines.get(user.name)
                if survivor is not None:
                    successors = [survivor]
                elif self._equation_of(user.op_name):
                    successors = self.same(user)
                else:
                    successors, is_simplified = replaced[user.name]
                    is_gone &= bool(successors) or is_simplified
                for operand in self._taken_instead(line, user, successors):
                    is_gone &= operand is not None and not _alike(operand, line)
                    if operand is not None and operand.name not in self.old and _alike(operand, line):
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
            for name in () if line.name in self.old else line.op_name.split(";"):
                while name:
                    by_name.setdefault(name, []).append(line)
                    name = name.partition("/")[2]
        return by_name

    @cached_property
    def values(self) -> dict[str, int]:
        """For each instruction before the pass: a number, the same only for instructions that compute the same."""
        lines, homes = self.before.lines, self.before.homes
        bodies: dict[str, list[HloLine]] = {}
        for line in lines.values():
            bodies.setdefault(homes[line.name], []).append(line)
        values: dict[str, int] = {}
        operands_of: dict[str, Sequence[str]] = {}
        numbers: dict[tuple[object, ...], int] = {}
        for home in reversed(bodies):  # callers first: a parameter of a fusion is an operand of the fusion
            outside = operands_of.get(home, ())
            for line in bodies[home]:  # operands first
                index = int(line.literal) if line.opcode == "parameter" and line.literal.isdigit() else len(outside)
                if index < len(outside):
                    values[line.name] = values.get(outside[index], -1)
                if values.get(line.name, -1) < 0:
                    called = tuple(_form(bodies.get(callee, ())) for _, callee in line.calls)
                    own = line.name if line.opcode == "parameter" else line.literal if line.opcode == "constant" else ""
                    operands = [values.get(name, name) for name in line.operands]
                    if line.opcode in _COMMUTATIVE or _SYMMETRIC.search(line.attributes):
                        operands.sort(key=str)
                    key = (*_kind(line), own, called, *operands)
                    values[line.name] = numbers.setdefault(key, len(numbers))
                operands_of.update((callee, line.operands) for how, callee in line.calls if how == "calls")
        return values

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
                if now.name in self.old and self.values[now.name] != self.values[user.name]:
                    continue  # it computes something else, from other operands
                index = user.operands.index(name)
                if now.name in self.old and now.name != user.name:  # the equal operand may be another one of y + x
                    equal = [self.values.get(each) for each in before.lines[now.name].operands]
                    index = equal.index(self.values[name]) if self.values[name] in equal else index
                operand = now.operands[index]
                if operand in after.lines and operand != name:
                    replacements[name] = after.lines[operand]
                    break
            else:
                if before.roots.get(home) == name and home in after.roots:
                    replacements[name] = after.lines[after.roots[home]]
        return replacements


def _results(module: ModuleText, lines: Sequence[HloLine], opcode: str) -> list[HloLine]:
    """Return the instructions of an operation that do work, without those that only compute operands of others."""
    names = {line.name for line in lines}
    work = {line.name: line for line in lines if line.opcode not in HELPERS | _MOVES - {opcode}}
    used: set[str] = set()
    for line in work.values():
        waiting = [*line.operands]
        while waiting:
            name = waiting.pop()
            if name in names and name not in used:
                used.add(name)
                waiting += () if name in work else module.lines[name].operands
    return [line for name, line in work.items() if name not in used]


def _used(module: ModuleText) -> set[str]:
    """Return the names of the instructions that the results of computations depend on."""
    used: set[str] = set()
    for line in reversed(module.lines.values()):  # users first
        if line.is_root or line.name in used:
            used.update((line.name, *line.operands))
    return used


def _kind(line: HloLine) -> tuple[str, object, str]:
    """Return opcode, shapes and attributes, without the names of the called computations."""
    return line.opcode, line.shapes, OPERAND.sub("%", line.attributes)


def _form(body: Sequence[HloLine]) -> tuple[object, ...]:
    """Return the content of a computation without names."""
    positions = {line.name: position for position, line in enumerate(body)}
    return tuple(
        (*_kind(line), "" if line.operands else line.literal, *(positions.get(name, -1) for name in line.operands))
        for line in body
    )


def _alike(line: HloLine, other: HloLine) -> bool:
    return (line.opcode, line.shapes) == (other.opcode, other.shapes) and _is_equal_constant(line, other)


def _is_equal_constant(line: HloLine, other: HloLine) -> bool:
    return line.opcode != "constant" or line.literal == other.literal


def at_work(candidates: Sequence[_Op]) -> list[_Op]:
    """Return those instructions of one operation that do its work; all of them if none does."""
    some = [candidate for candidate in candidates if candidate.opcode not in HELPERS]
    return [candidate for candidate in some if candidate.opcode not in TURNS] or some or [*candidates]
