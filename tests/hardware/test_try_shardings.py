"""Menus for the shardings of a program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import mithril_nb as ml
from mithril_nb.errors import StageUnavailableError, UnknownOptionError
from mithril_nb.ui.widgets import shardings

pytestmark = pytest.mark.usefixtures("compilers")


@pytest.fixture(scope="module")
def mesh():
    return ml.device_mesh("v5e:2x4", data=2, model=4)


@pytest.fixture(scope="module")
def program(compilers, mesh):
    def spec(shape, *axes):
        return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, P(*axes)))

    return ml.inspect(lambda w, x: x @ w, spec((64, 128), None, "model"), spec((32, 64), "data"), device="v5e:2x4")


def menus(widget):
    row = widget.children[0].children
    return row[0], row[1], row[2], row[3]


def test_a_choice_is_compiled_and_compared(program):
    widget = ml.try_shardings(program)
    array, data, model, reset = menus(widget)
    assert (array.value, data.value, model.value) == ("w", -1, 1)
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
    assert [dim for _, dim in model.options] == [-1, 0, 1]
    data.value = -1
    assert (data.index, data.label) == (0, "no dimension")
    model.value = 0
    data.value = 0  # both axes divide the same dimension
    widget._queue.wait()
    assert widget.inspection.mesh["x"].counts == (8, 1)
    small = jax.ShapeDtypeStruct(
        (6, 3), "float32", sharding=NamedSharding(program.arguments[0].sharding.mesh, P("data"))
    )
    _, data, model, _ = menus(ml.try_shardings(ml.inspect(jnp.sin, small, device="v5e:2x4")))
    assert [dim for _, dim in data.options] == [-1, 0]
    assert [dim for _, dim in model.options] == [-1]


def test_the_axes_of_a_dimension_keep_their_order(mesh):
    x = jax.ShapeDtypeStruct((16, 8), "float32", sharding=NamedSharding(mesh, P(("model", "data"))))
    widget = ml.try_shardings(ml.inspect(jnp.sin, x, device="v5e:2x4"))
    assert widget.specs == {"x": P(("model", "data"), None)}
    model = menus(widget)[2]
    model.value = 1
    model.value = 0  # the axis chosen last divides the parts of the others
    widget._queue.wait()
    assert widget.specs == {"x": P(("data", "model"), None)}
    assert widget.inspection.mesh["x"].axes == (("data", "model"), ())
    assert widget.errors == []


def test_the_mesh_may_be_that_of_the_equations(mesh):
    def scaled(x):
        return jax.lax.with_sharding_constraint(2 * x, NamedSharding(mesh, P("data")))

    x = jax.ShapeDtypeStruct((16, 8), "float32")
    widget = ml.try_shardings(ml.inspect(scaled, x, device="v5e:2x4"))
    menus(widget)[2].value = 1
    widget._queue.wait()
    assert widget.errors == []
    assert "model" in widget.inspection.mesh["x"].axes[1]


def test_a_program_without_a_common_mesh_is_refused(mesh):
    other = ml.device_mesh("v5e:2x4", rows=4, columns=2)
    x = jax.ShapeDtypeStruct((16, 8), "float32", sharding=NamedSharding(mesh, P("data")))
    y = jax.ShapeDtypeStruct((16, 8), "float32", sharding=NamedSharding(other, P("rows")))
    program = ml.inspect(jnp.add, x, y, device="v5e:2x4")
    with pytest.raises(UnknownOptionError, match=r"'add' .* more than one mesh"):
        ml.try_shardings(program)


def test_sums_without_unknown_parts_are_lower_bounds(mesh):
    def step(w, x):
        split = NamedSharding(mesh, P(None, "model"))

        def again(y):
            return jax.lax.with_sharding_constraint(jnp.tanh(y @ w), split)

        return jax.lax.while_loop(lambda y: y.sum() < 3, again, x) @ w

    w = jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(mesh, P("model")))
    x = jax.ShapeDtypeStruct((8, 64), "float32", sharding=NamedSharding(mesh, P(None, "model")))
    program = ml.inspect(step, w, x, device="v5e:2x4")
    assert program.cost("compiled").total.text("wire_bytes").startswith("≥")
    figures = shardings._figures(program, program.mesh)
    assert figures["bytes sent by one device"].startswith("≥ ")
    assert figures["predicted time of collectives"].startswith("≥ ")
    assert not figures["collectives"].startswith("≥")


def test_a_failed_display_leaves_the_last_program(program, monkeypatch):
    widget = ml.try_shardings(program)
    before = widget.children[2].value
    monkeypatch.setattr(shardings, "bundle", lambda use: 1 / 0)
    menus(widget)[2].value = 0
    widget._queue.wait()
    assert 'role="alert"' in widget.children[1].value
    assert (widget.inspection, widget.children[2].value) == (program, before)


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
