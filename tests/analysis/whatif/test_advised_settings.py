"""The advice for unknown settings can be pasted and works, with the given values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from analysis.whatif.programs import perceptron, spec
from raised import message_of

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError
from mithril_nb.models import GPT, Linear, Model, Relu

SHAPES = {"input": [4, 8]}


def gpt(layers: int = 2) -> Model:
    return GPT(vocabulary=64, layers=layers, width=16, heads=4, context=64)


def chain() -> Model:
    model = Model()
    for block in (Linear(8), Relu(), Linear(3)):
        model += block
    return model


def advice_of(call: Callable[[], Any]) -> str:
    with pytest.raises(UnknownOptionError) as error:
        call()
    return error.value.diagnostics[0].advice


@pytest.mark.parametrize(
    ("model", "given", "advised"),
    [
        (gpt(), {"block_0.attention.heads": 2}, '{"block_0/attention.heads": 2}'),
        (gpt(), {"block_0/attention/heads": 2}, '{"block_0/attention.heads": 2}'),
        (gpt(), {"block_0.hads": 2}, '{"block_0.heads": 2}'),
        (gpt(), {"block_7.heads": 2}, '{"block_1.heads": 2}'),
        (gpt(), {"nope.dimension": 2}, '{"block_1/mlp/up.dimension": 2}'),
        (gpt(), {"heads": 2}, '{"block_0.heads": 2}'),
        (chain(), {"dimension": 5}, '{"linear_0.dimension": 5}'),
    ],
)
def test_a_similar_attribute_is_suggested(model: Model, given: dict[str, Any], advised: str) -> None:
    made = ml.what_if(model, shapes=SHAPES)
    assert advice_of(lambda: made(given)) == advised
    assert made(eval(advised)).after.total.flops


def test_a_what_if_is_not_a_program() -> None:
    with pytest.raises(UnknownOptionError) as error:
        ml.what_if(ml.what_if(perceptron))
    assert str(error.value).partition("\n")[2] == (
        "    needs  a model, a function, a module, a traced, lowered or compiled program, or a file"
    )


def test_a_setting_that_is_not_a_list_in_a_sweep_raises() -> None:
    model = chain()
    assert message_of(lambda: ml.sweep(model, shapes=SHAPES, batch=[2, 4], dtype="bfloat16")) == (
        "UnknownOptionError: "
        "dtype=\"bfloat16\" cannot be set with program 'Model': ml.sweep varies them if they are lists.\n"
        "    settings  batch, dtype, precision, remat"
    )


def test_advice_on_casts_does_not_repeat_the_call() -> None:
    prefix = "dtype: the program casts more than before: "
    model = gpt()
    own = ml.what_if(model, shapes=SHAPES, learns=False)(dtype="bfloat16")
    assert own.notes == (f"{prefix}some of its blocks always compute in float32",)
    fixed = ml.what_if(ml.inspect(model, shapes=SHAPES), learns=False)(dtype="bfloat16")
    other = 'ml.what_if(model, ...), or ml.what_if(make) with make(dtype="float32"), rebuilds it'
    assert fixed.notes == (
        f"{prefix}only its inputs have the new dtype, and the casts inside it are unchanged; {other}",
    )


def test_casts_of_a_users_function_have_no_note() -> None:
    def make(dtype: str = "float32") -> Any:
        return lambda x: x.astype("float32") + 1, (spec(4, 3, dtype=dtype),)

    assert ml.what_if(make)(dtype="bfloat16").notes == ()
