"""UniqueNames in emitted source."""

from __future__ import annotations

import keyword

from hypothesis import given
from hypothesis import strategies as st

from mithril_nb.emission.naming.names import RESERVED, UniqueNames, identifier


@given(st.text())
def test_any_text_becomes_an_identifier(text: str) -> None:
    name = identifier(text)
    assert name.isascii()
    assert name.isidentifier()
    assert not keyword.iskeyword(name)
    assert name not in RESERVED


@given(st.lists(st.text(max_size=3)))
def test_names_in_a_scope_differ(texts: list[str]) -> None:
    names = UniqueNames(["x"])
    found = [names.new(text) for text in texts]
    assert len({*found, "x"}) == len(found) + 1
