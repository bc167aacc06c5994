"""What became of each instruction that XLA was given, followed from pass to pass by names and by who takes its result.

XLA names an instruction anew when it moves it into a fusion or out of a call. What has the same op name and opcode is
the same instruction; what takes the place of its result in those that took it, stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from mithril_nb.stages.hlo.text import HloLine
from mithril_nb.stages.xla.births import ModuleText
from mithril_nb.stages.xla.passes import Histories, Outcome, Pass

_MOST = 8
"""As many copies of one instruction are followed."""


class Outcomes:
    """Follows instructions through the passes.

    Args:
        passes: The passes.
        histories: Which pass each instruction appeared and vanished in.
        last: Ids of the instructions of the optimized HLO.
        fusions: The fusion of each of them that is inside of one.
        equation_of: Gives the equation that an op name is of, by its id relative to the function that it stands in.
    """

    def __init__(
        self,
        passes: Sequence[Pass],
        histories: Histories,
        last: frozenset[str],
        fusions: Mapping[str, str],
        equation_of: Callable[[str], str],
    ):
        self._passes, self._histories, self._last, self._fusions, self._equation_of = (
            passes,
            histories,
            last,
            fusions,
            equation_of,
        )
        self._read: dict[int, tuple[ModuleText, ModuleText]] = {}

    def is_in_combiner(self, name: str) -> bool:
        """Whether an instruction combines two elements in a reduction, a scatter or a sort."""
        return self._first.homes.get(name, "") in self._combiners

    @cached_property
    def _first(self) -> ModuleText:
        return self._modules(self._passes[0])[0]

    @cached_property
    def _combiners(self) -> frozenset[str]:
        lines = (line for line in self._first.lines.values() if line.opcode != "call")
        return frozenset(callee for line in lines for how, callee in line.calls if how == "to_apply")

    def of(self, name: str, equations: Sequence[str] = ()) -> tuple[Outcome, ...]:
        """Return what became of an instruction, of each of its copies if there are several.

        Args:
            name: Its name in the HLO before XLA's passes.
            equations: The equations that are meant, if it is in a function that several call.
        """
        found = dict.fromkeys(self._follow(name, name, -1, None, equations))
        return tuple(found)

    def _follow(self, first: str, name: str, since: int, fused: Pass | None, equations: Sequence[str]) -> list[Outcome]:
        gone = self._histories.vanished.get(name)
        if gone is None or gone.number <= since:
            if name not in self._last:
                return [Outcome("unknown", first)]
            fusion = self._fusions.get(name)
            if fusion is not None:
                return [Outcome("fused", first, fusion, fused or self._histories.appeared.get(fusion))]
            return [Outcome("kept", first, name) if fused is None else Outcome("fused", first, name, fused)]
        before, after = self._modules(gone)
        line = before.lines.get(name)
        if line is None:
            return [Outcome("unknown", first)]
        new = [one for one in after.lines.values() if one.name not in before.lines]
        copies = [one for one in new if one.opcode == line.opcode and _is_same(one, line)]
        copies = [one for one in copies if self._is_meant(one, equations)] or copies
        if not copies:
            replaced = _replacement(name, before, after, {})
            if line.opcode == "call":
                return [Outcome("inlined", first, by=gone)]
            if replaced is not None and replaced.name in before.lines:
                if _computes_same(line, before.lines[replaced.name], before, after):
                    partner = self._equation_of(replaced.op_name)
                    return [Outcome("merged", first, replaced.name, gone, (partner,) if partner else ())]
                return [Outcome("simplified", first, by=gone)]
            # A rewrite keeps the name of what it is made of, or makes the same of something else.
            copies = [one for one in new if _is_same(one, line)]
            if not copies and replaced is not None and replaced.opcode in (line.opcode, "fusion"):
                copies = [replaced]
            if not copies:
                return [Outcome("simplified" if line.op_name else "unknown", first, by=gone)]
        found = []
        for one in copies[:_MOST]:
            if one.opcode == "fusion" and line.opcode != "fusion":
                entered = gone
            else:
                is_fused = after.homes[one.name] in after.fusions
                entered = fused or (gone if is_fused and before.homes[name] not in before.fusions else None)
            found += self._follow(first, one.name, gone.number, entered, equations)
        return found

    def _is_meant(self, line: HloLine, equations: Sequence[str]) -> bool:
        own = self._equation_of(line.op_name)
        return any(id == own or id.endswith((f".{own}", f"/{own}")) for id in equations)

    def _modules(self, one: Pass) -> tuple[ModuleText, ModuleText]:
        if one.number not in self._read:
            before, after = one.written
            self._read[one.number] = ModuleText(before), ModuleText(after)
        return self._read[one.number]


def _is_same(one: HloLine, other: HloLine) -> bool:
    """Whether two instructions have the same op name; a function that is written out has that of its call in front."""
    names, others = one.op_name.split(";"), other.op_name.split(";")
    return any(name and (name in others or any(name.endswith(f"/{each}") for each in others if each)) for name in names)


def _computes_same(one: HloLine, other: HloLine, before: ModuleText, after: ModuleText) -> bool:
    """Whether two instructions do the same, on operands that are the same after a pass."""
    if (one.opcode, one.shapes, len(one.operands)) != (other.opcode, other.shapes, len(other.operands)):
        return False

    def merged(name: str) -> str:
        if name in after.lines:
            return name
        found = _replacement(name, before, after, {})
        return name if found is None else found.name

    return all(merged(left) == merged(right) for left, right in zip(one.operands, other.operands, strict=True))


def _replacement(name: str, before: ModuleText, after: ModuleText, known: dict[str, HloLine | None]) -> HloLine | None:
    """Return what stands, after a pass, where the result of an instruction was taken; `None` if nothing takes it."""
    if name in known:
        return known[name]
    known[name] = None
    for user in before.users.get(name, ()):
        now = after.lines.get(user.name) or _replacement(user.name, before, after, known)
        if now is None or now.opcode != user.opcode or len(now.operands) != len(user.operands):
            continue
        taken = now.operands[user.operands.index(name)]
        if taken in after.lines and taken != name:
            known[name] = after.lines[taken]
            return known[name]
    home = before.homes[name]
    if before.roots.get(home) == name and home in after.roots:
        known[name] = after.lines[after.roots[home]]
    return known[name]
