"""Forms of answers: how an answer is read, compared with the truth, and written as text.

A form reads Python values and texts, so that an answer from a widget, a cell, a script or a grader means the same.
"""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mithril_nb.errors import listed, short_repr
from mithril_nb.graph.query import number_of
from mithril_nb.graph.spec import ITEM_BYTES, TensorSpec, as_dtype, full_dtype, read_spec

TOLERANCE = 0.01
"""Relative difference up to which a number is right, so that `"3.2 MFLOP"` is an answer."""
_ROUNDING = 1e-9
_LONGEST = 400
_LONGEST_LIST = 100
_LARGEST_POWER = 64
# Commas that group three digits: "3,200" is a number; "3,2" and "0,200" may be meant as decimals.
_GROUPED = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
_BEFORE_PREFIX = re.compile(r"\s+(?=[A-Za-z]+$)")


class Unreadable(ValueError):
    """An answer that does not have the form of the question; its text states the form."""


class Form:
    """A form of answers."""

    @property
    def hint(self) -> str:
        """What to answer, with an example."""
        raise NotImplementedError

    def read(self, answer: Any) -> Any:
        """Return the value that an answer means.

        Raises:
            Unreadable: The answer does not have this form.
        """
        raise NotImplementedError

    def same(self, value: Any, truth: Any) -> bool:
        """Return whether the value of an answer is right."""
        return value == truth

    def text(self, value: Any) -> str:
        """Return a value as text."""
        return str(value)


@dataclass(frozen=True)
class Number(Form):
    """A number with a unit, such as `"FLOP"` or `"B"`; without a unit for counts.

    `"FLOPs"` is the plural of `"FLOP"`. `"FLOPS"` is refused: it is FLOP/s, a rate. Commas must group three digits.

    Examples:
        >>> form = Number("FLOP")
        >>> form.read("3.2 MFLOP"), form.read("2 * 32 * 784 * 64"), form.read(3_211_264), form.read("3,211,264")
        (3200000.0, 3211264, 3211264, 3211264)
        >>> form.same(3.2e6, 3_211_264), form.same(3_211_264 / 2, 3_211_264)
        (True, False)
    """

    unit: str = ""

    @property
    def hint(self) -> str:
        if not self.unit:
            return "a whole number"
        return f"a number of {self.unit}: 4200000, 4.2e6, '4.2 M{self.unit}' or a product such as '2 * 64 * 32768'"

    def read(self, answer: Any) -> float:
        value = _scalar(answer)
        if isinstance(value, str):
            value = self._of_text(value)
        # No subclass: it may be equal to any number. Not math.isfinite: it raises for an int larger than any float.
        if value is None or type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
            raise Unreadable(f"{short_repr(answer)} is not {self.hint}")
        return value

    def _of_text(self, text: str) -> float | None:
        if len(text) > _LONGEST:
            return None
        amount = _unquoted(text).replace("×", "*").replace("_", "")
        amount = _GROUPED.sub(lambda digits: digits[0].replace(",", ""), amount)
        units = {self.unit, f"{self.unit}s", "bytes" if self.unit == "B" else self.unit}
        for unit in sorted(filter(None, units), key=len, reverse=True):
            if amount.endswith(unit):
                amount = amount.removesuffix(unit).rstrip()
                break
        # `number_of` also reads "GB"; a unit that is left is that of another quantity.
        has_prefix = amount[-1:].isalpha() and amount[-1:] not in "bB"
        number = number_of(_BEFORE_PREFIX.sub("", amount)) if has_prefix else None
        return arithmetic(amount) if number is None else number

    def same(self, value: float, truth: float) -> bool:
        if not self.unit:
            return value == truth
        return abs(value - truth) <= TOLERANCE * abs(truth)

    def text(self, value: float) -> str:
        digits = f"{value:,.0f}" if float(value).is_integer() else f"{value:,}"
        return f"{digits} {self.unit}".rstrip()


@dataclass(frozen=True)
class Formula(Form):
    """A formula of letters, such as `"2 * B * M"`. Equal formulas have the same values where primes are substituted.

    Examples:
        >>> Formula(("B", "M")).same("B*(M + M)", "2*B*M"), Formula(("B", "M")).same("B*M*M", "2*B*M")
        (True, False)
    """

    letters: tuple[str, ...]

    @property
    def hint(self) -> str:
        return f"a formula of {listed(self.letters)}, such as '{' + '.join(self.letters)}'"

    @property
    def points(self) -> tuple[dict[str, int], ...]:
        """What is substituted for the letters."""
        primes = (3, 5, 7, 11, 13, 17, 19, 23, 29)
        count = len(self.letters)
        return tuple(dict(zip(self.letters, primes[start : start + count], strict=True)) for start in (0, 2, 3))

    def read(self, answer: Any) -> str:
        text = _unquoted(answer).replace("×", "*").replace("·", "*") if isinstance(answer, str) else ""
        if any(arithmetic(text, point) is None for point in self.points):
            raise Unreadable(f"{short_repr(answer)} is not {self.hint}")
        return text

    def same(self, value: str, truth: str) -> bool:
        # Up to rounding, such as that of 0.2: other formulas differ by more.
        pairs: list[Any] = [(arithmetic(value, point), arithmetic(truth, point)) for point in self.points]
        return all(abs(left - right) <= _ROUNDING * abs(right) for left, right in pairs)


@dataclass(frozen=True)
class Choice(Form):
    """One of several texts. Its number, counted from 1, means the same, unless the choices are numbers themselves.

    Examples:
        >>> form = Choice(("forward", "backward"))
        >>> form.read("Backward"), form.read(1), form.read("b")
        ('backward', 'forward', 'backward')
        >>> Choice(("2", "1")).read(1)
        '1'
    """

    choices: tuple[str, ...]

    @property
    def hint(self) -> str:
        names = ", ".join(map(repr, self.choices))
        if self._numbers:
            return f"one of: {names}"
        number = f"number from 1 to {len(self.choices)}"
        return f"a choice, by its {number}" if len(names) > _LONGEST_LIST else f"one of: {names}, or its {number}"

    @property
    def _numbers(self) -> dict[Any, str]:
        """The choices by value, if all are different numbers."""
        values = {arithmetic(choice): choice for choice in self.choices}
        return {} if None in values or len(values) < len(self.choices) else values

    def read(self, answer: Any) -> str:
        value = _scalar(answer)
        if isinstance(value, bool) and {"yes", "no"} == set(self.choices):
            return "yes" if value else "no"
        names, numbers = {choice.lower(): choice for choice in self.choices}, self._numbers
        text = value.strip().lower() if isinstance(value, str) else short_repr(value).lower()
        if text not in names:
            text = _unquoted(text)
        if text in names:
            return names[text]
        positions: dict[Any, str] = dict(enumerate(self.choices, 1)) if isinstance(value, str | int) else {}
        number = arithmetic(text)
        if number in (numbers or positions):
            return (numbers or positions)[number]
        begins = [choice for name, choice in names.items() if name.startswith(text)]
        if not numbers and isinstance(value, str) and text and len(begins) == 1:
            return begins[0]
        raise Unreadable(f"{short_repr(answer)} is not {self.hint}")


@dataclass(frozen=True)
class Several(Form):
    """All that are right of several lines, by their numbers from 1 or their texts.

    Examples:
        >>> form = Several(("b = sin a", "c = cos a", "d = add b c"))
        >>> form.text(form.read("3, 1")), form.text(form.read(["c = cos a"]))
        ('1, 3', '2')
    """

    choices: tuple[str, ...]

    @property
    def hint(self) -> str:
        return f"the numbers of all lines that are right, from 1 to {len(self.choices)}, separated by commas"

    def read(self, answer: Any) -> tuple[str, ...]:
        is_line = isinstance(answer, str) and answer in self.choices
        parts = _parts(answer if not isinstance(answer, int) or isinstance(answer, bool) else [answer])
        chosen = {answer} if is_line else set(map(Choice(self.choices).read, parts or [None]))
        return tuple(choice for choice in self.choices if choice in chosen)

    def text(self, value: tuple[str, ...]) -> str:
        return ", ".join(str(1 + self.choices.index(choice)) for choice in value)


@dataclass(frozen=True)
class Each(Form):
    """A choice for each of several items.

    Examples:
        >>> Each(("call 1", "call 2"), ("hit", "trace")).read("trace, hit")
        ('trace', 'hit')
    """

    items: tuple[str, ...]
    choices: tuple[str, ...]

    @property
    def hint(self) -> str:
        # No example: it would be the answer of some questions.
        return f"{' or '.join(map(repr, self.choices))} for each of the {len(self.items)}, separated by commas"

    def read(self, answer: Any) -> tuple[str, ...]:
        parts = _parts(answer)
        if parts is None or len(parts) != len(self.items):
            raise Unreadable(f"{short_repr(answer)} is not {self.hint}")
        return tuple(map(Choice(self.choices).read, parts))

    def text(self, value: tuple[str, ...]) -> str:
        return ", ".join(value)


@dataclass(frozen=True)
class Order(Form):
    """All of several names in an order.

    Examples:
        >>> Order(("a", "b", "c")).read("b < a < c")
        ('b', 'a', 'c')
    """

    names: tuple[str, ...]

    @property
    def hint(self) -> str:
        return f"all of {listed(self.names)} in order, separated by commas"

    def read(self, answer: Any) -> tuple[str, ...]:
        parts = _parts(answer.replace("<", ",") if isinstance(answer, str) else answer) or ()
        names = tuple(map(Choice(self.names).read, parts)) if len(parts) == len(self.names) else ()
        if sorted(names) != sorted(self.names):
            raise Unreadable(f"{short_repr(answer)} is not {self.hint}")
        return names

    def text(self, value: tuple[str, ...]) -> str:
        return " < ".join(value)


@dataclass(frozen=True)
class Spec(Form):
    """Shape and dtype of an array.

    Examples:
        >>> Spec().read("f32[32, 64]"), Spec().read(((32, 64), "float32")), Spec().read("float32[]")
        ((32, 64) float32, (32, 64) float32, () float32)
    """

    @property
    def hint(self) -> str:
        # Sizes that are seldom those of a truth.
        return "dtype and shape, such as 'float32[5, 7]'; a scalar is 'float32[]'"

    def read(self, answer: Any) -> TensorSpec:
        spec: TensorSpec | None = None
        array: Any = answer
        if isinstance(answer, str):
            spec = read_spec(_unquoted(answer)) if len(answer) <= _LONGEST else None
        elif isinstance(answer, tuple | list) and len(answer) == 2:  # pyright: ignore[reportUnknownArgumentType]
            spec = self._of_pair(*answer)
        elif hasattr(answer, "shape") and hasattr(answer, "dtype"):
            spec = self._of_pair(array.shape, array.dtype)
        if spec is None or spec.dtype not in ITEM_BYTES:
            raise Unreadable(f"{short_repr(answer)} is not {self.hint}")
        return spec

    def _of_pair(self, shape: Any, dtype: Any) -> TensorSpec | None:
        try:
            sizes = tuple(map(operator.index, shape))
            if any(abs(size) >= 2**63 for size in sizes):
                return None
            return TensorSpec(sizes, full_dtype(dtype) if isinstance(dtype, str) else str(as_dtype(dtype)))
        except TypeError:  # also the error of an unknown dtype
            return None

    def text(self, value: TensorSpec) -> str:
        return spec_text(value)


def spec_text(spec: TensorSpec) -> str:
    """Return a spec as the questions write it, such as "float32[32, 64]"."""
    return f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _parts(answer: Any) -> Sequence[Any] | None:
    if isinstance(answer, str):
        return [part.strip() for part in answer.replace(";", ",").split(",")]
    if isinstance(answer, tuple | list) or getattr(answer, "ndim", None) == 1:  # an array of NumPy or JAX
        return list(answer)
    return None


def _scalar(answer: Any) -> Any:
    """Return an answer, as a value of Python if it is a scalar of NumPy or JAX."""
    return answer.item() if hasattr(answer, "item") and getattr(answer, "ndim", None) == 0 else answer


def _unquoted(text: str) -> str:
    """Return a text without space and quotes around it: in a form, people type an example with its quotes."""
    text = text.strip()
    return text[1:-1].strip() if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def arithmetic(text: str, letters: Mapping[str, int] = MappingProxyType({})) -> float | None:
    """Return the value of a formula of numbers with `+ - * / // **` and brackets; `None` for any other text.

    Args:
        text: The formula.
        letters: Values of the names that it may contain.

    Examples:
        >>> arithmetic("2 * (3 + 4)"), arithmetic("2**10"), arithmetic("len('a')"), arithmetic("9**9**9")
        (14, 1024, None, None)
    """
    try:
        # A number with too many digits is refused by Python; deep brackets would exhaust the stack.
        return _value(ast.parse(text, mode="eval").body, letters) if len(text) <= _LONGEST else None
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return None


def _value(node: ast.AST, letters: Mapping[str, int]) -> float:
    if isinstance(node, ast.Name) and node.id in letters:
        return letters[node.id]
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # pyright: ignore[reportReturnType]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, letters)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, letters), _value(node.right, letters)
        if isinstance(node.op, ast.Pow):
            # The result must not be a number with millions of digits.
            if abs(right) > _LARGEST_POWER or abs(left) > 1e9:
                raise ValueError
            return left**right
        if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](left, right)
    raise ValueError
