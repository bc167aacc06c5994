"""Initializers set by the user: by parameter name, as text that files and sources can contain."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from transcript import message_of

import mithril_nb as ml
from mithril_nb.graph.edit import rename
from mithril_nb.models import MLP, Linear, Model, Relu
from mithril_nb.models.initializers import INITIALIZERS, initializer_of, initializer_text
from mithril_nb.models.op import Initializer
from mithril_nb.ui.session.snapshot import describe_blocks


def starts(model: Model) -> dict[str, str]:
    return {one.name: one.initializer.name for one in ml.compile(model, shapes={"input": [2, 3]}).parameters}


def net() -> Model:
    model = Model() | Linear(4)
    model += MLP(None, [5], 2)
    return model


def test_one_parameter_or_all_inner_blocks():
    model = net().set_initializers(
        {"linear_0.weight": "he_normal", "mlp_0": "orthogonal", "mlp_0/linear_1.bias": "ones"}
    )
    assert starts(model) == {
        "linear_0.weight": "he_normal",
        "linear_0.bias": "zeros",
        "mlp_0.linear_0.weight": "orthogonal",
        "mlp_0.linear_0.bias": "zeros",
        "mlp_0.linear_1.weight": "orthogonal",
        "mlp_0.linear_1.bias": "ones",
    }


def test_the_axes_are_those_of_the_block():
    from mithril_nb.models import Conv2d

    model = Model() | Conv2d(4, 3, in_channels=2)
    model.set_initializers({"conv2d_0.weight": "lecun_uniform"})
    (weight, _) = ml.compile(model).parameters
    assert weight.initializer == Initializer("lecun_uniform", in_axis=1, out_axis=0)


def test_an_outer_initializer_overrides_an_inner_one():
    inner = net().set_initializers({"linear_0.weight": "he_normal", "mlp_0.linear_0.weight": "normal(0.5)"})
    outer = Model() | inner
    outer += Relu()
    assert starts(outer)["model_0.linear_0.weight"] == "he_normal"
    outer.set_initializers({"model_0.linear_0.weight": "zeros"}).set_differentiability({"model_0.mlp_0": False})
    found = starts(outer)
    assert (found["model_0.linear_0.weight"], found["model_0.mlp_0.linear_0.weight"]) == ("zeros", "normal")


def test_an_initializer_follows_a_renamed_block():
    graph = rename(net().set_initializers({"linear_0.weight": "he_normal"}).graph, "linear_0", "first")
    assert starts(Model.of(graph))["first.weight"] == "he_normal"


def test_a_shared_parameter_and_a_single_block():
    model = Model() | Linear(3, use_bias=False)(weight="w")
    model += Linear(3, use_bias=False)(weight="w")
    assert starts(model.set_initializers(w="constant(0.5)")) == {"w": "constant"}
    assert starts(Linear(4).set_initializers(weight="ones")) == {"weight": "ones", "bias": "zeros"}
    start = ml.compile(Linear(4, input_size=3).set_initializers(weight="constant(0.5, 1)")).randomize_params(0)
    np.testing.assert_array_equal(start["weight"], np.full((3, 4), 1.5))


def test_the_inspector_shows_the_initializer():
    model = net().set_initializers({"linear_0.weight": "normal(scale=0.02)"})
    pm = ml.compile(model, shapes={"input": [2, 3]})
    shown = describe_blocks(pm.graph, pm.inference, {})["linear_0"]["params"]
    initializers = [(array["shape"], array["initializer"], array["usual"]) for array in shown]
    assert initializers == [("(3, 4)", "normal(0.02)", "normal"), ("(4,)", "", "zeros")]


@pytest.mark.parametrize("name", INITIALIZERS)
def test_a_text_parses_to_one_initializer(name):
    given = {"scale": 0.1, "shift": -2.0, "in_axis": 1, "out_axis": 0}
    whole = Initializer(name, **{key: given[key] for key in INITIALIZERS[name]})
    assert initializer_of(initializer_text(whole)) == whole
    assert initializer_text(initializer_text(whole)) == initializer_text(whole)
    assert initializer_text(name) == name


CASES = [
    (
        lambda: net().set_initializers({"linear_0.weight": "he_norml"}),
        """
        UnknownOptionError: unknown initializer 'he_norml'.
            known  glorot_uniform, glorot_normal, he_uniform, he_normal, lecun_uniform, lecun_normal, orthogonal, truncated_normal, normal, uniform, constant, zeros, ones
            Try: 'he_normal'""",  # noqa: E501
    ),
    (
        lambda: net().set_initializers({"linear_0.weight": "qqqqq"}),
        """
        UnknownOptionError: unknown initializer 'qqqqq'.
            known  glorot_uniform, glorot_normal, he_uniform, he_normal, lecun_uniform, lecun_normal, orthogonal, truncated_normal, normal, uniform, constant, zeros, ones
            Try: 'normal(0.02)'""",  # noqa: E501
    ),
    (
        lambda: net().set_initializers({"linear_0.wieght": "zeros"}),
        """
        ConnectionError: the model has no parameter 'linear_0.wieght' to set an initializer for.
            parameters  linear_0.weight, linear_0.bias, mlp_0.linear_0.weight, mlp_0.linear_0.bias, mlp_0.linear_1.weight, mlp_0.linear_1.bias
            Try: model.set_initializers({'linear_0.weight': 'zeros'})""",  # noqa: E501
    ),
    (
        lambda: Relu().set_initializers(weight="zeros"),
        """
        ConnectionError: the model has no parameter 'weight' to set an initializer for.
            parameters  none
            Try: model.set_initializers({'linear_0': 'zeros'})""",
    ),
]


@pytest.mark.parametrize(("call", "text"), CASES)
def test_message(call, text):
    assert message_of(call) == textwrap.dedent(text).strip("\n")


INVALID = [
    ("normal(x)", "numbers as arguments, not 'x'"),
    ("zeros(1)", "arguments of zeros: none"),
    ("normal(1, scale=2)", "each argument once, by its name, and finite"),
    ("normal(nan)", "each argument once, by its name, and finite"),
    ("__import__('os')", """numbers as arguments, not "'os'\""""),
    (3, "text"),
]


@pytest.mark.parametrize(("given", "needs"), INVALID)
def test_message_of_an_invalid_initializer(given, needs):
    assert message_of(lambda: net().set_initializers({"linear_0": given})) == (
        f'UnknownOptionError: {given!r} is not an initializer.\n    needs  {needs}\n    Try: "normal(scale=0.02)"'
    )
