"""Alignment of sequences: a common subsequence, in the same order on both sides, and large if few items differ."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mithril_nb.stages.alignment import align

texts = st.text("abc", max_size=30)


@given(texts, texts)
def test_pairs_are_equal_and_in_order(left, right):
    pairs = align(left, right)
    assert all(left[at] == right[to] for at, to in pairs)
    assert all(one < other and start < end for (one, start), (other, end) in pairwise(pairs))


@given(texts)
def test_equal_sequences_match_completely(text):
    assert align(text, text) == [(at, at) for at in range(len(text))]


@given(st.lists(st.integers(), unique=True), st.lists(st.integers(), unique=True))
def test_unique_items_give_the_longest_common_subsequence(left, right):
    longest = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for at, one in enumerate(left):
        for to, other in enumerate(right):
            longest[at + 1][to + 1] = (
                longest[at][to] + 1 if one == other else max(longest[at][to + 1], longest[at + 1][to])
            )
    assert len(align(left, right)) == longest[-1][-1]


@given(texts, st.integers(0, 30))
def test_one_more_item_is_the_only_one_without_a_partner(text, at):
    longer = f"{text[:at]}z{text[at:]}"
    assert len(align(text, longer)) == len(text)


def test_long_repetitive_sequences_are_aligned():
    left = ["add", "mul"] * 5000
    assert len(align(left, [*left, "add"])) == len(left)
