"""`Model` and its operators: mutation, copies and equality."""

import copy
import inspect
import pickle
from typing import get_type_hints

import numpy as np
import pytest
from fresh import run_fresh

import mithril_nb as ml
from mithril_nb.errors import ConnectionError, UnknownOptionError
from mithril_nb.graph.records import Endpoint
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import (
    MLP,
    Add,
    Conv2d,
    Dropout,
    Linear,
    LogicalModel,
    MaxPool2d,
    Model,
    Operator,
    Relu,
    Tanh,
)
from mithril_nb.models.control import Control
from mithril_nb.models.fields import example, fields_of
from mithril_nb.models.model import with_attributes
from mithril_nb.models.op import OPS
from mithril_nb.models.registry import KINDS
from mithril_nb.models.shape_inference.infer import infer


def ours(table: dict[str, type]) -> list[str]:
    """Return the built-in names in a table of kinds or ops; other tests register more."""
    return sorted(name for name, made in table.items() if made.__module__.startswith("mithril_nb."))


def names(model: Model) -> list[str]:
    return [node.name for node in model.graph.nodes]


def test_augmented_operators_mutate_and_plain_ones_do_not():
    model = Model()
    same = model
    model |= Linear(4)
    model += Relu()
    assert model is same
    longer, wider = model + Tanh(), model | Tanh()
    assert names(model) == ["linear_0", "relu_0"]
    assert names(longer) == names(wider) == ["linear_0", "relu_0", "tanh_0"]
    assert longer != wider
    assert longer.graph.source_of[Endpoint("tanh_0", "input")] == Endpoint("relu_0", "output")
    assert [port.name for port in wider.inputs] == ["input", "tanh_0_input"]


def duplicates(model: Model) -> list[Model]:
    return [copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))]


def test_a_copy_is_independent():
    linear = Linear(4)
    model = Model(name="m") | linear
    model += Relu()
    for other in duplicates(model):
        assert other == model
        assert (type(other), other.name) == (Model, "m")
        other += Tanh()
        assert names(model) == ["linear_0", "relu_0"]
        assert names(other) == ["linear_0", "relu_0", "tanh_0"]
    near, *far = duplicates(model)
    near |= Relu()(input=linear.output)
    for other in far:
        with pytest.raises(ConnectionError, match="not part of this model"):
            other |= Relu()(input=linear.output)


def test_a_copy_of_a_block_has_its_kind():
    for other in duplicates(Linear(4, name="first")):
        assert (type(other), other, other.name) == (Linear, Linear(4), "first")
        other |= Relu()
        assert names(other) == ["first", "relu_0"]


def test_a_rejected_step_keeps_the_model():
    model = Model() + Linear(4, name="a")
    before = model.block
    with pytest.raises(ValueError, match="the model has a block with that name"):
        model += Relu(name="a")
    assert model.block is before


def test_a_block_becomes_a_model():
    model = Linear(4)
    model += Relu()
    assert names(model) == ["linear_0", "relu_0"]
    assert (model.kind, names(Linear(4, name="first") + Relu())) == ("Model", ["first", "relu_0"])
    mlp = MLP(3, [4], 2)
    mlp += Relu()
    assert names(mlp) == ["linear_0", "relu_0", "linear_1", "relu_1"]
    assert mlp.kind == "Model"


def test_an_added_model_is_copied():
    part = Model(name="part") + Linear(4)
    whole = Model() + part
    part += Relu()
    whole += Model.of(part.graph)
    assert [path for path, _ in whole.graph.walk()] == [
        "part", "part/linear_0", "model_1", "model_1/linear_0", "model_1/relu_0",
    ]  # fmt: skip
    itself = Model() + Relu()
    itself += itself
    assert [path for path, _ in itself.graph.walk()] == ["relu_0", "model_0", "model_0/relu_0"]


def test_models_are_equal_by_content():
    def make(width: int = 4) -> Model:
        return Model() + Linear(width) + Relu()

    assert make() == make()
    assert hash(make().block) == hash(make().block)
    with pytest.raises(TypeError, match="unhashable"):
        hash(make())
    assert make() != make(5)
    assert make() != "Model(linear_0, relu_0)"
    assert Linear(4) == Linear(dimension=4)
    assert Linear(4) != Linear(4, use_bias=False)
    assert len({make().block, make().block, make(5).block}) == 2
    assert LogicalModel is Model


def test_a_subclass_builds_itself():
    class Encoder(Model):
        """Two blocks."""

        def __init__(self, width: int, name: str | None = None):
            super().__init__(name)
            self |= Linear(width)(input="x", output="h")
            self += Relu()

    model = Model() + Encoder(4, name="encoder") + Encoder(width=3)
    assert names(model) == ["encoder", "encoder_1"]
    assert isinstance(Encoder(4), Model)
    assert repr(Encoder(4)) == "Model(linear_0, relu_0)"
    model = Model()
    model |= Relu(name="a\x1b[31m\n")
    assert repr(model) == r"Model('a\x1b[31m\n')"


def test_a_name_that_is_read_and_written_is_internal():
    model = Model()
    model |= Linear(4)(input="x", output="h")
    model |= Relu()(input="h", output="y")
    model |= Tanh()(input="h")
    assert [port.name for port in model.inputs] == ["x"]
    assert [port.name for port in model.outputs] == ["y", "output"]
    assert [label for label, _ in model.graph.labels] == ["h", "x", "y"]


def test_the_chain_connects_to_the_first_open_input():
    model = Model()
    model |= Linear(4)(input="x", output="h")
    model += Relu()
    model += Add()(left="h")
    assert model.graph.source_of[Endpoint("add_0", "right")] == Endpoint("relu_0", "output")
    model += Add()
    assert model.graph.source_of[Endpoint("add_1", "left")] == Endpoint("add_0", "output")
    assert [port.name for port in model.inputs] == ["x", "input"], "the first unnamed input"


def test_a_call_sets_ports_and_attributes_and_changes_nothing():
    block = Linear(4)
    placed = block(input="x", output="h", input_size=3)
    assert (placed.model, placed.connections) == (Linear(4, input_size=3), {"input": "x", "output": "h"})
    assert block == Linear(4)
    assert dict(Dropout(0.1)(training=True).model.options) == {"p": 0.1, "training": True}
    odd = Model() | Relu()(input="self", output="other")
    assert (Model() | odd(self="x", other="y")).inputs[0].name == "x"


def test_with_attributes_keeps_the_rest():
    block = with_attributes(Conv2d(3, 5, name="stem"), {"out_channels": 8})
    assert (block, block.name) == (Conv2d(8, 5), "stem")
    assert with_attributes(MLP(3, [4], 2), {"hidden_sizes": [5, 6]}) == MLP(3, [5, 6], 2)
    assert with_attributes(MaxPool2d(2), {"stride": 1}) == MaxPool2d(2, 1)


def test_pairs_may_be_one_number():
    assert Conv2d(3, 5) == Conv2d(3, (5, 5)) == Conv2d(3, "5") == Conv2d(3, [5]) == Conv2d(3, "5, 5")
    assert MaxPool2d(2) == MaxPool2d((2, 2), (2, 2))


@pytest.mark.parametrize("kind", ours(KINDS))
def test_every_kind_is_documented(kind):
    constructor = KINDS[kind]
    assert constructor.__doc__
    if not constructor.category:
        hints = get_type_hints(constructor.__init__)
        assert "Model" in " ".join(map(str, hints.values())), "only what is made of blocks has no place in the palette"
        return
    assert constructor.formula
    assert all(field.doc for field in fields_of(constructor)), "the inspector explains each field"
    parameters = inspect.signature(constructor).parameters.values()
    ours = [
        one.name for one in parameters if one.kind is not one.KEYWORD_ONLY
    ]  # the others are another spelling of the fields
    assert [*(field.name for field in fields_of(constructor)), "name"] == ours


@pytest.mark.parametrize("op", ours(OPS))
def test_every_op_has_a_kernel_and_declares_its_params(op):
    from mithril_nb.backends.jax.kernels import KERNELS

    rule = OPS[op]
    assert issubclass(rule, Operator)
    assert op in KERNELS
    if issubclass(rule, Control):
        return
    needed = {field.name: example(field) for field in fields_of(rule) if field.is_required}
    assert set(rule.ports(rule(**needed).options).params) <= rule.initializers.keys()


def test_composing_imports_no_array_library():
    out = run_fresh(
        "import sys\n"
        "from mithril_nb.models import MLP, Linear, Model, from_dict, to_dict, to_source\n"
        "from mithril_nb.models.shape_inference.infer import infer\n"
        "model = Model() + Linear(4) + MLP(4, [3], 2)\n"
        "infer(model.graph, {}), from_dict(to_dict(model.graph)), to_source(model.graph)\n"
        "print([name for name in ('jax', 'numpy', 'anywidget', 'IPython', 'matplotlib') if name in sys.modules])\n"
    )
    assert out == "[]\n"


def test_an_mlp_in_mithril_form():
    model = MLP([Relu(), Tanh()], [8, None], input_name_templates={"weight": "w"})
    assert [port.name for port in model.inputs] == ["input", "w0", "bias0", "w1", "bias1"]
    assert {port.name for port in model.inputs if port.role == "param"} == {"w0", "bias0"}
    with pytest.raises(UnknownOptionError) as caught:
        MLP(activations=[Relu()], dimensions=[4, 5])
    assert caught.value.__str__() == (
        "cannot build MLP: it needs one activation and one dimension for each layer.\n"
        "    activations  1\n"
        "    dimensions   2\n"
        "    Try: MLP(activations=[Relu(), Softmax()], dimensions=[256, 10])"
    )


def test_a_linear_block_without_a_dimension_reads_its_weight():
    found = infer(Linear().graph, {"input": TensorSpec((2, 3)), "weight": TensorSpec((3, 4))})
    assert str(found.outputs["output"]) == "(2, 4) float32"
    assert found.parameters == ()
    wrong = infer(Linear().graph, {"input": TensorSpec((2, 3)), "weight": TensorSpec((5, 4))})
    assert str(wrong.problems[0]).splitlines()[0] == "the input 'weight' does not fit 'linear.weight'."


def test_the_palette_gives_required_arguments():
    starts = {field.name: field.start for field in fields_of(Linear)}
    assert starts == {"dimension": 64, "use_bias": None, "input_size": None}


def test_a_block_may_read_the_parameter_of_another():
    model = Model()
    model |= (one := Linear(8))(input="a", output="left")
    model |= Linear(8)(input="b", weight=one.weight, bias=one.bias, output="right")
    model |= Linear(8)(input="c", weight=one.weight, output="third")
    pm = ml.compile(model, shapes={"a": [2, 3], "b": [4, 3], "c": [1, 3]})
    assert [one.name for one in pm.parameters] == ["linear_0_weight", "linear_0_bias", "linear_2.bias"]
    x = np.ones((4, 3), "float32")
    found = pm.evaluate(pm.randomize_params(0), {"a": x[:2], "b": x, "c": x[:1]})
    np.testing.assert_array_equal(found["left"][0], found["right"][0])


def test_a_block_may_read_what_another_reads():
    model = Model()
    model += (linear := Linear(4))
    model |= Relu()(input=linear.input, output="around")
    assert [port.name for port in model.inputs] == ["input"]
