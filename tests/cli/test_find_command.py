"""`mithril-nb find`: blocks of a model, equations of a program, and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import mithril_nb as ml
from mithril_nb.models import Linear, Model, Relu

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ml.save(Model() + Linear(8) + Relu(), "model.json")


def test_a_model_without_shapes_is_searched_by_block(printed) -> None:
    out = printed("find", "model.json", "kind:linear")
    assert out == "1 of 2 blocks matches: kind:linear\nblock     kind\nlinear_0  Linear\n"


def test_a_program_is_searched_by_equation(printed) -> None:
    out = printed("find", "model.json", "kind:dot flops>100", "--shape", "input=4,5")
    assert "linear_0  dot_general" in out
    arguments = ("role:backward kind:dot", "--shape", "input=4,5", "--program", "train-step", "--json")
    found = json.loads(printed("find", "model.json", *arguments))
    assert {one["role"] for one in found["matches"]} == {"backward"}


def test_a_query_of_costs_needs_shapes(refused) -> None:
    err = refused("find", "model.json", "flops>100")
    assert "the shape of input 'input' is unknown" in err


def test_a_bad_query_is_reported(refused) -> None:
    err = refused("find", "no-such-file.json", "flops>many")
    assert err == "UnknownOptionError: flops needs a number in a query.\n    received  many\n    Try: flops>1e6\n"
