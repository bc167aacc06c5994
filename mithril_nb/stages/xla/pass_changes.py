"""What a pass changed: the differences between two texts of HLO, by computation and instruction."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from mithril_nb.stages.alignment import align
from mithril_nb.stages.hlo.syntax import instruction_names, opened_by
from mithril_nb.stages.hlo.text import tidy_module

_HEADS = "computations"
_AT_ONCE = 4000
"""Number of lines that are tidied together; one by one takes five times as long."""
_AROUND = 2
"""Lines around a change that a diff shows."""
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
        moved: Unchanged instructions at another position among the others.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The numbers of changed instructions as text; `"only reordered"` if none was added, removed or rewritten.

        Examples:
            >>> Changes(added=("a", "b"), removed=("c",)).summary
            '2 added, 1 removed'
            >>> Changes(moved=("a",)).summary
            'only reordered'
        """
        counts = {"added": self.added, "removed": self.removed, "rewritten": self.rewritten}
        parts = [f"{len(names)} {what}" for what, names in counts.items() if names]
        return ", ".join(parts) or "only reordered"


def shown(text: str) -> str:
    """Return a module without metadata and default layouts; other attributes stay, as they may be the only change."""
    if not any(f", {name}=" in text for name in _KEPT_ATTRIBUTES):  # searching is fast, replacing is slow
        return tidy_module(text)
    # `tidy_module` drops these attributes, but not under another name.
    return _HIDDEN.sub(r", \1=", tidy_module(_KEPT.sub(r", shown_\1=", text)))


def _shown_lines(lines: Sequence[str]) -> list[str]:
    """Return lines of a module in the form shown to the user."""
    above = "HloModule lines,\n\nabove"  # the first line would lose its indentation
    return shown("\n".join((above, *lines))).removesuffix("\n").split("\n")[3:]


def look_same(before: str, after: str) -> bool:
    """Return whether two modules look the same in the form shown to the user."""
    if before.count("\n ") != after.count("\n "):
        return False  # a different number of instructions, the usual case
    return next(differences(computations(before), computations(after)), None) is None


def changes_between(before: str, after: str) -> Changes:
    """Return the changes from one text of HLO to another."""
    lefts: list[str] = []
    rights: list[str] = []
    moved: list[str] = []
    for name, left, right in differences(computations(before), computations(after)):
        kept = {at for _, at in align(left, right)}
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
    """Return the lines of instructions by their names."""
    return {names[0]: line.strip().removeprefix("ROOT ") for line in lines if (names := instruction_names(line))}


def differences(
    old: Mapping[str, list[str]], new: Mapping[str, list[str]]
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield name, lines before and lines after of each computation whose lines differ.

    Lines found in both modules are as XLA wrote them, other lines are in the form shown to the user, because tidying
    takes time and most lines do not change. Lines are tidied many at a time, on demand.
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


def computations(text: str) -> Mapping[str, list[str]]:
    """Return a dict from the name of each computation to its lines; the key `"computations"` has all heads."""
    found: dict[str, list[str]] = {_HEADS: []}
    current: list[str] = []
    for line in text.splitlines():
        if opened_by(line):
            found[_HEADS].append(line)
            current = found.setdefault(line.removeprefix("ENTRY ").split(" ", 1)[0], [])
        elif line.startswith(" "):
            current.append(line)
    return found


def hunks(name: str, left: list[str], right: list[str]) -> list[str]:
    """Return the diff that turns the lines on the left into those on the right, with context."""
    if not left or not right:  # a new or removed computation: a fusion pass makes a thousand
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
    shown = dict(zip(both, _shown_lines(both), strict=True)) if both else {}
    # Number of lines of the module before and after, up to each line of the script.
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
