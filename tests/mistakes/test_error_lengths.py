"""The texts of errors: their maximum length, and counts of omitted parts."""

import pickle

import pytest

from mithril_nb.errors import LONGEST, Diagnostic, MithrilError, ShapeError, listed, short_repr, similar


def test_a_long_fact_is_cut_with_a_count():
    found = Diagnostic("it fails.", (("names", "a" * 12_345), ("more", "short")), "do_this()")
    assert len(str(found)) <= LONGEST
    cut = f"{'a' * 1_572}... (10,773 characters more)"
    assert found.to_dict()["facts"] == [["names", cut], ["more", "short"]]
    assert str(found) == f"it fails.\n    names  {cut}\n    more   short\n    Try: do_this()"
    assert found.facts == (("names", "a" * 12_345), ("more", "short"))


@pytest.mark.parametrize(
    "found",
    [
        Diagnostic("x" * 100_000, (("fact", "y" * 100_000),), "z" * 100_000),
        Diagnostic("it fails.", (("label" * 9_000, "\n" * 10_000), ("fact", "y" * 9_000)), "do_this()"),
        Diagnostic("it fails.", tuple((f"fact {number}", "y") for number in range(9_000)), "do_this()"),
    ],
    ids=["all parts", "many lines", "many facts"],
)
def test_no_text_is_longer_than_the_limit(found):
    assert len(str(found)) <= LONGEST
    assert "more" in str(found)
    assert len(str(MithrilError(found, more=(found,) * 100))) <= LONGEST
    assert len(str(found.to_dict())) <= 2 * LONGEST


def test_omitted_facts_are_counted():
    found = Diagnostic("it fails.", tuple((f"fact {number}", "y") for number in range(9_000)), "do_this()")
    assert str(found).splitlines()[-3:] == ["    fact 9  y", "    ...     and 8,990 more", "    Try: do_this()"]


def test_omitted_problems_are_counted():
    error = ShapeError(Diagnostic("problem 0."), more=tuple(Diagnostic(f"problem {n}.") for n in range(1, 1_000)))
    *shown, last = str(error).splitlines()
    assert len(str(error)) <= LONGEST
    assert shown == [f"problem {number}." for number in range(len(shown))]
    assert last == f"... and {1_000 - len(shown)} more: error.diagnostics has all of them."
    assert len(error.diagnostics) == 1_000
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.diagnostics) == (str(error), error.diagnostics)


def test_lists_of_names_end_with_a_count():
    assert listed([f"'block_{n}'" for n in range(200_000)], 30) == "'block_0', 'block_1', ... and 199,998 more"
    assert listed(["a" * 1_000]) == "a" * 1_000


class Bad:
    def __repr__(self):
        raise ValueError("no")


def test_facts_are_omitted_before_advice():
    facts = tuple((f"fact {number}", "y" * 300) for number in range(50))
    advice = f"call({', '.join(f'argument_{number}={number}' for number in range(70))})"
    found = Diagnostic("it fails.", facts, advice)
    assert len(advice) > 1_000
    assert (found.facts, found.advice) == (facts, advice)
    assert str(found).endswith(f"more\n    Try: {advice}")
    assert len(str(found)) <= LONGEST
    assert found.to_dict()["advice"] == advice
    longer = Diagnostic("it fails.", facts, f"call('{advice * 2}')")
    assert str(longer).splitlines()[-1] == (
        f"    Try: see the attribute advice of this diagnostic: it has {len(longer.advice):,} characters."
    )
    assert len(str(found.to_dict())) <= 2 * LONGEST


def test_short_repr_shows_any_value_quickly():
    huge = 10**5_000
    assert short_repr(huge) == "<int with too many digits to show>"
    assert short_repr([huge]) == "<list whose repr fails>"
    assert short_repr(Bad()) == "<Bad whose repr fails>"
    assert short_repr(["a" * 10**7] * 10**6, 20) == repr("['aaaaaaaaaaaaaaa...")[1:-1]
    assert short_repr({"key": [1] * 50}, 20) == "{'key': [1, 1, 1,..."


def test_no_name_is_compared_with_a_very_long_one():
    assert similar("a" * 10**6, ["a" * 10**6]) == []
    assert similar("Linaer", ["Linear"] + ["Relu"] * 10**6) == ["Linear"]
