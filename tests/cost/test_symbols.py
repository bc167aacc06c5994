"""Polynomials in sizes: their arithmetic matches that of fractions and integers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jax.export import symbolic_shape

from mithril_nb.cost.formulas.parsing import parse, substituted, written_with
from mithril_nb.cost.formulas.symbols import FUNCTIONS, Polynomial, UndecidedError, call, constant, symbol, total

NAMES = ("B", "I", "O", "in", "lambda")
"""The last two are Python keywords, which are valid names of sizes."""
sizes = st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES})
leaves = st.one_of(st.sampled_from(NAMES).map(symbol), st.integers(-5, 9).map(constant))
polynomials = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] - pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, st.integers(1, 7)).map(lambda pair: pair[0] // pair[1]),
        st.tuples(inner, st.integers(1, 7)).map(lambda pair: pair[0] % pair[1]),
        st.tuples(inner, st.integers(1, 7), st.sampled_from(NAMES)).map(lambda of: of[0] // (of[1] * symbol(of[2]))),
        st.tuples(inner, inner).map(lambda pair: constant(call("max", *pair))),
    ),
    max_leaves=8,
)


@given(polynomials, polynomials, st.integers(1, 9), sizes)
def test_arithmetic_matches_numbers(left: Polynomial, right: Polynomial, number: int, at: dict) -> None:
    a, b = left.evaluate(**at), right.evaluate(**at)
    assert (left + right).evaluate(**at) == a + b
    assert (left - right).evaluate(**at) == a - b
    assert (left * right).evaluate(**at) == a * b
    assert (left**2).evaluate(**at) == a**2
    assert (left // number).evaluate(**at) == a // number
    assert (left % number).evaluate(**at) == a % number
    assert (number - left).evaluate(**at) == number - a
    assert (left / number).value(at) == Fraction(a, number)
    assert total([left, right, number]).evaluate(**at) == a + b + number
    if b:
        assert (left // right).evaluate(**at) == a // b
        assert (left % right).evaluate(**at) == a % b


@given(polynomials, sizes)
def test_the_text_parses_to_the_same_polynomial(found: Polynomial, at: dict) -> None:
    again = parse(str(found))
    assert again.evaluate(**at) == found.evaluate(**at)
    assert str(again) == str(found)
    assert found.names <= set(NAMES)


@given(polynomials, polynomials, sizes)
def test_names_are_substituted(found: Polynomial, other: Polynomial, at: dict) -> None:
    value = other.evaluate(**at)
    assume(value > 0)  # as a size is; `found` may divide by it
    assert found.substitute({"B": other}).evaluate(**at) == found.evaluate(**{**at, "B": value})


@given(polynomials, polynomials, sizes)
def test_a_comparison_is_right_or_raises(left: Polynomial, right: Polynomial, at: dict) -> None:
    a, b = left.evaluate(**at), right.evaluate(**at)
    for told, true in (
        (lambda: left >= right, a >= b), (lambda: left > right, a > b),
        (lambda: left <= right, a <= b), (lambda: left < right, a < b),
    ):  # fmt: skip
        try:
            assert told() == true
        except UndecidedError:
            assert (left - right).names


@given(polynomials, polynomials)
def test_equal_polynomials_have_equal_hashes(left: Polynomial, right: Polynomial) -> None:
    assert left + right == right + left
    assert hash(left + right) == hash(right + left)
    assert (left - left) == 0
    assert not (left - left)


def test_the_text_is_in_a_stable_order() -> None:
    batch, width, out = map(symbol, ("B", "I", "O"))
    assert str(batch * out + out * 2 * width * batch) == "2·B·I·O + B·O"
    assert str(5 - batch**2 * 3 + width) == "-3·B² + I + 5"
    assert str((batch + 3) // 2 * width - batch / 2) == "I·floor((B + 3)/2) - (1/2)·B"
    assert str(batch - batch) == "0"


def test_exact_quotients_need_no_floor() -> None:
    batch, width = symbol("B"), symbol("I")
    assert (6 * batch * width + 3 * batch) // (3 * batch) == 2 * width + 1
    assert (batch * width) % width == 0
    assert str(width // batch) == "floor(I/B)"
    text = str(width // (2 * batch * width))
    assert text == "floor(I/(2·B·I))"
    assert parse(text).evaluate(B=3, I=700) == 0
    assert 7 // constant(2) == 3


def test_comparisons_take_sizes_to_be_at_least_one() -> None:
    batch = symbol("B")
    assert batch >= 1
    assert batch * batch + batch > 1
    assert not batch < 1
    with pytest.raises(UndecidedError, match="whether B is at least 3 depends on B"):
        _ = batch > 2
    with pytest.raises(UndecidedError, match="whether B - 1 is zero depends on B"):
        bool(batch - 1)
    with pytest.raises(UndecidedError, match="B is not a number: it depends on B"):
        int(batch)


def test_a_value_that_is_not_an_integer_raises() -> None:
    with pytest.raises(ValueError, match=r"\(1/2\)·B is 3/2, not an integer"):
        (symbol("B") / 2).evaluate(B=3)
    with pytest.raises(KeyError):
        symbol("B").evaluate(I=3)


def test_formulas_in_letters() -> None:
    letters = {"in": symbol("B") * 10, "out": 10}
    assert substituted("9·(in - out)", letters) == 90 * symbol("B") - 90
    assert substituted("n·ceil(log2(n))", {"n": 100}) == 700
    assert written_with("9·(in - out)", letters) == "9·(10·B - 10)"
    assert written_with("2·B·M·N·K", {"B": 1, "M": 12, "N": 1, "K": 11}) == "2·12·11"
    assert str(substituted("n·ceil(log2(n))", {"n": symbol("B")})) == "B·ceil(log2(B))"


@pytest.mark.parametrize("text", ["...", "a b", "", "f(x)", "2.5*b", "b[0]", "b if b else c"])
def test_text_that_is_not_a_polynomial_raises(text: str) -> None:
    with pytest.raises(UndecidedError, match="is not a polynomial"):
        parse(text)


def test_jax_dims_are_parsed() -> None:
    b, t = symbolic_shape("b, t")
    for dim in (b * t + 3, (b + t) // 2, b % 3, 2 * b * b - t, -(-t // 4)):
        for values in ({"b": 3, "t": 5}, {"b": 8, "t": 128}):
            assert parse(str(dim)).evaluate(**values) == int(dim._evaluate(values))
    assert {"floordiv", "mod", "max", "min"} <= FUNCTIONS.keys()
