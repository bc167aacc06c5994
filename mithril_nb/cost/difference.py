"""Differences between two counts of a program, by primitive or opcode. Each loop counts as one iteration, as in XLA."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mithril_nb.cost.comparison import one_sided
from mithril_nb.cost.formulas.rules import OF_COMPLEX, RULES
from mithril_nb.cost.records import CostRow, format_change, format_sum, known_sum
from mithril_nb.cost.totals import CostTotals
from mithril_nb.display import Shown, columns

_FIELDS = {"flops": "FLOPs", "transcendentals": "transcendentals", "bytes_accessed": "bytes"}
_ROUNDING = 1e-6
"""A relative difference up to this counts as rounding: XLA sums in float32."""

_CONVENTIONS = {
    "conditional": "XLA also counts the operands, and takes each kind of cost from the branch where it is largest; "
    "we count one branch",
    "custom-call": "XLA counts -1 for each one without a cost_estimate; we leave it out",
}
"""How XLA's HloCostAnalysis differs from our rules for instructions, by opcode."""
_CONVENTIONS_OF_EQUATIONS = {
    "abs": "for complex numbers, XLA counts one operation or those of the expansion; we count sqrt(re² + im²)",
    **dict.fromkeys(
        ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"),
        "XLA counts a window as long as the axis for each element; we count one operation for each element",
    ),
}
"""How XLA's count of lowered equations differs from our rules for equations, by primitive."""


@dataclass(frozen=True)
class DifferenceRow:
    """The two counts for all equations of one primitive, or for all instructions of one opcode.

    "Our" count is that of the `Cost` on which `difference` was called.

    Attributes:
        opcode: The primitive, if equations are compared with instructions. An instruction that comes from no equation
            then has its opcode in parentheses: `"(copy)"`. If instructions are compared with XLA's count, the opcode.
        count: Number of equations or instructions in our count; if there are none, in the other count.
        ours: Our count; `None` if entirely unknown.
        theirs: The other count; `None` if entirely unknown. XLA returns only a total, so its rows have `None`.
        reason: Why the two counts differ, or why our count is partly unknown; `""` if no reason is known.
    """

    opcode: str
    count: int
    ours: int | None
    theirs: int | None
    reason: str = ""


@dataclass(frozen=True)
class Difference(Shown):
    """The difference between two counts of a program. In both, each loop counts as one iteration.

    "Our" count is that of the `Cost` on which `difference` was called.

    Attributes:
        program: Name of the program.
        ours: Source of our count: `"analytic"`, `"lowered"` or `"compiled"`.
        theirs: Source of the other count: `"lowered"`, `"compiled"`, `"XLA lowered"` or `"XLA compiled"`.
        field: The kind of cost: `"flops"`, `"transcendentals"` or `"bytes_accessed"`.
        our_total: Our total; `None` if unknown.
        their_total: The other total; `None` if unknown.
        rows: The differences by primitive or opcode, in the order of the program.
        devices: A note if only one of the two counts is for all devices together, else `()`.
    """

    program: str
    ours: str
    theirs: str
    field: str
    our_total: int | None
    their_total: int | None
    rows: tuple[DifferenceRow, ...]
    devices: tuple[str, ...] = ()

    @property
    def total(self) -> int | None:
        """Our total minus the other total; `None` if one of them is unknown."""
        return None if self.our_total is None or self.their_total is None else self.our_total - self.their_total

    @property
    def relative(self) -> float | None:
        """`total / their_total`; 0 if both totals are 0. `None` if `total` is unknown, or `their_total` alone is 0."""
        if self.total is None:
            return None
        return self.total / self.their_total if self.their_total else 0.0 if not self.total else None

    @property
    def is_rounding(self) -> bool:
        """True if the difference is so small that it may come from XLA's float32 sums."""
        return self.relative is not None and abs(self.relative) <= _ROUNDING

    @property
    def _is_xla(self) -> bool:
        """True if the other count is XLA's own, which has only a total."""
        return self.theirs.startswith("XLA ")

    @property
    def differing(self) -> tuple[DifferenceRow, ...]:
        """The rows that have a reason, or whose two counts differ. A count may be unknown on one side."""
        return tuple(row for row in self.rows if row.reason or (not self._is_xla and row.ours != row.theirs))

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        own = {key: value for key, value in vars(self).items() if key != "rows"}
        return {**own, "total": self.total, "relative": self.relative, "rows": [dict(vars(row)) for row in self.rows]}

    def __str__(self) -> str:
        noun = _FIELDS[self.field]
        lines = [f"{self.program}: {noun}, {self.ours} against {self.theirs}; each loop counts as one iteration"]
        rows = [("total", "", format_sum(self.our_total), format_sum(self.their_total), format_change(self.total))]
        rows = [
            (row.opcode, str(row.count), format_sum(row.ours), "" if self._is_xla else format_sum(row.theirs),
             "" if row.theirs is None or row.ours is None else format_change(row.ours - row.theirs))
            for row in (self.rows if self._is_xla else self.differing)
        ] + rows  # fmt: skip
        lines.append(columns([("opcode", "count", "ours", "theirs", "difference"), *rows], range(1, 5)))
        if self.total and self.is_rounding:
            lines.append("the total difference is rounding: XLA sums in float32")
        return "\n".join([*lines, *(f"{row.opcode}: {row.reason}" for row in self.rows if row.reason), *self.devices])


def against_xla(cost: CostTotals, field: str = "flops") -> Difference:
    """Return the difference between our count of instructions and XLA's own count of the same module.

    XLA returns only totals, so `theirs` is `None` in each row. If the totals differ, rows of the opcodes in
    `_CONVENTIONS` state a reason.
    """
    key = "bytes" if field == "bytes_accessed" else field
    groups: dict[str, list[CostRow]] = {}
    for row in cost.rows:
        groups.setdefault(row.opcode, []).append(row)
    ours, theirs = getattr(cost.once, key), None if cost.xla is None else getattr(cost.xla, key)
    rows = tuple(
        DifferenceRow(
            opcode, len(rows), _once(rows, field), None,
            _CONVENTIONS[opcode] if theirs != ours and opcode in _CONVENTIONS else _reason_of_unknown(rows, field),
        )
        for opcode, rows in groups.items()
        if _once(rows, field) != 0 or (opcode in _CONVENTIONS and theirs != ours)
    )  # fmt: skip
    name = f"XLA {cost.source}" if cost.xla is None else cost.xla.name
    return Difference(cost.program, cost.source, name, field, ours, theirs, rows)


def between(cost: CostTotals, other: CostTotals, field: str = "flops") -> Difference:
    """Return the difference between the costs of equations and of instructions, by primitive.

    An instruction counts for the primitive of the equation that it comes from. If it comes from several equations, it
    counts for the most expensive of them.
    """
    by_id = {row.id: row for row in cost.rows}
    ours: dict[str, list[CostRow]] = {}
    for row in cost.rows:
        ours.setdefault(row.opcode, []).append(row)
    theirs: dict[str, list[CostRow]] = {}
    for row in other.rows:
        sources = [by_id[id] for id in row.equations if id in by_id]
        # An instruction without an equation. Parentheses distinguish its opcode from a primitive of the same name.
        primitive = max(sources, key=lambda row: _value(row, field) or 0).opcode if sources else f"({row.opcode})"
        theirs.setdefault(primitive, []).append(row)
    present = {id for row in other.rows for id in row.equations}
    rows = []
    for primitive in dict.fromkeys((*ours, *theirs)):
        mine, others = ours.get(primitive, []), theirs.get(primitive, [])
        entry = DifferenceRow(
            primitive, len(mine) or len(others), _once(mine, field), _once(others, field),
            _reason_of_unknown(mine, field),
        )  # fmt: skip
        if not entry.reason and (uncounted := _reason_of_unknown(others, field)):
            entry = replace(entry, reason=f"{other.source}: {uncounted}")
        if entry.ours != entry.theirs and not entry.reason:
            # XLA's passes also remove instructions. In the lowered module, only JAX has removed equations.
            removed = [row for row in mine if row.id not in present] if other.source == "lowered" else []
            entry = replace(entry, reason=_reason_of_removed(entry, removed, field) or _reason_of_rule(primitive, mine))
        if entry.ours != 0 or entry.theirs != 0:
            rows.append(entry)
    key = "bytes" if field == "bytes_accessed" else field
    return Difference(
        cost.program, cost.source, other.source, field, getattr(cost.once, key), getattr(other.once, key), tuple(rows),
        one_sided((cost.source, cost), (other.source, other)),
    )  # fmt: skip


def _reason_of_removed(entry: DifferenceRow, rows: Sequence[CostRow], field: str) -> str:
    """Return the reason that JAX's lowering removes equations; `""` if this does not explain the whole difference."""
    count, cost = sum(_value(row, field) != 0 for row in rows), _once(rows, field)
    if not cost or entry.ours is None or entry.ours - (entry.theirs or 0) != cost:
        return ""
    return f"{count} of these equations, {cost:,} {_FIELDS[field]}, have no instruction: JAX's lowering removes them"


def _reason_of_rule(primitive: str, rows: Iterable[CostRow]) -> str:
    """Return how XLA's rule for a primitive differs from ours for these rows; `""` if it does not."""
    formulas = [row.formula for row in rows]
    if primitive != "abs" or any("re² + im²" in formula for formula in formulas):
        if primitive in _CONVENTIONS_OF_EQUATIONS:
            return _CONVENTIONS_OF_EQUATIONS[primitive]
    is_complex = any("complex" in formula for formula in formulas)
    rule = (is_complex and RULES.get(primitive + OF_COMPLEX)) or RULES.get(primitive)
    if rule is None or rule.general.xla is None:
        return ""
    return f"XLA counts {rule.general.xla}, we count {rule.general.flops}"


def _value(row: CostRow, field: str) -> int | None:
    return None if row.once is None else getattr(row.once, field)


def _once(rows: Iterable[CostRow], field: str) -> int | None:
    return known_sum(_value(row, field) for row in rows)


def _reason_of_unknown(rows: Iterable[CostRow], field: str) -> str:
    """Return why the cost of some rows is unknown; `""` if all are known."""
    unknown = [row for row in rows if _value(row, field) is None]
    if not unknown:
        return ""
    reasons = ", ".join(dict.fromkeys(row.unknown or row.formula for row in unknown))
    return f"{len(unknown)} not counted ({reasons})"
