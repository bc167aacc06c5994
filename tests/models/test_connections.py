"""Connections by port, by key and by arithmetic; and what a person says of them."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.graph.records import Endpoint, Note
from mithril_nb.models import (
    Add,
    Constant,
    Gelu,
    IOKey,
    LayerNorm,
    Linear,
    Model,
    Relu,
    Repeat,
    Tanh,
    from_dict,
    to_dict,
)
from tests.strategies import models, modest


def evaluated(model: Model, **inputs):
    pm = ml.compile(model, ml.JaxBackend(), shapes={name: np.shape(array) for name, array in inputs.items()})
    return pm.evaluate(pm.randomize_params(0), inputs)


def edges(model: Model) -> list[str]:
    return [str(edge) for edge in model.graph.edges]


def test_a_block_is_connected_by_its_ports():
    model, first, second = Model(), Linear(4), Relu()
    model |= first(input="x")
    model |= second(input=first.output, output="y")
    assert edges(model) == ["x -> linear_0.input", "linear_0.output -> relu_0.input", "relu_0.output -> y"]


def test_a_connection_may_be_named_inside_and_used_from_outside():
    model = Model()
    model |= Linear(4)(output="hidden")
    model |= Relu()(input=model.hidden)
    assert "linear_0.output -> relu_0.input" in edges(model)
    assert repr(model.hidden) == "Model(...).hidden"


def test_the_same_block_twice_is_two_blocks_and_the_handle_means_the_later():
    model, block = Model(), Linear(4)
    model |= block
    model |= Relu()(input=block.output)
    model |= block
    model |= Tanh()(input=block.output)
    assert "linear_0.output -> relu_0.input" in edges(model)
    assert "linear_1.output -> tanh_0.input" in edges(model)
    assert len(ml.compile(model, shapes={"input": [2, 3], "linear_1_input": [2, 3]}).parameters) == 4


def test_blocks_share_a_weight_through_a_name():
    model = Model()
    model |= Linear(4, use_bias=False)(input="x", weight="w")
    model |= Linear(4, use_bias=False)(weight="w")
    pm = ml.compile(model, shapes={"x": [2, 4]})
    assert [parameter.name for parameter in pm.parameters] == ["w"]


def test_arithmetic_makes_blocks_once_and_in_order():
    model, a, b = Model(), Linear(3), Linear(3)
    model |= a(input="x")
    model |= b(input="x")
    total = a.output + b.output
    model |= Relu()(input=total, output="left")
    model |= Gelu()(input=total, output="right")
    assert [node.name for node in model.graph.nodes] == ["linear_0", "linear_1", "add_0", "relu_0", "gelu_0"]


def test_numbers_and_arrays_are_constants():
    model = Model()
    model |= Add()(left="x", right=[1.0, 2.0], output="y")
    model |= Add()(left=10.0, right="y", output="z")
    model.expose_keys("y")
    found = evaluated(model, x=np.zeros((2, 2), "float32"))
    np.testing.assert_array_equal(found["y"], [[1, 2], [1, 2]])
    np.testing.assert_array_equal(found["z"], [[11, 12], [11, 12]])


def test_a_sum_of_two_thousand_terms_does_not_exhaust_the_stack():
    model, block = Model(), Relu()
    model |= block(input="x")
    total = block.output
    for _ in range(2000):
        total = total + block.output
    model |= Tanh()(input=total)
    assert len(model.graph.nodes) == 2002


def test_keys_say_name_shape_dtype_and_what_is_shown():
    model = Model()
    model |= Linear(4)(input=IOKey("x", shape=["batch", 3]), output=IOKey("h", expose=True))
    model |= Relu()(input="h", output=IOKey("y"))
    assert [port.name for port in model.inputs + model.outputs] == ["x", "h", "y"]
    assert ml.compile(model).input_specs["x"].shape == ("batch", 3)
    assert model.graph.note_at == {
        Endpoint("", "x"): Note(shape=("batch", 3)),
        Endpoint("linear_0", "output"): Note(is_exposed=True),
    }


def twice(first: IOKey, second: IOKey) -> Model:
    return Model() | Linear(2)(input=first, output="y") | Linear(2)(input=second, output="z")


def test_keys_of_one_name_may_say_the_same_again_and_a_number_in_the_place_of_a_name():
    same = twice(IOKey("x", shape=["b", 3], type="float16"), IOKey("x", shape=["b", 3], type="float16"))
    assert same.graph.note_at[Endpoint("", "x")] == Note(shape=("b", 3), dtype="float16")
    for shapes in ((["b", 3], [5, 3]), ([5, 3], ["b", 3]), (["..."], [5, 3])):
        found = twice(*(IOKey("x", shape=shape) for shape in shapes)).graph.note_at
        assert found[Endpoint("", "x")].shape == (5, 3)
    for dtypes in ((None, None), (None, "float16"), ("float16", None), ("float16", "float16")):
        model = twice(*(IOKey("c", value=[[1.0]], type=dtype) for dtype in dtypes))
        made = [node.block.options for node in model.graph.nodes if node.block.kind == "Constant"]
        assert made == [{"value": ((1.0,),), "dtype": max(dtypes, key=bool)}]


def test_a_key_that_is_refused_leaves_the_model_as_it_was():
    model = Model() | Linear(2)(input=IOKey("x", shape=[1, 2]))
    before = model.graph
    with pytest.raises(MithrilError):
        model |= Linear(2)(input=IOKey("x", shape=[1, 3]))
    assert model.graph == before


def test_an_input_may_be_trained_and_a_parameter_left_alone():
    model = Model()
    model |= Linear(4)(input="x")
    model += Add()(right=IOKey("shift", shape=[4], differentiable=True))
    model += LayerNorm()
    model.set_differentiability({"linear_0": False})
    pm = ml.compile(model, shapes={"x": [2, 3]})
    assert {one.name: (one.spec.shape, one.is_trainable) for one in pm.parameters} == {
        "linear_0.weight": ((3, 4), False),
        "linear_0.bias": ((4,), False),
        "shift": ((4,), True),
        "layer_norm_0.weight": ((4,), True),
        "layer_norm_0.bias": ((4,), True),
    }
    assert pm.input_names == ("x",)
    params = pm.randomize_params(0)
    _, gradients = pm.evaluate(params, {"x": np.ones((2, 3))}, {"output": np.arange(8.0).reshape(2, 4)})
    assert not gradients["linear_0.weight"].any()
    assert gradients["shift"].any()


@pytest.mark.parametrize("name", ["repeat_0", "repeat_0.body", "repeat_0.body.weight"])
def test_a_parameter_of_a_block_that_is_run_again_may_be_left_alone(name):
    model = Model() | Repeat(Linear(3), 2)(input="x")
    pm = ml.compile(model, shapes={"x": [2, 3]}, frozen=[name])
    assert [one.is_trainable for one in pm.parameters] == [False, "weight" in name]


def test_shapes_and_types_are_said_once_and_held():
    model = Model() | Linear(4)(input="x")
    model.set_shapes(x=["batch", 3]).set_types({"x": ml.float16})
    spec = ml.compile(model).input_specs["x"]
    assert (spec.shape, spec.dtype) == (("batch", 3), "float16")


@pytest.mark.parametrize("how", ["said", "key of what is made", "key with a value"])
def test_a_dtype_that_is_said_of_a_constant_is_that_of_its_array(how):
    model = Model()
    if how == "key with a value":
        model |= Relu()(input=IOKey("c", value=[1.0, 2.0], type="float16"))
    else:
        key = IOKey("c", type="float16") if how == "key of what is made" else "c"
        model |= Constant([1.0, 2.0])(output=key)
        model |= Relu()(input="c")
        if how == "said":
            model.set_types(c="float16")
    pm = ml.compile(model)
    assert pm.evaluate({}, {})["output"].dtype == pm.output_specs["output"].dtype == "float16"
    assert from_dict(to_dict(model.graph)) == model


def test_names_may_be_changed_and_connections_made_one():
    model = Model()
    model |= Linear(4)(input="a", output="h")
    model |= Linear(4)(input="b")
    model.rename_keys(output="y", a="x")
    model.merge_connections("x", "b")
    assert [port.name for port in model.inputs + model.outputs] == ["x", "h", "y"]
    nested = Model() | model(x="image", y="logits", h="features")
    assert [port.name for port in nested.inputs + nested.outputs] == ["image", "features", "logits"]


def test_an_input_port_of_a_block_stands_for_what_feeds_it():
    model = Model() + Linear(3) + Relu()
    model.rename_keys(**{"linear_0.input": "x", "relu_0.input": "h"})
    model.set_shapes({"relu_0.input": ["batch", 3]})
    assert [name for name, _ in model.graph.labels] == ["h", "x"]
    assert model.graph.note_at[Endpoint("linear_0", "output")].shape == ("batch", 3)
    assert from_dict(to_dict(model.graph)) == model
    apart = Model() | Linear(3)(output="h") | Relu()
    apart.merge_connections("relu_0.input", "linear_0.input")
    assert len(apart.inputs) == 1


def test_a_parameter_may_get_a_name_of_its_own_and_be_shared_later():
    model = (Model() + Linear(4) + Linear(4)).set_initializers({"linear_0.weight": "zeros"})
    model.rename_keys(**{"linear_0.weight": "w"}).merge_connections("w", "linear_1.weight")
    model.merge_connections("linear_0.bias", "linear_1.bias")
    found = ml.compile(model, shapes={"input": [2, 4]}).parameters
    assert [(one.name, one.initializer.name) for one in found] == [("w", "zeros"), ("linear_0_bias", "zeros")]
    assert from_dict(to_dict(model.graph)) == model
    fed = (Model() | Linear(4)(input="x") | Relu()(output="w")).merge_connections("linear_0.weight", "w")
    assert "relu_0.output -> linear_0.weight" in edges(fed)


def test_an_output_may_feed_an_input_later():
    model = Model()
    model |= Linear(4)(input="x", output="h")
    model |= Relu()(input="late", output="y")
    model.merge_connections("h", "late")
    assert "linear_0.output -> relu_0.input" in edges(model)
    assert [port.name for port in model.inputs] == ["x"]


def test_what_fails_leaves_nothing_behind():
    model, stranger = Model(), Linear(3)
    model |= Linear(4)(input="x", output="h")
    before = model.graph
    with pytest.raises(MithrilError):
        model |= Add()(left=model.h + 1.0, right=stranger.output)
    assert model.graph == before
    model += Relu()
    assert [node.name for node in model.graph.nodes] == ["linear_0", "relu_0"]


@modest
@given(models(most=4), st.data())
def test_notes_survive_a_file_and_every_edit_of_something_else(model: Model, data: st.DataObject):
    if not model.graph.inputs:
        return
    port = data.draw(st.sampled_from(model.graph.inputs))
    if port.role != "data":
        return
    model.set_shapes({str(Endpoint("", port.name)): ("n", 4)})
    assert from_dict(to_dict(model.graph)).graph == model.graph
    model += Relu(name="a name that is new")
    assert model.graph.note_at[Endpoint("", port.name)].shape == ("n", 4)


def said(text: str) -> str:
    return textwrap.dedent(text).strip()


def linear() -> Model:
    return Model() | Linear(3)


def test_a_connection_may_be_called_as_something_that_every_model_has():
    model = Model() | Linear(3)(input="graph", output="kind")
    assert (model.kind, model.graph.inputs[0].name) == ("Model", "graph")
    model |= Relu()(input=model["kind"], output="y")
    assert "linear_0.output -> relu_0.input" in edges(model)
    with pytest.raises(TypeError, match="not iterable"):
        list(model)


def test_a_refused_change_changes_nothing():
    model = linear()
    before = model.graph
    for change in (
        lambda: model.set_shapes({"input": [2, 4], "nothing": [2]}),
        lambda: model.expose_keys("output", y="input"),
        lambda: model.rename_keys(input="x", output="enc.y"),
    ):
        with pytest.raises(MithrilError):
            change()
        assert model.graph == before


CASES = [
    (
        "a block that is not there",
        lambda: Model() | Relu()(input=Linear(3).output),
        """
        ConnectionError: Linear(...).output is not part of this model.
            because  the Linear block was not added to it
            Try: model |= block first; then connect to block.output.
        """,
    ),
    (
        "a name that is not there",
        lambda: (Model() | Linear(3)(output="logits")).set_shapes(logit=[2]),
        """
        ConnectionError: the model has no connection 'logit'.
            names  logits, input, linear_0.output, linear_0.input, linear_0.weight, linear_0.bias
            Try: 'logits'
        """,
    ),
    (
        "two outputs made one",
        lambda: (Model() | Linear(3)(output="a") | Linear(3)(output="b")).merge_connections("a", "b"),
        """
        ConnectionError: cannot merge 'linear_0.output' and 'linear_1.output'.
            because  two blocks would feed one connection
            Try: merge an input of the model with an output, or with another input.
        """,
    ),
    (
        "a name that is taken",
        lambda: (Model() | Linear(3)(input="x", output="y")).rename_keys(y="x"),
        """
        NameTakenError: cannot name 'linear_0.output' 'x': 'x' has that name.
            names  x, y
            Try: 'x_2'
            """,
    ),
    (
        "another shape than was said",
        lambda: ml.compile((Model() | Linear(3)(output="y")).set_shapes(y=[2, 4]), shapes={"input": [2, 5]}),
        """
        ShapeError: 'linear_0.output' has another shape than was said of it.
            said  (2, 4)
            has   (2, 3) float32
            Try: set_shapes({'linear_0.output': [2, 3]}), or other sizes before it.
        """,
    ),
    (
        "another shape of an input than was said",
        lambda: ml.compile((Model() | Linear(3)).set_shapes(input=[2, 4]), shapes={"input": [2, 5]}),
        """
        ShapeError: 'input' has another shape than was said of it.
            said  (2, 4)
            has   (2, 5) float32
            Try: set_shapes({'input': [2, 5]}), or another shape for this input.
        """,
    ),
    (
        "another shape of a parameter than was said",
        lambda: ml.compile((Model() | Linear(3)).set_shapes({"linear_0.weight": [7, 3]}), shapes={"input": [2, 4]}),
        """
        ShapeError: the parameter 'linear_0.weight' has another shape than was said of it.
            said  (7, 3)
            has   (4, 3)
            Try: set_shapes({'linear_0.weight': [4, 3]}), or leave it out.
        """,
    ),
    (
        "another dtype than a block gives",
        lambda: ml.compile((Model() | Linear(3)).set_types(output="float16"), shapes={"input": [2, 4]}),
        """
        ShapeError: 'linear_0.output' has another dtype than was said of it.
            said  float16
            has   (2, 3) float32
            Try: a Cast(dtype="float16") behind it, as in x.cast("float16").
        """,
    ),
    (
        "another dtype of a parameter",
        lambda: ml.compile((Model() | Linear(3)).set_types({"linear_0.bias": "float16"}), shapes={"input": [2, 4]}),
        """
        ShapeError: the parameter 'linear_0.bias' has another dtype than was said of it.
            said  float16
            has   float32
            Try: ml.compile(model, ml.JaxBackend(dtype="float16")), which all parameters have then.
        """,
    ),
    (
        "one name for two sizes",
        lambda: ml.compile(Model() | Relu()(input=IOKey("x", shape=["n", "n"])), shapes={"x": [2, 3]}),
        """
        ShapeError: 'x' has another shape than was said of it.
            said  ('n', 'n')
            has   (2, 3) float32
            Try: set_shapes({'x': [2, 3]}), or another shape for this input.
        """,
    ),
    (
        "a number for an output",
        lambda: Relu()(output=3),
        """
        ConnectionError: cannot connect port 'output' of Relu to 3.
            needs  a name, as text
            Try: Relu(...)(output="hidden")
        """,
    ),
    (
        "a name that is a number",
        lambda: linear().rename_keys(input=3),
        """
        ConnectionError: cannot name a connection 3.
            needs  a name, as text
            Try: 'hidden'
        """,
    ),
    (
        "no name",
        lambda: linear().rename_keys(input=""),
        """
        ConnectionError: cannot name a connection ''.
            needs  a name, as text
            Try: 'hidden'
        """,
    ),
    (
        "a name with a dot",
        lambda: linear().rename_keys(input="enc.x"),
        """
        ConnectionError: cannot name a connection 'enc.x': a dot stands between a block and its port.
            Try: 'enc_x'
        """,
    ),
    (
        "a key with a dot",
        lambda: Model() | Linear(3)(input=IOKey("enc.x")),
        """
        ConnectionError: cannot name a connection 'enc.x': a dot stands between a block and its port.
            Try: 'enc_x'
        """,
    ),
    (
        "another shape",
        lambda: twice(IOKey("x", shape=["b", 3]), IOKey("x", shape=["b", 4])),
        """
        ConnectionError: IOKey('x') says another shape= than was said before.
            before  shape=('b', 3)
            now     shape=('b', 4)
            Try: "x", as it was said before; or IOKey("x_2", shape=('b', 4)).
        """,
    ),
    (
        "another type",
        lambda: twice(IOKey("x", type="float32"), IOKey("x", type="int32")),
        """
        ConnectionError: IOKey('x') says another type= than was said before.
            before  type='float32'
            now     type='int32'
            Try: "x", as it was said before; or IOKey("x_2", type='int32').
        """,
    ),
    (
        "another value",
        lambda: twice(IOKey("x", value=1.0), IOKey("x", value=2.0)),
        """
        ConnectionError: IOKey('x') says another value= than was said before.
            before  value=1.0
            now     value=2.0
            Try: "x", as it was said before; or IOKey("x_2", value=2.0).
        """,
    ),
    (
        "another dtype of a value",
        lambda: twice(IOKey("x", value=1.0, type="float16"), IOKey("x", value=1.0, type="float32")),
        """
        ConnectionError: IOKey('x') says another type= than was said before.
            before  type='float16'
            now     type='float32'
            Try: "x", as it was said before; or IOKey("x_2", type='float32').
        """,
    ),
    (
        "trained and not",
        lambda: twice(IOKey("x", differentiable=True), IOKey("x", differentiable=False)),
        """
        ConnectionError: IOKey('x') says another differentiable= than was said before.
            before  differentiable=True
            now     differentiable=False
            Try: "x", as it was said before; or IOKey("x_2", differentiable=False).
        """,
    ),
    (
        "a block to train that is not there",
        lambda: ml.compile(linear(), frozen=["linear_9"]),
        """
        ConnectionError: the model has no block, parameter or input 'linear_9' to train.
            blocks      linear_0
            parameters  linear_0.weight, linear_0.bias
            inputs      input
            Try: 'linear_0'
        """,
    ),
    (
        "a block without parameters",
        lambda: (Model() | Relu()(input="x")).set_differentiability(relu_0=False),
        """
        ConnectionError: the model has no block, parameter or input 'relu_0' to train.
            blocks      none with parameters
            parameters  none
            inputs      x
            Try: one of these names.
        """,
    ),
    (
        "a number exposed",
        lambda: linear().expose_keys(3),
        """
        ConnectionError: the model has no connection 3.
            names  input, output, linear_0.output, linear_0.input, linear_0.weight, linear_0.bias
            Try: one of these names.
        """,
    ),
    (
        "an input exposed",
        lambda: linear().expose_keys("input"),
        """
        ConnectionError: cannot expose 'input': it is an input of the model, not an output.
            outputs of blocks  'linear_0.output'
            Try: model |= Buffer()(input="input", output="y"), which gives an input on.
        """,
    ),
    (
        "an input exposed under another name",
        lambda: linear().expose_keys(y="input"),
        """
        ConnectionError: cannot expose 'input': it is an input of the model, not an output.
            outputs of blocks  'linear_0.output'
            Try: model |= Buffer()(input="input", output="y"), which gives an input on.
        """,
    ),
    (
        "a parameter exposed",
        lambda: linear().expose_keys("linear_0.weight"),
        """
        ConnectionError: cannot expose 'linear_0.weight': it is a parameter of the model, not an output.
            outputs of blocks  'linear_0.output'
            Try: read it from params, as parameters are no outputs.
        """,
    ),
    (
        "an output exposed under a name with a dot",
        lambda: linear().expose_keys(**{"enc.y": "output"}),
        """
        ConnectionError: cannot name a connection 'enc.y': a dot stands between a block and its port.
            Try: 'enc_y'
        """,
    ),
    (
        "shapes as text",
        lambda: linear().set_shapes("input"),
        """
        UnknownOptionError: set_shapes takes names and what is said of them, not 'input'.
            needs  a dict by name, as text
            Try: model.set_shapes({"input": ["batch", 784]})
        """,
    ),
    (
        "a shape of a number",
        lambda: linear().set_shapes({3: [2]}),
        """
        UnknownOptionError: set_shapes takes names and what is said of them, not {3: [2]}.
            needs  a dict by name, as text
            Try: model.set_shapes({"input": ["batch", 784]})
        """,
    ),
    (
        "an initializer of a number",
        lambda: linear().set_initializers({3: "zeros"}),
        """
        UnknownOptionError: set_initializers takes names and what is said of them, not {3: 'zeros'}.
            needs  a dict by name, as text
            Try: model.set_initializers({"linear_0.weight": "he_normal"})
        """,
    ),
    (
        "a connection without a port",
        lambda: Relu()(Linear(3).output),
        """
        ConnectionError: cannot connect Relu to Linear(...).output: the port is not named.
            inputs   input
            outputs  output
            Try: Relu(...)(input=...)
        """,
    ),
    (
        "a connection of no such name",
        lambda: linear()["outputt"],
        """
        ConnectionError: Model has no connection 'outputt'.
            connections  output, input
            Try: model['output']
        """,
    ),
]


@pytest.mark.parametrize(("call", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_message(call, text):
    with pytest.raises(MithrilError) as error:
        call()
    assert f"{type(error.value).__name__}: {error.value}" == said(text)


def test_a_connection_has_no_truth_value_and_an_unknown_name_is_an_attribute_error():
    with pytest.raises(TypeError, match="a connection has no truth value before the model runs"):
        bool(Linear(3).output)
    with pytest.raises(AttributeError, match=r"no connection 'outputt'\. Did you mean 'output'"):
        Linear(3).outputt  # noqa: B018
