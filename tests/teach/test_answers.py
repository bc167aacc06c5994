"""How answers are read: numbers, choices and specs in the spellings of Python, NumPy and texts."""

from __future__ import annotations

import ast
import itertools
import math
import re

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mithril_nb.teach.answers import Choice, Each, Formula, Number, Order, Several, Spec, Unreadable, arithmetic

FORMS = (Number("FLOP"), Number("B"), Number(), Choice(("a", "b")), Choice(("2", "4")), Spec(),
         Each(("call 1", "call 2"), ("trace", "hit")), Order(("a", "b")))  # fmt: skip


@pytest.mark.parametrize(("choices", "answer", "choice"), [
    (("2", "4"), 2, "2"), (("2", "4"), 4, "4"), (("0", "1"), 1, "1"), (("0", "1"), 0, "0"), (("2", "1"), "1", "1"),
    (("2", "4"), "2.0", "2"), (("0.5", "1.0"), 1, "1.0"), (("0.5", "1.0"), 0.5, "0.5"), (("-1", "-2"), -2, "-2"),
    (("forward", "backward"), 2, "backward"), (("forward", "backward"), "2", "backward"),
    (("yes", "no"), np.True_, "yes"), (("yes", "no"), np.False_, "no"), (("a", "b"), np.int64(1), "a"),
    (("2", "4"), np.int64(4), "4"), (("a", "b"), np.array("b"), "b"), (("a", "b"), jnp.int32(2), "b"),
    (("False", "True"), True, "True"), (("a", "1"), 1, "1"), (("fused", "fused away"), "Fused", "fused"),
])  # fmt: skip
def test_a_choice_is_its_text_before_its_number(choices, answer, choice):
    assert Choice(choices).read(answer) == choice


@pytest.mark.parametrize(("choices", "answer"), [
    (("2", "4"), 1), (("0", "1"), 2), (("2", "10"), "1"), (("2", "4"), ""), (("a", "b"), 0), (("a", "b"), 3),
    (("a", "b"), True), (("a", "b"), 1.0), (("forward", "backward"), ""), (("ab", "ac"), "a"),
])  # fmt: skip
def test_what_is_no_choice_is_refused(choices, answer):
    with pytest.raises(Unreadable):
        Choice(choices).read(answer)


@pytest.mark.parametrize("answer", [
    10**400, -(10**400), 10**5000, "(10**9)**64", "9" * 5000, f"float32[{'9' * 5000}]", (10**5000, "float32"),
    ("1" * 5000, "1" * 5000), [10**5000, 10**5000], "1e400", "((10**9)**64)**64", ((10**5000,), "float32"), object(),
], ids=range(13))  # fmt: skip
def test_what_is_too_large_is_refused(answer):
    for form in FORMS:
        with pytest.raises(Unreadable):
            form.read(answer)


@pytest.mark.parametrize(("answer", "value"), [
    ("3,200 MFLOP", 3.2e9), ("3,211,264", 3_211_264), ("1,000.5 kFLOP", 1_000_500), ("2 * 1,000", 2_000),
    (np.int64(7), 7), (np.float32(2), 2), ("2 GFLOPs", 2e9), ("3_211", 3_211),
])  # fmt: skip
def test_commas_group_three_digits(answer, value):
    assert Number("FLOP").read(answer) == value


@pytest.mark.parametrize("answer", [
    "3,2 MFLOP", "0,200 MFLOP", "3,21", "1,2345", "1.234,567", "12,34,567", "1,,000", "2, 3", "2 GFLOPS", "2 FLOPS",
    "2 GFLOP/s", "2 GB", np.array([1, 2]), np.True_,
], ids=str)  # fmt: skip
def test_other_commas_and_units_are_refused(answer):
    with pytest.raises(Unreadable):
        Number("FLOP").read(answer)


@pytest.mark.parametrize("answer", [
    ["trace", "hit"], ("Trace", "h"), "trace, hit", "trace; hit", np.array(["trace", "hit"]),
    np.array(["trace", "hit"], object), [1, 2], np.array([1, 2]), jnp.array([1, 2]),
], ids=repr)  # fmt: skip
def test_arrays_are_lists_of_choices(answer):
    assert Each(("call 1", "call 2"), ("trace", "hit")).read(answer) == ("trace", "hit")


@pytest.mark.parametrize("form", [Number("FLOP"), Number("B"), Spec()], ids=repr)
def test_the_examples_of_a_hint_are_read_as_they_stand(form):
    examples = re.findall(r"'[^']*'", form.hint)
    assert len(examples) == 2
    for example in examples:
        for text in (example, f" {example} ", example.replace("'", '"')):
            assert form.read(text) == form.read(ast.literal_eval(example))


@pytest.mark.parametrize(("form", "answer", "value"), [
    (Choice(("a", "b")), "'b'", "b"), (Choice(("'b'", "b")), "'b'", "'b'"), (Choice(("a", "b")), '"2"', "b"),
    (Each(("1.", "2."), ("trace", "hit")), "'hit', 'trace'", ("hit", "trace")),
    (Order(("a", "b")), "'b' < 'a'", ("b", "a")),
])  # fmt: skip
def test_quotes_around_a_choice_are_no_part_of_it(form, answer, value):
    assert form.read(answer) == value


@pytest.mark.parametrize("answer", ["'3", "3'", "'3\"", "''", "'", "\"'3'\"", "2 * 3 MFLOP", "2 3 MFLOP", "007"])
def test_other_quotes_products_with_a_prefix_and_leading_zeros_are_refused(answer):
    with pytest.raises(Unreadable):
        Number("FLOP").read(answer)


def test_the_hint_is_never_the_truth():
    for length in range(1, 5):
        form = Each(tuple(f"call {number}" for number in range(length)), ("trace", "hit"))
        for truth in itertools.product(form.choices, repeat=length):
            text = form.text(truth)
            assert form.read(text) == truth
            assert length == 1 or text not in form.hint


@given(sizes=st.lists(st.integers(1, 999), min_size=4, max_size=4), wrong=st.sampled_from([
    "B*M*N*K", "2*M*N*K", "2*B*M*N", "2*B*M*N*K + B", "2*B*M*N*K - M", "2*B*M*N*N", "B*M*N*(2*K - 1)", "2*B**2*M*N*K",
]))  # fmt: skip
def test_formulas_are_equal_if_they_are_for_all_sizes(sizes, wrong):
    """Also those that are equal for the sizes of the program, such as `N*N` and `N*K` where both are 5, are not."""
    form, letters = Formula(("B", "M", "N", "K")), dict(zip("BMNK", sizes, strict=True))
    for text in (
        "2*B*M*N*K",
        "K*N*M*B*2",
        "(B + B)*M*N*K",
        "2·B×M*N*K",
        "B*M*N*(3*K - K)",
        "'2*B*M*N*K'",
        "B*M*N*K*0.2*10",
    ):
        value = form.read(text)
        assert form.same(value, "2*B*M*N*K")
        assert arithmetic(value, letters) == pytest.approx(2 * math.prod(sizes), 1e-12)
    assert not form.same(form.read(wrong), "2*B*M*N*K")


@pytest.mark.parametrize(
    "answer", ["2*b", "2*B*N", "B M", "B.real", "B(M)", "[B, M]", "lambda: B", "B/0", "B**99", 7, None]
)
def test_what_is_no_formula_of_the_letters_is_refused(answer):
    with pytest.raises(Unreadable):
        Formula(("B", "M")).read(answer)


def test_marked_lines_are_read_by_number_and_by_text():
    form = Several(("c:f32[2,3] = sin a", "d:f32[2] = sum[axes=(1,)] c", "e:f32[2] = add d b"))
    for answer in ("3, 1", "1;3", [1, 3], (form.choices[2], form.choices[0]), np.array([1, 3]), ["3", form.choices[0]]):
        assert form.text(form.read(answer)) == "1, 3"
    assert [form.text(form.read(answer)) for answer in (2, "2", form.choices[1], [2, 2])] == ["2"] * 4
    for answer in ("", "4", 0, [], True, None, "1, x", [1, None], "1 3", {1}, object()):
        with pytest.raises(Unreadable):
            form.read(answer)
