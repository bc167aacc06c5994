"""Sweeps over one setting or two."""

from __future__ import annotations

import re
import sys
from typing import Any

import jax.numpy as jnp
import pytest
from analysis.whatif.programs import perceptron, spec
from jax_programs import on_host

import mithril_nb as ml
from mithril_nb.analysis.whatif import sweep, what_if
from mithril_nb.analysis.whatif.sweeps import FIELDS
from mithril_nb.errors import UnavailableBackendError
from mithril_nb.models import Linear
from mithril_nb.targets import inspect
from mithril_nb.viz.text import escaped


def test_swept_settings_need_no_default() -> None:
    def make(width: int) -> Any:
        return jnp.sin, (spec(width),)

    assert [point.transcendentals for point in sweep(make, width=[3, 4]).points] == [3, 4]


def test_a_sweep_over_two_settings_has_a_point_for_each_pair() -> None:
    found = ml.sweep(perceptron, batch=[8, 16], width=[4, 6, 8])
    assert found.settings == {"batch": (8, 16), "width": (4, 6, 8)}
    assert [tuple(point.settings.values()) for point in found.points] == [
        (8, 4), (8, 6), (8, 8), (16, 4), (16, 6), (16, 8),
    ]  # fmt: skip
    for point in found.points:
        function, args = perceptron(**point.settings)
        total = inspect(function, *args).cost().total
        assert (point.flops, point.bytes_accessed) == (total.flops, total.bytes_accessed)
        assert (point.transcendentals, point.params, point.way) == (total.transcendentals, total.params, "traced")
        assert (point.peak_bytes or 0) > 0
        assert point.time_s is None
        assert point.reasons == {"time_s": 'the program is not run; source="measured" runs it'}


def test_a_fixed_setting_is_not_a_list() -> None:
    found = sweep(perceptron, batch=[8, 16], width=4, peak=False)
    assert [point.flops for point in found.points] == [2 * batch * (4 * 32 + 32 * 4) for batch in (8, 16)]
    assert found.points[0].reasons["peak_bytes"] == "not computed; peak=True computes it"


def test_a_compiled_sweep_has_xlas_figures() -> None:
    found = sweep(perceptron, batch=[8], source="compiled")
    function, args = perceptron(batch=8)
    (point,) = found.points
    assert point.flops == inspect(function, *args).cost("compiled").total.flops
    assert point.way == found.source == "compiled"
    assert (point.peak_bytes or 0) > 0


def test_a_measured_sweep_has_times() -> None:
    found = sweep(perceptron, batch=[8, 16], source="measured")
    assert all((point.time_s or 0) > 0 for point in found.points)
    assert "time_s" in found.to_dict()["fields"]


def test_a_model_is_swept_by_its_batch_and_an_attribute() -> None:
    found = sweep(Linear(3), shapes={"input": [2, 5]}, batch=[2, 4], changes={"linear.dimension": [3, 6]}, peak=False)
    assert [point.flops for point in found.points] == [
        2 * batch * 5 * width + batch * width for batch in (2, 4) for width in (3, 6)
    ]


def test_a_failing_point_is_unknown_and_the_others_are_kept() -> None:
    def make(batch: int = 8) -> Any:
        if batch == 16:
            raise ValueError("no room for 16")
        return perceptron(batch)

    found = sweep(make, batch=[8, 16, 32], peak=False)
    assert [point.flops is None for point in found.points] == [False, True, False]
    assert found.points[1].reasons["flops"] == "ValueError: no room for 16"
    assert found.notes == (
        "peak_bytes: not computed; peak=True computes it",
        'time_s: the program is not run; source="measured" runs it',
    )
    assert str(found).splitlines()[5] == (
        "FLOPs, bytes accessed, transcendentals, parameters unknown at batch=16: ValueError: no room for 16"
    )


def test_a_sweep_works_with_invalid_defaults() -> None:
    def make(batch: int = 8, width: int = 0) -> Any:
        assert width, "a width is needed"
        return perceptron(batch, width)

    assert [point.flops for point in sweep(make, width=[4], peak=False).points] == [2 * 8 * (4 * 32 + 32 * 4)]


def test_a_sweep_is_plain_data_a_table_and_a_picture() -> None:
    found = sweep(perceptron, batch=[8, 16], dtype=["float32", "bfloat16"])
    data = found.to_dict()
    assert data["settings"] == {"batch": [8, 16], "dtype": ["float32", "bfloat16"]}
    assert data["fields"] == [key for key in FIELDS if key != "time_s"]
    assert data["points"][1]["settings"] == {"batch": 8, "dtype": "bfloat16"}
    assert repr(found) == "Sweep('perceptron', batch=[8, 16], dtype=['float32', 'bfloat16']; analytic)"
    shown = found._repr_mimebundle_()
    assert shown["image/svg+xml"].startswith("<svg")
    for cell in re.split(r" {2,}|\n", str(found))[1:]:  # the cell has the content of the text
        assert escaped(cell) in shown["text/html"] + shown["image/svg+xml"]
    frame = found.to_pandas()
    assert list(frame.columns[:3]) == ["batch", "dtype", "flops"]
    assert list(frame["flops"]) == [point.flops for point in found.points]


def test_without_pandas_the_error_has_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sweep(perceptron, batch=[8], peak=False)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UnavailableBackendError, match=r"Sweep.to_pandas needs pandas"):
        found.to_pandas()


def test_a_function_with_its_arguments_is_swept_by_its_batch() -> None:
    def double(x: Any) -> Any:
        return x + x

    found = sweep(double, spec(4, 3), batch=[2, 8], peak=False)
    assert [(point.flops, point.params) for point in found.points] == [(6, None), (24, None)]
    assert found.notes[0] == (
        "params: the argument x is not called 'params'; "
        'pass ml.inspect(..., params="x"), or params=() if the program has no parameters'
    )
    row = next(line.split() for line in str(what_if(double, spec(4, 3))(batch=8)).splitlines() if "parameters" in line)
    assert row == ["parameters", *["unknown"] * 3]
    assert sweep(double, spec(4, 3), params="x", batch=[2, 8], peak=False).points[1].params == 24


def test_lower_bounds_are_marked() -> None:
    def make(n: int = 8) -> Any:
        return lambda x: on_host(x) @ x, (spec(n, n),)

    found = sweep(make, n=[4, 8], peak=False)
    rows = str(found).splitlines()
    assert [row.split()[1] for row in rows if row.split()[:1] in (["4"], ["8"])] == ["≥", "≥"]
    assert any(row.endswith("lower bounds, because some costs of the program are unknown") for row in rows)
    assert "≥" not in str(sweep(perceptron, batch=[8], peak=False))
