"""The public names: what they are, and that each says what it is for."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import mithril_nb


def public() -> list[str]:
    return [name for name in mithril_nb.__all__ if callable(getattr(mithril_nb, name))]


def test_every_public_name_is_there() -> None:
    assert sorted(mithril_nb.__all__) == mithril_nb.__all__
    assert set(mithril_nb.__all__) <= set(dir(mithril_nb))
    for name in mithril_nb.__all__:
        assert getattr(mithril_nb, name) is not None


@pytest.mark.parametrize("name", public())
def test_a_public_name_says_what_it_is_for(name: str) -> None:
    documented = getattr(mithril_nb, name)
    text = inspect.getdoc(documented) or ""
    assert text.splitlines(), f"{name} has no docstring"
    assert text.splitlines()[0].rstrip().endswith((".", ":")), f"the first line of {name} is no sentence"


@pytest.mark.parametrize("name", public())
def test_public_methods_say_what_they_are_for(name: str) -> None:
    owner: Any = getattr(mithril_nb, name)
    if not inspect.isclass(owner):
        pytest.skip("not a class")
    ours = [base for base in owner.__mro__ if base.__module__.startswith("mithril_nb")]
    missing = [
        f"{name}.{method}"
        for base in ours
        for method, value in vars(base).items()
        if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
        if not inspect.getdoc(getattr(base, method))
    ]
    assert missing == []
