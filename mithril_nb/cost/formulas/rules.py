"""What one equation costs: a rule for each primitive, from shapes and plain params alone.

A rule gives a formula and what its letters stand for; the formula that is shown is the one that is computed. Sizes that
have names and no numbers make it a polynomial in them.

The rules count as XLA's HloCostAnalysis does on the lowered module: one FLOP for each item that an elementwise op
makes, two for each multiply-add, transcendental functions apart. Moving data costs nothing here; it costs bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from math import prod
from typing import Any, TypeVar

from mithril_nb.cost.formulas.symbols import Expression, UndecidedError, parse, substituted
from mithril_nb.graph.spec import ITEM_BYTES, TensorSpec
from mithril_nb.stages.jax_versions import ASIN_FLOPS
from mithril_nb.stages.records import Equation


@dataclass(frozen=True)
class Work:
    """What something computes each time it runs.

    Attributes:
        flops: Arithmetic operations.
        transcendentals: Calls of `exp`, `tanh`, `sqrt`, ...
        once: FLOPs if a loop that JAX hides in its lowering is counted once, as XLA does; by default the same.
    """

    flops: int
    transcendentals: int = 0
    once: int | None = None


Letters = Mapping[str, Expression]
"""What the letters of a formula stand for: numbers, or polynomials in sizes that have only names."""


@dataclass(frozen=True)
class Formula:
    """How much an equation computes each time it runs, in letters.

    Attributes:
        flops: Its FLOPs, as text that `symbols.parse` reads: `"2·B·M·N·K"`.
        letters: What the letters stand for in this equation.
        transcendentals: Its transcendentals.
        once: Its FLOPs if a loop that JAX hides in its lowering is counted once; by default the same.
        note: What to know of it besides.

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

    def __repr__(self) -> str:
        parts = [self.flops] if self.flops != "0" or self.transcendentals == "0" else []
        parts += [f"{self.transcendentals} transcendentals"] if self.transcendentals != "0" else []
        return " + ".join(parts) + (f": {self.note}" if self.note else "")

    def value(self, text: str) -> Expression:
        """Return the value of one of its texts."""
        return substituted(text, self.letters)

    @property
    def work(self) -> Work:
        """The same in numbers.

        Raises:
            UndecidedError: It depends on a size without a number.
        """
        once = None if self.once is None else int(self.value(self.once))
        return Work(int(self.value(self.flops)), int(self.value(self.transcendentals)), once)


@dataclass(frozen=True)
class Rule:
    """How to cost one primitive.

    Attributes:
        general: The formula in symbols; `n` is the number of items in the result.
        find: Finds the formula of an equation; `None` if nobody knows.
        moved: Computes the bytes read and written; by default all operands and all results.
    """

    general: Formula
    find: Callable[[Equation], Formula | None]
    moved: Callable[[Equation], Expression | None] | None = None

    @property
    def formula(self) -> str:
        """The formula as text."""
        return repr(self.general)


Finding = TypeVar("Finding", bound=Callable[[Equation], "Letters | Formula | None"])

RULES: dict[str, Rule] = {}
"""The rule of each primitive, by name; with `OF_COMPLEX` behind it that of complex numbers, if it is another."""
OF_COMPLEX = " of complex"


def rule(
    *primitives: str,
    flops: str,
    transcendentals: str = "0",
    once: str | None = None,
    note: str = "",
    moved: Callable[[Equation], Expression | None] | None = None,
) -> Callable[[Finding], Finding]:
    """Register a function as the rule of some primitives.

    It is given an equation, and returns what the letters of the formula stand for in it; or another formula, where the
    formula depends on more than letters; or `None` if nobody knows what the equation costs.

    Args:
        *primitives: Their names.
        flops: The formula of the FLOPs in symbols.
        transcendentals: The formula of the transcendentals.
        once: As in `Formula`.
        note: As in `Formula`.
        moved: Computes the bytes read and written, if they are not simply all operands and results.
    """

    def register(letters: Finding) -> Finding:
        @wraps(letters)
        def find(equation: Equation) -> Formula | None:
            found = letters(equation)
            if found is None or isinstance(found, Formula):
                return found
            return Formula(flops, found, transcendentals, once, note)

        general = Formula(flops, {}, transcendentals, once, note)
        RULES.update((primitive, Rule(general, find, moved)) for primitive in primitives)
        return letters

    return register


def rule_of(equation: Equation) -> Rule | None:
    """Return the rule of an equation, or `None` if there is none."""
    name = equation.primitive
    is_complex = any(spec.dtype.startswith("complex") for spec in equation.inputs)
    return (is_complex and RULES.get(name + OF_COMPLEX)) or RULES.get(name)


def size(spec: TensorSpec) -> int:
    """Return the number of items of a spec whose dims are all numbers."""
    return prod(int(dim) for dim in spec.shape)


def count(spec: TensorSpec) -> Expression:
    """Return the number of items of a spec."""
    return times(as_size(dim) for dim in spec.shape)


def times(factors: Iterable[Expression]) -> Expression:
    """Return the product."""
    product: Expression = 1
    for factor in factors:
        product = product * factor
    return product


def length(spec: TensorSpec, axis: int) -> Expression:
    """Return the size of one axis."""
    return as_size(spec.shape[axis])


def as_size(dim: Any) -> Expression:
    """Return a dim, or a param that is a size: its number, or the polynomial that its text tells of.

    Raises:
        UndecidedError: The text tells of none, as `"..."`.
    """
    return parse(dim) if isinstance(dim, str) else int(dim)


def nbytes(spec: TensorSpec) -> int | None:
    """Return the size in bytes; `None` if a dim is symbolic, or the dtype is one of which nobody knows how long it is.

    Tokens have no bytes, random keys two words, dtypes that are not in the table what their name says.

    Examples:
        >>> nbytes(TensorSpec((4,), "float32")), nbytes(TensorSpec((), "key<fry>")), nbytes(TensorSpec((3,), "int4"))
        (16, 8, 2)
        >>> nbytes(TensorSpec(("batch", 4), "float32")), nbytes(TensorSpec((4,), "opaque"))
        (None, None)
    """
    found = bytes_of(spec) if spec.is_concrete else 0 if spec.dtype == "token" else None
    return found if isinstance(found, int) else None


def bytes_of(spec: TensorSpec) -> Expression | None:
    """Return the size in bytes, as `nbytes`; a polynomial if a dim is symbolic.

    Examples:
        >>> bytes_of(TensorSpec(("batch", 4), "float32")), bytes_of(TensorSpec(("batch", 3), "int4"))
        (16·batch, floor((12·batch + 7)/8))
    """
    if spec.dtype == "token":
        return 0
    item = ITEM_BYTES.get(spec.dtype, 8 if spec.dtype.startswith("key<") else None)
    if item is not None:
        return item * count(spec)
    digits = "".join(char for char in spec.dtype.split("_")[0] if char.isdigit())
    return (int(digits) * count(spec) + 7) // 8 if digits else None


def sum_of(*values: int | None) -> int | None:
    """Return the sum; `None` if one of them is not known.

    Examples:
        >>> sum_of(1, 2), sum_of(1, None), sum_of()
        (3, None, 0)
    """
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def repeated(each: int | None, repeats: int | None) -> int | None:
    """Return what something costs in all its runs; `None` if it costs something, and how much or how often is unknown.

    Examples:
        >>> repeated(3, 2), repeated(3, None), repeated(None, 2), repeated(0, None), repeated(None, 0)
        (6, None, None, 0, 0)
    """
    if each == 0 or repeats == 0:
        return 0
    return None if each is None or repeats is None else each * repeats


def bytes_sum(*specs: TensorSpec) -> Expression | None:
    """Return the bytes of several specs together; `None` if one of them is not known."""
    whole: Expression = 0
    for spec in specs:
        found = bytes_of(spec)
        if found is None:
            return None
        whole = whole + found
    return whole


NO_RULE = "no rule"
NO_SIZE = "size unknown"


@dataclass(frozen=True)
class Counted:
    """What one run of an equation costs: numbers, polynomials where it depends on sizes with names, `None` if unknown.

    Attributes:
        flops: FLOPs.
        transcendentals: Transcendentals.
        once: FLOPs, a loop that JAX hides in its lowering counted once.
        bytes: Bytes read and written.
        formula: How the FLOPs are computed, or why they are not known.
        rule: The same in letters, if a rule says so.
    """

    flops: Expression | None
    transcendentals: Expression | None
    once: Expression | None
    bytes: Expression | None
    formula: str
    rule: Formula | None = None

    @property
    def letters(self) -> Letters:
        """What the letters of the formula stand for."""
        return {} if self.rule is None else self.rule.letters


def counted(equation: Equation) -> Counted:
    """Return what one run of an equation costs."""
    moved = _known(bytes_moved, equation)
    found = rule_of(equation)
    if not equation.is_used:
        return Counted(0, 0, 0, moved, "0: nothing needs it")
    if found is None:
        return Counted(None, None, None, moved, NO_RULE)
    if is_folded(equation):
        return Counted(0, 0, 0, moved, "0: XLA folds it")
    try:
        formula = found.find(equation)
        if formula is None:
            return Counted(None, None, None, moved, NO_RULE)
        flops, transcendentals = formula.value(formula.flops), formula.value(formula.transcendentals)
        once = flops if formula.once is None else formula.value(formula.once)
    except UndecidedError as error:
        return Counted(None, None, None, moved, f"{NO_SIZE}: {error}")
    return Counted(flops, transcendentals, once, moved, repr(formula), formula)


def _known(find: Callable[[Equation], Expression | None], equation: Equation) -> Expression | None:
    try:
        return find(equation)
    except UndecidedError:
        return None


def items(equation: Equation) -> Expression:
    """Return the number of items in the results."""
    return count(equation.outputs[0]) if equation.outputs else 0


def is_folded(equation: Equation) -> bool:
    """Whether XLA folds it away at once: an operation on constants alone, `x + 0`, `x - 0`, `x * 1`."""
    known = equation.constants
    name = equation.primitive
    if name not in _FOLDED:
        return False
    if name == "select_n":
        return known[0] is not None
    if None not in known:
        return bool(known)
    if name in ("add", "add_any"):
        return 0.0 in known
    if name == "mul":
        return 1.0 in known
    return name == "sub" and known[1] == 0.0


_FOLDED = frozenset(
    "add add_any sub mul div max min neg abs exp log sqrt rsqrt integer_pow pow square eq ne lt le gt ge and "
    "or not select_n convert_element_type".split()
)


def bytes_moved(equation: Equation) -> Expression | None:
    """Return the bytes that an equation reads and writes if nothing is fused."""
    found = rule_of(equation)
    if found is not None and found.moved is not None:
        return found.moved(equation)
    return bytes_sum(*equation.inputs, *equation.outputs)


def no_bytes(equation: Equation) -> int:
    """Return 0: the result is the operand under another name."""
    return 0


def of_items(equation: Equation) -> Letters:
    """The letter `n` stands for the number of items in the result."""
    return {"n": items(equation)}


def elementwise(flops: int, transcendentals: int, note: str, *primitives: str) -> None:
    """Register rules of so many operations for each item of the result.

    Args:
        flops: FLOPs for each item.
        transcendentals: Transcendentals for each item.
        note: As in `Formula`.
        *primitives: The names of the primitives.
    """
    each = {0: "0", 1: "n"}
    texts = [each.get(factor, f"{factor}·n") for factor in (flops, transcendentals)]
    rule(*primitives, flops=texts[0], transcendentals=texts[1], note=note)(of_items)


elementwise(
    1, 0, "",
    "add", "add_any", "sub", "mul", "div", "rem", "max", "min", "neg", "sign", "abs", "floor", "ceil", "round",
    "is_finite", "square", "eq", "ne", "lt", "le", "gt", "ge", "eq_to", "lt_to", "le_to", "and", "or", "xor", "not",
    "shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count", "clz", "clamp", "complex",
    "real", "imag", "bitcast_convert_type", "reduce_precision", "mulhi",
)  # fmt: skip
elementwise(
    0, 1, "",
    "exp", "log", "expm1", "log1p", "tanh", "sin", "cos", "tan", "atan", "atan2", "sqrt", "rsqrt", "cbrt", "erf",
)  # fmt: skip
# What JAX or XLA writes out in simpler ops; measured on the lowered module.
elementwise(3, 1, "1 / (1 + exp(-x))", "logistic")
elementwise(1, 1, "exp(x log 2)", "exp2")
elementwise(3, 2, "written out", "acos", "cosh")
elementwise(ASIN_FLOPS, 2, "written out", "asin")
elementwise(10, 3, "written out", "sinh")
elementwise(11, 3, "written out", "asinh")
elementwise(7, 4, "written out", "acosh")
elementwise(6, 2, "written out", "atanh")
elementwise(62, 1, "a polynomial", "erfc")
elementwise(37, 2, "a polynomial", "erf_inv")
elementwise(24, 0, "bit by bit", "nextafter")
elementwise(4, 0, "", "conj")
elementwise(3, 0, "(1 - x)·(1 + x)", "one_minus_square")  # a primitive since JAX 0.12


@rule(
    "broadcast_in_dim", "transpose", "rev", "concatenate", "pad", "slice", "split", "iota", "tile", "device_put",
    "empty2", "empty", "full", "stack",
    flops="0", note="moves data",
)  # fmt: skip
def movement(equation: Equation) -> Letters:
    """Moving data takes no arithmetic: `0`."""
    return {}


@rule(
    "reshape", "squeeze", "expand_dims", "copy", "stop_gradient", "name", "optimization_barrier", "random_wrap",
    "random_unwrap", "random_clone", "reshard", "sharding_constraint", "mesh_cast", "pvary", "pcast", "create_token",
    "platform_index",
    flops="0", note="another name", moved=no_bytes,
)  # fmt: skip
def renaming(equation: Equation) -> Letters:
    """What gives the same bytes another name takes nothing: `0`."""
    return {}


@rule("debug_callback", "debug_print", flops="0", note="the host prints it")
def printing(equation: Equation) -> Letters:
    """What is printed while a program runs is only handed to the host: `0`."""
    return {}


@rule("dim_as_value", flops="0", note="a size, known when it is compiled", moved=no_bytes)
def size_as_value(equation: Equation) -> Letters:
    """A size that has a name is a number by the time anything runs: `0`."""
    return {}


@rule("convert_element_type", flops="n", note="0 if the dtype stays")
def convert(equation: Equation) -> Formula:
    """One conversion for each item: `n`."""
    stays = equation.inputs[0].dtype == equation.outputs[0].dtype
    return Formula("0", note="the dtype stays") if stays else Formula("n", of_items(equation))


@rule("pow", flops="0", transcendentals="n")
def power(equation: Equation) -> Letters | Formula:
    """One power for each item; an integer exponent is converted first: `n` transcendentals."""
    if equation.inputs[0].dtype == equation.inputs[1].dtype:
        return of_items(equation)
    return Formula("n", of_items(equation), "n", note="the exponent is converted")


@rule("integer_pow", flops="k·n", note="k = floor(log2 |y|) + ones(|y|) - 1 + [y < 0]")
def integer_power(equation: Equation) -> Formula:
    """Squaring and multiplying along the bits of `y`; one division if it is negative."""
    exponent = equation.param["y"]
    assert isinstance(exponent, int)
    if exponent == 0:
        return Formula("0", note="x^0 is 1")
    steps = abs(exponent).bit_length() - 1 + abs(exponent).bit_count() - 1 + (exponent < 0)
    return Formula("k·n", {"k": steps, **of_items(equation)}, note=f"k operations for x^{exponent}")


@rule("polynomial", flops="2·(k - 1)·n", note="k coefficients")
def polynomial(equation: Equation) -> Letters:
    """Horner's rule: a product and a sum for each coefficient but the first. JAX 0.12's exp and erf are made of it."""
    return {"k": len(equation.inputs) - 1, **of_items(equation)}


@rule("select_n", flops="n", note="2·(cases - 1)·n if numbers select")
def select(equation: Equation) -> Formula:
    """One selection for each item; where numbers select, cases are chosen one by one, each with a comparison."""
    cases = len(equation.inputs) - 1
    if cases < 2:
        return Formula("0", note="there is no choice")
    if equation.inputs[0].dtype == "bool":
        return Formula("n", of_items(equation))
    return Formula("2·(cases - 1)·n", {"cases": cases, **of_items(equation)})
