"""The passes of XLA that changed something, in the order of time: what each was given, what it made, who did what."""

from __future__ import annotations

import difflib
import filecmp
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from mithril_nb.display import Shown
from mithril_nb.stages.dump import Dump
from mithril_nb.stages.hlo_text import tidy_module

_PASS = re.compile(r"^(\d+)\.(.+)\.after_(.+?)\.before_(.+)$")
_NAME = re.compile(r"^ +(?:ROOT )?%?([\w.\-]+) = ", re.MULTILINE)
_START = "pipeline-start"
_BEFORE = "before_optimizations"


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
        return tidy_module(self._dump.text(self._from, "txt"))

    @property
    def after(self) -> str:
        """The module that it made of it."""
        return tidy_module(self._dump.text(self._to, "txt"))

    @cached_property
    def changes(self) -> Changes:
        """Which instructions it added, removed and rewrote."""
        return _changes(self.before, self.after)

    @property
    def diff(self) -> str:
        """The lines that it took away (`-`) and put in (`+`), each computation with its name."""
        return _diff(self.before, self.after)


@dataclass(frozen=True)
class Changes:
    """Names of instructions that a pass changed.

    Attributes:
        added: Those that were not there before.
        removed: Those that are not there after it.
        rewritten: Those whose lines are another than before.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    rewritten: tuple[str, ...]


@dataclass(frozen=True)
class Fate:
    """What became of an instruction on its way through XLA, or where it came from.

    Attributes:
        appeared: The pass in which it first appears; `None` if it is there from the start.
        vanished: The pass after which it is not there any more; `None` if it is there to the end.
        fused_into: The fusions of the optimized HLO that do its work, if it was fused.
    """

    appeared: Pass | None
    vanished: Pass | None
    fused_into: tuple[str, ...] = ()


def read_passes(dump: Dump) -> tuple[Pass, ...]:
    """Return the passes of a dump that changed something, in the order of time."""
    found: list[Pass] = []
    latest = _BEFORE
    numbered = [(name, match) for name in dump.names("txt") if (match := _PASS.match(name))]
    for name, match in sorted(numbered, key=lambda item: int(item[1].group(1))):
        _, pipeline, after, _ = match.groups()
        if filecmp.cmp(dump.path(latest, "txt"), dump.path(name, "txt"), shallow=False):
            continue
        # What is seen at the start of a pipeline, or when one within it has ended, was done on the way there.
        found.append(Pass(len(found), pipeline if after == _START else after, pipeline, dump, latest, name))
        latest = name
    return tuple(found)


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


def _lines(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _NAME.match(line)
        if match:
            found[match.group(1)] = line.strip().removeprefix("ROOT ")
    return found


def _changes(before: str, after: str) -> Changes:
    old, new = _lines(before), _lines(after)
    return Changes(
        tuple(name for name in new if name not in old),
        tuple(name for name in old if name not in new),
        tuple(name for name, line in new.items() if name in old and old[name] != line),
    )


def _computations(text: str) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            current = found.setdefault(line.removeprefix("ENTRY ").split(" ", 1)[0], [])
        elif line.startswith(" "):
            current.append(line)
    return found


def _diff(before: str, after: str) -> str:
    """Computations are compared one by one: those that are equal cost nothing, and no line is matched across them."""
    old, new = _computations(before), _computations(after)
    shown: list[str] = []
    for name in (*new, *(name for name in old if name not in new)):
        left, right = old.get(name, []), new.get(name, [])
        if left == right:
            continue
        shown.append(f"@@ {name}")
        if not left or not right:
            shown += [f"{'-' if left else '+'}{line}" for line in left or right]
            continue
        shown += _line_diff(left, right)
    return "\n".join(shown) + ("\n" if shown else "")


_FEW = 400
"""Lines up to which difflib, which takes quadratic time, looks for the smallest difference."""


def _line_diff(left: list[str], right: list[str]) -> list[str]:
    if max(len(left), len(right)) <= _FEW:
        lines = difflib.unified_diff(left, right, n=2, lineterm="")
        return [line for line in lines if not line.startswith(("---", "+++"))]
    # Instructions have names, and each stands once: take away what is not there any more, put in what is new.
    gone, come = set(left) - set(right), set(right) - set(left)
    shown: list[str] = []
    place = 0
    kept = {line: at for at, line in enumerate(left) if line not in gone}
    for line in right:
        if line in come:
            shown.append(f"+{line}")
            continue
        until = kept.get(line, place)
        shown += [f"-{one}" for one in left[place:until] if one in gone]
        place = max(place, until)
    return shown + [f"-{one}" for one in left[place:] if one in gone]
