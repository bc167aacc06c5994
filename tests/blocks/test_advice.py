"""What an error of a block's arguments says to try works when it is pasted: every kind, every field, bad values."""

import inspect
from typing import get_type_hints

import pytest

import mithril_nb.models as models
from mithril_nb.errors import MithrilError
from mithril_nb.models import KINDS, Constant, Linear, Model, Residual
from mithril_nb.models.fields import example, fields_of

BAD = (None, "bad!", object(), -(10**9), 10**9, 2.5, -1, 0, [], [1, 2, 3, 4, 5], {1: 2}, float("nan"), 10**400)


def takes_blocks(kind: str) -> bool:
    """Whether an argument is a block: a call in a message cannot know which."""
    hints = get_type_hints(KINDS[kind].__init__, include_extras=True).values()
    return any(inspect.isclass(one) and issubclass(one, Model) for hint in hints for one in (hint, *_parts(hint)))


def _parts(hint) -> tuple:
    return tuple(part for arg in getattr(hint, "__args__", ()) for part in (arg, *_parts(arg)))


OURS = sorted(kind for kind in KINDS if KINDS[kind].__module__.startswith("mithril_nb."))


@pytest.mark.parametrize("kind", [kind for kind in OURS if not takes_blocks(kind)])
def test_what_an_error_says_to_try_works_when_pasted(kind: str):
    fields = fields_of(KINDS[kind])
    needed = {field.name: example(field) for field in fields if field.is_required}
    KINDS[kind](**needed)
    tried: set[str] = set()
    for field in fields:
        for bad in BAD:
            try:
                KINDS[kind](**{**needed, field.name: bad})
            except MithrilError as error:
                tried |= {one.advice for one in error.diagnostics if one.advice.startswith(f"{kind}(")}
    for advice in tried:
        assert isinstance(eval(advice, dict(vars(models))), Model), advice


def test_values_nested_too_deep_are_refused():
    deep: object = 1
    for _ in range(900):
        deep = [deep]
    with pytest.raises(MithrilError) as caught:
        Constant(deep)
    assert "needs  numbers, texts, or lists of such, at most 64 levels deep\n" in str(caught.value)
    assert str(caught.value).endswith("Try: Constant(value=0.0)")


def test_nobody_waits_for_millions_of_ports():
    for kind in ("ToTuple", "ToList", "Concat", "Stack"):
        with pytest.raises(MithrilError) as caught:
            KINDS[kind](3_000_000)
        assert "needs  a whole number from 1 to 1024" in str(caught.value)


@pytest.mark.parametrize("block", [None, 3, "relu", Linear])
def test_a_residual_goes_around_a_block(block):
    with pytest.raises(MithrilError) as caught:
        Residual(block)
    assert str(caught.value) == (
        f"cannot make Residual around {block!r}.\n"
        "    needs  a block with an input and an output\n"
        "    Try: Residual(Linear(64))"
    )
