"""The output of an inspection in a notebook: small, readable without scripts, computed without a compiler."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from benchmarks.corpus import corpus
from mithril_nb.display import render
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.models import Linear, Model, Relu
from mithril_nb.viz.costs.overlays import block_shares
from mithril_nb.viz.html_parts import link_script
from mithril_nb.viz.pages.inspection import summary_html, summary_text

SPEC = jax.ShapeDtypeStruct((2, 3), "float32")


@pytest.fixture(scope="module")
def gpt() -> Inspection:
    fn, args = corpus()["GPT-2 small, train step"]()
    return inspect(fn, *args)


def test_the_summary_is_small_and_compiles_nothing(gpt: Inspection, parsed) -> None:
    bundle = gpt._repr_mimebundle_()
    page = parsed(bundle["text/html"])
    assert len(bundle["text/html"].encode()) <= 300_000
    assert not gpt.is_compiled
    assert [attributes["data-stage"] for _, attributes in page.elements if "data-stage" in attributes] == [
        "jaxpr", "stablehlo",
    ]  # fmt: skip
    assert "not computed yet" in page.texts
    assert bundle["text/plain"].startswith("program 'step'\n\nstage ")
    assert "×" in bundle["text/plain"]  # equal blocks are folded


def test_links_work_without_scripts_and_the_graph_is_linked_too(gpt: Inspection, parsed) -> None:
    html = summary_html(gpt).replace(link_script(), "")
    page = parsed(html)
    assert "<script" not in html
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    links = [attributes["href"] for _, attributes in page.elements if "href" in attributes]
    assert links
    assert {link[1:] for link in links} <= ids
    lit = {attributes["data-block"] for _, attributes in page.elements if attributes.get("data-block")}
    written = {of for _, attributes in page.elements for of in (attributes.get("data-of") or "").split()}
    assert any(of == block or of.startswith(f"{block}/") for of in written for block in lit)


def test_lines_that_only_list_inputs_are_skipped(gpt: Inspection) -> None:
    html = summary_html(gpt)
    assert re.search(r"more lines, not shown here, \d+ of them before these", html)


def test_blocks_include_the_costs_of_blocks_inside() -> None:
    @jax.jit
    def fn(x):
        with jax.named_scope("outer"):
            with jax.named_scope("one"):
                x = x @ x
            with jax.named_scope("two"):
                return x @ x

    shares = block_shares(inspect(fn, jax.ShapeDtypeStruct((4, 4), "float32")))
    assert shares == {"outer": 1.0, "outer/one": 0.5, "outer/two": 0.5}


def test_a_program_that_cannot_be_traced_shows_the_error(parsed) -> None:
    program = inspect(lambda x: jnp.sin(x) @ x, SPEC)
    html = summary_html(program)
    parsed(html)
    error = "TypeError: dot_general requires contracting dimensions to have the same shape, got (3,) and (2,)."
    assert html.count(f"not available: {error}") == 2
    assert '<span class="f">sin</span>' in html
    assert error in summary_text(program)
    assert "sin" not in block_shares(program)


def test_graphs_and_pictures_of_stages_are_shown(parsed) -> None:
    graph = inspect(lambda x: jnp.sin(x) * 2, SPEC).graph()
    bundle = graph._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg ")
    assert bundle["text/plain"].splitlines()[0].split() == ["x", "input", "2×3"]


def test_names_are_escaped(parsed) -> None:
    def fn(x):
        with jax.named_scope("<b>&'\""):
            return x + 1

    page = parsed(summary_html(inspect(fn, SPEC, name="<i>")))
    assert "i" not in {tag for tag, attributes in page.elements if not attributes.get("class", "").startswith("h")}
    assert not {"b"} & {tag for tag, attributes in page.elements if "class" in attributes}


def test_untrusted_output_is_a_picture_with_one_sentence() -> None:
    """JupyterLab's sanitizer drops style sheets, scripts and inline SVG, and keeps `hidden` and images."""
    model = Model() + Linear(8) + Relu()
    design = ml.workbench(model, shapes={"input": [4, 4]}, autosave=False)._repr_mimebundle_()[0]["text/html"]
    for page in (design, render(ml.inspect(model, shapes={"input": [4, 4]}))["text/html"]):
        sanitized = re.sub(r"<(style|script|svg)\b.*?</\1>", "", page, flags=re.DOTALL)
        visible, hidden = sanitized.split('<div class="content" hidden>')
        assert re.findall(r"<img [^>]*>", visible) != []
        assert len(re.sub("<[^>]*>", "", visible)) < 100
        assert len(re.sub("<[^>]*>", "", hidden)) > 500
