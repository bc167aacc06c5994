"""Menus for the shardings of a program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import mithril_nb as ml
from mithril_nb.errors import StageUnavailableError

pytestmark = pytest.mark.usefixtures("compilers")


@pytest.fixture(scope="module")
def program(compilers):
    mesh = ml.device_mesh("v5e:2x4", data=2, model=4)

    def spec(shape, *axes):
        return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, P(*axes)))

    return ml.inspect(lambda w, x: x @ w, spec((64, 128), None, "model"), spec((32, 64), "data"), device="v5e:2x4")


def menus(widget):
    row = widget.children[0].children
    return row[0], row[1], row[2], row[3]


def test_a_choice_is_compiled_and_compared(program):
    widget = ml.try_shardings(program)
    array, data, model, reset = menus(widget)
    assert (array.value, data.value, model.value) == ("w", None, 1)
    assert widget.inspection is program
    model.value = 0  # the dimension that the product sums over
    widget._queue.wait()
    assert widget.specs == {"w": P("model", None), "x": P("data", None)}
    assert widget.inspection.mesh["w"].axes == (("model",), ())
    total = widget.inspection.cost("compiled").total
    assert total.wire_bytes > 0 == program.cost("compiled").total.wire_bytes
    assert "bytes sent by one device" in widget.children[2].value
    reset.click()
    widget._queue.wait()
    assert widget.inspection is program
    assert widget.errors == []


def test_only_divisions_that_are_even_are_offered(program):
    widget = ml.try_shardings(program)
    array, data, model, _ = menus(widget)
    array.value = "x"
    assert [dim for _, dim in model.options] == [None, 0, 1]
    data.value = None
    model.value = 0
    data.value = 0  # both axes divide the same dimension
    widget._queue.wait()
    assert widget.inspection.mesh["x"].counts == (8, 1)
    small = jax.ShapeDtypeStruct(
        (6, 3), "float32", sharding=NamedSharding(program.arguments[0].sharding.mesh, P("data"))
    )
    _, data, model, _ = menus(ml.try_shardings(ml.inspect(jnp.sin, small, device="v5e:2x4")))
    assert [dim for _, dim in data.options] == [None, 0]
    assert [dim for _, dim in model.options] == [None]


def test_errors_are_shown(program, monkeypatch):
    widget = ml.try_shardings(program)
    monkeypatch.setattr(type(program), "with_shardings", lambda *args: 1 / 0)
    menus(widget)[2].value = 0
    widget._queue.wait()
    assert 'role="alert"' in widget.children[1].value
    assert isinstance(widget.errors[-1], ZeroDivisionError)
    with pytest.raises(StageUnavailableError, match="runs on one device"):
        ml.try_shardings(ml.inspect(jnp.sin, jnp.ones(3)))


def test_a_saved_notebook_shows_the_mesh(program):
    data = ml.try_shardings(program)._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "<details" in data["text/html"]
