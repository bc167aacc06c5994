"""Invalid options of charts raise errors that state what is needed, before anything is called."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec
from raised import message_of

import mithril_nb as ml
from mithril_nb.errors import MithrilError, UnknownBlockError, UnknownOptionError
from mithril_nb.models import Linear, Model, Relu

CALLED: list[str] = []


def net(x: Any, w: Any) -> Any:
    with jax.named_scope("hidden"):
        x = jnp.tanh(x @ w)
    with jax.named_scope("head"):
        return x @ w


def greedy(*args: Any) -> None:
    """A function that accepts any arguments and records that it was called."""
    CALLED.append("greedy")


class Layer:
    """A module of another library: a callable with an attribute `graph`."""

    def __call__(self) -> None:
        CALLED.append("layer")

    def graph(self) -> None:
        CALLED.append("graph")


@pytest.fixture(scope="module")
def inspection() -> Any:
    square = spec(8, 8)
    return ml.inspect(net, square, square)


@pytest.fixture(scope="module")
def cost(inspection: Any) -> Any:
    return inspection.cost()


@pytest.mark.parametrize("target", [greedy, Layer(), Layer, "hidden", None], ids=range(5))
def test_a_callable_that_is_not_a_graph_raises_without_a_call(target: Any, cost: Any) -> None:
    CALLED.clear()
    with pytest.raises(UnknownOptionError, match=r"^costs of 'net' cannot be shown on "):
        cost.overlay(target)
    assert CALLED == []


def test_unknown_groups_to_expand_raise(cost: Any, inspection: Any) -> None:
    assert cost.overlay(inspection, expanded="hidden").svg == cost.overlay(inspection, expanded=["hidden"]).svg
    model = Model()
    model += Model() + Linear(8) + Relu()
    model += Linear(4)
    of_model = ml.inspect(model, shapes={"input": [2, 3]}).cost()
    for drawn, target, name, groups in (
        (cost, inspection, "haed", "hidden, head"),
        (of_model, model, "model", "model_0"),
    ):
        with pytest.raises(UnknownBlockError) as raised:
            drawn.overlay(target, expanded=[name])
        assert str(raised.value) == (
            f"cost.overlay cannot expand {name!r}: the graph has no such path.\n    groups  {groups}"
        )


@pytest.mark.parametrize("width", ["wide", None, True, float("nan"), float("inf"), -5, 0, 20_000], ids=str)
def test_widths_are_numbers(width: Any, cost: Any) -> None:
    for name in ("treemap", "roofline"):
        with pytest.raises(UnknownOptionError) as raised:
            getattr(cost, name)(width=width)
        assert str(raised.value) == (
            f"cost.{name} cannot take width={width!r}.\n    needs  a number of px above 0, at most 10,000"
        )


def test_a_width_may_be_any_number_of_px(cost: Any) -> None:
    assert cost.treemap(width=500.4).svg == cost.treemap(width=500).svg
    assert cost.treemap(width=jnp.float32(500).item()).svg == cost.treemap(width=500).svg


@pytest.mark.parametrize("field", ["flop", "bytes", ["time_s"]], ids=str)
def test_a_misspelt_figure_raises(field: Any, cost: Any) -> None:
    assert message_of(lambda: cost.treemap(field)) == (
        f"UnknownOptionError: unknown cost field {field!r}.\n"
        "    fields  flops, bytes_accessed, params, time_s, predicted_s, transcendentals"
    )


@pytest.mark.parametrize(
    "peaks",
    [
        3, "h100", {"flops": 5e9}, {"flops_per_s": {"float32": 2}, "bytes": 1e9},
        {"flops_per_s": "1e12", "bytes_per_s": 1e9}, {"flops_per_s": float("nan")}, {"bytes_per_s": -1e9},
        {"bytes_per_s": True}, {"flops_per_s": {"float32": 0}}, ml.machine,
    ],
    ids=range(10),
)  # fmt: skip
def test_invalid_peaks_raise(peaks: Any, cost: Any) -> None:
    with pytest.raises(UnknownOptionError, match=r"^cost.roofline cannot take peaks=") as raised:
        cost.roofline(peaks)
    assert "flops_per_s and bytes_per_s as numbers above 0, or the result of ml.machine()" in str(raised.value)


def test_a_machine_is_a_roof(cost: Any) -> None:
    peaks = ml.machine.__globals__["Machine"]("cpu", "cpu", 2, "0", "", {"float32": 2e11}, 6e10, "2026-01-01", "told")
    assert cost.roofline(peaks).svg == cost.roofline(peaks.to_dict()).svg


def test_a_picture_is_saved_as_svg_or_text(cost: Any) -> None:
    with pytest.raises(MithrilError) as raised:
        cost.treemap().save("costs.png")
    assert str(raised.value) == (
        "drawing.save cannot take path='costs.png'.\n    needs  a file name that ends in .svg or .txt"
    )
