"""Rows of a table of costs: a tree of blocks, in which equal blocks share a row, and small blocks share a row.

A row with rows inside shows their sum. The innermost rows and the unattributed costs add up to the total.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mithril_nb import figures as table
from mithril_nb.display import AT_LEAST
from mithril_nb.figures import FIGURES, MEASURED, OF_BLOCKS, SENT, UNKNOWN, Figure
from mithril_nb.viz.costs.blocks import Branch, path_text, strip_numbers, tree_of
from mithril_nb.viz.costs.fields import Data
from mithril_nb.viz.text import times

_WIDEST = 40
"""Longest formula in a cell, in characters. Longer formulas are shortened."""


def value_of(figures: Mapping[str, Any], key: str) -> Any:
    """Return a cost: a number, or a formula if it depends on symbolic sizes, or `None` if it is unknown.

    Missing payload and wire bytes are 0, because most programs send no data to other devices.

    Examples:
        >>> value_of({"flops": None, "formulas": {"flops": "2·B"}}, "flops"), value_of({"params": 3}, "params")
        ('2·B', 3)
        >>> value_of({"flops": 5}, "wire_bytes"), value_of({"wire_bytes": None}, "wire_bytes")
        (0, None)
    """
    value = figures.get(key, 0 if key in SENT else None)
    return figures.get("formulas", {}).get(key) if value is None else value


def short_formula(formula: str) -> str:
    """Return as many terms of a formula as fit into a cell, at least one, and then `…` for the others.

    Examples:
        >>> short_formula("2·B·I·O + B·O"), short_formula("24·batch·time·width² + 4·batch·time²·width + 9·batch·time")
        ('2·B·I·O + B·O', '24·batch·time·width² + …')
    """
    if len(formula) <= _WIDEST:
        return formula
    terms = formula.split(" + ")
    kept = 1
    while kept < len(terms) and len(" + ".join(terms[: kept + 1])) <= _WIDEST:
        kept += 1
    return " + ".join([*terms[:kept], "…"]) if kept < len(terms) else formula


def add_formulas(parts: Sequence[str | int | None]) -> str:
    """Return the sum of formulas and numbers as a formula; `""` if no part is a formula.

    The sum is a lower bound, marked by `"≥ "`, if a part is a lower bound or unknown (`None`).

    Examples:
        >>> add_formulas(["2·B·I + B", 5, "B"]), add_formulas(["≥ B", "B"]), add_formulas([3, 4])
        ('2·B·I + 2·B + 5', '≥ 2·B', '')
    """
    formulas = [part for part in parts if isinstance(part, str)]
    if not formulas:
        return ""
    # `mithril_nb.cost` imports JAX. Tables without formulas must not need JAX.
    from mithril_nb.cost.formulas.parsing import parse
    from mithril_nb.cost.formulas.symbols import total

    numbers = sum(part for part in parts if isinstance(part, int))
    whole = total([numbers, *(parse(formula.removeprefix(AT_LEAST)) for formula in formulas)])
    is_bound = None in parts or any(formula.startswith(AT_LEAST) for formula in formulas)
    return f"{AT_LEAST if is_bound else ''}{whole}"


MOST_ROWS = 40
"""Largest number of rows, which a notebook shows without a scroll bar."""
_FEWEST_OPENED = 3
"""A group without room for all its rows is opened only if at least this many rows can be shown."""
_MOST_NAMES = 8
_APART = 0.25
"""Blocks of a stack are merged if their FLOPs differ from those of the first block by at most this fraction."""
_OWN, _PROGRAM = "(self)", "program"
_FIGURES = tuple(key for key in FIGURES if key in OF_BLOCKS and key not in MEASURED)


@dataclass(frozen=True, eq=False)
class Row:
    """A row of the table: a block, several equal blocks, a block with blocks inside, or several small blocks.

    Attributes:
        path: Path of the block whose colour the row has; `None` for several small blocks.
        label: Name of the block, without the names of the blocks around it.
        about: Full name of the block, or names of the small blocks, for a tooltip.
        paths: Paths of all blocks whose costs are in the row.
        depth: Indentation of the row: 0 for top-level blocks.
        closed: Number of rows inside that are not shown; 0 if they are shown.
        inside: The rows inside, if they are shown.
    """

    path: str | None
    label: str
    about: str
    paths: tuple[str, ...] = field(repr=False)
    depth: int = 0
    closed: int = 0
    inside: tuple[Row, ...] = field(default=(), repr=False)

    @property
    def title(self) -> str:
        """The label, and the number of rows inside that are not shown."""
        return f"{self.label} ({self.closed} inside)" if self.closed else self.label


def flat_rows(paths: Iterable[str]) -> list[Row]:
    """Return one row for each block, without indentation."""
    return [Row(path, path_text(path), path, (path,)) for path in paths]


def folded_rows(sources: Sequence[Mapping[str, Data]], figure: str = "flops", most: int = MOST_ROWS) -> list[Row]:
    """Return the rows of a table. The rows inside a row follow it.

    If there are more than `most` rows, three further steps shorten the table. Blocks of a stack are merged even if
    their FLOPs differ slightly, as after compilation; small blocks share a row; and the content of some blocks is not
    shown.

    Args:
        sources: For each source, the costs of blocks by path, without the blocks inside them. If several sources
            contain a block, the first one decides about the size of the block and about merging.
        figure: Name of the cost by which blocks are large or small.
        most: Largest number of rows.

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
        return *(figures.get(key) for key in (*_FIGURES, *UNKNOWN)), roles, formulas

    def built_alike(path: str) -> Hashable:
        return by_block.get(path, {}).get("params")

    branches = tree_of({"by_block": by_block}, "flops", alike=equal)
    if sum(1 for _ in branches.walk()) > most:
        branches = tree_of({"by_block": by_block}, "flops", alike=built_alike, apart=_APART)
    tree = _row(branches, sources)
    sizes: dict[Row, tuple[bool, float, float]] = {}

    def size(row: Row) -> tuple[bool, float, float]:
        if row not in sizes:
            sizes[row] = _size(sum_figures([by_block[path] for path in row.paths]), figure)
        return sizes[row]

    opened = _opened(tree, most, size)
    return list(_shown(tree, 0, opened, size))


def sum_figures(parts: Sequence[Data], total: Data | None = None) -> Data:
    """Return the sums of the costs of several blocks: one sum for FLOPs, one for bytes, and so on.

    An unknown cost, `None`, counts as 0. The sum is `None` if some blocks have unknown costs and the others cost 0.

    Args:
        parts: Costs of each block.
        total: Costs of the program. If a cost is `None` here, it depends on a symbolic size. A sum with an unknown
            part is then `None`.

    Examples:
        >>> sum_figures([{"flops": 2, "unknown": 0}, {"flops": None, "unknown": 1}])["flops"]
        2
    """
    if len(parts) == 1:
        return parts[0]

    def of(figure: Figure) -> Any:
        values = [one.get(figure.key, 0 if figure.is_sent else None) for one in parts]
        return figure.add(values, all_known=total is not None and total.get(figure.key) is None)

    roles = dict.fromkeys(role for one in parts for role in one.get("roles", {}))
    formulas = {key: formula for key in _FIGURES if (formula := add_formulas([value_of(one, key) for one in parts]))}
    return {
        **{key: of(FIGURES[key]) for key in (*_FIGURES, *MEASURED)},
        **{of.unknown: sum(map(of.unknown_in, parts)) for of in FIGURES.values() if of.unknown},
        "roles": {
            role: {"flops": sum(one.get("roles", {}).get(role, {}).get("flops") or 0 for one in parts)}
            for role in roles
        },
        **({"formulas": formulas} if formulas else {}),
    }  # fmt: skip


def share_of(part: Data, rest: Iterable[Data], total: Data) -> tuple[float | None, str]:
    """Return the share of some blocks in the FLOPs of a program, and its bound, as `Cost.share_of` does.

    The share is `None` if it is unknown. The bound is `"≥"` for a lower bound, `"≤"` for an upper bound, and `""` if
    the share is exact.

    Args:
        part: Sum of the costs of these blocks.
        rest: Costs of the other blocks, and the unattributed cost.
        total: Costs of the program.
    """
    is_elsewhere = any(one.get("unknown") for one in rest)
    return table.share_of(part.get("flops"), total.get("flops"), bool(part.get("unknown")), is_elsewhere)


def _row(branch: Branch, sources: Sequence[Mapping[str, Data]], around: int = 1) -> Row:
    """Return a branch as a row with all rows inside. If there is only one row inside, both become one row.

    Args:
        branch: The branch.
        sources: For each source, the costs of blocks by path, without the blocks inside them.
        around: Number of equal blocks in the row around this one. The label of this row counts only the blocks in one
            of them.
    """
    own = tuple(path for path in branch.paths if any(path in known for known in sources))
    label = times(branch.label, branch.repeat // around)
    about = path_text(branch.path) + (f", and {branch.repeat - 1} like it" if branch.repeat > 1 else "")
    inside = [_row(one, sources, branch.repeat) for one in branch.inside]
    if inside and any(_has_cost(known[path]) for known in sources for path in own if path in known):
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


def _has_cost(figures: Data) -> bool:
    """Return whether a block has a cost that is not 0. Unknown costs count, except parameters and time."""
    counted = any(figures.get(key, 0) != 0 for key in _FIGURES if key != "params")
    return counted or bool(figures.get("params")) or bool(figures.get("time_s"))


def _size(figures: Data, figure: str) -> tuple[bool, float, float]:
    """Return a key that sorts rows by size. Rows with unknown costs count as the largest."""
    value = figures.get(figure)
    is_unknown = figure != "time_s" and (value is None or bool(figures.get("unknown")))
    return is_unknown, value or 0, figures.get("bytes_accessed") or 0


def _opened(tree: Row, most: int, size: Callable[[Row], tuple[bool, float, float]]) -> dict[Row, int]:
    """Return how many rows to show inside each row. Rows without an entry stay closed.

    Outer rows are opened first, and among them the largest: `size` returns the key by which rows are sorted. Equal
    blocks of a stack are opened together, with the same number of rows.
    """
    opened = {tree: min(len(tree.inside), most)}
    left = most - len(tree.inside)
    level = list(tree.inside)
    while level and left > 0:
        stacks: dict[str, list[Row]] = {}
        for row in level:
            if row.inside:
                stacks.setdefault(strip_numbers(f"{row.path}/"), []).append(row)
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
    """Yield the rows to show inside a row. The rows inside each of them follow it."""
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
