"""MIME bundles of each value, and the bundle if a renderer fails or the front end is not built."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from picture_geometry import model_layout

import mithril_nb as ml
from mithril_nb import display
from mithril_nb.display import Shown, render
from mithril_nb.errors import StageUnavailableError
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.models import Linear, Model, Relu
from mithril_nb.stages.records import Stage
from mithril_nb.viz import html_parts

MARKUP = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write")


def test_a_graph_is_a_picture_and_a_text(nested):
    bundle = nested._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/svg+xml", "text/html"}
    assert bundle["image/svg+xml"].startswith("<svg ")
    # An SVG alone follows the system's theme; in HTML it follows the notebook's theme, trusted or not.
    data = b64encode(bundle["image/svg+xml"].encode()).decode()
    assert bundle["text/html"].endswith(f'src="data:image/svg+xml;base64,{data}">')
    assert 'alt="input       input"' in bundle["text/html"]
    assert '[data-jp-theme-light="false"] .mnb-picture' in bundle["text/html"]
    assert bundle["text/plain"].splitlines()[:2] == [
        "input       input",
        "norm        LayerNorm       <- input",
    ]


def test_shapes_are_inferred_for_the_picture():
    bundle = (Model() + Linear(64) + Relu() + Linear(10)).graph._repr_mimebundle_()
    assert ">64 → 10</text>" in bundle["image/svg+xml"]


def test_a_stage_is_a_listing():
    bundle = Stage("jaxpr", "{ lambda  let  in () }")._repr_mimebundle_()
    assert bundle["text/plain"] == "{ lambda  let  in () }"
    assert "mnb-linked" in bundle["text/html"]


def test_a_diagram_has_a_text(nested):
    bundle = render(model_layout(nested))
    assert bundle["text/plain"].startswith("diagram of 4 blocks, ")


def test_a_failing_renderer_falls_back_to_repr_and_the_error(nested, monkeypatch):
    def broken(graph):
        raise ZeroDivisionError("in the renderer")

    monkeypatch.setitem(display._RENDERERS, (LogicalGraph, "bundle"), broken)
    bundle = nested._repr_mimebundle_()
    assert set(bundle) == {"text/plain"}
    assert bundle["text/plain"] == f"{nested!r}\n(cannot draw it: ZeroDivisionError: in the renderer)"


def test_an_unknown_value_falls_back_to_repr():
    class Thing(Shown):
        def __repr__(self):
            return "Thing()"

    assert Thing()._repr_mimebundle_() == {"text/plain": "Thing()"}


def test_importing_viz_is_light():
    heavy = {"jax", "matplotlib", "anywidget", "ipywidgets", "IPython"}
    code = f"import mithril_nb.viz, sys; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True)
    assert (done.stdout.strip(), done.stderr) == (b"[]", b"")


def test_the_script_of_outputs_is_small_and_sends_no_request() -> None:
    script = html_parts.link_script()
    assert script.startswith("<script>")
    assert len(script) < 8_000, "every output contains it"
    for word in (*MARKUP, "fetch", "http", "eval(", "Function("):
        assert word not in script


def test_outputs_need_no_built_file_and_pages_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(html_parts, "STATIC", tmp_path)
    html_parts.link_script.cache_clear()
    program = ml.inspect(jnp.sin, jax.ShapeDtypeStruct((3,), "float32"))
    try:
        html = program._repr_mimebundle_()["text/html"]
        assert "<script" not in html
        assert 'data-stage="jaxpr"' in html
        with pytest.raises(StageUnavailableError, match=r"is not built: page\.js is missing\.") as error:
            program.to_html(stages=["jaxpr"])
    finally:
        html_parts.link_script.cache_clear()
    assert "Try: pip install ." in str(error.value)
