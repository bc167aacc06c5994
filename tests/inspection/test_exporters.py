"""`Inspection.save`: the format follows the suffix; other packages register formats."""

from __future__ import annotations

import json
from pathlib import Path

import jax.numpy as jnp
import pytest

import mithril_nb as ml
from mithril_nb.errors import ModelFileError, UnknownOptionError
from mithril_nb.inspection import exporter


@pytest.fixture(scope="module")
def inspection():
    return ml.inspect(jnp.sin, jnp.zeros(3))


def test_suffix_selects_the_format(inspection, tmp_path) -> None:
    assert inspection.save(tmp_path / "sin.HTML").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert inspection.save(tmp_path / "sin.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "sin" in inspection.save(tmp_path / "sin.txt").read_text(encoding="utf-8")
    assert json.loads(inspection.save(str(tmp_path / "sin.json")).read_text(encoding="utf-8"))["name"] == "sin"


def test_unknown_suffix(inspection) -> None:
    with pytest.raises(UnknownOptionError) as caught:
        inspection.save("sin.jsn")
    assert str(caught.value) == (
        "cannot save 'sin.jsn': no file format has the suffix '.jsn'.\n"
        "    known  .html, .json, .mlir, .svg, .txt\n"
        "    Try: inspection.save('sin.json')"
    )


@pytest.mark.parametrize("suffix", [".json", ".mlir"])
def test_a_saved_inspection_can_be_inspected(suffix, tmp_path) -> None:
    def step(x):
        return jnp.tanh(x @ x).sum()

    p = ml.inspect(step, jnp.ones((3, 3)))
    again = ml.inspect(str(p.save(tmp_path / f"step{suffix}")))
    assert (again.name, again.inputs[0].spec) == ("step", p.inputs[0].spec)
    assert again.cost("compiled").total.flops == p.cost("compiled").total.flops


def test_json_without_a_program_is_not_inspected(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    ml.save(ml.models.Linear(3), "model.json")
    with pytest.raises(ModelFileError) as caught:
        ml.inspect("model.json")
    assert str(caught.value) == (
        "cannot inspect 'model.json': it is not a saved inspection.\n"
        "    Try: ml.inspect(ml.load('model.json'), shapes=shapes)  # if it is a model"
    )
    Path("jaxpr.json").write_text(ml.inspect(jnp.sin, jnp.ones(3)).to_json("jaxpr", passes=False), encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"'jaxpr.json': it has no StableHLO or HLO"):
        ml.inspect(Path("jaxpr.json"))


@pytest.mark.parametrize("suffix", [".png", ".dot", ".pdf"])
def test_no_picture_is_saved_under_a_wrong_suffix(inspection, suffix, tmp_path) -> None:
    path = tmp_path / f"sin{suffix}"
    for save in (inspection.save, inspection.overlay("flops").save):
        with pytest.raises(UnknownOptionError, match=r"sin|ends in"):
            save(path)
    assert not path.exists()


def test_folder_that_does_not_exist(inspection, tmp_path) -> None:
    path = str(tmp_path / "none" / "sin.json")
    with pytest.raises(ModelFileError) as caught:
        inspection.save(path)
    assert str(caught.value) == (
        f'cannot write {path!r}.\n    because  No such file or directory\n    Try: inspection.save("inspection.json")'
    )


@pytest.mark.parametrize("suffix", ["csv", ".CSV", "", 3, "."])
def test_invalid_suffix(suffix) -> None:
    with pytest.raises(UnknownOptionError, match="is not a valid file suffix"):
        exporter(suffix)


def test_suffixes_start_with_a_dot() -> None:
    with pytest.raises(UnknownOptionError, match="'csv' is not a valid file suffix"):
        exporter("csv")
