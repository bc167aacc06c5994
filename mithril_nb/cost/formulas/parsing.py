"""Formulas as text: parsing, replacing letters by values, and the meaning of the letters."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from keyword import iskeyword
from operator import add, floordiv, mod, mul, sub
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
    """Parse a formula in the notation of JAX's symbolic dims (`2*b^2`) or of costs (`2·b²`).

    Examples:
        >>> parse("floordiv(- 2*b^2 + 4, 3)"), parse("2·B·I² + B"), parse("n·ceil(log2(n))")
        (floor((-2·b² + 4)/3), 2·B·I² + B, n·ceil(log2(n)))
    """
    plain = _RAISED.sub(lambda match: f"**{match.group().translate(_LOWERED)}", text.replace("·", "*"))
    # A size may have the name of a Python keyword, such as `in`.
    plain = _WORD.sub(lambda match: f"{match.group()}{_KEPT * iskeyword(match.group())}", plain)
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
            operands = [constant(_parsed(arg)) for arg in args]
            return {"floordiv": floordiv, "mod": mod}.get(name, partial(call, name))(*operands)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](constant(_parsed(left)), _parsed(right))
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is not a polynomial")


_OPERATORS: dict[Any, Callable[[Any, Any], Any]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.Div: lambda left, right: left // right if isinstance(right, Polynomial) else left / right,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
    ast.Pow: pow,
}
_WORD = re.compile(r"[^\W\d]\w*")
_KEPT = "_of_python"
_ONES = re.compile(r"(?<![\w·])1·|·1(?!\d)")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_LOWERED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def substituted(text: str, letters: Mapping[str, Expression]) -> Expression:
    """Return the value of a formula: a number if the letters have numbers, else a polynomial.

    Examples:
        >>> substituted("2·n", {"n": 60}), substituted("2·n", {"n": 3 * symbol("batch")})
        (120, 6·batch)
    """
    formula = parse(text)
    if all(isinstance(value, int) for value in letters.values()):
        result: Any = formula.value(letters)  # pyright: ignore[reportArgumentType]
        return result
    polynomial = formula.substitute(letters)
    number: Any = polynomial.number
    return polynomial if number is None else number


def written_with(text: str, letters: Mapping[str, Expression]) -> str:
    """Return a formula in which values replace the letters. The text is not evaluated; only factors of 1 are left out.

    Examples:
        >>> written_with("2·B·M·N·K", {"B": 1, "M": 128, "N": 512, "K": 784})
        '2·128·512·784'
    """

    def number(match: re.Match[str]) -> str:
        value = str(letters.get(match.group(), match.group()))
        return f"({value})" if " " in value else value

    return _ONES.sub("", _WORD.sub(number, text))


_MEANINGS = {
    "B": "batch",
    "C": "channels in",
    "F": "filters",
    "G": "groups",
    "I": "iterations",
    "K": "length of the contracted axes",
    "M": "rows of the left operand",
    "N": "columns of the right operand",
    "cases": "cases to choose from",
    "combiner": "FLOPs for combining two elements",
    "calls": "transcendentals from the registered rule",
    "flops": "FLOPs from the registered rule",
    "in": "elements of the input",
    "indices": "indices",
    "j": "operations for each element, in complex numbers",
    "k": "operations for each element",
    "kernel": "elements of the kernel",
    "left": "elements of the left operand",
    "m": "rows",
    "more": "axes longer than 1, without the first of them",
    "n": "elements of the result",
    "out": "elements of the result",
    "others": "FLOPs of other equations in the expansion",
    "products": "FLOPs of matrix products and convolutions in the expansion",
    "q": "columns of Q",
    "rounds": "floor(log2(length)), multiplied over the axes",
    "rows": "rows",
    "source": "elements of the source",
    "updates": "elements written",
    "valid": "pairs of result index and kernel index that do not read padding",
    "window": "elements in the window",
}
_MEANINGS_IN = {
    ("fft", "n"): "complex elements",
    ("fft", "N"): "length, multiplied over the axes",
    ("sort", "n"): "elements of the input",
    ("top_k", "k"): "elements returned",
    ("approx_top_k", "k"): "elements returned",
    ("top_k", "n"): "elements of the input",
    ("approx_top_k", "n"): "elements of the input",
    **{
        (primitive, "calls"): "transcendentals for combining two elements"
        for primitive in ("reduce", "reduce_window", "scatter")
    },
    ("call_hi_primitive", "calls"): "transcendentals of the equations in the expansion",
    **{
        (primitive, letter): words
        for primitive in ("sort", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
        for letter, words in {
            "N": "length of the axis",
            "rows": "rows along the axis: product of the other axes",
        }.items()
    },
    **{
        (primitive, letter): words
        for primitive in (
            "cholesky lu qr geqrf geqp3 householder_product ormqr eigh eig svd schur hessenberg tridiagonal "
            "triangular_solve tridiagonal_solve cholesky_update symmetric_product".split()
        )
        for letter, words in {"B": "matrices", "n": "columns", "k": "reflections"}.items()
    },
    **{(primitive, "m"): "right-hand sides" for primitive in ("triangular_solve", "tridiagonal_solve")},
    **{(primitive, "k"): "min(m, n)" for primitive in ("lu", "qr", "geqrf", "geqp3")},
    ("symmetric_product", "k"): "columns",
    ("polynomial", "k"): "coefficients",
    ("random_split", "n"): "new keys",
}


def meaning(letter: str, primitive: str) -> str:
    """Return the meaning of a letter in the formula of a primitive; `""` if unknown.

    Examples:
        >>> meaning("K", "dot_general"), meaning("n", "add"), meaning("n", "sort")
        ('length of the contracted axes', 'elements of the result', 'elements of the input')
    """
    return _MEANINGS_IN.get((primitive, letter)) or _MEANINGS.get(letter, "")
