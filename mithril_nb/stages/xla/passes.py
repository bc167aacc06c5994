"""The passes of XLA that changed something, in the order of time: what each was given, what it made, who did what."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal, get_args

from mithril_nb.display import Shown
from mithril_nb.stages.hlo.text import tidy_module
from mithril_nb.stages.xla.dump import Dump

_NUMBERED = re.compile(r"^\d+\..")
_STEP = re.compile(r"^(.+?)\.after_(.+?)(?:\.before_(.+))?$")
_NAME = re.compile(r"^ +(?:ROOT )?%?([\w.\-]+) = ", re.MULTILINE)
_START = "pipeline-start"
_BEFORE = "before_optimizations"
_NO_PASSES = "XLA wrote down what it compiled, but not its passes"
_HEADS = "computations"
_AT_ONCE = 4000
"""How many lines are tidied together: one by one takes five times as long."""
_AROUND = 2
"""Lines around a change that a diff shows."""
_TOLD_OF = ("backend_config", "sharding", "frontend_attributes")
_TOLD = re.compile(rf", ({'|'.join(_TOLD_OF)})=")
_HIDDEN = re.compile(rf", shown_({'|'.join(_TOLD_OF)})=")


@dataclass(frozen=True)
class Pass(Shown):
    """A pass of XLA that changed something.

    Attributes:
        number: Its place among the passes that changed something, from 0.
        name: Its name: `algsimp`, `fusion`, ...
        pipeline: The pipeline in which it ran.
    """

    number: int
    name: str
    pipeline: str
    _dump: Dump = field(repr=False, compare=False)
    _from: str = field(repr=False, compare=False)
    _to: str = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.number}. {self.name} ({self.pipeline})"

    @property
    def before(self) -> str:
        """The module it was given: HLO, without layouts that are plain and without metadata."""
        return _shown(self._dump.text(self._from, "txt"))

    @property
    def after(self) -> str:
        """The module that it made of it."""
        return _shown(self._dump.text(self._to, "txt"))

    @property
    def written(self) -> tuple[str, str]:
        """The module before and after as XLA wrote it, metadata and all."""
        return self._dump.text(self._from, "txt"), self._dump.text(self._to, "txt")

    @cached_property
    def changes(self) -> Changes:
        """Which instructions it added, removed and rewrote."""
        return _changes(self._dump.text(self._from, "txt"), self._dump.text(self._to, "txt"))

    @property
    def diff(self) -> str:
        """The lines that it took away (`-`) and put in (`+`), with two lines around them.

        `@@ -3,5 +3,6 @@ %main` says where they stand: in which computation, and at which of its lines before and after,
        counted from 1. What is said of `computations` are their heads, and their order.
        """
        return "".join(f"{line}\n" for line in self.diff_lines())

    def diff_lines(self) -> Iterator[str]:
        """Yield the lines of `diff` one after another, worked out as they are asked for."""
        found = _differences(*(_computations(self._dump.text(name, "txt")) for name in (self._from, self._to)))
        return (line for difference in found for line in _hunks(*difference))


@dataclass(frozen=True)
class Changes:
    """Names of instructions that a pass changed.

    Attributes:
        added: Those that were not there before.
        removed: Those that are not there after it.
        rewritten: Those whose lines are another than before.
        moved: Those that are as before, but at another place among the others.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """All of it in a few words.

        Examples:
            >>> Changes(added=("a", "b"), removed=("c",)).summary
            '2 added, 1 removed'
            >>> Changes(moved=("a",)).summary
            'another order, and nothing else'
        """
        counts = {"added": self.added, "removed": self.removed, "rewritten": self.rewritten}
        told = [f"{len(names)} {what}" for what, names in counts.items() if names]
        return ", ".join(told) or "another order, and nothing else"


Became = Literal["kept", "fused", "merged", "rewritten", "inlined", "simplified", "dropped", "unknown"]
"""Ends of an instruction, the more telling ones first."""


@dataclass(frozen=True)
class Outcome:
    """What became of one instruction of the HLO that XLA was given, or of an equation or op without any.

    Attributes:
        became: `"kept"`, `"fused"` into a fusion, `"merged"` with another that computes the same, `"rewritten"` into an
            instruction with another opcode (a transpose into the dot before it), `"inlined"` (a call whose function was
            written out), `"simplified"` away, `"dropped"` before XLA, or `"unknown"`.
        instruction: Its name in the HLO before XLA's passes, or `""`.
        into: The instruction of the optimized HLO that it is now, or its fusion; what it was merged with; or `""`.
        by: The pass that did it, or `None`.
        equations: The equations of what it, or what it was rewritten into, was merged with.
        reason: Why there is no instruction, or none that is known, or `""`.
        opcode: The opcode that it was rewritten into before it was fused, or `""`.
        rewritten: The pass that did this, or `None`.
    """

    became: Became
    instruction: str = ""
    into: str = ""
    by: Pass | None = None
    equations: tuple[str, ...] = ()
    reason: str = ""
    opcode: str = ""
    rewritten: Pass | None = None

    @property
    def without_pass(self) -> str:
        """What became of it, without the pass: `"fused into tanh_fusion"`."""
        first = f"rewritten into {self.opcode}{_by(self.rewritten)}, then " if self.opcode else ""
        return (
            first
            + {
                "kept": f"kept as {self.into}",
                "fused": f"fused into {self.into}",
                "merged": f"merged with {self.into}",
                "rewritten": f"rewritten into {self.into}",
                "inlined": "inlined",
                "simplified": self.reason or "simplified away",
                "dropped": f"dropped: {self.reason}",
                "unknown": f"unknown: {self.reason}" if self.reason else "unknown",
            }[self.became]
        )

    def __str__(self) -> str:
        of = f" (equation {', '.join(self.equations)})" if self.equations else ""
        return f"{f'{self.instruction}: ' if self.instruction else ''}{self.without_pass}{_by(self.by)}{of}"


def _by(one: Pass | None) -> str:
    return f" by pass {one.number} {one.name}" if one is not None else ""


@dataclass(frozen=True)
class InstructionHistory(Shown):
    """What became of an instruction, an op or an equation on its way through XLA, or where it came from.

    Attributes:
        appeared: The pass in which it first appears; `None` if it is there from the start.
        vanished: The pass after which it is not there any more; `None` if it is there to the end, by whatever name.
        fused_into: The fusions of the optimized HLO that do its work, if it was fused.
        outcomes: What became of each instruction that XLA was given for it; empty for one of the optimized HLO.
    """

    appeared: Pass | None
    vanished: Pass | None
    fused_into: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()

    @property
    def became(self) -> Became:
        """What became of it as a whole: kept if any part was, else the first of the others in the order of `Became`."""
        found = {one.became for one in self.outcomes}
        return next((one for one in get_args(Became) if one in found), "unknown")

    def __str__(self) -> str:
        vanished = None if self.outcomes else self.vanished  # outcomes say it better
        told = [f"{what} {one}" for what, one in (("appeared in", self.appeared), ("vanished in", vanished)) if one]
        return "\n".join((*told, *map(str, self.outcomes))) or "there from the start to the end"

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, passes by number."""
        return {
            "became": self.became,
            "appeared": None if self.appeared is None else self.appeared.number,
            "vanished": None if self.vanished is None else self.vanished.number,
            "fused_into": list(self.fused_into),
            "outcomes": [
                {
                    "became": one.became,
                    "instruction": one.instruction,
                    "into": one.into,
                    "pass": None if one.by is None else one.by.number,
                    "equations": list(one.equations),
                    "reason": one.reason,
                    "rewritten": None if one.rewritten is None else {"into": one.opcode, "pass": one.rewritten.number},
                }
                for one in self.outcomes
            ],
        }


def files_of_passes(dump: Dump) -> tuple[str, ...]:
    """Return the names of the files in which XLA wrote down what its passes made, in the order of time."""
    numbered = [name for name in dump.names("txt") if _NUMBERED.match(name)]
    return tuple(sorted(numbered, key=lambda name: int(name.split(".", 1)[0])))


def read_passes(dump: Dump) -> tuple[Pass, ...]:
    """Return the passes of a dump that changed something, in the order of time.

    A file whose name says no pass, as a newer XLA may write it, is a pass of that name.

    Raises:
        LookupError: There are none to be read.
    """
    names = files_of_passes(dump)
    if not names or not dump.path(_BEFORE, "txt").exists():
        raise LookupError(_NO_PASSES)
    found: list[Pass] = []
    latest = _BEFORE
    text = dump.text(latest, "txt")
    steps = [_STEP.match(name.split(".", 1)[1]) for name in names]
    for place, (name, step) in enumerate(zip(names, steps, strict=True)):
        if step is not None and step.group(3) is None:
            continue  # half way through a pass, which has a file of its own
        before, text = text, dump.text(name, "txt")
        if text == before:
            continue
        if not _look_same(before, text):
            title, pipeline = (step.group(2), step.group(1)) if step else (name.split(".", 1)[1], "")
            if title == _START:
                title, pipeline = _done_on_the_way(pipeline, steps[:place], steps[place + 1 :])
            found.append(Pass(len(found), title, pipeline, dump, latest, name))
            latest = name
    return tuple(found)


def _done_on_the_way(
    pipeline: str, before: Sequence[re.Match[str] | None], after: Sequence[re.Match[str] | None]
) -> tuple[str, str]:
    """Return the pass, and its pipeline, that did what is seen at the start of a pipeline.

    It is the pass that runs this pipeline inside of itself, which XLA names when it has ended; if none does, what was
    done between two pipelines is told of the second.
    """
    outer = next((step.group(1) for step in reversed(before) if step and step.group(1) != pipeline), None)
    ended = next((step.group(2) for step in after if step and step.group(1) == outer), None)
    return (pipeline, pipeline) if outer is None or ended in (None, pipeline, _START) else (ended, outer)


class Histories:
    """Which pass each instruction appeared and vanished in, by name. Reads every pass once."""

    def __init__(self, passes: Iterable[Pass]):
        self.appeared: dict[str, Pass] = {}
        self.vanished: dict[str, Pass] = {}
        names: set[str] | None = None
        for one in passes:
            if names is None:
                names = set(_NAME.findall(one._dump.text(one._from, "txt")))
            after = set(_NAME.findall(one._dump.text(one._to, "txt")))
            for name in after - names:
                self.appeared.setdefault(name, one)
                self.vanished.pop(name, None)
            for name in names - after:
                self.vanished[name] = one
            names = after


def _shown(text: str) -> str:
    """Return a module without metadata and plain layouts. What else is told of instructions may be all that changed."""
    if not any(f", {told}=" in text for told in _TOLD_OF):  # looking is quick, and replacing is not
        return tidy_module(text)
    return _HIDDEN.sub(r", \1=", tidy_module(_TOLD.sub(r", shown_\1=", text)))


def _shown_lines(lines: Sequence[str]) -> list[str]:
    """Return lines of a module as they are shown."""
    above = "HloModule lines,\n\nabove"  # what stands first loses its indentation
    return _shown("\n".join((above, *lines))).removesuffix("\n").split("\n")[3:]


def _look_same(before: str, after: str) -> bool:
    """Whether two modules are shown the same."""
    if before.count("\n ") != after.count("\n "):
        return False  # another number of instructions, as nearly always
    return next(_differences(_computations(before), _computations(after)), None) is None


def _changes(before: str, after: str) -> Changes:
    lefts: list[str] = []
    rights: list[str] = []
    moved: list[str] = []
    for name, left, right in _differences(_computations(before), _computations(after)):
        kept = {at for _, at in _common(left, right)}
        same = set(left)
        moved += [line for at, line in enumerate(right) if at not in kept and line in same and name != _HEADS]
        lefts += left
        rights += right
    old, new = _by_name(lefts), _by_name(rights)
    return Changes(
        tuple(name for name in new if name not in old),
        tuple(name for name in old if name not in new),
        tuple(name for name, line in new.items() if name in old and old[name] != line),
        tuple(_by_name(moved)),
    )


def _by_name(lines: Iterable[str]) -> dict[str, str]:
    """Return the lines of instructions by the names of these."""
    return {match.group(1): line.strip().removeprefix("ROOT ") for line in lines if (match := _NAME.match(line))}


def _differences(
    old: Mapping[str, list[str]], new: Mapping[str, list[str]]
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each computation whose lines differ, with those before and after; none are matched across computations.

    Lines that both modules have are as XLA wrote them, the others as they are shown: most lines of most passes need
    not be tidied at all. They are tidied many at a time, and only as far as somebody asks.
    """
    names = (*new, *(name for name in old if name not in new))
    waiting: list[tuple[str, list[str], list[str]]] = []
    count = 0
    for name in (*names, ""):
        left, right = old.get(name, []), new.get(name, [])
        if left != right:
            waiting.append((name, left, right))
            count += len(left) + len(right)
        if count < _AT_ONCE and name:
            continue
        differing = list({line for _, left, right in waiting for line in ({*left} ^ {*right} if left else right)})
        shown = dict(zip(differing, _shown_lines(differing), strict=True)) if differing else {}
        for title, left, right in waiting:
            left, right = [shown.get(line, line) for line in left], [shown.get(line, line) for line in right]
            if left != right:
                yield title, left, right
        waiting, count = [], 0


def _computations(text: str) -> Mapping[str, list[str]]:
    """Return the lines of each computation by its name, and those of their heads as `computations`."""
    found: dict[str, list[str]] = {_HEADS: []}
    current: list[str] = []
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            found[_HEADS].append(line)
            current = found.setdefault(line.removeprefix("ENTRY ").split(" ", 1)[0], [])
        elif line.startswith(" "):
            current.append(line)
    return found


def _hunks(name: str, left: list[str], right: list[str]) -> list[str]:
    """Return what makes the lines on the right of those on the left, with what stands around it."""
    if not left or not right:  # a computation that is new, or gone: a fusion pass makes a thousand
        head = f"@@ -{int(bool(left))},{len(left)} +{int(bool(right))},{len(right)} @@ {name}"
        return [head, *(f"-{line}" for line in left), *(f"+{line}" for line in right)]
    script: list[tuple[str, str]] = []
    at_left = at_right = 0
    for place_left, place_right in (*_common(left, right), (len(left), len(right))):
        script += [("-", line) for line in left[at_left:place_left]]
        script += [("+", line) for line in right[at_right:place_right]]
        script += [(" ", line) for line in left[place_left : place_left + 1]]
        at_left, at_right = place_left + 1, place_right + 1
    changed = (at for at, (sign, _) in enumerate(script) if sign != " ")
    near = sorted({at + by for at in changed for by in range(-_AROUND, _AROUND + 1)} & set(range(len(script))))
    both = [*{*left} & {*right} & {script[at][1] for at in near}]
    shown = dict(zip(both, _shown_lines(both), strict=True)) if both else {}
    old = [0, *accumulate(sign != "+" for sign, _ in script)]
    new = [0, *accumulate(sign != "-" for sign, _ in script)]
    found: list[str] = []
    starts = [place for place, at in enumerate(near) if place == 0 or near[place - 1] != at - 1]
    for start, end in pairwise((*starts, len(near))):
        first, last = near[start], near[end - 1] + 1
        found.append(f"@@ -{_range(old, first, last)} +{_range(new, first, last)} @@ {name}")
        found += [f"{sign}{shown.get(line, line)}" for sign, line in script[first:last]]
    return found


def _range(counts: list[int], start: int, end: int) -> str:
    length = counts[end] - counts[start]
    return f"{counts[start] + (1 if length else 0)},{length}"


def _common(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """Return the places, on both sides, of the most lines that stand in the same order on both.

    Instructions have names, and each stands once. So this is the longest run of rising places (patience sorting), which
    takes no quadratic time, as comparing lines with lines does.
    """
    places: dict[str, list[int]] = {}
    for at in range(len(left) - 1, -1, -1):
        places.setdefault(left[at], []).append(at)
    pairs = [(places[line].pop(), at) for at, line in enumerate(right) if places.get(line)]
    ends: list[int] = []  # the lowest place on the left with which a run of each length ends, and which pair that is
    last: list[int] = []
    before: list[int] = []
    for number, (place, _) in enumerate(pairs):
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [number]
        before.append(last[length - 1] if length else -1)
    found: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]
