"""Costs by block as a tree. Equal blocks of a repeated stack, such as `block_0` to `block_11`, are merged."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from mithril_nb.display import columns
from mithril_nb.graph.paths import name_of, split_path
from mithril_nb.viz.costs.canvas import NO_HUE
from mithril_nb.viz.costs.fields import Data, is_bound
from mithril_nb.viz.palette import hue_of, hues_of_blocks
from mithril_nb.viz.text import one_line, outer_paths
from mithril_nb.viz.units import percent

_NUMBERS = re.compile(r"\d+")
# At most 9 digits: Python refuses to convert a text of more than 4,300 to a number.
_NUMBERED = re.compile(r"(.*?)(\d{1,9})")


@dataclass(frozen=True)
class Branch:
    """A block with the blocks inside it. Several equal blocks are one branch, with the sums of their costs."""

    # Path of the block, or of the first of several; `""` for the program
    path: str
    # Name of the block; for several blocks a common name, such as `"block_0–1"`
    label: str
    # Cost without the blocks inside; `None` if unknown
    own: float | None
    inside: tuple[Branch, ...] = field(default=(), repr=False)
    # Number of equal blocks in the branch; 1 for a single block
    repeat: int = 1
    paths: tuple[str, ...] = field(default=(), repr=False)
    # True if `own` is a lower bound
    is_bound: bool = False
    # A key by which `tree_of` compares blocks: blocks with different keys are not equal
    alike: Hashable = field(default=None, repr=False)

    @cached_property
    def value(self) -> float:
        """The known part of the cost, blocks inside included."""
        return (self.own or 0) + sum(branch.value for branch in self.inside)

    @cached_property
    def is_least(self) -> bool:
        """True if `value` is a lower bound above 0."""
        return bool(self.value) and any(branch.is_bound or branch.own is None for branch in self.walk())

    def walk(self) -> Iterator[Branch]:
        """Yield this branch and then all branches inside it, from the outside in."""
        yield self
        for branch in self.inside:
            yield from branch.walk()


def tree_of(
    data: Data, name: str, *, alike: Callable[[str], Hashable] | None = None,
    apart: float | None = None,
) -> Branch:  # fmt: skip
    """Return the costs of blocks as a tree in which equal neighbours such as `block_0` and `block_1` are merged.

    Examples:
        >>> one = {"flops": 5}
        >>> data = {"by_block": {"block_0/up": one, "block_1/up": one, "head": {"flops": 3}}}
        >>> [(branch.label, branch.repeat, branch.value) for branch in tree_of(data, "flops").walk()]
        [('', 1, 13), ('block_0–1', 2, 10), ('up', 2, 10), ('head', 1, 3)]
    """
    values: dict[str, float | None] = {}
    bounds: set[str] = set()
    children: dict[str, dict[str, None]] = {"": {}}
    for path, figures in data["by_block"].items():
        values[path] = figures.get(name)
        if is_bound(figures, name):
            bounds.add(path)
        for above, here in pairwise(("", *outer_paths(path))):
            if here:
                children.setdefault(above, {})[here] = None

    def branch(path: str) -> Branch:
        inside = [branch(child) for child in children.get(path, ())]
        own = values.get(path, 0)
        folded = tuple(_folded(inside, apart))
        likeness = alike(path) if alike else (own, path in bounds)
        return Branch(path, label_of(path), own, folded, 1, (path,), path in bounds, likeness)

    return branch("")


# Blocks with a smaller share are not listed in texts.
LEAST_LISTED = 0.001


def share_table(
    title: str, parts: Iterable[tuple[str, str, float]], total: float, hidden: int, *ends: tuple[str, str, str, str]
) -> Iterator[str]:
    """Yield a table of costs with a bar for each share, and how many blocks are too small for it.

    Args:
        title: Title of the costs.
        parts: Name, cost as text, and cost.
        total: The cost that counts as 100 %.
        hidden: Number of blocks below `LEAST_LISTED`.
        *ends: Further rows.
    """
    rows = [(name, text, percent(value / total), "█" * round(20 * value / total)) for name, text, value in parts]
    yield columns([("block", title, "share", ""), *rows, *ends], right={1, 2})
    if hidden:
        yield f"not listed: {hidden} {'block' if hidden == 1 else 'blocks'} with less than {percent(LEAST_LISTED)}"


def _folded(branches: Iterable[Branch], apart: float | None) -> list[Branch]:
    rows: list[list[Branch]] = []
    for branch in branches:
        if rows and _follows(rows[-1][-1], branch):
            first = rows[-1][0]
            # Leaves are never merged unless they are equal: their own numbers would be lost.
            if apart is None or (first.inside and abs(first.value - branch.value) <= apart * first.value):
                rows[-1].append(branch)
                continue
        rows.append([branch])
    return [_together(row, f"{row[0].label}–{_split_number(row[-1].label)[1]}") for row in rows]


def _together(row: Sequence[Branch], label: str) -> Branch:
    first = row[0]
    if len(row) == 1:
        return first
    own = None if any(branch.own is None for branch in row) else sum(branch.own or 0 for branch in row)
    inside = tuple(
        _together(parts, parts[0].label) for parts in zip(*(branch.inside for branch in row), strict=True)
    )  # fmt: skip
    paths = tuple(path for branch in row for path in branch.paths)
    is_bound = any(branch.is_bound for branch in row)
    return Branch(first.path, label, own, inside, sum(branch.repeat for branch in row), paths, is_bound, first.alike)


def _follows(first: Branch, other: Branch) -> bool:
    (name, at), (other_name, other_at) = _split_number(first.label), _split_number(other.label)
    return name == other_name and at is not None and other_at == at + 1 and _content(first) == _content(other)


def _content(branch: Branch) -> object:
    return branch.alike, branch.repeat, tuple((part.label, _content(part)) for part in branch.inside)


def _split_number(label: str) -> tuple[str, int | None]:
    match = _NUMBERED.fullmatch(label)
    return (match[1], int(match[2])) if match else (label, None)


def label_of(path: str) -> str:
    """Return the name of a block for display. A path such as `(loss)`, which is no block, loses its parentheses.

    Examples:
        >>> label_of("mlp_0/linear_1"), label_of("(loss)")
        ('linear_1', 'loss')
    """
    last = path.rpartition("/")[2]
    return one_line(name_of(last) if not last.startswith("(") else last.strip("()"))


def path_text(path: str) -> str:
    """Return the path of a block for display. A path such as `(loss)`, which is no block, loses its parentheses.

    Examples:
        >>> path_text("mlp_0/linear_1"), path_text("(loss)")
        ('mlp_0 / linear_1', 'loss')
    """
    return one_line(" / ".join(split_path(path)) if not path.startswith("(") else path.strip("()"))


def strip_numbers(path: str) -> str:
    """Replace the numbers in a path by `#`, except in the last name of a nested path.

    Equal blocks inside a stack then have the same path.

    Examples:
        >>> strip_numbers("block_11/norm_1"), strip_numbers("linear_0")
        ('block_#/norm_1', 'linear_#')
    """
    above, _, last = path.rpartition("/")
    return f"{_NUMBERS.sub('#', above)}/{last}" if above else _NUMBERS.sub("#", last)


def hues_of(data: Data) -> dict[str, int]:
    """Return the colour of each block by path, as an index into the palette, 0 to 7.

    If the data have `hues`, these colours are returned, so that a block has the same colour in all pictures of a
    program.
    """
    if "hues" in data:
        return dict(data["hues"])
    return hues_of_blocks(str(path) for path in data["by_block"])


def hue_or_grey(path: str, hues: Mapping[str, int]) -> int:
    """Return the hue of a block, or of the nearest block around it that has one; else `NO_HUE`, which is grey."""
    hue = hue_of(path, hues)
    return NO_HUE if hue is None else hue
