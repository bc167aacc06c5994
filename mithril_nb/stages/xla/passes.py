"""The passes of XLA that changed the module, with the module before and after each, and what became of instructions."""

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
    without_metadata,
)

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
        return changes_between(*self.raw_texts)

    @property
    def diff(self) -> str:
        """The lines that the pass removed (`-`) and added (`+`), with two lines of context.

        In `@@ -3,5 +3,6 @@ %main`, the lines 3 to 7 of the computation `%main` become lines 3 to 8. A part with
        `computations` in place of `%main` compares the first lines of all computations.
        """
        return "".join(f"{line}\n" for line in self.diff_lines())

    def diff_lines(self) -> Iterator[str]:
        """Yield the lines of `diff`. Each is computed on demand."""
        changed = differences(*map(computations, self.raw_texts))
        return (line for difference in changed for line in hunks(*difference))


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
            - `"rewritten"`: an instruction with another opcode does its work;
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

    def as_data(self) -> dict[str, Any]:
        """Return the history as plain data. A pass is its number."""
        return {
            "became": self.became,
            "appeared": None if self.appeared is None else self.appeared.number,
            "vanished": None if self.vanished is None else self.vanished.number,
            "fused_into": list(self.fused_into),
            "outcomes": [
                {
                    "became": outcome.became,
                    "instruction": outcome.instruction,
                    "into": outcome.into,
                    "pass": None if outcome.by is None else outcome.by.number,
                    "equations": list(outcome.equations),
                    "reason": outcome.reason,
                    "rewritten": None
                    if outcome.rewritten is None
                    else {"into": outcome.opcode, "pass": outcome.rewritten.number},
                }
                for outcome in self.outcomes
            ],
        }


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
        if not look_same(before, text):
            title, pipeline = (step.group(2), step.group(1)) if step else (name.split(".", 1)[1], "")
            if title == _START:
                title, pipeline = _pass_around(pipeline, steps[:index], steps[index + 1 :])
            passes.append(Pass(len(passes), title, pipeline, dump, latest, name))
            latest = name
    return tuple(passes)


def _pass_around(
    pipeline: str, before: Sequence[re.Match[str] | None], after: Sequence[re.Match[str] | None]
) -> tuple[str, str]:
    # XLA writes the name of this pass only in the next file of the outer pipeline. If there is no such file, the
    # changes are attributed to the inner pipeline.
    outer = next((step.group(1) for step in reversed(before) if step and step.group(1) != pipeline), None)
    ended = next((step.group(2) for step in after if step and step.group(1) == outer), None)
    return (pipeline, pipeline) if outer is None or ended in (None, pipeline, _START) else (ended, outer)


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
