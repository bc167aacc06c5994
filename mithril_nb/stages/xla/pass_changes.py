"""The differences between the HLO before and after a pass, by computation and by instruction."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from mithril_nb.stages.alignment import align
from mithril_nb.stages.hlo.syntax import instruction_names, opened_by
from mithril_nb.stages.hlo.text import tidy_module

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


def look_same(before: str, after: str) -> bool:
    """Return whether two modules are equal in the form shown to the user."""
    if before.count("\n ") != after.count("\n "):
        return False  # a different number of instructions, the usual case
    return next(differences(computations(before), computations(after)), None) is None


def changes_between(before: str, after: str) -> Changes:
    """Return the changes from one module to another."""
    lefts: list[str] = []
    rights: list[str] = []
    moved: list[str] = []
    for name, left, right in differences(computations(before), computations(after)):
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
