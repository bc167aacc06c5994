"""A model as data, as a file and as Python: each gives an equal graph back."""

import json

from hypothesis import given
from strategies import models, modest

from mithril_nb.models import MLP, Add, Linear, Model, Relu, from_dict, load, save, to_dict, to_source


def built(source: str) -> Model:
    """The model that a source makes."""
    namespace: dict = {}
    exec(compile(source, "<source>", "exec"), namespace)
    return namespace["model"]


@modest
@given(models())
def test_source_rebuilds_an_equal_graph(model):
    assert built(to_source(model.graph)).graph == model.graph


@modest
@given(models())
def test_data_rebuilds_an_equal_graph(model):
    text = json.dumps(to_dict(model.graph, "a name"))
    again = from_dict(json.loads(text))
    assert again.graph == model.graph
    assert again.name == "a name"


@modest
@given(models())
def test_what_was_rebuilt_is_edited_alike(model):
    again = from_dict(to_dict(model.graph))
    assert (again + Relu()).graph == (Model.of(model.graph) + Relu()).graph


def test_a_file_holds_the_model(tmp_path):
    model = Model(name="tagger") | Linear(3)(input="x", output="naïve <b>")
    model += MLP(3, [4, 5], 2, "gelu")
    save(model, tmp_path / "model.json")
    assert load(tmp_path / "model.json") == model
    assert load(str(tmp_path / "model.json")).name == "tagger"
    assert "naïve <b>" in (tmp_path / "model.json").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


def test_half_a_character_in_a_name_is_read_back(tmp_path):
    model = Model() | Linear(3, name="half \ud800/naïve")
    save(model, tmp_path / "model.json")
    assert load(tmp_path / "model.json") == model


def test_one_block_alone_keeps_its_parameter_names(tmp_path):
    save(Linear(3), tmp_path / "linear.json")
    assert load(tmp_path / "linear.json").graph == Linear(3).graph


def test_source_is_what_a_person_would_write():
    inner = Model(name="block")
    inner |= Linear(4, use_bias=False)(input="x", output="h")
    inner += Relu()
    inner += Add()(right="x")
    model = Model()
    model |= Linear(4)(weight="w")
    model += inner
    model += MLP(None, [3], 2, activation="tanh", name="head")
    model |= Linear(4)(input="block.output", weight="w", output="side")
    assert to_source(model.graph) == (
        "from mithril_nb.models import Add, Linear, MLP, Model, Relu\n"
        "\n"
        "block = Model(name='block')\n"
        "block |= Linear(4, use_bias=False)(input='x', output='h')\n"
        "block += Relu()\n"
        "block += Add()(right='x')\n"
        "model = Model()\n"
        "model |= Linear(4)(weight='w')\n"
        "model += block\n"
        "model += MLP(hidden_sizes=(3,), output_size=2, activation='tanh', name='head')\n"
        "model |= Linear(4)(input='block.output', weight='w', output='side')\n"
    )


def test_a_name_that_would_be_misread_is_written_as_data():
    model = Model()
    model |= Add()(left="input", right="h")
    model |= Linear(4)(output="h")
    source = to_source(model.graph)
    assert source.startswith("from mithril_nb.models import from_dict\n\nmodel = from_dict({'format'")
    assert built(source).graph == model.graph
