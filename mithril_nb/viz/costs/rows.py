"""Which rows a table of costs has: equal blocks of a stack as one, groups with their sums, small ones together.

However many rows there are, those without rows below them and what is unattributed add up to the total.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mithril_nb.viz.costs.blocks import Branch, path_text, times, tree_of, unnumbered
from mithril_nb.viz.costs.fields import CALLS, Data, unknown_in
from mithril_nb.viz.costs.formulas import COMMUNICATION, added, value_of

MOST_ROWS = 40
"""About as many as a notebook shows without a scroll bar of its own."""
_FEWEST_OPENED = 3
"""A group is not opened for fewer rows than these."""
_MOST_NAMES = 8
_APART = 0.25
"""How much of its FLOPs a layer may have more or less than the first of its stack."""
_OWN, _PROGRAM = "(self)", "program"
_FIGURES = ("flops", "transcendentals", "bytes_accessed", "params", *COMMUNICATION)
_UNKNOWN = ("unknown", "unknown_bytes", "unknown_communication", CALLS)


@dataclass(frozen=True, eq=False)
class Row:
    """A row: a block, a group of blocks, or what is left of them.

    Attributes:
        path: The block that gives it its hue; `None` if it stands for several.
        label: What it is called below the row it stands under.
        about: What it is called in full.
        paths: The blocks whose costs it adds up.
        depth: How many rows stand around it.
        closed: How many rows it has below it that are not shown.
        inside: The rows below it.
    """

    path: str | None
    label: str
    about: str
    paths: tuple[str, ...] = field(repr=False)
    depth: int = 0
    closed: int = 0
    inside: tuple[Row, ...] = field(default=(), repr=False)

    @property
    def told(self) -> str:
        """Its label, with how many rows it keeps to itself."""
        return f"{self.label} ({self.closed} inside)" if self.closed else self.label


def flat_rows(paths: Iterable[str]) -> list[Row]:
    """Return a row for each block, by its path."""
    return [Row(path, path_text(path), path, (path,)) for path in paths]


def folded_rows(sources: Sequence[Mapping[str, Data]], figure: str = "flops", most: int = MOST_ROWS) -> list[Row]:
    """Return the rows of a table, each around those below it.

    Args:
        sources: What each block costs by itself, by one or several ways of counting. The first one that knows a block
            says which it is equal to, and how large it is.
        figure: By which of the figures blocks are large or small.
        most: How many rows there may be. If there are more, the layers of a stack are one row even if a compiler has
            made them a little different; a group of which no more than a few rows would be shown stays closed.

    Examples:
        >>> one, head = {"flops": 5}, {"flops": 3}
        >>> rows = folded_rows([{"block_0/up": one, "block_1/up": one, "block_1/mlp/down": one, "head": head}])
        >>> [(row.depth, row.label) for row in rows]
        [(0, 'block_0 / up'), (0, 'block_1'), (1, 'up'), (1, 'mlp / down'), (0, 'head')]
        >>> [row.label for row in folded_rows([{"a_0/up": one, "a_1/up": one}])]
        ['a_0–1 ×2 / up']
        >>> [row.label for row in folded_rows([dict.fromkeys(["a", "b", "c", "d"], one)], most=3)]
        ['a', 'b', 'and 2 smaller']
    """
    by_block: dict[str, Data] = {}
    for known in sources:
        by_block |= {path: figures for path, figures in known.items() if path not in by_block}

    def equal(path: str) -> Hashable:
        figures = by_block.get(path, {})
        roles = tuple((role, of.get("flops")) for role, of in figures.get("roles", {}).items())
        formulas = tuple(figures.get("formulas", {}).items())
        return *(figures.get(key) for key in (*_FIGURES, *_UNKNOWN)), roles, formulas

    def built_alike(path: str) -> Hashable:
        return by_block.get(path, {}).get("params")

    branches = tree_of({"by_block": by_block}, "flops", alike=equal)
    if sum(1 for _ in branches.walk()) > most:
        branches = tree_of({"by_block": by_block}, "flops", alike=built_alike, apart=_APART)
    tree = _row(branches, sources)
    sizes: dict[Row, tuple[bool, float, float]] = {}

    def size(row: Row) -> tuple[bool, float, float]:
        if row not in sizes:
            sizes[row] = _size(summed([by_block[path] for path in row.paths]), figure)
        return sizes[row]

    opened = _opened(tree, most, size)
    return list(_shown(tree, 0, opened, size))


def summed(parts: Sequence[Data], total: Data | None = None) -> Data:
    """Return what several blocks cost together.

    What is known is added up; a sum of which nothing is known is `None`, unless all of it is 0.

    Args:
        parts: What each costs.
        total: What the program costs. If a figure of that has no value, as a size has none, a sum has none either
            beside a part that has none.

    Examples:
        >>> summed([{"flops": 2, "unknown": 0}, {"flops": None, "unknown": 1}])["flops"]
        2
    """
    if len(parts) == 1:
        return parts[0]

    def of(key: str) -> int | None:
        values = [one.get(key, 0 if key in COMMUNICATION else None) for one in parts]
        known = sum(value for value in values if value)
        is_open = None in values and (not known or (total is not None and total.get(key) is None))
        return None if is_open else known

    spans = [one["time_s"] for one in parts if one.get("time_s") is not None]
    roles = dict.fromkeys(role for one in parts for role in one.get("roles", {}))
    formulas = {key: formula for key in _FIGURES if (formula := added([value_of(one, key) for one in parts]))}
    return {
        **{key: of(key) for key in _FIGURES},
        "time_s": math.fsum(spans) if spans else None,
        **{key: sum(unknown_in(one, key) for one in parts) for key in _UNKNOWN},
        "roles": {
            role: {"flops": sum(one.get("roles", {}).get(role, {}).get("flops") or 0 for one in parts)}
            for role in roles
        },
        **({"formulas": formulas} if formulas else {}),
    }  # fmt: skip


def share_of(part: Data, rest: Iterable[Data], total: Data) -> tuple[float | None, str]:
    """Return the share that several blocks have of the FLOPs, and which bound it is, as `Cost.share_of` does.

    Args:
        part: What they cost together.
        rest: What each of the others costs, and what is unattributed.
        total: What the program costs.
    """
    whole, known = total.get("flops"), part.get("flops")
    if not total.get("unknown"):
        return (known or 0) / whole if whole else 0.0, ""
    is_elsewhere = any(one.get("unknown") for one in rest)
    if known is None or not whole or (part.get("unknown") and is_elsewhere):
        return None, ""
    share = known / whole
    is_exact = share == 1.0 if part.get("unknown") else share == 0.0
    return share, "" if is_exact else "≥" if part.get("unknown") else "≤"


def _row(branch: Branch, sources: Sequence[Mapping[str, Data]], around: int = 1) -> Row:
    """Return a branch as a row with all rows below it; one that is around another alone is told with it."""
    own = tuple(path for path in branch.paths if any(path in known for known in sources))
    label = times(branch.label, branch.repeat // around)
    about = path_text(branch.path) + (f", and {branch.repeat - 1} like it" if branch.repeat > 1 else "")
    inside = [_row(one, sources, branch.repeat) for one in branch.inside]
    if inside and any(_is_something(known[path]) for known in sources for path in own if path in known):
        is_all = not branch.path
        inside.insert(
            0,
            Row(branch.path, _PROGRAM if is_all else _OWN, f"{about or _PROGRAM}, without the blocks inside", own),
        )  # fmt: skip
        own = ()
    if len(inside) == 1 and branch.path:
        only = inside[0]
        return Row(only.path, f"{label} / {only.label}", only.about, own + only.paths, inside=only.inside)
    every = own + tuple(path for one in inside for path in one.paths)
    return Row(branch.path, label, about, every, inside=tuple(inside))


def _is_something(figures: Data) -> bool:
    """Whether a block costs something by itself; parameters that nobody knows of may be anybody's."""
    counted = any(figures.get(key, 0) != 0 for key in _FIGURES if key != "params")
    return counted or bool(figures.get("params")) or bool(figures.get("time_s"))


def _size(figures: Data, figure: str) -> tuple[bool, float, float]:
    """Return how large a row is, to be compared: one that is unknown may be the largest."""
    value = figures.get(figure)
    is_unknown = figure != "time_s" and (value is None or bool(figures.get("unknown")))
    return is_unknown, value or 0, figures.get("bytes_accessed") or 0


def _opened(tree: Row, most: int, size: Callable[[Row], tuple[bool, float, float]]) -> dict[Row, int]:
    """Return how many rows are shown below each: the outer ones first, and those of a stack as many for each."""
    opened = {tree: min(len(tree.inside), most)}
    left = most - len(tree.inside)
    level = list(tree.inside)
    while level and left > 0:
        stacks: dict[str, list[Row]] = {}
        for row in level:
            if row.inside:
                stacks.setdefault(unnumbered(f"{row.path}/"), []).append(row)
        level = []
        for stack in sorted(stacks.values(), key=lambda rows: max(size(row) for row in rows), reverse=True):
            wanted = sum(len(row.inside) for row in stack)
            each = max(len(row.inside) for row in stack) if wanted <= left else left // len(stack)
            if wanted > left and each < _FEWEST_OPENED:
                continue
            for row in stack:
                opened[row] = min(each, len(row.inside))
                left -= opened[row]
                level += row.inside if opened[row] == len(row.inside) else ()
    return opened


def _shown(
    row: Row, depth: int, opened: Mapping[Row, int], size: Callable[[Row], tuple[bool, float, float]]
) -> Iterator[Row]:  # fmt: skip
    """Yield the rows below a row, and below those."""
    count = opened[row]
    kept = set(row.inside)
    if count < len(row.inside):
        kept = set(sorted(row.inside, key=size, reverse=True)[: count - 1])
    for one in row.inside:
        if one not in kept:
            continue
        closed = 0 if one in opened else len(one.inside)
        yield Row(one.path, one.label, one.about, one.paths, depth, closed, one.inside if one in opened else ())
        if one in opened:
            yield from _shown(one, depth + 1, opened, size)
    rest = [one for one in row.inside if one not in kept]
    if rest:
        names = ", ".join(one.label for one in rest[:_MOST_NAMES]) + (" …" if len(rest) > _MOST_NAMES else "")
        what = "more" if any(size(one)[0] for one in rest) else "smaller"
        paths = tuple(path for one in rest for path in one.paths)
        yield Row(None, f"and {len(rest)} {what}", names, paths, depth)
