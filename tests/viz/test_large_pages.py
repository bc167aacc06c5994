"""Pages and outputs of flat programs of many scopes: their bytes, elements and rows, and names that are markup."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.viz.costs.tables.table import MOST_PLAIN_ROWS
from tests.viz.test_inspection_page import data_of, text_of

COUNT = 1_000
SPEC = jax.ShapeDtypeStruct((16,), "float32")


def flat(x: Any) -> Any:
    for number in range(COUNT):
        with jax.named_scope(f"scope_{number}"):
            x = jnp.tanh(x * 2.0) + jnp.sin(x)
    return x


@pytest.fixture(scope="module")
def program() -> Inspection:
    return inspect(flat, SPEC)


@pytest.fixture(scope="module")
def page(program: Inspection) -> str:
    return program.to_html()


def test_a_page_of_1000_scopes_is_small(page: str, parsed) -> None:
    assert len(page.encode()) <= 1_500_000
    elements = parsed(page).elements
    assert len(elements) <= 6_000
    # One fusion has all blocks and equations: no line lists them, and its stripe has one bar for each hue.
    assert max(len(value or "") for _, attributes in elements for value in attributes.values()) < 2_000
    assert (
        max(len(re.findall("<i ", stripe)) for stripe in re.findall(r'<span class="s[^"]*"><span>.*?</span>', page))
        <= 9
    )


def test_the_script_has_a_row_for_each_block(page: str, parsed) -> None:
    rows = data_of(page)["rows"]
    assert [re.findall(r'data-block="([^"]*)"', row) for row in rows] == [[f"scope_{at}"] for at in range(COUNT)]
    assert all("32 FLOP" in row for row in rows)
    static = page.partition("<h2>Cost</h2>")[2].partition("<script")[0]
    assert 1 < static.count("<tr") < MOST_PLAIN_ROWS
    assert "scope_0–999 ×1000" in static


def test_without_scripts_a_page_shows_the_start_of_everything(page: str) -> None:
    static = page.partition("<script")[0]
    assert "The first lines of each stage. With JavaScript, this page shows all lines" in static
    assert "1,000 blocks. Equal blocks and small blocks share a row. With JavaScript, each block has a row." in static
    assert len(re.findall(r'<section class="pane" data-stage', static)) == 8
    assert "×1000" in static.partition('<div class="plain">')[0]  # the graph
    links = re.findall(r'href="#([^"]*)"', static)
    assert links
    assert set(links) <= set(re.findall(r' id="([^"]*)"', static))


def test_all_lines_and_links_of_a_large_page_are_in_its_data(page: str, program: Inspection) -> None:
    for packed in data_of(page)["stages"]:
        stage = program.stage(packed["name"])
        assert text_of(packed) == stage.text
        assert len(packed["columns"]["equations"]) == len(stage.instructions)
        last = packed["tables"]["equations"][packed["columns"]["equations"][-1]]
        assert tuple(last) == stage.instructions[-1].equations


def test_the_output_of_1000_scopes_is_small(program: Inspection) -> None:
    html = program._repr_mimebundle_()["text/html"]
    assert len(html.encode()) <= 300_000


HOSTILE = ("</script><img src=x onerror=alert(1)>", "a\"'`<b>", "\u202egnp.exe", "line\nbreak", "x" * 5_000)


def test_hostile_names_of_many_blocks_stay_data(parsed) -> None:
    def program(x: Any) -> Any:
        for number in range(MOST_PLAIN_ROWS + 10):
            with jax.named_scope(f"{HOSTILE[number % len(HOSTILE)]} {number}"):
                x = jnp.sin(x)
        return x

    page = inspect(program, SPEC, name="<script>alert(1)</script>").to_html(stages=["jaxpr", "stablehlo"])
    elements = parsed(page).elements
    assert "img" not in {tag for tag, _ in elements}
    assert not [name for _, attributes in elements for name in attributes if name.startswith("on")]
    assert page.count("</script>") == 2
    rows = data_of(page)["rows"]
    assert len(rows) > MOST_PLAIN_ROWS
    for row in rows:
        found = parsed(f"<table><tbody>{row}</tbody></table>").elements
        assert {tag for tag, _ in found} <= {"table", "tbody", "tr", "th", "td", "span", "i"}
        assert not [name for _, attributes in found for name in attributes if name.startswith("on")]
