"""The language of searches: queries are read as written, and only the documented error is raised."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transcript import message_of

from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.query import EXAMPLES, NUMBERS, Condition, Query, Searchable, parse_query

PIECES = ("kind:", "block:", "flops>", "bytes<=", "memory=", "role:", "dtype:", "line:", "-", '"', "\\", " ", "1e6",
          "2M", "backward", "dot", ":", "<", "a/b", "*", "\u00a0", "\n", "%2F", "\u202e", "1KiB", ".", "e")  # fmt: skip
texts = st.text(min_size=1, max_size=8) | st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)
queries = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=8).map("".join)
numbers = st.floats(0, 1e300, allow_nan=False) | st.integers(0, 10**18).map(float)
terms = st.one_of(
    st.builds(Condition, st.sampled_from(("", "block", "kind", "dtype", "line")), st.just(":"), texts, st.booleans()),
    st.builds(Condition, st.just("role"), st.just(":"), st.sampled_from(("forward", "BACKWARD")), st.booleans()),
    st.builds(
        Condition, st.sampled_from(NUMBERS), st.sampled_from(("<", "<=", "=", ">=", ">")), numbers, st.booleans()
    ),
)


@given(st.lists(terms, max_size=4).map(lambda found: Query(tuple(found))))
@example(
    Query((Condition("", ":", "-a"), Condition("", ":", "a:b"), Condition("kind", ":", '"'), Condition("", ":", "\\")))
)
def test_text_of_a_query_is_read_as_the_same_query(query: Query) -> None:
    assert parse_query(str(query)) == query


@given(queries)
@example('"\\')
@example("flops>" + "9" * 400)
def test_any_text_is_a_query_or_raises_the_documented_error(text: str) -> None:
    for _ in range(4):  # the advice is a query, or leads to one
        try:
            query = parse_query(text)
            break
        except UnknownOptionError as error:
            text = error.diagnostics[0].advice
    else:
        raise AssertionError(text)
    assert parse_query(str(query)) == query
    query.matches(Searchable(("a/b",), ("dot_general",), "forward", ("float32",), ("f.py:1",), {"flops": 1}))


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ("", True), ("dot", True), ("DOT", True), ("head", True), ("linear", True), ("sin", False),
        ("kind:dot", True), ("kind=linear", True), ("kind:head", False), ("-kind:sin", True),
        ("block:lm_head", True), ("block:lm", False), ("block:lm*", True), ("block:LM_HEAD/linear_1", True),
        ("block:linear_1", True), ("block:linear", False), ("block:*/linear_1", True), ("block:linear_1/*", False),
        ("block:(unattributed)", False), ("role:backward", True), ("role:forward", False), ("-role:forward", True),
        ("dtype:f64", True), ("dtype:float64", True), ("dtype:f6", False), ("line:train.py", True),
        ("line:train.py:1", True), ("flops>1e6", True), ("flops>=2M", True), ("flops<2M", False), ("flops:2e6", True),
        ("bytes>0", False), ("-bytes>0", True), ("memory<4KiB", True), ("memory<4kB", False), ("dot sin", False),
        ('"lm_head/linear"', True), ("dot role:backward flops>1e6", True), ("FLOPS>1", True),
    ],
)  # fmt: skip
def test_matches(query: str, matches: bool) -> None:
    numbers = {"flops": 2_000_000, "bytes": None, "memory": 4050}
    item = Searchable(
        ("lm_head/linear_1",), ("dot_general", "Linear"), "backward", ("float64",), ("train.py:12",), numbers
    )
    assert parse_query(query).matches(item) is matches


def test_items_without_a_block_are_found_by_their_label() -> None:
    assert parse_query("block:(unattributed)").matches(Searchable())
    assert not parse_query("block:head").matches(Searchable())


def test_every_example_is_a_query() -> None:
    assert [parse_query(text).keys for text in EXAMPLES.values()] == [(key,) for key in EXAMPLES]


def test_the_text_of_an_error() -> None:
    assert message_of(lambda: parse_query("knd:dot")) == (
        "UnknownOptionError: unknown key 'knd' in a query.\n"
        "    keys  block, kind, role, dtype, line, flops, bytes, memory\n"
        "    Try: kind:dot"
    )
