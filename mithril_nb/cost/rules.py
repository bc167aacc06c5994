"""What one equation costs: a rule for each primitive, from shapes and plain params alone.

The rules count as XLA's HloCostAnalysis does on the lowered module: one FLOP for each item that an elementwise op
makes, two for each multiply-add, transcendental functions apart. Moving data costs nothing here; it costs bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TypeVar

from mithril_nb.graph.spec import ITEM_BYTES, TensorSpec
from mithril_nb.stages.records import Equation


@dataclass(frozen=True)
class Work:
    """What an equation computes each time it runs.

    Attributes:
        flops: Arithmetic operations.
        transcendentals: Calls of `exp`, `tanh`, `sqrt`, ...
        once: FLOPs if a loop that JAX hides in its lowering is counted once, as XLA does; by default the same.
    """

    flops: int
    transcendentals: int = 0
    once: int | None = None


@dataclass(frozen=True)
class Rule:
    """How to cost one primitive.

    Attributes:
        formula: The formula in symbols; `n` is the number of items in the result.
        work: Computes the work of an equation; `None` if nobody knows.
        moved: Computes the bytes read and written; by default all operands and all results.
    """

    formula: str
    work: Callable[[Equation], Work | None]
    moved: Callable[[Equation], int | None] | None = None

    @property
    def is_free(self) -> bool:
        """Whether it costs nothing, whatever the sizes are."""
        return self.formula.startswith("0: ")


Costing = TypeVar("Costing", bound=Callable[[Equation], "Work | None"])

RULES: dict[str, Rule] = {}
"""The rule of each primitive, by name."""


def rule(
    *primitives: str, formula: str, moved: Callable[[Equation], int | None] | None = None
) -> Callable[[Costing], Costing]:
    """Register a function as the rule of some primitives.

    Args:
        *primitives: Their names.
        formula: The formula in symbols.
        moved: Computes the bytes read and written, if they are not simply all operands and results.
    """

    def register(work: Costing) -> Costing:
        for primitive in primitives:
            RULES[primitive] = Rule(formula, work, moved)
        return work

    return register


def has_sizes(equation: Equation) -> bool:
    """Whether every dim of its operands and results is a number; no rule that counts items can do without."""
    return all(spec.is_concrete for spec in (*equation.inputs, *equation.outputs))


def size(spec: TensorSpec) -> int:
    """Return the number of items of a spec whose dims are all numbers (see `has_sizes`)."""
    return prod(int(dim) for dim in spec.shape)


def nbytes(spec: TensorSpec) -> int | None:
    """Return the size in bytes; `None` if a dim is symbolic, or the dtype is one of which nobody knows how long it is.

    Tokens have no bytes, random keys two words, dtypes that are not in the table what their name says.

    Examples:
        >>> nbytes(TensorSpec((4,), "float32")), nbytes(TensorSpec((), "key<fry>")), nbytes(TensorSpec((3,), "int4"))
        (16, 8, 2)
        >>> nbytes(TensorSpec(("batch", 4), "float32")), nbytes(TensorSpec((4,), "opaque"))
        (None, None)
    """
    if spec.dtype == "token":
        return 0
    if spec.size is None:
        return None
    item = ITEM_BYTES.get(spec.dtype)
    if item is not None:
        return item * spec.size
    if spec.dtype.startswith("key<"):
        return 8 * spec.size
    digits = "".join(char for char in spec.dtype.split("_")[0] if char.isdigit())
    return -(-int(digits) * spec.size // 8) if digits else None


def work_of(equation: Equation) -> tuple[Work | None, str]:
    """Return what an equation computes each time it runs, and by which formula; `None` and why, if nobody knows."""
    found = RULES.get(equation.primitive)
    if not equation.is_used:
        return Work(0), "0: nothing needs it"
    if found is None:
        return None, NO_RULE
    if is_folded(equation):
        return Work(0), "0: XLA folds it"
    if not found.is_free and not has_sizes(equation):
        return None, NO_SIZE
    work = found.work(equation)
    return work, NO_RULE if work is None else found.formula


NO_RULE = "no rule"
NO_SIZE = "size unknown"


def sum_of(*values: int | None) -> int | None:
    """Return the sum; `None` if one of them is not known.

    Examples:
        >>> sum_of(1, 2), sum_of(1, None), sum_of()
        (3, None, 0)
    """
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def items(equation: Equation) -> int:
    """Return the number of items in the results."""
    return size(equation.outputs[0]) if equation.outputs else 0


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


def bytes_moved(equation: Equation) -> int | None:
    """Return the bytes that an equation reads and writes if nothing is fused."""
    found = RULES.get(equation.primitive)
    if found is not None and found.moved is not None:
        return found.moved(equation)
    return sum_of(*map(nbytes, (*equation.inputs, *equation.outputs)))


def no_bytes(equation: Equation) -> int:
    """Return 0: the result is the operand under another name."""
    return 0


def _elementwise(flops: int, transcendentals: int, formula: str, *primitives: str) -> None:
    def work(equation: Equation) -> Work:
        count = items(equation)
        return Work(flops * count, transcendentals * count)

    work.__doc__ = formula
    for primitive in primitives:
        RULES[primitive] = Rule(formula, work)


_elementwise(
    1, 0, "n",
    "add", "add_any", "sub", "mul", "div", "rem", "max", "min", "neg", "sign", "abs", "floor", "ceil", "round",
    "is_finite", "square", "eq", "ne", "lt", "le", "gt", "ge", "eq_to", "lt_to", "le_to", "and", "or", "xor", "not",
    "shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count", "clz", "clamp", "complex",
    "real", "imag", "bitcast_convert_type", "reduce_precision", "mulhi",
)  # fmt: skip
_elementwise(
    0, 1, "n transcendentals",
    "exp", "log", "expm1", "log1p", "tanh", "sin", "cos", "tan", "atan", "atan2", "sqrt", "rsqrt", "cbrt", "erf",
)  # fmt: skip
# What JAX or XLA writes out in simpler ops; measured on the lowered module.
_elementwise(3, 1, "3·n + n transcendentals: 1 / (1 + exp(-x))", "logistic")
_elementwise(1, 1, "n + n transcendentals: exp(x log 2)", "exp2")
_elementwise(3, 2, "3·n + 2·n transcendentals, written out", "acos", "asin", "cosh")
_elementwise(10, 3, "10·n + 3·n transcendentals, written out", "sinh")
_elementwise(11, 3, "11·n + 3·n transcendentals, written out", "asinh")
_elementwise(7, 4, "7·n + 4·n transcendentals, written out", "acosh")
_elementwise(6, 2, "6·n + 2·n transcendentals, written out", "atanh")
_elementwise(62, 1, "62·n + n transcendentals, a polynomial", "erfc")
_elementwise(37, 2, "37·n + 2·n transcendentals, a polynomial", "erf_inv")
_elementwise(24, 0, "24·n, bit by bit", "nextafter")
_elementwise(4, 0, "4·n", "conj")
_elementwise(3, 0, "3·n: (1 - x)·(1 + x)", "one_minus_square")  # a primitive since JAX 0.12


@rule(
    "broadcast_in_dim", "transpose", "rev", "concatenate", "pad", "slice", "split", "iota", "tile", "device_put",
    "empty2", "empty", "full",
    formula="0: moves data",
)  # fmt: skip
def movement(equation: Equation) -> Work:
    """Moving data takes no arithmetic: `0`."""
    return Work(0)


@rule(
    "reshape", "squeeze", "expand_dims", "copy", "stop_gradient", "name", "optimization_barrier", "random_wrap",
    "random_unwrap", "random_clone", "reshard", "sharding_constraint", "mesh_cast", "pvary", "pcast", "create_token",
    formula="0: another name", moved=no_bytes,
)  # fmt: skip
def renaming(equation: Equation) -> Work:
    """What gives the same bytes another name takes nothing: `0`."""
    return Work(0)


@rule("convert_element_type", formula="n, or 0 if the dtype stays")
def convert(equation: Equation) -> Work:
    """One conversion for each item: `n`."""
    return Work(0 if equation.inputs[0].dtype == equation.outputs[0].dtype else items(equation))


@rule("pow", formula="n transcendentals")
def power(equation: Equation) -> Work:
    """One power for each item; an integer exponent is converted first: `n` transcendentals."""
    count = items(equation)
    converts = count if equation.inputs[0].dtype != equation.inputs[1].dtype else 0
    return Work(converts, count)


@rule("integer_pow", formula="(floor(log2 |y|) + ones(|y|) - 1 + [y < 0])·n")
def integer_power(equation: Equation) -> Work:
    """Squaring and multiplying along the bits of `y`; one division if it is negative."""
    exponent = equation.param["y"]
    assert isinstance(exponent, int)
    if exponent == 0:
        return Work(0)
    steps = abs(exponent).bit_length() - 1 + abs(exponent).bit_count() - 1
    return Work((steps + (exponent < 0)) * items(equation))


@rule("polynomial", formula="2·(k - 1)·n for k coefficients")
def polynomial(equation: Equation) -> Work:
    """Horner's rule: a product and a sum for each coefficient but the first. JAX 0.12's exp and erf are made of it."""
    return Work(2 * (len(equation.inputs) - 2) * items(equation))


@rule("select_n", formula="n for two cases, 2·(cases - 1)·n for more")
def select(equation: Equation) -> Work:
    """One selection for each item; with more than two cases they are chosen one by one, each with a comparison."""
    cases = len(equation.inputs) - 1
    each = {0: 0, 1: 0, 2: 1}.get(cases, 2 * (cases - 1))
    return Work(each * items(equation))
