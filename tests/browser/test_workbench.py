"""The workbench in a real browser: mouse and keyboard input, visible output, and the kernel's state."""

from __future__ import annotations

import re

import pytest
from key_walk import press_everywhere
from lab import focus, press
from small_workbench import BATCH, MODEL, OPEN, SIZES, STAGES, WIDTHS, node, settled, shown

TRAINING = """
import numpy as np
x = np.random.default_rng(0).normal(size=(512, 29)).astype("float32")
y = (x[:, 0] > 0).astype("int32")
wb = ml.workbench(model, shapes={"input": [7, 29]}, data=(x, y), epochs=100_000)
wb
"""

LIVE = """
import numpy as np
run = ml.fit(model, (np.ones((64, 29), "float32"), np.ones(64, "int32")), epochs=2)
run.start()
run.wait()
ml.watch(run)
"""

LONG = """
import mithril_nb as ml
from mithril_nb.models import Linear, Model, Relu
long = "long_" * 190
inner = Model(name="inner") + Linear(5, name=long + "inner") + Relu()
model = Model(name=long) + Linear(8, name=long + "first") + Linear(9, name=long + "second") + inner
model.rename_keys(input=long + "input")
wb = ml.workbench(model, shapes={long + "input": [7, 29]})
wb
"""

TOO_WIDE = """(selector) => {
    const root = document.querySelector(selector), room = root.clientWidth + 1;
    const isTooWide = (one) => one.matches('.mnb-header, .mnb-bar, .mnb-notice, .mnb-tabs, .mnb-canvas')
        ? one.scrollWidth > room
        : one.getBoundingClientRect().width > 3 * room;  // a table of many columns scrolls
    const wide = [...root.querySelectorAll('*')].filter((one) => !one.closest('.cm-content') && isTooWide(one));
    return wide.map((one) => `${one.tagName}.${one.getAttribute('class')}`);
}"""

LIT_LINES = """async (panes) => {
    // A pane draws the lines that are in view: it is scrolled from end to end, all panes in the same frames.
    const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const scan = async (pane) => {
        document.querySelector(`[data-mnb-action="unfold.${pane}"]`).click();
        await frame();
        const scroller = document.querySelector(`[data-mnb-pane="${pane}"] .cm-scroller`);
        const before = scroller.scrollTop;
        const found = new Map();
        for (let y = 0; ; y += Math.max(17, scroller.clientHeight - 34)) {
            scroller.scrollTop = y;
            await frame();
            for (const line of scroller.querySelectorAll('[data-mnb-linked="pinned"]')) {
                found.set(Number(line.dataset.mnbLine), line.textContent);
            }
            if (y >= scroller.scrollHeight) break;
        }
        scroller.scrollTop = before;
        return [...found].sort((a, b) => a[0] - b[0]);
    };
    return Promise.all(panes.map(scan));
}"""

DOT = {"jaxpr": "dot_general", "stablehlo": "dot_general", "hlo": " dot("}


def lit_lines(notebook, *stages: str) -> list[dict[int, str]]:
    """The numbers and texts of the lines that are pinned in each pane."""
    return [dict(lines) for lines in notebook.page.evaluate(LIT_LINES, list(stages))]


def numbers(text: str) -> set[int]:
    """The sizes in the shapes of a line: `f32[7,37]` or `tensor<7x37xf32>`."""
    shapes = re.findall(r"(?:f32|s32|i32|pred|bool)\[([\d,]*)\]", text) + re.findall(r"tensor<([\dx]*)x\w+>", text)
    return {int(size) for shape in shapes for size in re.split("[x,]", shape) if size}


def test_clicking_a_block_highlights_exactly_its_lines(show_workbench, record_property) -> None:
    notebook = show_workbench(OPEN, *STAGES)
    # Low panes would be scanned in many steps.
    notebook.page.evaluate("document.querySelector('.mnb-graph-area').style.flexBasis = '35%'")
    node(notebook, "linear_0").click()
    for path, (size_in, size_out) in WIDTHS.items():
        node(notebook, path).click()
        notebook.wait_for(f"wb.selection == ({path!r},)")
        for stage, lit in zip(STAGES, lit_lines(notebook, *STAGES), strict=True):
            expected = notebook.evaluate(
                f"sorted(line for i in wb.stages[{stage!r}].instructions if {path!r} in i.blocks"
                " for line in range(i.line, i.line + i.lines))"
            )
            assert sorted(lit) == expected, f"{path} in {stage}"
            # Checked by sizes alone, independently of our attribution: a product belongs to the block of its weight.
            products = notebook.evaluate(
                f"[(n, t) for n, t in enumerate(wb.stages[{stage!r}].text.splitlines(), 1) if {DOT[stage]!r} in t]"
            )
            mine = [(number, text) for number, text in products if number in lit]
            assert mine, f"no product of {path} in {stage}"
            assert all(numbers(text) <= {BATCH, size_in, size_out} for _, text in mine), f"{path} in {stage}"
            if stage == "stablehlo":  # its lines contain the shapes of the operands, too
                own = [number for number, text in products if numbers(text) >= {size_in, size_out}]
                assert [number for number, _ in mine] == own, f"{path} in {stage}"
    took = notebook.page.evaluate("performance.getEntriesByName('mnb:link').map((entry) => entry.duration)")
    record_property("link_ms", took)
    print("click to painted highlight, ms:", [round(one) for one in took])


def test_clicking_a_line_selects_its_block(show_workbench) -> None:
    notebook = show_workbench(OPEN, *STAGES)
    line = notebook.page.locator('[data-mnb-pane="stablehlo"] .cm-line', has_text="stablehlo.dot_general").first
    line.click(position={"x": 60, "y": 6})
    notebook.wait_for("wb.selection == ('linear_0',)")
    assert node(notebook, "linear_0").get_attribute("data-mnb-linked") == "pinned"
    [lit] = lit_lines(notebook, "jaxpr")
    assert "dot_general" in lit[min(lit)], min(lit)
    press(notebook.page, "Escape")
    notebook.wait_for("wb.selection == ()")
    assert lit_lines(notebook, "jaxpr") == [{}]


def test_hovering_highlights_without_selecting_or_scrolling(show_workbench) -> None:
    notebook = show_workbench(OPEN, *STAGES)
    places = "() => [...document.querySelectorAll('.cm-scroller')].map((one) => one.scrollTop)"
    before = notebook.page.evaluate(places)
    line = notebook.page.locator('[data-mnb-pane="stablehlo"] .cm-line', has_text="stablehlo.dot_general").first
    line.hover(position={"x": 60, "y": 6})
    notebook.page.locator('[data-mnb-node="linear_0"][data-mnb-linked="hover"]').wait_for()
    node(notebook, "linear_2").hover()  # in one jump between the highlighted lines
    notebook.page.locator('[data-mnb-node="linear_2"][data-mnb-linked="hover"]').wait_for()
    assert notebook.page.evaluate(places) == before
    assert notebook.evaluate("wb.selection") == ()


def test_a_width_slider_updates_all_panes(show_workbench, record_property) -> None:
    notebook = show_workbench(OPEN, *STAGES)
    node(notebook, "linear_0").click()
    before = notebook.evaluate("wb.cost.total.flops")
    slider = notebook.page.locator('.mnb-inspector [data-mnb-field="dimension"] input[type=range]')
    focus(slider)
    notebook.page.evaluate(
        """() => {
            const root = document.querySelector('.mnb-root'), seen = (window.__seen = {start: performance.now()});
            const shown = () => root.querySelector('[data-mnb-node="linear_0"]').textContent;
            const was = shown(), version = root.dataset.mnbVersion;
            const cost = () => root.querySelector('[data-mnb-cost="linear_0"]')?.textContent;
            const dear = cost();
            const look = () => {
                const now = performance.now() - seen.start;
                if (!seen.graph && shown() !== was) seen.graph = now;
                if (!seen.cost && cost() !== dear) seen.cost = now;
                for (const stage of ['jaxpr', 'stablehlo']) {
                    const pane = root.querySelector(`[data-mnb-pane="${stage}"]`);
                    const shows = pane.dataset.mnbVersion;
                    const fresh = shows !== version && shows === root.dataset.mnbVersion;
                    if (!seen[stage] && fresh && pane.dataset.mnbState === 'ready') seen[stage] = now;
                }
                if (Object.keys(seen).length < 5) requestAnimationFrame(look);
            };
            look();
        }"""
    )
    press(notebook.page, "ArrowRight")  # one key is one size, however wide the slider's range
    notebook.wait_for("wb.model.graph.by_name['linear_0'].block.options['dimension'] != 37")
    settled(notebook)
    width = notebook.evaluate("wb.model.graph.by_name['linear_0'].block.options['dimension']")
    assert f"({BATCH}, {width})" in node(notebook, "linear_0").inner_text()
    assert notebook.evaluate("wb.cost.total.flops") > before
    for stage, shape in (("jaxpr", f"f32[{BATCH},{width}]"), ("stablehlo", f"tensor<{BATCH}x{width}xf32>")):
        assert shape in notebook.page.locator(f'[data-mnb-pane="{stage}"] .cm-content').inner_text() or shape in (
            notebook.evaluate(f"wb.stages[{stage!r}].text")
        )
    seen = notebook.page.evaluate("window.__seen")
    print("after a slider's move, ms:", {key: round(value) for key, value in seen.items() if key != "start"})
    record_property("slider_ms", seen)
    # The gesture is one step of undo, and the old stages are there again.
    notebook.page.locator('[data-mnb-action="undo"]').click()
    notebook.wait_for("wb.model.graph.by_name['linear_0'].block.options['dimension'] == 37")
    settled(notebook)


def test_the_keyboard_edits_blocks_and_connections(show_workbench) -> None:
    notebook = show_workbench(OPEN, "jaxpr")
    node(notebook, "relu_0").click()
    search = notebook.page.locator('[data-mnb-action="palette.search"]')
    search.click()
    search.fill("gelu")
    press(notebook.page, "Enter", "Escape")  # the open list lies over blocks in a narrow widget
    notebook.wait_for("'gelu_0' in wb.model.graph.by_name")
    names = "[str(e) for e in wb.model.graph.edges if 'gelu_0' in str(e)]"
    assert sorted(notebook.evaluate(names)) == ["gelu_0.output -> linear_1.input", "relu_0.output -> gelu_0.input"]
    node(notebook, "gelu_0").click()
    press(notebook.page, "F2", "Control+A")
    notebook.page.keyboard.type("<b>act</b>")
    press(notebook.page, "Enter")
    notebook.wait_for("'<b>act</b>' in wb.model.graph.by_name")
    renamed = notebook.page.locator("[data-mnb-node]", has_text="<b>act</b>").first
    renamed.wait_for()
    renamed.click()
    press(notebook.page, "Delete")
    notebook.wait_for(
        "[n.name for n in wb.model.graph.nodes] == ['linear_0', 'relu_0', 'linear_1', 'relu_1', 'linear_2']"
    )


def test_the_shape_of_an_input_is_typed_in_the_header(show_workbench) -> None:
    notebook = show_workbench(OPEN, "jaxpr")
    # The inspector has the field, too.
    header = notebook.page.get_by_role("group", name="Model, program and shapes")
    box = header.locator('[data-mnb-shape="input"]')
    box.fill(f"16, {SIZES[0]}")
    box.press("Enter")
    notebook.wait_for(f"wb.snapshot['shapes'] == {{'input': [16, {SIZES[0]}]}}")
    settled(notebook, "jaxpr")
    assert f"(16, {SIZES[1]})" in node(notebook, "linear_0").inner_text()
    assert notebook.evaluate("wb.errors") == []


def test_a_shape_error_is_shown_on_its_edge_and_in_the_list(show_workbench) -> None:
    notebook = show_workbench(OPEN, "jaxpr")
    notebook.execute("wb.do('set_attribute', path='linear_1', name='input_size', value=5)")
    edge = notebook.page.locator("[data-mnb-edge][data-mnb-problem]").first
    edge.wait_for(state="attached")
    assert edge.get_attribute("data-mnb-edge") == "relu_0.output -> linear_1.input"
    assert notebook.page.locator('[data-mnb-pane="jaxpr"]').get_attribute("data-mnb-state") == "stale"
    notebook.page.locator('[data-mnb-tab="problems"]').click()
    problems = notebook.page.locator('[data-mnb-panel="problems"]').inner_text()
    assert "cannot connect 'relu_0.output' to 'linear_1.input'" in problems
    notebook.execute("wb.do('undo')")
    settled(notebook, "jaxpr")


def test_code_is_typed_completed_and_applied(show_workbench, screenshots) -> None:
    notebook = show_workbench(OPEN)
    page = notebook.page
    page.locator('[data-mnb-tab="source"]').click()
    editor = page.locator('[data-mnb-part="source"] .cm-content')
    editor.click()
    page.keyboard.press("Control+End")
    page.keyboard.type("model += LeakyR")
    page.locator(".mnb-completions li", has_text="LeakyRelu").click()
    page.keyboard.type(")  # new")
    page.keyboard.press("Control+Enter")
    notebook.wait_for("'leaky_relu_0' in wb.session.design.graph.by_name")
    node(notebook, "leaky_relu_0").wait_for()
    code = notebook.evaluate("wb.session.snapshot()['source']")
    assert code.startswith("from mithril_nb.models import Linear, Model, Relu, LeakyRelu\n")
    assert code.endswith("model += LeakyRelu()  # new")
    page.keyboard.press("Enter")
    page.keyboard.type("model += Wrong()")
    page.keyboard.press("Control+Enter")
    page.locator(".mnb-code-error", has_text="does not exist").wait_for()
    assert "Wrong" in page.locator(".mnb-error-line").inner_text()
    notebook.pictures(screenshots, "source", widths=(1280,), of=page.locator(".mnb-root").first)
    page.keyboard.press("Control+z")  # of the editor, not of the workbench
    assert notebook.evaluate("'leaky_relu_0' in wb.session.design.graph.by_name")
    assert "Wrong" not in editor.inner_text()
    # Edits of the canvas change only their line.
    notebook.execute("wb.do('set_attribute', path='linear_0', name='dimension', value=9)")
    page.locator('[data-mnb-part="source"] .cm-line', has_text="Linear(9)").wait_for()
    assert "# new" in editor.inner_text()


def test_completions_stay_at_their_word(show_workbench) -> None:
    """Below it or above it, inside the window; hidden with it; closed when the editor loses the focus."""
    notebook = show_workbench(OPEN)
    page = notebook.page
    page.locator('[data-mnb-tab="source"]').click()
    editor = page.locator('[data-mnb-part="source"] .cm-content')
    editor.click()
    press(page, "Control+End")
    page.keyboard.type("Leaky")
    listed = page.locator(".mnb-completions")
    listed.wait_for()
    word = editor.locator(".cm-line").last

    def boxes() -> tuple[dict[str, float], dict[str, float]]:
        return listed.bounding_box(), word.bounding_box()

    def is_beside_its_word() -> bool:
        shown, line = boxes()
        return min(abs(shown["y"] - line["y"] - line["height"]), abs(shown["y"] + shown["height"] - line["y"])) < 4

    assert is_beside_its_word(), boxes()
    assert editor.get_attribute("aria-activedescendant") == listed.locator("[aria-selected=true]").get_attribute("id")
    # The notebook scrolls around the editor.
    before = word.bounding_box()["y"]
    page.locator(".jp-WindowedPanel-outer").first.evaluate("outer => { outer.scrollTop -= 60; }")
    page.wait_for_function(f"""() => Math.abs([...document.querySelectorAll(
        '[data-mnb-part="source"] .cm-line')].at(-1).getBoundingClientRect().y - {before}) > 20""")
    page.wait_for_timeout(100)
    assert is_beside_its_word(), boxes()
    # The window ends at the right.
    press(page, "Escape")
    width = page.viewport_size["width"]
    room = """line => {
        const text = document.createRange();
        text.selectNodeContents(line);
        return line.closest('.cm-scroller').getBoundingClientRect().right - text.getBoundingClientRect().right;
    }"""
    while word.evaluate(room) > 60:
        page.keyboard.type("     ")
    page.keyboard.type("Li")
    listed.wait_for()
    shown = listed.bounding_box()
    assert shown["x"] + shown["width"] <= width
    # The editor scrolls.
    press(page, "Escape", "Home")
    page.keyboard.insert_text("\n" * 40 + "Leak")
    page.keyboard.type("y")
    listed.wait_for()
    page.locator('[data-mnb-part="source"] .cm-scroller').evaluate("scroller => { scroller.scrollTop -= 200; }")
    page.locator(".mnb-completions").wait_for(state="hidden")
    press(page, "Tab")
    page.locator(".mnb-completions").wait_for(state="detached")


def test_an_error_far_above_the_caret_comes_into_view(show_workbench) -> None:
    """The last line closed a bracket that is open since the second one."""
    notebook = show_workbench(OPEN)
    page = notebook.page
    page.locator('[data-mnb-tab="source"]').click()
    page.locator('[data-mnb-part="source"] .cm-content').click()
    press(page, "Control+a")
    page.keyboard.insert_text(
        "from mithril_nb.models import Model\nmodel = Model(\n" + "\n" * 150 + "    name='net',\n"
    )
    press(page, "Control+End")
    press(page, "Control+Enter")
    page.locator(".mnb-code-error", has_text="never closed").wait_for()
    message, pane = (
        page.locator(of).bounding_box() for of in (".mnb-code-error", '[data-mnb-part="source"] .cm-scroller')
    )
    assert pane["y"] <= message["y"]
    assert message["y"] + message["height"] <= pane["y"] + pane["height"]


def test_settings_of_training_are_chosen_by_mouse_and_keys(show_workbench, screenshots) -> None:
    notebook = show_workbench(TRAINING.replace("100_000", "1"))
    page = notebook.page
    page.locator('[data-mnb-tab="train"]').click()
    field = page.locator('[data-mnb-part="train.settings"] [data-mnb-field]')
    page.locator('[data-mnb-field="optimizer"] select').select_option("sgd")
    page.locator('[data-mnb-action="train.parameters"]').click()
    momentum = page.locator('[data-mnb-field="momentum"] .mnb-number')
    momentum.fill("0.5")
    momentum.press("Enter")
    page.locator('[data-mnb-field="schedule"] select').select_option("cosine decay")
    rate = page.locator('[data-mnb-field="learning_rate"] .mnb-number')
    rate.fill("0.3")
    rate.press("Enter")
    notebook.wait_for("dict(wb.session.design.training).get('learning_rate') == 0.3")
    chosen = {"learning_rate": 0.3, "momentum": 0.5, "optimizer": "sgd", "schedule": "cosine decay"}
    assert notebook.evaluate("dict(wb.session.design.training)") == chosen
    assert field.count() > 5
    notebook.pictures(screenshots, "train-settings", widths=(1280,))
    page.locator('[data-mnb-action="train.run"]').click()
    notebook.wait_for("wb.runs and wb.runs[0].state == 'done'", 60)
    assert abs(notebook.evaluate("float(wb.runs[0].history['learning_rate'][0])") - 0.3) < 1e-6
    page.locator('[data-mnb-action="train.continue"]').click()
    notebook.wait_for("wb.runs[0].step == 2 * 16", 60)
    figures = page.locator(".mnb-run-figures")
    assert figures.bounding_box()["height"] > 40, "the settings below took the room of the figures"
    notebook.pictures(screenshots, "train-settings-done", widths=(1280,))
    node(notebook, "linear_0").click()
    trained = page.locator(".mnb-parameters .mnb-row", has_text="mean")
    trained.nth(1).wait_for()  # of weight and bias
    std = notebook.evaluate("f'{wb.run.params[\"linear_0.weight\"].std():.3g}'")
    assert std in trained.first.inner_text()
    notebook.pictures(screenshots, "train-parameters", widths=(1280,))


def test_live_training_is_controlled_and_kernel_stays_free(show_workbench, record_property) -> None:
    notebook = show_workbench(TRAINING)
    page = notebook.page
    page.locator('[data-mnb-tab="train"]').click()
    page.locator('[data-mnb-action="train.run"]').click()
    notebook.wait_for("wb.run is not None and len(wb.run.history) > 50", 60)
    page.locator('[data-mnb-panel="train"] canvas').first.wait_for()
    assert notebook.evaluate("1 + 1") == 2  # the kernel answers while it trains
    page.locator('[data-mnb-action="train.run"]').click()
    notebook.wait_for("wb.run.state == 'paused'")
    paused = notebook.evaluate("wb.run.snapshot()['step']")
    page.locator('[data-mnb-action="train.step"]').click()
    notebook.wait_for(f"wb.run.snapshot()['step'] == {paused + 1} and wb.run.state == 'paused'")
    # The page follows too: the step that it shows is the step that was taken.
    page.locator('[data-mnb-run="paused"]', has_text=f"step {paused + 1:,} of").first.wait_for()
    page.locator('[data-mnb-action="train.run"]').click()
    notebook.wait_for(f"wb.run.state == 'running' and len(wb.run.history) > {paused + 20}")
    notebook.execute(
        "import time\n"
        "stopped = []\n"
        "wb.run.observe(lambda event: stopped.append(time.time()) if event.kind == 'stopped' else None)"
    )
    clicked = page.evaluate(
        "() => { document.querySelector('[data-mnb-action=\"train.stop\"]').click(); return Date.now() / 1000; }"
    )
    notebook.wait_for("wb.run.state == 'stopped' and stopped")
    took = notebook.evaluate("stopped[0]") - clicked
    print("stop button to the end of the loop, ms:", round(1000 * took))
    record_property("stop_ms", 1000 * took)
    assert notebook.evaluate("sorted(wb.run.params)[0]") == "linear_0.bias"


def test_the_inspector_shows_the_cost_formula_of_a_block(show_workbench) -> None:
    notebook = show_workbench(OPEN, *STAGES)
    page = notebook.page
    letters = page.locator('[data-mnb-action="formula.letters"]')
    node(notebook, next(iter(WIDTHS))).click()
    focus(letters)
    press(page, "Enter")
    for path, (size_in, size_out) in WIDTHS.items():
        node(notebook, path).click()
        formula = page.locator('[data-mnb-part="formula"][data-mnb-state="ready"]')
        formula.locator(".mnb-term").first.wait_for()
        page.wait_for_function(
            "size => document.querySelector('.mnb-term-letters').textContent.includes(size)", arg=f"= {size_in}"
        )
        assert f"M = {BATCH}, N = {size_out}, K = {size_in}" in formula.inner_text()
        assert formula.get_attribute("data-mnb-state") == "ready"
        facts = page.locator(".mnb-inspector .mnb-facts")
        assert facts.evaluate("list => list.clientHeight === list.scrollHeight && list.clientHeight > 0")
    focus(letters)
    press(page, "Enter")
    assert page.locator(".mnb-term").first.is_hidden()
    assert notebook.evaluate(f"wb.selection == ({path!r},)")


@pytest.mark.parametrize(("cell", "root", "short"), [(OPEN, ".mnb-workbench", 100), (LIVE, ".mnb-live", 40)])
def test_keys_pressed_anywhere_in_a_widget_stay_in_it(run_cells, stress, cell: str, root: str, short: int) -> None:
    notebook = run_cells([MODEL, cell], width=1280, height=1300)
    notebook.page.locator(f"{root} button").filter(visible=True).first.wait_for()
    found = press_everywhere(notebook, root, stress.size(short=short, long=10_000))
    stress.report(kinds=found["kinds"], presses=found["presses"], wrong=len(found["wrong"]))
    assert found["wrong"] == []


def test_blocks_added_in_quick_succession_keep_their_order(show_workbench) -> None:
    notebook = show_workbench(OPEN, "jaxpr")
    page = notebook.page
    node(notebook, "linear_2").click()
    node(notebook, "relu_0").click()
    search = page.locator('[data-mnb-action="palette.search"]')
    search.click()
    page.evaluate(
        """(kinds) => {
            const input = document.querySelector('[data-mnb-action="palette.search"]');
            for (const kind of kinds) {
                input.value = kind;
                input.dispatchEvent(new Event('input'));
                input.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}));
            }
        }""",
        ["Gelu", "Tanh", "Sigmoid", "Softplus", "Linear"],
    )
    notebook.wait_for("len(wb.model.graph.nodes) == 10")
    order = [notebook.evaluate("next(e.target.node for e in wb.model.graph.edges if e.source.node == 'relu_0')")]
    for _ in range(5):
        order += notebook.evaluate(f"[e.target.node for e in wb.model.graph.edges if e.source.node == {order[-1]!r}]")
    assert order == ["gelu_0", "tanh_0", "sigmoid_0", "softplus_0", "linear_3", "linear_1"]


def test_names_of_any_length_are_elided(run_cells) -> None:
    notebook = run_cells([LONG], width=1280, height=1300)
    page = notebook.page
    shown(notebook)
    settled(notebook, "jaxpr")
    assert page.locator(".mnb-model-name").get_attribute("title") == "long_" * 190
    wide = {"first": page.evaluate(TOO_WIDE, ".mnb-root")}
    page.locator("[data-mnb-node]").nth(1).click()
    notebook.wait_for("wb.selection")
    page.locator('[data-mnb-tab="cost"]').click()
    for part in ("view.treemap", "view.memory", "view.beside", "view.what_if", "view.table"):
        page.locator(f'[data-mnb-action="cost.{part}"]').click()
        wide[part] = page.evaluate(TOO_WIDE, ".mnb-root")
    notebook.execute("wb.do('set_attribute', path=wb.selection[0], name='input_size', value=5)")
    page.locator(".mnb-problem").first.wait_for(state="attached")
    for tab in ("passes", "train", "source", "problems"):
        page.locator(f'[data-mnb-tab="{tab}"]').click()
        wide[tab] = page.evaluate(TOO_WIDE, ".mnb-root")
    notebook.execute("wb.session.run_command('connect', {'source': wb.selection[0], 'target': wb.selection[0]})")
    page.locator('[data-mnb-part="notice"]').wait_for()
    page.locator("[data-mnb-node]").nth(1).focus()
    press(page, "c")
    page.locator(".mnb-menu .mnb-option").first.wait_for()
    wide["notice and menu"] = page.evaluate(TOO_WIDE, ".mnb-root")
    assert page.locator(".mnb-canvas").evaluate("canvas => canvas.scrollLeft") == 0, "the menu moved the graph"
    assert page.locator('[data-mnb-part="notice"]').bounding_box()["height"] < 260
    assert {what: found for what, found in wide.items() if found} == {}
