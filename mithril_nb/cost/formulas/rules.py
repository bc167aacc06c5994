"""The cost of one equation: a rule for each primitive, which needs only shapes and params.

A rule has a formula, such as `2·B·M·N·K`, and a function that returns the values of the letters for an equation. The
docstring of the function states what is counted. The formula is both evaluated and displayed. If sizes are symbolic,
its value is a polynomial in these sizes.

The rules count as in the literature: one FLOP for each element of an elementwise result, two for each multiply-add, and
transcendental functions separately. Moving data costs bytes but no FLOPs. XLA's HloCostAnalysis mostly counts the same.
Where XLA counts differently, the rule may also have XLA's formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import wraps
from math import floor
from typing import Any, TypeVar

from mithril_nb.cost.formulas.communication import sent_by
from mithril_nb.cost.formulas.parsing import parse, substituted
from mithril_nb.cost.formulas.sizes import bytes_of, bytes_sum, count
from mithril_nb.cost.formulas.symbols import Expression, UndecidedError
from mithril_nb.figures import COUNTED, OF_XLA, SENT
from mithril_nb.stages.records import Equation, quick_replace
from mithril_nb.stages.trace.params import KERNEL, PARTITIONED

Letters = Mapping[str, Expression]
"""A dict from each letter of a formula to its value: a number, or a polynomial in symbolic sizes."""


@dataclass(frozen=True)
class Formula:
    """The cost of one run of an equation as a formula.

    Attributes:
        flops: The formula for FLOPs: `"2·B·M·N·K"`.
        letters: The values of the letters for this equation.
        transcendentals: The formula for transcendentals.
        once: If JAX lowers the equation to a loop, the formula for FLOPs with one iteration, as XLA counts. `None` if
            it is the same as `flops`.
        note: Short remark shown after the formula.
        xla: XLA's formula for FLOPs; `None` if it is the same, or if XLA has no count.
        typical: If the number of FLOPs depends on values, the quantity that it depends on, such as
            `"the number of QR steps"`. The formula is then a typical number. Else `""`.
        products: The formula for the FLOPs of matrix products and convolutions in `flops`; `None` if unknown.

    Examples:
        >>> found = Formula("2·n", {"n": 60}, "n")
        >>> found, found.value(found.flops)
        (2·n + n transcendentals, 120)
    """

    flops: str
    letters: Letters = field(default_factory=dict[str, Expression])
    transcendentals: str = "0"
    once: str | None = None
    note: str = ""
    xla: str | None = None
    typical: str = ""
    products: str | None = "0"

    def __repr__(self) -> str:
        parts = [self.flops] if self.flops != "0" or self.transcendentals == "0" else []
        parts += [f"{self.transcendentals} transcendentals"] if self.transcendentals != "0" else []
        return " + ".join(parts) + (f": {self.note}" if self.note else "")

    def value(self, text: str) -> Expression:
        """Return the value of a formula, such as `self.flops`, for the values of `letters`."""
        return substituted(text, self.letters)


@dataclass(frozen=True)
class Rule:
    """The cost rule of one primitive.

    Attributes:
        general: The formula without values for its letters.
        find: A function that returns the formula of an equation. If the cost is unknown, it returns the reason as text,
            or `None` if there is no reason.
        moved: A function that returns the bytes that an equation reads and writes; `None` for the bytes of all operands
            and results.
        reason: For a primitive without a formula, why its cost is unknown; else `""`.
        others: A function that returns further figures of an equation, by key; they replace those of `other_figures`.
    """

    general: Formula
    find: Callable[[Equation], Formula | str | None]
    moved: Callable[[Equation], Expression | None] | None = None
    reason: str = ""
    others: Callable[[Equation], Mapping[str, Expression | None]] | None = None

    @property
    def formula(self) -> str:
        """The formula as text."""
        return repr(self.general)


Finding = TypeVar("Finding", bound=Callable[[Equation], "Letters | Formula | str | None"])

RULES: dict[str, Rule] = {}
"""A dict from the name of a primitive to its rule. The rule for complex operands has the key name + `OF_COMPLEX`."""
USER_RULES: dict[str, Rule] = {}
"""A dict from the name of a primitive to the rule of `ml.register_cost`, which takes precedence over `RULES`."""
OF_COMPLEX = " of complex"


def rule(
    *primitives: str,
    flops: str,
    transcendentals: str = "0",
    once: str | None = None,
    note: str = "",
    xla: str | None = None,
    typical: str = "",
    is_product: bool = False,
    moved: Callable[[Equation], Expression | None] | None = None,
) -> Callable[[Finding], Finding]:
    """Return a decorator that registers a function as the rule of some primitives.

    The function takes an equation. It returns a dict with the values of the letters in the formula, or another
    `Formula` for this equation. If the cost is unknown, it returns the reason as text, or `None` if there is no reason.
    `Formula` and `Rule` document the arguments. `is_product` is true for matrix products and convolutions, whose FLOPs
    are all multiply-adds.
    """

    def register(letters: Finding) -> Finding:
        @wraps(letters)
        def find(equation: Equation) -> Formula | str | None:
            result = letters(equation)
            if result is None or isinstance(result, str):
                return result
            if not isinstance(result, Formula):
                result = quick_replace(general, letters=result)
            return quick_replace(result, products=result.flops) if is_product else result

        products = flops if is_product else "0"
        general = Formula(flops, {}, transcendentals, once, note, xla, typical, products)
        _register(Rule(general, find, moved), primitives)
        return letters

    return register


def complex_rule(*primitives: str, **options: Any) -> Callable[[Finding], Finding]:
    """Register the rule of some primitives for complex operands; the options are those of `rule`."""
    return rule(*(f"{primitive}{OF_COMPLEX}" for primitive in primitives), **options)


def estimated(estimate: Sequence[int]) -> Formula:
    """Return the formula of an author's `cost_estimate`: FLOPs and transcendentals."""
    return Formula(str(estimate[0]), {}, str(estimate[1]), note="its cost_estimate", products=None)


def opaque(reason: str, *primitives: str) -> None:
    """Register primitives of unknown cost. An equation with the author's `cost_estimate` has this cost."""

    def find(equation: Equation) -> Formula | str:
        """The author's `cost_estimate`; without one, the cost is unknown."""
        estimate: Any = equation.param.get("estimate")
        return estimated(estimate) if estimate else reason

    _register(Rule(Formula("0", note=reason), find, reason=reason), primitives)


def _register(new_rule: Rule, primitives: Iterable[str]) -> None:
    for primitive in primitives:
        if primitive in RULES:
            raise ValueError(f"{primitive!r} has a rule already: which of two is used would depend on import order")
        RULES[primitive] = new_rule


def rule_of(equation: Equation) -> Rule | None:
    """Return the rule of an equation; `None` if there is none."""
    name = equation.primitive
    if name in USER_RULES:
        return USER_RULES[name]
    is_complex = any(spec.dtype.startswith("complex") for spec in equation.inputs)
    general = (is_complex and RULES.get(name + OF_COMPLEX)) or RULES.get(name)
    return general or (RULES["call_hi_primitive"] if any(key == KERNEL for key, _ in equation.params) else None)


NO_RULE = "no rule"
NO_SIZE = "size unknown"
NOT_SENT = "the bytes sent to other devices are unknown"
NOT_COUNTED = "not counted"


@dataclass(frozen=True)
class EquationCost:
    """The cost of one run of an equation.

    Attributes:
        figures: The cost by key: a number, a polynomial in symbolic sizes, or `None` if unknown. The keys are those of
            figures, `"once"` for the value of `Formula.once`, and `"products"` for the FLOPs of matrix products and
            convolutions.
        formula: The formula as text, or the reason why the cost is unknown or 0.
        rule: The formula; `None` if the cost is not computed by a formula.
    """

    figures: Mapping[str, Expression | None]
    formula: str
    rule: Formula | None = None

    @property
    def letters(self) -> Letters:
        """The values of the letters in our formulas; letters that are only in XLA's formula are left out."""
        if self.rule is None:
            return {}
        names = parse(self.rule.flops).names | parse(self.rule.transcendentals).names
        return {letter: value for letter, value in self.rule.letters.items() if letter in names}

    def why_unknown(self, key: str) -> str:
        """Return why a figure is unknown."""
        return NOT_SENT if key in SENT else self.formula if key in OF_XLA else NOT_COUNTED


def has_cost(equation: Equation) -> bool:
    """Return whether an equation has a cost row: all but calls, kernels, and calls around which XLA reshards arrays."""
    return not equation.is_call or equation.primitive == "pallas_call" or (PARTITIONED, True) in equation.params


def counted(equation: Equation) -> EquationCost:
    """Return the cost of one run of an equation."""
    cost, user = _computed(equation), USER_RULES.get(equation.primitive)
    figures = {**dict.fromkeys(COUNTED, None if equation.is_used else 0), **cost.figures}
    if equation.is_used:
        with suppress(UndecidedError):
            figures |= {**other_figures(equation, cost), **(user.others(equation) if user and user.others else {})}
    return quick_replace(cost, figures=figures)


def other_figures(equation: Equation, cost: EquationCost) -> dict[str, Expression | None]:
    """Return the figures of an equation that the formulas of primitives do not count.

    Args:
        equation: The equation, which is used.
        cost: Its other figures: FLOPs, transcendentals and bytes.
    """
    payload, wire = sent_by(equation, bytes_of)
    return {"payload_bytes": payload, "wire_bytes": wire}


def _cost(
    flops: Expression | None,
    transcendentals: Expression | None,
    moved: Expression | None,
    text: str,
    rule: Formula | None = None,
    *,
    once: Expression | None = None,
    products: Expression | None = None,
) -> EquationCost:
    figures = {"flops": flops, "transcendentals": transcendentals, "bytes_accessed": moved}
    return EquationCost({**figures, "once": once, "products": products}, text, rule)


def _computed(equation: Equation) -> EquationCost:
    found_rule = rule_of(equation)
    find_moved = None if found_rule is None else found_rule.moved
    if equation.is_call:
        moved = known(find_moved, equation) if find_moved else 0
        return _cost(0, 0, moved, "0: the equations inside the call are counted", once=0, products=0)
    # The operands of a kernel's equations are blocks on the chip; the bytes of `pallas_call` are read and written.
    moved = 0 if "pallas" in equation.transforms else known(find_moved or all_bytes, equation)
    if not equation.is_used:
        return _cost(0, 0, moved, "0: unused", once=0, products=0)
    if found_rule is None:
        return _cost(None, None, moved, NO_RULE)
    # The rule of a user counts even if XLA folds the equation.
    if equation.primitive not in USER_RULES and is_folded(equation):
        return _cost(0, 0, moved, "0: folded by XLA", once=0, products=0)
    try:
        formula = found_rule.find(equation)
        if formula is None or isinstance(formula, str):
            return _cost(None, None, moved, f"{NO_RULE}: {formula}" if formula else NO_RULE)
        flops, transcendentals = (_rounded(formula.value(text)) for text in (formula.flops, formula.transcendentals))
        once = flops if formula.once is None else _rounded(formula.value(formula.once))
        products = 0 if flops == 0 else None if formula.products is None else _rounded(formula.value(formula.products))
    except UndecidedError as error:
        products = 0 if found_rule.general.products == "0" else None
        return _cost(None, None, moved, f"{NO_SIZE}: {error}", products=products)
    return _cost(flops, transcendentals, moved, repr(formula), formula, once=once, products=products)


def _rounded(value: Expression | Fraction) -> Expression:
    # `n³/3` is a fraction for most `n`.
    return floor(value + Fraction(1, 2)) if isinstance(value, Fraction) else value


def known(find: Callable[[Equation], Expression | None], equation: Equation) -> Expression | None:
    """Return a value computed from an equation; `None` if it depends on unknown sizes."""
    try:
        return find(equation)
    except UndecidedError:
        return None


def items(equation: Equation) -> Expression:
    """Return the number of elements of the first result; 0 if there is no result."""
    return count(equation.outputs[0]) if equation.outputs else 0


def is_folded(equation: Equation) -> bool:
    """Return whether XLA's constant folding removes an equation.

    XLA removes `x + 0`, `x - 0`, `x * 1`, selections by a constant, and equations of the primitives in `_FOLDED` whose
    operands are all constants.
    """
    constants = equation.constants
    name = equation.primitive
    if name not in _FOLDED:
        return False
    if name == "select_n":
        return constants[0] is not None
    if None not in constants:
        return bool(constants)
    if name in ("add", "add_any"):
        return 0.0 in constants
    if name == "mul":
        return 1.0 in constants
    return name == "sub" and constants[1] == 0.0


_FOLDED = frozenset(
    "add add_any sub mul div max min neg abs exp log sqrt rsqrt integer_pow pow square eq ne lt le gt ge and "
    "or not select_n convert_element_type".split()
)


def all_bytes(equation: Equation) -> Expression | None:
    """Return the bytes of all operands and results, which an equation reads and writes if nothing is fused."""
    return bytes_sum(*equation.inputs, *equation.outputs)


def no_bytes(equation: Equation) -> int:
    """Return 0, for equations whose result is an alias of the operand."""
    return 0


def of_items(equation: Equation) -> Letters:
    """Return the letter `n`, the number of elements of the first result."""
    return {"n": items(equation)}


def without_arithmetic(
    *primitives: str, note: str, moved: Callable[[Equation], Expression | None] | None = None
) -> None:
    """Register primitives with 0 FLOPs. `note` and `moved` are as in `rule`."""
    rule(*primitives, flops="0", note=note, moved=moved)(_no_letters)


def _no_letters(equation: Equation) -> Letters:
    """No arithmetic: `0`."""
    return {}


def elementwise(flops: int, transcendentals: int, note: str, *primitives: str) -> None:
    """Register rules with a fixed number of FLOPs and transcendentals for each element of the result."""
    each = {0: "0", 1: "n"}
    texts = [each.get(factor, f"{factor}·n") for factor in (flops, transcendentals)]
    rule(*primitives, flops=texts[0], transcendentals=texts[1], note=note)(of_items)
