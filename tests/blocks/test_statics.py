"""Static values: known before the program runs, and rejected inputs."""

import numpy as np

import mithril_nb as ml
from mithril_nb.graph.spec import StaticSpec, TensorSpec
from mithril_nb.models import Cast, Dtype, Identity, Indexer, Length, Model, Shape, Size, TensorToList, ToTensor
from mithril_nb.models.shape_inference.infer import infer


def known(block, *shape):
    """Return the inferred output for an input of a shape."""
    return infer(block.graph, {"input": TensorSpec(shape)}).outputs["output"]


def test_names_stay_names():
    assert known(Shape(), "batch", 3) == StaticSpec(("batch", 3))
    assert known(Length(), "batch", 3) == StaticSpec("batch")
    assert known(Size(), "batch", 3) == StaticSpec("batch*3")
    assert known(Size(-1), "batch", 3) == StaticSpec(3)
    assert known(Size((1, 0)), "batch", 3) == StaticSpec((3, "batch"))
    assert known(Model() + Shape() + Indexer(-1), "...", 3) == StaticSpec(3)
    assert known(Model() + Shape() + Indexer(0), "...", 3) == StaticSpec(is_known=False)
    assert known(Model() + Shape() + Indexer(("slice", 1, None, None)), "batch", 3) == StaticSpec((3,))
    assert known(Model() + Shape() + Length(), "batch", 3) == StaticSpec(2)
    assert known(Model() + Shape() + ToTensor(), "batch", 3) == TensorSpec((2,), "int32")


def test_arithmetic_of_sizes_stays_a_size():
    for expression, value in (
        (lambda x: x.shape()[0] + 1, "batch+1"),
        (lambda x: 2 * x.shape()[0] - x.shape()[0], "batch"),
        (lambda x: x.shape()[0] * x.shape()[1] // 3, "batch"),
        (lambda x: x.shape()[1] - 1, 2),
    ):
        model = Model()
        model |= Identity()(input="input", output="x")
        model |= Identity()(input=expression(model.x), output="output")
        assert known(model, "batch", 3) == StaticSpec(value)


def test_data_dependent_values_are_unknown():
    assert known(TensorToList(), 2) == StaticSpec(is_known=False)
    pm = ml.compile(TensorToList(), shapes={"input": [2, 2]})
    found = pm.evaluate({}, {"input": np.array([[1.0, 2.0], [3.0, 4.0]])})["output"]
    assert found == ((1.0, 2.0), (3.0, 4.0))


def test_a_dtype_may_come_from_another_array():
    model = Model()
    model |= Dtype()(input="like", output="dtype")
    model |= Cast()(input="input", dtype="dtype", output="output")
    pm = ml.compile(model, shapes={"input": [2], "like": []})
    for dtype in ("int32", "float16", "bool"):
        found = pm.evaluate({}, {"input": np.ones(2, "float32"), "like": np.zeros((), dtype)})["output"]
        assert found.dtype == dtype
