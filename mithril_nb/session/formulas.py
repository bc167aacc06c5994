"""By which formula the FLOPs of a block are counted: all of it in numbers, its terms in letters, and both as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mithril_nb.cost import Cost, CostRow
from mithril_nb.cost.formulas.letters import meaning
from mithril_nb.viz.costs.formulas import short_formula
from mithril_nb.viz.escape import one_line
from mithril_nb.viz.text import columns

MOST_TERMS = 8
"""How many terms of a block are shown: a composite block has as many as its parts together."""

NOTHING = "no equation of the program came from it: there is nothing to count"
ONLY_MOVES = "its equations only move data, or give it another name"


@dataclass(frozen=True)
class Term:
    """Equations of a block that are counted alike.

    Attributes:
        formula: What one of them takes, in letters; `""` if nobody knows.
        letters: What the letters stand for.
        times: How often they run, all of them together; `None` if nobody knows.
        role: Which part of a step they belong to; `None` where the block has a part in one alone.
        opcodes: What they do.
        flops: What they take together; `None` if nobody knows.
        why: Why nobody knows, or `""`.
    """

    formula: str
    letters: tuple[tuple[str, int | str], ...]
    times: int | None
    role: str | None
    opcodes: tuple[str, ...]
    flops: int | None
    why: str = ""

    def __str__(self) -> str:
        return "  ".join(part.strip() for part in self.in_columns if part)

    @property
    def in_columns(self) -> tuple[str, ...]:
        """The same as text: how often and by which formula, with which letters, its sum, what it is."""
        times = "? × " if self.times is None else f"{self.times:,} × " if self.times != 1 else ""
        formula = one_line(self.formula) and f"{times}{one_line(self.formula)}"
        letters = ", ".join(f"{letter}={told(value)}" for letter, value in self.letters)
        what = ", ".join((*self.opcodes, *([self.role] if self.role else [])))
        found = f"not known: {self.why}" if self.flops is None else f"{self.flops:,} FLOP"
        return formula, one_line(letters), found, one_line(what)


@dataclass(frozen=True)
class BlockFormula:
    """By which formula the FLOPs of a block, with all blocks inside it, are counted.

    Attributes:
        block: Path of the block.
        version: Version of the design.
        short: The formula as `Cost.formula` gives it, cut to what fits a line.
        whole: All of it; `""` if there is none.
        terms: What it is added up from, the dearest first.
        legend: What the letters of its terms mean: pairs of letter and words.
        left: How many terms are not among them.
        left_flops: What those take together; `None` if nobody knows.
        why: Why there is no formula, or no term, or `""`.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from mithril_nb.stages import inspect
        >>> array = jax.ShapeDtypeStruct((8, 16), "float32"), jax.ShapeDtypeStruct((16, 4), "float32")
        >>> print(formula_of(inspect(lambda x, w: jnp.dot(x, w) + 1, *array).cost(), ""))
        the program: 2·8·4·16 + 32
            2·B·M·N·K  B=1, M=8, N=4, K=16  1,024 FLOP  dot_general
            n          n=32                    32 FLOP  add
            B: batch, M: rows of the left, N: columns of the right, K: summed over, n: items of the result
    """

    block: str
    version: int = 0
    short: str = ""
    whole: str = ""
    terms: tuple[Term, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()
    left: int = 0
    left_flops: int | None = 0
    why: str = ""

    def __str__(self) -> str:
        name = one_line(self.block) or "the program"
        title = f"{name}: {'; '.join(part for part in (one_line(self.whole), self.why) if part)}"
        lines = columns([one.in_columns for one in self.terms], right=frozenset({2})).splitlines()
        if self.left:
            lines.append(f"and {self.left} more: {_sum(self.left_flops)}")
        if self.legend:
            lines.append(", ".join(f"{letter}: {words}" for letter, words in self.legend))
        return "\n".join([title, *(f"    {line}" for line in lines)])

    def to_dict(self) -> dict[str, Any]:
        """Return the same as a page shows it, with its text."""
        return {**asdict(self), "text": str(self)}


def formula_of(cost: Cost, block: str, version: int = 0) -> BlockFormula:
    """Return by which formula the FLOPs of a block are counted.

    Args:
        cost: Costs by our rules: XLA's have no formulas.
        block: Path of the block, those inside it included; `""` is the whole program.
        version: Version of the design that they are of.
    """
    inside = [row for row in cost.rows if _is_inside(row, block)]
    if not inside:
        return BlockFormula(block, version, why=NOTHING)
    whole = cost.formula(block)
    terms = sorted(_terms(inside), key=lambda term: (term.flops is not None, -(term.flops or 0)))
    left = terms[MOST_TERMS:]
    left_flops = None if any(term.flops is None for term in left) else sum(term.flops or 0 for term in left)
    shown, why = tuple(terms[:MOST_TERMS]), "" if terms else ONLY_MOVES
    short, legend = short_formula(whole), _legend(shown)
    return BlockFormula(block, version, short, whole, shown, legend, len(left), left_flops, why)


def told(value: int | str) -> str:
    """Return what a letter stands for: a number in groups of three digits, or the name of a size."""
    return f"{value:,}" if isinstance(value, int) else value


def _sum(flops: int | None) -> str:
    return "not known" if flops is None else f"{flops:,} FLOP"


def _is_inside(row: CostRow, block: str) -> bool:
    return not block or any(f"{path}/".startswith(f"{block}/") for path, _ in row.blocks)


def _terms(rows: Sequence[CostRow]) -> list[Term]:
    """Return the terms of rows: those alike together, and none for what takes nothing."""
    found: dict[Any, list[CostRow]] = {}
    has_roles = len({row.role for row in rows}) > 1
    for row in rows:
        if row.flops != 0 or row.transcendentals != 0:
            found.setdefault((row.formula, row.letters, row.role if has_roles else None, row.unknown), []).append(row)
    return [
        Term(
            "" if formula == why else formula.removesuffix(f"; {why}"),
            letters,
            _added(row.repeats for row in alike),
            role,
            tuple(dict.fromkeys(row.opcode for row in alike)),
            _added(row.flops for row in alike),
            why,
        )
        for (formula, letters, role, why), alike in found.items()
    ]


def _legend(terms: Iterable[Term]) -> tuple[tuple[str, str], ...]:
    """Return what each letter means, in the order of the terms; all of it where it means several things."""
    found: dict[str, dict[str, None]] = {}
    for term in terms:
        for letter, _ in term.letters:
            found.setdefault(letter, {}).update(dict.fromkeys(meaning(letter, opcode) for opcode in term.opcodes))
    return tuple((letter, " or ".join(filter(None, words))) for letter, words in found.items())


def _added(values: Iterable[int | None]) -> int | None:
    found = [*values]
    return None if None in found else sum(one or 0 for one in found)
