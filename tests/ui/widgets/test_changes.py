"""Changes between snapshots: applied to the old one, they give the new one."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mithril_nb
from mithril_nb.ui.widgets.changes import change_between

# Old value, new value, change. `tests/changes.test.ts` applies the same changes.
CASES = json.loads((Path(mithril_nb.__file__).parent / "ui/frontend/fixtures/changes.json").read_text("utf-8"))
NUMBERS = st.integers(-2, 2) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text("ab", max_size=2)
KEYS = st.sampled_from(["a", "b", "c", "d/e", "__proto__", "ü\n"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)


def applied(old: Any, change: Any) -> Any:
    """Return the value after a change, as in `kernel/changes.ts`."""
    if isinstance(change, list):
        if len(change) == 3:
            start, count, values = change
            return [*old[:start], *values, *old[start + count :]]
        return change[0]
    if not change:
        return old
    if isinstance(old, list | tuple):
        return [applied(value, change.get(str(at), {})) for at, value in enumerate(old)]
    found: dict[str, Any] = {}
    added = {key: one for key, one in change.items() if key not in old}
    for key, value in old.items():
        found |= {new: one[0] for new, one in added.items() if one[1:] == [key]}
        if change.get(key) != []:
            found[key] = applied(value, change.get(key, {}))
    return found | {new: one[0] for new, one in added.items() if len(one) == 1}


def as_text(value: Any) -> str:
    """Return a value as JSON, which distinguishes True from 1 and keeps the order of keys."""
    return json.dumps(value)


@given(VALUES, VALUES)
def test_a_change_leads_to_the_new_value(old, new) -> None:
    shared = {"a": old, "b": [new, old]}
    for before, after in ((old, new), (shared, {**shared, "a": new}), (shared["b"], [new, new])):
        change = json.loads(json.dumps(change_between(before, after)))
        assert as_text(applied(before, change)) == as_text(after)


@given(st.data(), st.dictionaries(KEYS, st.lists(st.dictionaries(KEYS, LEAVES, min_size=1), min_size=1), min_size=1))
def test_one_changed_leaf_gives_one_small_change(data, old) -> None:
    new = json.loads(json.dumps(old))
    key = data.draw(st.sampled_from(list(old)))
    at = data.draw(st.integers(0, len(old[key]) - 1))
    name = data.draw(st.sampled_from(list(old[key][at])))
    new[key][at][name] = "new"
    assert change_between(old, new) == {key: {str(at): {name: ["new"]}}}


@given(VALUES)
def test_equal_values_have_no_change(value) -> None:
    assert change_between(value, json.loads(json.dumps(value))) == {}
    assert change_between([value], (value,)) == {}


@pytest.mark.parametrize("case", range(len(CASES)))
def test_changes_are_as_the_front_end_expects(case) -> None:
    old, new, change = CASES[case]
    assert as_text(change_between(old, new)) == as_text(change)
    assert as_text(applied(old, change)) == as_text(new)
