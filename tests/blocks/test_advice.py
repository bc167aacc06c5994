"""The advice of errors of block arguments works when pasted: every kind, every field, bad values."""

import inspect
from typing import get_type_hints

import pytest

import mithril_nb.models as models
from mithril_nb.errors import MithrilError
from mithril_nb.models import GPT, KINDS, Constant, Embedding, Indexer, Linear, Model, Residual
from mithril_nb.models.fields import example, fields_of

BAD = (None, "bad!", object(), -(10**9), 10**9, 2.5, -1, 0, [], [1, 2, 3, 4, 5], {1: 2}, float("nan"), 10**400)


def takes_blocks(kind: str) -> bool:
    """Return whether an argument is a block, which the call in a message cannot contain."""
    hints = get_type_hints(KINDS[kind].__init__, include_extras=True).values()
    return any(inspect.isclass(one) and issubclass(one, Model) for hint in hints for one in (hint, *_parts(hint)))


def _parts(hint) -> tuple:
    return tuple(part for arg in getattr(hint, "__args__", ()) for part in (arg, *_parts(arg)))


OURS = sorted(kind for kind in KINDS if KINDS[kind].__module__.startswith("mithril_nb."))


@pytest.mark.parametrize("kind", [kind for kind in OURS if not takes_blocks(kind)])
def test_the_advice_works_when_pasted(kind: str):
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


@pytest.mark.parametrize("kind", [kind for kind in OURS if not takes_blocks(kind) and fields_of(KINDS[kind])])
def test_the_correction_of_a_misspelt_name_keeps_its_value(kind: str):
    fields = fields_of(KINDS[kind])
    for field in fields:
        with pytest.raises(MithrilError) as caught:
            KINDS[kind](**{f"{field.name[:-1]}_": example(field)})
        advice = caught.value.diagnostics[0].advice
        names = dict(vars(models))
        if advice.startswith(f"{kind}("):
            assert isinstance(eval(advice, names), Model), advice
        else:
            corrected = eval(f"dict({advice})", names)
            assert corrected.keys() <= {near.name for near in fields}
            assert [*corrected.values()] == [example(field)]
        if len(field.name) > 4 and field.type != "value" and len(fields) == 1:
            assert f"{field.name}={example(field)!r}" in advice


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda: GPT(vocab=256, layers=3, dim=4, heads=4), "vocabulary=256"),
        (lambda: GPT(256, layrs=2), "layers=2"),
        (lambda: Embedding(num=3), "num_embeddings=3"),
        (lambda: Linear(64, dims=3, bias=False), "dimension=3, use_bias=False"),
        (lambda: Residual(), "Residual(Linear(64))"),
        (lambda: Linear(64, width=1), "Linear(dimension=64)"),
    ],
)
def test_a_misspelt_call_is_corrected(call, advice: str):
    with pytest.raises(MithrilError) as caught:
        call()
    assert caught.value.diagnostics[0].advice == advice


def test_values_nested_too_deep_are_rejected():
    deep: object = 1
    for _ in range(900):
        deep = [deep]
    with pytest.raises(MithrilError) as caught:
        Constant(deep)
    assert "needs  one value, or lists nested at most 64 levels deep\n" in str(caught.value)
    assert str(caught.value).endswith("Try: Constant(value=0.0)")


def test_millions_of_ports_are_rejected_quickly():
    for kind in ("ToTuple", "ToList", "Concat", "Stack"):
        with pytest.raises(MithrilError) as caught:
            KINDS[kind](3_000_000)
        assert "needs  a whole number from 1 to 1024" in str(caught.value)


def test_the_limits_are_accepted():
    for value in (2**31 - 1, -(2**31), [], [[]], True, [1, 2.5, 2**40], float("inf")):
        Constant(value)
    Constant(2**40, dtype="float32")
    Constant(2**32 - 1, dtype="uint32")
    Indexer(("...", None, 0, ("slice", 1, None, None), (0, 1)))


@pytest.mark.parametrize("block", [None, 3, "relu", Linear])
def test_a_residual_needs_a_block(block):
    with pytest.raises(MithrilError) as caught:
        Residual(block)
    assert str(caught.value) == (
        f"cannot build Residual around {block!r}.\n"
        "    needs  a block with an input and an output\n"
        "    Try: Residual(Linear(64))"
    )
