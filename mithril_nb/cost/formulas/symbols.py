"""Exact polynomials in symbolic sizes, for the costs of programs with such sizes.

JAX's symbolic dims are limited to 64 bits, and have neither fractions nor a public way to substitute numbers. sympy
takes about 1 ms for each cost, a hundred times as long as this module, and a program has hundreds of costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, log2, prod
from operator import floordiv, mod
from typing import Any

Number = int | Fraction


class UndecidedError(ValueError):
    """Raised if a result depends on unknown sizes or values."""


@dataclass(frozen=True)
class FunctionCall:
    """A function of polynomials that is not a polynomial, such as max(T, 4). A `Polynomial` may contain it.

    Attributes:
        function: Name of the function in `FUNCTIONS`.
        args: Arguments of the function.
    """

    function: str
    args: tuple[Polynomial, ...]

    def __str__(self) -> str:
        if self.function == "floordiv":
            above, below = map(str, self.args)
            # `a/b·c` would be read as `(a/b)·c`.
            below = f"({below})" if "·" in below or " " in below else below
            return f"floor({f'({above})' if ' ' in above else above}/{below})"
        if self.function == "ceil_log2":
            return f"ceil(log2({self.args[0]}))"
        return f"{self.function}({', '.join(map(str, self.args))})"


Atom = str | FunctionCall
Monomial = tuple[tuple[Atom, int], ...]
"""A product of names and calls: pairs of a factor and its power, in display order; `()` is the number 1."""


@dataclass(frozen=True, eq=False)
class Polynomial:
    """A sum of products of sizes, with exact coefficients. Sizes are integers of at least 1.

    Attributes:
        terms: A dict from each product to its coefficient, which is not 0. A product is a tuple of pairs of a factor
            and its power: `(("B", 1), ("I", 2))`.

    Examples:
        >>> batch, width = symbol("B"), symbol("I")
        >>> 2 * batch * width * 10 + batch * 10, (batch * width) // width, (batch + 3) // 2
        (20·B·I + 10·B, B, floor((B + 3)/2))
        >>> (2 * batch * width**2).evaluate(B=32, I=784)
        39337984
    """

    terms: Mapping[Monomial, Number]

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the symbolic sizes in this polynomial."""
        names: set[str] = set()
        for product in self.terms:
            for atom, _ in product:
                names |= {atom} if isinstance(atom, str) else {name for arg in atom.args for name in arg.names}
        return frozenset(names)

    @property
    def number(self) -> Number | None:
        """The value of this polynomial if it contains no symbolic sizes, else `None`."""
        return self.terms.get((), 0) if not self.terms or self.terms.keys() == {()} else None

    def evaluate(self, **sizes: int) -> int:
        """Return the value of the polynomial for these sizes. It must be an integer."""
        value = self.value(sizes)
        if not isinstance(value, int):
            raise ValueError(f"{self} is {value}, not an integer")
        return value

    def value(self, sizes: Mapping[str, int]) -> Number:
        """Return the value for these sizes, which may be a fraction."""
        return _exact(self.at(sizes))

    def at(self, sizes: Mapping[str, Any]) -> Any:
        """Return the value for sizes of any type that supports `+`, `*` and `**`, such as JAX's symbolic dims."""
        return sum(
            coefficient * prod(_value(atom, sizes) ** power for atom, power in product)
            for product, coefficient in self.terms.items()
        )

    def substitute(self, sizes: Mapping[str, Expression]) -> Polynomial:
        """Return the polynomial in which numbers or other polynomials replace names."""
        result = _ZERO
        for product, coefficient in self.terms.items():
            term = constant(coefficient)
            for atom, power in product:
                term = term * _substituted(atom, sizes) ** power
            result = result + term
        return result

    def __add__(self, other: Expression | Fraction) -> Polynomial:
        terms = dict(self.terms)
        for product, coefficient in constant(other).terms.items():
            terms[product] = terms.get(product, 0) + coefficient
        return _of(terms)

    def __mul__(self, other: Expression | Fraction) -> Polynomial:
        terms: dict[Monomial, Number] = {}
        for left, first in self.terms.items():
            for right, second in constant(other).terms.items():
                product = _product(left, right)
                terms[product] = terms.get(product, 0) + first * second
        return _of(terms)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Polynomial:
        return self * -1

    def __sub__(self, other: Expression | Fraction) -> Polynomial:
        return self + constant(other) * -1

    def __rsub__(self, other: Expression | Fraction) -> Polynomial:
        return constant(other) - self

    def __pow__(self, power: int) -> Polynomial:
        return prod([self] * power, start=_ONE)

    def __truediv__(self, other: Number) -> Polynomial:
        return self * (1 / Fraction(other))

    def __floordiv__(self, other: Expression) -> Polynomial:
        exact = self._quotient(constant(other))
        return constant(call("floordiv", self, other)) if exact is None else exact

    def __rfloordiv__(self, other: int) -> Polynomial:
        return constant(other) // self

    def __mod__(self, other: Expression) -> Polynomial:
        return constant(call("mod", self, other)) if self._quotient(constant(other)) is None else _ZERO

    def __rmod__(self, other: int) -> Polynomial:
        return constant(other) % self

    def _quotient(self, other: Polynomial) -> Polynomial | None:
        # Only a number or a single product can divide.
        if self.number is not None and other.number is not None and other.number:
            return constant(self.number // other.number) if self.number % other.number == 0 else None
        if len(other.terms) != 1:
            return None
        ((below, divisor),) = other.terms.items()
        terms: dict[Monomial, Number] = {}
        for above, coefficient in self.terms.items():
            powers = dict(above)
            for atom, power in below:
                powers[atom] = powers.get(atom, 0) - power
            left = Fraction(coefficient) / divisor
            if left.denominator != 1 or any(power < 0 for power in powers.values()):
                return None
            terms[tuple((atom, power) for atom, power in powers.items() if power)] = left
        return _of(terms)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int | Fraction | Polynomial):
            return NotImplemented
        return self.terms == constant(other).terms

    @cached_property
    def _hash(self) -> int:
        number = self.number
        # A polynomial without names is equal to a number, so it must have the hash of this number.
        return hash(frozenset(self.terms.items()) if number is None else number)

    def __hash__(self) -> int:
        return self._hash

    def __ge__(self, other: Expression) -> bool:
        difference = self - other
        if _is_never_negative(difference):
            return True
        if _is_never_negative(-difference - 1):
            return False
        raise UndecidedError(f"whether {self} is at least {other} depends on {', '.join(sorted(difference.names))}")

    def __lt__(self, other: Expression) -> bool:
        return not self >= other

    def __gt__(self, other: Expression) -> bool:
        return self >= constant(other) + 1

    def __le__(self, other: Expression) -> bool:
        return not self > other

    def __bool__(self) -> bool:
        if self.number is None and not _is_never_negative(self - 1):
            raise UndecidedError(f"whether {self} is zero depends on {', '.join(sorted(self.names))}")
        return bool(self.terms)

    def __int__(self) -> int:
        if not isinstance(self.number, int):
            raise UndecidedError(f"{self} is not a number: it depends on {', '.join(sorted(self.names))}")
        return self.number

    __index__ = __int__

    @cached_property
    def _text(self) -> str:
        text = ""
        for product, coefficient in _ordered(self):
            sign = " - " if coefficient < 0 else " + "
            text += (sign if text else sign.strip().strip("+")) + _term(abs(coefficient), product)
        return text or "0"

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


Expression = int | Polynomial
"""A size or a value computed from sizes: a number, or a polynomial in symbolic sizes."""


def constant(value: Expression | Fraction) -> Polynomial:
    """Convert a number to a polynomial."""
    return value if isinstance(value, Polynomial) else _of({(): value})


def symbol(name: str) -> Polynomial:
    """Return the polynomial of one symbolic size."""
    return Polynomial({((name, 1),): 1})


def call(function: str, *args: Expression) -> Expression:
    """Apply a function in `FUNCTIONS` to sizes. The result is a polynomial unless all sizes are numbers.

    Examples:
        >>> call("max", symbol("T"), 4), call("max", 3, 4)
        (max(T, 4), 4)
    """
    if function in ("max", "min") and len(set(args)) == 1:
        return args[0]
    numbers = [arg if isinstance(arg, int) else arg.number for arg in args]
    if None in numbers:
        return Polynomial({((FunctionCall(function, tuple(map(constant, args))), 1),): 1})
    return FUNCTIONS[function](*numbers)


def ceil_log2(value: int) -> int:
    """Return the base-2 logarithm, rounded up as XLA does; 0 for values below 2."""
    return ceil(log2(value)) if value > 1 else 0


def exact_log2(value: int) -> Number:
    """Return the base-2 logarithm; 0 for values below 2.

    It is an integer for powers of 2, else a fraction that is equal to the float `log2`.

    Examples:
        >>> exact_log2(1024), exact_log2(0), float(exact_log2(1000)) == log2(1000)
        (10, 0, True)
    """
    return _exact(Fraction(log2(value))) if value > 1 else 0


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "log2": exact_log2,
    "floordiv": floordiv,
    "mod": mod,
    "max": max,
    "min": min,
    "ceil_log2": ceil_log2,
}
"""A dict from the name of a function that is not a polynomial to the function. Modules with rules add more."""
_MOST_PARTS = 10_000
_RAISING = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def total(parts: Iterable[Expression]) -> Polynomial:
    """Return the sum of many parts. This takes linear time; repeated `+` would copy the sum each time."""
    terms: dict[Monomial, Number] = {}
    for part in parts:
        for product, coefficient in constant(part).terms.items():
            terms[product] = terms.get(product, 0) + coefficient
    return _of(terms)


def _of(terms: Mapping[Monomial, Number]) -> Polynomial:
    return Polynomial({product: _exact(coefficient) for product, coefficient in terms.items() if coefficient})


def _exact(value: Number) -> Number:
    return value if isinstance(value, int) or value.denominator != 1 else value.numerator


def _product(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=_order))


def _order(part: tuple[Atom, int]) -> tuple[bool, str, str]:
    text = str(part[0])
    return isinstance(part[0], FunctionCall), text.lower(), text


def _value(atom: Atom, sizes: Mapping[str, Any]) -> Any:
    if isinstance(atom, str):
        return sizes[atom]
    args = [arg.at(sizes) for arg in atom.args]
    return FUNCTIONS[atom.function](*(_exact(arg) if isinstance(arg, Fraction) else arg for arg in args))


def _substituted(atom: Atom, sizes: Mapping[str, Expression]) -> Polynomial:
    if isinstance(atom, str):
        return constant(sizes.get(atom, symbol(atom)))
    args = [arg.substitute(sizes) for arg in atom.args]
    if atom.function in ("floordiv", "mod"):
        return args[0] // args[1] if atom.function == "floordiv" else args[0] % args[1]
    return constant(call(atom.function, *args))


def _is_never_negative(polynomial: Polynomial) -> bool:
    # The proof: `size - 1` is at least 0, so a polynomial in `size - 1` with positive coefficients is at least 0.
    if any(isinstance(atom, FunctionCall) for product in polynomial.terms for atom, _ in product):
        return False
    shifted = polynomial.substitute({name: symbol(name) + 1 for name in polynomial.names})
    return all(coefficient > 0 for coefficient in shifted.terms.values())


def _ordered(polynomial: Polynomial) -> list[tuple[Monomial, Number]]:
    return sorted(polynomial.terms.items(), key=lambda term: (-sum(power for _, power in term[0]), _written(term[0])))


def _written(product: Monomial) -> str:
    return "·".join(str(atom) + (str(power).translate(_RAISING) if power > 1 else "") for atom, power in product)


def _number(value: Number, is_factor: bool) -> str:
    if isinstance(value, int) or value.denominator > _MOST_PARTS:  # a logarithm has no short fraction
        return str(value) if isinstance(value, int) else f"{float(value):.6g}"
    return f"({value})" if is_factor else str(value)


def _term(coefficient: Number, product: Monomial) -> str:
    text = _written(product)
    if not text or coefficient != 1:
        number = _number(coefficient, bool(text))
        return f"{number}·{text}" if text else number
    return text


_ZERO = Polynomial({})
_ONE = Polynomial({(): 1})
