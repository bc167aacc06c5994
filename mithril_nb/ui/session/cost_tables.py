"""Costs as data for a front end: rows by block and role, single equations, and the formula of a block's FLOPs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NotRequired, TypedDict, cast

from mithril_nb.cost import Cost, CostRow, Figures
from mithril_nb.cost.formulas.parsing import meaning
from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.figures import FIGURES, OF_BLOCKS, SENT
from mithril_nb.stages.records import UNATTRIBUTED
from mithril_nb.viz.costs.tables.rows import short_formula
from mithril_nb.viz.palette import hue_of
from mithril_nb.viz.text import one_line

Role = Literal["forward", "backward", "update"]
Source = Literal["analytic", "lowered", "compiled", "predicted", "measured"]
_OF_ROWS = tuple(key for key in OF_BLOCKS if FIGURES[key].per == "row" and key not in SENT)

# Maximum number of equations or instructions of a block to show.
MOST_ROWS = 20


class CostOfLine(TypedDict):
    """The figures of a line of Python that are known and not 0."""

    unknown: NotRequired[dict[str, int]]  # by figure, the number of equations for which it is unknown


class CostTotal(TypedDict):
    """The figures of a block or a program; communication of 0 bytes is missing."""

    # By figure, the number of equations without it; if above 0, the sum is a lower bound.
    unknown: NotRequired[dict[str, int]]
    # Formulas of figures that depend on symbolic sizes, short and whole.
    formulas: NotRequired[dict[str, tuple[str, str]]]


class CostTableRow(CostTotal):
    """The cost of a block without the blocks inside it."""

    block: str  # "" for the unattributed part
    label: str
    hue: int
    roles: NotRequired[dict[Role, CostOfRole]]
    total: NotRequired[CostTotal]  # with the blocks inside, for a block that contains others


class CostOfRole(TypedDict):
    """The figures in one part of the training step that are known and not 0."""


class CostTableData(TypedDict):
    """The cost of a program by one source. The rows add up to the total; the row of block "" is unattributed."""

    source: Source
    rows: list[CostTableRow]
    total: CostTableRow
    lines: dict[str, CostOfLine]  # of each line of user Python, by `net.py:12`; missing lines are 0 or unknown
    notes: list[str]  # on unknown figures
    stale: bool


class CostDetail(TypedDict):
    """The cost of one equation or instruction."""

    id: str
    opcode: str
    role: Role | None
    repeats: int | None
    formula: str
    share: float  # attributed to the block; a fusion may belong to several blocks
    figures: CostOfRole


class CostDetails(TypedDict):
    """The most expensive equations or instructions of a block."""

    rows: list[CostDetail]
    left: int  # number of further rows


def cost_table(cost: Cost, paths: Sequence[str], hues: Mapping[str, int]) -> CostTableData:
    """Return a table of costs by block, as data."""
    return placed(table_of(cost), paths, hues)


def placed(table: CostTableData, paths: Sequence[str], hues: Mapping[str, int]) -> CostTableData:
    """Return a table with its rows in the order of `paths`, and with these hues. Rows with the same hue are kept."""
    order = {path: at for at, path in enumerate(paths)}
    rows: list[CostTableRow] = []
    for row in table["rows"]:
        hue = hue_of(row["block"], hues)
        number = -1 if hue is None else hue
        rows.append(row if row["hue"] == number else {**row, "hue": number})
    rows.sort(key=lambda row: (row["block"] == UNATTRIBUTED, order.get(row["block"], len(order))))
    return {**table, "rows": rows}


def table_of(cost: Cost) -> CostTableData:
    """Return a table of costs by block, as data. It takes most of the time of an edit, and `placed` does not."""
    by_path = {**dict.fromkeys(cost.by_group, cost.nothing), **cost.by_block}
    if cost.unattributed != cost.nothing:
        by_path[UNATTRIBUTED] = cost.unattributed
    formulas = {} if cost.symbolic is None else cost.symbolic.formulas
    rows = [
        _row(path, figures, cost.by_block_and_role.get(path, {}), formulas.get(path))
        for path, figures in by_path.items()
    ]
    for row in rows:
        if row["block"] in cost.by_group:
            inside = {} if cost.symbolic is None else cost.symbolic.formulas_of(row["block"])
            row["total"] = cast(CostTotal, _figures(cost.by_group[row["block"]], inside))
    return {
        "source": cast(Source, cost.source),
        "rows": rows,
        "total": {**_row(UNATTRIBUTED, cost.total, cost.by_role, formulas.get(None)), "label": "total"},
        "lines": {source: cast(CostOfLine, _line(figures)) for source, figures in cost.by_line.items() if source},
        "notes": list(cost.notes),
        "stale": False,
    }


def _row(
    path: str,
    figures: Figures,
    roles: Mapping[str, Figures],
    formulas: Mapping[str, str] | None,
) -> CostTableRow:
    row = {
        "block": path,
        "label": path or UNATTRIBUTED_LABEL,
        "hue": -1,
        **_figures(figures, formulas),
        "roles": {role: _nonzero_figures(role_figures) for role, role_figures in roles.items() if role},
    }
    return cast(CostTableRow, row)


def _nonzero_figures(figures: Figures) -> dict[str, Any]:
    return {name: value for name in OF_BLOCKS if (value := getattr(figures, name))}


def _line(figures: Figures) -> dict[str, Any]:
    unknown = {name: count for name, count in _unknown(figures).items() if count}
    return {**_nonzero_figures(figures), **({"unknown": unknown} if unknown else {})}


def _unknown(figures: Figures) -> dict[str, int]:
    return {key: figures.unknown_in(key) for key, figure in FIGURES.items() if figure.unknown}


def _figures(figures: Figures, formulas: Mapping[str, str] | None) -> dict[str, Any]:
    unknown = _unknown(figures)
    return {
        # Omit communication of 0 bytes, because most programs do not communicate.
        **{name: value for name in OF_BLOCKS if (value := getattr(figures, name)) != 0 or name not in SENT},
        # With symbolic sizes, costs are formulas; costs that are numbers do not depend on a size.
        "unknown": {name: count for name, count in unknown.items() if count and not formulas},
        **({"formulas": {name: [short_formula(text), text] for name, text in formulas.items()}} if formulas else {}),
    }


def rows_of(cost: Cost, block: str, figure: str) -> CostDetails:
    """Return the most expensive equations or instructions of a block, and how many are left out."""
    own = [row for row in cost.rows if block in dict(row.blocks) or (not row.blocks and not block)]
    by = figure if figure in _OF_ROWS else "flops"
    own.sort(key=lambda row: -(_part(row, block, by) or 0))
    rows: list[CostDetail] = [
        {
            "id": row.id,
            "opcode": row.opcode,
            "role": cast(Role | None, row.role),
            "repeats": row.repeats,
            "formula": row.explained if cost.symbols else row.formula,
            "share": dict(row.blocks).get(block, 1.0),
            "figures": cast(CostOfRole, {name: _part(row, block, name) for name in _OF_ROWS}),
        }
        for row in own[:MOST_ROWS]
    ]
    return {"rows": rows, "left": max(0, len(own) - MOST_ROWS)}


def _part(row: CostRow, block: str, name: str) -> float | None:
    value, share = getattr(row, name), dict(row.blocks).get(block, 1.0)
    return value if value is None or share == 1.0 else value * share


# Maximum number of terms shown. A composite block has the terms of all its parts.
MOST_TERMS = 8

NOTHING = "no equation of the program is attributed to this block"
ONLY_MOVES = "its equations only move or rename data"


@dataclass(frozen=True)
class FormulaTerm:
    """Equations of a block that share one formula."""

    formula: str  # FLOPs of one equation, with letters for sizes, as in `"2·M·N·K"`; `""` if unknown
    letters: tuple[tuple[str, int | str], ...]  # pairs of a letter and its value
    times: int | None  # how often these equations run, in total; `None` if unknown
    # Part of the training step: `"forward"`, `"backward"` or `"update"`; `None` if the block has only one.
    role: str | None
    opcodes: tuple[str, ...]  # opcodes of the equations
    flops: int | None  # total FLOPs of the equations; `None` if unknown
    why: str = ""  # reason if the FLOPs are unknown, or `""`

    def __str__(self) -> str:
        return "  ".join(part.strip() for part in self.in_columns if part)

    @property
    def in_columns(self) -> tuple[str, ...]:
        """Texts of the columns: count and formula, letters, sum, opcodes and role."""
        times = "? × " if self.times is None else f"{self.times:,} × " if self.times != 1 else ""
        formula = one_line(self.formula) and f"{times}{one_line(self.formula)}"
        sizes = ((letter, f"{value:,}" if isinstance(value, int) else value) for letter, value in self.letters)
        letters = ", ".join(f"{letter}={size}" for letter, size in sizes)
        operations = ", ".join((*self.opcodes, *([self.role] if self.role else [])))
        flops = f"unknown: {self.why}" if self.flops is None else f"{self.flops:,} FLOP"
        return formula, one_line(letters), flops, one_line(operations)


@dataclass(frozen=True)
class BlockFormula:
    """The formula for the FLOPs of a block, including all blocks inside it."""

    block: str  # path of the block
    version: int = 0  # version of the design
    short: str = ""  # the first summands of `whole`, as many as fit into one line
    whole: str = ""  # the formula from `Cost.formula`; `""` if there is none
    # Groups of equations with one formula: those with unknown FLOPs first, then the most expensive first.
    terms: tuple[FormulaTerm, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()  # pairs of a letter in the terms and its meaning
    left: int = 0  # number of terms not shown
    left_flops: int | None = 0  # FLOPs of the terms not shown; `None` if unknown
    why: str = ""  # reason if the formula or its terms are missing, or `""`
    text: str = ""  # the formula, terms and legend

    def __str__(self) -> str:
        name = one_line(self.block) or "the program"
        title = f"{name}: {'; '.join(part for part in (one_line(self.whole), self.why) if part)}"
        lines = columns([term.in_columns for term in self.terms], right={2}).splitlines()
        if self.left:
            flops = "unknown" if self.left_flops is None else f"{self.left_flops:,} FLOP"
            lines.append(f"and {self.left} more: {flops}")
        if self.legend:
            lines.append(", ".join(f"{letter}: {words}" for letter, words in self.legend))
        return "\n".join([title, *(f"    {line}" for line in lines)])

    def to_dict(self) -> dict[str, Any]:
        """Return the formula as data for a front end, with its text."""
        return asdict(replace(self, text=str(self)))


def formula_of(cost: Cost, block: str, version: int = 0) -> BlockFormula:
    """Return the formula for the FLOPs of a block, including the blocks inside it."""
    inside = [
        row for row in cost.rows if not block or any(f"{path}/".startswith(f"{block}/") for path, _ in row.blocks)
    ]
    if not inside:
        return BlockFormula(block, version, why=NOTHING)
    formula = cost.formula(block)
    terms = sorted(_terms(inside), key=lambda term: (term.flops is not None, -(term.flops or 0)))
    left = terms[MOST_TERMS:]
    left_flops = _added(term.flops for term in left)
    largest, why = tuple(terms[:MOST_TERMS]), "" if terms else ONLY_MOVES
    short, legend = short_formula(formula), _legend(largest)
    return BlockFormula(block, version, short, formula, largest, legend, len(left), left_flops, why)


def _terms(rows: Sequence[CostRow]) -> list[FormulaTerm]:
    groups: dict[Any, list[CostRow]] = {}
    has_roles = len({row.role for row in rows}) > 1
    for row in rows:
        if row.flops != 0 or row.transcendentals != 0:
            groups.setdefault((row.formula, row.letters, row.role if has_roles else None, row.unknown), []).append(row)
    return [
        FormulaTerm(
            "" if formula == why else formula.removesuffix(f"; {why}"),
            letters,
            _added(row.repeats for row in alike),
            role,
            tuple(dict.fromkeys(row.opcode for row in alike)),
            _added(row.flops for row in alike),
            why,
        )
        for (formula, letters, role, why), alike in groups.items()
    ]


def _legend(terms: Iterable[FormulaTerm]) -> tuple[tuple[str, str], ...]:
    meanings: dict[str, dict[str, None]] = {}
    for term in terms:
        for letter, _ in term.letters:
            meanings.setdefault(letter, {}).update(dict.fromkeys(meaning(letter, opcode) for opcode in term.opcodes))
    return tuple((letter, " or ".join(filter(None, words))) for letter, words in meanings.items())


def _added(values: Iterable[int | None]) -> int | None:
    numbers = [*values]
    return None if None in numbers else sum(number or 0 for number in numbers)
