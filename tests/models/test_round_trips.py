"""A model as data, as a file and as Python: each rebuilds an equal graph."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import models, modest

from mithril_nb.errors import MithrilError
from mithril_nb.graph.records import Endpoint
from mithril_nb.models import (
    MLP,
    Add,
    Composite,
    Cond,
    Constant,
    IOKey,
    Linear,
    Model,
    Relu,
    Repeat,
    Residual,
    Scan,
    Softmax,
    Tanh,
    from_dict,
    load,
    save,
    to_dict,
    to_source,
)
from mithril_nb.models.saving.reading import from_source
from mithril_nb.models.shape_inference.flat import flat


def built(source: str) -> Model:
    """Return the model that a source builds, which is also what it is read as."""
    namespace: dict = {}
    exec(compile(source, "<source>", "exec"), namespace)
    model = namespace["model"]
    assert from_source(source).graph == (model if model.kind == "Model" else Model() | model).graph
    return model


@modest
@given(models())
def test_source_rebuilds_an_equal_graph(model):
    assert built(to_source(model.graph)).graph == model.graph


@st.composite
def noted(draw: st.DrawFn) -> Model:
    """Return a model with annotations."""
    model = draw(models(most=4))
    graph = model.graph
    arrays = sorted({array for op in flat(graph).ops for array in op.arrays.values()})
    ends = [str(Endpoint("", port.name)) for port in graph.inputs if port.role == "data"]
    gives = [str(Endpoint(node.name, port.name)) for node in graph.nodes for port in node.block.outputs]
    for _ in range(draw(st.integers(1, 3))):
        end = draw(st.sampled_from([*ends, *gives, "nothing"]))
        array = draw(st.sampled_from([*arrays, "nothing"]))
        with suppress(MithrilError):  # no connection has this name
            draw(st.sampled_from((
                lambda: model.set_shapes({end: draw(st.sampled_from((["n", 4], ["..."], [2, 4])))}),  # noqa: B023
                lambda: model.set_types({end: "float32"}),  # noqa: B023
                lambda: model.set_differentiability({array: draw(st.booleans())}),  # noqa: B023
                lambda: model.set_initializers({array: draw(st.sampled_from(("he_normal", "normal(0.5, 1)")))}),  # noqa: B023
                lambda: model.expose_keys(end),  # noqa: B023
                lambda: model.set_order(*draw(st.permutations(ends))),
                lambda: model.set_order(end),  # noqa: B023
            )))()  # fmt: skip
    return model


@modest
@given(noted())
def test_annotations_are_kept_by_data_and_by_source(model):
    assert from_dict(json.loads(json.dumps(model.to_dict()))).graph == model.graph
    assert built(to_source(model.graph)).graph == model.graph
    again = Model() | Model.of(model.graph, "inner")
    assert from_dict(again.to_dict()).graph == again.graph
    assert built(to_source(again.graph)).graph == again.graph


def test_an_unnamed_input_can_be_named_by_source():
    model = Model() | Relu()
    model |= Model.of((Model() | Relu()).graph, "v1.5")
    assert [port.name for port in model.graph.inputs] == ["input", "v1_5_input"]
    model.set_types({"v1_5_input": "float32"})
    assert built(to_source(model.graph)).graph == model.graph
    assert from_dict(json.loads(json.dumps(model.to_dict()))).graph == model.graph


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan"), -0.0])
@pytest.mark.parametrize("name", ["x", "constant_0_output"])
def test_numbers_without_a_literal_are_kept(number, name):
    model = Model() | Constant((1.0, number))
    model |= Relu()(input=name)  # a name that the source cannot express is written as data
    assert from_dict(json.loads(json.dumps(model.to_dict()))) == model
    assert built(to_source(model.graph)) == model


def test_a_parameter_declared_trainable_is_kept():
    model = Model() | Linear(3)(input="x", weight=IOKey("w", differentiable=True))
    model |= Relu()(input=IOKey("given", differentiable=True))
    assert from_dict(model.to_dict()) == model
    assert built(to_source(model.graph)) == model
    assert model.set_differentiability(given=True).inputs[1].role == "param"


def test_a_model_with_the_name_of_a_block_that_runs_others_is_kept():
    class Repeat(Model):
        def __init__(self, count):
            super().__init__()
            for _ in range(count):
                self += Linear(3)

    model = Model() | Repeat(2)
    assert from_dict(model.to_dict()) == model
    assert built(to_source(model.graph)) == model


def test_a_file_without_ops_is_read_by_its_kinds():
    model = Model() | Repeat(Linear(3), 2)
    data = model.to_dict()
    assert data["graph"]["nodes"][0].pop("op") == "repeat"
    assert from_dict(data) == model


@modest
@given(models())
def test_data_rebuilds_an_equal_graph(model):
    text = json.dumps(to_dict(model.graph, "a name"))
    again = from_dict(json.loads(text))
    assert again.graph == model.graph
    assert again.name == "a name"


@modest
@given(models())
def test_a_rebuilt_model_is_edited_alike(model):
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


def test_the_methods_are_the_functions(tmp_path):
    model = Model(name="tagger") | Linear(3)
    model.save(tmp_path / "model.json")
    assert Model.load(tmp_path / "model.json") == load(tmp_path / "model.json") == model
    assert Model.from_dict(model.to_dict()).name == "tagger"


def test_a_file_of_version_1_is_read():
    text = """{"format": "mithril_nb.model", "version": 1, "name": "old", "graph": {
     "nodes": [
      {"name": "linear_0", "kind": "Linear", "attributes": {"dimension": 3, "use_bias": true, "input_size": null}},
      {"name": "inner", "kind": "Model", "graph": {"nodes": [{"name": "relu_0", "kind": "Relu"}],
       "edges": [["", "input", "relu_0", "input"]], "labels": [["input", "", "input"]]}}],
     "edges": [["", "x", "linear_0", "input"], ["linear_0", "output", "inner", "input"]],
     "labels": [["h", "linear_0", "output"], ["x", "", "x"]]}}"""
    model = Model(name="old")
    model |= Linear(3)(input="x", output="h")
    inner = Model(name="inner") | Relu()(input="input")
    model |= inner(input="h")
    assert from_dict(json.loads(text)) == model
    assert from_dict(json.loads(text)).name == "old"


def everything() -> Model:
    """Return a model with every feature that files and sources must keep."""
    running = Model()
    running |= Add()(left="x", right="before", output="sum")
    model = Model()
    model |= Linear(4)(input=IOKey("x", shape=["batch", "time", 4]), output=IOKey("h", expose=True))
    model += Residual(Linear(4))
    model += Repeat(MLP(4, [3], 4), 3)
    model |= Constant([1.0, float("inf")])(output="limits")
    model |= Scan(running, carry={"sum": "before"}, axis=1)(x="h", before="start")
    model |= Cond(Relu(), Model() | Tanh() + Softmax())(condition="flag", input="h", output="either")
    model.set_differentiability({"linear_0.weight": False})
    return model.set_initializers({"residual_0": "orthogonal", "repeat_0.body.linear_0.weight": "he_normal"})


def test_every_feature_is_kept(tmp_path):
    model = everything()
    model.save(tmp_path / "model.json")
    assert Model.load(tmp_path / "model.json") == model
    assert built(to_source(model.graph)) == model


def test_the_source_of_every_feature_is_readable():
    assert to_source(everything().graph) == EVERYTHING


EVERYTHING = """\
from mithril_nb.models import Add, Cond, Constant, Linear, MLP, Model, Relu, Repeat, Scan, Softmax, Tanh

residual_0 = Model(name='residual_0')
residual_0 |= Linear(4)(input='input')
residual_0 |= Add()(left='input', right='linear_0.output', output='output')
residual_0 = Model.of(residual_0.graph, 'residual_0', 'Residual')
model = Model()
model |= Linear(4)(input='x', output='h')
model += residual_0
model += Repeat(MLP(input_size=4, hidden_sizes=(3,), output_size=4), count=3)
model |= Constant(value=(1.0, float('inf')))(output='limits')
body = Model()
body |= Add()(left='x', right='before', output='sum')
model |= Scan(body, carry={'sum': 'before'})(x='h', before='start')
model_0 = Model(name='model_0')
model_0 |= Tanh()
model_0 += Softmax()
otherwise = Model()
otherwise |= model_0
model |= Cond(Relu(), otherwise)(condition='flag', input='h', output='either')
model.expose_keys('h')
model.set_differentiability({'linear_0.weight': False})
model.set_initializers({'repeat_0.body.linear_0.weight': 'he_normal', 'residual_0.linear_0.weight': 'orthogonal'})
model.set_shapes(x=['batch', 'time', 4])
"""


def test_one_block_alone_keeps_its_parameter_names(tmp_path):
    save(Linear(3), tmp_path / "linear.json")
    assert load(tmp_path / "linear.json").graph == Linear(3).graph


def test_source_is_idiomatic():
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


def test_an_ambiguous_name_is_written_as_data():
    model = Model()
    model |= Add()(left="input", right="h")
    model |= Linear(4)(output="h")
    source = to_source(model.graph)
    assert source.startswith("from mithril_nb.models import from_dict\n\nmodel = from_dict({'format'")
    assert built(source).graph == model.graph


def test_the_source_marks_user_defined_blocks():
    class Thrice(Composite):
        def __init__(self, name: str | None = None):
            super().__init__(name)
            self += Relu()

    model = Model() + Linear(3)
    assert to_source(model) == to_source(model.graph)
    net = Model(name="net") | Linear(3)
    assert (built(to_source(net)), built(to_source(net)).name) == (net, net.name)
    model += Custom(2)
    lines = to_source(model).splitlines()
    assert lines[:2] == ["from mithril_nb.models import Linear, Model", f"from {__name__} import Custom"]
    assert to_source(model + Thrice()).startswith("from mithril_nb.models import")


class Custom(Composite):
    def __init__(self, width: int, name: str | None = None):
        super().__init__(name, width=width)
        self += Linear(self.options["width"])
