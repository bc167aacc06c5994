"""The differences of one stage of two programs: lines and instructions that are added, removed, changed or moved.

Lines are compared without the names of variables, so that a diff ignores variables that are only renumbered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Literal, NamedTuple

from mithril_nb.display import Shown
from mithril_nb.stages.alignment import align
from mithril_nb.stages.records import Instruction, Stage
from mithril_nb.stages.stage_kinds import language_of

HOLE = "\0"
"""Placeholder of a variable in a `NamelessLine`; no text of a stage contains it."""
# A name is a definition if a colon or an equals sign follows: %0 = ..., %0:2 = ..., %arg0: tensor<f32>, a:f32[3].
_DEFINES = r"(?=:|\s*=(?!=))"
# `![0-9]+` is metadata of LLVM. In the signature of an HLO computation, parameters have no `%`.
_PERCENT = re.compile(
    rf"(?P<name>%[\w$.#-]+|![0-9]+|(?<=ENTRY )[\w.-]+|(?<=[(, ])[\w.-]+(?=: ))(?P<defines>{_DEFINES})?"
)
_SYMBOLS = re.compile(rf"(?P<name>%[\w$.-]+)(?P<defines>{_DEFINES})?|(?P<symbol>@[A-Za-z$.-][\w$.-]*?)_[0-9]+\b")
_NESTED = r"\[(?:[^\[\]]|\[(?:[^\[\]]|\[[^\[\]]*\])*\])*\]"
# In a jaxpr, no `%` marks a name: skip types, params, comments, keywords and the primitive after "= ".
_JAXPR = re.compile(
    rf"{_NESTED}|= [\w.]+|#.*|\bin (?=\()|\blet$|\blambda\b|'[^']*'|[0-9.][\w.+-]*|"
    rf"(?<![\w.])(?P<name>[a-z]+)(?P<defines>(?=:[a-z]))?(?![\w.=(])"
)
# Names of variables in a jaxpr look like names of primitives, so only names that the text defines are variables.
_DEFINED = re.compile(r"(?<![\w.])(?!(?:inf|nan):)([a-z]+):(?=[a-z]\w*[\[<])")  # inf and nan are literals
_PATTERNS = {"jaxpr": _JAXPR, "mlir": _SYMBOLS, "hlo": _PERCENT, "llvm": _PERCENT}


class NamelessLine(NamedTuple):
    """One line of a stage.

    Attributes:
        text: The line with the placeholder `HOLE` instead of each name of a variable.
        names: The names of the variables, in order.
        defines: For each of `names`, true if the line defines it, and false if the line uses it.
    """

    text: str
    names: tuple[str, ...]
    defines: tuple[bool, ...]


def lines_without_names(text: str, stage: str) -> list[NamelessLine]:
    r"""Return the lines of a stage without the names of their variables.

    Examples:
        >>> [line.names for line in lines_without_names("a:f32[3] = mul b 2.0\nc:f32[3] = sin a", "jaxpr")]
        [('a',), ('c', 'a')]
        >>> lines_without_names("%1 = stablehlo.add %0, %0 : tensor<f32>", "stablehlo")[0].names
        ('%1', '%0', '%0')
    """
    lines = split_lines(text)
    language = language_of(stage)
    pattern = _PATTERNS.get(language)
    if pattern is None:
        return [NamelessLine(line, (), ()) for line in lines]
    variables = set(_DEFINED.findall(text)) if language == "jaxpr" else None
    return [_line(line, pattern, variables) for line in lines]


def _line(line: str, pattern: re.Pattern[str], variables: set[str] | None) -> NamelessLine:
    parts: list[str] = []
    names: list[str] = []
    defines: list[bool] = []
    end = 0
    for match in pattern.finditer(line):
        name = match["name"]
        if name is None:
            symbol = match.groupdict().get("symbol")
            if symbol:  # @relu_3 is @relu, numbered by JAX
                parts += (line[end : match.start()], symbol)
                end = match.end()
            continue
        if variables is not None and name not in variables:
            continue
        parts += (line[end : match.start()], HOLE)
        end = match.end()
        names.append(name)
        defines.append(match["defines"] is not None)
    return NamelessLine("".join((*parts, line[end:])), tuple(names), tuple(defines))


class Renaming:
    """A one-to-one mapping from the names of variables on the left to those on the right, built line by line.

    The last definition of a name counts, because each function of a StableHLO module defines the same names again.
    """

    def __init__(self) -> None:
        self._right: dict[str, str] = {}
        self._left: dict[str, str] = {}

    def define(self, left: NamelessLine, right: NamelessLine) -> None:
        """Map the names that the left line defines to the names that the right line defines, in order."""
        for name, other in zip(_defined(left), _defined(right), strict=False):
            self._bind(name, other)

    def agrees(self, left: NamelessLine, right: NamelessLine) -> bool:
        """Map the names that two lines with equal text define, and return whether the names that they use agree."""
        is_same = True
        for name, other, is_defined in zip(left.names, right.names, left.defines, strict=True):
            # Names that no line defines, such as those of functions, are bound where they are used first.
            if is_defined or (name not in self._right and other not in self._left):
                self._bind(name, other)
            elif self._right.get(name) != other:
                is_same = False
        return is_same

    def _bind(self, name: str, other: str) -> None:
        self._left.pop(self._right.get(name, ""), None)
        self._right.pop(self._left.get(other, ""), None)
        self._right[name], self._left[other] = other, name


def _defined(line: NamelessLine) -> Iterator[str]:
    return (name for name, is_defined in zip(line.names, line.defines, strict=True) if is_defined)


RowMark = Literal["same", "added", "removed", "changed"]
SIGNS: Mapping[str, str] = {"same": " ", "added": "+", "removed": "-", "changed": "~"}
# Number of unchanged lines that the text form shows before and after a change.
_AROUND = 2


class DiffRow(NamedTuple):
    """A row of a side-by-side diff.

    Attributes:
        mark: `"same"`, `"added"`, `"removed"` or `"changed"`. Names of variables make no difference.
        before: Number of the line on the left, from 1; `None` for an added line.
        after: Number of the line on the right, from 1; `None` for a removed line.
    """

    mark: RowMark
    before: int | None
    after: int | None


class LineKey(NamedTuple):
    """Key for matching a line: lines of the two sides can match if their keys are equal.

    The key of a line on which no instruction starts has the default values.

    Attributes:
        blocks: The blocks of the instruction that starts on the line. A block that both sides have is represented by
            its path on the left.
        role: The instruction's part in the program, such as `"forward"`; `""` if unknown.
        is_matched: False if one of the blocks has no counterpart on the other side.
    """

    blocks: tuple[Hashable, ...] = ()
    role: str | None = None
    is_matched: bool = True


@dataclass(frozen=True)
class StageComparison(Shown):
    """The differences of one stage of two programs, line by line.

    Attributes:
        before: The stage on the left.
        after: The stage on the right.
        rows: The aligned lines.
        moved: A dict from the number of each moved line on the left to its number on the right. In `rows`, a moved line
            is a removed line and an added line.
        rewired: Numbers of the lines on the right that differ from their counterparts on the left only in the operands.
    """

    before: Stage
    after: Stage
    rows: tuple[DiffRow, ...] = field(repr=False)
    moved: Mapping[int, int] = field(repr=False, default_factory=dict[int, int])
    rewired: frozenset[int] = field(repr=False, default=frozenset())

    @property
    def name(self) -> str:
        """Name of the stage."""
        return self.after.name

    @property
    def unavailable(self) -> str | None:
        """The reason why the stage is not available on one side; `None` if it is available on both."""
        reasons = (("before", self.before.unavailable), ("after", self.after.unavailable))
        return next((f"{side}: {why}" for side, why in reasons if why is not None), None)

    @property
    def is_same(self) -> bool:
        """True if both sides are equal except for the names of variables, or if both are unavailable."""
        if self.before.unavailable is not None and self.after.unavailable is not None:
            return True
        return self.unavailable is None and all(row.mark == "same" for row in self.rows)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """The number of rows with the marks `"added"`, `"removed"` and `"changed"`."""
        counts = Counter(row.mark for row in self.rows)
        return {mark: counts[mark] for mark in ("added", "removed", "changed")}

    @cached_property
    def added(self) -> tuple[Instruction, ...]:
        """The instructions that are only on the right, without moved ones."""
        moved = set(self.moved.values())
        lines = [row.after for row in self.rows if row.mark == "added" and row.after not in moved]
        return tuple(self._right[line] for line in lines if line is not None and line in self._right)

    @cached_property
    def removed(self) -> tuple[Instruction, ...]:
        """The instructions that are only on the left, without moved ones."""
        lines = [row.before for row in self.rows if row.mark == "removed" and row.before not in self.moved]
        return tuple(self._left[line] for line in lines if line is not None and line in self._left)

    @cached_property
    def changed(self) -> tuple[tuple[Instruction, Instruction], ...]:
        """Pairs of an instruction on the left and its counterpart on the right that differ."""
        rows = [row for row in self.rows if row.mark == "changed"]
        pairs = [(self._left.get(row.before or 0), self._right.get(row.after or 0)) for row in rows]
        return tuple((left, other) for left, other in pairs if left is not None and other is not None)

    @cached_property
    def matches(self) -> Mapping[str, str]:
        """The id of each instruction on the left, with the id of its counterpart on the right."""
        pairs = [(row.before, row.after) for row in self.rows if row.before and row.after] + [*self.moved.items()]
        return {self._left[at].id: self._right[to].id for at, to in pairs if at in self._left and to in self._right}

    @cached_property
    def _left(self) -> Mapping[int, Instruction]:
        return starts_of(self.before)

    @cached_property
    def _right(self) -> Mapping[int, Instruction]:
        return starts_of(self.after)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data: the ids of the instructions that differ, and the rows that differ."""
        return {
            "name": self.name,
            "unavailable": self.unavailable,
            "is_same": self.is_same,
            "added": [instruction.id for instruction in self.added],
            "removed": [instruction.id for instruction in self.removed],
            "changed": [[left.id, other.id] for left, other in self.changed],
            "moved": [[at, to] for at, to in self.moved.items()],
            "rows": [list(row) for row in self.rows if row.mark != "same"],
        }

    def diff_lines(self, around: int | None = _AROUND) -> Iterator[str]:
        """Yield the lines of a diff. They begin with `-` if removed, `+` if added, and a space if unchanged.

        A changed line is shown twice, with `-` and with `+`.

        Args:
            around: Number of unchanged lines shown before and after a change; `None` shows all.
        """
        left, right = split_lines(self.before.text), split_lines(self.after.text)
        for start, end in runs(self.rows):
            some = self.rows[start:end]
            if some[0].mark != "same":
                yield from (f"-{left[row.before - 1]}" for row in some if row.before)
                yield from (f"+{right[row.after - 1]}" for row in some if row.after)
                continue
            head = around if start else 0
            tail = around if end < len(self.rows) else 0
            # To hide a single line would take a line, too.
            if head is None or tail is None or len(some) <= head + tail + 1:
                yield from (f" {right[row.after - 1]}" for row in some if row.after)
                continue
            yield from (f" {right[row.after - 1]}" for row in some[:head] if row.after)
            yield f"@@ {len(some) - head - tail:,} unchanged lines @@"
            yield from (f" {right[row.after - 1]}" for row in some[len(some) - tail :] if row.after)

    def __repr__(self) -> str:
        return f"StageComparison({self.name!r}: {self.summary})"

    @property
    def summary(self) -> str:
        """The numbers of added, removed, changed and moved lines as text, such as `"2 added, 1 changed"`."""
        if self.unavailable is not None:
            return "not available"
        parts = [f"{count:,} {mark}" for mark, count in self.counts.items() if count]
        moved = f", {len(self.moved):,} of them moved" if self.moved else ""
        return (", ".join(parts) + moved) if parts else "same"


def starts_of(stage: Stage) -> dict[int, Instruction]:
    """Return the instruction that starts on each line, by number of the line; the first if several start there."""
    starts: dict[int, Instruction] = {}
    for instruction in stage.instructions:
        starts.setdefault(instruction.line, instruction)
    return starts


def split_lines(text: str) -> list[str]:
    """Return the lines of a text. A newline at the end of the text adds no empty line."""
    return text.removesuffix("\n").split("\n") if text else []


def runs(rows: Sequence[DiffRow]) -> Iterator[tuple[int, int]]:
    """Yield the start and end index of each longest run of rows that are all unchanged, or all different."""
    start = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or (rows[at].mark == "same") != (rows[start].mark == "same"):
            yield start, at
            start = at


def compare_stages(before: Stage, after: Stage, paths: Mapping[str, str]) -> StageComparison:
    """Return the differences of one stage of two programs.

    Lines correspond by block, role, opcode and position. Names of variables may differ: two lines are the same if their
    variables are defined by corresponding lines.

    `paths` maps the path of each block on the left to the path of its counterpart on the right.
    """
    if before.unavailable is not None or after.unavailable is not None:
        return StageComparison(before, after, ())
    # The smaller text is always compared as the left one, so that (a, b) and (b, a) give mirrored differences.
    left, right = (lines_without_names(side.text, side.name) for side in (before, after))
    if after.text < before.text:
        rows, moved = _compared((after, before), (right, left), {to: at for at, to in paths.items()})
        flipped = [DiffRow(_FLIPPED.get(row.mark, row.mark), row.after, row.before) for row in rows]
        # Removed lines come before added ones.
        groups = groupby(flipped, lambda row: row.before is not None and row.after is not None)
        rows = tuple(row for _, some in groups for row in sorted(some, key=lambda row: row.mark == "added"))
        moved = {to: at for at, to in sorted(moved.items())}
    else:
        rows, moved = _compared((before, after), (left, right), paths)
    changed = [(row.before, row.after) for row in rows if row.mark == "changed" and row.before and row.after]
    rewired = frozenset(to for at, to in changed if left[at - 1].text == right[to - 1].text)
    return StageComparison(before, after, rows, moved, rewired)


_FLIPPED: Mapping[str, RowMark] = {"added": "removed", "removed": "added"}


def _compared(
    sides: tuple[Stage, Stage], lines: tuple[list[NamelessLine], list[NamelessLine]], paths: Mapping[str, str]
) -> tuple[tuple[DiffRow, ...], dict[int, int]]:
    (before, after), (left, right) = sides, lines
    keys = _keys(before, len(left), {path: path for path in paths}, "left")
    others = _keys(after, len(right), {to: at for at, to in paths.items()}, "right")
    pairs: dict[int, int] = {}
    for ours, theirs in zip(
        _keys_by_strength(before, left, keys), _keys_by_strength(after, right, others), strict=True
    ):
        pairs = _fill(pairs, ours, theirs)
    moved = _moved(left, right, keys, others, pairs)
    return _rows(left, right, pairs, moved), {at + 1: to + 1 for at, to in moved.items()}


def _keys(stage: Stage, count: int, paths: Mapping[str, str], side: str) -> list[LineKey]:
    # A block without a counterpart has `side` in its key, so that the key differs from all keys of the other side.
    keys = [LineKey()] * count
    counterparts = {"": "", **paths}
    for line, instruction in starts_of(stage).items():
        if line <= count:
            blocks = sorted(
                (counterparts.get(path, ""), path if path not in counterparts else "") for path, _ in instruction.shares
            )
            is_matched = all(path in counterparts for path, _ in instruction.shares)
            keys[line - 1] = LineKey(
                tuple(blocks) if is_matched else (side, *blocks), instruction.role or "", is_matched
            )
    return keys


def _keys_by_strength(
    stage: Stage, lines: Sequence[NamelessLine], keys: Sequence[LineKey]
) -> Iterator[Sequence[Hashable]]:
    starts = starts_of(stage)
    # Exact matches first: a longest common subsequence over weak keys would pair unrelated lines of equal opcodes.
    # Weaker keys align the remaining lines: first the same text in other blocks, then the same blocks, role and opcode.
    yield [(key, line.text) for key, line in zip(keys, lines, strict=True)]
    yield [(line.text, key.is_matched) for key, line in zip(keys, lines, strict=True)]
    yield [(key, starts[number].opcode) if number in starts else None for number, key in enumerate(keys, 1)]
    yield [_head(line) for line in lines]


def _head(line: NamelessLine) -> Hashable:
    words = line.text.split(None, 1)
    return (words[0], len(line.text) - len(line.text.lstrip())) if len(words) > 1 and words[0][0].isalpha() else None


def _fill(pairs: dict[int, int], left: Sequence[Hashable], right: Sequence[Hashable]) -> dict[int, int]:
    # The key `None` matches no key.
    filled = dict(pairs)
    start = low = 0
    for at, to in (*pairs.items(), (len(left), len(right))):
        if start < at and low < to:
            ours = [key if key is not None else ("left", index) for index, key in enumerate(left[start:at])]
            theirs = [key if key is not None else ("right", index) for index, key in enumerate(right[low:to])]
            filled.update((start + first, low + other) for first, other in align(ours, theirs))
        start, low = at + 1, to + 1
    return dict(sorted(filled.items()))


def _moved(
    left: Sequence[NamelessLine],
    right: Sequence[NamelessLine],
    ours: Sequence[LineKey],
    theirs: Sequence[LineKey],
    pairs: Mapping[int, int],
) -> dict[int, int]:
    # Only lines on which an instruction starts can move.
    matched = set(pairs.values())
    free: dict[Hashable, list[int]] = {}
    # From the last line, so that `pop` returns the first.
    for to in range(len(right) - 1, -1, -1):
        if to not in matched and theirs[to] != LineKey():
            free.setdefault((theirs[to], right[to].text), []).append(to)
    moved: dict[int, int] = {}
    for at, line in enumerate(left):
        candidates = free.get((ours[at], line.text)) if at not in pairs else None
        if candidates:
            moved[at] = candidates.pop()
    return moved


def _rows(
    left: Sequence[NamelessLine], right: Sequence[NamelessLine], pairs: Mapping[int, int], moved: Mapping[int, int]
) -> tuple[DiffRow, ...]:
    names = Renaming()
    sources = {to: at for at, to in moved.items()}
    rows: list[DiffRow] = []
    start = low = 0
    for at, to in (*pairs.items(), (len(left), len(right))):
        rows += [DiffRow("removed", line + 1, None) for line in range(start, at)]
        for number in range(low, to):
            if number in sources:
                names.define(left[sources[number]], right[number])
            rows.append(DiffRow("added", None, number + 1))
        if at < len(left):
            is_same = left[at].text == right[to].text and names.agrees(left[at], right[to])
            # A changed line still defines its variables; otherwise all their later uses would count as changed.
            if not is_same:
                names.define(left[at], right[to])
            rows.append(DiffRow("same" if is_same else "changed", at + 1, to + 1))
        start, low = at + 1, to + 1
    return tuple(rows)
