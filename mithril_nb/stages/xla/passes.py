"""The passes of XLA that changed something, in the order they ran: the module before and after, and the changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

from mithril_nb.display import Shown
from mithril_nb.stages.hlo.syntax import instruction_names
from mithril_nb.stages.xla.dump import Dump
from mithril_nb.stages.xla.pass_changes import (
    Changes,
    changes_between,
    computations,
    differences,
    hunks,
    look_same,
    shown,
)

# For example: 0003.simplification.after_algsimp.before_dce; in the middle of a pass, XLA omits the last part.
_NUMBERED = re.compile(r"^\d+\..")
_STEP = re.compile(r"^(.+?)\.after_(.+?)(?:\.before_(.+))?$")
# XLA writes a file at the start of each pipeline under this name, also if an earlier pass changed the module.
_START = "pipeline-start"
_BEFORE = "before_optimizations"
_NO_PASSES = "XLA wrote its files, but no passes"


@dataclass(frozen=True)
class Pass(Shown):
    """A pass of XLA that changed something.

    Attributes:
        number: Position among the passes that changed something, from 0.
        name: Name of the pass: `algsimp`, `fusion`, ...
        pipeline: The pipeline in which it ran.
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
        """The module before it: HLO without default layouts and without metadata."""
        return shown(self._dump.text(self._from, "txt"))

    @property
    def after(self) -> str:
        """The module after it, in the same form."""
        return shown(self._dump.text(self._to, "txt"))

    @property
    def written(self) -> tuple[str, str]:
        """The module before and after as XLA wrote it, with metadata."""
        return self._dump.text(self._from, "txt"), self._dump.text(self._to, "txt")

    @cached_property
    def changes(self) -> Changes:
        """The instructions it added, removed, rewrote and moved."""
        return changes_between(*self.written)

    @property
    def diff(self) -> str:
        """The lines it removed (`-`) and added (`+`), with two lines of context.

        `@@ -3,5 +3,6 @@ %main` names the computation, and its line numbers before and after, counted from 1. The
        entry `computations` lists the heads of all computations in order.
        """
        return "".join(f"{line}\n" for line in self.diff_lines())

    def diff_lines(self) -> Iterator[str]:
        """Yield the lines of `diff` one by one, computed on demand."""
        found = differences(*map(computations, self.written))
        return (line for difference in found for line in hunks(*difference))


Became = Literal["kept", "fused", "merged", "rewritten", "inlined", "simplified", "dropped", "unknown"]
"""Outcomes of an instruction, the most informative ones first."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one instruction of the HLO that XLA received, or of an equation or op without any.

    Attributes:
        became: `"kept"`, `"fused"` into a fusion, `"merged"` with another that computes the same, `"rewritten"` into an
            instruction with another opcode (a transpose into the dot before it), `"inlined"` (a call whose function was
            inlined), `"simplified"` away, `"dropped"` before XLA, or `"unknown"`.
        instruction: Name of the instruction in the HLO before XLA's passes, or `""`.
        into: Name of the instruction of the optimized HLO that it became, of its fusion, or of the instruction that it
            was merged with; `""` if there is none.
        by: The pass that caused the outcome, or `None`.
        equations: Ids of the equations of the instruction that it was merged with.
        reason: Why no instruction exists or is known, or `""`.
        opcode: The opcode that it was rewritten into before it was fused, or `""`.
        rewritten: The pass that rewrote it before it was fused, or `None`.
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
        """The outcome without the pass: `"fused into tanh_fusion"`."""
        first = f"rewritten into {self.opcode}{_by(self.rewritten)}, then " if self.opcode else ""
        words = {
            "kept": f"kept as {self.into}",
            "fused": f"fused into {self.into}",
            "merged": f"merged with {self.into}",
            "rewritten": f"rewritten into {self.into}",
            "simplified": self.reason or "simplified away",
        }
        return first + words.get(self.became, f"{self.became}: {self.reason}" if self.reason else self.became)

    def __str__(self) -> str:
        of = f" (equation {', '.join(self.equations)})" if self.equations else ""
        return f"{f'{self.instruction}: ' if self.instruction else ''}{self.without_pass}{_by(self.by)}{of}"


def _by(one: Pass | None) -> str:
    return f" by pass {one.number} {one.name}" if one is not None else ""


@dataclass(frozen=True)
class InstructionHistory(Shown):
    """The history of an instruction, an op or an equation in XLA, or the origin of an instruction.

    Attributes:
        appeared: The pass in which it first appears; `None` if it exists from the start.
        vanished: The pass that removed it; `None` if it exists to the end, under any name.
        fused_into: Names of the fusions of the optimized HLO that do its work, if it was fused.
        outcomes: Outcomes of the instructions that XLA received for it; `()` for an instruction of the optimized HLO.
    """

    appeared: Pass | None
    vanished: Pass | None
    fused_into: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()

    @property
    def became(self) -> Became:
        """The first outcome in the order of `Became`: `"kept"` if any part was kept; `"unknown"` without outcomes."""
        found = {one.became for one in self.outcomes}
        return next((one for one in get_args(Became) if one in found), "unknown")

    def __str__(self) -> str:
        vanished = None if self.outcomes else self.vanished  # outcomes are more precise
        parts = [f"{what} {one}" for what, one in (("appeared in", self.appeared), ("vanished in", vanished)) if one]
        return "\n".join((*parts, *map(str, self.outcomes))) or "exists from the first pass to the last"

    def as_data(self) -> dict[str, Any]:
        """Return the history as plain data, with passes by number."""
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
    """Return the names of the files with the module after each pass, in the order the passes ran."""
    numbered = [name for name in dump.names("txt") if _NUMBERED.match(name)]
    return tuple(sorted(numbered, key=lambda name: int(name.split(".", 1)[0])))


def read_passes(dump: Dump) -> tuple[Pass, ...]:
    """Return the passes of a dump that changed something, in the order they ran.

    A file whose name contains no pass, as a newer XLA may write, counts as a pass of that name.

    Raises:
        LookupError: The dump contains no passes.
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
            continue  # written in the middle of a pass, which also has its own file
        before, text = text, dump.text(name, "txt")
        if text == before:
            continue
        if not look_same(before, text):
            title, pipeline = (step.group(2), step.group(1)) if step else (name.split(".", 1)[1], "")
            if title == _START:
                title, pipeline = _pass_around(pipeline, steps[:place], steps[place + 1 :])
            found.append(Pass(len(found), title, pipeline, dump, latest, name))
            latest = name
    return tuple(found)


def _pass_around(
    pipeline: str, before: Sequence[re.Match[str] | None], after: Sequence[re.Match[str] | None]
) -> tuple[str, str]:
    """Return name and pipeline of the pass that made the changes found at the start of a pipeline.

    This is the pass that runs the pipeline as a part of its work, which XLA names when it ends. If there is no such
    pass, changes between two pipelines are attributed to the second.
    """
    outer = next((step.group(1) for step in reversed(before) if step and step.group(1) != pipeline), None)
    ended = next((step.group(2) for step in after if step and step.group(1) == outer), None)
    return (pipeline, pipeline) if outer is None or ended in (None, pipeline, _START) else (ended, outer)


class Histories:
    """The passes in which each instruction appeared and vanished, by name. Reads every pass once."""

    def __init__(self, passes: Iterable[Pass]):
        self.appeared: dict[str, Pass] = {}
        self.vanished: dict[str, Pass] = {}
        names: set[str] | None = None
        for one in passes:
            if names is None:  # each pass starts with the text that the previous one wrote
                names = set(instruction_names(one._dump.text(one._from, "txt")))
            after = set(instruction_names(one._dump.text(one._to, "txt")))
            for name in after - names:
                self.appeared.setdefault(name, one)
                self.vanished.pop(name, None)
            for name in names - after:
                self.vanished[name] = one
            names = after
