"""Connections by port, by key and by arithmetic; and their annotations."""

from __future__ import annotations

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


def test_a_block_added_twice_is_two_blocks():
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


def test_arithmetic_adds_blocks_once_and_in_order():
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


def test_keys_declare_name_shape_dtype_and_exposure():
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


def test_keys_of_one_name_may_repeat_and_refine_declarations():
    same = twice(IOKey("x", shape=["b", 3], type="float16"), IOKey("x", shape=["b", 3], type="float16"))
    assert same.graph.note_at[Endpoint("", "x")] == Note(shape=("b", 3), dtype="float16")
    for shapes in ((["b", 3], [5, 3]), ([5, 3], ["b", 3]), (["..."], [5, 3])):
        found = twice(*(IOKey("x", shape=shape) for shape in shapes)).graph.note_at
        assert found[Endpoint("", "x")].shape == (5, 3)
    for dtypes in ((None, None), (None, "float16"), ("float16", None), ("float16", "float16")):
        model = twice(*(IOKey("c", value=[[1.0]], type=dtype) for dtype in dtypes))
        made = [node.block.options for node in model.graph.nodes if node.block.kind == "Constant"]
        assert made == [{"value": ((1.0,),), "dtype": max(dtypes, key=bool)}]


def test_a_rejected_key_keeps_the_model():
    model = Model() | Linear(2)(input=IOKey("x", shape=[1, 2]))
    before = model.graph
    with pytest.raises(MithrilError):
        model |= Linear(2)(input=IOKey("x", shape=[1, 3]))
    assert model.graph == before


def test_an_input_may_be_trained_and_a_parameter_frozen():
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
def test_a_parameter_of_a_repeated_block_may_be_frozen(name):
    model = Model() | Repeat(Linear(3), 2)(input="x")
    pm = ml.compile(model, shapes={"x": [2, 3]}, frozen=[name])
    assert [one.is_trainable for one in pm.parameters] == [False, "weight" in name]


def test_declared_shapes_and_types_are_enforced():
    model = Model() | Linear(4)(input="x")
    model.set_shapes(x=["batch", 3]).set_types({"x": ml.float16})
    spec = ml.compile(model).input_specs["x"]
    assert (spec.shape, spec.dtype) == (("batch", 3), "float16")


@pytest.mark.parametrize("how", ["set_types", "key of a constant", "key with a value"])
def test_a_declared_dtype_applies_to_a_constant(how):
    model = Model()
    if how == "key with a value":
        model |= Relu()(input=IOKey("c", value=[1.0, 2.0], type="float16"))
    else:
        key = IOKey("c", type="float16") if how == "key of a constant" else "c"
        model |= Constant([1.0, 2.0])(output=key)
        model |= Relu()(input="c")
        if how == "set_types":
            model.set_types(c="float16")
    pm = ml.compile(model)
    assert pm.evaluate({}, {})["output"].dtype == pm.output_specs["output"].dtype == "float16"
    assert from_dict(to_dict(model.graph)) == model


def test_names_may_be_changed_and_connections_merged():
    model = Model()
    model |= Linear(4)(input="a", output="h")
    model |= Linear(4)(input="b")
    model.rename_keys(output="y", a="x")
    model.merge_connections("x", "b")
    assert [port.name for port in model.inputs + model.outputs] == ["x", "h", "y"]
    nested = Model() | model(x="image", y="logits", h="features")
    assert [port.name for port in nested.inputs + nested.outputs] == ["image", "features", "logits"]


def test_an_input_port_refers_to_its_source():
    model = Model() + Linear(3) + Relu()
    model.rename_keys(**{"linear_0.input": "x", "relu_0.input": "h"})
    model.set_shapes({"relu_0.input": ["batch", 3]})
    assert [name for name, _ in model.graph.labels] == ["h", "x"]
    assert model.graph.note_at[Endpoint("linear_0", "output")].shape == ("batch", 3)
    assert from_dict(to_dict(model.graph)) == model
    apart = Model() | Linear(3)(output="h") | Relu()
    apart.merge_connections("relu_0.input", "linear_0.input")
    assert len(apart.inputs) == 1


def test_a_parameter_may_be_named_and_shared_later():
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


def test_a_failed_change_leaves_nothing_behind():
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
def test_notes_survive_files_and_unrelated_edits(model: Model, data: st.DataObject):
    if not model.graph.inputs:
        return
    port = data.draw(st.sampled_from(model.graph.inputs))
    if port.role != "data":
        return
    model.set_shapes({str(Endpoint("", port.name)): ("n", 4)})
    assert from_dict(to_dict(model.graph)).graph == model.graph
    model += Relu(name="a name that is new")
    assert model.graph.note_at[Endpoint("", port.name)].shape == ("n", 4)


def linear() -> Model:
    return Model() | Linear(3)


def test_a_connection_may_have_the_name_of_an_attribute():
    model = Model() | Linear(3)(input="graph", output="kind")
    assert (model.kind, model.graph.inputs[0].name) == ("Model", "graph")
    model |= Relu()(input=model["kind"], output="y")
    assert "linear_0.output -> relu_0.input" in edges(model)
    with pytest.raises(TypeError, match="not iterable"):
        list(model)


def test_a_rejected_change_changes_nothing():
    model = linear()
    before = model.graph
    for change in (
        lambda: model.set_shapes({"input": [2, 4], "nothing": [2]}),
        lambda: model.expose_keys("output", y="input"),
        lambda: model.rename_keys(input="x", output="enc.y"),
        lambda: model.set_initializers({"linear_0.weight": "zeros", "nothing": "zeros"}),
    ):
        with pytest.raises(MithrilError):
            change()
        assert model.graph == before


def test_a_connection_has_no_truth_value_and_an_unknown_name_is_an_attribute_error():
    with pytest.raises(TypeError, match="a connection has no truth value before the model runs"):
        bool(Linear(3).output)
    with pytest.raises(AttributeError, match=r"no connection 'outputt'\. Did you mean 'output'"):
        Linear(3).outputt  # noqa: B018
