"""Rows of a table of costs: a tree of blocks, in which equal blocks share a row, and small blocks share a row.

A row with rows inside shows their sum. The innermost rows and the unattributed costs add up to the total.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mithril_nb import figures as table
from mithril_nb.display import AT_LEAST
from mithril_nb.figures import FIGURES, MEASURED, OF_BLOCKS, SENT, UNKNOWN, Figure
from mithril_nb.viz.costs.blocks import Branch, path_text, strip_numbers, tree_of
from mithril_nb.viz.costs.fields import Data
from mithril_nb.viz.text import times

# Longest formula in a cell, in characters. Longer formulas are shortened.
_WIDEST = 40


def value_of(figures: Mapping[str, Any], key: str) -> Any:
    """Return a cost: a number, or a formula if it depends on symbolic sizes, or `None` if it is unknown.

    Missing payload and wire bytes are 0, because most programs send no data to other devices.
    """
    value = figures.get(key, 0 if key in SENT else None)
    return figures.get("formulas", {}).get(key) if value is None else value


def short_formula(formula: str) -> str:
    """Return as many terms of a formula as fit into a cell, at least one, and then `…` for the others."""
    if len(formula) <= _WIDEST:
        return formula
    terms = formula.split(" + ")
    count = 1
    while count < len(terms) and len(" + ".join(terms[: count + 1])) <= _WIDEST:
        count += 1
    return " + ".join([*terms[:count], "…"]) if count < len(terms) else formula


def add_formulas(parts: Sequence[str | int | None]) -> str:
    """Return the sum of formulas and numbers as a formula; `""` if no part is a formula.

    The sum is a lower bound, marked by `"≥ "`, if a part is a lower bound or unknown (`None`).
    """
    formulas = [part for part in parts if isinstance(part, str)]
    if not formulas:
        return ""
    # `mithril_nb.cost` imports JAX. Tables without formulas must not need JAX.
    from mithril_nb.cost.formulas.parsing import parse
    from mithril_nb.cost.formulas.symbols import total

    numbers = sum(part for part in parts if isinstance(part, int))
    summed = total([numbers, *(parse(formula.removeprefix(AT_LEAST)) for formula in formulas)])
    is_bound = None in parts or any(formula.startswith(AT_LEAST) for formula in formulas)
    return f"{AT_LEAST if is_bound else ''}{summed}"


# Largest number of rows, which a notebook shows without a scroll bar.
MOST_ROWS = 40
# A group without room for all its rows is opened only if at least this many rows can be shown.
_FEWEST_OPENED = 3
_MOST_NAMES = 8
# Blocks of a stack are merged if their FLOPs differ from those of the first block by at most this fraction.
_APART = 0.25
_OWN, _PROGRAM = "(self)", "program"
_FIGURES = tuple(key for key in FIGURES if key in OF_BLOCKS and key not in MEASURED)


# Rows are keys of dicts: a hash by value would visit all rows inside, again and again.
@dataclass(frozen=True, eq=False)
class TableRow:
    """A row of the table: a block, several equal blocks, a block with blocks inside, or several small blocks."""

    path: str | None
    label: str
    about: str
    paths: tuple[str, ...] = field(repr=False)
    depth: int = 0
    closed: int = 0
    inside: tuple[TableRow, ...] = field(default=(), repr=False)

    @property
    def title(self) -> str:
        """The label, and the number of rows inside that are not shown."""
        return f"{self.label} ({self.closed} inside)" if self.closed else self.label


def flat_rows(paths: Iterable[str]) -> list[TableRow]:
    """Return one row for each block, without indentation."""
    return [TableRow(path, path_text(path), path, (path,)) for path in paths]


def folded_rows(sources: Sequence[Mapping[str, Data]], figure: str = "flops", most: int = MOST_ROWS) -> list[TableRow]:
    """Return the rows of a table. The rows inside a row follow it.

    If there are more than `most` rows, three further steps shorten the table. Blocks of a stack are merged even if
    their FLOPs differ slightly, as after compilation; small blocks share a row; and the content of some blocks is not
    shown.
    """
    by_block: dict[str, Data] = {}
    for source in sources:
        # A block may be missing in a source, as one that XLA removed.
        by_block |= {path: figures for path, figures in source.items() if path not in by_block}

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
    sizes: dict[TableRow, tuple[bool, float, float]] = {}

    def size(row: TableRow) -> tuple[bool, float, float]:
        if row not in sizes:
            sizes[row] = _size(sum_figures([by_block[path] for path in row.paths]), figure)
        return sizes[row]

    opened = _opened(tree, most, size)
    return list(_shown(tree, 0, opened, size))


def sum_figures(parts: Sequence[Data], total: Data | None = None) -> Data:
    """Return the sums of the costs of several blocks: one sum for FLOPs, one for bytes, and so on.

    An unknown cost, `None`, counts as 0. The sum is `None` if some blocks have unknown costs and the others cost 0.
    """
    if len(parts) == 1:
        return parts[0]

    def of(figure: Figure) -> Any:
        values = [figures.get(figure.key, 0 if figure.is_sent else None) for figures in parts]
        return figure.add(values, all_known=total is not None and total.get(figure.key) is None)

    roles = dict.fromkeys(role for figures in parts for role in figures.get("roles", {}))
    formulas = {
        key: formula for key in _FIGURES if (formula := add_formulas([value_of(figures, key) for figures in parts]))
    }
    return {
        **{key: of(FIGURES[key]) for key in (*_FIGURES, *MEASURED)},
        **{of.unknown: sum(map(of.unknown_in, parts)) for of in FIGURES.values() if of.unknown},
        "roles": {
            role: {"flops": sum(figures.get("roles", {}).get(role, {}).get("flops") or 0 for figures in parts)}
            for role in roles
        },
        **({"formulas": formulas} if formulas else {}),
    }  # fmt: skip


def share_of(part: Data, rest: Iterable[Data], total: Data) -> tuple[float | None, str]:
    """Return the share of some blocks in the FLOPs of a program, and its bound, as `Cost.share_of` does.

    The share is `None` if it is unknown. The bound is `"≥"` for a lower bound, `"≤"` for an upper bound, and `""` if
    the share is exact.
    """
    is_elsewhere = any(figures.get("unknown") for figures in rest)
    return table.share_of(part.get("flops"), total.get("flops"), bool(part.get("unknown")), is_elsewhere)


# If there is only one row inside, both become one row.
def _row(branch: Branch, sources: Sequence[Mapping[str, Data]], around: int = 1) -> TableRow:
    own = tuple(path for path in branch.paths if any(path in source for source in sources))
    label = times(branch.label, branch.repeat // around)
    about = path_text(branch.path) + (f", and {branch.repeat - 1} like it" if branch.repeat > 1 else "")
    inside = [_row(child, sources, branch.repeat) for child in branch.inside]
    if inside and any(_has_cost(source[path]) for source in sources for path in own if path in source):
        is_all = not branch.path
        inside.insert(
            0,
            TableRow(branch.path, _PROGRAM if is_all else _OWN, f"{about or _PROGRAM}, without the blocks inside", own),
        )  # fmt: skip
        own = ()
    if len(inside) == 1 and branch.path:
        only = inside[0]
        return TableRow(only.path, f"{label} / {only.label}", only.about, own + only.paths, inside=only.inside)
    all_paths = own + tuple(path for child in inside for path in child.paths)
    return TableRow(branch.path, label, about, all_paths, inside=tuple(inside))


def _has_cost(figures: Data) -> bool:
    counted = any(figures.get(key, 0) != 0 for key in _FIGURES if key != "params")
    return counted or bool(figures.get("params")) or any(figures.get(key) for key in MEASURED)


def _size(figures: Data, figure: str) -> tuple[bool, float, float]:
    value = figures.get(figure)
    is_unknown = figure not in MEASURED and (value is None or bool(figures.get("unknown")))
    return is_unknown, value or 0, figures.get("bytes_accessed") or 0


# Outer rows are opened first, and among them the largest. Equal blocks of a stack are opened together, with the same
# number of rows.
def _opened(tree: TableRow, most: int, size: Callable[[TableRow], tuple[bool, float, float]]) -> dict[TableRow, int]:
    opened = {tree: min(len(tree.inside), most)}
    left = most - len(tree.inside)
    level = list(tree.inside)
    while level and left > 0:
        stacks: dict[str, list[TableRow]] = {}
        for row in level:
            if row.inside:
                stacks.setdefault(strip_numbers(f"{row.path}/"), []).append(row)
        level = []
        for stack in sorted(stacks.values(), key=lambda rows: max(size(row) for row in rows), reverse=True):
            needed = sum(len(row.inside) for row in stack)
            each = max(len(row.inside) for row in stack) if needed <= left else left // len(stack)
            if needed > left and each < _FEWEST_OPENED:
                continue
            for row in stack:
                opened[row] = min(each, len(row.inside))
                left -= opened[row]
                level += row.inside if opened[row] == len(row.inside) else ()
    return opened


def _shown(
    row: TableRow, depth: int, opened: Mapping[TableRow, int], size: Callable[[TableRow], tuple[bool, float, float]]
) -> Iterator[TableRow]:  # fmt: skip
    count = opened[row]
    visible = set(row.inside)
    if count < len(row.inside):
        visible = set(sorted(row.inside, key=size, reverse=True)[: count - 1])
    for child in row.inside:
        if child not in visible:
            continue
        closed = 0 if child in opened else len(child.inside)
        yield replace(child, depth=depth, closed=closed, inside=child.inside if child in opened else ())
        if child in opened:
            yield from _shown(child, depth + 1, opened, size)
    rest = [child for child in row.inside if child not in visible]
    if rest:
        names = ", ".join(child.label for child in rest[:_MOST_NAMES]) + (" …" if len(rest) > _MOST_NAMES else "")
        word = "more" if any(size(child)[0] for child in rest) else "smaller"
        paths = tuple(path for child in rest for path in child.paths)
        yield TableRow(None, f"and {len(rest)} {word}", names, paths, depth)
