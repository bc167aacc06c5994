"""Shapes with names of sizes: formulas, stages up to StableHLO, and training whose data has the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from sessions import session_of
from waiting import PATIENCE_S, until

import mithril_nb as ml
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import DataError, UnknownOptionError
from mithril_nb.models import MLP, Add, IOKey, Linear, Model
from mithril_nb.ui.session import Session, design_of

RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(64, 29)).astype("float32"), RNG.integers(0, 3, 64)


def test_symbolic_sizes_give_formulas_and_reasons():
    session = session_of(MLP(29, [37], 3), {"input": [8, 29]}, data=DATA, epochs=1)
    session.do("set_shape", name="input", shape=["batch", 29])
    for stage in ("stablehlo", "hlo"):
        session.do("request_stage", stage=stage)
    session.do("request_cost", source="compiled")
    session.do("request_passes")
    session.do("what_if", key="wider", changes=[["linear_0", "dimension", 64]])
    assert session.wait(PATIENCE_S)
    found = session.snapshot()
    assert (found["shapes"], found["problems"], found["notice"]) == ({"input": ["batch", 29]}, [], None)
    states = {name: found["stages"][name]["state"] for name in ("jaxpr", "stablehlo", "hlo")}
    assert states == {"jaxpr": "ready", "stablehlo": "ready", "hlo": "unavailable"}
    assert found["stages"]["hlo"]["message"] == (
        "XLA needs a number for each size, and has none for batch. "
        "Enter a number for each size of the inputs, such as 32, 64."
    )
    assert "batch" in found["cost"]["total"]["formulas"]["flops"][1]
    assert (found["costs"]["sources"]["compiled"]["state"], found["passes"]["state"]) == ("unavailable", "unavailable")
    assert session.errors == []
    session.do("train")
    until(lambda: session.training.run.state == "done")
    assert session.design.shapes == (("input", ("batch", 29)),)
    session.do("set_shape", name="input", shape=[8, 29])
    assert session.wait(PATIENCE_S)
    assert session.snapshot()["stages"]["hlo"]["state"] == "ready"


def test_data_determines_all_sizes():
    session = session_of(Linear(3), {"input": ["batch", "features"]}, data=DATA)
    assert session.wait(PATIENCE_S)
    assert "features" in session.snapshot()["cost"]["total"]["formulas"]["flops"][1]
    session.do("step_once")
    until(lambda: session.training.run.step == 1)
    assert session.training.run.params["linear_0.weight"].shape == (29, 3)
    session.end()


def test_one_name_has_one_size_in_the_data():
    model = Model() | Add()(left="a", right="b", output=IOKey("output"))
    data = {"a": DATA[0], "b": DATA[0][:, :1]}, DATA[0]
    session = Session(
        design_of(model, {"a": ["batch", "n"], "b": ["batch", "n"]}),
        JaxBackend(),
        {"data": data, "loss": "mean_squared_error"},
    )
    with pytest.raises(DataError) as caught:
        session.do("train")
    assert str(caught.value) == (
        "size 'n' has two values in the data: 29 and 1.\n"
        "    input  'b' ('batch', 'n') float32\n"
        "    data   (64, 1), in batches of 32\n"
        "    Try: wb.do(\"set_shape\", name=\"b\", shape=['batch', 'n_2'])"
    )


@pytest.mark.parametrize("dim", ["2*n", "max", "a b", "...", "-1", -1, 2.5, True, None])
def test_invalid_sizes_are_rejected(dim):
    with pytest.raises(UnknownOptionError) as caught:
        ml.workbench(Linear(3), shapes={"input": [dim, 29]})
    assert str(caught.value) == (
        f"[{dim!r}, 29] is not a shape for input 'input'.\n"
        f"    because  {dim!r} is neither a size nor a name\n"
        "    needs    integers, or names of sizes such as batch\n"
        '    Try: shapes={"input": [32, 29]}'
    )
