"""The Cost tab in a real browser, by mouse and keyboard: sources side by side, linked pictures, measuring, what if."""

from __future__ import annotations

from typing import Any

import pytest
from lab import DARK, LIGHT, focus, press
from layered import EXPLORED
from small_workbench import MODEL, OPEN, node, settled, shown

PANEL = '[data-mnb-panel="cost"]'

FAINT = """(panel) => {
    // Every text against the ground that it stands on, by WCAG 2's formula.
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgba = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const over = (top, below) => [0, 1, 2].map((i) => (top[i] * top[3] + below[i] * (255 - top[3])) / 255);
    const ground = (element) => {
        const layers = [];
        for (let at = element; at; at = at.parentElement) {
            const colour = rgba(getComputedStyle(at).backgroundColor);
            layers.push(colour);
            if (colour[3] === 255) break;
        }
        return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
    };
    const light = (colour) => {
        const part = colour.map((one) => one / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
    };
    const faint = [];
    for (const element of document.querySelectorAll(`${panel} *`)) {
        const text = [...element.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
        if (!text || !element.checkVisibility() || element.closest('[aria-disabled], option')) continue;
        const below = ground(element);
        const [a, b] = [light(over(rgba(getComputedStyle(element).color), below)), light(below)].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < 4.5) faint.push([element.textContent.slice(0, 40), Number(ratio.toFixed(2))]);
    }
    return faint;
}"""


@pytest.fixture(scope="module")
def latest() -> dict[str, Any]:
    """The cell that was run last, and its page: one workbench serves several tests."""
    return {}


@pytest.fixture
def tab(run_cells, kept, latest):
    """Open the workbench, or take the one that is open, as it was; and return what finds a control of the Cost tab."""

    def open_one(cell: str = OPEN, root: str = ".mnb-workbench") -> tuple[Any, Any]:
        def at(action: str) -> Any:
            return notebook.page.locator(f'{root} [data-mnb-action="{action}"]')

        is_open = kept.page is not None and latest == {"cell": cell, "page": kept.page}
        notebook = kept.page if is_open else run_cells([MODEL, cell], width=1280, height=1000)
        latest.update(cell=cell, page=notebook)
        shown(notebook)
        notebook.page.locator(f'{root} [data-mnb-tab="cost"]').click()
        if root == ".mnb-workbench":
            at("layout.cost").click()
        at("cost.view.table").click()
        for source in ("analytic", "lowered", "compiled", "measured"):
            if at(f"cost.source.{source}").get_attribute("aria-pressed") != str(source == "analytic").lower():
                at(f"cost.source.{source}").click()
        at("cost.figure").select_option("flops")
        notebook.page.locator(f"{root} tr[data-mnb-cost]").first.wait_for()
        notebook.page.locator(f"{root} .mnb-tabs").scroll_into_view_if_needed()
        return notebook, at

    return open_one


def rows(notebook: Any) -> list[str]:
    found = notebook.page.locator(f"{PANEL} tbody tr[data-mnb-cost]").all()
    return [row.get_attribute("data-mnb-cost") for row in found]


def is_sound(notebook: Any, name: str = "wb") -> bool:
    return notebook.problems == [] and notebook.evaluate(f"[str(one) for one in {name}.errors]") == []


def test_keys_sort_the_table_and_compare_sources(tab) -> None:
    notebook, at = tab()
    page = notebook.page
    model_order = rows(notebook)
    assert model_order[:5] == ["linear_0", "relu_0", "linear_1", "relu_1", "linear_2"]
    focus(at("cost.sort.flops"))
    press(page, "Enter")
    header = page.locator(f'{PANEL} th[aria-sort="descending"]')
    assert header.inner_text().startswith("FLOPs")
    flops = notebook.evaluate("{path: one.flops for path, one in wb.cost.by_block.items()}")
    assert rows(notebook) == sorted(model_order, key=lambda path: -flops[path])
    press(page, "Enter", "Enter")
    assert rows(notebook) == model_order
    # Arrows go from source to source, Space presses one.
    focus(at("cost.source.analytic"))
    press(page, "ArrowRight", "Space")
    at("cost.sort.lowered").wait_for()
    press(page, "ArrowRight", "Space")
    at("cost.sort.compiled").wait_for()
    total = page.locator(f"{PANEL} .mnb-total td")
    titles = [total.nth(place).get_attribute("title") for place in range(3)]
    expected = notebook.evaluate(
        "[wb.session.analysis.inspection.cost(one).total.flops for one in ('analytic', 'lowered', 'compiled')]"
    )
    assert titles == [f"{value:,} FLOP" for value in expected]
    # A row opens to its equations, the most expensive first.
    at("cost.source.lowered").click()
    at("cost.source.compiled").click()
    focus(page.locator(f'{PANEL} tr[data-mnb-cost="linear_1"]'))
    press(page, "ArrowRight")
    page.locator(f"{PANEL} .mnb-cost-detail", has_text="dot_general").wait_for()
    press(page, "ArrowLeft")
    for theme in (DARK, LIGHT):
        notebook.set_theme(theme)
        assert page.evaluate(FAINT, PANEL) == [], theme
    assert is_sound(notebook)


def test_clicking_a_treemap_cell_selects_the_block(tab) -> None:
    notebook, at = tab()
    page = notebook.page
    settled(notebook, "jaxpr")
    focus(at("cost.view.table"))
    press(page, "ArrowRight")
    cell = page.locator(f'{PANEL} .mnb-drawing [data-block="linear_1"]')
    cell.wait_for()
    size = page.evaluate(
        """(panel) => [...document.querySelector(`${panel} .mnb-drawing`).shadowRoot.querySelectorAll('[data-block]')]
            .map((one) => [one.dataset.block, one.querySelector('rect').width.baseVal.value
                * one.querySelector('rect').height.baseVal.value])""",
        PANEL,
    )
    flops = notebook.evaluate("{path: one.flops for path, one in wb.cost.by_block.items()}")
    hidden = "(panel) => { const one = document.querySelector(panel); return one.scrollHeight - one.clientHeight; }"
    at("full.tab").click()
    page.wait_for_function(f"({hidden})({PANEL!r}) <= 0")  # in full screen, all of the picture is in view
    at("full.tab").click()
    largest = max(size, key=lambda one: one[1])
    assert largest[0] == max(flops, key=flops.get), "the largest area is the most expensive block"
    cell.click()
    notebook.wait_for("wb.selection == ('linear_1',)")
    assert node(notebook, "linear_1").get_attribute("data-mnb-linked") == "pinned"
    page.locator('[data-mnb-pane="jaxpr"] [data-mnb-linked="pinned"]').first.wait_for(state="attached")
    page.locator(f'{PANEL} .mnb-drawing [data-block="linear_1"][data-mnb-linked="pinned"]').wait_for()
    node(notebook, "linear_0").click()
    page.locator(f'{PANEL} .mnb-drawing [data-block="linear_0"][data-mnb-linked="pinned"]').wait_for()
    page.locator(f"{PANEL} .mnb-words summary").first.click()
    assert "linear_1" in page.locator(f"{PANEL} .mnb-text-version").first.inner_text()
    # The dark theme changes the picture at once.
    fill = f"getComputedStyle(document.querySelector('{PANEL} .mnb-drawing').shadowRoot.querySelector('text')).fill"
    before = page.evaluate(fill)
    notebook.set_theme(DARK)
    page.wait_for_function(f"{fill} !== {before!r}")
    notebook.set_theme(LIGHT)
    assert is_sound(notebook)


def test_compiling_draws_memory_and_comparison(tab) -> None:
    notebook, at = tab()
    page = notebook.page
    at("cost.source.compiled").click()
    at("cost.view.memory").click()
    page.locator('[data-mnb-drawn="memory"]').wait_for()
    peak = notebook.evaluate("wb.session.analysis.inspection.memory.peak_bytes")
    words = page.locator(f"{PANEL} .mnb-cost-picture .mnb-text-version").first.text_content()
    assert f"{peak:,}" in words or f"{peak / 1e3:.1f} kB" in words
    at("cost.view.beside").click()
    page.locator('[data-mnb-drawn="beside"]').wait_for()
    pressed = page.locator(f'{PANEL} [data-mnb-action^="cost.source"][aria-pressed="true"]').all_inner_texts()
    assert pressed == ["Analytic", "Compiled"]
    assert "linear_1" in page.locator(f"{PANEL} .mnb-cost-picture .mnb-text-version").first.text_content()
    assert is_sound(notebook)


def test_measured_times_fill_table_and_roofline(tab) -> None:
    notebook, at = tab()
    page = notebook.page
    at("cost.measure").click()
    at("cost.measure").get_by_text("Measure again").wait_for(timeout=60_000)
    time = page.locator(f'{PANEL} tr[data-mnb-cost="linear_1"] td').nth(4)
    assert time.inner_text().split()[-1] in ("µs", "ms", "s")
    at("cost.view.roofline").click()
    page.locator('[data-mnb-drawn="roofline"]').wait_for(timeout=60_000)
    assert "reached" in page.locator(f"{PANEL} .mnb-cost-picture .mnb-text-version").first.text_content()
    assert page.locator(f'{PANEL} .mnb-drawing [data-block="linear_1"]').count() > 0
    # The lines of Python show the times until an edit.
    at("layout.build").click()
    at("pane.python").click()
    times, other = (page.locator('[data-mnb-pane="python"] .mnb-heat', has_text=unit) for unit in ("s", "FLOP"))
    times.first.wait_for()
    node(notebook, "linear_1").click()
    dimension = page.locator('[data-mnb-field="dimension"] input').first
    for size in ("54", "53"):
        dimension.fill(size)
        dimension.press("Enter")
        notebook.wait_for(f"wb.model.graph.by_name['linear_1'].block.options['dimension'] == {size}")
        other.first.wait_for()
        assert times.count() == 0
    at("pane.python").click()
    assert is_sound(notebook)


def test_what_if_shows_and_applies_a_change(tab) -> None:
    notebook, at = tab()
    page = notebook.page
    node(notebook, "linear_0").click()
    at("cost.view.what_if").click()
    batch = page.locator('.mnb-whatif [data-mnb-field="batch"] .mnb-number')
    batch.fill("14")
    batch.press("Enter")
    batch.fill("1e12")
    batch.press("Enter")
    problem = page.locator(f"#{batch.get_attribute('aria-describedby')}")
    assert problem.inner_text() == "“1e12” is too large. Enter a whole number from 1 to 1,048,576."
    for theme in (DARK, LIGHT):
        notebook.set_theme(theme)
        assert page.evaluate(FAINT, PANEL) == [], theme
    batch.press("Escape")
    assert (batch.input_value(), problem.is_visible()) == ("14", False)
    width = page.locator('.mnb-whatif [data-mnb-field="dimension"] .mnb-number')
    width.fill("74")
    width.press("Enter")
    row = page.locator('[data-mnb-whatif="params"]')
    was = notebook.evaluate("wb.cost.total.params")
    page.wait_for_function(
        "(was) => { const cell = document.querySelector('[data-mnb-whatif=\"params\"]')?.children[2];"
        " return cell && cell.title && cell.title !== was; }",
        arg=f"{was:,}",
    )
    titles = [row.locator("td").nth(place).get_attribute("title") for place in range(2)]
    flops = page.locator('[data-mnb-whatif="flops"] td').nth(1).get_attribute("title")
    assert notebook.evaluate("wb.snapshot['shapes']") == {"input": [7, 29]}, "nothing is changed yet"
    at("whatif.apply").click()
    notebook.wait_for("wb.snapshot['shapes'] == {'input': [14, 29]}")
    notebook.wait_for("wb.session.wait(20)")
    assert titles == [f"{was:,}", f"{notebook.evaluate('wb.cost.total.params'):,}"]
    assert flops == f"{notebook.evaluate('wb.cost.total.flops'):,} FLOP"
    notebook.execute("wb.do('undo')")
    notebook.wait_for("wb.snapshot['shapes'] == {'input': [7, 29]}")
    assert is_sound(notebook)


def test_an_explorer_has_costs_and_compiles_only_on_request(tab) -> None:
    notebook, at = tab(EXPLORED, ".mnb-explorer")
    page = notebook.page
    at("cost.view.treemap").click()
    page.locator('.mnb-explorer [data-mnb-drawn="treemap"]').wait_for()
    page.locator('.mnb-explorer .mnb-drawing [data-block="layer_1"]').click()
    page.locator('.mnb-stage-graph [data-mnb-node="layer_1"][data-mnb-linked="pinned"]').wait_for()
    at("cost.view.what_if").click()
    batch = page.locator('.mnb-whatif [data-mnb-field="batch"] .mnb-number')
    batch.fill("14")
    batch.press("Enter")
    page.locator('[data-mnb-whatif="flops"]', has_text="×2").wait_for()
    assert not notebook.evaluate("e.inspection.is_compiled")
    assert at("whatif.apply").count() == 1
    assert not at("whatif.apply").is_visible(), "a program is not edited"
    assert is_sound(notebook, "e")
