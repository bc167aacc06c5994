"""Formulas as text: read them, and write them with values for their letters."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from keyword import iskeyword
from typing import Any

from mithril_nb.cost.formulas.symbols import (
    FUNCTIONS,
    Expression,
    Polynomial,
    UndecidedError,
    call,
    constant,
    symbol,
)


@lru_cache(maxsize=4096)
def parse(text: str) -> Polynomial:
    """Return the polynomial that a text describes, in the notation of JAX's dims or of this module.

    Raises:
        UndecidedError: The text is not a polynomial.

    Examples:
        >>> parse("floordiv(- 2*b^2 + 4, 3)"), parse("2·B·I² + B"), parse("n·ceil(log2(n))")
        (floor((-2·b² + 4)/3), 2·B·I² + B, n·ceil(log2(n)))
    """
    plain = _RAISED.sub(lambda found: f"**{found.group().translate(_LOWERED)}", text.replace("·", "*"))
    # A size may have the name of a Python keyword, such as `in`.
    plain = _WORD.sub(lambda found: f"{found.group()}{_KEPT * iskeyword(found.group())}", plain)
    try:
        return constant(_parsed(ast.parse(plain.replace("^", "**").strip(), mode="eval").body))
    except (SyntaxError, KeyError, TypeError, ValueError) as error:
        raise UndecidedError(f"{text!r} is not a polynomial") from error


def _parsed(node: Any) -> Any:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return symbol(name.removesuffix(_KEPT))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_parsed(operand)
        case ast.Call(func=ast.Name(id="floor"), args=[ast.BinOp(left=above, op=ast.Div(), right=below)]):
            return constant(_parsed(above)) // _parsed(below)
        case ast.Call(func=ast.Name(id="ceil"), args=[ast.Call(func=ast.Name(id="log2"), args=[arg])]):
            return call("ceil_log2", _parsed(arg))
        case ast.Call(func=ast.Name(id=name), args=args) if name in FUNCTIONS:
            found = [constant(_parsed(arg)) for arg in args]
            return (
                found[0] // found[1]
                if name == "floordiv"
                else found[0] % found[1]
                if name == "mod"
                else call(name, *found)
            )
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](constant(_parsed(left)), _parsed(right))
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is not a polynomial")


_OPERATORS: dict[Any, Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left // right if isinstance(right, Polynomial) else left / right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Mod: lambda left, right: left % right,
    ast.Pow: lambda left, right: left**right,
}
_WORD = re.compile(r"[^\W\d]\w*")
_KEPT = "_of_python"
_ONES = re.compile(r"(?<![\w·])1·|·1(?!\d)")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_LOWERED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def substituted(text: str, letters: Mapping[str, Expression]) -> Expression:
    """Return the value of a formula: a number if all of its letters have one, else a polynomial.

    Args:
        text: The formula.
        letters: The values of its letters.

    Examples:
        >>> substituted("2·n", {"n": 60}), substituted("2·n", {"n": 3 * symbol("batch")})
        (120, 6·batch)
    """
    formula = parse(text)
    if all(isinstance(value, int) for value in letters.values()):
        found: Any = formula.value(letters)  # pyright: ignore[reportArgumentType]
        return found
    polynomial = formula.substitute(letters)
    number: Any = polynomial.number
    return polynomial if number is None else number


def written_with(text: str, letters: Mapping[str, Expression]) -> str:
    """Return a formula with the values of its letters substituted, without computing anything.

    Examples:
        >>> written_with("2·B·M·N·K", {"B": 1, "M": 128, "N": 512, "K": 784})
        '2·128·512·784'
    """

    def number(found: re.Match[str]) -> str:
        value = str(letters.get(found.group(), found.group()))
        return f"({value})" if " " in value else value

    return _ONES.sub("", _WORD.sub(number, text))
