"""`mithril-nb compare`: saved inspections, models and programs, in each format."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from transcript import read_transcript

import mithril_nb as ml
from mithril_nb.errors import ModelFileError
from mithril_nb.inspection.saved import saved_inspection
from mithril_nb.models import Linear, Model, Relu

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two models and two inspections; it is the working directory."""
    monkeypatch.chdir(tmp_path)
    ml.save(Model() + Linear(8) + Relu(), "before.json")
    ml.save(Model() + Linear(9) + Relu(), "after.json")
    for name, function in (("sin", jnp.sin), ("cos", jnp.cos)):
        Path(f"{name}.json").write_text(ml.inspect(function, jnp.zeros(3)).to_json("jaxpr", passes=False))
    return tmp_path


@pytest.mark.usefixtures("files")
def test_models_are_compared_by_their_blocks(printed):
    out = printed("compare", "before.json", "after.json")
    assert "~  linear_0  Linear  dimension: 8 → 9" in out
    out = printed("compare", "before.json", "after.json", "--shape", "input=4,5", "--stage", "jaxpr")
    assert out.startswith("jaxpr: ")
    assert "+    a:f32[9]  # params['linear_0.bias']" in out


@pytest.mark.usefixtures("files")
def test_saved_inspections_are_compared_line_by_line(printed):
    out = printed("compare", "sin.json", "cos.json", "--stage", "jaxpr")
    assert "-    b:f32[3] = sin a\n+    b:f32[3] = cos a\n" in out
    assert "sin.json" in printed("compare", "sin.json", "cos.json")


@pytest.mark.usefixtures("files")
def test_formats(run_cli: Run, printed):
    code, out, _ = run_cli("compare", "sin.json", "cos.json", "--format", "json")
    data = json.loads(out)
    assert code == 0
    assert data["stages"]["jaxpr"]["is_same"] is False
    code, out, _ = run_cli("compare", "sin.json", "cos.json", "--format", "html", "-o", "page.html")
    assert (code, out[:17]) == (0, "wrote page.html, ")
    assert Path("page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert printed("compare", "sin.json", "cos.json", "--format", "html").startswith("<!DOCTYPE html>")
    assert run_cli("compare", "sin.json", "cos.json", "-o", "text.txt")[0] == 0
    assert "sin.json" in Path("text.txt").read_text(encoding="utf-8")


REFUSED = """
before.json after.json --stage hlo
UnknownOptionError: both sides need the stage 'hlo'.

sin.json cos.json --stage jaxp
UnknownOptionError: both sides need the stage 'jaxp'.
    both have  jaxpr

sin.json before.json
UnknownOptionError: cannot compare a model without shapes with a program.

sin.json cos.json -o none/page.html
ModelFileError: cannot write 'none/page.html'.
    because  No such file or directory
"""


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("command", "message"), read_transcript(REFUSED))
def test_errors(refused, command: str, message: str) -> None:
    assert refused("compare", *shlex.split(command)).startswith(message)


def exported(page: str, name: str) -> dict[str, Any]:
    """Return what a saved page exports as JSON (`page/page.ts`)."""
    packed = re.search(r'id="mnb-data">([^<]*)<', page)
    assert packed is not None
    data = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    return {
        "format": "mithril_nb.page",
        "version": 1,
        "name": name,
        **{key: data[key] for key in data if key != "rows"},
    }


def test_the_json_export_of_a_page_is_compared(tmp_path, printed):
    def before(x):
        with jax.named_scope("a"):
            return jnp.sin(x)

    def after(x):
        with jax.named_scope("a"):
            return jnp.sin(x) * 2

    files = []
    for at, function in enumerate((before, after)):
        inspection = ml.inspect(function, jnp.zeros(3))
        data = exported(inspection.to_html(stages=["jaxpr", "stablehlo"]), "program")
        saved = saved_inspection(data)
        assert saved.jax == jax.__version__
        for stage in saved.stages.values():
            known = inspection.stage(stage.name)
            assert stage.text == known.text
            for name in ("line", "lines", "opcode", "equations", "shares", "role", "source"):
                assert [getattr(one, name) for one in stage.instructions] == [
                    getattr(one, name) for one in known.instructions
                ]
        files.append(tmp_path / f"{at}.json")
        files[-1].write_text(json.dumps(data))
    assert ml.compare(*files).stages == ("jaxpr", "stablehlo")
    out = printed("compare", *map(str, files))
    assert "~  a  equations: 1 added" in out
    data["stages"][0]["columns"]["opcode"][0] = 99
    with pytest.raises(ModelFileError, match="index below"):
        saved_inspection(data)
