"""Saved inspections are read as they were, and damaged ones raise an error of this package."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mithril_nb as ml
from mithril_nb.errors import ModelFileError
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.inspection.saved import SavedInspection, is_saved_inspection, saved_inspection


@cache
def program() -> Inspection:
    def step(w: Any, x: Any) -> Any:
        with jax.named_scope("net"):
            return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, length=3)[0]

    return inspect(step, jnp.ones((4, 4)), jnp.ones((2, 4)), params="w")


@cache
def text() -> str:
    return program().to_json("jaxpr", "stablehlo", passes=False)


def test_everything_that_is_saved_is_read_again() -> None:
    saved = saved_inspection(json.loads(text()))
    assert (saved.name, saved.jax) == ("step", jax.__version__)
    for name in ("jaxpr", "stablehlo"):
        live, stage = program().stage(name), saved.stages[name]
        assert stage.text == live.text
        assert [vars(one) for one in stage.instructions] == [vars(one) for one in live.instructions]
    places = [one.source_range for one in program().equations]
    assert all(place is not None for place in places)  # the only field that a comparison does not need
    known = [{**vars(one), "source_range": None} for one in program().equations]
    assert [vars(one) for one in saved.equations] == known
    assert [one.name for one in saved.inputs] == [one.name for one in program().inputs]


values = st.sampled_from((None, True, -1, 10**400, 0.5, "", "\x1b[31m", [], {}, [[]], {"shape": 3}))


@settings(deadline=None)
@given(st.data())
def test_a_damaged_file_raises_an_error_of_this_package(data: st.DataObject) -> None:
    whole = json.loads(text())
    part: Any = whole
    for _ in range(data.draw(st.integers(0, 4))):
        keys = [*part] if isinstance(part, dict) else [*range(len(part))]
        inner = [key for key in keys if isinstance(part[key], dict | list) and part[key]]
        if not inner:
            break
        part = part[data.draw(st.sampled_from(inner))]
    key = data.draw(st.sampled_from([*part] if isinstance(part, dict) else [*range(len(part))]))
    if isinstance(part, dict) and data.draw(st.booleans()):
        del part[key]
    else:
        part[key] = data.draw(values)
    message = ""
    try:
        assert isinstance(saved_inspection(whole), SavedInspection)
    except ModelFileError as error:
        message = str(error)
    assert not message or message.startswith(("this inspection is broken.", "this inspection was written in version "))


def test_lines_outside_of_the_text_are_refused() -> None:
    whole = copy.deepcopy(json.loads(text()))
    whole["stages"][0]["instructions"][0]["lines"] = 10**12
    with pytest.raises(ModelFileError, match=r"an instruction ends on line 1,000,000,000,\d+ of \d+"):
        saved_inspection(whole)


def test_only_inspections_are_inspections() -> None:
    assert is_saved_inspection(json.loads(text()))
    assert not any(map(is_saved_inspection, (None, [], {}, {"format": "mithril_nb.model"})))


@pytest.mark.parametrize(("content", "message"), [(None, "cannot read"), ("no JSON", "is not valid JSON")])
def test_a_file_that_is_no_inspection_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "inspection.json"
    if content:
        path.write_text(content)
    with pytest.raises(ModelFileError, match=message):
        ml.compare(path, path)
