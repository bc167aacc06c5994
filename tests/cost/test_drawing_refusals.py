"""Invalid options of charts raise whole error messages, whose advice works when pasted."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.models import Linear, Model, Relu
from mithril_nb.viz.costs.drawing import Drawing

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
def known() -> dict[str, Any]:
    square = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    inspection = ml.inspect(net, square, square)
    inner = Model() + Linear(8) + Relu()
    model = Model()
    model += inner
    model += Linear(4)
    return {
        "ml": ml,
        "inspection": inspection,
        "cost": inspection.cost(),
        "comparison": inspection.cost("lowered").compare(inspection.cost("compiled")),
        "model": model,
        "drawing": inspection.cost().treemap(),
    }


def refused(call: Callable[[SimpleNamespace], Any], known: dict[str, Any], kind: str = "UnknownOptionError") -> str:
    """Return the error message of a call, after running its advice."""
    with pytest.raises(MithrilError) as raised:
        call(SimpleNamespace(**known))
    assert type(raised.value).__name__ == kind
    assert isinstance(eval(raised.value.diagnostics[-1].advice, dict(known)), Drawing)
    return str(raised.value)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (greedy, "the function 'greedy'"),
        (Layer(), "an object of type 'Layer'"),
        (Layer, "the class 'Layer'"),
        ("hidden", "'hidden'"),
        (None, "None"),
    ],
    ids=["function", "module", "class", "text", "nothing"],
)
def test_a_callable_that_is_not_a_graph_raises_without_a_call(target: Any, told: str, known: dict[str, Any]) -> None:
    CALLED.clear()
    assert refused(lambda here: here.cost.overlay(target), known) == (
        f"costs of 'net' cannot be shown on {told}.\n"
        "    needs  an inspection, a mithril_nb model, or the graph of one of them\n"
        "    Try: cost.overlay(inspection)"
    )
    assert CALLED == []


def test_a_graph_of_another_program_raises(known: dict[str, Any]) -> None:
    other = ml.inspect(jnp.tanh, jax.ShapeDtypeStruct((3,), jnp.float32), name="other")
    assert refused(lambda here: here.cost.overlay(other), known) == (
        "the costs of 'net' contain no block of this graph.\n"
        "    costs  hidden, head\n"
        "    graph  tanh\n"
        "    Try: inspection.cost().overlay(inspection)"
    )


def test_unknown_groups_to_expand_raise(known: dict[str, Any]) -> None:
    cost, inspection, model = known["cost"], known["inspection"], known["model"]
    assert cost.overlay(inspection, expanded="hidden").svg == cost.overlay(inspection, expanded=["hidden"]).svg
    assert refused(lambda here: here.cost.overlay(inspection, expanded=3), known) == (
        "cost.overlay cannot take expanded=3.\n"
        "    needs  paths of groups, as strings\n"
        '    Try: cost.overlay(inspection, expanded=["hidden"])'
    )
    assert refused(lambda here: here.cost.overlay(inspection, expanded=["haed"]), known, "UnknownBlockError") == (
        "cost.overlay cannot expand 'haed': the graph has no such path.\n"
        "    groups  hidden, head\n"
        '    Try: cost.overlay(inspection, expanded=["head"])'
    )
    of_model = {**known, "cost": ml.inspect(model, shapes={"input": [2, 3]}).cost()}
    assert refused(lambda here: here.cost.overlay(model, expanded=["model"]), of_model, "UnknownBlockError") == (
        "cost.overlay cannot expand 'model': the graph has no such path.\n"
        "    groups  model_0\n"
        '    Try: cost.overlay(model, expanded=["model_0"])'
    )


@pytest.mark.parametrize("width", ["wide", None, True, float("nan"), float("inf"), -5, 0, 20_000], ids=str)
def test_widths_are_numbers(width: Any, known: dict[str, Any]) -> None:
    for called in ("cost.treemap", "cost.roofline", "comparison.beside"):
        of, name = called.split(".")
        told = refused(lambda here, of=of, name=name: getattr(getattr(here, of), name)(width=width), known)
        assert told == (
            f"{called} cannot take width={width!r}.\n"
            "    needs  a number of px above 0, at most 10,000\n"
            f"    Try: {called}(width=720)"
        )


def test_a_width_may_be_any_number_of_px(known: dict[str, Any]) -> None:
    cost = known["cost"]
    assert cost.treemap(width=500.4).svg == cost.treemap(width=500).svg
    assert cost.treemap(width=jnp.float32(500).item()).svg == cost.treemap(width=500).svg


@pytest.mark.parametrize(
    ("call", "given", "advice"),
    [
        (lambda here: here.cost.treemap("flop"), "'flop'", 'cost.treemap("flops")'),
        (lambda here: here.cost.treemap("bytes"), "'bytes'", 'cost.treemap("bytes_accessed")'),
        (lambda here: here.cost.treemap(["time_s"]), "['time_s']", 'cost.treemap("flops")'),
        (lambda here: here.cost.overlay(here.inspection, "parameters"), "'parameters'",
            'cost.overlay(inspection, "params")'),
        (lambda here: here.comparison.beside("time"), "'time'", 'comparison.beside("time_s")'),
    ],
)  # fmt: skip
def test_a_misspelt_figure_raises(call: Any, given: str, advice: str, known: dict[str, Any]) -> None:
    more = ", payload_bytes, wire_bytes" if "overlay" in advice else ""
    assert refused(call, known) == (
        f"unknown cost field {given}.\n"
        f"    fields  flops, bytes_accessed, params, time_s, transcendentals{more}\n"
        f"    Try: {advice}"
    )


@pytest.mark.parametrize(
    ("peaks", "told", "advice"),
    [
        (3, "3", '{"flops_per_s": 1e+12, "bytes_per_s": 1e+11}'),
        ("h100", "'h100'", '{"flops_per_s": 1e+12, "bytes_per_s": 1e+11}'),
        ({"flops": 5e9}, "{'flops': 5000000000.0}", '{"flops_per_s": 5e+09, "bytes_per_s": 1e+11}'),
        ({"flops_per_s": {"float32": 2}, "bytes": 1e9}, "{'flops_per_s': {'float32': 2}, 'bytes': 1000000000.0}",
            '{"flops_per_s": {"float32": 2}, "bytes_per_s": 1e+09}'),
        ({"flops_per_s": "1e12", "bytes_per_s": 1e9}, "{'flops_per_s': '1e12', 'bytes_per_s': 1000000000.0}",
            '{"flops_per_s": 1e+12, "bytes_per_s": 1e+09}'),
        ({"flops_per_s": float("nan")}, "{'flops_per_s': nan}", '{"flops_per_s": 1e+12, "bytes_per_s": 1e+11}'),
        ({"bytes_per_s": -1e9}, "{'bytes_per_s': -1000000000.0}", '{"flops_per_s": 1e+12, "bytes_per_s": 1e+11}'),
        ({"bytes_per_s": True}, "{'bytes_per_s': True}", '{"flops_per_s": 1e+12, "bytes_per_s": 1e+11}'),
        ({"flops_per_s": {"float32": 0}}, "{'flops_per_s': {'float32': 0}}",
            '{"flops_per_s": 1e+12, "bytes_per_s": 1e+11}'),
    ],
)  # fmt: skip
def test_invalid_peaks_raise(peaks: Any, told: str, advice: str, known: dict[str, Any]) -> None:
    assert refused(lambda here: here.cost.roofline(peaks), known) == (
        f"cost.roofline cannot take peaks={told}.\n"
        "    needs  flops_per_s and bytes_per_s as numbers above 0, or the result of ml.machine()\n"
        f"    Try: cost.roofline({advice})"
    )


def test_the_machine_function_itself_raises_as_peaks(known: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = ml.machine.__globals__["Machine"]("cpu", "cpu", 2, "0", "", {"float32": 2e11}, 6e10, "2026-01-01", "told")
    here = {**known, "ml": SimpleNamespace(machine=lambda: peaks)}
    for slip in (ml.machine, type(peaks)):
        told = refused(lambda known, slip=slip: known.cost.roofline(slip), here)
        assert told.endswith("    Try: cost.roofline(ml.machine())")
    assert known["cost"].roofline(peaks).svg == known["cost"].roofline(peaks.to_dict()).svg
    told = refused(lambda known: known.cost.roofline(known.cost), here)
    assert "cannot take peaks=Cost('net', analytic: " in told


@pytest.mark.parametrize("path", [3, None, b"a.svg", "a\0.svg"], ids=str)
def test_a_picture_is_saved_to_a_path(path: Any, known: dict[str, Any], monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MithrilError) as raised:
        known["drawing"].save(path)
    assert str(raised.value) == (
        f"drawing.save cannot take path={path!r}.\n"
        "    needs  a file name, as a string or pathlib.Path\n"
        '    Try: drawing.save("costs.svg")'
    )
    assert eval(raised.value.diagnostics[0].advice, dict(known)).read_text().startswith("<svg")
