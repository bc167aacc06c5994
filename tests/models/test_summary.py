"""The summary table of a model: its text and its totals."""

from __future__ import annotations

import textwrap

import pytest
from transcript import message_of

import mithril_nb as ml
from mithril_nb.models import MLP, BatchNorm, Embedding, LayerNorm, Linear, Model, Relu, Repeat


def model() -> Model:
    whole = Model()
    whole |= Embedding(100, 8)(input="tokens")
    whole += MLP(None, [4], 2, name="a\nb")
    whole += LayerNorm()
    return whole


def dedented(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def test_nested_blocks_with_named_dims():
    assert model().summary({"tokens": ["batch", "time"]}) == dedented("""
        block         kind       output               params   share
        tokens                   (batch, time) int32
        embedding_0   Embedding  (batch, time, 8)        800  94.1 %
        'a\\nb'        MLP        (batch, time, 2)         46   5.4 %
          linear_0    Linear     (batch, time, 4)         36   4.2 %
          relu_0      Relu       (batch, time, 4)
          linear_1    Linear     (batch, time, 2)         10   1.2 %
        layer_norm_0  LayerNorm  (batch, time, 2)          4   0.5 %
        850 parameters, 3.4 kB""")


def test_the_depth_is_limited():
    assert model().summary(depth=1) == dedented("""
        block         kind       output    params   share
        tokens                   unknown
        embedding_0   Embedding  (..., 8)     800  94.1 %
        'a\\nb'        MLP        (..., 2)      46   5.4 %
        layer_norm_0  LayerNorm  (..., 2)       4   0.5 %
        850 parameters, 3.4 kB""")
    assert model().summary({"tokens": [2]}, depth=0) == dedented("""
        block   kind  output      params  share
        tokens        (2,) int32
        850 parameters, 3.4 kB""")


def test_shared_parameters_count_once_and_frozen_ones_are_listed():
    shared = Model() | Linear(4, use_bias=False)(weight="w")
    shared += Linear(4, use_bias=False)(weight="w")
    shared += BatchNorm()
    shared.set_differentiability(w=False)
    assert shared.summary({"input": [2, 4]}) == dedented("""
        block         kind       output  params   share
        input                    (2, 4)
        linear_0      Linear     (2, 4)      16  66.7 %
        linear_1      Linear     (2, 4)  shared
        batch_norm_0  BatchNorm  (2, 4)       8  33.3 %
        24 parameters, 96 B, 16 of them not trained, 8 state values""")


def test_a_repeated_block():
    assert (Model() | Repeat(Linear(8), 3)).summary({"input": [2, 8]}) == dedented("""
        block     kind    output  params    share
        input             (2, 8)
        repeat_0  Repeat  (2, 8)     216  100.0 %
          body    Linear  (2, 8)     216  100.0 %
        216 parameters, 864 B""")


def test_empty_models_and_unknown_shapes():
    assert Model().summary() == "block  kind  output  params  share\n0 parameters"
    assert Linear(3).summary() == dedented("""
        block   kind    output     params  share
        input           unknown
        linear  Linear  (..., 3)  unknown
        an unknown number of parameters""")


def test_a_compiled_model_has_the_same_table_with_its_dtype():
    whole = MLP(784, [64], 10)
    pm = ml.compile(whole, ml.JaxBackend(dtype="bfloat16"), shapes={"input": ["batch", 784]})
    assert pm.summary() == whole.summary({"input": ["batch", 784]}).replace("204 kB", "102 kB")
    assert pm.summary(depth=0).endswith("\n50,890 parameters, 102 kB")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: Relu().summary(depth=-1),
            """
            UnknownOptionError: cannot show -1 levels.
                needs  a whole number of 0 or more, or None for all
                Try: depth=1""",
        ),
        (
            lambda: Relu().summary(depth="all"),
            """
            UnknownOptionError: cannot show 'all' levels.
                needs  a whole number of 0 or more, or None for all
                Try: depth=1""",
        ),
        (
            lambda: Relu().summary({"x": [2]}),
            """
            UnexpectedInputError: the model has no input 'x'.
                inputs  'input'
                Try: shapes = {'input': [2]}""",
        ),
    ],
)
def test_message(call, text):
    assert message_of(call) == dedented(text)


def test_an_unknown_dtype():
    assert message_of(lambda: Linear(3).summary({"input": [2, 3]}, dtype="float8")).startswith(
        "UnknownDtypeError: unknown dtype 'float8'.\n"
    )
