"""The passes of XLA that changed the module, with the module before and after each, and what became of instructions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Literal, get_args

from mithril_nb.display import Shown
from mithril_nb.stages.alignment import align
from mithril_nb.stages.hlo.syntax import instruction_names, opened_by
from mithril_nb.stages.hlo.text import tidy_module
from mithril_nb.stages.xla.dump import Dump

_HEADS = "computations"
# Number of lines from which metadata is removed together. One line at a time takes five times as long.
_AT_ONCE = 4000
# Number of unchanged lines that a diff shows before and after a change.
_AROUND = 2
_KEPT_ATTRIBUTES = ("backend_config", "sharding", "frontend_attributes")
_KEPT = re.compile(rf", ({'|'.join(_KEPT_ATTRIBUTES)})=")
_HIDDEN = re.compile(rf", shown_({'|'.join(_KEPT_ATTRIBUTES)})=")


@dataclass(frozen=True)
class Changes:
    """Names of instructions that a pass changed.

    Attributes:
        added: Instructions that exist only after the pass.
        removed: Instructions that exist only before the pass.
        rewritten: Instructions whose lines differ.
        moved: Instructions whose lines are equal, but at another position.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The numbers of added, removed and rewritten instructions; `"only reordered"` if there are none.

        Examples:
            >>> Changes(added=("a", "b"), removed=("c",)).summary
            '2 added, 1 removed'
            >>> Changes(moved=("a",)).summary
            'only reordered'
        """
        counts = {"added": self.added, "removed": self.removed, "rewritten": self.rewritten}
        parts = [f"{len(names)} {change}" for change, names in counts.items() if names]
        return ", ".join(parts) or "only reordered"


def without_metadata(text: str) -> str:
    """Return a module in the form shown to the user: without metadata and default layouts, with other attributes."""
    if not any(f", {name}=" in text for name in _KEPT_ATTRIBUTES):  # searching is fast, replacing is slow
        return tidy_module(text)
    # `tidy_module` removes these attributes, so they have another name while it runs.
    return _HIDDEN.sub(r", \1=", tidy_module(_KEPT.sub(r", shown_\1=", text)))


def _lines_without_metadata(lines: Sequence[str]) -> list[str]:
    above = "HloModule lines,\n\nabove"  # the first line would lose its indentation
    return without_metadata("\n".join((above, *lines))).removesuffix("\n").split("\n")[3:]


def _by_name(lines: Iterable[str]) -> dict[str, str]:
    return {names[0]: line.strip().removeprefix("ROOT ") for line in lines if (names := instruction_names(line))}


def differences(
    old: Mapping[str, list[str]], new: Mapping[str, list[str]]
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield name, lines before and lines after of each computation that changed."""
    # A line that is in only one of the two modules is in the form shown to the user, without metadata. The other
    # lines are as XLA wrote them, to save time.
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
        tidied = dict(zip(differing, _lines_without_metadata(differing), strict=True)) if differing else {}
        for title, left, right in waiting:
            left, right = [tidied.get(line, line) for line in left], [tidied.get(line, line) for line in right]
            if left != right:
                yield title, left, right
        waiting, count = [], 0


def computations(text: str) -> Mapping[str, list[str]]:
    """Return the lines of each computation by name."""
    # The key `"computations"` has the first lines of all of them.
    lines_by_computation: dict[str, list[str]] = {_HEADS: []}
    current: list[str] = []
    for line in text.splitlines():
        if opened_by(line):
            lines_by_computation[_HEADS].append(line)
            current = lines_by_computation.setdefault(line.removeprefix("ENTRY ").split(" ", 1)[0], [])
        elif line.startswith(" "):
            current.append(line)
    return lines_by_computation


def hunks(name: str, left: list[str], right: list[str]) -> list[str]:
    """Return the lines of a diff that turns `left` into `right`."""
    if not left or not right:  # a new or removed computation, the usual case: fusion creates thousands
        head = f"@@ -{int(bool(left))},{len(left)} +{int(bool(right))},{len(right)} @@ {name}"
        return [head, *(f"-{line}" for line in left), *(f"+{line}" for line in right)]
    script: list[tuple[str, str]] = []
    at_left = at_right = 0
    for place_left, place_right in (*align(left, right), (len(left), len(right))):
        script += [("-", line) for line in left[at_left:place_left]]
        script += [("+", line) for line in right[at_right:place_right]]
        script += [(" ", line) for line in left[place_left : place_left + 1]]
        at_left, at_right = place_left + 1, place_right + 1
    changed = (at for at, (sign, _) in enumerate(script) if sign != " ")
    near = sorted({at + by for at in changed for by in range(-_AROUND, _AROUND + 1)} & set(range(len(script))))
    both = [*{*left} & {*right} & {script[at][1] for at in near}]
    tidied = dict(zip(both, _lines_without_metadata(both), strict=True)) if both else {}
    # Line numbers on the left and on the right at each line of the script.
    old = [0, *accumulate(sign != "+" for sign, _ in script)]
    new = [0, *accumulate(sign != "-" for sign, _ in script)]
    lines: list[str] = []
    starts = [index for index, at in enumerate(near) if index == 0 or near[index - 1] != at - 1]
    for start, end in pairwise((*starts, len(near))):
        first, last = near[start], near[end - 1] + 1
        lines.append(f"@@ -{_range(old, first, last)} +{_range(new, first, last)} @@ {name}")
        lines += [f"{sign}{tidied.get(line, line)}" for sign, line in script[first:last]]
    return lines


def _range(counts: list[int], start: int, end: int) -> str:
    length = counts[end] - counts[start]
    return f"{counts[start] + (1 if length else 0)},{length}"


# For example: 0003.simplification.after_algsimp.before_dce. A file written in the middle of a pass has no last part.
_NUMBERED = re.compile(r"^\d+\..")
_STEP = re.compile(r"^(.+?)\.after_(.+?)(?:\.before_(.+))?$")
# The name of the file at the start of each pipeline. It may contain changes of an earlier pass.
_START = "pipeline-start"
_BEFORE = "before_optimizations"
_NO_PASSES = "XLA wrote its files, but no passes"


@dataclass(frozen=True)
class Pass(Shown):
    """A pass of XLA that changed something.

    Attributes:
        number: Position among the passes that changed something, counted from 0.
        name: Name of the pass: `algsimp`, `fusion`, ...
        pipeline: Name of the pipeline in which the pass ran.
    """

    number: int
    name: str
    pipeline: str
    _dump: Dump = field(repr=False, compare=False)
    _from: str = field(repr=False, compare=False)
    _to: str = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"pass {self.number}, {self.name} (pipeline {self.pipeline})"

    @property
    def before(self) -> str:
        """The module before the pass: HLO without metadata and default layouts."""
        return without_metadata(self._dump.text(self._from, "txt"))

    @property
    def after(self) -> str:
        """The module after the pass: HLO without metadata and default layouts."""
        return without_metadata(self._dump.text(self._to, "txt"))

    @property
    def raw_texts(self) -> tuple[str, str]:
        """The module before and after the pass as XLA wrote it, with metadata."""
        return self._dump.text(self._from, "txt"), self._dump.text(self._to, "txt")

    @cached_property
    def changes(self) -> Changes:
        """The instructions that the pass added, removed, rewrote and moved."""
        lefts: list[str] = []
        rights: list[str] = []
        moved: list[str] = []
        for name, left, right in self._differences:
            matched = {at for _, at in align(left, right)}
            same = set(left)
            moved += [line for at, line in enumerate(right) if at not in matched and line in same and name != _HEADS]
            lefts += left
            rights += right
        old, new = _by_name(lefts), _by_name(rights)
        return Changes(
            tuple(name for name in new if name not in old),
            tuple(name for name in old if name not in new),
            tuple(name for name, line in new.items() if name in old and old[name] != line),
            tuple(_by_name(moved)),
        )

    @property
    def _differences(self) -> Iterator[tuple[str, list[str], list[str]]]:
        return differences(*map(computations, self.raw_texts))

    @property
    def diff(self) -> str:
        """The lines that the pass removed (`-`) and added (`+`), with two lines of context.

        In `@@ -3,5 +3,6 @@ %main`, the lines 3 to 7 of the computation `%main` become lines 3 to 8. A part with
        `computations` in place of `%main` compares the first lines of all computations.
        """
        return "".join(f"{line}\n" for line in self.diff_lines())

    def diff_lines(self) -> Iterator[str]:
        """Yield the lines of `diff`. Each is computed on demand."""
        return (line for difference in self._differences for line in hunks(*difference))


Became = Literal["kept", "fused", "merged", "rewritten", "inlined", "simplified", "dropped", "unknown"]
"""Values of `Outcome.became`, the most informative first."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one instruction of the HLO that XLA received: kept, fused, removed, ...

    Attributes:
        became: One of these:

            - `"kept"`: the instruction is in the optimized HLO;
            - `"fused"`: it is inside a fusion;
            - `"merged"`: another instruction that computes the same is used instead;
            - `"rewritten"`: another instruction does its work, with another opcode or form, such as a product with
              swapped operands;
            - `"inlined"`: it was a call, and its function was inlined;
            - `"simplified"`: XLA removed it;
            - `"dropped"`: JAX removed the operation, so that XLA received no instruction for it;
            - `"unknown"`.
        instruction: Name of the instruction before XLA's passes; `""` if XLA received none.
        into: Name of the instruction of the optimized HLO that does the work: the instruction itself, its fusion, or
            the instruction that it was merged with or rewritten into. `""` if there is none.
        by: The pass that caused the outcome; `None` if no pass did.
        equations: If the instruction was merged with another: ids of the equations of the other.
        reason: The reason for the outcome, if a pass did not cause it; `""` if unknown.
        opcode: If the instruction was rewritten before it was fused: its new opcode; else `""`.
        rewritten: If the instruction was rewritten before it was fused: the pass that did it; else `None`.
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
        """The outcome as text, without the pass: `"fused into tanh_fusion"`."""
        first = f"rewritten into {self.opcode}{_by(self.rewritten)}, then " if self.opcode else ""
        is_folded = self.by is not None and self.by.name == "constant_folding"
        words = {
            "kept": f"kept as {self.into}",
            "fused": f"fused into {self.into}",
            "merged": f"merged with {self.into}",
            "rewritten": f"rewritten into {self.into}",
            "simplified": self.reason or ("folded into a constant" if is_folded else "simplified away"),
        }
        return first + words.get(self.became, f"{self.became}: {self.reason}" if self.reason else self.became)

    def __str__(self) -> str:
        of = f" (equation {', '.join(self.equations)})" if self.equations else ""
        return f"{f'{self.instruction}: ' if self.instruction else ''}{self.without_pass}{_by(self.by)}{of}"


def _by(xla_pass: Pass | None) -> str:
    return f" by pass {xla_pass.number} {xla_pass.name}" if xla_pass is not None else ""


@dataclass(frozen=True)
class InstructionHistory(Shown):
    """The passes that created and removed an instruction, and its outcomes.

    The history of a StableHLO op or an equation has only `fused_into` and `outcomes`: XLA may have received several
    instructions for it.

    Attributes:
        appeared: The pass that created the instruction; `None` if XLA received it.
        vanished: The pass that removed the instruction; `None` if it exists after all passes, perhaps under another
            name.
        fused_into: Names of the fusions of the optimized HLO that are in `outcomes`.
        outcomes: The outcome of each instruction that XLA received; `()` for an instruction of the optimized HLO.
    """

    appeared: Pass | None
    vanished: Pass | None
    fused_into: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()

    @property
    def became(self) -> Became:
        """The most informative of the outcomes, such as `"kept"`; `"unknown"` if there are none."""
        kinds = {outcome.became for outcome in self.outcomes}
        return next((kind for kind in get_args(Became) if kind in kinds), "unknown")

    def __str__(self) -> str:
        vanished = None if self.outcomes else self.vanished  # outcomes are more precise
        parts = [
            f"{event} {xla_pass}"
            for event, xla_pass in (("appeared in", self.appeared), ("vanished in", vanished))
            if xla_pass
        ]
        return "\n".join((*parts, *map(str, self.outcomes))) or "exists from the first pass to the last"


def files_of_passes(dump: Dump) -> tuple[str, ...]:
    """Return the names of the files that contain the module after a pass, in the order of the passes."""
    numbered = [name for name in dump.names("txt") if _NUMBERED.match(name)]
    return tuple(sorted(numbered, key=lambda name: int(name.split(".", 1)[0])))


def read_passes(dump: Dump) -> tuple[Pass, ...]:
    """Return the passes that changed something, in the order they ran."""
    # The name of a pass comes from the name of its file. If a newer XLA gives the files names of another form, the
    # whole name of the file is used.
    names = files_of_passes(dump)
    if not names or not dump.path(_BEFORE, "txt").exists():
        raise LookupError(_NO_PASSES)
    passes: list[Pass] = []
    latest = _BEFORE
    text = dump.text(latest, "txt")
    steps = [_STEP.match(name.split(".", 1)[1]) for name in names]
    for index, (name, step) in enumerate(zip(names, steps, strict=True)):
        if step is not None and step.group(3) is None:
            continue  # written in the middle of a pass; the pass has another file, written at its end
        before, text = text, dump.text(name, "txt")
        if text == before:
            continue
        # A different number of instructions is the usual case.
        is_changed = before.count("\n ") != text.count("\n ")
        if is_changed or any(True for _ in differences(computations(before), computations(text))):
            title, pipeline = (step.group(2), step.group(1)) if step else (name.split(".", 1)[1], "")
            if title == _START:
                # XLA writes the name of this pass only in the next file of the outer pipeline. If there is no such
                # file, the changes are attributed to the inner pipeline.
                around = (step.group(1) for step in reversed(steps[:index]) if step and step.group(1) != pipeline)
                outer = next(around, None)
                later = (step.group(2) for step in steps[index + 1 :] if step and step.group(1) == outer)
                ended = None if outer is None else next(later, None)
                title = pipeline
                if outer is not None and ended is not None and ended not in (pipeline, _START):
                    title, pipeline = ended, outer
            passes.append(Pass(len(passes), title, pipeline, dump, latest, name))
            latest = name
    return tuple(passes)


class Histories:
    """The passes in which each instruction appeared and vanished, by name of the instruction."""

    def __init__(self, passes: Iterable[Pass]):
        self.appeared: dict[str, Pass] = {}
        self.vanished: dict[str, Pass] = {}
        names: set[str] | None = None
        for xla_pass in passes:
            if names is None:  # later passes start with the text that the previous pass wrote
                names = set(instruction_names(xla_pass._dump.text(xla_pass._from, "txt")))
            after = set(instruction_names(xla_pass._dump.text(xla_pass._to, "txt")))
            for name in after - names:
                self.appeared.setdefault(name, xla_pass)
                self.vanished.pop(name, None)
            for name in names - after:
                self.vanished[name] = xla_pass
            names = after
