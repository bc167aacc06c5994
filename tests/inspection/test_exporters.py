"""`Inspection.save`: the format follows the suffix; other packages register formats."""

from __future__ import annotations

import json

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
        "    known  .html, .json, .svg, .txt\n"
        "    Try: inspection.save('sin.json')"
    )


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
